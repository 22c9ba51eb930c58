//! What a switch in the kernel leaves to user space: packets that an interface couldn't answer in
//! place, and receivers whose next hop isn't known. And a look now and then whether it is still
//! there.

use super::{Stop, SwitchHandle, carry_out, socket_poll, wait};
use mio::Events;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_datapath::NodeAddresses;
use switchback_net::UdpLink;
use switchback_wire::{Address, Packet};
use switchback_xdp::{Watch, XdpDatapath};

/// Packets taken, or next hops asked for, before answers are sent.
const BURST: usize = 256;
/// How often the kernel is told what time it is, since the system's clock may be set at any time,
/// and the interface is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread that does it.
pub struct KernelThread {
    /// The pipeline.
    pub datapath: Arc<XdpDatapath>,
    /// A socket at the switch's address.
    pub link: UdpLink,
    /// Where it forwards to.
    pub nodes: NodeAddresses,
    /// Whether the interface still has it.
    pub watch: Watch,
}

impl KernelThread {
    /// Starts the thread; it ends when `stop` is asked.
    pub fn start(mut self, stop: Stop) -> io::Result<(SwitchHandle, JoinHandle<()>)> {
        let poll = socket_poll(&mut self.link)?;
        SwitchHandle::spawn(move |handle| self.run(poll, &stop, handle))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop, handle: &SwitchHandle) {
        let mut events = Events::with_capacity(8);
        let mut packet = Packet::new();
        let mut looked = Instant::now();
        let mut is_attached = true;
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
            if looked.elapsed() >= PERIOD {
                self.datapath.set_clock();
                is_attached = self.look(is_attached, stop);
                looked = Instant::now();
            }
        }
    }

    /// Whether it is still attached. Once it isn't, the kernel gives every packet to this process,
    /// which answers from the same tables.
    fn look(&self, was_attached: bool, stop: &Stop) -> bool {
        let is_attached = self.watch.is_attached();
        if was_attached && !is_attached && !stop.is_asked() {
            tracing::error!(
                "the datapath was taken off its interface, or the interface is gone: this process \
                 answers in its place, several times slower, until the switch is started again"
            );
        }
        is_attached
    }

    fn pass(&mut self, from: Address, packet: &mut Packet) {
        let verdict = self.datapath.process(packet, from, 0, 0);
        carry_out(&*self.datapath, verdict, from, packet, &self.nodes, |to| {
            self.link.send(to, packet)
        });
    }

    /// An empty datagram makes the kernel ask for the next hop of its receiver, who takes no notice
    /// of it.
    fn resolve(&mut self, packet: &mut Packet) {
        for _ in 0..BURST {
            let Some(to) = self.datapath.next_unreached() else { return };
            packet.set_length(0);
            self.link.send(to, packet);
        }
    }
}
