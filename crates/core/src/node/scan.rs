//! Scans: a node's keys in the order of their hashes, with those that may be cached flagged (protocol, section 8).

use super::shim::{Pending, Request, Shim};
use crate::storage::{EngineOp, ScannedKey};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::{Address, HEADER_BYTES, Header, KeyHash, Op, PACKET_BYTES_MAX, PacketRef, push_scan_entry};

/// Keys that one listing looks at, and one count.
const LISTED: usize = 128;
const COUNTED: usize = 8192;
/// A scan names no key, and a packet's key has a byte at least. The answer repeats it beside the listing.
const KEY_BYTES: usize = 1;

impl Shim {
    pub(super) fn scan(&mut self, from: Address, parts: PacketRef<'_>) {
        if parts.key.len() != KEY_BYTES {
            self.statistics.dropped_malformed += 1;
            return;
        }
        self.statistics.scans += 1;
        let position = parts.header.key_hash.position();
        let end = self.run_end(parts.header.partition);
        let limit = if parts.header.fragment_count == 1 { COUNTED } else { LISTED };
        let request = Request { header: parts.header, key: parts.key.to_vec(), switch: from };
        self.submit(Pending::Scan(request, end), |id| EngineOp::Scan { id, from: position, to: end, limit });
    }

    /// Last position of the run of neighbouring partitions, from `partition` on, that are this node's.
    fn run_end(&self, partition: u16) -> u64 {
        let first = usize::from(partition);
        let run = self.mine[first..].iter().take_while(|mine| **mine).count();
        let width = 1u128 << 64 >> self.mine.len().trailing_zeros();
        ((first + run) as u128 * width - 1) as u64
    }

    pub(super) fn answer_scan(
        &mut self,
        now: Now,
        request: Request,
        end: u64,
        keys: Vec<ScannedKey>,
        next: Option<u64>,
    ) {
        let Request { header, key, switch } = request;
        let from = header.key_hash.position();
        // Where the engine stopped, marks must stop, too.
        let mut last = next.map_or(end, |next| next - 1);
        let mut listed: BTreeMap<KeyHash, (bool, Vec<u8>)> = BTreeMap::new();
        for found in keys {
            let expired = found.expiry_ms != 0 && found.expiry_ms <= now.unix_ms;
            if !found.tombstone && !expired {
                listed.insert(found.hash, (false, found.key));
            }
        }
        let offered = self.marks.offered_between(from, last).filter(|_| self.mechanisms.marked_scans);
        for (hash, marked) in offered {
            listed.insert(*hash, (true, marked.key.clone()));
        }
        let count_only = header.fragment_count == 1;
        let mut entries = Vec::new();
        let mut live = 0;
        for (hash, (maybe_cached, key)) in listed {
            let wanted = maybe_cached || !count_only;
            if wanted && !push_scan_entry(&mut entries, maybe_cached, &key, PACKET_BYTES_MAX - HEADER_BYTES - KEY_BYTES)
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
