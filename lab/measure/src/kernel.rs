//! The pipeline in the kernel: test runs that repeat, and live frames on a veth pair.

use crate::cases::{Case, KEY_BYTES, Outcome, Size};
use crate::matrix::{self, NODE, PACKETS, Subject, Tables, fill};
use crate::native::config;
use crate::pinned::{Took, cpu_time, cpus, on_cpus, pin};
use crate::requests::{Request, requests};
use anyhow::{Context as _, ensure};
use std::net::UdpSocket;
use std::time::Instant;
use switchback_datapath::{Control, Verdict};
use switchback_wire::{Address, Packet};
use switchback_xdp::Segment;
use switchback_xdp::measure::{Meter, Program, Step};

/// A filled table in the kernel and the requests for it.
pub(crate) struct Kernel {
    meter: Meter,
    size: Size,
    hits: Vec<Request>,
    misses: Vec<Request>,
    /// What the kernel's requests are now.
    current: Option<(Case, bool)>,
}

impl Tables for Meter {
    fn control(&self) -> &impl Control {
        &**self
    }

    fn process(&self, packet: &mut Packet) -> Verdict {
        (**self).process(packet, Address::in_memory(1, 0), 1, 1)
    }
}

impl Kernel {
    pub(crate) fn new(size: Size, cpus: usize) -> anyhow::Result<Kernel> {
        let config = config(size, cpus);
        let meter = Meter::new(&config)?;
        fill(&meter, size)?;
        let (hits, misses) =
            (requests(size.slots, Outcome::Hit), requests(size.slots, Outcome::Miss));
        Ok(Kernel { meter, size, hits, misses, current: None })
    }

    /// Makes the kernel's requests those of a case. `sends`: a frame's verdict is carried out, too.
    pub(crate) fn prepare(&mut self, case: &Case, sends: bool) -> anyhow::Result<()> {
        if self.current == Some((*case, sends)) {
            return Ok(());
        }
        if self.current.is_none_or(|(current, _)| current.outcome != case.outcome) {
            let requests = if case.outcome == Outcome::Hit { &self.hits } else { &self.misses };
            self.meter.set_keys(requests.iter().map(|request| (request.hash, request.key)))?;
        }
        let (header, value_bytes) = case.request(self.size);
        let packet = Packet::build(header, &vec![7; value_bytes], &[0; KEY_BYTES]);
        self.meter.set_request(&packet, sends)?;
        self.current = Some((*case, sends));
        Ok(())
    }

    fn repeat(&self, step: Step, cpus: usize, interface: u32) -> anyhow::Result<Took> {
        on_cpus(cpus, PACKETS, |_| {
            let ran = self
                .meter
                .run(step, interface, PACKETS as u32)
                .context("running the datapath in the kernel")?;
            ensure!(ran.0 != 0, "the kernel's requests are not what the measurement expects");
            Ok(ran.1 * PACKETS as u32)
        })
    }

    /// As a round, of frames that come in on the segment and whose verdicts are carried out up to
    /// the last: routes are looked up.
    pub(crate) fn routed(&mut self, case: &Case, segment: &Segment) -> anyhow::Result<Took> {
        self.prepare(case, true)?;
        let attached =
            segment.on_switch(|| self.meter.put(Program::Switch, Segment::SWITCH_INTERFACE))?;
        // The node's neighbour is known once a packet was sent to it.
        segment.on_switch(|| {
            let socket = UdpSocket::bind((Segment::SWITCH, 0)).context("binding a socket")?;
            socket.send_to(b"-", NODE).context("asking for the node's neighbour")
        })?;
        segment.on_switch(|| self.repeat(Step::Packet, case.cpus, attached.index))
    }

    /// Frames a second that one CPU makes, sends to a program on a veth, and gets back: by the
    /// clock on the wall, and by that of the CPU.
    pub(crate) fn live(
        &mut self,
        (program, case): (Program, Case),
        segment: &Segment,
        frames: u32,
    ) -> anyhow::Result<[f64; 2]> {
        self.prepare(&case, true)?;
        let _switch = segment.on_switch(|| self.meter.put(program, Segment::SWITCH_INTERFACE))?;
        let sink = segment.on_hosts(|| self.meter.put(Program::Sink, Segment::HOSTS_INTERFACE))?;
        self.meter.send_to(&sink)?;
        segment.on_hosts(|| {
            pin(cpus()[0])?;
            let before = self.meter.returned();
            let (start, cpu) = (Instant::now(), cpu_time());
            self.meter.generate(frames).context("sending live frames")?;
            let took = [start.elapsed(), cpu_time() - cpu];
            Ok(took.map(|took| (self.meter.returned() - before) as f64 / took.as_secs_f64()))
        })
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl Subject for Kernel {
    fn round(&mut self, step: matrix::Step, case: &Case) -> anyhow::Result<Took> {
        self.prepare(case, case.outcome == Outcome::Hit)?;
        let step = if step == matrix::Step::Build { Step::Build } else { Step::Packet };
        self.repeat(step, case.cpus, 0)
    }

    fn counted(&self, case: &Case) -> u64 {
        case.counted(&self.meter.statistics())
    }
}
