//! What a seed draws: rack, times, network, disks, load, faults. Every seed is another rack ("swarm
//! testing"): a mechanism that is never provoked by one mixture is provoked by the next.

use crate::ablation::Ablation;
use crate::check::Checks;
use crate::focus::Focus;
use crate::parts::{CHAINS_MAX, LAYERS_MAX, PARTS};
use crate::random::Random;
use switchback_assembly::{Cache, Limits, Rack, Times};
use switchback_core::controller::{ControlBudget, OnLoss, Preserve};
use switchback_core::switch::LearningConfig;
use switchback_wire::{SEQ_COUNTER_BITS, Scheme};

/// The parts and the cache.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Nodes.
    pub nodes: u16,
    /// Replicas of each partition at first.
    pub replicas: u16,
    /// Clients.
    pub clients: u16,
    /// Switches.
    pub switches: u16,
    /// Chains of switches, of one in each layer: the others are spares.
    pub chains: u16,
    /// Layers: switches of a chain.
    pub layers: u8,
    /// Failure domains, to which the switches belong in turn.
    pub domains: u16,
    /// Whether clients preserve what switches in several of them have.
    pub preserve: Preserve,
    /// Partitions of the key space.
    pub partitions: u32,
    /// Size classes: value bytes and slots.
    pub classes: Vec<(u32, u32)>,
    /// Keys that the cache may hold.
    pub cache_records: u32,
    /// How hot keys are found.
    pub learning: LearningConfig,
    /// Counters in a row of the sketch.
    pub sketch_width: u32,
    /// Reports that may wait for an agent.
    pub reports: u32,
    /// Lanes of a session.
    pub lanes: u32,
    /// Candidates of an eviction.
    pub eviction_sample: u32,
    /// What admissions and evictions may cost.
    pub control_budget: ControlBudget,
    /// A node remembers few fences and offers: room for the offers of a full cache and for more
    /// that wait.
    pub few_marks: bool,
    /// Where an epoch's sequence counters begin while there are faults: epochs are renewed when
    /// they run out.
    pub sequence_start: u64,
}

impl Topology {
    /// The failure domain of a switch.
    pub fn domain_of(&self, switch: u16) -> u16 {
        switch % self.domains
    }

    /// Keys that a node offers at most.
    fn marks_max(&self) -> usize {
        if self.few_marks {
            8 + 4 * self.cache_records as usize
        } else {
            Limits::default().marks_max
        }
    }
}

/// How fast the agents are, in microseconds.
#[derive(Clone, Debug)]
pub struct Agents {
    /// Until one gets to a command.
    pub command_us: u64,
    /// How often one looks at reports.
    pub poll_us: u64,
    /// Between two steps of a snapshot.
    pub step_us: u64,
}

/// How wrong the parts' clocks are.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Millionths by which one is too fast or slow at most.
    pub drift_ppm: i64,
    /// Milliseconds by which the date of one is off at most.
    pub skew_ms: i64,
}

/// The data plane's network.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct DataNetwork {
    pub delay_us: u64,
    pub jitter_us: u64,
    pub loss: f64,
    pub duplication: f64,
    /// Share of packets that are held up for up to `late_us`.
    pub late: f64,
    pub late_us: u64,
    /// Share of packets that wait for a switch's agent to be in the middle of something.
    pub interleave: f64,
    /// Share of an agent's packets that end an entry that are injected once more, late: a channel
    /// to the pipeline may repeat them.
    pub repeats: f64,
}

/// The control plane's network.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct ControlNetwork {
    pub delay_us: u64,
    pub jitter_us: u64,
    /// Share of messages upon which the connection breaks.
    pub breaks: f64,
    pub reconnect_us: u64,
}

/// Disks of nodes, controller and spools.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Disks {
    pub commit_us: u64,
    pub store_us: u64,
    pub spool_us: u64,
    /// Share of commits that fail.
    pub commit_fails: f64,
    /// How likely an engine compacts between two looks at the world.
    pub compaction: f64,
}

/// What the clients' applications do.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many keys.
    pub keys: u32,
    /// Exponent of the keys' popularity.
    pub skew: f64,
    /// Threads of each client, each with one operation at a time.
    pub threads: u16,
    /// Mean pause of a thread between two operations.
    pub think_us: u64,
    /// Shares of reads, writes, deletes, read-modify-writes, conditional writes that guess, scans.
    pub mix: [f64; 6],
    /// Longest value that fits a packet.
    pub value_bytes: u64,
    /// Share of writes that go in fragments, and how long those get.
    pub large: (f64, u64),
    /// Share of writes that expire, and after how many milliseconds at most.
    pub expiring: (f64, u64),
    /// Share of keys that are too long for the cache.
    pub long_keys: f64,
    /// Share of clients that only read.
    pub readers: f64,
    /// Share of clients that keep a spool.
    pub spooled: f64,
    /// Operations in all.
    pub operations: u64,
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum FaultKind {
    CrashSwitch,
    CrashNode,
    CrashController,
    CrashClient,
    PauseSwitch,
    PauseNode,
    PauseController,
    PauseClient,
    PartitionData,
    PartitionOneWay,
    PartitionControl,
    BreakConnections,
    DelaySpike,
    LossBurst,
    SlowControl,
    DiskFull,
    Zombie,
    CrashTwo,
    BitRot,
    CrashMembers,
    CutNeighbours,
    CrashDomain,
    CutRecovery,
    DeadLink,
    DrainSwitch,
    LoseNode,
}

impl FaultKind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = FaultKind> {
        let planned = [FaultKind::DrainSwitch, FaultKind::LoseNode];
        FaultKind::ANYWHERE.into_iter().chain(FaultKind::IN_LAYERS).chain(planned)
    }

    /// Those of chains with several layers.
    pub const IN_LAYERS: [FaultKind; 5] = [
        FaultKind::CrashMembers,
        FaultKind::CutNeighbours,
        FaultKind::CrashDomain,
        FaultKind::CutRecovery,
        FaultKind::DeadLink,
    ];

    /// Those of every rack.
    pub const ANYWHERE: [FaultKind; 19] = [
        FaultKind::CrashSwitch,
        FaultKind::CrashNode,
        FaultKind::CrashController,
        FaultKind::CrashClient,
        FaultKind::PauseSwitch,
        FaultKind::PauseNode,
        FaultKind::PauseController,
        FaultKind::PauseClient,
        FaultKind::PartitionData,
        FaultKind::PartitionOneWay,
        FaultKind::PartitionControl,
        FaultKind::BreakConnections,
        FaultKind::DelaySpike,
        FaultKind::LossBurst,
        FaultKind::SlowControl,
        FaultKind::DiskFull,
        FaultKind::Zombie,
        FaultKind::CrashTwo,
        FaultKind::BitRot,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::CrashSwitch => "crash_switch",
            FaultKind::CrashNode => "crash_node",
            FaultKind::CrashController => "crash_controller",
            FaultKind::CrashClient => "crash_client",
            FaultKind::PauseSwitch => "pause_switch",
            FaultKind::PauseNode => "pause_node",
            FaultKind::PauseController => "pause_controller",
            FaultKind::PauseClient => "pause_client",
            FaultKind::PartitionData => "partition_data",
            FaultKind::PartitionOneWay => "partition_one_way",
            FaultKind::PartitionControl => "partition_control",
            FaultKind::BreakConnections => "break_connections",
            FaultKind::DelaySpike => "delay_spike",
            FaultKind::LossBurst => "loss_burst",
            FaultKind::SlowControl => "slow_control",
            FaultKind::DiskFull => "disk_full",
            FaultKind::Zombie => "zombie_switch",
            FaultKind::CrashTwo => "crash_two",
            FaultKind::BitRot => "bit_rot",
            FaultKind::CrashMembers => "crash_members",
            FaultKind::CutNeighbours => "cut_neighbours",
            FaultKind::CrashDomain => "crash_domain",
            FaultKind::CutRecovery => "cut_recovery",
            FaultKind::DeadLink => "dead_link",
            FaultKind::DrainSwitch => "drain_switch",
            FaultKind::LoseNode => "lose_node",
        }
    }
}

/// The faults beside those of the networks.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Mean time between two; 0: none.
    pub every_us: u64,
    /// Which ones, each as likely as its weight says.
    pub weights: Vec<(FaultKind, u32)>,
    /// Mean time that one lasts.
    pub lasts_us: u64,
}

/// Everything that a seed draws.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What the cache does.
    pub scheme: Scheme,
    /// What it is mostly about.
    pub focus: Focus,
    /// What is left out.
    pub ablation: Ablation,
    /// What is checked.
    pub checks: Checks,
    /// Parts and cache.
    pub topology: Topology,
    /// Times.
    pub times: Times,
    /// Pace of the agents.
    pub agents: Agents,
    /// Clocks.
    pub clocks: Clocks,
    /// Data plane.
    pub data: DataNetwork,
    /// Control plane.
    pub control: ControlNetwork,
    /// Disks.
    pub disks: Disks,
    /// Load.
    pub load: Load,
    /// Faults.
    pub faults: Faults,
    /// How often an operator asks for a backup; 0: never.
    pub backup_every_us: u64,
    /// The safety phase ends then at the latest, whatever was done.
    pub safety_us: u64,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64, scheme: Scheme, ablation: Ablation) -> Plan {
        let mut random = Random::new(seed);
        let topology = draw_topology(&mut random);
        let (mut times, agents, clocks) = draw_times(&mut random);
        let data = draw_data(&mut random);
        let control = ControlNetwork {
            delay_us: random.logarithmic(10, 2_000),
            jitter_us: random.logarithmic(1, 5_000),
            breaks: if random.chance(0.4) { random.unit() * 0.01 } else { 0.0 },
            reconnect_us: random.logarithmic(1_000, 50_000),
        };
        let disks = Disks {
            commit_us: random.logarithmic(5, 3_000),
            store_us: random.logarithmic(20, 20_000),
            spool_us: random.logarithmic(5, 3_000),
            commit_fails: if random.chance(0.15) { random.unit() * 0.02 } else { 0.0 },
            compaction: 0.02,
        };
        // A timeout that ordinary delays exceed would end every epoch as soon as it begins.
        times.switch_timeout_us += 10 * (control.delay_us + control.jitter_us);
        times.switch_lost_us += 3 * (control.delay_us + control.jitter_us) + control.reconnect_us;
        times.lease_us += 20 * (control.delay_us + control.jitter_us);
        times.drift_us = times.lease_us / 20;
        let load = draw_load(&mut random, topology.clients);
        let faults = draw_faults(&mut random, topology.switches);
        let safety_us = 20_000_000;
        let focus = Focus::draw(&mut random);
        let focus = ablation.focus.unwrap_or(focus);
        let checks = Checks::ALL;
        let mut plan = Plan {
            seed,
            scheme,
            focus,
            ablation,
            checks,
            topology,
            times,
            agents,
            clocks,
            data,
            control,
            disks,
            load,
            faults,
            backup_every_us: 0,
            safety_us,
        };
        focus.narrow(&mut plan, &mut random);
        if focus == Focus::Anything {
            // By the default deviations keys of a short run hardly ever take each other's place. A
            // focus favours one kind of event, which a budget's delays would make rarer.
            plan.topology.learning.deviations = *random.pick(&[0.0, 3.0]);
            let records = plan.topology.cache_records;
            plan.topology.control_budget = draw_control_budget(records, &mut random);
        }
        // Delays of hot keys, too, make events rarer that a focus favours; but a controller's
        // restart must meet what a node defers.
        let longest_us = |focuses: &[Focus]| if focuses.contains(&focus) { 5_000 } else { 50 };
        let (all, restarts, repeats) = (Focus::Anything, Focus::Restarts, Focus::Repeats);
        plan.times.node_defer_us = random.logarithmic(1, longest_us(&[all, restarts, repeats]));
        plan.times.eviction_pause_us = random.logarithmic(1, longest_us(&[all]));
        // A switch more for each. Evictions that meet are rarer where fewer keys share a cache.
        if focus != Focus::Evictions && random.chance(0.5) {
            plan.topology.chains = random.between(2, CHAINS_MAX) as u16;
            plan.topology.switches += plan.topology.chains - 1;
        }
        if scheme.layers_max() > 1 {
            draw_layers(&mut plan, &mut random, scheme);
        }
        if scheme.has_copies() {
            // What a dead link between a spine and a leaf has lost is sent again to the leaf, once
            // that is due: not after the deadline.
            plan.times.deadline_us = plan.times.deadline_us.max(4 * plan.times.client_retry_us.1);
        }
        // What is clean shows nothing of how dirty records are kept, which is what other focuses
        // are about.
        if focus == Focus::Anything && random.chance(0.5) {
            plan.times.dirty_max_us = Some(random.logarithmic(1_000, 300_000));
        }
        // Operators take switches out of service, and back.
        if focus == Focus::Anything && plan.faults.every_us > 0 && random.chance(0.4) {
            plan.faults.weights.push((FaultKind::DrainSwitch, random.between(1, 8) as u32));
        }
        if focus == Focus::Backups || (focus == Focus::Anything && random.chance(0.3)) {
            plan.backup_every_us = random.logarithmic(10_000, 1_000_000);
            plan.times.backup_flush_us = random.logarithmic(1_000, 500_000);
        }
        if ablation.replicated { plan.replicated() } else { plan }
    }

    /// The same with two or three replicas of each partition, if the scheme can have them. Nodes
    /// may be lost for good; no epoch is without a switch, and no backup is made.
    pub fn replicated(mut self) -> Plan {
        if self.scheme.has_copies() || self.topology.replicas > 1 {
            return self;
        }
        let mut random = Random::new(self.seed ^ 0x4e91_1ca5);
        let nodes = u64::from(self.topology.nodes).max(random.between(2, 4));
        self.topology.nodes = nodes as u16;
        self.topology.replicas = random.between(2, nodes.min(3)) as u16;
        self.times.bypass_us = None;
        self.backup_every_us = 0;
        let delays_us = self.control.delay_us + self.control.jitter_us;
        let least_us = 3 * self.times.heartbeat_us + 10 * delays_us;
        // Some racks lose nodes at once that are only slow, others hardly any.
        self.times.node_timeout_us = random.logarithmic(least_us, 20 * least_us + 2_000_000);
        if self.ablation.replicated && self.faults.every_us > 0 {
            self.faults.weights.push((FaultKind::LoseNode, 8));
            self.times.node_timeout_us = random.logarithmic(least_us, 4 * least_us);
        }
        if self.faults.every_us > 0 && random.chance(0.5) {
            self.faults.weights.push((FaultKind::LoseNode, random.between(1, 4) as u32));
        }
        self
    }

    /// What its parts are made with.
    pub fn rack(&self) -> Rack {
        let topology = &self.topology;
        Rack {
            scheme: self.scheme,
            nodes: topology.nodes,
            replicas: topology.replicas,
            chains: topology.chains,
            layers: topology.layers,
            partitions: topology.partitions,
            lanes: topology.lanes * u32::from(topology.clients),
            session_lanes: topology.lanes,
            cache: Cache {
                records: topology.cache_records,
                classes: topology.classes.clone(),
                eviction_sample: topology.eviction_sample,
                sketch_width: topology.sketch_width,
                learning: topology.learning,
                reports: topology.reports,
            },
            times: self.times.clone(),
            limits: Limits {
                control_budget: topology.control_budget,
                marks_max: topology.marks_max(),
                ..Limits::default()
            },
            preserve: topology.preserve,
            on_loss: OnLoss::Declare,
            mechanisms: self.ablation.mechanisms,
            left_out: self.ablation.features,
        }
    }

    /// A small rack without any fault, the seed of which decides only what the clients do.
    pub fn calm(seed: u64, scheme: Scheme) -> Plan {
        let mut plan = Plan::draw(seed, scheme, Ablation::NOTHING);
        plan.data = DataNetwork { delay_us: 20, jitter_us: 5, ..DataNetwork::default() };
        plan.control =
            ControlNetwork { delay_us: 50, jitter_us: 10, breaks: 0.0, reconnect_us: 1_000 };
        plan.disks = Disks {
            commit_us: 30,
            store_us: 200,
            spool_us: 50,
            commit_fails: 0.0,
            compaction: 0.02,
        };
        plan.faults = Faults::default();
        plan
    }

    /// The same with loss, duplication and reordering on the data plane.
    pub fn lossy(seed: u64, scheme: Scheme) -> Plan {
        let mut plan = Plan::calm(seed, scheme);
        plan.data = DataNetwork {
            delay_us: 20,
            jitter_us: 60,
            loss: 0.1,
            duplication: 0.1,
            late: 0.05,
            late_us: 5_000,
            interleave: 0.5,
            repeats: 0.1,
        };
        plan
    }
}

fn draw_topology(random: &mut Random) -> Topology {
    let nodes = if random.chance(0.7) {
        random.between(1, 3)
    } else {
        random.between(1, PARTS.nodes.into())
    } as u16;
    let cache_records = match random.below(4) {
        0 | 1 => random.between(2, 8),
        2 => random.between(2, 64),
        _ => random.logarithmic(16, 4096),
    } as u32;
    let class_sets: [&[u32]; 5] =
        [&[1168], &[64, 1168], &[128, 256, 512, 1168], &[16, 300], &[128]];
    let slots = (cache_records + random.below(4) as u32).max(2);
    let sketch_width = 64 << random.below(5);
    let classes = random.pick(&class_sets).iter().map(|bytes| (*bytes, slots)).collect();
    Topology {
        nodes,
        replicas: 1,
        clients: if random.chance(0.6) {
            random.between(2, 4)
        } else {
            random.between(1, PARTS.clients.into())
        } as u16,
        switches: *random.pick(&[1, 1, 2, 3]),
        chains: 1,
        layers: 1,
        domains: 1,
        preserve: Preserve::Auto,
        partitions: 16 << random.below(5),
        classes,
        cache_records,
        learning: draw_learning(sketch_width, random),
        sketch_width,
        reports: if random.chance(0.2) { random.between(2, 8) as u32 } else { 1024 },
        lanes: random.between(1, 16) as u32,
        eviction_sample: random.between(1, 8) as u32,
        control_budget: ControlBudget::default(),
        few_marks: random.chance(0.2),
        sequence_start: draw_sequence_start(random),
    }
}

/// Halved seldom or often, counted wholly or in part, admitted one by one or all at once.
fn draw_learning(sketch_width: u32, random: &mut Random) -> LearningConfig {
    LearningConfig {
        period_us: random.logarithmic(500, 10_000),
        threshold: random.logarithmic(1, 30) as u32,
        sampling: *random.pick(&[1.0, 1.0, 0.5]),
        counted_per_s: random.logarithmic(1_000, 1_000_000) as u32,
        admissions_per_s: random.logarithmic(100, 100_000) as u32,
        deviations: LearningConfig::default().deviations,
        sketch_width,
        ageing_misses: random.logarithmic(1, 64) as u32,
        // Longer than a single client needs to make a key hot.
        ageing_us: random.logarithmic(1_000_000, 10_000_000),
    }
}

/// Now and then admissions and evictions have to wait for their budget, of messages or of bytes. It
/// brings within seconds what it costs to evict a whole cache.
fn draw_control_budget(cache_records: u32, random: &mut Random) -> ControlBudget {
    let (usual, records) = (ControlBudget::default(), u64::from(cache_records));
    let messages_per_s = 4 * records + random.logarithmic(100, 5_000);
    let bytes_per_s = 1_000 * records + random.logarithmic(20_000, 500_000);
    match random.below(6) {
        0 => ControlBudget { messages_per_s, ..usual },
        1 => ControlBudget { bytes_per_s, ..usual },
        _ => usual,
    }
}

/// Now and then an epoch's numbers are soon half used, nearly used, or used up.
fn draw_sequence_start(random: &mut Random) -> u64 {
    let all = 1u64 << SEQ_COUNTER_BITS;
    match random.below(30) {
        0 => all / 2 - random.logarithmic(1, 1000),
        1 => all / 8 * 7 - random.logarithmic(1, 1000),
        2 => all - random.logarithmic(100, 10_000),
        _ => 0,
    }
}

fn draw_times(random: &mut Random) -> (Times, Agents, Clocks) {
    let lease_us = random.logarithmic(60_000, 2_000_000);
    let heartbeat_us = random.logarithmic(3_000, 20_000);
    let retry_us = random.logarithmic(300, 20_000);
    let node_retry_us = random.logarithmic(2_000, 50_000);
    let clocks = Clocks {
        drift_ppm: if random.chance(0.5) { 20_000 } else { 100 },
        skew_ms: if random.chance(0.3) { random.between(1, 50) as i64 } else { 0 },
    };
    let times = Times {
        heartbeat_us,
        node_retry_us,
        lease_us,
        // Clocks that differ by 4 % at most, and a bound of 5 %.
        drift_us: lease_us / 20,
        spool_wait_us: random.logarithmic(100_000, 3_000_000),
        switch_timeout_us: heartbeat_us * random.between(3, 10),
        switch_lost_us: random.logarithmic(1_000, 30_000),
        snapshot_us: Some(random.logarithmic(5_000, 1_000_000)),
        controller_retry_us: random.logarithmic(2_000, 50_000),
        client_retry_us: (retry_us, retry_us * random.between(2, 50)),
        deadline_us: random.logarithmic(100_000, 3_000_000),
        hello_us: random.logarithmic(3_000, 30_000),
        dirty_max_us: None,
        ..Times::default()
    };
    let command_us = random.logarithmic(1, 500);
    let times = Times {
        bypass_us: Some(random.logarithmic(10_000, 3_000_000)),
        floor_period_us: random.logarithmic(5_000, 2_000_000),
        ..times
    };
    let agents = Agents {
        command_us,
        poll_us: random.logarithmic(50, 20_000),
        step_us: random.logarithmic(1, 500),
    };
    (Times { quiet_us: random.logarithmic(1_000, 100_000), ..times }, agents, clocks)
}

fn draw_data(random: &mut Random) -> DataNetwork {
    let rate = |random: &mut Random, high: f64| match random.below(4) {
        0 => 0.0,
        1 => random.unit() * high,
        _ => random.unit() * high / 20.0,
    };
    DataNetwork {
        delay_us: random.logarithmic(2, 200),
        jitter_us: random.logarithmic(1, 300),
        loss: rate(random, 0.3),
        duplication: rate(random, 0.3),
        late: rate(random, 0.2),
        late_us: random.logarithmic(200, 100_000),
        interleave: if random.chance(0.7) { random.unit() } else { 0.0 },
        repeats: if random.chance(0.3) { random.unit() * 0.3 } else { 0.0 },
    }
}

/// Several layers, at times with a spare for some or each of them, and what may happen to chains.
fn draw_layers(plan: &mut Plan, random: &mut Random, scheme: Scheme) {
    let layers = random.between(2, LAYERS_MAX.min(scheme.layers_max().into()));
    let spares = if random.chance(0.5) { random.between(1, layers) } else { 0 };
    plan.topology.layers = layers as u8;
    plan.topology.domains = if random.chance(0.6) { random.between(2, 3) } else { 1 } as u16;
    if random.chance(0.1) {
        plan.topology.preserve = Preserve::Always;
    }
    plan.times.witness_wait_us = random.logarithmic(10_000, 3_000_000);
    plan.topology.switches = plan.topology.chains * layers as u16 + spares as u16;
    if plan.faults.every_us > 0 {
        for kind in FaultKind::IN_LAYERS {
            if random.chance(0.5) {
                plan.faults.weights.push((kind, random.between(1, 8) as u32));
            }
        }
    }
    plan.times.link_pause_us = random.logarithmic(50_000, 5_000_000);
}

fn draw_load(random: &mut Random, clients: u16) -> Load {
    let keys = match random.below(4) {
        0 => random.between(3, 6),
        1 | 2 => random.logarithmic(3, 100),
        _ => random.logarithmic(100, 4000),
    } as u32;
    // Each kind of operation is left out now and then, so that what it would hide shows.
    let mut mix = [0.0; 6];
    for (share, (chance, high)) in mix.iter_mut().zip([
        (0.97, 1.0),
        (0.95, 1.0),
        (0.5, 0.3),
        (0.45, 0.5),
        (0.3, 0.3),
        (0.3, 0.01),
    ]) {
        *share = if random.chance(chance) { random.unit() * high } else { 0.0 };
    }
    mix[1] += 0.05;
    let threads = random.between(1, if clients > 4 { 4 } else { 12 }) as u16;
    Load {
        keys,
        skew: *random.pick(&[0.0, 0.5, 0.99, 0.99, 1.3]),
        threads,
        think_us: random.logarithmic(20, 20_000),
        mix,
        value_bytes: *random.pick(&[8, 40, 130, 300, 1168]),
        large: if random.chance(0.2) {
            (random.unit() * 0.1, random.logarithmic(1_200, 60_000))
        } else {
            (0.0, 2_000)
        },
        expiring: if random.chance(0.2) {
            (random.unit() * 0.5, random.logarithmic(1, 500))
        } else {
            (0.0, 1)
        },
        long_keys: if random.chance(0.1) { 0.2 } else { 0.0 },
        readers: 0.0,
        spooled: *random.pick(&[0.0, 0.0, 0.5, 1.0]),
        operations: random.logarithmic(2_000, 30_000),
    }
}

fn draw_faults(random: &mut Random, switches: u16) -> Faults {
    if random.chance(0.1) {
        return Faults::default();
    }
    let mut weights = Vec::new();
    for kind in FaultKind::ANYWHERE {
        let possible = switches > 1 || kind != FaultKind::Zombie;
        if possible && random.chance(0.4) {
            weights.push((kind, random.between(1, 8) as u32));
        }
    }
    if weights.is_empty() {
        weights.push((FaultKind::CrashSwitch, 1));
    }
    let every_us = random.logarithmic(10_000, 1_500_000);
    // With more than some ten faults at a time no request is served.
    let lasts_us = random.logarithmic(1_000, 500_000).min(10 * every_us);
    Faults { every_us, weights, lasts_us }
}
