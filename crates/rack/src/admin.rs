//! Metrics and administration over HTTP. docs/run/operations.md describes the endpoints; their JSON
//! only ever gains fields.

use crate::config::RackConfig;
use crate::metrics::Sources;
use crate::observer::{Observer, PERIOD};
mod connections;
mod console;
mod elsewhere;
mod events;
mod heat;
mod hosts;
mod hot;
mod live;
mod machines;
mod whatif;

use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use connections::{Caller, LIMITS, Limits};
use console::Pages;
use elsewhere::Elsewhere;
pub(crate) use elsewhere::PartsStatus;
pub use heat::HeatStatus;
use hosts::Hosts;
pub use hot::{HotKeyStatus, HotStatus, KeyPlace, SECONDS_DEFAULT};
pub use machines::MachineStatus;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::control::Peer;
use switchback_heat::Counts;
pub use switchback_heat::SECONDS_MAX;
use switchback_net::address_refused;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::MissedTickBehavior;
pub use whatif::{Owners, WhatIf, WhatIfNode, WhatIfScheme, WhatIfSize};

/// What a process can be asked and told. Called on threads of their own, so it may block.
pub trait Admin: Send + Sync {
    /// The rack at a glance.
    fn status(&self) -> RackStatus;

    /// The controller is in this process.
    fn has_controller(&self) -> bool {
        false
    }

    /// Where other processes of the rack tell over HTTP what they know, as far as they said so to
    /// the controller, if that is here; one may be named several times. Doesn't block.
    fn others(&self) -> Vec<(Peer, SocketAddr)> {
        Vec::new()
    }

    /// Whether what is in this process serves, and what it says of that.
    ///
    /// # Errors
    /// It doesn't.
    fn health(&self) -> Result<String, String> {
        serving(self.status().phase)
    }

    /// Cached records, the most counted first, at most `limit`. Waits for the switch's answer, up
    /// to some seconds.
    ///
    /// # Errors
    /// This process has no controller, which knows them.
    fn cached(&self, limit: usize) -> Result<CachedStatus, AdminError>;

    /// The hottest keys of the last `seconds` and of the second under way, at most `limit`.
    ///
    /// # Errors
    /// This process has no gateway, which counts them.
    fn hot(&self, limit: usize, seconds: u64) -> Result<HotStatus, AdminError>;

    /// Adds what the controller knows of hot keys that another process counted, if it is here.
    fn place(&self, _hot: &mut HotStatus) {}

    /// What hash ranges were asked for since the start; `None`: this process has no gateway.
    fn asked(&self) -> Option<Counts>;

    /// Every node.
    fn nodes(&self) -> Vec<NodeStatus>;

    /// Every chain of switches.
    ///
    /// # Errors
    /// This process has no controller, which knows them.
    fn chains(&self) -> Result<Vec<ChainStatus>, AdminError>;

    /// Every switch.
    ///
    /// # Errors
    /// This process has no controller, which knows them.
    fn switches(&self) -> Result<Vec<SwitchStatus>, AdminError>;

    /// The map: every partition, in the order of their keys.
    ///
    /// # Errors
    /// This process has no controller, which knows it.
    fn partitions(&self) -> Result<Vec<PartitionStatus>, AdminError>;

    /// Asks the demo that started this process to kill the switch that serves.
    ///
    /// # Errors
    /// None did.
    fn kill_switch(&self) -> Result<KillResult, AdminError>;

    /// A demo started this process: its console has a button that kills the switch.
    fn is_demo(&self) -> bool {
        false
    }

    /// Takes a snapshot now and waits until it is durable.
    fn snapshot(&self) -> Result<SnapshotResult, AdminError>;

    /// Begins a backup, unless one is under way: how that stands.
    ///
    /// # Errors
    /// This process has no controller.
    fn back_up(&self) -> Result<BackupStatus, AdminError>;

    /// How the last backup stands that was begun since the controller started.
    ///
    /// # Errors
    /// This process has no controller.
    fn backup(&self) -> Result<BackupStatus, AdminError>;

    /// Begins to take a switch out of service, in favour of `spare`: the switches then. It is over
    /// when the switch serves no more.
    ///
    /// # Errors
    /// None could go on in its place; this process has no controller.
    fn drain_switch(
        &self,
        switch: u16,
        spare: Option<u16>,
    ) -> Result<Vec<SwitchStatus>, AdminError>;

    /// Takes a switch back into service: the switches then.
    ///
    /// # Errors
    /// There is no such switch; this process has no controller.
    fn add_switch(&self, switch: u16) -> Result<Vec<SwitchStatus>, AdminError>;

    /// Brings every cached record to its node; the rack goes on serving.
    fn drain(&self) -> Result<DrainResult, AdminError>;
}

/// A rack in this phase serves, or not.
pub(crate) fn serving(phase: String) -> Result<String, String> {
    if phase == "serving" { Ok(phase) } else { Err(phase) }
}

/// Why a command was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdminError {
    /// Not by this process, or not in this rack.
    #[error("{0}")]
    Unsupported(String),
    /// Not now, or not successfully.
    #[error("{0}")]
    Failed(String),
}

/// `GET /status`. What the process that is asked can't know is `None`: its `null` says that another
/// one has to be asked.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RackStatus {
    /// The rack's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The name of one of [`Scheme::ALL`](switchback_wire::Scheme::ALL).
    pub scheme: String,
    /// `embedded` or `distributed`.
    pub shape: String,
    /// `waiting for a switch`, `resynchronizing`, `recovering`, `serving without a switch` or
    /// `serving`; a process without the controller says that it doesn't know.
    pub phase: String,
    /// Rises with every recovery.
    pub epoch: Option<u32>,
    /// A drain is under way.
    pub draining: Option<bool>,
    /// Of the process that answers.
    pub uptime_seconds: f64,
    /// What is cached.
    pub cache: CacheStatus,
    /// What admissions and evictions cost; known to the controller.
    pub control: Option<ControlStatus>,
    /// What was asked and who answered; known where the switch is.
    pub operations: Option<OperationsStatus>,
    /// Snapshots; known to the controller.
    pub snapshots: Option<SnapshotStatus>,
    /// Clients.
    pub clients: ClientsStatus,
    /// Switches; the one of an embedded rack has no address.
    pub switches: Vec<SwitchStatus>,
    /// Nodes.
    pub nodes: Vec<NodeStatus>,
    /// How many replicas partitions have; known to the controller.
    #[serde(default)]
    pub replication: Option<ReplicationStatus>,
    /// The last recovery, if there was one.
    pub recovery: Option<RecoveryStatus>,
}

/// Part of [`RackStatus`]: how many replicas partitions have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicationStatus {
    /// How many each is to have.
    pub replicas: u64,
    /// Partitions that have fewer, as far as the controller hears nodes.
    pub lacking: u64,
    /// Partitions that a node joins: it gets a copy.
    pub joining: u64,
    /// Partitions none of whose replicas the controller hears.
    pub unavailable: u64,
    /// How many more nodes may fail, whichever they are, and nothing is lost.
    pub may_fail: u64,
}

impl From<switchback_core::controller::ReplicationStatus> for ReplicationStatus {
    fn from(known: switchback_core::controller::ReplicationStatus) -> ReplicationStatus {
        ReplicationStatus {
            replicas: known.replicas as u64,
            lacking: known.lacking as u64,
            joining: known.joining as u64,
            unavailable: known.unavailable as u64,
            may_fail: known.may_fail as u64,
        }
    }
}

/// Part of [`RackStatus`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Keys in the cache, or on their way in or out; known to the controller.
    pub records: Option<u64>,
    /// Its limit.
    pub records_max: u64,
    /// Slots: value bytes and how many.
    pub classes: Vec<(u32, u32)>,
    /// Keys admitted since the start; known where the switch is.
    pub admissions: Option<u64>,
    /// Keys evicted since the start; known where the switch is.
    pub evictions: Option<u64>,
    /// Hot keys that wait for admission; known to the controller.
    pub waiting_offers: Option<u64>,
}

/// Part of [`RackStatus`]: what admissions and evictions cost on the control channel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ControlStatus {
    /// Messages in a second, lately.
    pub messages_per_s: u64,
    /// Bytes in a second, lately.
    pub bytes_per_s: u64,
    /// The budget of messages in a second.
    pub messages_per_s_max: u64,
    /// The budget of bytes in a second.
    pub bytes_per_s_max: u64,
    /// How often they had to wait for the budget since the start.
    pub delays: u64,
}

/// Part of [`RackStatus`]: since the start of the switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OperationsStatus {
    /// Reads that came.
    pub reads: u64,
    /// Writes and deletes that came.
    pub writes: u64,
    /// Requests that the switch answered from its cache.
    pub answered_by_switch: u64,
    /// Requests that nodes answered.
    pub answered_by_nodes: u64,
    /// Writes that the cache took.
    pub absorbed_writes: u64,
    /// Reads of cached keys that went to the node nevertheless.
    pub conservative_reads: u64,
    /// Packets dropped, by any part.
    pub dropped: u64,
}

impl OperationsStatus {
    /// Share of the requests that the switch answered; none before there were any.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.answered_by_switch + self.answered_by_nodes;
        (all > 0).then(|| self.answered_by_switch as f64 / all as f64)
    }
}

/// Part of [`RackStatus`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotStatus {
    /// The generation that began last.
    pub generation: u32,
    /// Records of older generations are durable.
    pub durable_generation: u32,
    /// Snapshots that became durable since the start.
    pub completed: u64,
    /// Snapshots that had to be taken again.
    pub failed: u64,
    /// Of the last one.
    pub duration_seconds: f64,
    /// Of the last one.
    pub records: u64,
    /// Of the last one.
    pub bytes: u64,
    /// Why nothing can be stored just now, if so.
    pub error: Option<String>,
}

/// Part of [`RackStatus`]. All but the sessions are known where the gateway is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Sessions with the controller, which knows them.
    pub sessions: Option<u64>,
    /// Connections of the gateway.
    pub connections: Option<u64>,
    /// Absorbed records that sessions keep until they are durable elsewhere.
    pub preserved_records: Option<u64>,
    /// Their bytes.
    pub preserved_bytes: Option<u64>,
    /// Bytes of the gateway's spool.
    pub spool_bytes: Option<u64>,
}

/// An entry of `GET /chains`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChainStatus {
    /// Its number.
    pub chain: u16,
    /// As in [`RackStatus`].
    pub phase: String,
    /// Its epoch.
    pub epoch: u32,
    /// The switch that serves it, if one does: the last one that requests pass.
    pub switch: Option<u16>,
    /// The switches that requests pass, in their order.
    pub switches: Vec<u16>,
    /// The generation that its last snapshot began.
    pub generation: u32,
    /// Its records of older generations are durable.
    pub durable_generation: u32,
    /// Keys in its cache, or on their way in or out.
    pub cached: u64,
    /// Failure domains of its switches.
    pub domains: u64,
    /// Clients preserve what it tells.
    pub preserved: bool,
    /// Losses that were declared since the controller started.
    pub losses: u64,
}

/// An entry of `GET /partitions`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its number.
    pub partition: u16,
    /// The first routing key of its range: 32 hexadecimal digits. The range ends before the first
    /// key of the next entry.
    pub first_key: String,
    /// Counts the changes of its replicas.
    pub view: u32,
    /// The chain of switches that serves it.
    pub chain: u16,
    /// The nodes that store it, from the head to the tail.
    pub replicas: Vec<u16>,
}

/// An entry of `GET /switches`, and part of [`RackStatus`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its number.
    pub index: u16,
    /// Where clients send packets, in a distributed rack.
    pub address: Option<String>,
    /// Its layer of a chain, from 1 next to the clients.
    #[serde(default)]
    pub layer: u8,
    /// It serves; others are spares.
    pub active: bool,
    /// The chain that it serves, or served last; `None`: it may take over any.
    pub chain: Option<u16>,
    /// It is taken out of service. It may serve still, until its chain goes on without it.
    pub drained: bool,
    /// The controller hears it.
    pub alive: bool,
    /// Its epoch.
    pub epoch: u32,
    /// Why its chain goes on without it, or it can't take a place that is free, if so.
    #[serde(default)]
    pub error: Option<String>,
    /// Reads, writes and deletes that came; known where the switch is.
    #[serde(default)]
    pub requests: Option<u64>,
}

/// An entry of `GET /nodes`. State, epoch and cached keys are known to the controller, load and
/// size where the node is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub index: u16,
    /// Where the switch sends packets, in a distributed rack.
    pub address: Option<String>,
    /// The controller hears it.
    pub alive: Option<bool>,
    /// It waits for the end of a recovery before it serves keys that were cached.
    pub held: Option<bool>,
    /// Its epoch.
    pub epoch: Option<u32>,
    /// Cached keys that belong to it.
    pub cached_keys: Option<u64>,
    /// Partitions that it has, or joins.
    #[serde(default)]
    pub partitions: Option<u64>,
    /// Those that it joins.
    #[serde(default)]
    pub joining: Option<u64>,
    /// Reads that it served.
    pub reads: Option<u64>,
    /// Writes that it served.
    pub writes: Option<u64>,
    /// Size of its directory.
    pub disk_bytes: Option<u64>,
    /// What keeps it from doing what the controller asks, if anything.
    pub error: Option<String>,
}

impl SwitchStatus {
    /// In one word or two.
    pub fn state(&self) -> &'static str {
        match (self.alive, self.active, self.drained) {
            (true, true, true) => "drains",
            (_, false, true) => "drained",
            (false, _, _) => "down",
            (true, true, false) => "serves",
            (true, false, false) => "spare",
        }
    }
}

impl NodeStatus {
    /// In one word; `None` if only the controller knows.
    pub fn state(&self) -> Option<&'static str> {
        match (self.alive?, self.held) {
            (false, _) => Some("down"),
            (true, Some(true)) => Some("holds"),
            (true, _) => Some("up"),
        }
    }
}

/// `GET /cached?limit=N`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CachedStatus {
    /// How many there are in all.
    pub total: u64,
    /// Some of them, the most counted first.
    pub records: Vec<CachedRecord>,
}

/// An entry of [`CachedStatus`]. Count, dirtiness and size are known to the switch: they are `None`
/// if it didn't tell them, because it doesn't serve or has no such record (any more).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CachedRecord {
    /// The key; bytes that are no printable ASCII are escaped as `\xNN`.
    pub key: String,
    /// The node that it belongs to.
    pub node: u16,
    /// Its access counter. Ageing halves it.
    pub count: Option<u32>,
    /// Since it got its slot; `None`: it had it before the controller started.
    pub age_seconds: Option<f64>,
    /// No node has its record.
    pub dirty: Option<bool>,
    /// Length of its key and its value.
    pub bytes: Option<u64>,
    /// Size class.
    pub class: u8,
    /// Slot in the class.
    pub slot: u32,
    /// `admitting`, `cached`, `evicting` or `clearing`.
    pub stage: String,
}

/// `POST /snapshot`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotResult {
    /// The generation that it began.
    pub generation: u32,
    /// Records in it.
    pub records: u64,
    /// Its size.
    pub bytes: u64,
    /// How long it took until it was durable.
    pub duration_seconds: f64,
}

/// `GET /backup`, `POST /backup`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BackupStatus {
    /// Which one was asked for; 0: none since the controller started.
    pub request: u64,
    /// Its number, by which its files are named. It is another one after each try to cut.
    pub number: u64,
    /// `waiting`, `holding`, `cutting`, `collecting` or `ended`.
    pub stage: String,
    /// What it waits for.
    pub waits_for: Option<String>,
    /// Its files are durable.
    pub complete: bool,
    /// Why it failed, or why the last try to cut was void.
    pub failure: Option<String>,
    /// How often it was tried to cut.
    pub tries: u32,
    /// For how long clients held their writes back.
    pub held_seconds: f64,
}

/// `POST /drain`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DrainResult {
    /// Records that were brought to their nodes.
    pub drained: u64,
    /// What could not be brought, a line a node; empty if all is well.
    pub remaining: Vec<String>,
    /// How long it took.
    pub duration_seconds: f64,
}

/// Part of [`RackStatus`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// The epoch that it began.
    pub epoch: u32,
    /// Every key that was cached is admitted again.
    pub complete: bool,
    /// From the last sign of life of the old switch.
    pub detect_seconds: f64,
    /// Until all clients' records were there.
    pub collect_seconds: f64,
    /// Until the newest of them were stored and every node was released.
    pub store_seconds: f64,
    /// Until every key that was cached was admitted again; 0 while it lasts.
    pub readmit_seconds: f64,
    /// Records that were stored.
    pub records: u64,
    /// Records that switches brought which had served before.
    pub loaded: u64,
    /// Records that clients brought.
    pub gathered: u64,
    /// Keys of which an acknowledged value may be lost.
    pub lost_keys: u64,
    /// Clients whose lease ran out before they answered.
    pub abandoned_clients: u64,
}

/// `POST /demo/kill`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KillResult {
    /// The demo was asked; it says on its terminal what it does, and so do the events.
    pub asked: bool,
}

/// The line on the standard output of a demo's controller by which it asks the demo to kill the
/// switch that serves.
pub const KILL_ASKED: &str = "kill asked";

/// Threads for requests.
const THREADS: usize = 4;
/// Requests at a time that may wait for other parts.
const SLOW_MAX: usize = THREADS - 2;
/// Keys that `GET /cached` lists without a limit.
const CACHED_DEFAULT: usize = 100;
/// Keys that it lists at most.
const CACHED_MAX: usize = 1_000_000;

/// The HTTP server, on a thread of its own.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves at `address` (port 0: any free one) what a process of `config`'s rack tells, until it
    /// is stopped or dropped. Requests name it by an IP address, `localhost` or one of the
    /// configuration's hosts.
    ///
    /// # Errors
    /// The address can't be had, or the console's token can't be kept.
    pub fn start(
        address: SocketAddr,
        config: &RackConfig,
        admin: Arc<dyn Admin>,
        sources: Sources,
    ) -> io::Result<MetricsServer> {
        MetricsServer::limited(address, ServerState::new(config, admin, sources)?, LIMITS)
    }

    fn limited(
        address: SocketAddr,
        shared: ServerState,
        limits: Limits,
    ) -> io::Result<MetricsServer> {
        let listener = TcpListener::bind(address).map_err(|error| bind_failed(address, &error))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let observing = shared.clone().observe();
        let router = router(shared);
        let body = move || {
            let served = runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::select! {
                    () = connections::serve(listener, router, limits) => {}
                    () = observing => {}
                    _ = stopped => {}
                }
                Ok::<(), io::Error>(())
            });
            if let Err(error) = served {
                tracing::error!(%error, "metrics are not served any more");
            }
            // A snapshot that a request waits for must not keep the process alive.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(body)?;
        Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only panics if a handler did, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says what to do about an address that can't be had.
fn bind_failed(address: SocketAddr, error: &io::Error) -> io::Error {
    let mend = "choose another: `metrics` of this part in rack.toml, or --metrics of \
                `switchback up` (port 0: any free one)";
    let why = address_refused(error);
    io::Error::new(error.kind(), format!("metrics can't be served at {address}: {why}; {mend}"))
}

#[derive(Clone)]
struct ServerState {
    config: Arc<RackConfig>,
    admin: Arc<dyn Admin>,
    sources: Sources,
    hosts: Hosts,
    pages: Pages,
    observer: Arc<Observer>,
    watchers: live::Places,
    /// Places for requests that may wait for other parts for seconds: those for metrics and health
    /// find a thread meanwhile.
    slow: Arc<Semaphore>,
}

impl ServerState {
    fn new(
        config: &RackConfig,
        admin: Arc<dyn Admin>,
        sources: Sources,
    ) -> io::Result<ServerState> {
        Ok(ServerState {
            config: Arc::new(config.clone()),
            hosts: Hosts::new(&config.rack.metrics_hosts),
            pages: Pages::new(config, admin.has_controller(), admin.is_demo())?,
            admin,
            sources,
            observer: Arc::new(Observer::new()),
            slow: Arc::new(Semaphore::new(SLOW_MAX)),
            watchers: live::Places::default(),
        })
    }

    /// Looks at the rack once a second, for ever.
    async fn observe(self) {
        let mut looks = tokio::time::interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let ServerState { admin, observer, .. } = self.clone();
            // Others are asked only for those who watch.
            let told = match observer.is_watched() {
                true => Elsewhere::of(&*admin).look().await,
                false => PartsStatus::default(),
            };
            // What went wrong is in the log; the next look may succeed.
            let _ = blocking(move || observer.look(&*admin, told)).await;
        }
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerState({:?})", self.sources)
    }
}

fn router(shared: ServerState) -> Router {
    Router::new()
        .route("/", get(console::index))
        .route("/console/{*path}", get(console::file))
        .route("/config", get(console::config))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/cached", get(cached))
        .route("/hot", get(hot::hot))
        .route("/heat", get(heat::heat))
        .route("/whatif", get(whatif::whatif))
        .route("/events", get(events::events))
        .route("/live", get(live::live))
        .route("/machines", get(machines::machines))
        .route("/nodes", get(nodes))
        .route("/chains", get(chains))
        .route("/switches", get(switches))
        .route("/switches/{switch}/drain", post(drain_switch))
        .route("/switches/{switch}/add", post(add_switch))
        .route("/partitions", get(partitions))
        .route("/snapshot", post(snapshot))
        .route("/backup", get(backup).post(back_up))
        .route("/drain", post(drain))
        .route("/demo/kill", post(kill_switch))
        .fallback(|| async { (StatusCode::NOT_FOUND, INDEX) })
        .layer(DefaultBodyLimit::max(1024))
        .layer(middleware::from_fn_with_state(shared.clone(), hosts::check))
        .with_state(shared)
}

const INDEX: &str = "\
Switchback
GET  /metrics     for Prometheus
GET  /status      the rack at a glance (JSON)
GET  /cached      cached records, the most counted first (JSON; ?limit=N)
GET  /hot         the hottest keys now (JSON; ?limit=N&seconds=S)
GET  /heat        requests by hash range over time (JSON; ?seconds=S&columns=N)
GET  /whatif      nodes' loads with another cache or other nodes \
                  (JSON; ?scheme=NAME&records=N&nodes=M)
GET  /events      what has happened (JSON; ?since=N&limit=M)
GET  /live        a sample each second (server-sent events)
GET  /config      the settings in force, without secrets (JSON)
GET  /chains      chains of switches (JSON)
GET  /switches    switches (JSON)
GET  /nodes       nodes (JSON)
GET  /machines    whether the rack's machines fit it (JSON)
GET  /partitions  the map of partitions (JSON)
GET  /backup      how the last backup stands (JSON)
GET  /healthz     200 if the rack (of a part: this process) serves, 503 if not
POST /snapshot    take a snapshot now (from this machine only)
POST /backup      begin a backup (from this machine only); `switchback backup` fetches it
POST /switches/N/drain  take a switch out of service (from this machine only; ?spare=M)
POST /switches/N/add    take it back (from this machine only)
POST /drain       empty the cache: bring every record to its node (from this machine only)
";

/// Runs what may block where it may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "an administrative request failed");
        (StatusCode::INTERNAL_SERVER_ERROR, "the request failed; the log says why\n")
            .into_response()
    })
}

/// [`blocking`] for work that may wait for other parts; refused while [`SLOW_MAX`] are under way.
async fn slowly<T: Send + 'static>(
    shared: ServerState,
    work: impl FnOnce(&ServerState) -> T + Send + 'static,
) -> Result<T, Response> {
    let Ok(permit) = Arc::clone(&shared.slow).try_acquire_owned() else {
        let busy = format!("{SLOW_MAX} requests wait for other parts already; ask again\n");
        return Err((StatusCode::SERVICE_UNAVAILABLE, busy).into_response());
    };
    // With the work, for that goes on when the caller has gone.
    let with_permit = move || {
        let _permit = permit;
        work(&shared)
    };
    blocking(with_permit).await
}

async fn metrics(State(shared): State<ServerState>) -> Result<Response, Response> {
    let text = blocking(move || shared.sources.collect().text()).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn healthz(State(shared): State<ServerState>) -> Result<Response, Response> {
    let health = blocking(move || shared.admin.health()).await?;
    let code = if health.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (Ok(says) | Err(says)) = health;
    Ok((code, says + "\n").into_response())
}

async fn status(State(shared): State<ServerState>) -> Result<Json<RackStatus>, Response> {
    Ok(Json(blocking(move || shared.admin.status()).await?))
}

#[derive(Deserialize)]
struct Limit {
    limit: Option<usize>,
}

async fn cached(
    State(shared): State<ServerState>,
    Query(limit): Query<Limit>,
) -> Result<Response, Response> {
    let limit = limit.limit.unwrap_or(CACHED_DEFAULT).min(CACHED_MAX);
    Ok(answer(slowly(shared, move |shared| shared.admin.cached(limit)).await?))
}

async fn nodes(State(shared): State<ServerState>) -> Result<Json<Vec<NodeStatus>>, Response> {
    Ok(Json(blocking(move || shared.admin.nodes()).await?))
}

async fn chains(State(shared): State<ServerState>) -> Result<Response, Response> {
    Ok(answer(blocking(move || shared.admin.chains()).await?))
}

async fn switches(State(shared): State<ServerState>) -> Result<Response, Response> {
    Ok(answer(blocking(move || shared.admin.switches()).await?))
}

async fn partitions(State(shared): State<ServerState>) -> Result<Response, Response> {
    Ok(answer(blocking(move || shared.admin.partitions()).await?))
}

async fn snapshot(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    command(shared, caller, &headers, "snapshot", |shared| shared.admin.snapshot()).await
}

async fn backup(State(shared): State<ServerState>) -> Result<Response, Response> {
    Ok(answer(blocking(move || shared.admin.backup()).await?))
}

async fn back_up(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    command(shared, caller, &headers, "backup", |shared| shared.admin.back_up()).await
}

async fn drain(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let work = |shared: &ServerState| {
        let result = shared.admin.drain()?;
        shared.observer.drained(&result);
        Ok(result)
    };
    command(shared, caller, &headers, "drain", work).await
}

async fn kill_switch(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    command(shared, caller, &headers, "demo/kill", |shared| shared.admin.kill_switch()).await
}

#[derive(Deserialize)]
struct Spare {
    spare: Option<u16>,
}

async fn drain_switch(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(switch): Path<u16>,
    Query(Spare { spare }): Query<Spare>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let work = move |shared: &ServerState| shared.admin.drain_switch(switch, spare);
    command(shared, caller, &headers, "switch drain", work).await
}

async fn add_switch(
    State(shared): State<ServerState>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(switch): Path<u16>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let work = move |shared: &ServerState| shared.admin.add_switch(switch);
    command(shared, caller, &headers, "switch add", work).await
}

/// Commands are taken from this machine's programs, not from others; of web pages that a browser
/// here shows from the console's own only, if they have its token.
async fn command<T: Serialize + Send + 'static>(
    shared: ServerState,
    caller: Caller,
    headers: &HeaderMap,
    name: &'static str,
    work: impl FnOnce(&ServerState) -> Result<T, AdminError> + Send + 'static,
) -> Result<Response, Response> {
    let refuse = |why: &'static str| (StatusCode::FORBIDDEN, why).into_response();
    if !caller.is_local {
        return Err(refuse(
            "commands are taken from this machine only; run switchback ctl there\n",
        ));
    }
    if headers.contains_key(header::ORIGIN) {
        shared.pages.may_command(headers).map_err(refuse)?;
        tracing::info!(peer = %caller.address, name, "the console sent a command");
    }
    Ok(answer(slowly(shared, work).await?))
}

/// What came of a request, or why nothing did.
fn answer<T: Serialize>(result: Result<T, AdminError>) -> Response {
    match result {
        Ok(result) => Json(result).into_response(),
        Err(AdminError::Unsupported(why)) => {
            (StatusCode::NOT_IMPLEMENTED, why + "\n").into_response()
        }
        Err(AdminError::Failed(why)) => {
            (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response()
        }
    }
}

#[cfg(test)]
mod tests;
