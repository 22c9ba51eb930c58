//! The pipeline in user space, called one packet after the other.

use crate::cases::{Case, Outcome, Size};
use crate::matrix::{FIRST_REQUEST, LANES, PACKETS, Step, Subject, Tables};
use crate::pinned::{Took, on_cpus, timed};
use crate::requests::{REQUESTS, Request, requests};
use crate::roles::Role;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use switchback_datapath::{ClassConfig, Config, Control, Datapath, Shard, Verdict};
use switchback_wire::{Address, Header, Packet};

pub(crate) const CLIENT: Address = Address::in_memory(1, 0);
/// As many packets as a driver takes from a socket at once.
const BATCH: usize = 32;

/// A filled table and the requests for it.
pub(crate) struct Native {
    role: Role,
    datapath: Arc<Datapath>,
    size: Size,
    hits: Vec<Request>,
    misses: Vec<Request>,
    /// Of each CPU: requests that it has made.
    made: Vec<AtomicUsize>,
}

impl Tables for Datapath {
    fn control(&self) -> &impl Control {
        self
    }

    fn process(&self, packet: &mut Packet) -> Verdict {
        self.process(packet, CLIENT, 1, 1, Shard::default())
    }
}

/// The tables of one size.
pub(crate) fn config(size: Size, cpus: usize) -> Config {
    let classes = vec![ClassConfig { value_bytes: size.value_bytes, slots: size.slots }];
    Config { classes, lanes: LANES * cpus as u32, ..Config::default() }
}

impl Native {
    /// The usual one.
    pub(crate) fn new(size: Size, cpus: usize) -> anyhow::Result<Native> {
        Native::of(Role::FarReach, size, cpus)
    }

    /// That of a switch with this role.
    pub(crate) fn of(role: Role, size: Size, cpus: usize) -> anyhow::Result<Native> {
        let datapath = Datapath::new(&role.config(size, cpus))?;
        role.fill(&datapath, size)?;
        let made = (0..cpus).map(|cpu| AtomicUsize::new(cpu * REQUESTS / cpus)).collect();
        let (hits, misses) =
            (requests(size.slots, Outcome::Hit), requests(size.slots, Outcome::Miss));
        Ok(Native { role, datapath: Arc::new(datapath), size, hits, misses, made })
    }

    pub(crate) fn datapath(&self) -> &Arc<Datapath> {
        &self.datapath
    }

    fn stretch(&self, step: Step, case: &Case, cpu: usize, batch: &mut [Packet]) {
        let requests = if case.outcome == Outcome::Hit { &self.hits } else { &self.misses };
        let (header, value_bytes) = case.request(self.size);
        let (_, hop) = self.role.sender(case.operation);
        let value = vec![7; value_bytes];
        let first = self.made[cpu].fetch_add(PACKETS, Ordering::Relaxed);
        for chunk in (first..first + PACKETS).step_by(BATCH) {
            for (at, packet) in (chunk..).zip(&mut *batch) {
                let request = &requests[at % REQUESTS];
                let lane = cpu as u32 * LANES + at as u32 % LANES;
                let header = Header {
                    key_hash: request.hash,
                    request: FIRST_REQUEST + at as u64,
                    lane,
                    seq: case.seq(at),
                    hop,
                    ..header
                };
                packet.fill(&header, &value, &request.key);
            }
            if step == Step::Packet {
                for (at, packet) in (chunk..).zip(&mut *batch) {
                    let random = requests[at % REQUESTS].random;
                    let _counted = black_box(self.role.process(
                        &self.datapath,
                        case.operation,
                        packet,
                        random,
                        Shard::new(cpu as u8),
                    ));
                }
            }
            black_box(&*batch);
        }
    }
}

impl Subject for Native {
    fn round(&mut self, step: Step, case: &Case) -> anyhow::Result<Took> {
        let this = &*self;
        on_cpus(case.cpus, PACKETS, |cpu| {
            let mut batch = vec![Packet::new(); BATCH];
            Ok(timed(|| this.stretch(step, case, cpu, &mut batch)))
        })
    }

    fn counted(&self, case: &Case) -> u64 {
        self.role.counted(case, &self.datapath.statistics())
    }
}
