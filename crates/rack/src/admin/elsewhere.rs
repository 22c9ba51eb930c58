//! What other processes of a distributed rack know. The controller's process asks them over HTTP,
//! at the addresses that rack.toml names, so that one console shows all parts.

use super::{HeatStatus, HotStatus, MachineStatus, RackStatus};
use crate::config::{RackConfig, Shape};
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use futures_util::stream::{self, StreamExt};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an answer may take: less than the time between two looks.
const PATIENCE: Duration = Duration::from_millis(700);
/// Processes that are asked at a time.
const AT_ONCE: usize = 16;
/// Of an answer; the largest is a day of heat.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Hot keys of a sample.
const SAMPLE_KEYS: usize = 10;

/// Where others are. Without any there is nothing to ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Elsewhere {
    gateway: Option<SocketAddr>,
    /// Nodes, and the switches that decide: what passes the others is counted by these.
    parts: Arc<[SocketAddr]>,
    /// All but this one.
    all: Arc<[SocketAddr]>,
}

/// What they say at one time; parts that don't answer are missing.
#[derive(Debug, Default)]
pub(crate) struct PartsStatus {
    pub(crate) statuses: Vec<RackStatus>,
    /// The gateway's last second.
    pub(crate) heat: Option<HeatStatus>,
    pub(crate) hot: Option<HotStatus>,
}

impl Elsewhere {
    /// What a process of `config`'s rack has to ask others for.
    pub(super) fn new(config: &RackConfig, has_controller: bool) -> Elsewhere {
        if config.shape == Shape::Embedded || !has_controller {
            return Elsewhere::default();
        }
        let gateway = config.gateway.metrics;
        let nodes = config.nodes.iter().filter_map(|node| node.metrics);
        let switches = |layers: RangeInclusive<u8>| {
            let some = config.switches.iter().filter(move |it| layers.contains(&it.layer));
            some.filter_map(|switch| switch.metrics)
        };
        let last = config.topology.layers;
        Elsewhere {
            gateway,
            parts: switches(last..=last).chain(nodes.clone()).collect(),
            all: switches(0..=last).chain(nodes).chain(gateway).collect(),
        }
    }

    /// Asks all of them.
    pub(super) async fn look(&self) -> PartsStatus {
        let parts = self.parts.iter().copied().chain(self.gateway);
        let (statuses, heat, hot) = tokio::join!(
            get_all(parts, "/status"),
            self.heat(1, 1),
            self.hot(SAMPLE_KEYS, super::SECONDS_DEFAULT)
        );
        PartsStatus { statuses, heat, hot }
    }

    /// `GET /machines` of each part, as they answer; parts of one machine say the same.
    pub(super) async fn machines(&self) -> impl Iterator<Item = MachineStatus> {
        let told: Vec<Vec<MachineStatus>> = get_all(self.all.iter().copied(), "/machines").await;
        told.into_iter().flatten()
    }

    /// The gateway's `GET /hot`.
    pub(super) async fn hot(&self, limit: usize, seconds: u64) -> Option<HotStatus> {
        get(self.gateway?, format!("/hot?limit={limit}&seconds={seconds}")).await
    }

    /// The gateway's `GET /heat`.
    pub(super) async fn heat(&self, seconds: u64, columns: u64) -> Option<HeatStatus> {
        get(self.gateway?, format!("/heat?seconds={seconds}&columns={columns}")).await
    }
}

/// What processes answer; those that don't are missing.
async fn get_all<T: DeserializeOwned>(of: impl Iterator<Item = SocketAddr>, path: &str) -> Vec<T> {
    let answers = stream::iter(of).map(|part| get(part, path.to_owned()));
    answers.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// What a process answers; why it doesn't is in the log.
async fn get<T: DeserializeOwned>(at: SocketAddr, path: String) -> Option<T> {
    let asked = tokio::time::timeout(PATIENCE, fetch(at, &path)).await;
    let told = asked.map_err(anyhow::Error::from).flatten();
    told.inspect_err(|error| tracing::debug!(%at, path, %error, "a part doesn't answer")).ok()
}

async fn fetch<T: DeserializeOwned>(at: SocketAddr, path: &str) -> anyhow::Result<T> {
    let stream = TcpStream::connect(at).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(header::HOST, at.to_string()).body(Body::empty())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
        let bytes = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    tokio::pin!(exchange);
    tokio::select! {
        told = &mut exchange => told,
        // It ends when everything has been received, which the exchange may have yet to read.
        _ = connection => exchange.await,
    }
}

impl RackStatus {
    /// Fills in what the process of `part` knows, and this one doesn't.
    pub(crate) fn complete(&mut self, part: &RackStatus) {
        if let Some(counted) = &part.operations {
            let sum = self.operations.get_or_insert_default();
            sum.reads += counted.reads;
            sum.writes += counted.writes;
            sum.answered_by_switch += counted.answered_by_switch;
            sum.answered_by_nodes += counted.answered_by_nodes;
            sum.absorbed_writes += counted.absorbed_writes;
            sum.conservative_reads += counted.conservative_reads;
            sum.dropped += counted.dropped;
        }
        add(&mut self.cache.admissions, part.cache.admissions);
        add(&mut self.cache.evictions, part.cache.evictions);
        let (clients, more) = (&mut self.clients, &part.clients);
        add(&mut clients.connections, more.connections);
        add(&mut clients.preserved_records, more.preserved_records);
        add(&mut clients.preserved_bytes, more.preserved_bytes);
        add(&mut clients.spool_bytes, more.spool_bytes);
        for told in &part.nodes {
            let known = self.nodes.iter_mut().find(|node| node.index == told.index);
            if let (Some(node), Some(_)) = (known, told.reads) {
                (node.reads, node.writes) = (told.reads, told.writes);
                node.disk_bytes = told.disk_bytes;
            }
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum.get_or_insert(0) += more;
    }
}
