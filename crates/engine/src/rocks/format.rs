//! How things lie in RocksDB. Every value begins with a version byte, so that a later format can be
//! told from this one.
//!
//! | column family | key | value after the version byte |
//! | --- | --- | --- |
//! | `records` | key hash (16), key | flags u8 (1: tombstone, 2: since), seq u64, expiry u64, since u64 if flagged, value |
//! | `marks` | key hash (16), key | fence u64, offer u64, floor u64 |
//! | `completions` | lane u32 | request u64, seq u64 |
//! | `state` | `shim` | the shim's state |
//! | | `served` | which chain serves each key |
//! | | `floor`, of the first chain, or `floor` and chain u16 and ffff | the floor of all keys of a chain, u64 |
//! | | `floor` and bucket u16, of the first chain, or `floor`, chain u16 and bucket u16 | the floor of a bucket, u64 |
//! | | `unconfirmed`, key hash (16) and key | the lanes that are unconfirmed with it, u32 each, and their requests, u64 each |
//! | | `kept`, first hash (16) and last hash (16) | nothing: the tombstones of this range are kept |
//!
//! Integers are big-endian, so RocksDB's order of records is the order of key hashes, which is the
//! order of scans.

use crate::group::RecordHead;
use switchback_core::floors::{Bucket, SEQ_BUCKETS};
use switchback_core::storage::{KeyRange, LaneCompletion, Lanes, Mark, OfferId, Record};
use switchback_core::topology::{ChainId, ChainMap};
use switchback_wire::{KEY_BYTES_MAX, KeyHash, Seq};

pub(crate) const RECORDS: &str = "records";
pub(crate) const MARKS: &str = "marks";
pub(crate) const COMPLETIONS: &str = "completions";
pub(crate) const STATE: &str = "state";

/// Keys of the `state` column family.
pub(crate) const STATE_SHIM: &[u8] = b"shim";
pub(crate) const STATE_SERVED: &[u8] = b"served";
const STATE_FLOOR: &[u8] = b"floor";
const STATE_UNCONFIRMED: &[u8] = b"unconfirmed";
const STATE_KEPT: &[u8] = b"kept";
/// Bytes of a lane that is unconfirmed, and of its request.
const LANE: usize = 12;
/// In the place of a bucket: all of a chain's.
const ALL_BUCKETS: u16 = u16::MAX;
const _: () = assert!(SEQ_BUCKETS <= ALL_BUCKETS as usize);

const VERSION: u8 = 1;
const TOMBSTONE: u8 = 1;
/// [`Record::since`] follows the head.
const SINCE: u8 = 2;
const RECORD_HEAD: usize = 18;

/// Replaces `out` by the stored key of a key.
pub(crate) fn encode_key(hash: &KeyHash, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&hash.0);
    out.extend_from_slice(key);
}

/// Hash and key of a stored key.
pub(crate) fn decode_key(stored: &[u8]) -> Option<(KeyHash, &[u8])> {
    let (hash, key) = stored.split_first_chunk::<16>()?;
    Some((KeyHash(*hash), key))
}

/// Replaces `out` by the stored key of a key that is unconfirmed.
pub(crate) fn encode_unconfirmed_key(hash: &KeyHash, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(STATE_UNCONFIRMED);
    out.extend_from_slice(&hash.0);
    out.extend_from_slice(key);
}

/// Hash and key of one; `None`: this is another key of the `state` column family.
pub(crate) fn decode_unconfirmed_key(stored: &[u8]) -> Option<(KeyHash, &[u8])> {
    decode_key(stored.strip_prefix(STATE_UNCONFIRMED)?)
}

/// The stored form of the lanes that are unconfirmed with a key.
pub(crate) fn encode_lanes(lanes: &Lanes) -> Vec<u8> {
    let mut stored = vec![VERSION];
    for (lane, request) in lanes {
        stored.extend_from_slice(&lane.to_be_bytes());
        stored.extend_from_slice(&request.to_be_bytes());
    }
    stored
}

pub(crate) fn decode_lanes(stored: &[u8]) -> Option<Lanes> {
    let lane = |stored: &[u8]| {
        let (lane, request) = stored.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*lane), u64::from_be_bytes(request.try_into().ok()?)))
    };
    versioned(stored)?.chunks(LANE).map(lane).collect()
}

/// The stored key of a range whose tombstones are kept.
pub(crate) fn encode_kept_key(range: &KeyRange) -> Vec<u8> {
    [STATE_KEPT, &range.first.0, &range.last.0].concat()
}

/// The range; `None`: this is another key of the `state` column family.
pub(crate) fn decode_kept_key(stored: &[u8]) -> Option<KeyRange> {
    let (first, last) = stored.strip_prefix(STATE_KEPT)?.split_first_chunk::<16>()?;
    Some(KeyRange { first: KeyHash(*first), last: KeyHash(last.try_into().ok()?) })
}

/// Replaces `out` by what follows all stored keys up to those of a hash.
pub(crate) fn beyond_key(last: &KeyHash, out: &mut Vec<u8>) {
    out.clear();
    match u128::from_be_bytes(last.0).checked_add(1) {
        Some(beyond) => out.extend_from_slice(&beyond.to_be_bytes()),
        // No stored key is as long.
        None => out.resize(last.0.len() + 1 + KEY_BYTES_MAX, 0xff),
    }
}

/// The same of keys that are unconfirmed.
pub(crate) fn beyond_unconfirmed_key(last: &KeyHash, out: &mut Vec<u8>) {
    beyond_key(last, out);
    out.splice(..0, STATE_UNCONFIRMED.iter().copied());
}

/// Replaces `out` by the stored form of a record.
pub(crate) fn encode_record(record: &Record, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    let since = if record.since.is_some() { SINCE } else { 0 };
    out.push(since | if record.tombstone { TOMBSTONE } else { 0 });
    out.extend_from_slice(&record.seq.0.to_be_bytes());
    out.extend_from_slice(&record.expiry_ms.to_be_bytes());
    if let Some(since) = record.since {
        out.extend_from_slice(&since.0.to_be_bytes());
    }
    out.extend_from_slice(&record.value);
}

/// A stored record and its value. `None`: these bytes are no record.
pub(crate) fn decode_record(stored: &[u8]) -> Option<(RecordHead, &[u8])> {
    let (head, value) = stored.split_first_chunk::<RECORD_HEAD>()?;
    // A flag that this version doesn't know would be dropped by the next write: better refuse it.
    if head[0] != VERSION || head[1] & !(TOMBSTONE | SINCE) != 0 {
        return None;
    }
    let (seq, expiry_ms) = decode_pair(&head[2..])?;
    let (since, value) = match head[1] & SINCE {
        0 => (None, value),
        _ => {
            let (since, value) = value.split_first_chunk::<8>()?;
            (Some(Seq(u64::from_be_bytes(*since))), value)
        }
    };
    Some((
        RecordHead { seq: Seq(seq), tombstone: head[1] & TOMBSTONE != 0, expiry_ms, since },
        value,
    ))
}

fn decode_pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, rest) = bytes.split_first_chunk::<8>()?;
    let second: [u8; 8] = rest.try_into().ok()?;
    Some((u64::from_be_bytes(*first), u64::from_be_bytes(second)))
}

fn encode_pair(first: u64, second: u64) -> [u8; 17] {
    let mut out = [VERSION; 17];
    out[1..9].copy_from_slice(&first.to_be_bytes());
    out[9..].copy_from_slice(&second.to_be_bytes());
    out
}

/// What a floor is of: its key in the `state` column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloorOf {
    /// Of all keys of a chain.
    Chain(ChainId),
    /// Of a bucket.
    Bucket(Bucket),
}

impl FloorOf {
    /// Those of the first chain are as they were when there was no other.
    pub(crate) fn encode(self) -> Vec<u8> {
        let (chain, number) = match self {
            FloorOf::Chain(chain) => (chain, ALL_BUCKETS),
            FloorOf::Bucket(Bucket { chain, number }) => (chain, number),
        };
        let (of_chain, of_bucket) = (chain.number().to_be_bytes(), number.to_be_bytes());
        match (chain.number(), number) {
            (0, ALL_BUCKETS) => STATE_FLOOR.to_vec(),
            (0, _) => [STATE_FLOOR, &of_bucket].concat(),
            _ => [STATE_FLOOR, &of_chain, &of_bucket].concat(),
        }
    }

    /// What this key's floor is of; `None`: it is no floor's.
    pub(crate) fn decode(key: &[u8]) -> Option<FloorOf> {
        let number = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.try_into().ok()?));
        let of = key.strip_prefix(STATE_FLOOR)?;
        let (chain, bucket) = match of.len() {
            0 => (0, ALL_BUCKETS),
            2 => (0, number(of)?),
            _ => (number(of.get(..2)?)?, number(&of[2..])?),
        };
        let chain = ChainId::new(chain);
        let floor_of = match bucket {
            ALL_BUCKETS => FloorOf::Chain(chain),
            number => FloorOf::Bucket(Bucket { chain, number }),
        };
        let is_possible = chain.is_possible()
            && (bucket == ALL_BUCKETS || usize::from(bucket) < SEQ_BUCKETS)
            && floor_of.encode() == key;
        is_possible.then_some(floor_of)
    }
}

/// The stored form of the map of chains.
pub(crate) fn encode_served(served: &ChainMap) -> Vec<u8> {
    encode_state(&served.encode())
}

pub(crate) fn decode_served(stored: &[u8]) -> Option<ChainMap> {
    ChainMap::decode(versioned(stored)?)
}

fn versioned(stored: &[u8]) -> Option<&[u8]> {
    stored.split_first().filter(|(version, _)| **version == VERSION).map(|(_, rest)| rest)
}

pub(crate) fn encode_mark(mark: &Mark) -> [u8; 25] {
    let mut out = [VERSION; 25];
    out[..17].copy_from_slice(&encode_pair(mark.fence.0, mark.offer.bits()));
    out[17..].copy_from_slice(&mark.floor.0.to_be_bytes());
    out
}

pub(crate) fn decode_mark(stored: &[u8]) -> Option<Mark> {
    let (pair, floor) = versioned(stored)?.split_first_chunk::<16>()?;
    let (fence, offer) = decode_pair(pair)?;
    let floor = Seq(u64::from_be_bytes(floor.try_into().ok()?));
    Some(Mark { fence: Seq(fence), offer: OfferId::from_bits(offer), floor })
}

pub(crate) fn encode_completion(completion: &LaneCompletion) -> ([u8; 4], [u8; 17]) {
    (completion.lane.to_be_bytes(), encode_pair(completion.request, completion.seq.0))
}

pub(crate) fn decode_completion(key: &[u8], stored: &[u8]) -> Option<LaneCompletion> {
    let lane = u32::from_be_bytes(key.try_into().ok()?);
    let (request, seq) = decode_pair(versioned(stored)?)?;
    Some(LaneCompletion { lane, request, seq: Seq(seq) })
}

pub(crate) fn encode_state(state: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + state.len());
    out.push(VERSION);
    out.extend_from_slice(state);
    out
}

pub(crate) fn decode_state(stored: &[u8]) -> Option<&[u8]> {
    versioned(stored)
}

pub(crate) fn decode_floor(stored: &[u8]) -> Option<Seq> {
    Some(Seq(u64::from_be_bytes(versioned(stored)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whatever is decoded has been stored as these very bytes.
    fn decodes_only_what_is_stored(key: &[u8], stored: &[u8]) {
        if let Some((head, value)) = decode_record(stored) {
            let RecordHead { seq, tombstone, expiry_ms, since } = head;
            let record = Record { seq, tombstone, expiry_ms, since, value: value.to_vec() };
            let mut again = Vec::new();
            encode_record(&record, &mut again);
            assert_eq!(again, stored);
        }
        if let Some((hash, name)) = decode_key(key) {
            let mut again = Vec::new();
            encode_key(&hash, name, &mut again);
            assert_eq!(again, key);
        }
        if let Some(mark) = decode_mark(stored) {
            assert_eq!(encode_mark(&mark), stored);
        }
        if let Some(completion) = decode_completion(key, stored) {
            let (lane, rest) = encode_completion(&completion);
            assert_eq!((&lane[..], &rest[..]), (key, stored));
        }
        if let Some(state) = decode_state(stored) {
            assert_eq!(encode_state(state), stored);
        }
        if let Some(floor) = decode_floor(stored) {
            assert_eq!(encode_state(&floor.0.to_be_bytes()), stored);
        }
        if let Some(floor_of) = FloorOf::decode(key) {
            assert_eq!(floor_of.encode(), key);
        }
        if let Some(served) = decode_served(stored) {
            assert_eq!(encode_served(&served), stored);
        }
        if let Some(lanes) = decode_lanes(stored) {
            assert_eq!(encode_lanes(&lanes), stored);
        }
        if let Some(range) = decode_kept_key(key) {
            assert_eq!(encode_kept_key(&range), key);
        }
        if let Some((hash, name)) = decode_unconfirmed_key(key) {
            let mut again = Vec::new();
            encode_unconfirmed_key(&hash, name, &mut again);
            assert_eq!(again, key);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_were_stored(
            key in prop::collection::vec(any::<u8>(), 0..40),
            stored in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            decodes_only_what_is_stored(&key, &stored);
        }

        #[test]
        fn damaged_bytes_are_refused_or_were_stored(
            (tombstone, since) in any::<(bool, Option<u64>)>(),
            value in prop::collection::vec(any::<u8>(), 0..20),
            (at, to) in (0..64usize, any::<u8>()),
            kept in 0..64usize,
        ) {
            let since = since.map(Seq);
            let record = Record { seq: Seq(1), tombstone, expiry_ms: 2, since, value };
            let mark = Mark { fence: Seq(2), offer: OfferId::from_bits(3), floor: Seq(1) };
            let (lane, completion) =
                encode_completion(&LaneCompletion { lane: 4, request: 5, seq: Seq(6) });
            let mut stored_record = Vec::new();
            encode_record(&record, &mut stored_record);
            let all = [
                stored_record,
                encode_mark(&mark).into(),
                completion.into(),
                encode_state(&[7; 8]),
            ];
            for mut stored in all {
                if let Some(byte) = stored.get_mut(at) {
                    *byte = to;
                }
                stored.truncate(kept);
                decodes_only_what_is_stored(&lane, &stored);
            }
        }
    }

    /// Fails if a field moves: these bytes are on people's disks.
    #[test]
    fn stored_bytes_are_fixed() {
        let record =
            Record { seq: Seq(0x0102), expiry_ms: 7, value: b"v".to_vec(), ..Record::default() };
        let mut out = Vec::new();
        encode_record(&record, &mut out);
        assert_eq!(out, [1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 7, b'v']);
        let (head, value) = decode_record(&out).expect("own bytes");
        assert_eq!(
            (head.seq, head.tombstone, head.expiry_ms, value),
            (Seq(0x0102), false, 7, &b"v"[..])
        );
        let dependent = Record { since: Some(Seq(5)), tombstone: true, ..record };
        encode_record(&dependent, &mut out);
        assert_eq!(
            out,
            [1, 3, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, b'v']
        );
        let (head, value) = decode_record(&out).expect("own bytes");
        assert_eq!((head.since, head.tombstone, value), (Some(Seq(5)), true, &b"v"[..]));
        let mark = Mark { fence: Seq(2), offer: OfferId::from_bits(3), floor: Seq(1) };
        assert_eq!(encode_mark(&mark)[8..], [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(decode_mark(&encode_mark(&mark)), Some(mark));
        let bucket = |chain, number| FloorOf::Bucket(Bucket { chain, number });
        let (first, third) = (ChainId::new(0), ChainId::new(2));
        for (floor_of, key) in [
            (FloorOf::Chain(first), &b"floor"[..]),
            (bucket(first, 258), b"floor\x01\x02"),
            (FloorOf::Chain(third), b"floor\x00\x02\xff\xff"),
            (bucket(third, 258), b"floor\x00\x02\x01\x02"),
        ] {
            assert_eq!((&floor_of.encode()[..], FloorOf::decode(key)), (key, Some(floor_of)));
        }
        assert_eq!(encode_served(&ChainMap::default()), [1, 1, 0, 0]);
        encode_unconfirmed_key(&KeyHash([b'h'; 16]), b"k", &mut out);
        assert_eq!(out, b"unconfirmedhhhhhhhhhhhhhhhhk");
        assert_eq!(FloorOf::decode(&out), None);
        let lanes = [1, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(encode_lanes(&vec![(258, 9)]), lanes);
        assert_eq!(decode_lanes(&lanes[..12]), None);
        let range = KeyRange { first: KeyHash([b'f'; 16]), last: KeyHash([b'l'; 16]) };
        assert_eq!(encode_kept_key(&range), b"keptffffffffffffffffllllllllllllllll");
    }

    /// Fails if bytes of another version, unknown flags or short bytes are taken for a record.
    #[test]
    fn strange_bytes_are_refused() {
        let mut out = Vec::new();
        encode_record(&Record { seq: Seq(1), ..Record::default() }, &mut out);
        assert!(decode_record(&out).is_some());
        assert!(decode_record(&out[..17]).is_none());
        let (mut version, mut flags) = (out.clone(), out.clone());
        version[0] = 2;
        flags[1] = 4;
        assert!(decode_record(&version).is_none() && decode_record(&flags).is_none());
        assert!(
            decode_mark(&[1; 24]).is_none()
                && decode_mark(&[1; 26]).is_none()
                && decode_mark(&[2; 25]).is_none()
        );
        for strange in
            [STATE_SHIM, b"floor\xff\xff", b"floor\x00\x00\x01\x02", b"floor\x00\x40\x01\x02"]
        {
            assert_eq!(FloorOf::decode(strange), None, "{strange:?}");
        }
        assert!(decode_served(&[1]).is_none() && decode_served(&[1, 0]).is_none());
        assert!(
            decode_floor(&[1; 8]).is_none()
                && decode_state(&[]).is_none()
                && decode_key(&[0; 15]).is_none()
        );
    }
}
