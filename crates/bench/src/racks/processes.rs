//! A rack of processes for the benchmark: one for the switch and one for each node, with UDP
//! between them. The controller is not on the data path; it is in this process, behind the same TCP
//! connections as in a process of its own.

use super::part::{self, Asker};
use super::session::BlockingSession;
use super::{Records, Watched};
use crate::process_guard::ProcessGuard;
use crate::rack::{BenchRack, ClientLinks, RackOptions, RackStatistics};
use crate::scratch::Scratch;
use crate::workload::Preload;
use anyhow::{Context, ensure};
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use switchback_core::controller::RecoveryTimes;
use switchback_net::{Clock, fill_with_free};
use switchback_rack::admin::RackStatus;
use switchback_rack::blueprint;
use switchback_rack::config::{Cache, Overrides, RackConfig};
use switchback_rack::parts::{ControllerPart, client_links};
use switchback_wire::{HashKey, KeyHash, Map, Scheme};

/// Time limit for the start of the rack.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct ProcessBench {
    switch: Option<ProcessGuard>,
    nodes: Vec<ProcessGuard>,
    controller: ControllerPart,
    watched: Watched,
    parts: Parts,
    /// Counters of the switches that were killed.
    counted: Counted,
    asker: Asker,
    /// The first error of reading a part's counters: the figures are too low then.
    unheard: OnceCell<String>,
    clients: u32,
    scratch: Scratch,
}

/// Arguments of the processes.
struct Parts {
    program: PathBuf,
    file: PathBuf,
    config: RackConfig,
    capacity_ops: Option<u64>,
}

/// Counters of a switch.
#[derive(Clone, Copy, Default)]
struct Counted {
    requests: u64,
    hits: u64,
    conservative_reads: u64,
    admissions: u64,
    evictions: u64,
    dropped: u64,
}

impl ProcessBench {
    pub(super) fn start(
        program: &Path,
        scheme: Scheme,
        options: &RackOptions,
    ) -> anyhow::Result<ProcessBench> {
        let capacity = options.node_capacity_ops;
        ensure!(
            capacity.is_none_or(|ops| ops.fract() == 0.0),
            "processes are capped at whole requests a second"
        );
        let scratch = Scratch::new(options.data.as_deref(), "bench")?;
        let file = scratch.join("rack.toml");
        std::fs::write(&file, described(scheme, options)?)
            .with_context(|| file.display().to_string())?;
        let mut config = RackConfig::load(Some(&file), &Overrides::default())?;
        config.client.lanes = options.lanes;
        let parts = Parts {
            program: program.to_path_buf(),
            file,
            config,
            capacity_ops: capacity.map(|ops| ops as u64),
        };
        let controller = ControllerPart::start_seeded(&parts.config, options.seed)?;
        let watched = Watched::new(controller.controller.clone())?;
        let nodes = parts.nodes()?;
        let switch = Some(parts.switch()?);
        let (counted, unheard) = (Counted::default(), OnceCell::new());
        let clients = options.clients;
        let rack = ProcessBench {
            switch,
            nodes,
            controller,
            watched,
            parts,
            counted,
            asker: Asker::default(),
            unheard,
            clients,
            scratch,
        };
        rack.wait_until_serving()?;
        Ok(rack)
    }

    fn wait_until_serving(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.controller.controller.call(|controller, _| controller.is_ready_for_clients())
            != Some(true)
        {
            ensure!(
                start.elapsed() < START_LIMIT,
                "the rack doesn't serve within {} s",
                START_LIMIT.as_secs()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The links of client `id`.
    fn links(&self, id: u64) -> anyhow::Result<ClientLinks> {
        let (uplink, control) = client_links(&self.parts.config, id, None)?;
        Ok(ClientLinks { id, uplink, control })
    }

    /// A part's status. If it can't be read, the error is kept, and the status is empty.
    fn status(&self, metrics: Option<SocketAddr>) -> RackStatus {
        self.asker.status(metrics).unwrap_or_else(|error| {
            self.unheard.get_or_init(|| format!("{error:#}"));
            RackStatus::default()
        })
    }

    fn counted(&self) -> Counted {
        let status = self.status(self.parts.config.switches[0].metrics);
        let operations = status.operations.unwrap_or_default();
        Counted {
            requests: self.counted.requests + operations.reads + operations.writes,
            hits: self.counted.hits + operations.answered_by_switch,
            conservative_reads: self.counted.conservative_reads + operations.conservative_reads,
            admissions: self.counted.admissions + status.cache.admissions.unwrap_or(0),
            evictions: self.counted.evictions + status.cache.evictions.unwrap_or(0),
            dropped: self.counted.dropped + operations.dropped,
        }
    }
}

/// `rack.toml` of the rack, whose data is beside it.
fn described(scheme: Scheme, options: &RackOptions) -> anyhow::Result<String> {
    let mut addresses =
        vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 3 + 2 * usize::from(options.nodes)];
    fill_with_free(&mut addresses).context("no free addresses for the parts")?;
    let mut addresses = addresses.into_iter();
    let mut address = || addresses.next().expect("as many were drawn as are asked for");
    let RackOptions { cache_records, snapshot_period_ms, .. } = *options;
    let (value_bytes, slots) = Cache::classes_of_one_size(cache_records, options.value_bytes)[0];
    // As in one process: parts are silent only if the machine stalls, so the rack never bypasses
    // the switch.
    let mut text = format!(
        "[rack]\nscheme = \"{}\"\ndata = \"data\"\nsnapshot_period_ms = {snapshot_period_ms}\n\
         switch_timeout_ms = 60000\n\
         [cache]\nrecords = {cache_records}\nclasses = [[{value_bytes}, {slots}]]\n\
         [controller]\nlisten = \"{}\"\nbypass_ms = 0\n",
        scheme,
        address()
    );
    for part in std::iter::once("switch").chain((0..options.nodes).map(|_| "node")) {
        let _infallible =
            writeln!(text, "[[{part}]]\naddress = \"{}\"\nmetrics = \"{}\"", address(), address());
    }
    Ok(text)
}

impl Parts {
    fn switch(&self) -> anyhow::Result<ProcessGuard> {
        self.part("switch", &[]).and_then(ready)
    }

    fn nodes(&self) -> anyhow::Result<Vec<ProcessGuard>> {
        let started: Vec<_> = (0..self.config.nodes.len()).map(|index| self.node(index)).collect();
        started.into_iter().map(|node| node.and_then(ready)).collect()
    }

    fn node(&self, index: usize) -> anyhow::Result<ProcessGuard> {
        let mut arguments = vec!["--index".to_owned(), index.to_string()];
        if let Some(ops) = self.capacity_ops {
            arguments.extend(["--capacity".to_owned(), ops.to_string()]);
        }
        self.part("node", &arguments)
    }

    fn part(&self, part: &str, arguments: &[String]) -> anyhow::Result<ProcessGuard> {
        part::start(&self.program, &self.file, part, arguments, Stdio::inherit())
    }
}

/// Waits until a part is ready.
fn ready(mut process: ProcessGuard) -> anyhow::Result<ProcessGuard> {
    let is_ready = part::wait_until_ready(&mut process)?.is_some();
    ensure!(is_ready, "a part of the rack doesn't start, as it says above");
    Ok(process)
}

impl BenchRack for ProcessBench {
    fn map(&self) -> Map {
        self.watched.map.clone()
    }

    fn hash_key(&self) -> HashKey {
        self.watched.hash_key
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        ensure!(index < self.clients, "more clients than the rack was started for");
        self.links(u64::from(index) + 1)
    }

    /// Records are written into the nodes' directories before the nodes start: requests over their
    /// sockets would be capped.
    fn load(&mut self, records: Preload) -> anyhow::Result<()> {
        self.nodes.clear();
        let open = |node| {
            let opened = blueprint::storage(&self.parts.config, node).open();
            opened.map(|(engine, _)| engine).with_context(|| format!("node {node}"))
        };
        let mut engines =
            (0..self.parts.config.nodes.len()).map(open).collect::<anyhow::Result<Vec<_>>>()?;
        let mut done = Vec::new();
        for (node, mut group) in Records::new(records, &self.watched) {
            engines[usize::from(node)].execute(&mut group, &mut done);
            if let Some(error) = done.drain(..).find_map(|done| done.result.err()) {
                return Err(error).context("loading records");
            }
        }
        drop(engines);
        self.nodes = self.parts.nodes()?;
        self.wait_until_serving()
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        let links = self.links(u64::from(self.clients) + 1)?;
        self.watched.fill_cache(&keys, BlockingSession::open(links, Clock::default())?)
    }

    fn cached(&self) -> Vec<KeyHash> {
        self.watched.cached()
    }

    fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        self.counted = self.counted();
        drop(self.switch.take()); // kill -9
        std::thread::sleep(restart);
        self.switch = Some(self.parts.switch()?);
        Ok(())
    }

    fn recovery(&self) -> Option<RecoveryTimes> {
        self.watched.recovery()
    }

    fn statistics(&self) -> RackStatistics {
        let served = |node: &switchback_rack::config::Node| {
            let status = self.status(node.metrics);
            status.nodes.iter().map(|node| node.reads.unwrap_or(0) + node.writes.unwrap_or(0)).sum()
        };
        let counted = self.counted();
        let (snapshots, snapshot_bytes) = self.watched.snapshots();
        RackStatistics {
            node_ops: self.parts.config.nodes.iter().map(served).collect(),
            hits: counted.hits,
            misses: counted.requests.saturating_sub(counted.hits),
            conservative_reads: counted.conservative_reads,
            admissions: counted.admissions,
            evictions: counted.evictions,
            dropped: counted.dropped,
            snapshots,
            snapshot_bytes,
        }
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let ProcessBench { switch, nodes, controller, unheard, scratch, .. } = *self;
        let parts = switch.into_iter().chain(nodes);
        let ended: Vec<_> =
            parts.filter_map(|mut part| part.ended().transpose()).collect::<Result<_, _>>()?;
        // Their data is removed, so they needn't shut down in order.
        controller.stop();
        drop(scratch);
        ensure!(ended.is_empty(), "a part of the rack ended before the run did: {}", ended[0]);
        let unheard = unheard.into_inner();
        ensure!(
            unheard.is_none(),
            "a part of the rack didn't say what it counted: {}",
            unheard.unwrap_or_default()
        );
        Ok(())
    }
}
