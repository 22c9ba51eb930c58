//! Scans: a node's keys in the order of their hashes, with those that may be cached flagged
//! (protocol, section 8).

use super::Replica;
use super::operations::{Pending, Request};
use crate::storage::{EngineOp, ScannedKey};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::{
    Address, HEADER_BYTES, Header, KeyHash, Op, PACKET_BYTES_MAX, PacketRef, push_scan_entry,
};

/// Keys that one listing looks at, and one count.
const LISTED: usize = 128;
const COUNTED: usize = 8192;
/// A scan names no key, and a packet's key has a byte at least. The answer repeats it beside the
/// listing.
const KEY_BYTES: usize = 1;

impl Replica {
    /// Lists or counts keys up to position `end`; false if no client would send this.
    pub(in crate::node) fn scan(&mut self, from: Address, parts: PacketRef<'_>, end: u64) -> bool {
        if parts.key.len() != KEY_BYTES {
            return false;
        }
        let position = parts.header.key_hash.position();
        let limit = if parts.header.fragment_count == 1 { COUNTED } else { LISTED };
        let request = Request { header: parts.header, key: parts.key.to_vec(), switch: from };
        self.submit(Pending::Scan(request, end), |id| EngineOp::Scan {
            id,
            from: position,
            to: end,
            limit,
        });
        true
    }

    /// Answers a scan from position `from` to `last` with these keys. Of the `offered` ones among
    /// them the cache may have a newer version than what is stored.
    pub(in crate::node) fn answer_scan<'a>(
        &mut self,
        now: Now,
        request: Request,
        mut last: u64,
        keys: Vec<ScannedKey>,
        offered: impl Iterator<Item = (&'a KeyHash, &'a [u8])>,
    ) {
        let Request { header, key, switch } = request;
        let mut listed: BTreeMap<KeyHash, (bool, Vec<u8>)> = BTreeMap::new();
        for found in keys {
            let expired = found.expiry_ms != 0 && found.expiry_ms <= now.unix_ms;
            if !found.tombstone && !expired {
                listed.insert(found.hash, (false, found.key));
            }
        }
        for (hash, key) in offered {
            listed.insert(*hash, (true, key.to_vec()));
        }
        let count_only = header.fragment_count == 1;
        let mut entries = Vec::new();
        let mut live = 0;
        for (hash, (maybe_cached, key)) in listed {
            let wanted = maybe_cached || !count_only;
            if wanted
                && !push_scan_entry(
                    &mut entries,
                    maybe_cached,
                    &key,
                    PACKET_BYTES_MAX - HEADER_BYTES - KEY_BYTES,
                )
            {
                last = hash.position() - 1;
                break;
            }
            live += u32::from(!maybe_cached);
        }
        let guard = last.wrapping_add(1);
        let reply = Header { op: Op::ScanReply, flags: 0, guard, total_bytes: live, ..header };
        self.send(switch, reply, &entries, &key);
    }
}
