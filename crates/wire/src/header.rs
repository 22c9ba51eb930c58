//! The fixed header, decoded. `datapath/wire.h` is its twin; a test compares every offset.

use crate::{
    Address, HEADER_BYTES, KEY_BYTES_MAX, KeyHash, MAGIC, Op, PACKET_BYTES_MAX, RoutingKey, Seq,
    Status, TTL, VERSION,
};
use thiserror::Error;

/// A header in host order. Lengths are those of the value and key that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
// The table of docs/understand/protocol.md, section 1, is their documentation.
#[allow(missing_docs)]
pub struct Header {
    pub op: Op,
    pub flags: u16,
    pub tenant: u16,
    pub epoch: u32,
    pub partition: u16,
    pub hop: u8,
    pub ttl: u8,
    pub seq: Seq,
    pub guard: u64,
    pub request: u64,
    pub lane: u32,
    pub session: u32,
    pub key_hash: KeyHash,
    pub routing: RoutingKey,
    pub expiry_ms: u64,
    pub tag: u64,
    pub view: u32,
    pub generation: u32,
    pub durable_generation: u32,
    pub total_bytes: u32,
    pub value_bytes: u16,
    pub key_bytes: u16,
    pub fragment_index: u16,
    pub fragment_count: u16,
    pub origin: Address,
    pub status: Status,
    pub record_flags: u8,
    /// Of a control packet, the record's; of an answer of DistCache's switches, their load.
    pub location: u32,
}

/// Why bytes are not a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs)]
pub enum DecodeError {
    #[error("shorter than a header")]
    Truncated,
    #[error("longer than a packet may be")]
    TooLong,
    #[error("not a Switchback packet")]
    Magic,
    #[error("another protocol version")]
    Version,
    #[error("unknown operation or status")]
    Unknown,
    #[error("lengths don't add up")]
    Length,
    #[error("epoch wider than 24 bits")]
    Epoch,
}

/// Writes or reads the header's fields in the order of the wire.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) =
            self.0.split_first_chunk::<N>().expect("the header's length was checked");
        self.0 = tail;
        *head
    }
    #[inline]
    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }
    #[inline]
    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }
    #[inline]
    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }
    #[inline]
    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
    #[inline]
    fn u128(&mut self) -> u128 {
        u128::from_be_bytes(self.take())
    }
}

impl Header {
    /// A header of `op` with everything else zero but the hops that it may take.
    #[inline]
    pub fn new(op: Op) -> Header {
        Header {
            op,
            flags: 0,
            tenant: 0,
            epoch: 0,
            partition: 0,
            hop: 0,
            ttl: TTL,
            seq: Seq::NONE,
            guard: 0,
            request: 0,
            lane: 0,
            session: 0,
            key_hash: KeyHash::default(),
            routing: RoutingKey::default(),
            expiry_ms: 0,
            tag: 0,
            view: 0,
            generation: 0,
            durable_generation: 0,
            total_bytes: 0,
            value_bytes: 0,
            key_bytes: 0,
            fragment_index: 0,
            fragment_count: 0,
            origin: Address::default(),
            status: Status::Ok,
            record_flags: 0,
            location: 0,
        }
    }

    /// Whether a flag (of [`crate::flags`]) is set.
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Length of the packet that this header begins.
    #[inline]
    pub fn packet_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.value_bytes) + usize::from(self.key_bytes)
    }

    /// The header of `packet`, if that is a whole, well-formed packet (section 2 of the protocol,
    /// less what needs state).
    #[inline]
    pub fn decode(packet: &[u8]) -> Result<Header, DecodeError> {
        if packet.len() < HEADER_BYTES {
            return Err(DecodeError::Truncated);
        }
        if packet.len() > PACKET_BYTES_MAX {
            return Err(DecodeError::TooLong);
        }
        let mut from = Cursor(&packet[..HEADER_BYTES]);
        if from.u16() != MAGIC {
            return Err(DecodeError::Magic);
        }
        if from.u8() != VERSION {
            return Err(DecodeError::Version);
        }
        let header = Header::decode_fields(&mut from)?;
        if header.packet_bytes() != packet.len() {
            return Err(DecodeError::Length);
        }
        if header.key_bytes == 0 || usize::from(header.key_bytes) > KEY_BYTES_MAX {
            return Err(DecodeError::Length);
        }
        if header.epoch > crate::EPOCH_MAX {
            return Err(DecodeError::Epoch);
        }
        Ok(header)
    }

    #[inline]
    fn decode_fields(from: &mut Cursor<'_>) -> Result<Header, DecodeError> {
        let op = Op::from_u8(from.u8()).ok_or(DecodeError::Unknown)?;
        Ok(Header {
            op,
            flags: from.u16(),
            tenant: from.u16(),
            epoch: from.u32(),
            partition: from.u16(),
            hop: from.u8(),
            ttl: from.u8(),
            seq: Seq(from.u64()),
            guard: from.u64(),
            request: from.u64(),
            lane: from.u32(),
            session: from.u32(),
            key_hash: KeyHash(from.take()),
            routing: RoutingKey(from.u128()),
            expiry_ms: from.u64(),
            tag: from.u64(),
            view: from.u32(),
            generation: from.u32(),
            durable_generation: from.u32(),
            total_bytes: from.u32(),
            value_bytes: from.u16(),
            key_bytes: from.u16(),
            fragment_index: from.u16(),
            fragment_count: from.u16(),
            origin: Address { ip: from.take(), port: from.u16() },
            status: Status::from_u8(from.u8()).ok_or(DecodeError::Unknown)?,
            record_flags: from.u8(),
            location: from.u32(),
        })
    }

    /// Writes the header into the first [`HEADER_BYTES`] of `to`.
    #[inline]
    pub fn encode(&self, to: &mut [u8; HEADER_BYTES]) {
        to[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        to[2] = VERSION;
        to[3] = self.op as u8;
        to[4..6].copy_from_slice(&self.flags.to_be_bytes());
        to[6..8].copy_from_slice(&self.tenant.to_be_bytes());
        to[8..12].copy_from_slice(&self.epoch.to_be_bytes());
        to[12..14].copy_from_slice(&self.partition.to_be_bytes());
        to[14] = self.hop;
        to[15] = self.ttl;
        to[16..24].copy_from_slice(&self.seq.0.to_be_bytes());
        to[24..32].copy_from_slice(&self.guard.to_be_bytes());
        to[32..40].copy_from_slice(&self.request.to_be_bytes());
        to[40..44].copy_from_slice(&self.lane.to_be_bytes());
        to[44..48].copy_from_slice(&self.session.to_be_bytes());
        to[48..64].copy_from_slice(&self.key_hash.0);
        to[64..80].copy_from_slice(&self.routing.0.to_be_bytes());
        to[80..88].copy_from_slice(&self.expiry_ms.to_be_bytes());
        to[88..96].copy_from_slice(&self.tag.to_be_bytes());
        to[96..100].copy_from_slice(&self.view.to_be_bytes());
        to[100..104].copy_from_slice(&self.generation.to_be_bytes());
        to[104..108].copy_from_slice(&self.durable_generation.to_be_bytes());
        to[108..112].copy_from_slice(&self.total_bytes.to_be_bytes());
        to[112..114].copy_from_slice(&self.value_bytes.to_be_bytes());
        to[114..116].copy_from_slice(&self.key_bytes.to_be_bytes());
        to[116..118].copy_from_slice(&self.fragment_index.to_be_bytes());
        to[118..120].copy_from_slice(&self.fragment_count.to_be_bytes());
        to[120..136].copy_from_slice(&self.origin.ip);
        to[136..138].copy_from_slice(&self.origin.port.to_be_bytes());
        to[138] = self.status as u8;
        to[139] = self.record_flags;
        to[140..144].copy_from_slice(&self.location.to_be_bytes());
    }
}
