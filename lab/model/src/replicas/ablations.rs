//! Mechanisms that a run can do without: each proves that the properties would notice.

/// A mechanism of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// What the head decided leaves at the tail, behind the effects that it rests on.
    TailAnswers,
    /// So does the refusal of a conditional write.
    TailRefuses,
    /// So does the answer to a write that a newer one has overwritten.
    TailAnswersOverwritten,
    /// So does a write that is sent back to the switch.
    TailBounces,
    /// So does the word that a record from the cache is stored.
    TailConfirmsStore,
    /// So does an offer, whose mark all replicas have then.
    TailConfirmsOffer,
    /// Fenced reads go to the head, and their fences to all replicas.
    HeadFences,
    /// Reads that carry an evicted record go to the head, and the record to all replicas.
    HeadEmbeds,
    /// A frame of another view isn't taken.
    FramesOfView,
    /// Nodes enter a view once the switch routes by it.
    SwitchFirst,
    /// A new tail answers once it has all that was unconfirmed.
    OpenAfterFlush,
    /// A joiner counts as a member once it has opened.
    MemberOnceOpen,
    /// A joiner whose source goes begins anew.
    JoinOfSource,
    /// A new link, or a new view, begins with what is unconfirmed.
    Resend,
    /// What is unconfirmed is known after a restart.
    DurableUnconfirmed,
    /// Frames of a link that was replaced aren't taken.
    NewestLink,
    /// All replicas have the marks.
    MarksReplicated,
    /// All replicas have the completions.
    CompletionsReplicated,
    /// What is older than what a node has stored isn't merged.
    SeqCompare,
    /// A copy for a joiner has the marks.
    MarksCopied,
    /// It has the completions.
    CompletionsCopied,
    /// It has the floor.
    FloorsCopied,
    /// Replicas change places once all have the same.
    ReorderFlushed,
    /// A joiner begins empty.
    JoinEmpty,
    /// A joiner drops no tombstone before it has opened.
    JoinerKeepsTombstones,
    /// No floor rises above a number that is unconfirmed, and no tombstone with it is dropped.
    FloorBelowUnconfirmed,
    /// The fence of a refused write that expected an absent key goes to all replicas.
    RefusalFenced,
}

/// Every ablation: its name, and what it leaves out.
pub const ABLATIONS: &[(&str, Mechanism)] = &[
    ("answer-at-head", Mechanism::TailAnswers),
    ("refuse-at-head", Mechanism::TailRefuses),
    ("superseded-at-head", Mechanism::TailAnswersOverwritten),
    ("bounce-at-head", Mechanism::TailBounces),
    ("evict-unconfirmed", Mechanism::TailConfirmsStore),
    ("offer-unconfirmed", Mechanism::TailConfirmsOffer),
    ("fence-at-tail", Mechanism::HeadFences),
    ("embed-at-tail", Mechanism::HeadEmbeds),
    ("no-view-frames", Mechanism::FramesOfView),
    ("switch-last", Mechanism::SwitchFirst),
    ("open-without-flush", Mechanism::OpenAfterFlush),
    ("member-before-open", Mechanism::MemberOnceOpen),
    ("source-change-goes-on", Mechanism::JoinOfSource),
    ("no-resend", Mechanism::Resend),
    ("no-durable-unconfirmed", Mechanism::DurableUnconfirmed),
    ("old-links", Mechanism::NewestLink),
    ("marks-at-head", Mechanism::MarksReplicated),
    ("completions-at-head", Mechanism::CompletionsReplicated),
    ("no-seq-compare", Mechanism::SeqCompare),
    ("copy-without-marks", Mechanism::MarksCopied),
    ("copy-without-completions", Mechanism::CompletionsCopied),
    ("copy-without-floors", Mechanism::FloorsCopied),
    ("reorder-unflushed", Mechanism::ReorderFlushed),
    ("rejoin-with-data", Mechanism::JoinEmpty),
    ("joiner-drops-tombstones", Mechanism::JoinerKeepsTombstones),
    ("floor-over-unconfirmed", Mechanism::FloorBelowUnconfirmed),
    ("refusal-fenced-at-head", Mechanism::RefusalFenced),
];
