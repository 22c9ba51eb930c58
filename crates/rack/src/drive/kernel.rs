//! What a switch in the kernel leaves to user space: packets that an interface couldn't answer in place, and receivers whose next hop
//! isn't known.

use super::{SOCKET, Stop, SwitchHandle, carry_out, poll, spawn, wait};
use mio::Events;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_net::{NodeAddresses, UdpLink};
use switchback_wire::{Address, Packet};
use switchback_xdp::XdpDatapath;

/// Packets taken before answers are sent.
const BURST: usize = 256;
/// How often the kernel is told what time it is: the system's clock may be set at any time.
const CLOCK: Duration = Duration::from_secs(1);

/// The thread that does it.
pub struct KernelThread {
    /// The pipeline.
    pub datapath: Arc<XdpDatapath>,
    /// A socket at the switch's address.
    pub link: UdpLink,
    /// Where it forwards to.
    pub nodes: NodeAddresses,
}

impl KernelThread {
    /// Starts the thread; it ends when `stop` is asked.
    pub fn start(mut self, stop: Stop) -> io::Result<(SwitchHandle, JoinHandle<()>)> {
        let handle = SwitchHandle::default();
        let shared = handle.clone();
        let (poll, _waker) = poll()?;
        self.link.register(poll.registry(), SOCKET)?;
        let joined = spawn("switch".into(), move || self.run(poll, &stop, &shared))?;
        Ok((handle, joined))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop, handle: &SwitchHandle) {
        let mut events = Events::with_capacity(8);
        let mut packet = Packet::new();
        let mut clock_set = Instant::now();
        let mut more = false;
        while !stop.is_asked() {
            let timeout = if more { Duration::ZERO } else { Duration::from_millis(5) };
            wait(&mut poll, &mut events, Some(timeout));
            more = true;
            for _ in 0..BURST {
                let Some(from) = self.link.receive(&mut packet) else {
                    more = false;
                    break;
                };
                handle.add(1);
                self.pass(from, &mut packet);
            }
            self.resolve(&mut packet);
            self.link.flush();
            if clock_set.elapsed() >= CLOCK {
                self.datapath.set_clock();
                clock_set = Instant::now();
            }
        }
    }

    fn pass(&mut self, from: Address, packet: &mut Packet) {
        let verdict = self.datapath.process(packet, from, 0, 0);
        carry_out(verdict, from, packet, &self.nodes, |to| self.link.send(to, packet));
    }

    /// An empty datagram makes the kernel ask for the next hop of its receiver, who takes no notice of it.
    fn resolve(&mut self, packet: &mut Packet) {
        while let Some(to) = self.datapath.next_unreached() {
            packet.set_length(0);
            self.link.send(to, packet);
        }
    }
}
