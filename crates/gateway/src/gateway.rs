//! Starting and stopping a gateway.

use crate::config::{GatewayConfig, REPLY_BYTES_MAX};
use crate::programs::Programs;
use crate::replies::Replies;
use crate::retired::Retired;
use crate::running::{Link, Running};
use crate::shared::{Inbox, Listening, Shared};
use crate::spool::{Durability, Spool, SpoolDirectory, SpoolError};
use crate::statistics::GatewayStatistics;
use crate::tls::{Tls, TlsError};
use crate::worker::{UPLINK, WAKER, Worker};
use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};
use rand::TryRng;
use rand::rngs::SysRng;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::thread::JoinHandle;
use std::time::Instant;
use switchback_core::client::Session;
use switchback_heat::{Heat, Recorder};
use switchback_net::{ControlLink, Uplink, address_refused};
use thiserror::Error;

/// Why a gateway doesn't start.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum GatewayError {
    #[error(
        "the gateway can't listen on {address}: {}; choose another with --resp ADDR or resp in \
         [gateway] of rack.toml (port 0: any free one)",
        address_refused(error)
    )]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the gateway can't serve TLS: {0}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("durability {0} needs a directory for the spool")]
    NoSpoolDirectory(Durability),
    #[error("a gateway needs a worker and an address to listen on")]
    Nothing,
    #[error("can't start a worker: {0}")]
    Worker(#[source] io::Error),
}

/// The way of one worker to its rack.
pub struct WorkerLinks {
    /// To the switch.
    pub uplink: Box<dyn Uplink>,
    /// To the controller.
    pub control: Box<dyn ControlLink>,
}

/// What a worker may need of its stack: scripts nest tables a thousand deep.
const STACK_BYTES: usize = 8 << 20;

/// A running gateway. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// These end by themselves, sooner or later.
    retired: Vec<JoinHandle<()>>,
    spool_directory: Option<Arc<SpoolDirectory>>,
}

impl Gateway {
    /// Starts `workers` threads. `links` is asked for each worker's links, with its index and
    /// client id; the id is the same at every start, so that the controller knows whose preserved
    /// records are missing.
    pub fn start(
        mut config: GatewayConfig,
        workers: usize,
        mut links: impl FnMut(usize, u64) -> io::Result<WorkerLinks>,
    ) -> Result<Gateway, GatewayError> {
        for limit in [&mut config.output_bytes_hard, &mut config.command_bytes_max] {
            *limit = (*limit).min(REPLY_BYTES_MAX);
        }
        let plain = config.listen.iter().map(|&address| (address, false));
        let wanted: Vec<_> =
            plain.chain(config.tls.iter().map(|&(address, _)| (address, true))).collect();
        if workers == 0 || wanted.is_empty() {
            return Err(GatewayError::Nothing);
        }
        let tls = config.tls.as_ref().map(|(_, files)| Tls::open(files.clone())).transpose()?;
        let directory = open_directory(&config)?;
        let mut listeners = Vec::new();
        let mut listening = Vec::new();
        for (address, is_tls) in wanted {
            let refused = |error| GatewayError::Listen { address, error };
            let listener = listen(address).map_err(refused)?;
            let address = listener.local_addr().map_err(refused)?;
            listening.push(Listening { address, is_tls });
            listeners.push(listener);
        }
        let (polls, inboxes) = polls(workers).map_err(GatewayError::Worker)?;
        let statistics = Arc::new(GatewayStatistics::new(workers));
        let tls = tls.map(Arc::new);
        let shared = Arc::new(Shared::new(Arc::new(config), statistics, inboxes, listening, tls));
        let mut gateway = Gateway {
            shared,
            threads: Vec::new(),
            retired: Vec::new(),
            spool_directory: directory,
        };
        for (index, poll) in polls.into_iter().enumerate() {
            let theirs = if index == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            let worker = gateway.worker(index, poll, theirs, &mut links)?;
            let builder = std::thread::Builder::new()
                .name(format!("sw-gateway-{index}"))
                .stack_size(STACK_BYTES);
            gateway
                .threads
                .push(builder.spawn(move || worker.run()).map_err(GatewayError::Worker)?);
        }
        gateway.start_retired(&mut links)?;
        Ok(gateway)
    }

    /// Starts a thread for each spool of a worker beyond the present number of workers.
    fn start_retired(
        &mut self,
        links: &mut impl FnMut(usize, u64) -> io::Result<WorkerLinks>,
    ) -> Result<(), GatewayError> {
        let Some(directory) = &self.spool_directory else { return Ok(()) };
        for worker in directory.retired(self.shared.inboxes.len())? {
            // It sends no packets, so it may have worker 0's way to the switch.
            let links = links(0, self.shared.config.client_id_base + worker as u64)
                .map_err(GatewayError::Worker)?;
            let retired =
                Retired::open(directory, worker, [draw()?, draw()?], links, &self.shared)?;
            let builder = std::thread::Builder::new().name(format!("sw-retired-{worker}"));
            self.retired.push(builder.spawn(move || retired.run()).map_err(GatewayError::Worker)?);
        }
        Ok(())
    }

    fn worker(
        &self,
        index: usize,
        poll: Poll,
        mut listeners: Vec<TcpListener>,
        links: &mut impl FnMut(usize, u64) -> io::Result<WorkerLinks>,
    ) -> Result<Worker, GatewayError> {
        let shared = Arc::clone(&self.shared);
        let config = Arc::clone(&shared.config);
        let now = shared.now();
        let mut session = Session::new(config.session.clone(), draw()?, draw()?, now);
        let spool = match &self.spool_directory {
            Some(directory) => Some(Spool::open(
                directory,
                index,
                config.durability,
                config.spool_bytes_max,
                session.preserved_mut(),
            )?),
            None => None,
        };
        let client_id = config.client_id_base + index as u64;
        let WorkerLinks { mut uplink, mut control } =
            links(index, client_id).map_err(GatewayError::Worker)?;
        let waker = &shared.inboxes[index].waker;
        uplink.register(poll.registry(), UPLINK, waker).map_err(GatewayError::Worker)?;
        control.register(waker);
        for (at, listener) in listeners.iter_mut().enumerate() {
            let token = Token(crate::worker::LISTENER + at);
            poll.registry()
                .register(listener, token, Interest::READABLE)
                .map_err(GatewayError::Worker)?;
        }
        let replies = Replies::new(Arc::clone(&shared.statistics), index);
        let programs = Programs::new(&shared, index);
        let recorder = Recorder::new(&shared.heat, index, draw()?);
        Ok(Worker {
            index,
            poll,
            listeners,
            link: Link::new(session, uplink, control),
            running: Running::new(now, &shared, replies, spool.is_some(), programs, recorder),
            spool,
            accepts: true,
            accepts_again: false,
            refused_logged: None,
            broken_logged: None,
            next_tick: Instant::now(),
            relieved_at: 0,
            relieved: 0,
            relieved_bytes: 0,
            relieved_logged: None,
            stop_at: None,
            shared,
        })
    }

    /// The first address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.listening[0].address
    }

    /// Where it listens for TLS, if it does.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.shared.listening.iter().find(|at| at.is_tls).map(|at| at.address)
    }

    /// The certificates in force, if it speaks TLS.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.shared.tls.clone()
    }

    /// Its counters.
    pub fn statistics(&self) -> Arc<GatewayStatistics> {
        Arc::clone(&self.shared.statistics)
    }

    /// Which keys its clients ask for.
    pub fn heat(&self) -> Arc<Heat> {
        Arc::clone(&self.shared.heat)
    }

    /// Connections open.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Whether a worker has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Accepts nothing more, answers what is under way (for as long as the configuration says), and
    /// ends.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.shared.stop.store(true, Release);
        for inbox in &self.shared.inboxes {
            if let Err(error) = inbox.waker.wake() {
                tracing::warn!(
                    %error,
                    "can't wake a worker; it will see the stop at its next tick"
                );
            }
        }
        for thread in self.threads.drain(..).chain(self.retired.drain(..)) {
            // A panic there has been reported by the hook already.
            let _ = thread.join();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.halt();
    }
}

fn draw() -> Result<u64, GatewayError> {
    SysRng.try_next_u64().map_err(|error| GatewayError::Worker(io::Error::other(error)))
}

fn open_directory(config: &GatewayConfig) -> Result<Option<Arc<SpoolDirectory>>, GatewayError> {
    match (config.durability, &config.spool_dir) {
        (Durability::Memory, Some(path)) if SpoolDirectory::is_left(path)? => {
            Err(SpoolError::Left(path.clone()).into())
        }
        (Durability::Memory, _) => Ok(None),
        (durability, None) => Err(GatewayError::NoSpoolDirectory(durability)),
        (_, Some(path)) => Ok(Some(Arc::new(SpoolDirectory::open(path)?))),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

fn polls(workers: usize) -> io::Result<(Vec<Poll>, Vec<Inbox>)> {
    let (mut polls, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        polls.push(poll);
        inboxes.push(Inbox { errands: Default::default(), waker, connections: Default::default() });
    }
    Ok((polls, inboxes))
}
