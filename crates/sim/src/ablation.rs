//! Mechanisms that a run can do without, by name: each proves that the checks would notice.

use switchback_core::mechanisms::Mechanisms;
use switchback_datapath::Features;

/// A run without one mechanism.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ablation {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the datapath does without.
    pub features: Features,
    /// What the other parts do without.
    pub mechanisms: Mechanisms,
}

const NONE: Features = Features(0);
const ALL: Mechanisms = Mechanisms::ALL;

const fn datapath(name: &'static str, features: Features) -> Ablation {
    Ablation { name, features, mechanisms: ALL }
}

const fn parts(name: &'static str, mechanisms: Mechanisms) -> Ablation {
    Ablation { name, features: NONE, mechanisms }
}

impl Ablation {
    /// Nothing is left out.
    pub const NOTHING: Ablation = datapath("nothing", NONE);

    /// Every ablation.
    pub const ALL: &'static [Ablation] = &[
        datapath("no-embedding", Features::EMBEDDING),
        parts("no-embedding-store", Mechanisms { embedding_store: false, ..ALL }),
        Ablation {
            name: "no-seq-compare",
            features: Features::SEQ_COMPARE,
            mechanisms: Mechanisms { seq_compare: false, ..ALL },
        },
        datapath("no-validity", Features::VALIDITY),
        datapath("no-outdated", Features::OUTDATED),
        Ablation { name: "no-fence", features: Features::FENCE, mechanisms: Mechanisms { fence: false, ..ALL } },
        datapath("no-incarnation-check", Features::INCARNATION_CHECK),
        datapath("no-snapshot-cow", Features::SNAPSHOT_COW),
        parts("no-preservation", Mechanisms { preservation: false, ..ALL }),
        parts("no-reader-preservation", Mechanisms { reader_preservation: false, ..ALL }),
        datapath("no-completion", Features::COMPLETION),
        Ablation {
            name: "no-epoch-fence",
            features: Features::EPOCH_FENCE,
            mechanisms: Mechanisms { epoch_fence: false, ..ALL },
        },
        parts("no-hold", Mechanisms { hold: false, ..ALL }),
        parts("no-durable-offer", Mechanisms { durable_offer: false, ..ALL }),
        datapath("retry-new-seq", Features::RETRY_OLD_SEQ),
        parts("recover-first-not-newest", Mechanisms { recover_newest: false, ..ALL }),
        parts("release-before-durable", Mechanisms { release_after_durable: false, ..ALL }),
        parts("snapshot-during-recovery", Mechanisms { no_snapshot_in_recovery: false, ..ALL }),
        parts("no-gather-all", Mechanisms { gather_all: false, ..ALL }),
        parts("no-offered-stores", Mechanisms { offered_stores: false, ..ALL }),
        parts("no-floor", Mechanisms { floor: false, ..ALL }),
        parts("no-bypass-lanes", Mechanisms { bypass_lanes: false, ..ALL }),
        parts("bypass-after-restart", Mechanisms { bypass_once: false, ..ALL }),
        parts("no-wait-while-heard", Mechanisms { wait_while_heard: false, ..ALL }),
        parts("no-node-completion", Mechanisms { node_completion: false, ..ALL }),
        parts("no-chain", Mechanisms { chain: false, ..ALL }),
    ];

    /// The ablation of this name.
    pub fn by_name(name: &str) -> Option<Ablation> {
        Ablation::ALL.iter().find(|ablation| ablation.name == name).copied()
    }
}
