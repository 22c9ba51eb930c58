//! Packets walk through chains of two and three pipelines that lose, copy and reorder them: what a
//! client was told, every switch of the chain has, or the node. (Protocol, section 10.)

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::{BTreeMap, BTreeSet};
use switchback_datapath::state::bits;
use switchback_datapath::*;
use switchback_wire::*;

const NODE: Address = Address::in_memory(2, 0);
const LANES: u32 = 3;
const KEY: &[u8] = b"walked key";
const STEPS: u32 = 3000;
const SEEDS: u64 = 60;
/// Steps with faults between two times without any.
const STORM_STEPS: u32 = 150;
/// Rounds without loss in which every request has to end.
const CALM_ROUNDS: u32 = 10;

fn switch(index: usize) -> Address {
    Address::in_memory(4, index as u16)
}

fn client(lane: u32) -> Address {
    Address::in_memory(1, lane as u16)
}

fn hash() -> KeyHash {
    HashKey([7; 16]).hash(KEY)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % bound
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct Flight {
    from: Address,
    to: Address,
    packet: Packet,
}

/// As much of a node as one key needs (protocol, section 5); all it does is durable.
#[derive(Default)]
struct Node {
    seq: Seq,
    value: Vec<u8>,
    tombstone: bool,
    fence: u64,
    completions: BTreeSet<(u32, u64, u64)>,
}

impl Node {
    fn store(&mut self, seq: Seq, value: &[u8], tombstone: bool) {
        if seq > self.seq {
            (self.seq, self.value, self.tombstone) = (seq, value.to_vec(), tombstone);
        }
    }

    fn status(&self) -> Status {
        if self.tombstone || self.seq == Seq::NONE { Status::NotFound } else { Status::Ok }
    }

    fn answer(&mut self, packet: &Packet) -> Packet {
        let parts = packet.parse().unwrap();
        let (mut header, value) = (parts.header, parts.value.to_vec());
        if header.op == Op::Read {
            if header.has(flags::EMBEDDED) {
                let tombstone = header.record_flags & record_flags::TOMBSTONE != 0;
                self.store(header.seq, &value, tombstone);
            }
            if header.has(flags::FENCED) {
                self.fence = self.fence.max(header.guard);
            }
            (header.op, header.seq, header.status) = (Op::ReadReply, self.seq, self.status());
            header.flags &= flags::FENCED;
            let found = if header.status == Status::Ok { self.value.clone() } else { Vec::new() };
            return Packet::build(header, &found, KEY);
        }
        let completion = (header.lane, header.request, header.seq.0);
        let is_conditional = header.has(flags::CONDITIONAL);
        let is_delete = header.op == Op::Delete;
        header.flags |= if is_delete { flags::DELETE } else { 0 };
        header.op = Op::WriteReply;
        header.status = Status::Ok;
        if is_conditional && self.completions.contains(&completion) {
            return Packet::build(header, &[], KEY);
        }
        if header.seq <= self.seq {
            if is_conditional {
                (header.status, header.guard) = (Status::ConditionFailed, self.seq.0);
            }
        } else if header.seq.0 <= self.fence {
            header.op = Op::Bounce;
            return Packet::build(header, &value, KEY);
        } else if is_conditional && header.guard != self.seq.0 {
            (header.status, header.guard) = (Status::ConditionFailed, self.seq.0);
        } else {
            self.store(header.seq, &value, is_delete);
            self.completions.insert(completion);
        }
        Packet::build(header, &[], KEY)
    }
}

/// A request that waits for its answer.
struct Open {
    packet: Packet,
    /// The newest version that a client was told when it began.
    told: Seq,
}

struct Walk {
    random: Random,
    chain: Vec<Datapath>,
    node: Node,
    flights: Vec<Flight>,
    open: BTreeMap<u32, Open>,
    requests: [u64; LANES as usize],
    /// The newest version that a client was told.
    told: Seq,
    ended: u64,
    incarnation: u64,
    /// How many switches have an entry, in the order of admission.
    admitted: usize,
    evicting: bool,
    owner_first: bool,
}

impl Walk {
    fn new(length: u8, features: Features, seed: u64, owner_first: bool) -> Walk {
        let member = |index: u8| {
            let config = Config {
                features: features.with(Features::LAYERS),
                classes: vec![ClassConfig { value_bytes: 32, slots: 1 }],
                lanes: LANES,
                partitions: 1,
                nodes: 1,
                sketch_width: 64,
                reports: 8,
                ..Config::default()
            };
            let datapath = Datapath::new(&config).unwrap();
            datapath.set_map(&Map::equal(vec![vec![0]])).unwrap();
            datapath.set_node(0, NODE);
            let place = Place {
                position: index + 1,
                length,
                before: (index > 0).then(|| switch(usize::from(index) - 1)),
                after: (index + 1 < length).then(|| switch(usize::from(index) + 1)),
                protects: false,
            };
            datapath.set_place(&place).unwrap();
            let header = Header { epoch: 1, generation: 1, ..Header::new(Op::SetEpoch) };
            assert_eq!(datapath.inject(&mut Packet::build(header, &[], b"-")), Verdict::Reply);
            datapath
        };
        Walk {
            random: Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1),
            chain: (0..length).map(member).collect(),
            node: Node::default(),
            flights: Vec::new(),
            open: BTreeMap::new(),
            requests: [0; LANES as usize],
            told: Seq::NONE,
            ended: 0,
            incarnation: 1,
            admitted: 0,
            evicting: false,
            owner_first,
        }
    }

    fn owner(&self) -> usize {
        self.chain.len() - 1
    }

    fn inject(&self, index: usize, op: Op) -> Packet {
        let header = Header {
            epoch: 1,
            key_hash: hash(),
            request: self.incarnation,
            location: location(0, 0).unwrap(),
            ..Header::new(op)
        };
        let mut packet = Packet::build(header, &[], KEY);
        assert_eq!(self.chain[index].inject(&mut packet), Verdict::Reply);
        packet
    }

    /// One more step of an admission, keepers first, or of an eviction, the owner first.
    fn agents_act(&mut self) {
        let length = self.chain.len();
        if !self.evicting && self.admitted < length {
            let index = if self.owner_first { length - 1 - self.admitted } else { self.admitted };
            self.inject(index, Op::Admit);
            self.chain[index].lookup_insert(&hash(), 0, 0).unwrap();
            self.inject(index, Op::SetValid);
            self.admitted += 1;
        } else if !self.evicting {
            let record = self.inject(self.owner(), Op::EvictBegin);
            let parts = record.parse().unwrap();
            if parts.header.record_flags & record_flags::DIRTY != 0 {
                let tombstone = parts.header.record_flags & record_flags::TOMBSTONE != 0;
                self.node.store(parts.header.seq, parts.value, tombstone);
            }
            self.evicting = true;
        } else {
            self.admitted -= 1;
            let index = if self.owner_first { length - 1 - self.admitted } else { self.admitted };
            self.inject(index, Op::Remove);
            self.chain[index].lookup_remove(&hash(), 0, 0);
            if self.admitted == 0 {
                (self.evicting, self.incarnation) = (false, self.incarnation + 1);
            }
        }
    }

    fn begin(&mut self, lane: u32) {
        self.requests[lane as usize] += 1;
        let request = self.requests[lane as usize];
        let op = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Delete][self.random.below(5)];
        let is_conditional = op != Op::Read && self.random.one_in(3);
        let header = Header {
            epoch: 1,
            key_hash: hash(),
            lane,
            request,
            flags: if is_conditional { flags::CONDITIONAL } else { 0 },
            guard: if is_conditional { self.told.0 } else { 0 },
            ..Header::new(op)
        };
        let value = format!("{lane}.{request}");
        let value = if op == Op::Write { value.as_bytes() } else { &[] };
        let open = Open { packet: Packet::build(header, value, KEY), told: self.told };
        self.open.insert(lane, open);
    }

    fn send(&mut self, lane: u32) {
        let packet = self.open[&lane].packet.clone();
        self.flights.push(Flight { from: client(lane), to: switch(0), packet });
    }

    /// An answer arrives at its client, which may have heard it before.
    fn hear(&mut self, lane: u32, packet: &Packet) -> Result<(), String> {
        let header = packet.parse().unwrap().header;
        if self.requests[lane as usize] != header.request || !self.open.contains_key(&lane) {
            return Ok(());
        }
        let open = self.open.remove(&lane).unwrap();
        self.ended += 1;
        if header.op == Op::ReadReply && header.seq < open.told {
            return Err(format!(
                "{:?} was told before a read of {:?} began",
                open.told, header.seq
            ));
        }
        self.told = self.told.max(header.seq);
        Ok(())
    }

    fn arrive(&mut self, at: usize) -> Result<(), String> {
        let Flight { from, to, mut packet } = self.flights.swap_remove(at);
        if to == NODE {
            let packet = self.node.answer(&packet);
            self.flights.push(Flight { from: NODE, to: switch(self.owner()), packet });
            return Ok(());
        }
        if let Some(lane) = (0..LANES).find(|lane| client(*lane) == to) {
            return self.hear(lane, &packet);
        }
        let index = (0..self.chain.len()).find(|index| switch(*index) == to).unwrap();
        let verdict =
            self.chain[index].process(&mut packet, from, 1000, u32::MAX, Shard::default());
        let to = match verdict {
            Verdict::Reply => packet.parse().unwrap().header.origin,
            Verdict::Forward(_) => NODE,
            Verdict::ToSwitch(neighbour) => self.chain[index].neighbour(neighbour).unwrap(),
            Verdict::Taken | Verdict::Drop(_) | Verdict::Pass => return Ok(()),
        };
        self.flights.push(Flight { from: switch(index), to, packet });
        Ok(())
    }

    /// What was told, each switch has, or the node.
    fn check_kept(&self) -> Result<(), String> {
        let has = |datapath: &Datapath| {
            let record = datapath.peek_record(0, 0).unwrap();
            record.state & bits::VALID != 0 && Seq(record.seq) >= self.told
        };
        if self.node.seq >= self.told || self.chain.iter().all(has) {
            return Ok(());
        }
        Err(format!("{:?} was told, and isn't kept", self.told))
    }

    fn step(&mut self) -> Result<(), String> {
        let lane = self.random.below(LANES as usize) as u32;
        match self.random.below(16) {
            0 if self.random.one_in(3) => self.agents_act(),
            0..=2 if !self.open.contains_key(&lane) => self.begin(lane),
            1..=4 if self.open.contains_key(&lane) && self.flights.len() < 32 => self.send(lane),
            _ if !self.flights.is_empty() => {
                let at = self.random.below(self.flights.len());
                if self.random.one_in(24) {
                    self.flights.swap_remove(at);
                    return Ok(());
                }
                if self.random.one_in(8) && self.flights.len() < 32 {
                    let Flight { from, to, ref packet } = self.flights[at];
                    let packet = packet.clone();
                    self.flights.push(Flight { from, to, packet });
                }
                self.arrive(at)?;
            }
            _ => {}
        }
        self.check_kept()
    }

    /// Nothing is lost any more: every request ends.
    fn calm_down(&mut self) -> Result<(), String> {
        for _ in 0..CALM_ROUNDS {
            for lane in self.open.keys().copied().collect::<Vec<_>>() {
                self.send(lane);
            }
            while !self.flights.is_empty() {
                self.arrive(0)?;
                self.check_kept()?;
            }
            if self.evicting {
                self.agents_act();
            }
        }
        if self.open.is_empty() { Ok(()) } else { Err("a request never ends".to_owned()) }
    }

    fn run(&mut self) -> Result<(), String> {
        for step in 1..=STEPS {
            self.step()?;
            if step % STORM_STEPS == 0 {
                self.calm_down()?;
            }
        }
        Ok(())
    }
}

/// What goes wrong first, if anything does.
fn violation(without: Features, owner_first: bool) -> Option<String> {
    let features = Features::of(Scheme::FarReach).without(without);
    let walks = (1..=SEEDS).flat_map(|seed| [(2, seed), (3, seed)]);
    walks.into_iter().find_map(|(length, seed)| {
        let why = Walk::new(length, features, seed, owner_first).run().err()?;
        Some(format!("{length} switches, seed {seed}: {why}"))
    })
}

#[test]
fn what_a_client_was_told_every_switch_of_the_chain_has_or_the_node() {
    assert_eq!(violation(Features::NONE, false), None);
    let mut walk = Walk::new(3, Features::of(Scheme::FarReach), 1, false);
    walk.run().unwrap();
    assert!(walk.ended > 100, "only {} requests ended", walk.ended);
    let (first, owner) = (walk.chain[0].statistics(), walk.chain[2].statistics());
    assert!(first.kept > 10, "{first:?}");
    assert!(owner.absorbed_writes > 10 && owner.repeated_answers > 10, "{owner:?}");
    assert!(owner.promotions > 0 && owner.condition_failures > 5, "{owner:?}");
}

/// Each rule, left out, is noticed by the walks. (Other vectors and the simulator notice the rest.)
#[test]
fn a_chain_without_one_of_its_rules_is_noticed() {
    if !ABLATIONS {
        return;
    }
    let rules = [
        (Features::KEEPING, false),
        (Features::READER_KEEPING, false),
        (Features::REFUSAL_KEEPING, false),
        (Features::REPEAT_KEPT, false),
        (Features::REPEAT_LOOKUP, false),
        (Features::KEEP_NEWER, false),
        (Features::KEPT_FIRST, false),
        (Features::KEEPER_SILENCE, false),
        // Either of the two would do: keepers are admitted first, or pass nothing without an entry.
        (Features::KEEP_OR_DROP, true),
    ];
    for (rule, owner_first) in rules {
        assert!(violation(rule, owner_first).is_some(), "nothing notices {rule:?}");
    }
    assert_eq!(violation(Features::KEEP_OR_DROP, false), None, "keepers are admitted first");
}
