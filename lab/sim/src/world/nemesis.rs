//! Faults: who breaks what, when, for how long.

use super::World;
use super::ending::Phase;
use crate::event::Event;
use crate::plan::{FaultKind, Faults};
use crate::random::Random;
use std::collections::BTreeMap;
use switchback_assembly::Part;

/// A fault that lasts.
enum Lasting {
    Crashed(Vec<Part>),
    /// The controller dies at its end, and comes back after as long.
    Doomed(u64),
    Blocked(Vec<(Part, Part)>),
    Stalled(Vec<Part>, bool),
    Slow,
    Lossy,
    SlowControl,
    /// Whose disk is full, and whether the node is killed and started again once it isn't.
    Full(u16, bool),
    Rotten(u16),
    /// A direction between two switches that is dead for the rest of the run.
    Dead(Part, Part),
    /// A switch that is out of service.
    Drained(u16),
    /// A node that is gone since then: it comes back with what it had, or with nothing.
    Lost(u16, u64),
}

/// Injects faults.
pub(super) struct Nemesis {
    plan: Faults,
    random: Random,
    lasting: Vec<Option<Lasting>>,
    /// How many of them last, since when none does, and for how long none did at the longest.
    under_way: u32,
    calm_since_us: u64,
    longest_calm_us: u64,
    /// The direction between two parts in which packets are lost for the rest of the run.
    dead_link: Option<(Part, Part)>,
    /// How often each kind struck.
    pub(super) counts: BTreeMap<FaultKind, u64>,
}

impl Nemesis {
    pub(super) fn new(plan: &Faults, random: Random) -> Nemesis {
        Nemesis {
            plan: plan.clone(),
            random,
            lasting: Vec::new(),
            under_way: 0,
            calm_since_us: 0,
            longest_calm_us: 0,
            dead_link: None,
            counts: BTreeMap::new(),
        }
    }

    fn begins(&mut self, now_us: u64, lasting: Lasting) -> u32 {
        self.longest_calm_us = self.longest_calm_us(now_us);
        self.under_way += 1;
        self.lasting.push(Some(lasting));
        (self.lasting.len() - 1) as u32
    }

    fn ends(&mut self, now_us: u64, fault: u32) -> Option<Lasting> {
        let lasting = self.lasting[fault as usize].take()?;
        self.under_way -= 1;
        self.calm_since_us = now_us;
        Some(lasting)
    }

    /// The longest time during which no fault lasted.
    pub(super) fn longest_calm_us(&self, now_us: u64) -> u64 {
        let calm_us = if self.under_way == 0 { now_us - self.calm_since_us } else { 0 };
        self.longest_calm_us.max(calm_us)
    }

    /// Until the next fault.
    pub(super) fn pause_us(&mut self) -> u64 {
        1 + self.random.exponential(self.plan.every_us)
    }

    fn draw(&mut self) -> FaultKind {
        let total: u32 = self.plan.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(total.into()) as u32;
        for (kind, weight) in &self.plan.weights {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        unreachable!("drawn below the total")
    }
}

impl World {
    /// How often each kind of fault struck.
    pub fn faults(&self) -> &BTreeMap<FaultKind, u64> {
        &self.nemesis.counts
    }

    /// What the networks did to packets and connections.
    pub fn network_faults(&self) -> [(&'static str, u64); 5] {
        let network = self.network.statistics;
        [
            ("packets_lost", network.lost),
            ("packets_duplicated", network.duplicated),
            ("packets_late", network.late),
            ("packets_blocked", network.blocked),
            ("connections_broken", self.control.broken),
        ]
    }

    /// The next fault.
    pub(super) fn strike(&mut self) {
        if self.phase != Phase::Safety {
            return;
        }
        let pause_us = self.nemesis.pause_us();
        self.queue.push(self.now_us + pause_us, Event::Nemesis);
        if !self.emptied.is_empty() {
            return; // no other part may be lost beside a node that has lost all
        }
        let kind = self.nemesis.draw();
        let lasts_us = 1 + self.nemesis.random.exponential(self.nemesis.plan.lasts_us);
        if let Some(lasting) = self.apply(kind, lasts_us) {
            *self.nemesis.counts.entry(kind).or_default() += 1;
            let fault = self.nemesis.begins(self.now_us, lasting);
            self.queue.push(self.now_us + lasts_us, Event::Ends(fault));
        }
    }

    fn pick(&mut self, parts: impl Fn(Part) -> bool) -> Option<Part> {
        let candidates: Vec<Part> = self.parts().into_iter().filter(|part| parts(*part)).collect();
        (!candidates.is_empty()).then(|| *self.nemesis.random.pick(&candidates))
    }

    /// Strikes; `None` if there is nothing to strike, or nothing that has to end.
    fn apply(&mut self, kind: FaultKind, lasts_us: u64) -> Option<Lasting> {
        let is_client = |part: Part| matches!(part, Part::Client(_));
        let is_switch = |part: Part| matches!(part, Part::Switch(_));
        let is_node = |part: Part| matches!(part, Part::Node(_));
        let is_controller = |part: Part| part == Part::Controller;
        self.trace.line(self.now_us, || format!("fault {} for {lasts_us} us", kind.name()));
        match kind {
            FaultKind::CrashSwitch => self.crash_one(is_switch).map(Lasting::Crashed),
            FaultKind::CrashNode => self.crash_one(is_node).map(Lasting::Crashed),
            FaultKind::CrashController => self.crash_one(is_controller).map(Lasting::Crashed),
            FaultKind::CrashClient => self.crash_one(is_client).map(Lasting::Crashed),
            FaultKind::PauseSwitch => self.pause_one(is_switch, lasts_us),
            FaultKind::PauseNode => self.pause_one(is_node, lasts_us),
            FaultKind::PauseController => self.pause_one(is_controller, lasts_us),
            FaultKind::PauseClient => self.pause_one(is_client, lasts_us),
            FaultKind::PartitionData => Some(self.partition(true)),
            FaultKind::PartitionOneWay => Some(self.partition(false)),
            FaultKind::PartitionControl => {
                let part = self.pick(|part| !is_controller(part))?;
                self.control.stall(self.now_us, self.numbers.number(part), true);
                Some(Lasting::Stalled(vec![part], self.nemesis.random.chance(0.5)))
            }
            FaultKind::Zombie => {
                // It may go on serving clients that haven't heard either.
                let active = self.active_switches();
                let mut alone = vec![self.pick(|part| {
                    is_switch(part) && (active.is_empty() || active.contains(&part))
                })?];
                let share = *self.nemesis.random.pick(&[0.0, 0.5, 0.5, 1.0]);
                for part in self.parts().into_iter().filter(|part| is_client(*part)) {
                    if self.nemesis.random.chance(share) {
                        alone.push(part);
                    }
                }
                for part in &alone {
                    self.control.stall(self.now_us, self.numbers.number(*part), true);
                }
                Some(Lasting::Stalled(alone, true))
            }
            FaultKind::CrashTwo => {
                let one = self.crash_one(|part| !is_client(part))?;
                let other = self.crash_one(|_| true);
                Some(Lasting::Crashed(one.into_iter().chain(other.into_iter().flatten()).collect()))
            }
            FaultKind::CrashMembers => self.crash_members(),
            FaultKind::CutNeighbours => {
                self.cut_neighbours().map(|cut| Lasting::Blocked(vec![cut]))
            }
            FaultKind::DeadLink => self.kill_link(),
            FaultKind::CrashDomain => self.crash_domain(),
            FaultKind::CutRecovery => self.cut_recovery(lasts_us),
            FaultKind::DrainSwitch => self.drain_switch(),
            FaultKind::LoseNode => match self.crash_one(is_node)?[..] {
                [Part::Node(node)] => Some(Lasting::Lost(node, self.now_us)),
                _ => None,
            },
            FaultKind::BitRot => {
                let Part::Node(node) = self.pick(is_node)? else { return None };
                self.rot_one(node).then_some(Lasting::Rotten(node))
            }
            FaultKind::BreakConnections => {
                for part in self.parts() {
                    if !is_controller(part) && self.nemesis.random.chance(0.5) {
                        self.break_connection(self.numbers.number(part));
                    }
                }
                Some(Lasting::Blocked(Vec::new()))
            }
            FaultKind::DelaySpike => {
                self.network.slower = self.nemesis.random.logarithmic(2, 100);
                Some(Lasting::Slow)
            }
            FaultKind::LossBurst => {
                self.network.extra_loss = 0.2 + 0.8 * self.nemesis.random.unit();
                Some(Lasting::Lossy)
            }
            FaultKind::SlowControl => {
                self.control.slower = self.nemesis.random.logarithmic(2, 100);
                Some(Lasting::SlowControl)
            }
            FaultKind::DiskFull => {
                let Part::Node(node) = self.pick(is_node)? else { return None };
                self.nodes[usize::from(node)].engine.set_full(true);
                Some(Lasting::Full(node, self.nemesis.random.chance(0.5)))
            }
        }
    }

    fn crash_one(&mut self, parts: impl Fn(Part) -> bool) -> Option<Vec<Part>> {
        let running: Vec<Part> =
            self.parts().into_iter().filter(|part| self.is_running(*part)).collect();
        let part = self.pick(|part| parts(part) && running.contains(&part))?;
        self.crash_part(part);
        Some(vec![part])
    }

    /// The switches that serve, as the controller sees it.
    fn active_switches(&self) -> Vec<Part> {
        let Some(controller) = &self.controller.controller else { return Vec::new() };
        let status = controller.status(self.now(Part::Controller));
        let active = status.switches.iter().filter(|switch| switch.active);
        active.map(|switch| Part::Switch(switch.index)).collect()
    }

    /// Damages a record of a node where it is stored. (It is mended when the fault ends, as from a
    /// backup.)
    fn rot_one(&mut self, node: u16) -> bool {
        let slot = &self.nodes[usize::from(node)];
        let count = slot.engine.records().count() as u64;
        if count == 0 {
            return false;
        }
        let at = self.nemesis.random.below(count) as usize;
        let (hash, key) = slot
            .engine
            .records()
            .nth(at)
            .map(|(hash, key, _)| (*hash, key.to_vec()))
            .expect("counted");
        self.nodes[usize::from(node)].engine.rot(&hash, &key)
    }

    fn pause_one(&mut self, parts: impl Fn(Part) -> bool, lasts_us: u64) -> Option<Lasting> {
        let part = self.pick(parts)?;
        let until_us = &mut self.paused_until_us[usize::from(self.numbers.number(part))];
        *until_us = (*until_us).max(self.now_us + lasts_us);
        Some(Lasting::Blocked(Vec::new()))
    }

    fn partition(&mut self, both_ways: bool) -> Lasting {
        let mut cut = Vec::new();
        let alone = self.parts();
        let alone: Vec<Part> =
            alone.into_iter().filter(|_| self.nemesis.random.chance(0.3)).collect();
        for from in self.parts() {
            for to in self.parts() {
                if alone.contains(&from) && !alone.contains(&to) {
                    cut.push((from, to));
                    if both_ways {
                        cut.push((to, from));
                    }
                }
            }
        }
        self.block(&cut, true);
        Lasting::Blocked(cut)
    }

    /// Blocks these directions, or undoes it.
    fn block(&mut self, cut: &[(Part, Part)], blocks: bool) {
        for (from, to) in cut {
            self.network.block(self.numbers.number(*from), self.numbers.number(*to), blocks);
        }
    }

    /// A direction between two neighbours of a chain.
    fn cut_neighbours(&mut self) -> Option<(Part, Part)> {
        let members = self.draw_chain()?;
        let pairs: Vec<_> = members.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if pairs.is_empty() {
            return None;
        }
        let (one, other) = *self.nemesis.random.pick(&pairs);
        let cut = if self.nemesis.random.chance(0.5) { (one, other) } else { (other, one) };
        self.block(&[cut], true);
        Some(cut)
    }

    /// A direction between two neighbours of a chain, for good. Only once: a rack needn't serve if
    /// no two switches hear each other.
    fn kill_link(&mut self) -> Option<Lasting> {
        if self.nemesis.counts.contains_key(&FaultKind::DeadLink) {
            return None;
        }
        self.cut_neighbours().map(|(from, to)| Lasting::Dead(from, to))
    }

    /// Some of a chain's members, or all.
    fn crash_members(&mut self) -> Option<Lasting> {
        let mut members = self.draw_chain()?;
        members.retain(|member| self.is_running(*member));
        let spared = self.nemesis.random.below(members.len() as u64 + 1) as usize;
        for _ in 0..spared.min(members.len().saturating_sub(1)) {
            let at = self.nemesis.random.below(members.len() as u64) as usize;
            members.remove(at);
        }
        members.iter().for_each(|member| self.crash_part(*member));
        (!members.is_empty()).then_some(Lasting::Crashed(members))
    }

    /// All switches of a failure domain.
    fn crash_domain(&mut self) -> Option<Lasting> {
        let domain = self.nemesis.random.below(self.plan.topology.domains.into()) as u16;
        let topology = &self.plan.topology;
        let of_domain = (0..topology.switches).filter(|it| topology.domain_of(*it) == domain);
        let mut switches: Vec<_> = of_domain.map(Part::Switch).collect();
        switches.retain(|switch| self.is_running(*switch));
        switches.iter().for_each(|switch| self.crash_part(*switch));
        (!switches.is_empty()).then_some(Lasting::Crashed(switches))
    }

    /// Some of a chain's members die, and the controller at some moment of the recovery.
    fn cut_recovery(&mut self, lasts_us: u64) -> Option<Lasting> {
        let lasting = self.crash_members();
        if lasting.is_some() && self.is_running(Part::Controller) {
            let times = &self.plan.times;
            let noticed_us = times.switch_lost_us.min(times.switch_timeout_us);
            let after_us = noticed_us + self.nemesis.random.logarithmic(10, 100_000);
            let fault = self.nemesis.begins(self.now_us, Lasting::Doomed(lasts_us));
            self.queue.push(self.now_us + after_us, Event::Ends(fault));
        }
        lasting
    }

    /// An operator takes a switch out of service, if another one can go on.
    fn drain_switch(&mut self) -> Option<Lasting> {
        let active = self.active_switches();
        let Part::Switch(switch) = self.pick(|part| match active.is_empty() {
            true => matches!(part, Part::Switch(_)),
            false => active.contains(&part),
        })?
        else {
            return None;
        };
        let now = self.now(Part::Controller);
        let drained = self.controller.controller.as_mut()?.drain_switch(now, switch, None);
        self.pump_controller();
        drained.is_ok().then_some(Lasting::Drained(switch))
    }

    fn add_switch(&mut self, switch: u16) {
        let now = self.now(Part::Controller);
        if let Some(controller) = &mut self.controller.controller {
            // It isn't known if it was never heard of in this run of the controller.
            let _ = controller.add_switch(now, switch);
            self.pump_controller();
        }
    }

    /// All switches come back into service, also those of which a controller that died had not
    /// stored it.
    pub(super) fn add_switches(&mut self) {
        let Some(controller) = &self.controller.controller else { return };
        let switches = controller.status(self.now(Part::Controller)).switches;
        for switch in switches.iter().filter(|switch| switch.drained) {
            self.add_switch(switch.index);
        }
    }

    /// The members of a chain, as the controller sees it.
    fn draw_chain(&mut self) -> Option<Vec<Part>> {
        let now = self.now(Part::Controller);
        let chains = self.controller.controller.as_ref()?.chain_statuses(now);
        let members = &self.nemesis.random.pick(&chains).members;
        (!members.is_empty()).then(|| members.iter().copied().map(Part::Switch).collect())
    }

    pub(super) fn fault_ends(&mut self, fault: u32) {
        let Some(lasting) = self.nemesis.ends(self.now_us, fault) else { return };
        match lasting {
            Lasting::Crashed(parts) => {
                for part in parts {
                    if !self.is_running(part) {
                        self.start_part(part);
                    }
                }
            }
            Lasting::Doomed(lasts_us) => {
                if self.is_running(Part::Controller) && !self.is_healed() {
                    self.crash_part(Part::Controller);
                    let crashed = Lasting::Crashed(vec![Part::Controller]);
                    let fault = self.nemesis.begins(self.now_us, crashed);
                    self.queue.push(self.now_us + lasts_us, Event::Ends(fault));
                }
            }
            Lasting::Blocked(cut) => self.block(&cut, false),
            Lasting::Dead(from, to) => self.nemesis.dead_link = Some((from, to)),
            Lasting::Stalled(parts, breaks) => {
                for part in parts {
                    if breaks {
                        self.break_connection(self.numbers.number(part));
                    }
                    for (place, at_us) in
                        self.control.stall(self.now_us, self.numbers.number(part), false)
                    {
                        self.queue.push(at_us, Event::Message(place));
                    }
                }
            }
            Lasting::Slow => self.network.slower = 1,
            Lasting::Lossy => self.network.extra_loss = 0.0,
            Lasting::SlowControl => self.control.slower = 1,
            Lasting::Full(node, dies) => {
                if dies && self.is_running(Part::Node(node)) && !self.is_healed() {
                    self.crash_part(Part::Node(node));
                    self.start_part(Part::Node(node));
                }
                self.nodes[usize::from(node)].engine.set_full(false);
            }
            Lasting::Rotten(node) => self.nodes[usize::from(node)].engine.mend(),
            Lasting::Drained(switch) => self.add_switch(switch),
            Lasting::Lost(node, _) if self.is_running(Part::Node(node)) => {}
            Lasting::Lost(node, since_us) => {
                if self.nemesis.random.chance(0.7) && self.may_lose_disk(node, since_us) {
                    self.lose_disk(node);
                    if self.map.numbers_of(node).contains(&true) {
                        self.emptied.insert(node);
                    }
                }
                self.start_part(Part::Node(node));
            }
        }
    }

    /// Whether what a node has that is gone since then may be lost: no partition needs it, and the
    /// controller knows it; or each has another member, all other parts are well, and the
    /// controller doesn't count on the node meanwhile.
    fn may_lose_disk(&self, node: u16, since_us: u64) -> bool {
        let Some(controller) = &self.controller.controller else { return false };
        if !self.controller.is_idle() {
            return false;
        }
        let of_node = self.map.partitions().iter().filter(|it| it.replicas.contains(&node));
        let mut members = of_node.map(|it| controller.members_of(it.number));
        let is_well = |part: Part| {
            let is_paused = self.paused_until_us[usize::from(self.numbers.number(part))];
            part == Part::Node(node) || (self.is_running(part) && is_paused <= self.now_us)
        };
        let nodes = (0..self.nodes.len() as u16).map(Part::Node);
        let are_well = self.nemesis.under_way == 0
            && nodes.chain([Part::Controller]).all(is_well)
            && self.emptied.is_empty()
            && self.now_us >= since_us + self.plan.times.node_timeout_us;
        !self.map.numbers_of(node).contains(&true)
            || (are_well && members.all(|members| members != [node]))
    }

    /// All faults are over.
    pub(super) fn heal(&mut self) {
        for fault in 0..self.nemesis.lasting.len() as u32 {
            self.fault_ends(fault);
        }
        self.network.heal();
        self.control.heal();
        self.links.heal();
        // What routes around it serves without it.
        let dead_link = self.nemesis.dead_link;
        self.block(dead_link.as_slice(), true);
    }

    /// When the last pause is over. It isn't cut short by the end of faults: what waits in the
    /// sockets of a part that pauses must not be overtaken by what is sent later.
    pub(super) fn pauses_end_us(&self) -> u64 {
        self.paused_until_us.iter().copied().max().unwrap_or(0)
    }
}
