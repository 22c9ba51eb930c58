//! The data plane of a switch in user space: a socket around the datapath.

use super::{PacketLog, Stop, carry_out, socket_poll, spawn, wait};
use mio::Events;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_datapath::{BATCH, Datapath, Item, NodeAddresses, Shard};
use switchback_net::{Dice, UdpLink, unix_ms};

/// Packets taken before answers are sent.
const BURST: usize = 256;

/// What others may know of a running switch.
#[derive(Clone, Debug, Default)]
pub struct SwitchHandle {
    packets: Arc<AtomicU64>,
}

impl SwitchHandle {
    /// Starts the thread that takes them.
    pub(super) fn spawn(
        run: impl FnOnce(&SwitchHandle) + Send + 'static,
    ) -> io::Result<(SwitchHandle, JoinHandle<()>)> {
        let handle = SwitchHandle::default();
        let shared = handle.clone();
        let joined = spawn("switch".into(), move || run(&shared))?;
        Ok((handle, joined))
    }

    /// Packets taken from the socket.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, packets: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }
}

/// A switch's data plane.
pub struct SwitchThread {
    /// The pipeline.
    pub datapath: Arc<Datapath>,
    /// Its socket.
    pub link: UdpLink,
    /// Where it forwards to.
    pub nodes: NodeAddresses,
    /// Where its thread counts.
    pub shard: Shard,
    /// Where its packets are written, in and out.
    pub packet_log: Option<PacketLog>,
}

impl SwitchThread {
    /// Starts the thread; it ends when `stop` is asked.
    pub fn start(mut self, stop: Stop) -> io::Result<(SwitchHandle, JoinHandle<()>)> {
        let poll = socket_poll(&mut self.link)?;
        SwitchHandle::spawn(move |handle| self.run(poll, &stop, handle))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop, handle: &SwitchHandle) {
        let mut events = Events::with_capacity(8);
        let mut batch = vec![Item::default(); BATCH];
        let mut dice = Dice::new(0xd1ce);
        let mut more = false;
        while !stop.is_asked() {
            let timeout = if more { Duration::ZERO } else { Duration::from_millis(20) };
            if !more {
                self.flush_log();
            }
            wait(&mut poll, &mut events, Some(timeout));
            for _ in 0..BURST / BATCH {
                let count = self.receive(&mut batch, &mut dice);
                handle.add(count as u64);
                self.datapath.process_batch(&mut batch[..count], unix_ms(), self.shard);
                for item in &batch[..count] {
                    self.pass_on(item);
                }
                more = count == BATCH;
                if !more {
                    break;
                }
            }
            self.link.flush();
        }
        self.flush_log();
    }

    fn flush_log(&mut self) {
        if let Some(log) = &mut self.packet_log {
            log.flush();
        }
    }

    /// Fills the batch as far as there are packets.
    fn receive(&mut self, batch: &mut [Item], dice: &mut Dice) -> usize {
        for (count, item) in batch.iter_mut().enumerate() {
            let Some(from) = self.link.receive(&mut item.packet) else { return count };
            if let Some(log) = &mut self.packet_log {
                log.write(from, self.link.address().into(), &item.packet);
            }
            (item.from, item.random) = (from, dice.roll());
        }
        batch.len()
    }

    fn pass_on(&mut self, item: &Item) {
        carry_out(&*self.datapath, item.verdict, item.from, &item.packet, &self.nodes, |to| {
            if let Some(log) = &mut self.packet_log {
                log.write(self.link.address().into(), to, &item.packet);
            }
            self.link.send(to, &item.packet);
        });
    }
}
