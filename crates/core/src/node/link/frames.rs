//! What replicas of a partition tell each other.

use crate::node::join::CopyAt;
use crate::storage::{LaneCompletion, Mark, Record, Source};
use serde::{Deserialize, Serialize};
use switchback_wire::{
    DecodeError, Header, KEY_BYTES_MAX, KeyHash, PACKET_BYTES_MAX, Packet, PacketRef, Seq,
    VALUE_BYTES_MAX,
};

/// Bytes of a frame at most: less than a message to a controller may have.
pub const FRAME_BYTES_MAX: usize = 2 << 20;
/// Bytes that the numbers of a frame take at most.
const FIXED_BYTES: usize = 1024;
const _: () = assert!(
    VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + PACKET_BYTES_MAX + FIXED_BYTES <= FRAME_BYTES_MAX
);

/// What has changed of a key at a replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Effect {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// Its record, as it is stored.
    pub record: Option<Record>,
    /// Its mark; an empty one: it has none.
    pub mark: Option<Mark>,
    /// Completions of writes to it.
    pub completions: Vec<LaneCompletion>,
    /// Where the record comes from.
    pub source: Source,
}

impl Effect {
    /// Nothing of a key has changed yet.
    pub fn of(hash: KeyHash, key: Vec<u8>) -> Effect {
        let (record, mark, completions) = Default::default();
        Effect { hash, key, record, mark, completions, source: Source::Cache }
    }

    fn bytes(&self) -> usize {
        let value = self.record.as_ref().map_or(0, |record| record.value.len());
        value + self.key.len() + size_of_val(&*self.completions)
    }
}

/// What the head has decided about a request, and the tail says. Encoded as a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "EncodedAnswer", try_from = "EncodedAnswer")]
pub enum Answer {
    /// This packet goes to the switch.
    Packet {
        /// Its header.
        header: Header,
        /// Its value.
        value: Vec<u8>,
        /// Its key.
        key: Vec<u8>,
    },
    /// This read is answered with what is stored: its fence, or the record in it, is.
    Read {
        /// Its header.
        header: Header,
        /// Its key.
        key: Vec<u8>,
    },
}

impl Answer {
    /// Of the request, or of the packet that answers it.
    pub fn header(&self) -> &Header {
        let (Answer::Packet { header, .. } | Answer::Read { header, .. }) = self;
        header
    }

    fn bytes(&self) -> usize {
        match self {
            Answer::Packet { value, key, .. } => value.len() + key.len(),
            Answer::Read { key, .. } => key.len(),
        }
    }
}

/// An answer's encoding: whether the tail reads what is stored, and the bytes of a packet.
#[derive(Serialize, Deserialize)]
struct EncodedAnswer(bool, Vec<u8>);

impl From<Answer> for EncodedAnswer {
    fn from(answer: Answer) -> EncodedAnswer {
        let (is_read, packet) = match &answer {
            Answer::Packet { header, value, key } => (false, Packet::build(*header, value, key)),
            Answer::Read { header, key } => (true, Packet::build(*header, &[], key)),
        };
        EncodedAnswer(is_read, packet.bytes().to_vec())
    }
}

impl TryFrom<EncodedAnswer> for Answer {
    type Error = DecodeError;

    fn try_from(EncodedAnswer(is_read, bytes): EncodedAnswer) -> Result<Answer, DecodeError> {
        let PacketRef { header, value, key } = PacketRef::parse(&bytes)?;
        let (value, key) = (value.to_vec(), key.to_vec());
        Ok(match is_read {
            true => Answer::Read { header, key },
            false => Answer::Packet { header, value, key },
        })
    }
}

/// One step of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// The partition.
    pub partition: u16,
    /// The epoch of its chain.
    pub epoch: u32,
    /// Its view.
    pub view: u32,
    /// The life of its sender, which knows nothing of what it sent in an earlier one.
    pub boot: u64,
    /// The round that its receiver has begun.
    pub round: u64,
    /// From 1, without gaps.
    pub number: u64,
    /// What to store.
    pub effect: Option<Effect>,
    /// What to say then.
    pub answer: Option<Answer>,
    /// FLUSH: all that was unconfirmed when the round began came before it.
    pub is_flush: bool,
}

impl Frame {
    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let effect = self.effect.as_ref().map_or(0, Effect::bytes);
        FIXED_BYTES + effect + self.answer.as_ref().map_or(0, Answer::bytes)
    }
}

/// A part of a copy, for a node that joins. What it holds is what the source had stored when it had
/// sent frame `after` of the round: it is taken between that frame and the next one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// The partition.
    pub partition: u16,
    /// The number of the join.
    pub join: u32,
    /// The round, which names view and epoch, too.
    pub round: u64,
    /// The last frame that was sent before.
    pub after: u64,
    /// Where it begins, as it was asked for.
    pub from: CopyAt,
    /// Where to go on.
    pub next: CopyAt,
    /// Records and marks.
    pub effects: Vec<Effect>,
    /// Completions, of any keys.
    pub completions: Vec<LaneCompletion>,
    /// The floors of the chain's buckets, by their numbers.
    pub floors: Vec<(u16, Seq)>,
}

/// A key that a read has found hot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HotHint {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// Length of its value.
    pub value_bytes: u32,
    /// How often the switch has counted it.
    pub count: u32,
}

/// What a replica tells the one before it, or the one behind it. Any of it may be lost, or come
/// late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LinkMessage {
    /// READY, to the one before: this round begins.
    Ready {
        /// The partition.
        partition: u16,
        /// The epoch of its chain.
        epoch: u32,
        /// Its view.
        view: u32,
        /// Never used twice.
        round: u64,
    },
    /// ASK, to the one behind: no round is known here, since READY was lost, or forgotten.
    Ask {
        /// The partition.
        partition: u16,
        /// The epoch of its chain.
        epoch: u32,
        /// Its view.
        view: u32,
    },
    /// FRAME, to the one behind.
    Frame(Box<Frame>),
    /// CONFIRM, to the one before: the tail has all frames of this round up to this number.
    Confirm {
        /// The partition.
        partition: u16,
        /// The round.
        round: u64,
        /// The last frame.
        number: u64,
    },
    /// HINT, to the one before, and so to the head, which may offer the key.
    Hint {
        /// The partition.
        partition: u16,
        /// What was found hot.
        hot: HotHint,
    },
    /// FETCH, of a node that joins, to its source: the copy from here on.
    Fetch {
        /// The partition.
        partition: u16,
        /// The number of the join.
        join: u32,
        /// From where.
        from: CopyAt,
    },
    /// COPY, the answer.
    Copy(Box<Copy>),
}

impl LinkMessage {
    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        match self {
            LinkMessage::Frame(frame) => frame.bytes(),
            LinkMessage::Copy(copy) => {
                let effects: usize = copy.effects.iter().map(Effect::bytes).sum();
                let lists = size_of_val(&*copy.effects) + size_of_val(&*copy.completions);
                FIXED_BYTES + effects + lists + size_of_val(&*copy.floors)
            }
            LinkMessage::Hint { hot, .. } => FIXED_BYTES + hot.key.len(),
            LinkMessage::Ready { .. }
            | LinkMessage::Ask { .. }
            | LinkMessage::Confirm { .. }
            | LinkMessage::Fetch { .. } => FIXED_BYTES,
        }
    }
}
