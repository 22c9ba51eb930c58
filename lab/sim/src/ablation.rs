//! Mechanisms that a run can do without, by name: each proves that the checks would notice.
//!
//! `tests/ablations.rs` runs each until one of the checks that it names has caught it.

use crate::check::{Check, Checks};
use crate::focus::Focus;
use switchback_core::mechanisms::Mechanisms;
use switchback_datapath::Features;
use switchback_wire::Scheme;

/// How an ablation shows in what clients ask and are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlackBox {
    /// In the racks in which it shows to all checks.
    Same,
    /// In racks with this focus, within this number of seeds.
    In(u64, Focus),
    /// Not yet, and why.
    Hidden(&'static str),
}

/// A run without one mechanism.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ablation {
    /// Its name on the command line.
    pub name: &'static str,
    /// The rule that is broken.
    pub rule: &'static str,
    /// What the datapath does without.
    pub features: Features,
    /// What the other parts do without.
    pub mechanisms: Mechanisms,
    /// The scheme that misses it.
    pub scheme: Scheme,
    /// Whether it takes several replicas of a partition to miss it.
    pub replicated: bool,
    /// What the racks are about that miss it soonest.
    pub focus: Option<Focus>,
    /// How many seeds are enough to catch it.
    pub seeds: u64,
    /// A seed that caught it when few do: it is tried first, so that a test needn't search for it
    /// again. If it has another meaning by now, one run is lost.
    pub hint: Option<u64>,
    /// What breaks without the mechanism: one of these checks has to find it.
    pub caught_by: Checks,
    /// How it shows to checks that see only what clients see.
    pub black_box: BlackBox,
}

const NONE: Features = Features(0);
/// Why clients don't see what the check of that name does.
const DECLARED: BlackBox = BlackBox::Hidden("what is lost is declared: clients don't know why");
/// What is told and not kept.
const TOLD: &[Check] = &[Check::Kept, Check::AcknowledgedWriteLost, Check::SeenValueVanished];
/// What counts as clean and isn't at its node: in no snapshot, and not stored by its eviction.
const CLEANED: &[Check] = &[
    Check::ReleasedTooEarly,
    Check::SnapshotCut,
    Check::Linearizable,
    Check::AcknowledgedWriteLost,
];
/// What replicas lack.
const LACKED: &[Check] = &[
    Check::Linearizable,
    Check::AcknowledgedWriteLost,
    Check::Stored,
    Check::ReleasedTooEarly,
    Check::MembersLackTold,
    Check::ReplicasDiffer,
];
/// What a node lacks that has joined, or has too much.
const JOINED: &[Check] = &[
    Check::Linearizable,
    Check::AcknowledgedWriteLost,
    Check::SeenValueVanished,
    Check::Stored,
    Check::ReleasedTooEarly,
    Check::MembersLackTold,
    Check::ChainOrder,
    Check::ReplicasDiffer,
];
/// Clients miss what keepers lack when a recovery takes it from them.
const RECOVERED: BlackBox = BlackBox::In(60, Focus::Switches);
const ALL: Mechanisms = Mechanisms::ALL;

const fn without(
    name: &'static str,
    rule: &'static str,
    features: Features,
    mechanisms: Mechanisms,
) -> Ablation {
    Ablation {
        name,
        rule,
        features,
        mechanisms,
        scheme: Scheme::FarReach,
        replicated: false,
        focus: None,
        seeds: 0,
        hint: None,
        caught_by: Checks::of(&[]),
        black_box: BlackBox::Same,
    }
}

const fn datapath(name: &'static str, rule: &'static str, features: Features) -> Ablation {
    without(name, rule, features, ALL)
}

const fn parts(name: &'static str, rule: &'static str, mechanisms: Mechanisms) -> Ablation {
    without(name, rule, NONE, mechanisms)
}

impl Ablation {
    /// Nothing is left out.
    pub const NOTHING: Ablation = datapath("nothing", "", NONE);

    /// Every ablation.
    pub const ALL: &'static [Ablation] = &[
        datapath(
            "no-embedding",
            "a read of an outdated dirty record under eviction carries it to the node",
            Features::EMBEDDING,
        )
        .caught_in(20, Some(Focus::Evictions))
        .by(&[Check::Linearizable]),
        parts(
            "no-embedding-store",
            "the node stores an embedded record before it answers",
            Mechanisms { embedding_store: false, ..ALL },
        )
        .caught_in(20, Some(Focus::Evictions))
        .by(&[Check::Linearizable]),
        without(
            "no-seq-compare",
            "only what is newer is stored, in the cache and at the node",
            Features::SEQ_COMPARE,
            Mechanisms { seq_compare: false, ..ALL },
        )
        .caught_in(10, None)
        .by(&[Check::Linearizable, Check::AcknowledgedWriteLost]),
        datapath(
            "no-validity",
            "a record counts only between its lookup entry's coming and going",
            Features::VALIDITY,
        )
        .caught_in(80, Some(Focus::Evictions))
        .by(&[Check::Linearizable, Check::Liveness]),
        datapath(
            "no-outdated",
            "a record that may be older than its node's doesn't answer",
            Features::OUTDATED,
        )
        .caught_in(10, None)
        .by(&[Check::StrangeValue, Check::Linearizable]),
        without(
            "no-fence",
            "only an answer that is read behind a fence promotes a record",
            Features::FENCE,
            Mechanisms { fence: false, ..ALL },
        )
        .caught_in(30, Some(Focus::Evictions))
        .by(&[Check::Linearizable, Check::Condition]),
        parts(
            "no-durable-fence",
            "a fence is durable before its read is answered",
            Mechanisms { durable_fence: false, ..ALL },
        )
        .caught_in(150, Some(Focus::Restarts))
        .by(&[Check::Linearizable, Check::Condition]),
        parts(
            "no-lasting-fence",
            "a fence outlives the eviction of its key",
            Mechanisms { lasting_fence: false, ..ALL },
        )
        .caught_in(1600, Some(Focus::Evictions))
        .hinted(1181)
        .by(&[
            Check::Linearizable,
            Check::Condition,
            Check::WriteRanTwice,
            Check::StrangeValue,
        ]),
        datapath(
            "no-condition-adm",
            "a forwarded conditional write keeps older answers from promoting",
            Features::CONDITION_ADM,
        )
        .caught_in(60, Some(Focus::Evictions))
        .by(&[Check::Linearizable]),
        datapath(
            "no-condition-wait",
            "a conditional write waits for the end of an eviction",
            Features::CONDITION_WAIT,
        )
        .caught_in(20, Some(Focus::Evictions))
        .by(&[Check::Linearizable]),
        datapath(
            "no-incarnation-check",
            "an agent's packets name the incarnation that they mean",
            Features::INCARNATION_CHECK,
        )
        .caught_in(20, Some(Focus::Evictions))
        .by(&[Check::Linearizable, Check::ReleasedTooEarly, Check::SnapshotCut]),
        parts(
            "no-late-admission-check",
            "an agent takes no entry that is older than its newest",
            Mechanisms { rising_admissions: false, ..ALL },
        )
        .caught_in(50, Some(Focus::Evictions))
        .by(&[Check::Bounds, Check::Liveness]),
        parts(
            "early-clearing",
            "an offer is cleared once the switch's entry is gone, not once its record is stored",
            Mechanisms { late_clearing: false, ..ALL },
        )
        .caught_in(500, Some(Focus::Stragglers))
        .hinted(53)
        .by(&[Check::TwoOwners])
        .seen_by_clients(BlackBox::Hidden(
            "it isn't known why clients don't see it: in all runs so far the old epoch's answer \
             was newer than what its reader knew",
        )),
        parts(
            "no-durable-offer",
            "an offer is durable before it is sent",
            Mechanisms { durable_offer: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Restarts))
        .by(&[Check::Linearizable, Check::AcknowledgedWriteLost, Check::ReleasedTooEarly]),
        parts(
            "no-offered-stores",
            "a node stores what comes from the cache only under an offer, above the floor of that",
            Mechanisms { offered_stores: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Floors))
        .by(&[Check::Linearizable, Check::AcknowledgedWriteLost]),
        parts(
            "offer-what-ended",
            "a node tells nothing of offers that it was told to clear",
            Mechanisms { settled_ends: false, ..ALL },
        )
        .caught_in(800, Some(Focus::Restarts))
        .hinted(157)
        .by(&[Check::Linearizable, Check::AcknowledgedWriteLost, Check::ReleasedTooEarly]),
        parts(
            "release-by-any-chain",
            "by a chain's snapshot clients release what that chain serves, and nothing else",
            Mechanisms { release_by_chain: false, ..ALL },
        )
        .caught_in(400, None)
        .by(&[
            Check::AcknowledgedWriteLost,
            Check::ReleasedTooEarly,
            Check::SeenValueVanished,
        ]),
        parts(
            "lease-by-rack",
            "a grant renews the lease of the chains that it offers, and of no others",
            Mechanisms { lease_by_chain: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Stragglers))
        .by(&[Check::TwoOwners, Check::Linearizable, Check::AcknowledgedWriteLost]),
        parts(
            "floors-by-rack",
            "the end of a chain's recovery raises the floor of that chain's keys, and of no others",
            Mechanisms { floors_by_chain: false, ..ALL },
        )
        .caught_in(400, None)
        .by(&[Check::AcknowledgedWriteLost, Check::Condition]),
        parts(
            "take-declined-offers",
            "the controller takes no offer that it has told its node to clear",
            Mechanisms { settled_offers: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Disks))
        .by(&[Check::Linearizable, Check::AcknowledgedWriteLost]),
        parts(
            "no-refusal-fence",
            "a write that expected an absent key and was refused never runs, even when the record \
             that refused it is gone",
            Mechanisms { fenced_refusals: false, ..ALL },
        )
        .caught_in(800, Some(Focus::Floors))
        .hinted(19)
        .by(&[Check::StrangeValue, Check::WriteRanTwice]),
        parts(
            "no-floor",
            "a node doesn't apply what is below the floor to absent keys",
            Mechanisms { floor: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Floors))
        .by(&[Check::Linearizable, Check::Condition, Check::WriteRanTwice]),
        parts(
            "trust-dependents-below-floor",
            "below a floor a series of conditional writes that began upon nothing says nothing of \
             older writes",
            Mechanisms { unsure_dependents: false, ..ALL },
        )
        .caught_in(800, Some(Focus::Floors))
        .hinted(19)
        .by(&[Check::Condition]),
        datapath("no-completion", "a lane's entry arbitrates its writes", Features::COMPLETION)
            .caught_in(10, None)
            .by(&[Check::WriteRanTwice, Check::StrangeValue]),
        datapath(
            "retry-new-seq",
            "a forwarded write that is sent again keeps its number",
            Features::RETRY_OLD_SEQ,
        )
        .caught_in(10, None)
        .by(&[Check::WriteRanTwice, Check::StrangeValue]),
        parts(
            "no-node-completion",
            "a conditional write leaves a completion at its node",
            Mechanisms { node_completion: false, ..ALL },
        )
        .caught_in(20, None)
        .by(&[Check::WriteRanTwice, Check::StrangeValue]),
        parts(
            "no-dependent",
            "a write that a conditional one overtook is executed anew, not called done",
            Mechanisms { dependent: false, ..ALL },
        )
        .caught_in(20, Some(Focus::Disks))
        .by(&[Check::Condition]),
        parts(
            "no-preservation",
            "clients keep what the cache acknowledged",
            Mechanisms { preservation: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Switches))
        .by(&[Check::AcknowledgedWriteLost]),
        parts(
            "no-reader-preservation",
            "clients keep what they read from the cache",
            Mechanisms { reader_preservation: false, ..ALL },
        )
        .caught_in(50, Some(Focus::Switches))
        .by(&[Check::SeenValueVanished]),
        parts(
            "no-refusal-preservation",
            "a version that made the cache refuse a condition is kept like one that was read",
            Mechanisms { kept_refusals: false, ..ALL },
        )
        .caught_in(200, Some(Focus::Switches))
        .by(&[Check::SeenValueVanished]),
        parts(
            "recover-first-not-newest",
            "a recovery takes the newest version of a key",
            Mechanisms { recover_newest: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Switches))
        .by(&[Check::AcknowledgedWriteLost, Check::ReleasedTooEarly]),
        parts(
            "no-gather-all",
            "a recovery waits for every client",
            Mechanisms { gather_all: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Switches))
        .by(&[Check::LeftBehind, Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "no-wait-while-heard",
            "a client whose lease ran out for want of a switch is waited for all the same",
            Mechanisms { wait_while_heard: false, ..ALL },
        )
        .caught_in(40, Some(Focus::Splits))
        .by(&[Check::LeftBehind, Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "no-lease",
            "a client without a lease accepts no answer",
            Mechanisms { lease: false, ..ALL },
        )
        .caught_in(150, Some(Focus::Splits))
        .by(&[Check::AcknowledgedWriteLost, Check::Linearizable]),
        parts(
            "resend-over-epoch",
            "open writes end as indeterminate with their epoch",
            Mechanisms { end_with_epoch: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Switches))
        .by(&[Check::WriteRanTwice]),
        parts(
            "release-at-gather",
            "clients keep an old epoch's records until its recovery is durable",
            Mechanisms { release_after_recovery: false, ..ALL },
        )
        .caught_in(20, Some(Focus::Switches))
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        without(
            "no-epoch-fence",
            "every part refuses the packets and commands of other epochs",
            Features::EPOCH_FENCE,
            Mechanisms { epoch_fence: false, ..ALL },
        )
        .caught_in(30, Some(Focus::Splits))
        .by(&[
            Check::AcknowledgedWriteLost,
            Check::Linearizable,
            Check::TwoOwners,
            Check::WriteRanTwice,
        ]),
        parts(
            "no-durable-epoch",
            "an epoch is durable before other parts hear of it",
            Mechanisms { durable_epoch: false, ..ALL },
        )
        .caught_in(60, Some(Focus::Restarts))
        .by(&[Check::AcknowledgedWriteLost, Check::WriteRanTwice]),
        parts(
            "no-switch-life",
            "a switch takes a configuration for its own life only",
            Mechanisms { switch_life: false, ..ALL },
        )
        .caught_in(800, Some(Focus::Switches))
        .by(&[Check::WriteRanTwice]),
        parts(
            "no-client-life",
            "a client takes a grant for its own life only",
            Mechanisms { client_life: false, ..ALL },
        )
        .caught_in(300, Some(Focus::Clients))
        .by(&[Check::WriteRanTwice]),
        parts(
            "no-hold",
            "a node holds offered keys from an epoch's beginning to its release",
            Mechanisms { hold: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Switches))
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "no-durable-hold",
            "a node that restarts while it holds goes on holding",
            Mechanisms { durable_hold: false, ..ALL },
        )
        .caught_in(40, Some(Focus::Restarts))
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "no-bypass-lanes",
            "in a bypass epoch nodes arbitrate the lanes",
            Mechanisms { bypass_lanes: false, ..ALL },
        )
        .caught_in(100, Some(Focus::Bypass))
        .by(&[Check::WriteRanTwice]),
        parts(
            "bypass-after-restart",
            "a node serves a bypass epoch in one life only",
            Mechanisms { bypass_once: false, ..ALL },
        )
        .caught_in(200, Some(Focus::Bypass))
        .by(&[Check::WriteRanTwice, Check::Linearizable, Check::Condition]),
        without(
            "no-snapshot-cow",
            "a record's original is reported before a snapshot in progress loses it",
            Features::SNAPSHOT_COW,
            Mechanisms { whole_snapshots: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Snapshots))
        .by(&[Check::SnapshotCut, Check::AcknowledgedWriteLost])
        .seen_by_clients(BlackBox::In(400, Focus::Losses)),
        without(
            "overwrite-unreported",
            "a record of which a report finds no room doesn't change",
            Features::REPORT_FIRST,
            Mechanisms { whole_snapshots: false, ..ALL },
        )
        .caught_in(40, Some(Focus::Snapshots))
        .hinted(2884)
        .by(&[Check::SnapshotCut, Check::AcknowledgedWriteLost])
        .seen_by_clients(BlackBox::In(3000, Focus::Losses)),
        parts(
            "removed-unloaded",
            "a record is loaded for a snapshot before its entry is removed or cleaned",
            Mechanisms { load_before_removal: false, ..ALL },
        )
        .caught_in(60, Some(Focus::Backups))
        .hinted(816)
        .by(&[Check::SnapshotCut, Check::BackupCut])
        .seen_by_clients(BlackBox::In(2000, Focus::Backups)),
        parts(
            "no-renewal",
            "another epoch begins long before the sequence numbers of this one run out",
            Mechanisms { renewal: false, ..ALL },
        )
        .caught_in(1600, None)
        .hinted(92)
        .by(&[Check::Progress, Check::Liveness]),
        parts(
            "release-before-durable",
            "clients are told of a snapshot once it is durable",
            Mechanisms { release_after_durable: false, ..ALL },
        )
        .caught_in(10, None)
        .by(&[Check::ReleasedTooEarly, Check::AcknowledgedWriteLost])
        .seen_by_clients(BlackBox::In(400, Focus::Losses)),
        parts(
            "snapshot-during-recovery",
            "no snapshot runs during a recovery",
            Mechanisms { no_snapshot_in_recovery: false, ..ALL },
        )
        .caught_in(20, Some(Focus::Switches))
        .by(&[Check::ReleasedTooEarly, Check::AcknowledgedWriteLost]),
        parts(
            "no-synced-spool",
            "what a client's answer rests on is synced in its spool first, if its machine may stop",
            Mechanisms { synced_spool: false, ..ALL },
        )
        .caught_in(200, Some(Focus::Clients))
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "no-marked-scans",
            "a scan lists the keys that the cache may hold as well, and flags them",
            Mechanisms { marked_scans: false, ..ALL },
        )
        .caught_in(20, Some(Focus::Evictions))
        .by(&[Check::Scan]),
        parts(
            "generations-restart",
            "generations never restart",
            Mechanisms { rising_generations: false, ..ALL },
        )
        .caught_in(10, Some(Focus::Restarts))
        .by(&[Check::AcknowledgedWriteLost, Check::ReleasedTooEarly]),
        datapath("no-keeping", "keepers store what the owner tells", Features::KEEPING)
            .in_layers(10)
            .by(TOLD)
            .seen_by_clients(RECOVERED),
        datapath(
            "no-reader-keeping",
            "keepers store what readers are told",
            Features::READER_KEEPING,
        )
        .in_layers(20)
        .by(TOLD)
        .seen_by_clients(RECOVERED),
        datapath("tell-before-kept", "the owner's answers pass the keepers", Features::KEPT_FIRST)
            .in_layers(10)
            .by(TOLD)
            .seen_by_clients(RECOVERED),
        datapath(
            "repeat-unkept",
            "an answer that is told again is kept again",
            Features::REPEAT_KEPT,
        )
        .in_layers(20)
        .by(TOLD)
        .seen_by_clients(RECOVERED),
        datapath("keep-last", "keepers store only what is newer", Features::KEEP_NEWER)
            .in_layers(20)
            .by(TOLD)
            .seen_by_clients(RECOVERED),
        without(
            "owner-first",
            "keepers admit an entry before the owner, and pass nothing that they can't keep",
            Features::KEEP_OR_DROP,
            Mechanisms { keepers_first: false, ..ALL },
        )
        .in_layers(20)
        .by(TOLD)
        .seen_by_clients(RECOVERED),
        parts(
            "keepers-gone-first",
            "keepers forget an entry after the owner, once its node has stored it",
            Mechanisms { keepers_last: false, ..ALL },
        )
        .in_layers(20)
        .by(&[Check::Kept])
        .seen_by_clients(BlackBox::Hidden(
            "the node stores the record a moment later: no run so far lost the switch in between",
        )),
        datapath(
            "no-refusal-keeping",
            "keepers store what refused a condition",
            Features::REFUSAL_KEEPING,
        )
        .in_layers(200)
        .by(&[Check::Kept])
        .seen_by_clients(BlackBox::Hidden(
            "who is refused mostly hears of the same version otherwise: no run so far lost one \
             that only refused",
        )),
        datapath(
            "stale-records-valid",
            "records of another epoch count for nothing",
            Features::RECORD_EPOCH,
        )
        .of_chains(100)
        .by(&[
            Check::Linearizable,
            Check::AcknowledgedWriteLost,
            Check::SeenValueVanished,
            Check::Kept,
        ]),
        parts(
            "release-before-freeze",
            "nodes are released once a switch that served refuses its epoch, and was loaded",
            Mechanisms { release_after_freeze: false, ..ALL },
        )
        .of_chains(20)
        .by(&[
            Check::AcknowledgedWriteLost,
            Check::SeenValueVanished,
            Check::ReleasedTooEarly,
        ]),
        parts(
            "forget-at-load",
            "a switch that served keeps its records until their recovery is durable",
            Mechanisms { forget_last: false, ..ALL },
        )
        .of_chains(400)
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "admit-in-recovery",
            "nothing is admitted until a recovery is durable",
            Mechanisms { admit_last: false, ..ALL },
        )
        .of_chains(400)
        .by(&[Check::Kept, Check::AcknowledgedWriteLost, Check::SeenValueVanished]),
        parts(
            "protection-of-next",
            "a recovery asks those who protected the last recovered epoch, not those who protect \
             the next one",
            Mechanisms { protection_of_last: false, ..ALL },
        )
        .of_chains(100)
        .by(&[Check::Declared])
        .seen_by_clients(DECLARED),
        parts(
            "declare-at-once",
            "a loss is declared once no client accepts answers of the lost epoch",
            Mechanisms { declare_after_clients: false, ..ALL },
        )
        .of_chains(400)
        .by(&[
            Check::LeftBehind,
            Check::TwoOwners,
            Check::AcknowledgedWriteLost,
            Check::SeenValueVanished,
        ])
        .seen_by_clients(BlackBox::Hidden(
            "who is told what is lost has mostly moved by then: no run so far showed it",
        )),
        parts(
            "count-one-domain",
            "copies in one failure domain count as one",
            Mechanisms { count_domains: false, ..ALL },
        )
        .of_chains(100)
        .by(&[Check::Declared])
        .seen_by_clients(DECLARED),
        parts(
            "no-route-around",
            "a chain goes on without one end of a link that is dead",
            Mechanisms { route_around: false, ..ALL },
        )
        .of_chains(60)
        .by(&[Check::Progress, Check::Liveness]),
        datapath(
            "clean-without-compare",
            "a record counts as clean if it is the version that its node has stored",
            Features::CLEAN_COMPARE,
        )
        .caught_in(60, Some(Focus::Cleanings))
        .by(CLEANED),
        parts(
            "clean-before-store",
            "a record counts as clean once its node has stored it",
            Mechanisms { clean_after_store: false, ..ALL },
        )
        .caught_in(60, Some(Focus::Cleanings))
        .by(CLEANED),
        parts(
            "change-undrained",
            "the cache is drained before an epoch that recovers nothing begins",
            Mechanisms { drain_before_change: false, ..ALL },
        )
        .of_chains(60)
        .caught_in(60, Some(Focus::Maintenance))
        .by(&[Check::AcknowledgedWriteLost, Check::SeenValueVanished, Check::Linearizable]),
        parts(
            "cut-unheld",
            "a backup is cut while clients hold back their writes",
            Mechanisms { hold_before_cut: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Backups))
        .hinted(25)
        .by(&[Check::BackupCut]),
        parts(
            "cut-late",
            "a cut that takes longer than clients hold back their writes is void",
            Mechanisms { cut_in_time: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Backups))
        .hinted(172)
        .by(&[Check::BackupCut]),
        parts(
            "checkpoint-first",
            "nodes make a backup's checkpoints once its snapshots have begun",
            Mechanisms { checkpoint_after_snapshot: false, ..ALL },
        )
        .caught_in(400, Some(Focus::Backups))
        .hinted(38)
        .by(&[Check::BackupCut]),
        datapath(
            "keeper-answers",
            "keepers answer nothing by themselves",
            Features::KEEPER_SILENCE,
        )
        .in_layers(20)
        .by(&[Check::Linearizable]),
        parts(
            "answer-before-invalidated",
            "a write is applied once all copies of its record are invalid",
            Mechanisms { invalidated_first: false, ..ALL },
        )
        .of_copies(40)
        .by(&[Check::Linearizable]),
        parts(
            "sent-is-invalid",
            "a copy that was sent a version counts as valid",
            Mechanisms { sent_is_valid: false, ..ALL },
        )
        .of_copies(40)
        .by(&[Check::Linearizable]),
        parts(
            "fill-under-writes",
            "a copy is sent what is stored while no write is under way",
            Mechanisms { fill_when_quiet: false, ..ALL },
        )
        .of_copies(100)
        .by(&[Check::Linearizable]),
        parts(
            "earlier-writes-uncounted",
            "a write that the engine was given before its key had copies is under way, too",
            Mechanisms { earlier_writes_count: false, ..ALL },
        )
        .of_copies(200)
        .caught_in(200, Some(Focus::Repeats))
        .by(&[Check::Linearizable]),
        parts(
            "copies-outlive-node",
            "a node that restarts has forgotten its copies, and serves in a new epoch only",
            Mechanisms { copies_by_epoch: false, ..ALL },
        )
        .of_copies(400)
        .by(&[Check::Linearizable]),
        datapath(
            "update-not-compared",
            "a copy takes no version older than it has, or was invalidated for",
            Features::SEQ_COMPARE,
        )
        .of_copies(200)
        .by(&[Check::Linearizable]),
        datapath(
            "update-any-incarnation",
            "nodes name the incarnation of the copy that they fill",
            Features::INCARNATION_CHECK,
        )
        .of_copies(400)
        .hinted(249)
        .by(&[Check::Linearizable]),
        parts(
            "answer-at-head",
            "the tail says that a write ran",
            Mechanisms { tail_answers: false, ..ALL },
        )
        .of_replicas(20)
        .by(LACKED),
        parts(
            "refuse-at-head",
            "the tail refuses a conditional write",
            Mechanisms { tail_refuses: false, ..ALL },
        )
        .of_replicas(60)
        .by(LACKED),
        parts(
            "superseded-at-head",
            "the tail says that a write has run before, or that a newer one has overwritten it",
            Mechanisms { tail_answers_again: false, ..ALL },
        )
        .of_replicas(20)
        .by(LACKED),
        parts(
            "marks-at-head",
            "all replicas have the marks",
            Mechanisms { marks_replicated: false, ..ALL },
        )
        .of_replicas(40)
        .by(LACKED),
        parts(
            "completions-at-head",
            "all replicas have the completions of conditional writes",
            Mechanisms { completions_replicated: false, ..ALL },
        )
        .of_replicas(200)
        .hinted(26)
        .by(&[Check::WriteRanTwice, Check::Condition, Check::Linearizable]),
        parts(
            "offer-unconfirmed",
            "a key is offered once the tail has its mark",
            Mechanisms { offer_confirmed: false, ..ALL },
        )
        .of_replicas(600)
        .hinted(253)
        .by(LACKED),
        parts(
            "evict-unconfirmed",
            "a record of the cache counts as stored once the tail has it",
            Mechanisms { store_confirmed: false, ..ALL },
        )
        .of_replicas(40)
        .by(LACKED),
        parts(
            "no-resend",
            "a round of frames begins with all that is unconfirmed",
            Mechanisms { resent: false, ..ALL },
        )
        .of_replicas(40)
        .by(LACKED),
        parts(
            "no-durable-unconfirmed",
            "what is unconfirmed is known after a restart",
            Mechanisms { durable_unconfirmed: false, ..ALL },
        )
        .of_replicas(40)
        .by(LACKED),
        parts(
            "old-links",
            "a frame of another round isn't taken",
            Mechanisms { frames_of_round: false, ..ALL },
        )
        .of_replicas(40)
        .by(LACKED),
        parts(
            "no-view-frames",
            "a frame of another view isn't taken",
            Mechanisms { frames_of_view: false, ..ALL },
        )
        .of_replicas(200)
        .hinted(51)
        .by(LACKED),
        parts(
            "floor-over-unconfirmed",
            "no floor rises above a number that is unconfirmed",
            Mechanisms { floor_below_unconfirmed: false, ..ALL },
        )
        .of_replicas(300)
        .hinted(186)
        .by(LACKED),
        parts(
            "open-without-flush",
            "a node that has joined answers once all that its source had came before",
            Mechanisms { open_after_flush: false, ..ALL },
        )
        .of_replicas(40)
        .by(JOINED),
        parts(
            "member-before-open",
            "a node that has joined is a member once it has opened",
            Mechanisms { member_once_open: false, ..ALL },
        )
        .of_replicas(300)
        .hinted(253)
        .by(JOINED),
        parts(
            "source-change-goes-on",
            "if the source of a join goes, the join begins anew",
            Mechanisms { join_of_source: false, ..ALL },
        )
        .of_replicas(300)
        .hinted(214)
        .by(JOINED),
        parts(
            "rejoin-with-data",
            "a node joins with nothing of the partition",
            Mechanisms { join_empty: false, ..ALL },
        )
        .of_replicas(40)
        .by(JOINED),
        parts(
            "source-drops-tombstones",
            "the source of a join drops no tombstone until it is over",
            Mechanisms { source_keeps_tombstones: false, ..ALL },
        )
        .of_replicas(800)
        .hinted(493)
        .by(JOINED),
        parts(
            "copy-without-marks",
            "marks are part of the copy for a node that joins",
            Mechanisms { marks_copied: false, ..ALL },
        )
        .of_replicas(40)
        .by(JOINED),
    ];

    /// Caught in as many racks with several replicas of each partition.
    const fn of_replicas(self, seeds: u64) -> Ablation {
        Ablation { replicated: true, seeds, ..self }
    }

    /// Caught in as many racks of spines and leaves whose keys come and go.
    const fn of_copies(self, seeds: u64) -> Ablation {
        Ablation { scheme: Scheme::DistCache, ..self.in_layers(seeds) }
    }

    /// Caught in as many racks with several layers whose keys come and go.
    const fn in_layers(self, seeds: u64) -> Ablation {
        let focus = Some(Focus::Evictions);
        Ablation { scheme: Scheme::DistReach, seeds, focus, ..self }
    }

    /// Caught in as many racks with several layers whose switches die.
    const fn of_chains(self, seeds: u64) -> Ablation {
        let focus = Some(Focus::Switches);
        Ablation { scheme: Scheme::DistReach, seeds, focus, ..self }
    }

    const fn caught_in(self, seeds: u64, focus: Option<Focus>) -> Ablation {
        Ablation { seeds, focus, ..self }
    }

    const fn hinted(self, seed: u64) -> Ablation {
        Ablation { hint: Some(seed), ..self }
    }

    const fn by(self, checks: &[Check]) -> Ablation {
        Ablation { caught_by: Checks::of(checks), ..self }
    }

    const fn seen_by_clients(self, black_box: BlackBox) -> Ablation {
        Ablation { black_box, ..self }
    }

    /// The same in racks in which clients can see it; none if they can't.
    pub fn seen_from_outside(self) -> Option<Ablation> {
        let caught_by = self.caught_by.and(Checks::BLACK_BOX);
        match self.black_box {
            BlackBox::Same => Some(Ablation { caught_by, ..self }),
            BlackBox::In(seeds, focus) => {
                Some(Ablation { caught_by, seeds, focus: Some(focus), ..self })
            }
            BlackBox::Hidden(_) => None,
        }
    }

    /// The ablation of this name.
    pub fn by_name(name: &str) -> Option<Ablation> {
        Ablation::ALL.iter().find(|ablation| ablation.name == name).copied()
    }
}
