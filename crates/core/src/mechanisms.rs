//! The mechanisms outside the datapath that a simulation can switch off, to prove that its checks
//! would notice.
//!
//! Only the laboratory can, where this crate has its feature `ablations`. Elsewhere they are always
//! on: [`Mechanisms`] is empty, and each check of one is a constant. The datapath's own mechanisms
//! are bits of its feature mask.

/// Whether mechanisms can be switched off in this build: not in the product.
pub const ABLATIONS: bool = cfg!(feature = "ablations");

macro_rules! mechanisms {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Which mechanisms are on.
        #[cfg(feature = "ablations")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Mechanisms { $($(#[$doc])* pub $name: bool,)* }

        /// Which mechanisms are on: all.
        #[cfg(not(feature = "ablations"))]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Mechanisms {}

        impl Mechanisms {
            /// Everything on, as in production.
            #[cfg(feature = "ablations")]
            pub const ALL: Mechanisms = Mechanisms { $($name: true,)* };
            /// Everything on.
            #[cfg(not(feature = "ablations"))]
            pub const ALL: Mechanisms = Mechanisms {};

            $(
                $(#[$doc])*
                #[cfg(feature = "ablations")]
                pub const fn $name(&self) -> bool {
                    self.$name
                }
                $(#[$doc])*
                #[cfg(not(feature = "ablations"))]
                pub const fn $name(&self) -> bool {
                    true
                }
            )*
        }
    };
}

mechanisms! {
    /// A write is applied once all copies of its record are invalid (rule 30).
    invalidated_first,
    /// A copy that was sent a version counts as valid (rule 30).
    sent_is_valid,
    /// A copy is sent what is stored while no write is under way (rule 30).
    fill_when_quiet,
    /// Writes that the engine was given before a key had copies are under way, too (rule 30).
    earlier_writes_count,
    /// A node that restarts has forgotten its copies, and serves in a new epoch only (rule 30).
    copies_by_epoch,
    /// The node stores a record that is embedded in a read before it answers (rule 5).
    embedding_store,
    /// The node stores only what is newer (rules 1 and 3).
    seq_compare,
    /// The node stores what comes out of the cache only under an offer, and above the floor of that
    /// (rule 5).
    offered_stores,
    /// The node tells nothing of offers that it was told to clear (rule 5).
    settled_ends,
    /// The node doesn't apply what is below the floor to absent keys (rule 13).
    floor,
    /// The node sets and obeys fences (rules 2 and 3).
    fence,
    /// An offer is durable before it is sent, and known again after a restart (rule 5).
    durable_offer,
    /// Node and client refuse other epochs (rule 8).
    epoch_fence,
    /// The node holds offered keys from an epoch change to its release (rule 8).
    hold,
    /// Clients preserve what the cache acknowledged (rule 7).
    preservation,
    /// Clients preserve what they read from the cache (rule 7).
    reader_preservation,
    /// Recovery takes the newest version of a key, not the first it sees (rule 9).
    recover_newest,
    /// Clients are told to release only what is durable (rule 6).
    release_after_durable,
    /// By a chain's snapshot clients release what that chain serves, and nothing else (rule 6).
    release_by_chain,
    /// A grant renews the lease of the chains that it offers, and of no others (rule 9).
    lease_by_chain,
    /// The end of a chain's recovery raises the floor of that chain's keys, and of no others (rule
    /// 13).
    floors_by_chain,
    /// No snapshot runs during a recovery (rule 10).
    no_snapshot_in_recovery,
    /// Recovery waits for every client (rule 9).
    gather_all,
    /// A write that expected an absent key and was refused stays refused, by a fence, once the
    /// record that refused it is gone (rule 12).
    fenced_refusals,
    /// A node arbitrates lanes in a bypass epoch (rule 16).
    bypass_lanes,
    /// A node serves a bypass epoch in one life only (rule 16).
    bypass_once,
    /// A client whose lease ran out while no switch served is waited for all the same, as long as
    /// it is heard of (rule 9).
    wait_while_heard,
    /// Conditional writes leave a completion at the node (rule 12).
    node_completion,
    /// An unconditional write that was overtaken by a conditional one is bounced, not called done
    /// (rule 12).
    dependent,
    /// A fence is durable before its read is answered (rule 2).
    durable_fence,
    /// A fence outlives the eviction of its key (rule 3).
    lasting_fence,
    /// A node that restarts while it holds goes on holding (rule 8).
    durable_hold,
    /// An offer is cleared once the switch's entry is gone, not once its record is stored (rule 5).
    late_clearing,
    /// An epoch is durable before other parts hear of it (rule 8).
    durable_epoch,
    /// A client without a lease accepts no answer (rule 9).
    lease,
    /// A client's open writes end as indeterminate with their epoch (rule 9).
    end_with_epoch,
    /// Clients keep records of an old epoch until its recovery is durable (rule 9).
    release_after_recovery,
    /// Generations never restart (rule 10).
    rising_generations,
    /// A snapshot that misses the original of a changed record is not published (rule 6).
    whole_snapshots,
    /// Another epoch is asked for long before the sequence numbers of this one run out (rule 17).
    renewal,
    /// A switch takes a configuration for its own life only (rule 15).
    switch_life,
    /// A client takes a grant for its own life only (rule 15).
    client_life,
    /// A switch takes no entry that is older than its newest (rule 14).
    rising_admissions,
    /// A version that made the cache refuse a condition is preserved like one that was read (rule
    /// 7).
    kept_refusals,
    /// The controller takes no offer that it has told its node to clear (rule 5).
    settled_offers,
    /// Below a risen floor a series of dependent writes that began upon an absent key says nothing
    /// of older writes (rule 13).
    unsure_dependents,
    /// A scan lists the keys that the cache may hold as well, and flags them (rule 18).
    marked_scans,
    /// A node that has joined answers once FLUSH of its view has arrived (rule R10).
    open_after_flush,
    /// A node that joins is a member once it has opened (rule R11).
    member_once_open,
    /// If the source of a join goes, the join begins anew (rule R11).
    join_of_source,
    /// A node joins with nothing of the partition (rule R12).
    join_empty,
    /// Marks are part of a copy (rule R12).
    marks_copied,
    /// A node that joins drops no tombstone (rule R14).
    joiner_keeps_tombstones,
    /// The source of a join keeps its tombstones, too, until the join is over (R14).
    source_keeps_tombstones,
    /// A chain's keepers admit an entry before its owner does (rule 21).
    keepers_first,
    /// Keepers forget an entry after its owner, when its node has stored what that held (rule 21).
    keepers_last,
    /// A witness keeps its records until its recovery is durable (rule 24).
    forget_last,
    /// Nothing is admitted until a recovery is durable (rule 24).
    admit_last,
    /// Nodes are released once a witness refuses its epoch (rule 23).
    release_after_freeze,
    /// What is asked for after a switch's death follows from who protected the last recovered
    /// epoch, not from who protects the next one (rule 25).
    protection_of_last,
    /// A loss is declared once no client accepts answers of the lost epoch (rule 25).
    declare_after_clients,
    /// Copies in one failure domain count as one (rule 25).
    count_domains,
    /// A chain goes on without one end of a link that is dead (rule 28).
    route_around,
    /// The cache is drained before an epoch that recovers nothing begins (rule 27).
    drain_before_change,
    /// Clients end their writes before a planned change (rule 27).
    quiet_before_change,
    /// Clients hold their writes back before a backup is cut (rule 29).
    hold_before_cut,
    /// A cut that takes longer than clients hold their writes back is void (rule 29).
    cut_in_time,
    /// A record is loaded for a snapshot under way before its entry is removed or cleaned (rule 6).
    load_before_removal,
    /// Nodes make checkpoints once the caches' snapshots have begun (rule 29).
    checkpoint_after_snapshot,
    /// A record counts as clean once its node has stored it, not before (rule 26).
    clean_after_store,
    /// That a write ran is said by the tail (R2).
    tail_answers,
    /// So is the refusal of a conditional write (R2).
    tail_refuses,
    /// So is that a write has run before, or that a newer one has overwritten it (R2).
    tail_answers_again,
    /// All replicas have the marks (R4).
    marks_replicated,
    /// All replicas have the completions (R4).
    completions_replicated,
    /// An offer is sent once the tail has its mark (R5).
    offer_confirmed,
    /// A record of the cache counts as stored once the tail has it (R5).
    store_confirmed,
    /// A round begins with all that is unconfirmed (R6).
    resent,
    /// What is unconfirmed is known after a restart (R6).
    durable_unconfirmed,
    /// A frame of another round isn't taken (R7).
    frames_of_round,
    /// A frame of another view isn't taken (R8).
    frames_of_view,
    /// No floor rises above a number that is unconfirmed (R14).
    floor_below_unconfirmed,
    /// What a client's answer rests on is synced in its spool first, if its machine may stop (rule
    /// 7).
    synced_spool,
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms::ALL
    }
}

#[cfg(all(test, not(feature = "ablations")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_there_is_nothing_to_switch_off() {
        const { assert!(size_of::<Mechanisms>() == 0 && !ABLATIONS) };
        const {
            assert!(
                Mechanisms::ALL.fence() && Mechanisms::ALL.lease() && Mechanisms::ALL.epoch_fence()
            )
        };
    }
}
