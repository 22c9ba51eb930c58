//! How the agent has keys counted, and when it asks for another epoch.

use switchback_core::Now;
use switchback_core::control::{
    Command, CommandId, Entry, Location, SwitchCommand, SwitchConfig, SwitchReport, SwitchResult,
};
use switchback_core::switch::{Agent, AgentConfig, Counting, LearningConfig, Target, carry_out};
use switchback_core::topology::ChainId;
use switchback_wire::{Address, KeyHash, Map, Op, Packet, Place};

const RECORDS: u32 = 3;

/// A datapath that does what it is asked, and remembers what it was told of counting.
#[derive(Default)]
struct CountingTarget {
    told: Vec<Counting>,
    halvings: u64,
    admitted_with: Vec<u64>,
    counter: u32,
    misses: u64,
    requests: u64,
    sequence_used: u32,
}

impl Target for CountingTarget {
    fn inject(&mut self, packet: &mut Packet) -> bool {
        let header = packet.parse().unwrap().header;
        match header.op {
            Op::AgeSketch if header.location == 0 => self.halvings += header.guard,
            Op::Admit => self.admitted_with.push(header.guard),
            Op::LoadCounters => packet.fill(&header, &self.counter.to_be_bytes(), &[0]),
            _ => {}
        }
        true
    }

    fn lookup_insert(&mut self, _: &KeyHash, _: Location) -> bool {
        true
    }

    fn lookup_remove(&mut self, _: &KeyHash, _: Location) {}

    fn clear(&mut self) {}

    fn set_map(&mut self, _: &Map) {}

    fn set_node(&mut self, _: u16, _: Address) {}

    fn set_place(&mut self, _: &Place) {}

    fn set_lanes(&mut self, _: u32) {}

    fn set_counting(&mut self, counting: Counting) -> u32 {
        let before = self.told.last().map_or(0, |counting| counting.offers);
        self.told.push(counting);
        before
    }

    fn next_report(&mut self, _: &mut Packet) -> bool {
        false
    }

    fn misses(&self) -> u64 {
        self.misses
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn sequence_used(&self) -> u32 {
        self.sequence_used
    }

    fn classes(&self) -> Vec<(u32, u32)> {
        vec![(128, RECORDS + 1)]
    }

    fn sketch_width(&self) -> u32 {
        64
    }
}

/// An agent that is configured, and its datapath.
struct Switch {
    agent: Agent,
    target: CountingTarget,
    now: Now,
    commands: CommandId,
}

impl Switch {
    fn new() -> Switch {
        let learning =
            LearningConfig { sketch_width: 64, ageing_misses: 16, ..LearningConfig::default() };
        let config = AgentConfig { learning, records: RECORDS as usize, ..AgentConfig::default() };
        let now = Now { monotonic_us: 1, unix_ms: 1 };
        let agent = Agent::new(1, Address::default(), config, now);
        let mut switch = Switch { agent, target: CountingTarget::default(), now, commands: 0 };
        let config = SwitchConfig {
            boot: 1,
            place: Place::sole(),
            generation: 1,
            lanes: 1,
            map: Map::equal(vec![vec![0]]),
            nodes: Vec::new(),
        };
        switch.command(SwitchCommand::Configure(config));
        switch
    }

    fn command(&mut self, body: SwitchCommand) {
        self.commands += 1;
        let command = Command { id: self.commands, chain: ChainId::new(0), epoch: 1, body };
        self.agent.handle_message(self.now, command);
        carry_out(&mut self.agent, self.now, &mut self.target);
    }

    fn admit(&mut self, keys: std::ops::Range<u32>) {
        let entry = |key: u32| {
            let hash = KeyHash([key as u8; 16]);
            Entry {
                id: u64::from(key) + 1,
                at: Location { class: 0, slot: key },
                hash,
                key: vec![key as u8],
                count: 7 + key,
            }
        };
        self.command(SwitchCommand::Admit(keys.map(entry).collect()));
    }

    /// Time passes, until the agent has looked at what was counted twice.
    fn pass(&mut self) -> Counting {
        for _ in 0..2 {
            self.now.monotonic_us += 5_000;
            self.tick();
        }
        *self.target.told.last().unwrap()
    }

    fn tick(&mut self) {
        self.agent.handle_timeout(self.now);
        carry_out(&mut self.agent, self.now, &mut self.target);
    }
}

#[test]
fn the_first_count_is_enough_while_there_is_room_and_more_than_a_victim_in_a_full_cache() {
    let mut switch = Switch::new();
    let counting = switch.pass();
    assert_eq!(counting.threshold, 1);
    assert!(counting.offers > 0, "{counting:?}");
    switch.admit(0..RECORDS);
    assert_eq!(switch.target.admitted_with, [7, 8, 9], "what was counted before");
    switch.target.counter = 1_000;
    for _ in 0..20 {
        let candidates = vec![1, 2, 3];
        switch.command(SwitchCommand::EvictBegin { candidates, counts: vec![5], waiting: 1 });
    }
    let threshold = switch.pass().threshold;
    assert!((1_000..1_200).contains(&threshold), "{threshold}");
    switch.command(SwitchCommand::Remove(vec![1]));
    switch.now.monotonic_us += 100_000;
    assert_eq!(switch.pass().threshold, 1, "there is room again");
}

/// Keys replace each other that are asked for equally often, until the agent has seen that.
#[test]
fn exchanges_that_gain_nothing_come_to_an_end() {
    let mut switch = Switch::new();
    let (mut evicted, mut spared) = (0, false);
    for round in 0..1_000 {
        let ids = 3 * round + 1..=3 * round + 3;
        let entry = |id: u64| Entry {
            id,
            at: Location { class: 0, slot: id as u32 },
            hash: KeyHash((u128::from(id)).to_be_bytes()),
            key: id.to_be_bytes().to_vec(),
            count: 0,
        };
        switch.command(SwitchCommand::Admit(ids.clone().map(entry).collect()));
        switch.target.counter += 16;
        // The newcomer that is watched stays, as the spared victim does.
        let candidates: Vec<_> = ids.skip(usize::from(spared)).collect();
        let counts = vec![switch.target.counter + 60; candidates.len()];
        while switch.agent.poll_message().is_some() {}
        let (wanted, waiting) = (candidates.len(), 3);
        switch.command(SwitchCommand::EvictBegin { candidates, counts, waiting });
        let evicting = |report| match report {
            SwitchReport::Done { result: SwitchResult::Evicting(evicting), .. } => Some(evicting),
            _ => None,
        };
        let chosen = std::iter::from_fn(|| switch.agent.poll_message()).find_map(evicting).unwrap();
        if chosen.is_empty() {
            break;
        }
        spared = chosen.len() < wanted;
        evicted += chosen.len();
        switch.command(SwitchCommand::Remove(chosen.into_iter().map(|(id, _)| id).collect()));
        switch.target.misses += 64;
        switch.pass();
    }
    assert!((100..500).contains(&evicted), "{evicted}");
}

#[test]
fn counts_are_halved_by_misses() {
    let mut switch = Switch::new();
    switch.target.misses += 1_023;
    switch.pass();
    assert_eq!((switch.target.halvings, switch.agent.statistics().ageings), (0, 0));
    switch.target.misses += 1;
    switch.pass();
    assert_eq!((switch.target.halvings, switch.agent.statistics().ageings), (1, 1));
}

/// Fails if sequence numbers run out because nothing else was going on.
#[test]
fn another_epoch_is_asked_for_at_a_quiet_moment_or_when_it_is_needed() {
    let mut switch = Switch::new();
    let mut says = |used: u32, requests: u64| {
        switch.now.monotonic_us += AgentConfig::default().quiet_us;
        (switch.target.sequence_used, switch.target.requests) =
            (used, switch.target.requests + requests);
        switch.tick();
        let hello = |report| match report {
            SwitchReport::Hello { needs_epoch, .. } => Some(needs_epoch),
            _ => None,
        };
        std::iter::from_fn(|| switch.agent.poll_message()).filter_map(hello).last().unwrap()
    };
    assert!(!says(0, 1000));
    assert!(!says(128, 1000), "busy");
    assert!(!says(0, 10), "numbers enough");
    assert!(!says(223, 1000));
    assert!(says(128, 10), "quiet");
    assert!(says(224, 1000), "they run out");
}
