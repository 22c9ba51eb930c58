//! Racks for the benchmark: threads of one process, or a process for each part.

mod embedded;
pub(crate) mod part;
mod processes;
mod session;

use crate::rack::{BenchRack, Links, RackFactory, RackOptions};
use crate::workload::Preload;
use anyhow::{Context, ensure};
use embedded::EmbeddedBench;
use processes::ProcessBench;
use session::BlockingSession;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use switchback_core::controller::RecoveryTimes;
use switchback_core::storage::{EngineOp, PutCondition, Record, Source};
use switchback_rack::config::{Cache, LinkKind, Overrides, RackConfig};
use switchback_rack::threads::ControllerHandle;
use switchback_wire::{HashKey, KeyHash, Map, Scheme, Seq};

/// Records of one group while loading.
const LOAD_GROUP: usize = 2000;
/// Times that each key is read before a run, at most.
const READS_MAX: u32 = 8;
/// Lanes of the session that the rack itself uses.
const OWN_LANES: u32 = 256;
/// Time limit for admitting and filling keys.
const PRELOAD_LIMIT: Duration = Duration::from_secs(120);

/// Starts racks on this machine.
#[derive(Debug)]
pub struct LocalRacks {
    /// The program `switchback`, for a rack of processes.
    pub program: PathBuf,
}

impl RackFactory for LocalRacks {
    fn start(
        &mut self,
        scheme: Scheme,
        options: &RackOptions,
    ) -> anyhow::Result<Box<dyn BenchRack>> {
        check_lanes(options)?;
        Ok(match options.links {
            Links::Memory => Box::new(EmbeddedBench::start(scheme, options, LinkKind::Memory)?),
            Links::Udp => Box::new(EmbeddedBench::start(scheme, options, LinkKind::Udp)?),
            Links::Processes => Box::new(ProcessBench::start(&self.program, scheme, options)?),
        })
    }
}

/// The configuration of a rack in one process.
fn configured(
    scheme: Scheme,
    options: &RackOptions,
    data: &Path,
    links: LinkKind,
) -> anyhow::Result<RackConfig> {
    let overrides = Overrides {
        scheme: Some(scheme),
        nodes: Some(options.nodes),
        data: Some(data.to_path_buf()),
        links: Some(links),
        cache_records: Some(options.cache_records),
        layers: Some(options.layers),
        chains: Some(options.chains),
        ..Overrides::default()
    };
    let mut config = RackConfig::load(None, &overrides)?;
    config.rack.snapshot_period_ms = options.snapshot_period_ms;
    config.cache.classes = Cache::classes_of_one_size(options.cache_records, options.value_bytes);
    config.client.lanes = options.lanes;
    Ok(config)
}

/// An error at once instead of clients that wait for a session without end.
fn check_lanes(options: &RackOptions) -> anyhow::Result<()> {
    let all = RackConfig::load(None, &Overrides::default())?.controller.lanes;
    let wanted = u64::from(options.clients) * u64::from(options.lanes);
    ensure!(
        wanted + u64::from(OWN_LANES) <= u64::from(all),
        "{} clients with up to {} operations outstanding each want {wanted} lanes; a rack has \
         {all}, {OWN_LANES} of them its own: fewer --clients, or a smaller --outstanding",
        options.clients,
        options.lanes
    );
    Ok(())
}

/// The rack's controller, and what it tells of the rack.
struct Watched {
    controller: ControllerHandle,
    hash_key: HashKey,
    map: Map,
}

impl Watched {
    fn new(controller: ControllerHandle) -> anyhow::Result<Watched> {
        let found =
            controller.call(|controller, _| (controller.hash_key(), controller.map().clone()));
        let (hash_key, map) = found.context("the controller's thread ended")?;
        Ok(Watched { controller, hash_key, map })
    }

    fn node_of(&self, hash: &KeyHash) -> u16 {
        self.map.of(*hash).head()
    }

    /// Admits the keys and reads each of them until it is cached. Returns the number of cached
    /// keys.
    fn fill_cache(&self, keys: &[Vec<u8>], mut session: BlockingSession) -> anyhow::Result<usize> {
        let wanted = keys.to_vec();
        let asked = self.controller.call(move |controller, now| controller.preload(now, wanted));
        asked.context("the controller's thread ended")?;
        self.wait_for_admissions(keys.len())?;
        // The first read makes a record latest, and the second shows that the cache answers it; a
        // key whose admission took longer needs another read.
        let mut cached = session.read_all(keys)?;
        for _ in 1..READS_MAX {
            let before = std::mem::replace(&mut cached, session.read_all(keys)?);
            if cached == keys.len() || cached <= before {
                break;
            }
        }
        session.close();
        Ok(cached)
    }

    /// Waits until no more keys become cached.
    fn wait_for_admissions(&self, wanted: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        let (mut last, mut since) = (0, start);
        loop {
            let status = self.controller.call(|controller, now| controller.status(now));
            let status = status.context("the controller's thread ended")?;
            if status.cached != last {
                (last, since) = (status.cached, Instant::now());
            }
            // The cache is full, or its number of keys hasn't changed for a while: the rest doesn't
            // fit.
            if status.cached >= wanted || since.elapsed() > Duration::from_secs(2) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < PRELOAD_LIMIT,
                "only {} of {wanted} keys were admitted",
                status.cached
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn cached(&self) -> Vec<KeyHash> {
        let keys =
            self.controller.call(|controller, _| controller.cached_keys()).unwrap_or_default();
        keys.iter().map(|key| self.hash_key.hash(&key.key)).collect()
    }

    fn recovery(&self) -> Option<RecoveryTimes> {
        self.controller.call(|controller, now| controller.status(now).recovery)?
    }

    /// Number of snapshots that became durable, and the bytes of the last one.
    fn snapshots(&self) -> (u64, u64) {
        let snapshots = self.controller.call(|controller, now| {
            let status = controller.status(now);
            (status.snapshots_completed, status.snapshot_bytes)
        });
        snapshots.unwrap_or_default()
    }
}

/// Groups of records to store, each with the node that they belong to.
struct Records<'a> {
    records: Preload,
    watched: &'a Watched,
    groups: BTreeMap<u16, Vec<EngineOp>>,
}

impl Records<'_> {
    fn new(records: Preload, watched: &Watched) -> Records<'_> {
        Records { records, watched, groups: BTreeMap::new() }
    }
}

impl Iterator for Records<'_> {
    type Item = (u16, Vec<EngineOp>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((key, value)) = self.records.next_record() {
            let hash = self.watched.hash_key.hash(key);
            let node = self.watched.node_of(&hash);
            // Older than all writes of clients.
            let record = Record { seq: Seq::new(0, 1), value: value.to_vec(), ..Record::default() };
            let condition = PutCondition::Newer { known: true };
            let group = self.groups.entry(node).or_default();
            group.push(EngineOp::Put {
                id: 0,
                hash,
                key: key.to_vec(),
                record,
                condition,
                completion: None,
                source: Source::Client,
                unconfirmed: None,
            });
            if group.len() >= LOAD_GROUP {
                return Some((node, std::mem::take(group)));
            }
        }
        self.groups.pop_first()
    }
}
