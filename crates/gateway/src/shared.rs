//! What the workers of a gateway share.

use crate::config::GatewayConfig;
use crate::latency::Latency;
use crate::monitors::Monitors;
use crate::programs::Sources;
use crate::slowlog::SlowLog;
use crate::statistics::GatewayStatistics;
use crate::tls::Tls;
use mio::Waker;
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use switchback_core::Now;
use switchback_heat::Heat;

/// As in Redis, until CONFIG SET says otherwise.
const KEEP_ALIVE_S: u64 = 300;

/// A connection, as CLIENT LIST shows it.
#[derive(Clone, Debug)]
pub(crate) struct ClientInfo {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) since: Instant,
    pub(crate) name: String,
    pub(crate) library: [String; 2],
    pub(crate) resp3: bool,
    /// Who has it.
    pub(crate) worker: usize,
}

/// An address that the gateway listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    /// Its connections speak TLS.
    pub(crate) is_tls: bool,
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
}

/// What one worker has another one do.
#[derive(Debug)]
pub(crate) enum Errand {
    Adopt(Accepted),
    /// The connection of this number.
    Close(u64),
}

/// Until when commands wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pause {
    pub(crate) until_us: u64,
    /// Others go on.
    pub(crate) writes_only: bool,
}

impl Pause {
    /// As one number, so that no worker sees the time of one pause with what another one holds.
    fn packed(self) -> u64 {
        self.until_us << 1 | u64::from(self.writes_only)
    }

    fn of_packed(packed: u64) -> Pause {
        Pause { until_us: packed >> 1, writes_only: packed & 1 == 1 }
    }

    /// What is in force after another one: as in Redis, the later end and the stricter kind.
    fn and(self, other: Pause) -> Pause {
        Pause {
            until_us: self.until_us.max(other.until_us),
            writes_only: self.writes_only && other.writes_only,
        }
    }
}

/// What others want of a worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) errands: Mutex<Vec<Errand>>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) connections: AtomicUsize,
}

/// What CONFIG SET changes of connections.
#[derive(Debug)]
pub(crate) struct Settings {
    clients: AtomicUsize,
    idle_s: AtomicU64,
    keep_alive_s: AtomicU64,
}

impl Settings {
    fn new(clients: usize) -> Settings {
        Settings {
            clients: AtomicUsize::new(clients),
            idle_s: AtomicU64::new(0),
            keep_alive_s: AtomicU64::new(KEEP_ALIVE_S),
        }
    }

    /// Connections at a time.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    pub(crate) fn set_clients(&self, most: usize) {
        self.clients.store(most, Relaxed);
    }

    /// Seconds after which a connection is closed that says nothing; 0: never.
    pub(crate) fn idle_s(&self) -> u64 {
        self.idle_s.load(Relaxed)
    }

    pub(crate) fn set_idle_s(&self, seconds: u64) {
        self.idle_s.store(seconds, Relaxed);
    }

    /// Seconds of silence after which the system asks whether a new connection's peer is there; 0:
    /// never.
    pub(crate) fn keep_alive_s(&self) -> u64 {
        self.keep_alive_s.load(Relaxed)
    }

    pub(crate) fn set_keep_alive_s(&self, seconds: u64) {
        self.keep_alive_s.store(seconds, Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<GatewayConfig>,
    pub(crate) settings: Settings,
    pub(crate) statistics: Arc<GatewayStatistics>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) listening: Vec<Listening>,
    /// The certificates in force, if it speaks TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) stop: AtomicBool,
    pub(crate) started: Instant,
    /// Scripts that workers know by their names.
    pub(crate) scripts: Arc<Sources>,
    /// Commands that took long.
    pub(crate) slow_log: Arc<SlowLog>,
    pub(crate) latency: Arc<Latency>,
    pub(crate) monitors: Arc<Monitors>,
    /// See [`Pause::packed`].
    pause: AtomicU64,
    next_number: AtomicU64,
    clients: Mutex<BTreeMap<u64, ClientInfo>>,
}

impl Shared {
    pub(crate) fn new(
        config: Arc<GatewayConfig>,
        statistics: Arc<GatewayStatistics>,
        inboxes: Vec<Inbox>,
        listening: Vec<Listening>,
        tls: Option<Arc<Tls>>,
    ) -> Shared {
        Shared {
            settings: Settings::new(config.max_clients),
            config,
            statistics,
            heat: Arc::new(Heat::new(inboxes.len())),
            inboxes,
            listening,
            tls,
            stop: AtomicBool::new(false),
            started: Instant::now(),
            scripts: Arc::default(),
            slow_log: Arc::default(),
            latency: Arc::default(),
            monitors: Arc::default(),
            pause: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
            clients: Mutex::default(),
        }
    }

    /// What the clocks say.
    pub(crate) fn now(&self) -> Now {
        let unix_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        Now { monotonic_us: self.started.elapsed().as_micros() as u64 + 1, unix_ms }
    }

    /// The first port that it listens on, with TLS or without; 0 if there is none.
    pub(crate) fn port(&self, with_tls: bool) -> u16 {
        let mut matching = self.listening.iter().filter(|at| at.is_tls == with_tls);
        matching.next().map_or(0, |at| at.address.port())
    }

    pub(crate) fn connections(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.connections.load(Relaxed)).sum()
    }

    /// The worker with the fewest connections.
    pub(crate) fn least_busy(&self) -> usize {
        let loads = self.inboxes.iter().map(|inbox| inbox.connections.load(Relaxed));
        loads.enumerate().min_by_key(|&(_, load)| load).map_or(0, |(worker, _)| worker)
    }

    /// Has a worker do something.
    pub(crate) fn send(&self, worker: usize, errand: Errand) {
        let inbox = &self.inboxes[worker];
        inbox.errands.lock().unwrap_or_else(PoisonError::into_inner).push(errand);
        if let Err(error) = inbox.waker.wake() {
            tracing::warn!(%error, worker, "can't wake a worker");
        }
    }

    /// Has the worker that has it close a connection.
    pub(crate) fn close(&self, number: u64, worker: usize) {
        self.send(worker, Errand::Close(number));
    }

    /// Has commands wait, on all connections, beside what they wait for already.
    pub(crate) fn pause(&self, pause: Pause, now_us: u64) {
        let changed = |packed| {
            let before = Pause::of_packed(packed);
            let is_over = before.until_us <= now_us;
            Some(if is_over { pause } else { before.and(pause) }.packed())
        };
        // It can't fail: there always is a new one.
        let _ = self.pause.fetch_update(Relaxed, Relaxed, changed);
    }

    /// Has commands go on.
    pub(crate) fn unpause(&self) {
        self.pause.store(0, Relaxed);
    }

    /// For what commands wait now, if they do.
    #[inline]
    pub(crate) fn paused(&self, now_us: u64) -> Option<Pause> {
        let pause = Pause::of_packed(self.pause.load(Relaxed));
        (now_us < pause.until_us).then_some(pause)
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, ClientInfo>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what CLIENT LIST shows of a connection.
    pub(crate) fn describe(&self, number: u64, change: impl FnOnce(&mut ClientInfo)) {
        if let Some(info) = self.clients().get_mut(&number) {
            change(info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_when_the_last_one_does_and_holds_what_any_does() {
        let [all, writes] = [false, true];
        let pause = |until_us, writes_only| Pause { until_us, writes_only };
        assert_eq!(Pause::of_packed(pause(1 << 40, writes).packed()), pause(1 << 40, writes));
        assert_eq!(pause(5, all).and(pause(9, writes)), pause(9, all));
        assert_eq!(pause(9, writes).and(pause(5, writes)), pause(9, writes));
    }
}
