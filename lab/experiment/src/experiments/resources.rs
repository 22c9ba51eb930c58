//! Exp#14: what each role takes of a switch. The only experiment that is measured, on the machine
//! that runs it.

use super::{Context, Finding};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Table, Ticks};
use switchback_bench::report::{Machine, Spread};
use switchback_measure::roles::{Kind, RoleCosts, measure};

/// Rounds of each packet, and with `--quick`.
const ROUNDS: [usize; 2] = [25, 9];
/// What a role doesn't have, or this machine can't tell.
const NONE: &str = "-";

/// A whole number, or [`NONE`].
fn cell(number: Option<f64>) -> String {
    number.map_or(NONE.to_owned(), |number| format!("{number:.0}"))
}

/// The median of some times and their range, or [`NONE`].
fn range(ns: Option<Spread>) -> String {
    let text = |Spread { median, min, max }| format!("{median:.0} ({min:.0}..{max:.0})");
    ns.map_or(NONE.to_owned(), text)
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn table(machine: &str, all: &[RoleCosts]) -> Table {
    let title = format!("What a role takes of a switch (measured on {machine})");
    let sizes = ["empty, KiB", "10,000 records, KiB", "a record, B", "instructions", "stack, B"];
    let times = Kind::ALL.map(|kind| format!("{}, ns", kind.name()));
    let head: Vec<_> = ["role"].into_iter().chain(sizes).map(str::to_owned).chain(times).collect();
    let mut table = Table::new(title, &head);
    for costs in all {
        let (tables, program) = (costs.tables, costs.program);
        let mut cells = vec![
            costs.role.name().to_owned(),
            cell(tables.map(|tables| kib(tables.empty_bytes))),
            cell(tables.map(|tables| kib(tables.cache_bytes))),
            cell(tables.map(|tables| tables.record_bytes)),
            cell(program.map(|program| program.instructions.into())),
            cell(program.map(|program| program.stack_bytes.into())),
        ];
        cells.extend(costs.packet_ns.map(range));
        table.row(cells);
    }
    table
}

/// A row for each kind of packet that a role meets.
fn csv(machine: &str, all: &[RoleCosts]) -> Csv {
    let mut csv = Csv::new(&[
        "kind",
        "machine",
        "role",
        "scheme",
        "empty_bytes",
        "cache_bytes",
        "record_bytes",
        "instructions",
        "stack_bytes",
        "packet",
        "median_ns",
        "least_ns",
        "greatest_ns",
        "commit",
    ]);
    let text = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    for costs in all {
        let (tables, program) = (costs.tables, costs.program);
        for (kind, ns) in Kind::ALL.into_iter().zip(costs.packet_ns) {
            let Some(Spread { median, min, max }) = ns else { continue };
            let mut fields = vec![
                "measured".to_owned(),
                machine.to_owned(),
                costs.role.name().to_owned(),
                costs.role.scheme().to_string(),
                text(tables.map(|tables| tables.empty_bytes as f64)),
                text(tables.map(|tables| tables.cache_bytes as f64)),
                text(tables.map(|tables| tables.record_bytes)),
                text(program.map(|program| program.instructions.into())),
                text(program.map(|program| program.stack_bytes.into())),
                kind.name().to_owned(),
            ];
            fields.extend([median, min, max].map(|ns| format!("{ns:.1}")));
            fields.push(COMMIT.to_owned());
            csv.row(&fields);
        }
    }
    csv
}

fn figure(machine: &str, all: &[RoleCosts]) -> Figure {
    let bars = |(at, kind): (usize, Kind)| {
        let of = |(place, costs): (usize, &RoleCosts)| {
            let mean = costs.packet_ns[at]?.median;
            Some((place as f64, Estimate { mean, half_width: 0.0 }))
        };
        Series::line(kind.name(), at, all.iter().enumerate().filter_map(of).collect())
    };
    Figure {
        name: "exp14".to_owned(),
        title: "Exp#14 Time of a packet in the switch, in user space".to_owned(),
        x_label: "role of the switch",
        y_label: "a packet, ns",
        ticks: Ticks::Kinds(all.iter().map(|costs| costs.role.name().to_owned()).collect()),
        is_logarithmic: false,
        series: Kind::ALL.into_iter().enumerate().map(bars).collect(),
        origin: format!("measured on {machine}"),
    }
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let all = measure(ROUNDS[usize::from(context.effort.is_quick)]).expect("the tables fit");
    let machine = Machine::here().model;
    Finding {
        name: "14",
        title: "What each role takes of a switch",
        paper: "Of a Tofino (tables II and III). DistReach's leaf: ingress 1264 KiB, 10 stages, 30 \
                actions; egress 8032 KiB, 12 stages, 182 actions, 44 ALUs; 501 B of packet \
                headers. DistCache: 1280 KiB, 6, 22; 7824 KiB, 12, 184, 45; 523 B. DistNoCache: \
                112 KiB, 3, 4; 256 KiB, 2, 3, 0; 134 B.",
        differs: "A software switch has no stages: these are bytes of its tables in the kernel, \
                  with the product's usual numbers of lanes, partitions, nodes and counters \
                  (`empty`), and with room for 10,000 records of 128 B; BPF instructions and stack \
                  of the program; and the time for a packet in user space, which is called with \
                  one packet after the other on one CPU, the median of several rounds without the \
                  time to make the packet. One program serves all roles of a build: features that \
                  a scheme lacks are left out when it is loaded. Keeper and owner load the same \
                  one. `hit` and `miss` are reads on their way to the nodes, `write` is of a \
                  cached key; a keeper passes all of them on, and `kept answer` is a write's \
                  answer on its way back. A spine meets no write.",
        remarks: Vec::new(),
        csv: vec![("exp14", csv(&machine, &all))],
        figures: vec![figure(&machine, &all)],
        tables: vec![table(&machine, &all)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_measure::roles::Role;

    #[test]
    fn what_a_role_lacks_is_no_number() {
        let spread = Spread { median: 20.4, min: 19.0, max: 30.0 };
        let costs = RoleCosts {
            role: Role::NoCache,
            tables: None,
            program: None,
            packet_ns: [None, Some(spread), Some(spread), None],
        };
        let all = [costs];
        let row = table("a machine", &all).rows.remove(0);
        let ns = "20 (19..30)";
        assert_eq!(row, ["nocache", "-", "-", "-", "-", "-", "-", ns, ns, "-"]);
        let csv = csv("a machine", &all);
        let packets: Vec<_> = csv.records().map(|record| record.text("packet").unwrap()).collect();
        assert_eq!(packets, ["miss", "write"]);
        let figure = figure("a machine", &all);
        let bars: Vec<_> = figure.series.iter().map(|series| series.points.len()).collect();
        assert_eq!(bars, [0, 1, 1, 0]);
    }
}
