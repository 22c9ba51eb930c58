//! What a seed's rack is mostly about. A swarm that draws everything independently provokes most
//! mechanisms, but some need several things at once (tiny caches *and* hot keys *and* packets
//! between the agent's steps); half of the seeds draw such a combination.
//!
//! A focus narrows distributions; it scripts nothing. Every focus is drawn without any ablation,
//! too, so what an ablation is caught with is known to be green with the mechanism in place.

use crate::plan::{FaultKind, Faults, Plan};
use crate::random::Random;
use std::str::FromStr;
use switchback_core::switch::LearningConfig;

/// A combination of draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Focus {
    /// Everything is drawn independently.
    Anything,
    /// Keys go in and out of a tiny cache all the time.
    Evictions,
    /// Switches die, or seem to, again and again.
    Switches,
    /// Switches and clients lose the controller, but not each other.
    Splits,
    /// Clients that only read are left behind with a switch that was taken for dead, while keys
    /// come and go.
    Stragglers,
    /// Nodes, controller and clients die again and again, while switches do now and then.
    Restarts,
    /// Snapshots of a busy cache, one after the other.
    Snapshots,
    /// The same, while switches die together with clients or the controller: all is lost that no
    /// snapshot holds.
    Losses,
    /// Disks fail and fill up, and nodes die of it.
    Disks,
    /// Clients die again and again, and the controller's disk is slow.
    Clients,
    /// Switches are away until clients send to the nodes.
    Bypass,
    /// Keys are deleted, tombstones are dropped at once, and packets arrive long after.
    Floors,
    /// Dirty records are stored while they are cached, slowly, and switches die.
    Cleanings,
    /// Switches are taken out of service, and back, while others die now and then.
    Maintenance,
    /// Backups are cut again and again, while keys go in and out of a tiny cache.
    Backups,
    /// Writes come to slow disks twice, while keys go in and out of a tiny cache.
    Repeats,
}

impl Focus {
    /// Those that narrow something.
    pub const NARROW: [Focus; 15] = [
        Focus::Evictions,
        Focus::Switches,
        Focus::Splits,
        Focus::Stragglers,
        Focus::Restarts,
        Focus::Snapshots,
        Focus::Losses,
        Focus::Disks,
        Focus::Clients,
        Focus::Bypass,
        Focus::Floors,
        Focus::Cleanings,
        Focus::Maintenance,
        Focus::Backups,
        Focus::Repeats,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Focus::Anything => "anything",
            Focus::Evictions => "evictions",
            Focus::Switches => "switches",
            Focus::Splits => "splits",
            Focus::Stragglers => "stragglers",
            Focus::Restarts => "restarts",
            Focus::Snapshots => "snapshots",
            Focus::Losses => "losses",
            Focus::Disks => "disks",
            Focus::Clients => "clients",
            Focus::Bypass => "bypass",
            Focus::Floors => "floors",
            Focus::Cleanings => "cleanings",
            Focus::Maintenance => "maintenance",
            Focus::Backups => "backups",
            Focus::Repeats => "repeats",
        }
    }

    /// Half of the seeds have one.
    pub(crate) fn draw(random: &mut Random) -> Focus {
        if random.chance(0.5) { *random.pick(&Focus::NARROW) } else { Focus::Anything }
    }

    /// Narrows what was drawn.
    pub(crate) fn narrow(self, plan: &mut Plan, random: &mut Random) {
        match self {
            Focus::Anything => return,
            Focus::Evictions => evictions(plan, random),
            Focus::Switches => switches(plan, random),
            Focus::Splits => splits(plan, random),
            Focus::Stragglers => stragglers(plan, random),
            Focus::Restarts => restarts(plan, random),
            Focus::Snapshots => snapshots(plan, random),
            Focus::Losses => losses(plan, random),
            Focus::Disks => disks(plan, random),
            Focus::Clients => clients(plan, random),
            Focus::Bypass => bypass(plan, random),
            Focus::Floors => floors(plan, random),
            Focus::Cleanings => cleanings(plan, random),
            Focus::Maintenance => maintenance(plan, random),
            Focus::Backups => backups(plan, random),
            Focus::Repeats => repeats(plan, random),
        }
        plan.load.operations = plan.load.operations.min(10_000);
    }
}

impl FromStr for Focus {
    type Err = String;
    fn from_str(name: &str) -> Result<Focus, String> {
        let mut known = Focus::NARROW.into_iter().chain([Focus::Anything]);
        known.find(|focus| focus.name() == name).ok_or_else(|| format!("'{name}' is no focus"))
    }
}

/// Few keys, all of them hot, and a cache that holds some of them.
fn hot_keys(plan: &mut Plan, random: &mut Random, cached: (u64, u64), more: (u64, u64)) {
    let records = random.between(cached.0, cached.1);
    plan.topology.cache_records = records as u32;
    for (_, slots) in &mut plan.topology.classes {
        *slots = records as u32 + random.below(2) as u32;
    }
    // What was counted once makes a key hot and is forgotten soon, so that keys take each other's
    // places all the time; or it takes more, and time for it.
    let threshold = random.between(1, 4) as u32;
    let forgotten_us = if threshold == 1 { (100, 20_000) } else { (100_000, 1_000_000) };
    plan.topology.learning = LearningConfig {
        period_us: random.logarithmic(100, 2_000),
        threshold,
        deviations: 0.0,
        sketch_width: plan.topology.sketch_width,
        ageing_misses: random.between(1, 4) as u32,
        ageing_us: random.logarithmic(forgotten_us.0, forgotten_us.1),
        ..LearningConfig::default()
    };
    plan.load.keys = (records + random.between(more.0, more.1)) as u32;
    plan.load.skew = *random.pick(&[0.0, 0.5, 0.99]);
    plan.load.long_keys = 0.0;
    plan.load.think_us = random.logarithmic(20, 1_000);
}

fn faults(kinds: &[(FaultKind, u64)], every_us: u64, lasts_us: u64, random: &mut Random) -> Faults {
    let weights =
        kinds.iter().map(|(kind, most)| (*kind, random.between(1, *most) as u32)).collect();
    Faults { every_us, weights, lasts_us }
}

fn evictions(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 4), (1, 6));
    plan.topology.eviction_sample = random.between(1, 2) as u32;
    plan.data.interleave = 1.0;
    plan.data.repeats = random.unit() * 0.5;
    plan.data.late = random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(200, 20_000);
    plan.times.floor_period_us = random.logarithmic(1_000, 20_000);
    plan.agents.command_us = random.logarithmic(20, 2_000);
    plan.agents.step_us = random.logarithmic(20, 1_000);
    plan.control.breaks = random.unit() * 0.05;
    plan.control.reconnect_us = random.logarithmic(200, 5_000);
    plan.times.controller_retry_us = random.logarithmic(500, 5_000);
    plan.load.mix[5] = 0.01;
    if random.chance(0.5) {
        plan.load.value_bytes = 1168;
        plan.topology.classes.truncate(2);
    }
    if random.chance(0.3) {
        // Few writes, so that packets outlive an eviction and the next admission without being
        // outdated.
        plan.load.mix = [1.0, 0.05, 0.0, 0.0, 0.0, 0.0];
        plan.data.late = 0.3;
        plan.data.late_us = random.logarithmic(2_000, 20_000);
        plan.agents.command_us = random.logarithmic(20, 200);
    }
}

fn repeats(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 4), (1, 3));
    plan.topology.clients = plan.topology.clients.clamp(3, 6);
    plan.load.threads = plan.load.threads.clamp(4, 8);
    plan.load.mix = [1.0, 1.0, 0.2 * random.unit(), 0.0, 0.1 * random.unit(), 0.0];
    plan.load.think_us = random.logarithmic(20, 200);
    plan.data.duplication = 0.3 + random.unit() * 0.3;
    plan.data.late = 0.1 + random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(200, 5_000);
    // Several writes of a key are under way in a node when it gets copies.
    plan.disks.commit_us = random.logarithmic(500, 5_000);
    plan.agents.command_us = random.logarithmic(20, 500);
    plan.agents.step_us = random.logarithmic(20, 500);
}

fn floors(plan: &mut Plan, random: &mut Random) {
    evictions(plan, random);
    plan.times.floor_period_us = random.logarithmic(300, 2_000);
    plan.times.node_retry_us = random.logarithmic(300, 1_000);
    plan.disks.compaction = 1.0;
    plan.data.late = 0.1 + random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(5_000, 50_000);
    plan.data.duplication = 0.1 + random.unit() * 0.2;
    plan.load.mix = [1.0, random.unit(), random.unit(), 0.3 * random.unit(), random.unit(), 0.0];
}

/// Short timeouts, so that a switch's death is noticed and recovered many times a run.
fn quick_recoveries(plan: &mut Plan, random: &mut Random) {
    plan.control.delay_us = random.logarithmic(10, 200);
    plan.control.jitter_us = random.logarithmic(1, 500);
    plan.times.heartbeat_us = random.logarithmic(1_000, 5_000);
    plan.times.switch_timeout_us =
        plan.times.heartbeat_us * 3 + 10 * (plan.control.delay_us + plan.control.jitter_us);
    plan.times.switch_lost_us =
        plan.times.heartbeat_us + random.logarithmic(1_000, 5_000) + plan.control.reconnect_us;
    plan.times.hello_us = random.logarithmic(1_000, 5_000);
    plan.times.controller_retry_us = random.logarithmic(500, 5_000);
    plan.disks.store_us = random.logarithmic(20, 2_000);
}

fn switches(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 16), (0, 4));
    quick_recoveries(plan, random);
    plan.topology.switches = random.between(1, 2) as u16;
    plan.times.snapshot_us = Some(random.logarithmic(5_000, 100_000));
    plan.disks.compaction = random.unit();
    if random.chance(0.3) {
        // Switches that die and come back while what they are told, and what they say, is on its
        // way.
        plan.control.delay_us = random.logarithmic(200, 3_000);
        plan.control.breaks = random.unit() * 0.1;
        plan.control.reconnect_us = random.logarithmic(100, 1_000);
        plan.times.heartbeat_us = random.logarithmic(5_000, 20_000);
        plan.times.switch_timeout_us =
            3 * plan.times.heartbeat_us + 10 * (plan.control.delay_us + plan.control.jitter_us);
        plan.times.switch_lost_us = plan.times.switch_timeout_us + plan.control.reconnect_us;
        let lasts_us = random.logarithmic(50, 500);
        // A switch that never lives until its clients have heard of it serves no request.
        let (times, store_us) = (&plan.times, plan.disks.store_us);
        let heard_us =
            4 * (plan.control.delay_us + store_us) + times.controller_retry_us + times.hello_us;
        let every_us = random.logarithmic(3_000, 30_000).max(heard_us);
        plan.faults = faults(&[(FaultKind::CrashSwitch, 1)], every_us, lasts_us, random);
        return;
    }
    let kinds = [
        (FaultKind::CrashSwitch, 8),
        (FaultKind::BreakConnections, 3),
        (FaultKind::SlowControl, 2),
    ];
    plan.faults =
        faults(&kinds, random.logarithmic(3_000, 100_000), random.logarithmic(100, 50_000), random);
}

fn cleanings(plan: &mut Plan, random: &mut Random) {
    switches(plan, random);
    plan.times.dirty_max_us = Some(random.logarithmic(200, 20_000));
    // A record changes while its node stores it.
    plan.disks.commit_us = random.logarithmic(50, 5_000);
    plan.load.mix[1] += 0.5;
}

fn maintenance(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 16), (0, 4));
    quick_recoveries(plan, random);
    plan.topology.switches = random.between(2, 3) as u16;
    let kinds = [
        (FaultKind::DrainSwitch, 8),
        (FaultKind::CrashSwitch, 1),
        (FaultKind::CrashController, 1),
        (FaultKind::BreakConnections, 1),
    ];
    plan.faults = faults(
        &kinds,
        random.logarithmic(10_000, 300_000),
        random.logarithmic(1_000, 200_000),
        random,
    );
}

fn backups(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 16), (0, 4));
    quick_recoveries(plan, random);
    plan.topology.clients = plan.topology.clients.clamp(2, 4);
    plan.load.threads = plan.load.threads.clamp(2, 6);
    plan.control.reconnect_us = random.logarithmic(50, 500);
    let kinds = [
        (FaultKind::CrashSwitch, 1),
        (FaultKind::CrashNode, 2),
        (FaultKind::CrashClient, 2),
        (FaultKind::CrashController, 1),
        (FaultKind::BreakConnections, 4),
        (FaultKind::PauseClient, 1),
        (FaultKind::PauseNode, 1),
        (FaultKind::PartitionControl, 4),
    ];
    plan.faults = faults(
        &kinds,
        random.logarithmic(50_000, 1_000_000),
        random.logarithmic(10_000, 1_000_000),
        random,
    );
}

fn splits(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 8), (1, 8));
    quick_recoveries(plan, random);
    plan.topology.switches = random.between(2, 3) as u16;
    plan.topology.clients = plan.topology.clients.clamp(3, 6);
    plan.agents.command_us = random.logarithmic(20, 2_000);
    plan.control.delay_us = random.logarithmic(100, 3_000);
    plan.times.switch_timeout_us =
        plan.times.heartbeat_us * 3 + 10 * (plan.control.delay_us + plan.control.jitter_us);
    plan.times.lease_us = random.logarithmic(20_000, 300_000) + 20 * plan.control.delay_us;
    plan.times.drift_us = plan.times.lease_us / 20;
    plan.times.spool_wait_us = random.logarithmic(20_000, 200_000);
    plan.control.breaks = random.unit() * 0.02;
    plan.control.reconnect_us = random.logarithmic(200, 5_000);
    plan.times.switch_lost_us = plan.times.switch_timeout_us + plan.control.reconnect_us;
    let kinds = [(FaultKind::Zombie, 8), (FaultKind::PauseClient, 2), (FaultKind::PauseSwitch, 2)];
    let lasts_us = plan.times.lease_us * random.between(1, 2);
    plan.faults = faults(&kinds, random.logarithmic(20_000, 200_000), lasts_us, random);
}

fn stragglers(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 4), (1, 4));
    quick_recoveries(plan, random);
    plan.topology.switches = random.between(2, 3) as u16;
    plan.topology.clients = plan.topology.clients.clamp(3, 6);
    plan.topology.eviction_sample = random.between(1, 2) as u32;
    plan.topology.learning.threshold = 1;
    plan.load.threads = plan.load.threads.clamp(4, 8);
    plan.load.think_us = random.logarithmic(500, 2_000);
    plan.load.operations = 10_000;
    plan.load.readers = 0.6;
    plan.load.mix = [1.0, 0.5, 0.2 * random.unit(), 0.0, 0.0, 0.0];
    // A client that waits for a switch which can't answer soon asks it for another key.
    plan.data.delay_us = random.logarithmic(2, 50);
    plan.data.jitter_us = random.logarithmic(1, 50);
    plan.disks.commit_us = random.logarithmic(5, 200);
    plan.times.client_retry_us = (500, 1_000);
    plan.times.deadline_us = random.logarithmic(4_000, 10_000);
    plan.agents.command_us = random.logarithmic(20, 200);
    plan.times.switch_timeout_us =
        plan.times.heartbeat_us * 3 + 10 * (plan.control.delay_us + plan.control.jitter_us);
    plan.times.lease_us =
        random.logarithmic(20_000, 100_000) + 20 * (plan.control.delay_us + plan.control.jitter_us);
    plan.times.drift_us = plan.times.lease_us / 20;
    plan.times.spool_wait_us = random.logarithmic(20_000, 100_000);
    plan.control.reconnect_us = random.logarithmic(200, 5_000);
    plan.times.switch_lost_us = plan.times.switch_timeout_us + plan.control.reconnect_us;
    plan.faults =
        faults(&[(FaultKind::Zombie, 1)], plan.times.lease_us, plan.times.lease_us, random);
}

fn restarts(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 8), (0, 6));
    quick_recoveries(plan, random);
    plan.topology.nodes = random.between(1, 2) as u16;
    plan.times.snapshot_us = Some(random.logarithmic(5_000, 100_000));
    plan.disks.store_us = random.logarithmic(20, 20_000);
    plan.data.late = random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(200, 50_000);
    let kinds = [
        (FaultKind::CrashNode, 8),
        (FaultKind::CrashController, 4),
        (FaultKind::CrashClient, 4),
        (FaultKind::CrashSwitch, 4),
        (FaultKind::CrashTwo, 4),
    ];
    let (every_us, lasts_us) =
        (random.logarithmic(3_000, 100_000), random.logarithmic(100, 20_000));
    // If more than one part is down all the time, nothing happens that could go wrong.
    plan.faults = faults(&kinds, every_us.max(lasts_us), lasts_us, random);
}

fn snapshots(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (4, 64), (0, 2));
    plan.times.snapshot_us = Some(random.logarithmic(5_000, 20_000));
    plan.agents.step_us = random.logarithmic(100, 5_000);
    plan.times.switch_timeout_us += busy_us(plan);
    plan.data.interleave = 1.0;
    plan.topology.reports = if random.chance(0.5) { random.between(2, 8) as u32 } else { 1024 };
    plan.load.threads = plan.load.threads.max(4);
    plan.load.mix[1] += 0.5;
}

/// For how long an agent that takes a snapshot may say nothing: it says hello between two steps.
/// One that is silent for longer than the timeout is taken for dead, and an epoch that ends without
/// a fault looks like a rack that doesn't come back to life.
fn busy_us(plan: &Plan) -> u64 {
    10 * plan.agents.step_us
}

fn losses(plan: &mut Plan, random: &mut Random) {
    snapshots(plan, random);
    hot_keys(plan, random, (2, 16), (0, 2));
    quick_recoveries(plan, random);
    plan.times.switch_timeout_us += busy_us(plan);
    plan.topology.nodes = 1;
    plan.topology.switches = random.between(1, 2) as u16;
    plan.topology.clients = plan.topology.clients.clamp(2, 4);
    plan.load.spooled = 0.0;
    plan.load.long_keys = 0.0;
    plan.disks.store_us = random.logarithmic(100, 20_000);
    let kinds =
        [(FaultKind::CrashTwo, 8), (FaultKind::CrashSwitch, 2), (FaultKind::CrashClient, 4)];
    plan.faults = faults(
        &kinds,
        random.logarithmic(10_000, 100_000),
        random.logarithmic(1_000, 20_000),
        random,
    );
}

fn disks(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 4), (0, 4));
    plan.topology.nodes = random.between(1, 2) as u16;
    plan.disks.commit_fails = random.unit() * 0.1;
    // Large groups: a commit that fails takes much with it.
    plan.disks.commit_us = random.logarithmic(50, 5_000);
    plan.load.threads = plan.load.threads.max(4);
    plan.load.mix[3] = random.unit();
    plan.load.mix[4] = random.unit();
    plan.data.loss = random.unit() * 0.3;
    let retry_us = random.logarithmic(300, 2_000);
    plan.times.client_retry_us = (retry_us, retry_us * 4);
    plan.data.late = random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(200, 20_000);
    let kinds = [(FaultKind::CrashNode, 8), (FaultKind::DiskFull, 8), (FaultKind::BitRot, 2)];
    plan.faults =
        faults(&kinds, random.logarithmic(1_000, 30_000), random.logarithmic(500, 20_000), random);
}

fn clients(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 16), (0, 4));
    quick_recoveries(plan, random);
    plan.topology.clients = plan.topology.clients.max(3);
    plan.load.spooled = *random.pick(&[0.0, 0.5, 1.0]);
    plan.disks.store_us = random.logarithmic(500, 5_000);
    plan.control.reconnect_us = random.logarithmic(50, 500);
    plan.times.hello_us = random.logarithmic(500, 3_000);
    plan.times.lease_us = random.logarithmic(20_000, 200_000);
    plan.times.drift_us = plan.times.lease_us / 20;
    let kinds = [(FaultKind::CrashClient, 8), (FaultKind::CrashSwitch, 1)];
    plan.faults =
        faults(&kinds, random.logarithmic(10_000, 100_000), random.logarithmic(50, 5_000), random);
}

fn bypass(plan: &mut Plan, random: &mut Random) {
    hot_keys(plan, random, (2, 8), (0, 4));
    quick_recoveries(plan, random);
    plan.topology.switches = 1;
    plan.times.bypass_us = Some(random.logarithmic(2_000, 50_000));
    plan.data.loss = random.unit() * 0.3;
    plan.data.late = random.unit() * 0.2;
    plan.data.late_us = random.logarithmic(200, 20_000);
    let kinds =
        [(FaultKind::CrashSwitch, 8), (FaultKind::CrashNode, 8), (FaultKind::CrashController, 2)];
    plan.faults = faults(
        &kinds,
        random.logarithmic(10_000, 100_000),
        random.logarithmic(5_000, 200_000),
        random,
    );
}
