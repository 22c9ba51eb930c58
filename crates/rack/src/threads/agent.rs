//! The agent's thread.

use super::{Stop, poll, spawn, wait};
use mio::Events;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::switch::{Agent, AgentStatistics, Target, carry_out};
use switchback_net::{Clock, PeerPort, until};

/// What others may know of a running agent.
#[derive(Clone, Debug, Default)]
pub struct AgentHandle(Arc<Mutex<AgentStatistics>>);

impl AgentHandle {
    /// Its counters.
    pub fn statistics(&self) -> AgentStatistics {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agent with its datapath.
pub struct AgentThread<T> {
    /// The state machine.
    pub agent: Agent,
    /// The datapath it drives.
    pub target: T,
    /// Its end of the control channel.
    pub port: PeerPort,
    /// The clock.
    pub clock: Clock,
}

impl<T: Target + Send + 'static> AgentThread<T> {
    /// Starts the thread; it ends when `stop` is asked, or when the datapath has failed.
    pub fn start(self, stop: Stop) -> io::Result<(AgentHandle, JoinHandle<()>)> {
        let handle = AgentHandle::default();
        let shared = handle.clone();
        let (poll, waker) = poll()?;
        self.port.register(&waker);
        let joined = spawn("agent".into(), move || self.run(poll, &stop, &shared))?;
        Ok((handle, joined))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop, shared: &AgentHandle) {
        let mut events = Events::with_capacity(8);
        while !stop.is_asked() {
            let timeout = until(self.clock.now(), self.agent.poll_timeout())
                .unwrap_or(Duration::from_millis(20));
            wait(&mut poll, &mut events, Some(timeout.min(Duration::from_millis(20))));
            let now = self.clock.now();
            while let Some(command) = self.port.receive() {
                self.agent.handle_message(now, command);
                carry_out(&mut self.agent, now, &mut self.target);
            }
            if now.is_due(self.agent.poll_timeout()) {
                self.agent.handle_timeout(now);
            } else {
                self.agent.handle_readable(now);
            }
            carry_out(&mut self.agent, now, &mut self.target);
            if let Some(failure) = self.target.failure() {
                // Told of nothing more, the controller takes the switch for dead, and another one
                // takes over.
                tracing::error!("the switch ends: {failure}");
                return;
            }
            while let Some(report) = self.agent.poll_message() {
                self.port.send(report);
            }
            *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = self.agent.statistics();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::OnceLock;
    use std::sync::mpsc::{Sender, channel};
    use switchback_core::control::{Envelope, Location, Message, Peer, SwitchReport};
    use switchback_core::switch::{AgentConfig, Counting};
    use switchback_net::{Carrier, Mailbox};
    use switchback_wire::{Address, KeyHash, Map, Packet, Place};

    /// A datapath without any room, until it fails.
    struct Fragile(Arc<OnceLock<&'static str>>);

    impl Target for Fragile {
        fn inject(&mut self, _: &mut Packet) -> bool {
            false
        }
        fn lookup_insert(&mut self, _: &KeyHash, _: Location) -> bool {
            false
        }
        fn lookup_remove(&mut self, _: &KeyHash, _: Location) {}
        fn clear(&mut self) {}
        fn set_map(&mut self, _: &Map) {}
        fn set_node(&mut self, _: u16, _: Address) {}
        fn set_place(&mut self, _: &Place) {}
        fn set_lanes(&mut self, _: u32) {}
        fn set_counting(&mut self, _: Counting) -> u32 {
            0
        }
        fn next_report(&mut self, _: &mut Packet) -> bool {
            false
        }
        fn requests(&self) -> u64 {
            0
        }

        fn sequence_used(&self) -> u32 {
            0
        }
        fn misses(&self) -> u64 {
            0
        }
        fn failure(&self) -> Option<&str> {
            self.0.get().copied()
        }
        fn classes(&self) -> Vec<(u32, u32)> {
            Vec::new()
        }
        fn sketch_width(&self) -> u32 {
            0
        }
    }

    /// To the test.
    struct Heard(Mutex<Sender<Message>>);

    impl Carrier for Heard {
        fn carry(&self, envelope: Envelope) {
            let _the_test_is_over = self.0.lock().unwrap().send(envelope.message);
        }
    }

    #[test]
    fn an_agent_whose_datapath_fails_says_no_more_and_ends() {
        let (sender, said) = channel();
        let port = PeerPort::new(
            Peer::Switch(0),
            Arc::new(Heard(Mutex::new(sender))),
            Arc::new(Mailbox::new(16)),
        );
        let (clock, failure) = (Clock::default(), Arc::new(OnceLock::new()));
        let agent = Agent::new(1, Address::default(), AgentConfig::default(), clock.now());
        let thread = AgentThread { agent, target: Fragile(Arc::clone(&failure)), port, clock };
        let (_, joined) = thread.start(Stop::default()).unwrap();
        let hello = said.recv().unwrap();
        assert!(matches!(hello, Message::FromSwitch(SwitchReport::Hello { .. })), "{hello:?}");
        failure.set("a system call failed").unwrap();
        // Though it was not asked to stop.
        joined.join().unwrap();
    }
}
