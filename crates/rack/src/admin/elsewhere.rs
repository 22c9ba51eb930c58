//! What other processes of a distributed rack know. The controller's process asks them over HTTP,
//! where they said that they tell it when they connected, so that one console shows all parts.

use super::{
    Admin, HeatStatus, HotStatus, MachineStatus, OperationsStatus, RackStatus, SwitchStatus,
};
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use futures_util::stream::{self, StreamExt};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::time::Duration;
use switchback_core::control::Peer;
use switchback_heat::KEYS;
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
#[derive(Clone, Debug)]
pub(super) struct Elsewhere(Vec<(Peer, SocketAddr)>);

/// What they say at one time; parts that don't answer are missing.
#[derive(Debug, Default)]
pub(crate) struct PartsStatus {
    pub(crate) statuses: Vec<(Peer, RackStatus)>,
    /// Each gateway's last second.
    pub(crate) heats: Vec<HeatStatus>,
    pub(crate) hot: Option<HotStatus>,
}

impl Elsewhere {
    /// Those that a process knows of, each once: a gateway has a session for each of its workers.
    pub(super) fn of(admin: &dyn Admin) -> Elsewhere {
        let mut others = admin.others();
        others.sort_by_key(|(_, at)| *at);
        others.dedup_by_key(|(_, at)| *at);
        Elsewhere(others)
    }

    fn gateways(&self) -> impl Iterator<Item = (Peer, SocketAddr)> {
        self.0.iter().copied().filter(|(peer, _)| matches!(peer, Peer::Client(_)))
    }

    /// Asks all of them.
    pub(super) async fn look(&self) -> PartsStatus {
        let (statuses, heats, hot) = tokio::join!(
            get_all(self.0.iter().copied(), "/status".to_owned()),
            self.heats(1, 1),
            self.hot(SAMPLE_KEYS, super::SECONDS_DEFAULT)
        );
        PartsStatus { statuses, heats, hot }
    }

    /// `GET /machines` of each part, as they answer; parts of one machine say the same.
    pub(super) async fn machines(&self) -> impl Iterator<Item = MachineStatus> {
        let told: Vec<(_, Vec<_>)> = get_all(self.0.iter().copied(), "/machines".to_owned()).await;
        told.into_iter().flat_map(|(_, machines)| machines)
    }

    /// `GET /hot` of all gateways together.
    pub(super) async fn hot(&self, limit: usize, seconds: u64) -> Option<HotStatus> {
        // What is the hottest of all may be far down the list of each.
        let path = format!("/hot?limit={KEYS}&seconds={seconds}");
        let told = get_all(self.gateways(), path).await;
        HotStatus::sum(told.into_iter().map(|(_, hot)| hot), limit)
    }

    /// `GET /heat` of all gateways together.
    pub(super) async fn heat(&self, seconds: u64, columns: u64) -> Option<HeatStatus> {
        HeatStatus::sum(self.heats(seconds, columns).await)
    }

    /// `GET /heat` of each gateway.
    async fn heats(&self, seconds: u64, columns: u64) -> Vec<HeatStatus> {
        let path = format!("/heat?seconds={seconds}&columns={columns}");
        let told = get_all(self.gateways(), path).await;
        told.into_iter().map(|(_, heat)| heat).collect()
    }
}

/// What processes answer; those that don't are missing.
async fn get_all<T: DeserializeOwned>(
    of: impl Iterator<Item = (Peer, SocketAddr)>,
    path: String,
) -> Vec<(Peer, T)> {
    let answers = stream::iter(of).map(|(peer, at)| {
        let asked = get(at, path.clone());
        async move { Some((peer, asked.await?)) }
    });
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
    /// Fills in what the process of `peer` knows, and this one doesn't.
    pub(crate) fn complete(&mut self, peer: Peer, part: &RackStatus) {
        let last = self.switches.iter().map(|switch| switch.layer).max();
        let known = |switch: &&mut SwitchStatus| peer == Peer::Switch(switch.index);
        if let Some(switch) = self.switches.iter_mut().find(known) {
            let requests = |counted: &OperationsStatus| counted.reads + counted.writes;
            switch.requests = part.operations.as_ref().map(requests);
            // What passes it is counted by those that decide.
            if Some(switch.layer) < last {
                return;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(reads: u64, writes: u64) -> RackStatus {
        let operations = Some(OperationsStatus { reads, writes, ..OperationsStatus::default() });
        RackStatus { operations, ..RackStatus::default() }
    }

    /// Two chains of two layers: each request passes a switch of each.
    #[test]
    fn a_request_counts_once_and_at_each_switch_that_it_passes() {
        let switch = |(index, layer)| SwitchStatus { index, layer, ..SwitchStatus::default() };
        let switches = [(0, 1), (1, 2), (2, 1), (3, 2), (4, 2)].map(switch).to_vec();
        let mut status = RackStatus { switches, ..RackStatus::default() };
        for (index, reads) in [(0, 10), (1, 8), (2, 30), (3, 29)] {
            status.complete(Peer::Switch(index), &counted(reads, 1));
        }
        let mut gateway = RackStatus::default();
        gateway.clients.connections = Some(2);
        for client in [7, 8] {
            status.complete(Peer::Client(client), &gateway);
        }
        let requests: Vec<_> = status.switches.iter().map(|switch| switch.requests).collect();
        assert_eq!(requests, [Some(11), Some(9), Some(31), Some(30), None]);
        let sum = status.operations.expect("two told");
        assert_eq!((sum.reads, sum.writes, status.clients.connections), (37, 2, Some(4)));
    }
}
