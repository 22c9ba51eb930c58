//! What was measured, for people and for machines.

use crate::cases::{Operation, Outcome, Size, USUAL};
use crate::matrix::{Cost, Row};
use crate::peers::{self, Peer};
use serde::Serialize;
use std::fmt::Write as _;
use switchback_bench::report::{Machine, Spread, grouped};
use switchback_terminal::Table;
use switchback_xdp::XdpDatapath;

/// What the figures include.
pub(crate) const METHOD: &str = "\
ns are gross, as in the prototype's table: a test run of the kernel, repeated, each time with the
request made anew in the frame (building), Ethernet, IP and UDP taken off, the pipeline, and for
hits the answer's headers. A miss is the pipeline's verdict; routed adds the frame to the node, with
the kernel's routing. Native: the request made and the pipeline called, no headers. 16 B keys, Zipf
0.99, completion lanes and whole-key compare in. Median (least..greatest) of rounds of 32,768
packets.";

/// Figures of one build, 128 B values in 64 K slots, one CPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Native {
    pub(crate) read_hit_ns: f64,
    pub(crate) write_hit_ns: f64,
    pub(crate) delete_hit_ns: f64,
    pub(crate) miss_ns: f64,
    pub(crate) building_ns: f64,
}

/// The same, and what only the kernel's build does.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Xdp {
    #[serde(flatten)]
    pub(crate) pipeline: Native,
    pub(crate) miss_routed_ns: f64,
    /// Cached reads or writes, whichever are fewer: made in the kernel, sent over a veth, answered,
    /// sent back and dropped, all by one CPU.
    pub(crate) ops_per_second_core: f64,
    pub(crate) end_to_end: EndToEnd,
    /// One read after the other, of this switch and of others' servers.
    pub(crate) peers: Vec<Peer>,
    pub(crate) resources: Resources,
}

/// What the kernel says that the pipeline takes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Resources {
    pub(crate) programs: Vec<Program>,
    pub(crate) maps: Vec<Map>,
}

/// A program, and the stages that are functions of their own.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Program {
    name: String,
    instructions: u32,
    verified_instructions: u32,
    stack_bytes: u32,
    functions: Vec<Function>,
}

#[derive(Clone, Debug, Serialize)]
struct Function {
    name: String,
    instructions: u32,
    machine_bytes: u32,
    stack_bytes: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Map {
    name: String,
    entries: u32,
    bytes: u64,
}

impl Resources {
    /// Those of the programs that a switch has.
    pub(crate) fn of(datapath: &XdpDatapath) -> Resources {
        let is_switchs = |name: &str| !name.starts_with("measure_");
        let function =
            |(index, (name, instructions, machine_bytes)): (usize, &(String, u32, u32)),
             stack: &[u32]| Function {
                name: name.clone(),
                instructions: *instructions,
                machine_bytes: *machine_bytes,
                stack_bytes: stack.get(index).copied(),
            };
        let programs =
            datapath.program_resources().into_iter().filter(|program| is_switchs(&program.name));
        let programs = programs.map(|program| Program {
            functions: program
                .functions
                .iter()
                .enumerate()
                .map(|at| function(at, &program.stack_bytes))
                .collect(),
            name: program.name,
            instructions: program.instructions,
            verified_instructions: program.verified,
            stack_bytes: program.deepest_stack_bytes,
        });
        let maps = datapath.map_resources().into_iter().filter(|map| is_switchs(&map.name));
        let maps = maps.map(|map| Map { name: map.name, entries: map.entries, bytes: map.bytes });
        Resources { programs: programs.collect(), maps: maps.collect() }
    }

    fn text(&self) -> String {
        let mut programs = Table::of_numbers([
            "program, function",
            "instructions",
            "verified",
            "machine bytes",
            "stack bytes",
        ]);
        for program in &self.programs {
            let machine: u32 =
                program.functions.iter().map(|function| function.machine_bytes).sum();
            let number = |number: u32| grouped(number.into());
            programs.row([
                program.name.clone(),
                number(program.instructions),
                number(program.verified_instructions),
                number(machine),
                number(program.stack_bytes),
            ]);
            for function in program.functions.iter().filter(|_| program.functions.len() > 1) {
                programs.row([
                    format!("  {}", function.name),
                    number(function.instructions),
                    String::new(),
                    number(function.machine_bytes),
                    function.stack_bytes.map_or_else(String::new, number),
                ]);
            }
        }
        let mut maps = Table::of_numbers(["map", "entries", "MiB"]);
        for map in self.maps.iter().filter(|map| map.bytes >= 1 << 16) {
            maps.row([
                map.name.clone(),
                grouped(map.entries.into()),
                format!("{:.1}", map.bytes as f64 / (1u64 << 20) as f64),
            ]);
        }
        let all = self.maps.iter().map(|map| map.bytes).sum::<u64>() as f64 / (1u64 << 20) as f64;
        maps.row(["all".to_owned(), String::new(), format!("{all:.1}")]);
        format!("{programs}\n{maps}")
    }
}

/// Operations a second of one CPU that does everything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EndToEnd {
    pub(crate) read_hits: Spread,
    pub(crate) write_hits: Spread,
    /// Read requests that a program of a few instructions only sends back, in the datapath's place:
    /// what the machine does at most.
    pub(crate) bounced: Spread,
    /// The same over the time that the CPU was ours: on a busy machine the clock on the wall counts
    /// others' turns, too.
    pub(crate) read_hits_per_cpu_second: Spread,
    pub(crate) write_hits_per_cpu_second: Spread,
    pub(crate) bounced_per_cpu_second: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) method: &'static str,
    /// Whether the machine counts instructions.
    pub(crate) counts_instructions: bool,
    pub(crate) native: Native,
    /// Without root there is none.
    pub(crate) xdp: Option<Xdp>,
    pub(crate) matrix: Vec<Row>,
}

/// The figures of the usual size, of whichever build.
pub(crate) fn usual(rows: &[Row], of: impl Fn(&Row) -> Option<&Cost>) -> Option<Native> {
    let cost = |operation: Operation, outcome: Outcome| {
        let wanted = |row: &&Row| {
            row.size == USUAL
                && (row.case.operation, row.case.outcome, row.case.cpus) == (operation, outcome, 1)
        };
        rows.iter().find(wanted).and_then(&of)
    };
    Some(Native {
        read_hit_ns: cost(Operation::Read, Outcome::Hit)?.ns.median,
        write_hit_ns: cost(Operation::Write, Outcome::Hit)?.ns.median,
        delete_hit_ns: cost(Operation::Delete, Outcome::Hit)?.ns.median,
        miss_ns: cost(Operation::Read, Outcome::Miss)?.ns.median,
        building_ns: cost(Operation::Read, Outcome::Hit)?.building_ns,
    })
}

fn ns(spread: &Spread) -> String {
    format!("{:.0} ({:.0}..{:.0})", spread.median, spread.min, spread.max)
}

fn cell(cost: Option<&Cost>) -> [String; 3] {
    match cost {
        None => [const { String::new() }; 3],
        Some(cost) => [
            ns(&cost.ns),
            format!("{:.0}", cost.building_ns),
            cost.instructions.map_or_else(|| "-".to_owned(), grouped),
        ],
    }
}

impl Report {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}, {} CPUs, Linux {}\n\n",
            self.machine.model, self.machine.cpus, self.machine.kernel
        );
        let _ = writeln!(text, "{}\n", self.method);
        if !self.counts_instructions {
            text += "Instructions: not available, this machine has no counters (or /proc/sys/kernel/perf_event_paranoid forbids).\n\n";
        }
        let mut table = Table::of_numbers([
            "packet",
            "value",
            "slots",
            "CPUs",
            "native, ns",
            "building",
            "instr.",
            "XDP, ns",
            "building",
            "instr.",
            "as meant",
        ]);
        for row in &self.matrix {
            let Size { value_bytes, slots } = row.size;
            let [native, native_building, native_instructions] = cell(Some(&row.native));
            let [xdp, xdp_building, xdp_instructions] = cell(row.xdp.as_ref());
            let share =
                row.xdp.as_ref().map_or(row.native.share, |xdp| xdp.share.min(row.native.share));
            table.row([
                row.case.to_string(),
                value_bytes.to_string(),
                grouped(slots.into()),
                row.case.cpus.to_string(),
                native,
                native_building,
                native_instructions,
                xdp,
                xdp_building,
                xdp_instructions,
                format!("{:.1} %", share * 100.0),
            ]);
        }
        text += &table.to_string();
        if let Some(xdp) = &self.xdp {
            let _ = write!(text, "\n{}", xdp.text());
        }
        text
    }
}

impl Xdp {
    fn text(&self) -> String {
        let mut table = Table::of_numbers(["128 B, 64 K slots, one CPU, XDP", "measured", "aim"]);
        let mut row = |what: &str, measured: String, aim: &str| {
            table.row([what.to_owned(), measured, aim.to_owned()])
        };
        row("hit, read, ns", format!("{:.0}", self.pipeline.read_hit_ns), "<= 110");
        row("hit, write, ns", format!("{:.0}", self.pipeline.write_hit_ns), "<= 110");
        row("miss, ns", format!("{:.0}", self.pipeline.miss_ns), "<= 80");
        row("miss, routed, ns", format!("{:.0}", self.miss_routed_ns), "");
        let rate = |spread: &Spread| {
            format!("{} ({}..{})", grouped(spread.median), grouped(spread.min), grouped(spread.max))
        };
        let end_to_end = &self.end_to_end;
        row("cached reads/s, made in the kernel", rate(&end_to_end.read_hits), ">= 4,500,000");
        row("cached writes/s, made in the kernel", rate(&end_to_end.write_hits), ">= 4,500,000");
        row(
            "  requests/s that are only sent back",
            rate(&end_to_end.bounced),
            "the machine's limit",
        );
        row("  reads per second of CPU time", rate(&end_to_end.read_hits_per_cpu_second), "");
        row("  writes per second of CPU time", rate(&end_to_end.write_hits_per_cpu_second), "");
        row(
            "  only sent back, per second of CPU time",
            rate(&end_to_end.bounced_per_cpu_second),
            "",
        );
        let peers = peers::text(&self.peers, self.pipeline.read_hit_ns);
        format!("{table}\n{peers}\n{}", self.resources.text())
    }
}
