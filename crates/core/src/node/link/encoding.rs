//! The bytes of what replicas tell each other, between processes. Another node is another process:
//! its bytes are checked once, here, so that the shim can rely on what they hold.

use super::{Copy, Effect, FRAME_BYTES_MAX, Frame, HotHint, LinkMessage};
use crate::control::Malformed;
use crate::control::limits::{Checked, any, check, key, list, record};
use crate::floors::SEQ_BUCKETS;

/// Bytes of a message of a link at most.
pub const LINK_BYTES_MAX: usize = 4 << 20;
/// Completions that a message brings at most.
const COMPLETIONS_MAX: usize = 1 << 16;
/// Keys of a part of a copy. Those of one hash are never separated.
const EFFECTS_MAX: usize = 1 << 12;

const _: () = assert!(FRAME_BYTES_MAX < LINK_BYTES_MAX);

fn effect(effect: &Effect) -> Checked {
    key(&effect.key)?;
    effect.record.as_ref().map_or(Ok(()), record)?;
    list(&effect.completions, COMPLETIONS_MAX, "number of completions", any)
}

fn frame(frame: &Frame) -> Checked {
    check(frame.number > 0, "number of a frame")?;
    frame.effect.as_ref().map_or(Ok(()), effect)
}

fn copy(copy: &Copy) -> Checked {
    list(&copy.effects, EFFECTS_MAX, "number of keys", effect)?;
    list(&copy.completions, COMPLETIONS_MAX, "number of completions", any)?;
    list(&copy.floors, SEQ_BUCKETS, "number of floors", |(bucket, _)| {
        check(usize::from(*bucket) < SEQ_BUCKETS, "bucket of a floor")
    })
}

impl LinkMessage {
    /// Appends the message's bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let bytes = std::mem::take(to);
        *to = postcard::to_extend(self, bytes).expect("plain data has an encoding");
    }

    /// Takes over the bytes of a message that arrived.
    ///
    /// # Errors
    /// Bytes that are no message, and messages that no node of this version would send.
    pub fn decode(bytes: &[u8]) -> Result<LinkMessage, Malformed> {
        let message = postcard::from_bytes(bytes)?;
        match &message {
            LinkMessage::Frame(it) => frame(it)?,
            LinkMessage::Copy(it) => copy(it)?,
            LinkMessage::Hint { hot: HotHint { key: hot, .. }, .. } => key(hot)?,
            LinkMessage::Ready { .. }
            | LinkMessage::Ask { .. }
            | LinkMessage::Confirm { .. }
            | LinkMessage::Fetch { .. } => {}
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Answer, CopyAt};
    use crate::storage::{LaneCompletion, Mark, OfferId, Record};
    use switchback_wire::{Header, KeyHash, Op, Packet, Seq};

    fn effects() -> Vec<Effect> {
        let record = Record { seq: Seq::new(3, 9), value: vec![7; 300], ..Record::default() };
        let mark = Mark { offer: OfferId::from_bits(5), ..Mark::default() };
        let of = |byte: u8| Effect::of(KeyHash([byte; 16]), vec![byte; 9]);
        let completions = vec![LaneCompletion { lane: 3, request: 8, seq: Seq::new(3, 9) }];
        vec![
            of(1),
            Effect { record: Some(record), ..of(2) },
            Effect { mark: Some(mark), completions, ..of(3) },
        ]
    }

    fn frame(effect: Option<Effect>, answer: Option<Answer>) -> LinkMessage {
        let (partition, epoch, view, boot, round, number) = (3, 7, 2, u64::MAX, 1 << 40, 5);
        let is_flush = effect.is_none();
        LinkMessage::Frame(Box::new(Frame {
            partition,
            epoch,
            view,
            boot,
            round,
            number,
            effect,
            answer,
            is_flush,
        }))
    }

    /// An answer is encoded as its packet, which says the lengths of value and key.
    fn answers() -> [Answer; 2] {
        let whole = |op, value: &[u8]| {
            let header = Header { seq: Seq::new(3, 1), lane: 9, ..Header::new(op) };
            Packet::build(header, value, b"key").parse().expect("a packet").header
        };
        let (value, key) = (vec![1; 100], b"key".to_vec());
        let header = whole(Op::WriteReply, &value);
        let read = Answer::Read { header: whole(Op::Read, &[]), key: key.clone() };
        [Answer::Packet { header, value, key }, read]
    }

    fn messages() -> Vec<LinkMessage> {
        let (partition, epoch, view, round, number) = (3, 7, 2, 1 << 40, 5);
        let (join, at) = (4, CopyAt::Keys(KeyHash([9; 16])));
        let hot = HotHint { hash: KeyHash([1; 16]), key: vec![1], value_bytes: 5, count: 6 };
        let completions = effects()[2].completions.clone();
        let copied = Copy {
            partition,
            join,
            round,
            after: 8,
            from: at,
            next: CopyAt::Lanes(0),
            effects: effects(),
            completions,
            floors: vec![(SEQ_BUCKETS as u16 - 1, Seq::new(2, 1))],
        };
        let mut all = vec![
            LinkMessage::Ready { partition, epoch, view, round },
            LinkMessage::Ask { partition, epoch, view },
            LinkMessage::Confirm { partition, round, number },
            LinkMessage::Hint { partition, hot },
            LinkMessage::Fetch { partition, join, from: at },
            LinkMessage::Copy(Box::new(copied)),
            frame(None, None),
        ];
        all.extend(effects().into_iter().map(|effect| frame(Some(effect), None)));
        all.extend(answers().map(|answer| frame(None, Some(answer))));
        all
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in messages() {
            let mut bytes = vec![0xaa];
            message.encode(&mut bytes);
            assert_eq!(LinkMessage::decode(&bytes[1..]).expect("a message"), message);
            for cut in 1..bytes.len() {
                let _no_panic = LinkMessage::decode(&bytes[1..cut]);
            }
        }
    }

    #[test]
    fn a_message_that_no_node_sends_is_refused_with_the_reason() {
        let refusal = |message: &LinkMessage| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            LinkMessage::decode(&bytes).expect_err("it is refused").to_string()
        };
        let keyless = Effect::of(KeyHash([1; 16]), Vec::new());
        assert!(refusal(&frame(Some(keyless), None)).contains("length of a key"));
        let record = Record { value: vec![0; (1 << 20) + 1], ..Record::default() };
        let huge = Effect { record: Some(record), ..Effect::of(KeyHash([1; 16]), vec![1]) };
        assert!(refusal(&frame(Some(huge), None)).contains("length of a value"));
        let mut copied = messages().swap_remove(5);
        let LinkMessage::Copy(copy) = &mut copied else { panic!("a copy") };
        copy.floors = vec![(SEQ_BUCKETS as u16, Seq::NONE)];
        assert!(refusal(&copied).contains("bucket of a floor"));
    }
}
