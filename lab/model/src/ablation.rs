//! Mechanisms that a run can do without: each proves that the properties would notice. Named as in
//! `switchback lab sim --ablate`.

/// A mechanism of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Mechanism {
    Embedding,
    EmbeddingStore,
    SeqCompare,
    Validity,
    Outdated,
    Fence,
    IncarnationCheck,
    SnapshotCow,
    Preservation,
    ReaderPreservation,
    Completion,
    EpochFence,
    Hold,
    DurableOffer,
    RetryOldSeq,
    RecoverNewest,
    ReleaseAfterDurable,
    NoSnapshotInRecovery,
    GatherAll,
    OfferedStores,
    Floor,
    NodeCompletion,
    Dependent,
    LateClearing,
    ConditionWait,
}

/// Every ablation: its name, and what it leaves out.
pub const ABLATIONS: &[(&str, Mechanism)] = &[
    ("no-embedding", Mechanism::Embedding),
    ("no-embedding-store", Mechanism::EmbeddingStore),
    ("no-seq-compare", Mechanism::SeqCompare),
    ("no-validity", Mechanism::Validity),
    ("no-outdated", Mechanism::Outdated),
    ("no-fence", Mechanism::Fence),
    ("no-incarnation-check", Mechanism::IncarnationCheck),
    ("no-snapshot-cow", Mechanism::SnapshotCow),
    ("no-preservation", Mechanism::Preservation),
    ("no-reader-preservation", Mechanism::ReaderPreservation),
    ("no-completion", Mechanism::Completion),
    ("no-epoch-fence", Mechanism::EpochFence),
    ("no-hold", Mechanism::Hold),
    ("no-durable-offer", Mechanism::DurableOffer),
    ("retry-new-seq", Mechanism::RetryOldSeq),
    ("recover-first-not-newest", Mechanism::RecoverNewest),
    ("release-before-durable", Mechanism::ReleaseAfterDurable),
    ("snapshot-during-recovery", Mechanism::NoSnapshotInRecovery),
    ("no-gather-all", Mechanism::GatherAll),
    ("no-offered-stores", Mechanism::OfferedStores),
    ("no-floor", Mechanism::Floor),
    ("no-node-completion", Mechanism::NodeCompletion),
    ("no-dependent", Mechanism::Dependent),
    ("early-clearing", Mechanism::LateClearing),
    ("no-condition-wait", Mechanism::ConditionWait),
];

impl Mechanism {
    /// What the ablation of this name leaves out.
    pub fn left_out_by(name: &str) -> Option<Mechanism> {
        ABLATIONS.iter().find(|(ablation, _)| *ablation == name).map(|(_, mechanism)| *mechanism)
    }
}
