//! What each role takes of a switch (Exp#14): its tables, its program in the kernel, and the time
//! for a packet in user space.

use crate::cases::{Case, Operation, Outcome, Size};
use crate::matrix::{self, LANES, NODE, admit, serve};
use crate::native::{CLIENT, Native, config};
use crate::requests::Request;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use switchback_bench::report::Spread;
use switchback_datapath::{ClassConfig, Config, Datapath, Features, Shard, Statistics, Verdict};
use switchback_wire::{Address, Header, Op, Packet, Place, Scheme, Seq};
use switchback_xdp::measure::Meter;

/// The other switch of the chain.
const NEIGHBOUR: Address = Address::in_memory(2, 0);
/// The cache: the paper's, with values of its length.
const SIZE: Size = Size { value_bytes: 128, slots: 10_000 };

/// What a switch is in a rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It passes packets on and caches nothing.
    NoCache,
    /// It answers reads.
    NetCache,
    /// DistCache's switch next to the clients: it answers reads of all leaves' keys.
    Spine,
    /// DistCache's switch next to the nodes: it answers reads.
    Leaf,
    /// It answers reads and writes.
    FarReach,
    /// Of a chain of two, the switch next to the clients: it keeps what the owner tells.
    Keeper,
    /// Of a chain of two, the switch next to the nodes: it answers, through the keeper.
    Owner,
}

/// A kind of packet whose time is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read of a cached key.
    Hit,
    /// A read of another key, without its answer.
    Miss,
    /// A write of a cached key, if there are any.
    Write,
    /// A write's answer on its way through a keeper, which stores what it tells.
    Kept,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Hit, Kind::Miss, Kind::Write, Kind::Kept];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Hit => "hit",
            Kind::Miss => "miss",
            Kind::Write => "write",
            Kind::Kept => "kept answer",
        }
    }
}

/// What a role takes.
#[derive(Clone, Debug)]
pub struct RoleCosts {
    /// Whose costs they are.
    pub role: Role,
    /// Its tables in the kernel; `None` if the program was built without clang.
    pub tables: Option<TableBytes>,
    /// Its program in the kernel; `None` where none may be loaded.
    pub program: Option<Program>,
    /// Nanoseconds of a packet in user space, in the order of [`Kind::ALL`]; `None` for packets
    /// that the role doesn't meet.
    pub packet_ns: [Option<Spread>; Kind::ALL.len()],
}

/// Bytes of tables, with the product's usual numbers of lanes, partitions and counters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TableBytes {
    /// Without any cached record.
    pub empty_bytes: u64,
    /// With room for 10,000 records of 128 B.
    pub cache_bytes: u64,
    /// What each record more takes, on average of the next 10,000.
    pub record_bytes: f64,
}

/// What the kernel says of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// BPF instructions.
    pub instructions: u32,
    /// Bytes of stack of the deepest chain of calls.
    pub stack_bytes: u32,
}

impl Role {
    /// All of them, baselines first.
    pub const ALL: [Role; 7] = [
        Role::NoCache,
        Role::NetCache,
        Role::Spine,
        Role::Leaf,
        Role::FarReach,
        Role::Keeper,
        Role::Owner,
    ];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Spine => "distcache spine",
            Role::Leaf => "distcache leaf",
            Role::Keeper => "distreach keeper",
            Role::Owner => "distreach owner",
            _ => self.scheme().name(),
        }
    }

    /// The scheme of its rack. All switches of a rack run one program.
    pub const fn scheme(self) -> Scheme {
        match self {
            Role::NoCache => Scheme::NoCache,
            Role::NetCache => Scheme::NetCache,
            Role::Spine | Role::Leaf => Scheme::DistCache,
            Role::FarReach => Scheme::FarReach,
            Role::Keeper | Role::Owner => Scheme::DistReach,
        }
    }

    fn place(self) -> Place {
        let (position, before, after) = match self {
            Role::Spine | Role::Keeper => (1, None, Some(NEIGHBOUR)),
            Role::Leaf | Role::Owner => (2, Some(NEIGHBOUR), None),
            _ => return Place::sole(),
        };
        Place { position, length: 2, before, after, protects: true }
    }

    /// What its pipeline is made with for measurements.
    pub(crate) fn config(self, size: Size, cpus: usize) -> Config {
        self.of_scheme(config(size, cpus))
    }

    fn of_scheme(self, config: Config) -> Config {
        let scheme = self.scheme();
        let classes = if scheme.caches() { config.classes } else { Vec::new() };
        Config { features: Features::of(scheme), classes, ..config }
    }

    /// Runs a packet of this operation as it comes from the part that sends such packets.
    #[inline]
    pub(crate) fn process(
        self,
        datapath: &Datapath,
        operation: Operation,
        packet: &mut Packet,
        random: u32,
        shard: Shard,
    ) -> Verdict {
        datapath.process(packet, self.sender(operation).0, 1, random, shard)
    }

    /// Who sends packets of this operation, and the position in the chain that they come from.
    #[inline]
    pub(crate) fn sender(self, operation: Operation) -> (Address, u8) {
        match (self, operation) {
            (_, Operation::Keep) => (NEIGHBOUR, 2),
            (Role::Owner, _) => (NEIGHBOUR, 1),
            _ => (CLIENT, 0),
        }
    }

    /// How many packets have met what this case says.
    pub(crate) fn counted(self, case: &Case, statistics: &Statistics) -> u64 {
        match (self, case.operation) {
            (Role::Keeper, Operation::Read | Operation::Write) => statistics.passed,
            (Role::NetCache | Role::Leaf, Operation::Write) => statistics.forwarded_writes,
            _ => case.counted(statistics),
        }
    }

    /// Gives every slot a key, and every key a value.
    pub(crate) fn fill(self, datapath: &Datapath, size: Size) -> anyhow::Result<()> {
        serve(datapath, &self.place())?;
        if !self.scheme().caches() {
            return Ok(());
        }
        (0..size.slots).try_for_each(|slot| {
            admit(datapath, slot)?;
            self.write(datapath, slot, size)
        })
    }

    /// Gives a slot's key its value, in the way in which the role gets values.
    fn write(self, datapath: &Datapath, slot: u32, size: Size) -> anyhow::Result<()> {
        let Request { key, hash, .. } = Request::new(slot.into(), 0);
        let operation = if self == Role::Keeper { Operation::Keep } else { Operation::Write };
        let case = Case { operation, outcome: Outcome::Hit, cpus: 1 };
        let (header, value_bytes) = case.request(size);
        let value = vec![7; value_bytes];
        let update = Header { epoch: 1, key_hash: hash, ..Header::new(Op::CacheUpdate) };
        if self.scheme().has_copies() {
            // Of the incarnation that `admit` has made.
            let (seq, request) = (Seq::new(1, u64::from(slot) + 1), 1);
            return refresh(datapath, Header { seq, request, ..update }, &value, &key);
        }
        let header = Header {
            key_hash: hash,
            lane: slot % LANES,
            request: u64::from(slot / LANES) + 1,
            seq: case.seq(slot as usize),
            hop: self.sender(operation).1,
            ..header
        };
        let mut packet = Packet::build(header, &value, &key);
        let verdict = self.process(datapath, operation, &mut packet, 1, Shard::default());
        ensure!(
            !matches!(verdict, Verdict::Drop(_)),
            "{} refuses a value: {verdict:?}",
            self.name()
        );
        if self.scheme().refreshes() {
            let seq = packet.parse().context("a forwarded write")?.header.seq;
            return refresh(datapath, Header { seq, ..update }, &value, &key);
        }
        Ok(())
    }

    /// The packets of a kind, if the role meets them.
    fn case(self, kind: Kind) -> Option<Case> {
        let cached = if self.scheme().caches() { Outcome::Hit } else { Outcome::Miss };
        let (operation, outcome) = match kind {
            Kind::Hit => (Operation::Read, Outcome::Hit),
            Kind::Miss => (Operation::Read, Outcome::Miss),
            Kind::Write => (Operation::Write, cached),
            Kind::Kept => (Operation::Keep, Outcome::Hit),
        };
        let is_met = match kind {
            Kind::Hit => self.scheme().caches(),
            Kind::Miss => true,
            Kind::Write => self != Role::Spine,
            Kind::Kept => self == Role::Keeper,
        };
        is_met.then_some(Case { operation, outcome, cpus: 1 })
    }

    fn tables(self) -> Option<TableBytes> {
        let bytes = |slots: u32| {
            let class = ClassConfig { value_bytes: SIZE.value_bytes, slots };
            let classes = if slots > 0 { vec![class] } else { Vec::new() };
            switchback_xdp::map_bytes(&self.of_scheme(Config { classes, ..Config::default() })).ok()
        };
        let (empty_bytes, cache_bytes) = (bytes(0)?, bytes(SIZE.slots)?);
        let more_bytes = bytes(2 * SIZE.slots)? - cache_bytes;
        let record_bytes = more_bytes as f64 / f64::from(SIZE.slots);
        Some(TableBytes { empty_bytes, cache_bytes, record_bytes })
    }

    fn program(self) -> anyhow::Result<Program> {
        let config = Config { features: Features::of(self.scheme()), ..Config::default() };
        let meter = Meter::new(&config)?;
        let programs = meter.program_resources();
        let switch = programs.iter().find(|program| program.name == "switchback");
        let switch = switch.context("the kernel doesn't know the switch's program")?;
        let (instructions, stack_bytes) = (switch.instructions, switch.deepest_stack_bytes);
        Ok(Program { instructions, stack_bytes })
    }

    fn packet_ns(self, rounds: usize) -> anyhow::Result<[Option<Spread>; Kind::ALL.len()]> {
        let mut native = Native::of(self, SIZE, 1)?;
        let mut packet_ns = [None; Kind::ALL.len()];
        for (spread, kind) in packet_ns.iter_mut().zip(Kind::ALL) {
            if let Some(case) = self.case(kind) {
                let row = matrix::measure(&mut native, None, (SIZE, case), rounds)?;
                *spread = Some(row.native.net_ns());
            }
        }
        Ok(packet_ns)
    }

    fn costs(self, rounds: usize) -> anyhow::Result<RoleCosts> {
        let is_allowed = switchback_xdp::permission().is_ok();
        let program = is_allowed.then(|| self.program()).transpose()?;
        let (tables, packet_ns) = (self.tables(), self.packet_ns(rounds)?);
        Ok(RoleCosts { role: self, tables, program, packet_ns })
    }
}

/// A node sends a record's value.
fn refresh(datapath: &Datapath, header: Header, value: &[u8], key: &[u8]) -> anyhow::Result<()> {
    let mut packet = Packet::build(header, value, key);
    let node = SocketAddr::from(NODE).into();
    let verdict = datapath.process(&mut packet, node, 1, 1, Shard::default());
    ensure!(verdict == Verdict::Reply, "a node's update is refused: {verdict:?}");
    Ok(())
}

/// Measures all roles, each packet in this number of rounds.
///
/// # Errors
/// There is no memory for the tables, or the kernel refuses a program that it may load.
pub fn measure(rounds: usize) -> anyhow::Result<Vec<RoleCosts>> {
    Role::ALL.into_iter().map(|role| role.costs(rounds)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_meets_its_packets_as_meant() {
        for role in Role::ALL {
            let (caches, keeps) = (role.scheme().caches(), role == Role::Keeper);
            let writes = role != Role::Spine;
            // This fails if packets of a case meet anything else.
            let packet_ns = role.packet_ns(1).unwrap();
            assert_eq!(packet_ns.map(|ns| ns.is_some()), [caches, true, writes, keeps], "{role:?}");
            assert!(packet_ns.iter().flatten().all(|ns| ns.median > 0.0));
            if let Some(TableBytes { empty_bytes, cache_bytes, record_bytes }) = role.tables() {
                assert_eq!(cache_bytes > empty_bytes, caches);
                assert_eq!(record_bytes > f64::from(SIZE.value_bytes), caches);
            }
        }
    }
}
