//! The gateway of a rack: from the configuration to running workers, and what they tell.

use crate::admin::ClientsStatus;
use crate::blueprint;
use crate::config::{Durability, GatewayTls, RackConfig};
use crate::descriptors::{self, Share};
use crate::metrics::{Samples, Sources};
use std::io;
use std::time::Duration;
use switchback_gateway::{GatewayConfig, WorkerLinks};
use switchback_net::{ControlLink, Uplink};

pub use switchback_gateway::{Gateway, Tls};

/// Workers at most, if the configuration leaves it open.
const WORKERS_MAX: usize = 8;

/// Tells whether something serves.
pub type Serves = Box<dyn Fn() -> bool + Send + Sync>;

/// How many workers the gateway has.
pub fn workers(config: &RackConfig) -> usize {
    match config.gateway.workers {
        // Nodes and clients want processors, too.
        0 => std::thread::available_parallelism()
            .map_or(1, |cores| cores.get().div_ceil(2))
            .min(WORKERS_MAX),
        workers => workers as usize,
    }
}

/// Starts the workers; `links` gives each its way to the rack, by index and client id.
pub fn start(
    config: &RackConfig,
    workers: usize,
    client_id_base: u64,
    mut links: impl FnMut(u16, u64) -> anyhow::Result<(Box<dyn Uplink>, Box<dyn ControlLink>)>,
) -> anyhow::Result<Gateway> {
    let gateway = &config.gateway;
    let durability = match gateway.durability {
        Durability::Always => switchback_gateway::Durability::Always,
        Durability::Everysec => switchback_gateway::Durability::EverySecond,
        Durability::Memory => switchback_gateway::Durability::Memory,
    };
    let spooled = gateway.durability != Durability::Memory;
    let (listen, tls) = match &gateway.tls {
        None => (vec![gateway.resp], None),
        Some(GatewayTls { resp: None, files }) => (vec![], Some((gateway.resp, files.clone()))),
        Some(GatewayTls { resp: Some(at), files }) => {
            (vec![gateway.resp], Some((*at, files.clone())))
        }
    };
    let gateway_config = GatewayConfig {
        listen,
        tls,
        // An empty one says that none is wanted.
        password: gateway.password.clone().filter(|password| !password.is_empty()),
        durability,
        spool_dir: Some(gateway.spool.clone()),
        spool_bytes_max: u64::from(gateway.spool_max_mb) << 20,
        client_id_base,
        session: blueprint::rack(config).client(spooled),
        transactions: gateway.transactions,
        cluster: gateway.cluster,
        wait_max: Duration::from_millis(gateway.wait_ms),
        max_clients: max_clients(config),
        pipeline_max: gateway.pipeline_max as usize,
        output_bytes_hard: (gateway.unread_max_mb as usize) << 20,
        client_bytes_max: (gateway.buffers_max_mb as usize) << 20,
        ..GatewayConfig::default()
    };
    let worker_links = |index: usize, id| {
        let (uplink, control) = links(index as u16, id).map_err(io::Error::other)?;
        Ok(WorkerLinks { uplink, control })
    };
    Ok(Gateway::start(gateway_config, workers, worker_links)?)
}

/// `max_clients`, or fewer if the process may not open as many files.
fn max_clients(config: &RackConfig) -> usize {
    let (wanted, clients) = (config.gateway.max_clients, Share::here(config).clients);
    if clients < wanted.into() {
        tracing::warn!(
            "this process may open {} files, so it takes {clients} clients instead of {wanted}: \
             LimitNOFILE={} in its systemd unit, or ulimit -Hn, gives it more; or lower \
             max_clients in [gateway]",
            descriptors::allowed(),
            descriptors::wanted(config)
        );
    }
    clients as usize
}

/// Reads what the gateway's part of `ctl status` shows.
pub fn clients_status(gateway: &Gateway) -> Box<dyn Fn() -> ClientsStatus + Send + Sync> {
    let counted = gateway.statistics();
    Box::new(move || ClientsStatus {
        connections: Some(counted.sum(|worker| worker.connections_open.get())),
        preserved_records: Some(counted.sum(|worker| worker.preserved_records.get())),
        preserved_bytes: Some(counted.sum(|worker| worker.preserved_bytes.get())),
        spool_bytes: Some(counted.sum(|worker| worker.spool_size.get())),
        ..ClientsStatus::default()
    })
}

/// Tells whether the gateway can serve: each worker has a session with the rack.
pub fn is_serving(gateway: &Gateway) -> Serves {
    let counted = gateway.statistics();
    Box::new(move || counted.workers().iter().all(|worker| worker.session_open.get() == 1))
}

/// Lets metrics see the gateway.
pub fn add_sources(gateway: &Gateway, sources: &Sources) {
    let (counted, asked, tls) = (gateway.statistics(), gateway.heat(), gateway.tls());
    sources.add(move |samples: &mut Samples| {
        crate::metrics::gateway(samples, &counted);
        crate::metrics::heat(samples, &asked);
        if let Some(tls) = &tls {
            crate::metrics::certificate(samples, tls.expires_unix_s());
        }
    });
}
