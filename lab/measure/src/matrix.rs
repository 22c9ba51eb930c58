//! All cases on one size of tables, native and in the kernel, in turn.

use crate::cases::{Case, EPOCH, Size};
use crate::pinned::Took;
use crate::requests::Request;
use anyhow::ensure;
use serde::Serialize;
use std::net::Ipv4Addr;
use switchback_bench::report::Spread;
use switchback_datapath::{Control, Verdict};
use switchback_wire::{Header, Map, Op, Packet, Place};

/// Packets between two looks at the clock: few enough that most stretches are not preempted on a
/// busy machine.
pub(crate) const PACKETS: usize = 1 << 15;
/// Lanes of each CPU.
pub(crate) const LANES: u32 = switchback_xdp::measure::LANES;
/// The number of the first request that is measured: above all that filled the tables.
pub(crate) const FIRST_REQUEST: u64 = 1 << 32;
/// Where misses go.
pub(crate) const NODE: (Ipv4Addr, u16) = (switchback_xdp::Segment::HOSTS, 5400);

/// What a round does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Build,
    Packet,
}

/// A datapath that is measured.
pub(crate) trait Subject {
    /// A step's packets on each CPU.
    fn round(&mut self, step: Step, case: &Case) -> anyhow::Result<Took>;
    /// How many packets so far have met what the case says.
    fn counted(&self, case: &Case) -> u64;
}

/// A datapath whose tables are filled.
pub(crate) trait Tables {
    fn control(&self) -> &impl Control;
    /// Runs a client's packet.
    fn process(&self, packet: &mut Packet) -> Verdict;
}

/// Runs one of the agent's packets.
fn control(datapath: &impl Control, header: Header, key: &[u8]) -> anyhow::Result<()> {
    let verdict = datapath.inject(&mut Packet::build(header, &[], key));
    ensure!(verdict == Verdict::Reply, "the datapath refuses {:?}: {verdict:?}", header.op);
    Ok(())
}

/// Begins an epoch, with nothing cached.
pub(crate) fn serve(datapath: &impl Control, place: &Place) -> anyhow::Result<()> {
    datapath.set_map(&Map::equal(vec![vec![0]; datapath.config().partitions as usize]))?;
    datapath.set_node(0, std::net::SocketAddr::from(NODE).into());
    datapath.set_place(place)?;
    let header = Header { epoch: EPOCH, generation: 1, ..Header::new(Op::SetEpoch) };
    control(datapath, header, b"-")
}

/// Gives a slot its key, without a value.
pub(crate) fn admit(datapath: &impl Control, slot: u32) -> anyhow::Result<()> {
    let Request { key, hash, .. } = Request::new(slot.into(), 0);
    let header = Header { location: slot, request: 1, key_hash: hash, ..Header::new(Op::Admit) };
    control(datapath, header, &key)?;
    datapath.lookup_insert(&hash, 0, slot)?;
    control(datapath, Header { op: Op::SetValid, ..header }, &key)
}

/// Gives every slot a key, and every key a value.
pub(crate) fn fill(tables: &impl Tables, size: Size) -> anyhow::Result<()> {
    serve(tables.control(), &Place::sole())?;
    let value = vec![7; size.value_bytes as usize];
    (0..size.slots).try_for_each(|slot| {
        admit(tables.control(), slot)?;
        write(tables, slot, u64::from(slot / LANES) + 1, &value)
    })
}

fn write(tables: &impl Tables, slot: u32, request: u64, value: &[u8]) -> anyhow::Result<()> {
    let Request { key, hash, .. } = Request::new(slot.into(), 0);
    let header = Header {
        epoch: EPOCH,
        request,
        lane: slot % LANES,
        key_hash: hash,
        ..Header::new(Op::Write)
    };
    let verdict = tables.process(&mut Packet::build(header, value, &key));
    ensure!(verdict == Verdict::Reply, "the datapath refuses to write a key: {verdict:?}");
    Ok(())
}

/// Gives the first keys values again, after all else.
pub(crate) fn restore(tables: &impl Tables, size: Size, keys: u32) -> anyhow::Result<()> {
    let value = vec![7; size.value_bytes as usize];
    (0..keys).try_for_each(|slot| write(tables, slot, u64::MAX - u64::from(keys - slot), &value))
}

/// What one case cost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cost {
    /// A packet, made and processed.
    pub(crate) ns: Spread,
    /// Making it alone.
    pub(crate) building_ns: f64,
    pub(crate) instructions: Option<f64>,
    /// Of the packets, how many met what the case says; the others met a record or lane that
    /// another CPU had.
    pub(crate) share: f64,
}

impl Cost {
    /// A packet, without making it.
    pub(crate) fn net_ns(&self) -> Spread {
        let net = |ns: f64| (ns - self.building_ns).max(1.0);
        let Spread { median, min, max } = self.ns;
        Spread { median: net(median), min: net(min), max: net(max) }
    }
}

/// A row of the matrix.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) size: Size,
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) native: Cost,
    pub(crate) xdp: Option<Cost>,
}

struct Rounds {
    took: Vec<Took>,
    building: Vec<f64>,
    counted: u64,
}

impl Rounds {
    fn new() -> Rounds {
        Rounds { took: Vec::new(), building: Vec::new(), counted: 0 }
    }

    fn add(&mut self, subject: &mut dyn Subject, case: &Case) -> anyhow::Result<()> {
        self.building.push(subject.round(Step::Build, case)?.ns);
        let before = subject.counted(case);
        self.took.push(subject.round(Step::Packet, case)?);
        self.counted += subject.counted(case) - before;
        Ok(())
    }

    fn cost(self, case: &Case) -> anyhow::Result<Cost> {
        let share = self.counted as f64 / (self.took.len() * case.cpus * PACKETS) as f64;
        ensure!(
            case.cpus > 1 || share > 0.999,
            "{case}: only {:.1} % of the packets are such",
            share * 100.0
        );
        let median = |figures: Vec<f64>| Spread::of(figures).map(|spread| spread.median);
        let instructions =
            self.took.iter().map(|took| took.instructions).collect::<Option<Vec<_>>>();
        Ok(Cost {
            ns: Spread::of(self.took.iter().map(|took| took.ns)).expect("there are rounds"),
            building_ns: median(self.building).unwrap_or_default(),
            instructions: instructions.and_then(median),
            share,
        })
    }
}

/// Measures one case on both, in turn.
pub(crate) fn measure(
    native: &mut dyn Subject,
    mut kernel: Option<&mut dyn Subject>,
    (size, case): (Size, Case),
    rounds: usize,
) -> anyhow::Result<Row> {
    let (mut of_native, mut of_kernel) = (Rounds::new(), Rounds::new());
    // One that doesn't count warms up.
    for round in 0..=rounds {
        of_native.add(native, &case)?;
        if let Some(kernel) = &mut kernel {
            of_kernel.add(*kernel, &case)?;
        }
        if round == 0 {
            (of_native, of_kernel) = (Rounds::new(), Rounds::new());
        }
    }
    let xdp = if kernel.is_some() { Some(of_kernel.cost(&case)?) } else { None };
    Ok(Row { size, case, native: of_native.cost(&case)?, xdp })
}
