//! A packet in its buffer. The buffer is as long as the longest packet, so that an answer can
//! outgrow its request in place.

use crate::{Address, DecodeError, HEADER_BYTES, Header, Op, PACKET_BYTES_MAX};
use std::fmt;
use std::ops::Range;

/// Where a packet has its operation.
const OP_AT: usize = 3;
/// Where it has the lengths of its value and of its key.
const VALUE_BYTES_AT: Range<usize> = 112..114;
const KEY_BYTES_AT: Range<usize> = 114..116;

/// An owned packet buffer, meant to be reused.
#[derive(Clone)]
pub struct Packet {
    bytes: [u8; PACKET_BYTES_MAX],
    length: usize,
}

/// A well-formed packet, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRef<'a> {
    /// The decoded header.
    pub header: Header,
    /// The value; empty for most requests.
    pub value: &'a [u8],
    /// The key.
    pub key: &'a [u8],
}

impl<'a> PacketRef<'a> {
    /// Takes `bytes` apart.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<PacketRef<'a>, DecodeError> {
        let header = Header::decode(bytes)?;
        let (value, key) = bytes[HEADER_BYTES..].split_at(usize::from(header.value_bytes));
        assert_eq!(key.len(), usize::from(header.key_bytes));
        Ok(PacketRef { header, value, key })
    }
}

impl Default for Packet {
    fn default() -> Packet {
        Packet { bytes: [0; PACKET_BYTES_MAX], length: 0 }
    }
}

impl Packet {
    /// An empty buffer.
    pub fn new() -> Packet {
        Packet::default()
    }

    /// Fills the buffer with a packet. Its lengths are those of `value` and `key`, which must fit;
    /// those in `header` are not looked at.
    #[inline]
    pub fn fill(&mut self, header: &Header, value: &[u8], key: &[u8]) {
        let length = HEADER_BYTES + value.len() + key.len();
        assert!(length <= PACKET_BYTES_MAX, "a packet of {length} bytes");
        assert!(!key.is_empty());
        let (head, body) =
            self.bytes.split_first_chunk_mut::<HEADER_BYTES>().expect("longer than a header");
        header.encode(head);
        head[VALUE_BYTES_AT].copy_from_slice(&(value.len() as u16).to_be_bytes());
        head[KEY_BYTES_AT].copy_from_slice(&(key.len() as u16).to_be_bytes());
        body[..value.len()].copy_from_slice(value);
        body[value.len()..value.len() + key.len()].copy_from_slice(key);
        self.length = length;
    }

    /// A packet of these parts.
    pub fn build(header: Header, value: &[u8], key: &[u8]) -> Packet {
        let mut packet = Packet::new();
        packet.fill(&header, value, key);
        packet
    }

    /// Takes over received bytes; `None` if they are longer than any packet.
    #[inline]
    pub fn copy_from(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.length = bytes.len();
        Some(())
    }

    /// The packet's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The whole buffer, for a receiver or the datapath; follow with [`Packet::set_length`].
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8; PACKET_BYTES_MAX] {
        &mut self.bytes
    }

    /// Says how much of the buffer is the packet.
    #[inline]
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= PACKET_BYTES_MAX);
        self.length = length;
    }

    /// Operation, at a glance, of a packet that was filled in here.
    #[inline]
    pub fn op(&self) -> Option<Op> {
        op_of(self.bytes())
    }

    /// Operation and origin, at a glance, of a packet that has passed a pipeline.
    #[inline]
    pub fn op_and_origin(&self) -> Option<(Op, Address)> {
        let bytes = self.bytes();
        let ip = bytes.get(120..136)?.try_into().ok()?;
        let port = u16::from_be_bytes(bytes.get(136..138)?.try_into().ok()?);
        Some((self.op()?, Address { ip, port }))
    }

    /// Value and key, at a glance, of a packet that was filled in here.
    #[inline]
    pub fn value_and_key(&self) -> (&[u8], &[u8]) {
        let (head, body) = self.bytes().split_at(HEADER_BYTES);
        let value_bytes = head[VALUE_BYTES_AT].try_into().expect("two bytes");
        body.split_at(usize::from(u16::from_be_bytes(value_bytes)))
    }

    /// Takes the packet apart.
    #[inline]
    pub fn parse(&self) -> Result<PacketRef<'_>, DecodeError> {
        PacketRef::parse(self.bytes())
    }

    /// Rewrites the header in place, keeping value and key; the lengths must be unchanged.
    pub fn rewrite(&mut self, header: &Header) {
        assert_eq!(header.packet_bytes(), self.length);
        let (head, _) =
            self.bytes.split_first_chunk_mut::<HEADER_BYTES>().expect("longer than a header");
        header.encode(head);
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse() {
            Ok(parts) => parts.fmt(f),
            Err(error) => write!(f, "Packet({} bytes, {error})", self.length),
        }
    }
}

/// Operation, at a glance, of what may be a packet.
#[inline]
pub fn op_of(bytes: &[u8]) -> Option<Op> {
    Op::from_u8(*bytes.get(OP_AT)?)
}

/// Appends one key to the value of a SCAN_REPLY; false if it would exceed `limit` bytes.
pub fn push_scan_entry(to: &mut Vec<u8>, maybe_cached: bool, key: &[u8], limit: usize) -> bool {
    if to.len() + 3 + key.len() > limit {
        return false;
    }
    to.push(u8::from(maybe_cached));
    to.extend_from_slice(&(key.len() as u16).to_be_bytes());
    to.extend_from_slice(key);
    true
}

/// The keys in the value of a SCAN_REPLY, each with whether it may be cached. Ends early where the
/// list is malformed.
pub fn scan_entries(mut value: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = value.split_first_chunk::<3>()?;
        let key_bytes = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        value = rest;
        Some((head[0] & 1 != 0, key))
    })
}
