//! The switch's pipeline in user space: a safe wrapper of `datapath/native.c`.
//!
//! A [`Datapath`] is a handle without globals; any number of them run in one process. It has no
//! clock and no randomness: both come in with each packet. It does no I/O: a [`Verdict`] says what
//! the caller is to do with the packet.

mod config;
mod control;
mod ffi;
mod nodes;
mod routes;
pub mod state;
mod statistics;

pub use config::{ABLATIONS, ClassConfig, Config, Features};
pub use control::Control;
pub use nodes::NodeAddresses;
pub use routes::{RouteBucket, RouteRange, Routes};
use statistics::place;
pub use statistics::{COUNT as STATISTIC_COUNT, DropReason, Statistics};

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use switchback_wire::{Address, Heard, KeyHash, Map, Packet, Place, location};
use thiserror::Error;

/// Shards that count packets separately.
pub const SHARDS: u8 = 16;

/// Packets that are worth handing over at once; larger batches are no faster.
pub const BATCH: usize = 32;

/// Which thread is counting: each that processes packets has a shard of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shard(u8);

impl Shard {
    /// Shard `index`, below [`SHARDS`].
    pub const fn new(index: u8) -> Shard {
        assert!(index < SHARDS);
        Shard(index)
    }
}

/// Where a forwarded packet goes: to the first; the other replicas of a write follow it, down to
/// the tail. A read goes to the tail alone.
#[derive(Clone, Copy)]
pub struct Replicas {
    nodes: [u16; 4],
    count: u8,
}

impl Replicas {
    /// The one of a route as the tables have it (16 bits each, from the head up) that is asked: the
    /// head, or the tail where that `is_for_tail`.
    pub fn of_route(route: u64, is_for_tail: bool) -> Replicas {
        let node = |i: usize| (route >> (16 * i)) as u16;
        let mut nodes = [0, 1, 2, 3].map(node);
        let count = nodes.iter().take_while(|node| **node != u16::MAX).count();
        if is_for_tail && count > 0 {
            nodes[0] = nodes[count - 1];
        }
        Replicas { nodes, count: count.min(1) as u8 }
    }
}

impl PartialEq for Replicas {
    fn eq(&self, other: &Replicas) -> bool {
        **self == **other
    }
}

impl Eq for Replicas {}

impl Deref for Replicas {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.nodes[..usize::from(self.count)]
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

/// A switch next to this one in its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// The one that is nearer to the clients.
    Before,
    /// The one that is nearer to the nodes.
    After,
}

/// What the caller is to do with the packet, which may have changed. Small, since each packet of a
/// batch has one written for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Send it to the header's `origin`.
    Reply,
    /// Send it to the first of these nodes.
    Forward(Replicas),
    /// Send it to this neighbour in the chain, whose address [`Control::neighbour`] says.
    ToSwitch(Neighbour),
    /// It was for this switch: a neighbour's probe, which has been counted.
    Taken,
    /// Forget it.
    Drop(DropReason),
    /// It isn't ours.
    Pass,
}

/// A packet of a batch.
#[derive(Clone, Debug)]
pub struct Item {
    /// The packet.
    pub packet: Packet,
    /// Who sent it.
    pub from: Address,
    /// Uniform.
    pub random: u32,
    /// What became of it.
    pub verdict: Verdict,
}

impl AsMut<Item> for Item {
    #[inline]
    fn as_mut(&mut self) -> &mut Item {
        self
    }
}

impl Default for Item {
    /// An empty packet without a sender.
    fn default() -> Item {
        Item { packet: Packet::new(), from: Address::default(), random: 0, verdict: Verdict::Pass }
    }
}

/// Why there is no datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration makes no sense.
    #[error("datapath configuration: {0}")]
    Config(&'static str),
    /// No memory for its tables.
    #[error("no memory for the datapath's tables")]
    Memory,
}

/// Why a table stays as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The key's tag is in the lookup table: the same key, or (once in 2^64) one that can't be
    /// cached beside it.
    #[error("the key is cached already")]
    Duplicate,
    /// The lookup table is full.
    #[error("the lookup table is full")]
    Full,
    /// There is no such class or slot.
    #[error("no such slot")]
    Slot,
    /// There are more partitions than there is room for.
    #[error("there is no room for this many partitions")]
    Partitions,
    /// A partition has a replica at a node that doesn't exist.
    #[error("a partition has a replica at a node that doesn't exist")]
    Replicas,
    /// Chains of this scheme have no such place.
    #[error("chains of this scheme have no such place")]
    Place,
}

/// The pipeline and its tables.
///
/// Packets may be processed by any number of threads at once, each with its own [`Shard`]; the
/// table calls are the agent's and exclude each other.
pub struct Datapath {
    handle: ffi::Handle,
    tables: Mutex<()>,
    /// Where each node is, and behind them in a rack of spines and leaves each of those.
    nodes: Mutex<BTreeMap<u16, Address>>,
    config: Config,
}

impl Datapath {
    /// A datapath that serves nothing yet: inject SET_EPOCH, and set a map and nodes.
    pub fn new(config: &Config) -> Result<Datapath, Error> {
        let handle = ffi::Handle::new(&config.to_c()?).ok_or(Error::Memory)?;
        let (tables, nodes) = Default::default();
        Ok(Datapath { handle, tables, nodes, config: config.clone() })
    }

    /// Runs a packet that came `from` an address through the pipeline. `random` is uniform;
    /// `now_ms` counts from the Unix epoch.
    ///
    /// Two threads must not use the same shard at the same time: counts would get lost.
    #[inline]
    pub fn process(
        &self,
        packet: &mut Packet,
        from: Address,
        now_ms: u64,
        random: u32,
        shard: Shard,
    ) -> Verdict {
        let length = packet.bytes().len();
        let item = ffi::Item::new(packet.buffer_mut(), length, &from, random);
        let mut verdict = ffi::RawVerdict::default();
        self.handle.process(
            slice::from_ref(&item),
            slice::from_mut(&mut verdict),
            now_ms,
            shard.0.into(),
        );
        self.finish(packet, verdict)
    }

    /// Runs a batch of packets in order: as [`Datapath::process`] for each, but faster if the
    /// tables are larger than the CPU's caches, since the memory that later packets need is fetched
    /// meanwhile.
    pub fn process_batch(&self, batch: &mut [impl AsMut<Item>], now_ms: u64, shard: Shard) {
        if let [alone] = batch {
            let item = alone.as_mut();
            item.verdict = self.process(&mut item.packet, item.from, now_ms, item.random, shard);
            return;
        }
        for items in batch.chunks_mut(BATCH) {
            let count = items.len();
            let mut for_c = [const { ffi::Item::none() }; BATCH];
            for (to, Item { packet, from, random, .. }) in
                for_c.iter_mut().zip(items.iter_mut().map(AsMut::as_mut))
            {
                let length = packet.bytes().len();
                *to = ffi::Item::new(packet.buffer_mut(), length, from, *random);
            }
            let mut verdicts = [ffi::RawVerdict::default(); BATCH];
            self.handle.process(&for_c[..count], &mut verdicts[..count], now_ms, shard.0.into());
            for (item, verdict) in items.iter_mut().map(AsMut::as_mut).zip(verdicts) {
                item.verdict = self.finish(&mut item.packet, verdict);
            }
        }
    }

    #[inline]
    fn finish(&self, packet: &mut Packet, verdict: ffi::RawVerdict) -> Verdict {
        packet.set_length(verdict.length as usize);
        match verdict.kind {
            0 => Verdict::Reply,
            1 => Verdict::Forward(Replicas { nodes: verdict.nodes, count: verdict.count }),
            2 => Verdict::Drop(DropReason::from_number(verdict.reason)),
            3 => Verdict::Pass,
            4 => Verdict::ToSwitch(Neighbour::Before),
            5 => Verdict::ToSwitch(Neighbour::After),
            _ => Verdict::Taken,
        }
    }

    /// Where the node of this number is, in a rack of spines and leaves (DistCache), whose switches
    /// are told of each other by the numbers behind the nodes'. `None`: in one of another scheme,
    /// or it wasn't told of any.
    #[inline]
    pub fn told_node(&self, number: u16) -> Option<Address> {
        if !self.config.features.has(Features::COPIES) {
            return None;
        }
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&number).copied()
    }

    fn tables(&self) -> MutexGuard<'_, ()> {
        // The guarded value is nothing, so a panic elsewhere can't have left it inconsistent.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far, summed over the shards.
    pub fn statistics(&self) -> Statistics {
        Statistics::from_numbers(&self.handle.statistics())
    }
}

impl Control for Datapath {
    fn config(&self) -> &Config {
        &self.config
    }

    fn inject(&self, packet: &mut Packet) -> Verdict {
        let length = packet.bytes().len();
        let verdict = self.handle.inject(packet.buffer_mut(), length);
        self.finish(packet, verdict)
    }

    fn lookup_insert(&self, hash: &KeyHash, class: u8, slot: u32) -> Result<(), TableError> {
        let location = location(class, slot).ok_or(TableError::Slot)?;
        let _one_at_a_time = self.tables();
        match self.handle.lookup_insert(hash, location) {
            0 => Ok(()),
            1 => Err(TableError::Duplicate),
            2 => Err(TableError::Full),
            _ => Err(TableError::Slot),
        }
    }

    fn lookup_remove(&self, hash: &KeyHash, class: u8, slot: u32) -> bool {
        let Some(location) = location(class, slot) else { return false };
        let _one_at_a_time = self.tables();
        self.handle.lookup_remove(hash, location)
    }

    fn set_map(&self, map: &Map) -> Result<(), TableError> {
        let routes = Routes::new(map, &self.config)?;
        let _one_at_a_time = self.tables();
        self.handle.set_routes(&routes);
        Ok(())
    }

    fn set_node(&self, node: u16, address: Address) {
        assert!(node < self.config.nodes, "node {node} of {}", self.config.nodes);
        let _one_at_a_time = self.tables();
        self.handle.set_node(node, &address);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node, address);
    }

    fn set_place(&self, place: &Place) -> Result<(), TableError> {
        self.config.check_place(place)?;
        let _one_at_a_time = self.tables();
        self.handle.set_place(place);
        Ok(())
    }

    fn neighbour(&self, neighbour: Neighbour) -> Option<Address> {
        let address = self.handle.neighbour(neighbour == Neighbour::Before);
        (address.port != 0).then_some(address)
    }

    fn set_lanes(&self, granted: u32) {
        self.handle.set_lanes(granted.min(self.config.lanes));
    }

    fn set_counting(&self, sampling: f64, threshold: u32, offers: u32) -> u32 {
        self.handle.set_counting(Config::sampled(sampling), threshold, offers)
    }

    fn next_report(&self, packet: &mut Packet) -> bool {
        let length = self.handle.next_report(packet.buffer_mut());
        packet.set_length(length);
        length != 0
    }

    fn misses(&self) -> u64 {
        self.handle.statistic(place::read_misses) + self.handle.statistic(place::write_misses)
    }

    fn requests(&self) -> u64 {
        [place::read, place::write, place::delete]
            .iter()
            .map(|place| self.handle.statistic(*place))
            .sum()
    }

    fn sequence_used(&self) -> u32 {
        self.handle.sequence_used()
    }

    fn heard(&self) -> Heard {
        Heard::from_counts(self.handle.heard())
    }

    fn clear(&self) {
        let _one_at_a_time = self.tables();
        self.handle.clear();
    }
}

impl fmt::Debug for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datapath")
            .field("registers", &self.peek_registers())
            .finish_non_exhaustive()
    }
}

/// Names and numbers of the C headers (`wire.op`: offset * 16 + size), for the tests that compare
/// them with their Rust twins.
#[doc(hidden)]
pub fn layout() -> Vec<(&'static str, u64)> {
    ffi::layout()
}

/// Both sides' names of the statistics, and the sizes of what crosses the border, for the same
/// tests.
#[doc(hidden)]
pub fn twins() -> (Vec<&'static str>, Vec<&'static str>, &'static [(&'static str, usize)]) {
    (ffi::statistic_names(), statistics::names(), ffi::SIZES)
}
