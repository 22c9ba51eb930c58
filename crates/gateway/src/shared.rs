//! What the workers of a gateway share.

use crate::config::GatewayConfig;
use crate::programs::Sources;
use crate::statistics::GatewayStatistics;
use mio::Waker;
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use switchback_core::Now;
use switchback_heat::Heat;

/// A connection, as CLIENT LIST shows it.
#[derive(Clone, Debug)]
pub(crate) struct ClientInfo {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) since: Instant,
    pub(crate) name: String,
    pub(crate) library: [String; 2],
    pub(crate) resp3: bool,
}

/// Connections that another worker has accepted for this one.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) sockets: Mutex<Vec<(TcpStream, SocketAddr)>>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) connections: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<GatewayConfig>,
    pub(crate) statistics: Arc<GatewayStatistics>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) listening: Vec<SocketAddr>,
    pub(crate) stop: AtomicBool,
    pub(crate) started: Instant,
    /// Scripts that workers know by their names.
    pub(crate) scripts: Arc<Sources>,
    next_number: AtomicU64,
    clients: Mutex<BTreeMap<u64, ClientInfo>>,
}

impl Shared {
    pub(crate) fn new(
        config: Arc<GatewayConfig>,
        statistics: Arc<GatewayStatistics>,
        inboxes: Vec<Inbox>,
        listening: Vec<SocketAddr>,
    ) -> Shared {
        Shared {
            config,
            statistics,
            heat: Arc::new(Heat::new(inboxes.len())),
            inboxes,
            listening,
            stop: AtomicBool::new(false),
            started: Instant::now(),
            scripts: Arc::default(),
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

    pub(crate) fn connections(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.connections.load(Relaxed)).sum()
    }

    /// The worker with the fewest connections.
    pub(crate) fn least_busy(&self) -> usize {
        let loads = self.inboxes.iter().map(|inbox| inbox.connections.load(Relaxed));
        loads.enumerate().min_by_key(|&(_, load)| load).map_or(0, |(worker, _)| worker)
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
