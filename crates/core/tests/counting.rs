//! How the agent counts misses: by the cache's room.

#![allow(clippy::unwrap_used)]

use switchback_core::Now;
use switchback_core::control::{
    Command, CommandId, Entry, Location, SwitchCommand, SwitchConfig, SwitchReport,
};
use switchback_core::switch::{Agent, AgentConfig, Counting, Target, carry_out};
use switchback_core::topology::chain_of;
use switchback_wire::{Address, KeyHash, Map, Op, Packet};

const RECORDS: u32 = 3;

/// A datapath that does what it is asked, and remembers what its sketch began at.
#[derive(Default)]
struct CountingTarget {
    starts: Vec<u64>,
    misses: u64,
    requests: u64,
    sequence_used: u32,
}

impl Target for CountingTarget {
    fn inject(&mut self, packet: &mut Packet) -> bool {
        let header = packet.parse().unwrap().header;
        if header.op == Op::ResetSketch {
            self.starts.push(header.guard);
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

    fn set_lanes(&mut self, _: u32) {}

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
        let config = AgentConfig {
            counting: Counting::full(64, 20, 0.5),
            counting_with_room: Counting::with_room(64, 20, 0.5),
            records: RECORDS as usize,
            ..AgentConfig::default()
        };
        let now = Now { monotonic_us: 1, unix_ms: 1 };
        let agent = Agent::new(1, Address::default(), config, now);
        let mut switch = Switch { agent, target: CountingTarget::default(), now, commands: 0 };
        let config = SwitchConfig {
            boot: 1,
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
        let command = Command { id: self.commands, chain: chain_of(0), epoch: 1, body };
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
            }
        };
        self.command(SwitchCommand::Admit(keys.map(entry).collect()));
    }

    /// `count` requests miss; what the sketch began at last.
    fn miss(&mut self, count: u64) -> u64 {
        self.target.misses += count;
        self.tick()
    }

    fn tick(&mut self) -> u64 {
        self.agent.handle_timeout(self.now);
        carry_out(&mut self.agent, self.now, &mut self.target);
        *self.target.starts.last().unwrap()
    }
}

#[test]
fn five_counted_requests_make_a_key_hot_while_there_is_room_and_the_threshold_does_in_a_full_cache()
{
    let mut switch = Switch::new();
    assert_eq!(switch.tick(), 15, "nothing is cached yet");
    switch.admit(0..RECORDS);
    // Counters are half full of five after 5 / 2 * 64 counted misses, of twenty after four times as
    // many; half of all are counted.
    assert_eq!(
        (switch.miss(320), switch.target.starts.len()),
        (15, 1),
        "not before the period ends"
    );
    assert_eq!(switch.miss(1), 0);
    assert_eq!((switch.miss(1280), switch.target.starts.len()), (0, 2));
    switch.command(SwitchCommand::Remove(vec![1]));
    assert_eq!((switch.miss(1), switch.target.starts.len()), (15, 3), "there is room again");
}

#[test]
fn a_cache_in_which_room_must_be_made_counts_as_full_at_once() {
    let mut switch = Switch::new();
    switch.admit(0..1);
    switch.command(SwitchCommand::EvictBegin { candidates: vec![1], count: 1 });
    assert!(switch.now.is_due(switch.agent.poll_timeout()), "the agent is to be called at once");
    assert_eq!(switch.tick(), 0);
    // Slots of another class may be free: what counts is that room had to be made.
    switch.command(SwitchCommand::EvictBegin { candidates: vec![1], count: 1 });
    assert_eq!(switch.miss(1281), 0);
    assert_eq!(switch.miss(1281), 15, "a period in which no room had to be made");
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

#[test]
fn a_threshold_of_less_than_five_stays_what_it_is() {
    assert_eq!(Counting::with_room(64, 3, 0.5), Counting::full(64, 3, 0.5));
}
