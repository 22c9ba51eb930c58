//! The mechanisms outside the datapath that a simulation can switch off, to prove that its checks would notice.
//!
//! Production runs with all of them; the datapath's own are bits of its feature mask.

/// Which mechanisms are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Mechanisms {
    /// The node stores a record that is embedded in a read before it answers (rule 5).
    pub embedding_store: bool,
    /// The node stores only what is newer (rule 3).
    pub seq_compare: bool,
    /// The node stores what comes out of the cache only under an offer, and above the floor of that (rule 5).
    pub offered_stores: bool,
    /// The node doesn't apply what is below the floor to absent keys (rule 3).
    pub floor: bool,
    /// The node sets and obeys fences (rules 2 and 3).
    pub fence: bool,
    /// An offer is durable before it is sent, and known again after a restart (rule 5).
    pub durable_offer: bool,
    /// Node and client refuse other epochs (rule 8).
    pub epoch_fence: bool,
    /// The node holds offered keys from an epoch change to its release (rule 8).
    pub hold: bool,
    /// Clients preserve what the cache acknowledged.
    pub preservation: bool,
    /// Clients preserve what they read from the cache (rule 7).
    pub reader_preservation: bool,
    /// Recovery takes the newest version of a key, not the first it sees.
    pub recover_newest: bool,
    /// Clients are told to release only what is durable.
    pub release_after_durable: bool,
    /// No snapshot runs during a recovery (rule 10).
    pub no_snapshot_in_recovery: bool,
    /// Recovery waits for every client (rule 9).
    pub gather_all: bool,
    /// A write that expected an absent key and was refused stays refused (a fence) once the record that refused it is gone.
    pub fenced_refusals: bool,
    /// A node arbitrates lanes in a bypass epoch.
    pub bypass_lanes: bool,
    /// A node serves a bypass epoch in one life only.
    pub bypass_once: bool,
    /// A client whose lease ran out while no switch served is waited for all the same, as long as it is heard of.
    pub wait_while_heard: bool,
    /// Conditional writes leave a completion at the node.
    pub node_completion: bool,
    /// An unconditional write that was overtaken by a conditional one is bounced, not called done.
    pub chain: bool,
    /// A fence is durable before its read is answered (rule 2).
    pub durable_fence: bool,
    /// A fence outlives the eviction of its key (rule 3).
    pub lasting_fence: bool,
    /// A node that restarts while it holds goes on holding (rule 8).
    pub durable_hold: bool,
    /// An offer is cleared once the switch's entry is gone, not once its record is stored (rule 5).
    pub late_clearing: bool,
    /// Nobody hears of an epoch that is not durable (rule 8).
    pub durable_epoch: bool,
    /// A client without a lease accepts no answer (rule 9).
    pub lease: bool,
    /// A client's open writes end as indeterminate with their epoch (rule 9).
    pub end_with_epoch: bool,
    /// Clients keep records of an old epoch until its recovery is durable (rule 9).
    pub release_after_recovery: bool,
    /// Generations never restart (rule 10).
    pub rising_generations: bool,
    /// A snapshot that misses the original of a changed record is not published.
    pub whole_snapshots: bool,
    /// Another epoch is asked for long before the sequence numbers of this one run out.
    pub renewal: bool,
    /// A switch takes a configuration for its own life only.
    pub switch_life: bool,
    /// A client takes a grant for its own life only.
    pub client_life: bool,
    /// A switch takes no entry that is older than its newest.
    pub rising_admissions: bool,
    /// A version that made the cache refuse a condition is preserved like one that was read (rule 7).
    pub kept_refusals: bool,
    /// The controller takes no offer that it has told its node to clear.
    pub settled_offers: bool,
    /// Below a risen floor a chain that began upon nothing says nothing of older writes.
    pub unsure_chains: bool,
    /// A scan lists the keys that the cache may hold as well, and flags them.
    pub marked_scans: bool,
    /// What a client's answer rests on is synced in its spool first, if its machine may stop.
    pub synced_spool: bool,
}

impl Mechanisms {
    /// Everything on, as in production.
    pub const ALL: Mechanisms = Mechanisms {
        embedding_store: true,
        offered_stores: true,
        floor: true,
        seq_compare: true,
        fence: true,
        durable_offer: true,
        epoch_fence: true,
        hold: true,
        preservation: true,
        reader_preservation: true,
        recover_newest: true,
        release_after_durable: true,
        no_snapshot_in_recovery: true,
        gather_all: true,
        fenced_refusals: true,
        bypass_lanes: true,
        bypass_once: true,
        wait_while_heard: true,
        node_completion: true,
        chain: true,
        durable_fence: true,
        lasting_fence: true,
        durable_hold: true,
        late_clearing: true,
        durable_epoch: true,
        lease: true,
        end_with_epoch: true,
        release_after_recovery: true,
        rising_generations: true,
        whole_snapshots: true,
        renewal: true,
        switch_life: true,
        client_life: true,
        rising_admissions: true,
        kept_refusals: true,
        settled_offers: true,
        unsure_chains: true,
        marked_scans: true,
        synced_spool: true,
    };
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms::ALL
    }
}
