//! The agent's thread.

use super::{Stop, poll, spawn, wait};
use mio::Events;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::control::Message;
use switchback_core::switch::{Agent, AgentStatistics, Target};
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
    /// Starts the thread; it ends when `stop` is asked.
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
            let timeout = until(self.clock.now(), self.agent.poll_timeout()).unwrap_or(Duration::from_millis(20));
            wait(&mut poll, &mut events, Some(timeout.min(Duration::from_millis(20))));
            let now = self.clock.now();
            while let Some(message) = self.port.receive() {
                if let Message::ToSwitch(command) = message {
                    self.agent.handle_command(now, command, &mut self.target);
                }
            }
            if now.monotonic_us >= self.agent.poll_timeout() {
                self.agent.handle_timeout(now, &mut self.target);
            } else {
                self.agent.take_reports(&mut self.target);
            }
            while let Some(report) = self.agent.poll_report() {
                self.port.send(Message::FromSwitch(report));
            }
            *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = self.agent.statistics();
        }
    }
}
