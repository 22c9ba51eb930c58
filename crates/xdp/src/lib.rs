//! The switch's pipeline in the kernel: loads it, drives it, attaches it to interfaces.
//!
//! An [`XdpDatapath`] is what [`switchback_datapath::Datapath`] is in user space: tables, control
//! packets, reports, statistics, and packets that are processed on request (by `BPF_PROG_TEST_RUN`;
//! for conformance, and for what an interface couldn't answer in place). [`Attachment`] makes the
//! kernel process the packets of an interface. No sockets and no threads in here.

mod attach;
mod forwarding;
#[cfg(feature = "measure")]
mod headers;
mod inspect;
mod layout;
#[cfg(feature = "measure")]
pub mod measure;
mod netlink;
mod object;
mod peer;
mod reports;
mod resources;
mod segment;
mod slots;
mod state;
mod sys;

pub use attach::{Attachment, MTU_MIN, Mode, Watch};
pub use inspect::{Interface, inspect, interfaces};
pub use netlink::{Link, links};
pub use object::{is_built_in, map_bytes};
pub use peer::within;
pub use resources::{MapResources, ProgramResources};
pub use segment::Segment;

use layout::place;
use object::{Loaded, Object};
use reports::Reports;
use slots::Chunks;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use switchback_datapath::{
    Config, Control, DropReason, Neighbour, Replicas, RouteBucket, Routes, STATISTIC_COUNT,
    Statistics, TableError, Verdict,
};
use switchback_wire::{Address, Heard, KeyHash, Map, PACKET_BYTES_MAX, Packet, Place, location};
use sys::{Calls, MappedMemory};
use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Why there is no kernel datapath.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The processor orders memory in another way.
    #[error(
        "the kernel datapath runs on x86_64 only, and this machine is {0}: what guards its records \
         against torn reads relies on x86's order of loads and stores; run the switch in user \
         space, without --datapath xdp"
    )]
    Architecture(String),
    /// No clang at build time.
    #[error(
        "this program was built without the kernel datapath, since there was no clang 15 or newer: \
         apt-get install clang-19 and build it again"
    )]
    NotBuiltIn,
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] switchback_datapath::Error),
    /// The kernel refused.
    #[error(
        "the kernel doesn't load the datapath ({0}); root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and Linux 6.1 are needed\n{1}"
    )]
    Load(String, String),
    /// The process may not.
    #[error(
        "{0} needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN: run it with sudo, in a container with \
         `docker run --privileged`; `switchback doctor --datapath xdp` says what else is missing"
    )]
    Privilege(&'static str),
    /// libbpf refused.
    #[error("libbpf: {0}")]
    Libbpf(String),
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// A system call failed while the datapath was made.
    #[error("{0}")]
    Failed(String),
    /// The interface can't be used so.
    #[error("{0}")]
    Interface(String),
}

impl Error {
    /// Of a system call, which was for this.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Privilege(what),
            _ => Error::System(what, error),
        }
    }
}

impl From<libbpf_rs::Error> for Error {
    fn from(error: libbpf_rs::Error) -> Error {
        Error::Libbpf(error.to_string())
    }
}

/// `struct replay` of xdp.bpf.c.
#[repr(C)]
#[derive(FromBytes, Immutable, IntoBytes)]
struct Replay {
    now_ms: u64,
    route: u64,
    random: u32,
    from: Address,
    reserved: [u16; 5],
}

const REPLAY_BYTES: usize = size_of::<Replay>();
const _: () = assert!(REPLAY_BYTES == 48, "as in xdp.bpf.c");
const DROPPED: u32 = 0x100;
/// A program's run that this many signals interrupt, one after the other, has failed.
const INTERRUPTIONS_MAX: u32 = 1000;
/// How long a packet may hold a lock: microseconds, unless its CPU stands still.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// The pipeline in the kernel, and its tables.
#[derive(Debug)]
pub struct XdpDatapath {
    loaded: Arc<Loaded>,
    calls: Arc<dyn Calls>,
    failure: OnceLock<String>,
    shared: MappedMemory,
    slots: MappedMemory,
    chunks: Chunks,
    reports: Mutex<Reports>,
    tables: Mutex<()>,
    config: Config,
    endpoint: Address,
}

/// Whether the datapath may run on an architecture, named as by [`std::env::consts::ARCH`].
pub fn architecture(name: &str) -> Result<(), Error> {
    match name {
        "x86_64" => Ok(()),
        other => Err(Error::Architecture(other.to_owned())),
    }
}

/// Whether this process may load programs; if not, why.
pub fn permission() -> Result<(), Error> {
    architecture(std::env::consts::ARCH)?;
    if !is_built_in() {
        return Err(Error::NotBuiltIn);
    }
    let small = switchback_datapath::ClassConfig { value_bytes: 8, slots: 1 };
    let config = Config {
        classes: vec![small],
        lanes: 1,
        partitions: 1,
        sketch_width: 1,
        reports: 1,
        ..Config::default()
    };
    XdpDatapath::new(&config, Address::default()).map(|_| ())
}

impl XdpDatapath {
    /// Loads it. It serves nothing yet: inject SET_EPOCH, set a map and nodes, attach. Packets to
    /// `endpoint` are its own.
    pub fn new(config: &Config, endpoint: Address) -> Result<XdpDatapath, Error> {
        XdpDatapath::load(Object::Switch, config, endpoint)
    }

    fn load(object: Object, config: &Config, endpoint: Address) -> Result<XdpDatapath, Error> {
        let loaded = Arc::new(Loaded::new(object, config, endpoint)?);
        let shared = MappedMemory::new(loaded.map(".data.shared").as_fd(), sys::PAGE)
            .map_err(Error::system("mapping the datapath's registers"))?;
        let chunks = Chunks::new(config);
        let slots = MappedMemory::new(loaded.map("chunks").as_fd(), chunks.length())
            .map_err(Error::system("mapping the datapath's slots"))?;
        let reports = Mutex::new(Reports::new(&loaded)?);
        let datapath = XdpDatapath {
            calls: Arc::clone(&loaded) as Arc<dyn Calls>,
            loaded,
            failure: OnceLock::new(),
            shared,
            slots,
            chunks,
            reports,
            tables: Mutex::new(()),
            config: config.clone(),
            endpoint,
        };
        for index in 0..config.partitions {
            datapath.update("routes", &index.to_ne_bytes(), RouteBucket::NONE.as_bytes());
        }
        // Not all empty tables are zeros.
        datapath.clear();
        datapath.take_place(&Place::sole());
        datapath.set_lanes(config.lanes);
        datapath.set_counting(config.sampling, config.threshold, u32::MAX);
        datapath.set_clock();
        match datapath.failure() {
            Some(failure) => Err(Error::Failed(failure.to_owned())),
            None => Ok(datapath),
        }
    }

    fn fail(&self, what: &str, error: &dyn fmt::Display) {
        // In memory that is shared with the kernel, so that this can't fail: epoch 0 refuses every
        // packet.
        self.shared.set_u32(place("registers.epoch"), 0);
        let failure = self.failure.get_or_init(|| format!("the kernel doesn't {what}: {error}"));
        tracing::error!("{failure}; the datapath serves nothing any more");
    }

    /// A system call's result; `None` if it failed, which is noted, or if one has failed before.
    fn done<T>(&self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<T> {
        if self.failure.get().is_some() {
            return None;
        }
        call().map_err(|error| self.fail(what, &error)).ok()
    }

    /// Where clients send packets.
    pub fn endpoint(&self) -> Address {
        self.endpoint
    }

    /// Tells the kernel's monotonic clock what time it is. To be repeated, since the system's clock
    /// may be set.
    pub fn set_clock(&self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let monotonic = Duration::new(monotonic.tv_sec as u64, monotonic.tv_nsec as u32);
        let offset = unix.as_millis().saturating_sub(monotonic.as_millis()) as u64;
        self.shared.set_u64(place("size.registers"), offset);
    }

    fn run(&self, program: &str, packet: &[u8], out: &mut [u8]) -> io::Result<sys::Ran> {
        let mut ran = self.calls.run(program, packet, out);
        // By a signal.
        for _ in 0..INTERRUPTIONS_MAX {
            match &ran {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    ran = self.calls.run(program, packet, out)
                }
                _ => break,
            }
        }
        ran
    }

    /// Runs a packet that came `from` an address through the pipeline, as
    /// [`switchback_datapath::Datapath::process`] does; with 0 as `now_ms` the kernel looks at its
    /// clock, with 0 as `random` it draws.
    pub fn process(&self, packet: &mut Packet, from: Address, now_ms: u64, random: u32) -> Verdict {
        let mut bytes = [0; REPLAY_BYTES + PACKET_BYTES_MAX];
        let length = REPLAY_BYTES + packet.bytes().len();
        let replay = Replay { now_ms, route: 0, random, from, reserved: [0; 5] };
        bytes[..REPLAY_BYTES].copy_from_slice(replay.as_bytes());
        bytes[REPLAY_BYTES..length].copy_from_slice(packet.bytes());
        let mut out = [0; REPLAY_BYTES + PACKET_BYTES_MAX];
        let ran = match self.run("switchback_replay", &bytes[..length], &mut out) {
            Ok(ran) => ran,
            Err(error) => {
                tracing::error!(%error, "the kernel doesn't run the datapath");
                return Verdict::Drop(DropReason::None);
            }
        };
        let taken = packet.copy_from(&out[REPLAY_BYTES..ran.length.max(REPLAY_BYTES)]);
        debug_assert!(taken.is_some());
        let (replay, _) = Replay::read_from_prefix(&out).expect("longer than a replay");
        self.verdict_of(ran.value, replay.route)
    }

    fn verdict_of(&self, value: u32, route: u64) -> Verdict {
        match value {
            1 => Verdict::Reply,
            2 => Verdict::Forward(Replicas::of_route(route, false)),
            3 => Verdict::Forward(Replicas::of_route(route, true)),
            4 => Verdict::ToSwitch(Neighbour::Before),
            5 => Verdict::ToSwitch(Neighbour::After),
            6 => Verdict::Taken,
            dropped if dropped & DROPPED != 0 => {
                Verdict::Drop(DropReason::from_number((dropped & 0xff) as u8))
            }
            _ => Verdict::Pass,
        }
    }

    fn place(&self) -> Place {
        let bytes = self.shared.get(place("registers.place"), Place::BYTES);
        Place::decode(bytes.first_chunk().expect("as many as were asked for"))
    }

    fn take_place(&self, new: &Place) {
        self.shared.set(place("registers.place"), &new.encode());
    }

    fn tables(&self) -> MutexGuard<'_, ()> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Into an array, whose index exists, or a table with room.
    fn update(&self, map: &str, key: &[u8], value: &[u8]) {
        let _noted =
            self.done(&format!("take an entry of {map}"), || self.calls.update(map, key, value));
    }

    /// `struct lookup_change` of xdp.bpf.c, and what the program says to it.
    fn change_lookup(&self, hash: &KeyHash, location: u32, inserts: bool) -> u32 {
        let mut change = [0; 24];
        change[..16].copy_from_slice(&hash_key(hash));
        change[16..20].copy_from_slice(&location.to_ne_bytes());
        change[20..].copy_from_slice(&u32::from(inserts).to_ne_bytes());
        let _one_at_a_time = self.tables();
        let run = || self.run("switchback_lookup", &change, &mut [0; 24]);
        self.done("change the lookup table", run).map_or(u32::MAX, |ran| ran.value)
    }

    /// Takes the address of a receiver whose next hop the kernel doesn't know; packets to it are
    /// lost until it does.
    pub fn next_unreached(&self) -> Option<Address> {
        self.done("name receivers without a next hop", || self.reports().next_unreached()).flatten()
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far, summed over the CPUs.
    pub fn statistics(&self) -> Statistics {
        let mut sums = [0u64; STATISTIC_COUNT];
        let look = || self.calls.lookup_percpu("statistics", &0u32.to_ne_bytes());
        for numbers in self.done("say what it counted", look).unwrap_or_default() {
            for (sum, number) in sums.iter_mut().zip(numbers.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*number));
            }
        }
        let mut counted = Statistics::from_numbers(&sums);
        // Not dropped, but passed to the kernel, which gives it to the process.
        counted.drops[DropReason::Room as usize] = 0;
        counted
    }

    /// A frame as the attached program makes it: the action, and what came out.
    pub fn frame(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0; 2048];
        let ran = sys::test_run(self.loaded.program("switchback"), frame, &mut out)?;
        out.truncate(ran.length);
        Ok((ran.value, out))
    }
}

impl Control for XdpDatapath {
    fn config(&self) -> &Config {
        &self.config
    }

    fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn misses(&self) -> u64 {
        let statistics = self.statistics();
        statistics.read_misses + statistics.write_misses
    }

    fn requests(&self) -> u64 {
        let statistics = self.statistics();
        statistics.read + statistics.write + statistics.delete
    }

    fn inject(&self, packet: &mut Packet) -> Verdict {
        let mut out = [0; PACKET_BYTES_MAX];
        let run = || self.run("switchback_control", packet.bytes(), &mut out);
        let Some(ran) = self.done("run a control packet", run) else {
            return Verdict::Drop(DropReason::None);
        };
        let taken = packet.copy_from(&out[..ran.length]);
        debug_assert!(taken.is_some());
        self.verdict_of(ran.value, u64::MAX)
    }

    fn lookup_insert(&self, hash: &KeyHash, class: u8, slot: u32) -> Result<(), TableError> {
        let exists =
            self.config.classes.get(usize::from(class)).is_some_and(|class| slot < class.slots);
        let location = location(class, slot).filter(|_| exists).ok_or(TableError::Slot)?;
        match self.change_lookup(hash, location, true) {
            0 => Ok(()),
            1 => Err(TableError::Duplicate),
            _ => Err(TableError::Full),
        }
    }

    fn lookup_remove(&self, hash: &KeyHash, class: u8, slot: u32) -> bool {
        location(class, slot).is_some_and(|location| self.change_lookup(hash, location, false) == 1)
    }

    fn set_map(&self, map: &Map) -> Result<(), TableError> {
        let Routes { buckets, ranges } = Routes::new(map, &self.config)?;
        let _one_at_a_time = self.tables();
        for (index, range) in (0u32..).zip(&ranges) {
            self.update("ranges", &index.to_ne_bytes(), range.as_bytes());
        }
        for (index, bucket) in (0u32..).zip(&buckets) {
            self.update("routes", &index.to_ne_bytes(), bucket.as_bytes());
        }
        Ok(())
    }

    fn set_node(&self, node: u16, address: Address) {
        assert!(node < self.config.nodes, "node {node} of {}", self.config.nodes);
        let _one_at_a_time = self.tables();
        let index = u32::from(node).to_ne_bytes();
        let new = address.as_bytes();
        let look = |map, key: &[u8]| {
            self.done("say where a node is", || self.calls.lookup(map, key)).flatten()
        };
        let old = look("node_addresses", &index).filter(|old| *old != new);
        if let Some(old) = old.filter(|old| look("nodes", old).is_some_and(|owner| owner == index))
        {
            let _noted = self.done("forget a node's address", || self.calls.delete("nodes", &old));
        }
        self.update("node_addresses", &index, new);
        self.update("nodes", new, &index);
    }

    fn set_place(&self, place: &Place) -> Result<(), TableError> {
        self.config.check_place(place)?;
        let _one_at_a_time = self.tables();
        self.take_place(place);
        Ok(())
    }

    fn neighbour(&self, neighbour: Neighbour) -> Option<Address> {
        let Place { before, after, .. } = self.place();
        match neighbour {
            Neighbour::Before => before,
            Neighbour::After => after,
        }
    }

    fn set_lanes(&self, granted: u32) {
        self.shared.set_u32(place("registers.lanes"), granted.min(self.config.lanes));
    }

    fn set_counting(&self, sampling: f64, threshold: u32, offers: u32) -> u32 {
        self.shared.set_u64(place("registers.sampling"), Config::sampled(sampling));
        self.shared.set_u32(place("registers.threshold"), threshold);
        self.shared.u32_at(place("registers.offers")).swap(offers, Ordering::Relaxed)
    }

    fn next_report(&self, packet: &mut Packet) -> bool {
        self.done("give its reports", || self.reports().next(packet)).unwrap_or(false)
    }

    fn sequence_used(&self) -> u32 {
        self.shared.get_u32(place("registers.sequence_used"))
    }

    fn heard(&self) -> Heard {
        let at = |i: usize| self.shared.get_u32(place("registers.heard") + i * size_of::<u32>());
        Heard::from_counts(std::array::from_fn(at))
    }

    fn clear(&self) {
        let _one_at_a_time = self.tables();
        self.shared.set_u32(place("registers.epoch"), 0);
        const XDP_PASS: u32 = 2;
        let began = Instant::now();
        while let Some(ran) =
            self.done("clear the datapath", || self.run("switchback_clear", &[0; 64], &mut [0; 64]))
        {
            if ran.value == XDP_PASS {
                break;
            }
            // A packet holds a lock; it is soon done.
            if began.elapsed() > CLEAR_LIMIT {
                self.fail(
                    "clear the datapath",
                    &format_args!("a lock was held for {} s", CLEAR_LIMIT.as_secs()),
                );
            }
            std::thread::yield_now();
        }
        let mut packet = Packet::new();
        while self.next_report(&mut packet) {}
    }
}

fn hash_key(hash: &KeyHash) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&hash.position().to_ne_bytes());
    key[8..].copy_from_slice(&hash.low().to_ne_bytes());
    key
}

#[cfg(test)]
mod tests;
