//! Embedded racks for the benchmark.

use crate::assembly::Assembly;
use crate::blueprint;
use crate::config::{Cache, LinkKind, Overrides, RackConfig, Scheme};
use crate::session::BlockingSession;
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switchback_bench::rack::{
    BenchRack, ClientLinks, Links, RackFactory, RackOptions, RackStatistics, Scheme as BenchScheme,
};
use switchback_bench::workload::Preload;
use switchback_core::client::ClientConfig;
use switchback_core::controller::RecoveryTimes;
use switchback_core::storage::{Engine, EngineOp, PutCondition, Record};
use switchback_wire::{HashKey, KeyHash, Seq, partition_of};

/// Records of one group while loading.
const LOAD_GROUP: usize = 2000;
/// Sessions beside those of the benchmark: one that fills the cache.
const OWN_SESSIONS: u16 = 1;
/// How long keys may take to be admitted and filled.
const PRELOAD_LIMIT: Duration = Duration::from_secs(120);

/// Starts embedded racks.
#[derive(Debug, Default)]
pub struct EmbeddedFactory;

struct EmbeddedBench {
    assembly: Assembly,
    hash_key: HashKey,
    routes: Vec<Vec<u16>>,
    clients: u16,
    data: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl RackFactory for EmbeddedFactory {
    fn start(&mut self, scheme: BenchScheme, options: &RackOptions) -> anyhow::Result<Box<dyn BenchRack>> {
        let (data, temporary) = empty_directory(options.data.as_deref())?;
        let overrides = Overrides {
            scheme: Some(match scheme {
                BenchScheme::NoCache => Scheme::NoCache,
                BenchScheme::NetCache => Scheme::NetCache,
                BenchScheme::FarReach => Scheme::FarReach,
            }),
            nodes: Some(options.nodes),
            data: Some(data.clone()),
            links: Some(match options.links {
                Links::Memory => LinkKind::Memory,
                Links::Udp => LinkKind::Udp,
            }),
            cache_records: Some(options.cache_records),
            ..Overrides::default()
        };
        let mut config = RackConfig::load(None, &overrides)?;
        config.rack.snapshot_period_ms = options.snapshot_period_ms;
        config.cache.classes = Cache::classes_of_one_size(options.cache_records, options.value_bytes);
        config.client.lanes = options.lanes;
        let clients = u16::try_from(options.clients).context("too many clients")?;
        let mut blueprint = blueprint::embedded(&config, clients + OWN_SESSIONS, options.seed);
        blueprint.seed = Some(options.seed);
        blueprint.node_capacity_ops = options.node_capacity_ops;
        blueprint.controller.lanes.1 = options.lanes.max(1);
        let assembly = Assembly::start(blueprint)?;
        let (hash_key, routes) = assembly
            .controller
            .call(|controller, _| (controller.hash_key(), controller.routes().to_vec()))
            .context("the controller's thread ended")?;
        Ok(Box::new(EmbeddedBench { assembly, hash_key, routes, clients, data, _temporary: temporary }))
    }
}

/// The directory asked for, which must be empty or not exist, or a temporary one.
fn empty_directory(wanted: Option<&Path>) -> anyhow::Result<(PathBuf, Option<tempfile::TempDir>)> {
    let Some(wanted) = wanted else {
        let temporary = tempfile::Builder::new().prefix("switchback-bench-").tempdir()?;
        return Ok((temporary.path().to_path_buf(), Some(temporary)));
    };
    std::fs::create_dir_all(wanted).with_context(|| format!("--data {}", wanted.display()))?;
    let empty = std::fs::read_dir(wanted)?.next().is_none();
    ensure!(empty, "--data {}: a benchmark wants an empty directory, so that it can leave it empty", wanted.display());
    Ok((wanted.to_path_buf(), None))
}

impl EmbeddedBench {
    /// A session of the rack's own.
    fn session(&self) -> anyhow::Result<BlockingSession> {
        let id = u64::from(self.clients) + 1;
        let (uplink, control) = self.assembly.client(self.clients, id)?;
        BlockingSession::open(
            ClientConfig { lanes: 256, ..ClientConfig::default() },
            uplink,
            control,
            self.assembly.clock,
        )
    }

    /// Waits until as many keys are cached as can be.
    fn wait_for_admissions(&self, wanted: usize) -> anyhow::Result<usize> {
        let start = std::time::Instant::now();
        let (mut last, mut since) = (0, start);
        loop {
            let status = self.assembly.controller.call(|controller, now| controller.status(now));
            let status = status.context("the controller's thread ended")?;
            if status.cached != last {
                (last, since) = (status.cached, std::time::Instant::now());
            }
            // Full, or nothing has moved for a while: the rest doesn't fit.
            if status.cached >= wanted || since.elapsed() > Duration::from_secs(2) {
                return Ok(status.cached);
            }
            ensure!(start.elapsed() < PRELOAD_LIMIT, "only {} of {wanted} keys were admitted", status.cached);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl BenchRack for EmbeddedBench {
    fn routes(&self) -> Vec<Vec<u16>> {
        self.routes.clone()
    }

    fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        let client = u16::try_from(index).ok().filter(|client| *client < self.clients);
        let client = client.context("more clients than the rack was started for")?;
        let id = u64::from(client) + 1;
        let (uplink, control) = self.assembly.client(client, id)?;
        Ok(ClientLinks { id, uplink, control })
    }

    fn load(&mut self, mut records: Preload) -> anyhow::Result<()> {
        let mut groups: BTreeMap<u16, Vec<EngineOp>> = BTreeMap::new();
        while let Some((key, value)) = records.next_record() {
            let hash = self.hash_key.hash(key);
            let node = self.routes[usize::from(partition_of(&hash, self.routes.len() as u32))][0];
            // Older than anything a client will write.
            let record = Record { seq: Seq::new(0, 1), value: value.to_vec(), ..Record::default() };
            let condition = PutCondition::Newer { known: true };
            let group = groups.entry(node).or_default();
            group.push(EngineOp::Put { id: 0, hash, key: key.to_vec(), record, condition, completion: None });
            if group.len() >= LOAD_GROUP {
                let group = std::mem::take(group);
                self.store(node, group)?;
            }
        }
        for (node, group) in groups {
            self.store(node, group)?;
        }
        Ok(())
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        let wanted = keys.clone();
        let asked = self.assembly.controller.call(move |controller, now| controller.preload(now, wanted));
        asked.context("the controller's thread ended")?;
        self.wait_for_admissions(keys.len())?;
        // Twice: the first read makes a record latest, the second proves it.
        let mut session = self.session()?;
        session.read_all(&keys)?;
        let cached = session.read_all(&keys)?;
        session.close();
        Ok(cached)
    }

    fn cached(&self) -> Vec<KeyHash> {
        let keys = self.assembly.controller.call(|controller, _| controller.cached_keys()).unwrap_or_default();
        keys.iter().map(|key| self.hash_key.hash(&key.key)).collect()
    }

    fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        self.assembly.replace_switch(restart)
    }

    fn recovery(&self) -> Option<RecoveryTimes> {
        self.assembly.controller.call(|controller, now| controller.status(now).recovery)?
    }

    fn statistics(&self) -> RackStatistics {
        let datapath = self.assembly.pipeline.statistics();
        let agent = self.assembly.agent.statistics();
        let snapshots = self.assembly.controller.call(|controller, now| {
            let status = controller.status(now);
            (status.snapshots_completed, status.snapshot_bytes)
        });
        let (snapshots, snapshot_bytes) = snapshots.unwrap_or_default();
        RackStatistics {
            node_ops: self.assembly.nodes.iter().map(|node| node.served()).collect(),
            hits: datapath.read_hits + datapath.write_hits - datapath.fenced_reads,
            misses: datapath.read_misses + datapath.write_misses + datapath.fenced_reads,
            conservative_reads: datapath.fenced_reads,
            admissions: agent.admitted,
            evictions: agent.evicted,
            dropped: (self.assembly.dropped())() + datapath.drops.iter().sum::<u64>(),
            snapshots,
            snapshot_bytes,
        }
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let EmbeddedBench { assembly, data, _temporary, .. } = *self;
        assembly.stop();
        if _temporary.is_none() {
            for entry in std::fs::read_dir(&data)? {
                let path = entry?.path();
                std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl EmbeddedBench {
    /// Stores a group past the switch.
    fn store(&self, node: u16, mut group: Vec<EngineOp>) -> anyhow::Result<()> {
        let stored = self.assembly.nodes[usize::from(node)].call(move |engine| {
            let mut done = Vec::new();
            engine.execute(&mut group, &mut done);
            done.into_iter().find_map(|done| done.result.err())
        });
        match stored.context("a node's thread ended")? {
            None => Ok(()),
            Some(error) => Err(error).context("loading records"),
        }
    }
}
