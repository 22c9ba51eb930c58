//! The packets of `docs/understand/protocol.md`: layout, codec, sequence numbers, key hashes,
//! addresses.
//!
//! Nothing in here knows what a packet *means*; that is the datapath's and the state machines'
//! business.

mod address;
mod hash;
mod header;
mod map;
mod op;
mod packet;
mod pcap;
mod place;
mod scheme;
mod seq;

pub use address::Address;
pub use hash::{HashKey, KeyHash};
pub use header::{DecodeError, Header};
pub use map::{Map, MapError, PARTITIONS_MAX, Partition, REPLICAS_MAX, RoutingKey, View};
pub use op::{Op, Status, flags, record_flags};
pub use packet::{Packet, PacketRef, op_of, push_scan_entry, scan_entries};
pub use pcap::Capture;
pub use place::{Heard, LAYERS_MAX, LEAF_HOP, Place, Probes, SPINE_HOP};
pub use scheme::{PerScheme, Scheme};
pub use seq::{EPOCH_MAX, EPOCHS_OF_ROUND, SEQ_COUNTER_BITS, Seq};

/// First two bytes of every packet.
pub const MAGIC: u16 = 0x5357;
/// Version of the layout, which says how long the header is; another one is dropped.
pub const VERSION: u8 = 2;
/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 144;
/// Largest packet: an Ethernet MTU less IPv6 and UDP headers, rounded down.
pub const PACKET_BYTES_MAX: usize = 1440;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value, in fragments.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Longest key that the cache takes.
pub const CACHED_KEY_BYTES_MAX: usize = 128;
/// Longest value that the cache takes, also the longest that travels without fragments: a packet
/// holds it beside the longest cached key.
pub const CACHED_VALUE_BYTES_MAX: usize = PACKET_BYTES_MAX - HEADER_BYTES - CACHED_KEY_BYTES_MAX;
/// How many switches a packet may pass from its sender on.
pub const TTL: u8 = 16;
/// Names no slot.
pub const NO_LOCATION: u32 = u32::MAX;
/// UDP port of the switch unless configured otherwise.
pub const SWITCH_PORT: u16 = 5357;

/// Where a record is, as tables and [`Header::location`] name it: class (2 bits), slot (30 bits).
/// `None` where no table can have it.
pub const fn location(class: u8, slot: u32) -> Option<u32> {
    if class < 4 && slot < (1 << 30) - 1 { Some((class as u32) << 30 | slot) } else { None }
}

/// How many bytes of a large value one fragment carries beside a key of `key_bytes`.
pub const fn fragment_bytes(key_bytes: usize) -> usize {
    assert!(key_bytes <= KEY_BYTES_MAX);
    PACKET_BYTES_MAX - HEADER_BYTES - key_bytes
}

/// Whether a value of this length travels in fragments (with a key of `key_bytes`).
pub const fn is_large(value_bytes: usize, key_bytes: usize) -> bool {
    value_bytes > CACHED_VALUE_BYTES_MAX || value_bytes > fragment_bytes(key_bytes)
}
