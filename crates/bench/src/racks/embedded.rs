//! An embedded rack for the benchmark: every part in threads of this process.

use super::session::BlockingSession;
use super::{Records, Watched, configured};
use crate::rack::{BenchRack, ClientLinks, RackOptions, RackStatistics};
use crate::scratch::Scratch;
use crate::workload::Preload;
use anyhow::Context;
use std::time::Duration;
use switchback_core::controller::RecoveryTimes;
use switchback_core::switch::AgentStatistics;
use switchback_rack::assembly::Assembly;
use switchback_rack::blueprint;
use switchback_rack::config::LinkKind;
use switchback_wire::{HashKey, KeyHash, Map, Scheme};

/// Sessions other than those of the benchmark: one that fills the cache.
const OWN_SESSIONS: u16 = 1;

pub(super) struct EmbeddedBench {
    assembly: Assembly,
    watched: Watched,
    clients: u16,
    scratch: Scratch,
}

impl EmbeddedBench {
    pub(super) fn start(
        scheme: Scheme,
        options: &RackOptions,
        links: LinkKind,
    ) -> anyhow::Result<EmbeddedBench> {
        let scratch = Scratch::new(options.data.as_deref(), "bench")?;
        let config = configured(scheme, options, scratch.path(), links)?;
        let clients = u16::try_from(options.clients).context("too many clients")?;
        let mut blueprint = blueprint::embedded(&config, clients + OWN_SESSIONS, options.seed);
        blueprint.seed = Some(options.seed);
        blueprint.node_capacity_ops = options.node_capacity_ops;
        let assembly = Assembly::start(blueprint)?;
        let watched = Watched::new(assembly.controller.clone())?;
        Ok(EmbeddedBench { assembly, watched, clients, scratch })
    }

    /// A session that the rack itself uses.
    fn session(&self) -> anyhow::Result<BlockingSession> {
        let id = u64::from(self.clients) + 1;
        let (uplink, control) = self.assembly.client(self.clients, id)?;
        BlockingSession::open(ClientLinks { id, uplink, control }, self.assembly.clock)
    }
}

impl BenchRack for EmbeddedBench {
    fn map(&self) -> Map {
        self.watched.map.clone()
    }

    fn hash_key(&self) -> HashKey {
        self.watched.hash_key
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        let client = u16::try_from(index).ok().filter(|client| *client < self.clients);
        let client = client.context("more clients than the rack was started for")?;
        let id = u64::from(client) + 1;
        let (uplink, control) = self.assembly.client(client, id)?;
        Ok(ClientLinks { id, uplink, control })
    }

    fn load(&mut self, records: Preload) -> anyhow::Result<()> {
        for (node, mut group) in Records::new(records, &self.watched) {
            let stored = self.assembly.nodes[usize::from(node)].call(move |engine| {
                let mut done = Vec::new();
                engine.execute(&mut group, &mut done);
                done.into_iter().find_map(|done| done.result.err())
            });
            if let Some(error) = stored.context("a node's thread ended")? {
                return Err(error).context("loading records");
            }
        }
        Ok(())
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        self.watched.fill_cache(&keys, self.session()?)
    }

    fn cached(&self) -> Vec<KeyHash> {
        self.watched.cached()
    }

    fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        self.assembly.replace_switch(restart)
    }

    fn recovery(&self) -> Option<RecoveryTimes> {
        self.watched.recovery()
    }

    fn statistics(&self) -> RackStatistics {
        let datapath = self.assembly.counted();
        let requests = datapath.read + datapath.write + datapath.delete;
        let of_agents = |count: fn(&AgentStatistics) -> u64| -> u64 {
            self.assembly.last_switches().map(|switch| count(&switch.agent.statistics())).sum()
        };
        let (snapshots, snapshot_bytes) = self.watched.snapshots();
        RackStatistics {
            node_ops: self.assembly.nodes.iter().map(|node| node.served()).collect(),
            hits: datapath.answered(),
            misses: requests.saturating_sub(datapath.answered()),
            conservative_reads: datapath.conservative_reads(),
            admissions: of_agents(|agent| agent.admitted),
            evictions: of_agents(|agent| agent.evicted),
            dropped: (self.assembly.dropped())() + datapath.drops.iter().sum::<u64>(),
            snapshots,
            snapshot_bytes,
        }
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let EmbeddedBench { assembly, scratch, .. } = *self;
        assembly.stop();
        drop(scratch);
        Ok(())
    }
}
