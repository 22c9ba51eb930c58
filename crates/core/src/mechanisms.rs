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
        bypass_lanes: true,
        bypass_once: true,
        wait_while_heard: true,
        node_completion: true,
        chain: true,
    };
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms::ALL
    }
}
