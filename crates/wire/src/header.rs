//! The fixed header, decoded. `datapath/wire.h` is its twin; a test compares every offset.

use crate::{Address, HEADER_BYTES, KEY_BYTES_MAX, KeyHash, MAGIC, Op, PACKET_BYTES_MAX, Seq, Status, VERSION};
use thiserror::Error;

/// A header in host order. Lengths are those of the value and key that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
// The table of docs/understand/protocol.md, section 1, is their documentation.
#[allow(missing_docs)]
pub struct Header {
    pub op: Op,
    pub flags: u8,
    pub tenant: u16,
    pub epoch: u32,
    pub partition: u16,
    pub hop: u8,
    pub status: Status,
    pub seq: Seq,
    pub guard: u64,
    pub request: u64,
    pub lane: u32,
    pub generation: u32,
    pub key_hash: KeyHash,
    pub expiry_ms: u64,
    pub durable_generation: u32,
    pub total_bytes: u32,
    pub value_bytes: u16,
    pub key_bytes: u16,
    pub fragment_index: u16,
    pub fragment_count: u16,
    pub origin: Address,
    pub record_flags: u8,
    pub class: u8,
    pub slot: u32,
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
        let (head, tail) = self.0.split_first_chunk::<N>().expect("the header's length was checked");
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
}

impl Header {
    /// A header of `op` with everything else zero.
    #[inline]
    pub fn new(op: Op) -> Header {
        Header {
            op,
            flags: 0,
            tenant: 0,
            epoch: 0,
            partition: 0,
            hop: 0,
            status: Status::Ok,
            seq: Seq::NONE,
            guard: 0,
            request: 0,
            lane: 0,
            generation: 0,
            key_hash: KeyHash::default(),
            expiry_ms: 0,
            durable_generation: 0,
            total_bytes: 0,
            value_bytes: 0,
            key_bytes: 0,
            fragment_index: 0,
            fragment_count: 0,
            origin: Address::default(),
            record_flags: 0,
            class: 0,
            slot: 0,
        }
    }

    /// Whether a flag (of [`crate::flags`]) is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Length of the packet that this header begins.
    #[inline]
    pub fn packet_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.value_bytes) + usize::from(self.key_bytes)
    }

    /// The header of `packet`, if that is a whole, well-formed packet (section 2 of the protocol, less what needs state).
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
        if from.u8() != VERSION || usize::from(from.u8()) != HEADER_BYTES {
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
            flags: from.u8(),
            tenant: from.u16(),
            epoch: from.u32(),
            partition: from.u16(),
            hop: from.u8(),
            status: Status::from_u8(from.u8()).ok_or(DecodeError::Unknown)?,
            seq: Seq(from.u64()),
            guard: from.u64(),
            request: from.u64(),
            lane: from.u32(),
            generation: from.u32(),
            key_hash: KeyHash(from.take()),
            expiry_ms: from.u64(),
            durable_generation: from.u32(),
            total_bytes: from.u32(),
            value_bytes: from.u16(),
            key_bytes: from.u16(),
            fragment_index: from.u16(),
            fragment_count: from.u16(),
            origin: Address { ip: from.take(), port: from.u16() },
            record_flags: from.u8(),
            class: from.u8(),
            slot: from.u32(),
        })
    }

    /// Writes the header into the first [`HEADER_BYTES`] of `to`.
    #[inline]
    pub fn encode(&self, to: &mut [u8; HEADER_BYTES]) {
        to[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        to[2] = VERSION;
        to[3] = HEADER_BYTES as u8;
        to[4] = self.op as u8;
        to[5] = self.flags;
        to[6..8].copy_from_slice(&self.tenant.to_be_bytes());
        to[8..12].copy_from_slice(&self.epoch.to_be_bytes());
        to[12..14].copy_from_slice(&self.partition.to_be_bytes());
        to[14] = self.hop;
        to[15] = self.status as u8;
        to[16..24].copy_from_slice(&self.seq.0.to_be_bytes());
        to[24..32].copy_from_slice(&self.guard.to_be_bytes());
        to[32..40].copy_from_slice(&self.request.to_be_bytes());
        to[40..44].copy_from_slice(&self.lane.to_be_bytes());
        to[44..48].copy_from_slice(&self.generation.to_be_bytes());
        to[48..64].copy_from_slice(&self.key_hash.0);
        to[64..72].copy_from_slice(&self.expiry_ms.to_be_bytes());
        to[72..76].copy_from_slice(&self.durable_generation.to_be_bytes());
        to[76..80].copy_from_slice(&self.total_bytes.to_be_bytes());
        to[80..82].copy_from_slice(&self.value_bytes.to_be_bytes());
        to[82..84].copy_from_slice(&self.key_bytes.to_be_bytes());
        to[84..86].copy_from_slice(&self.fragment_index.to_be_bytes());
        to[86..88].copy_from_slice(&self.fragment_count.to_be_bytes());
        to[88..104].copy_from_slice(&self.origin.ip);
        to[104..106].copy_from_slice(&self.origin.port.to_be_bytes());
        to[106] = self.record_flags;
        to[107] = self.class;
        to[108..112].copy_from_slice(&self.slot.to_be_bytes());
    }
}
