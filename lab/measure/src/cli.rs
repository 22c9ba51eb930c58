//! `switchback lab datapath bench`.

use crate::cases::{Case, Operation, Outcome, Size, USUAL};
use crate::kernel::Kernel;
use crate::matrix::{self, Subject};
use crate::native::Native;
use crate::report::{EndToEnd, METHOD, Report, Resources, Xdp, usual};
use crate::{peers, pinned};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use switchback_bench::report::{Machine, Spread, check_writable, say};
use switchback_xdp::Segment;
use switchback_xdp::measure::Program;

/// The switch's pipeline by itself.
#[derive(Args, Clone, Debug)]
pub struct DatapathArgs {
    #[command(subcommand)]
    command: DatapathCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum DatapathCommand {
    /// Measure what a packet costs, in user space and (as root) in the kernel.
    Bench(BenchArgs),
}

/// How it is measured.
#[derive(Args, Clone, Debug)]
struct BenchArgs {
    /// 128 B values in 64 K slots only, and fewer rounds: half a minute instead of ten.
    #[arg(long)]
    quick: bool,

    /// Rounds; medians and spread are over them. Left out: 25, or 9 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..10_000))]
    rounds: Option<u32>,

    /// Writes everything that was measured to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Does what the command line says.
pub fn run(args: &DatapathArgs) -> anyhow::Result<ExitCode> {
    let allowed = switchback_xdp::permission();
    match &args.command {
        DatapathCommand::Bench(args) => {
            args.json.as_deref().map(check_writable).transpose()?;
            if let Err(error) = &allowed {
                eprintln!(
                    "native only: {error}\nhow to run the rest: sudo switchback lab datapath bench, from a build with clang 15 or newer"
                );
            }
            let report = bench(args, allowed.is_ok())?;
            publish(&report.text(), &report, args.json.as_deref())
        }
    }
}

/// For machines, and for people.
fn publish(text: &str, report: &impl Serialize, json: Option<&Path>) -> anyhow::Result<ExitCode> {
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(report).context("writing JSON")?;
        std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    say(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn sizes(quick: bool) -> Vec<Size> {
    if quick {
        return vec![USUAL];
    }
    let slots = [1 << 10, 1 << 16, 1 << 20];
    slots
        .into_iter()
        .flat_map(|slots| [16, 128, 1024].map(|value_bytes| Size { value_bytes, slots }))
        .collect()
}

fn bench(args: &BenchArgs, with_kernel: bool) -> anyhow::Result<Report> {
    let sizes = sizes(args.quick);
    let cpus = pinned::cpus().len().min(2);
    let rounds = args.rounds.unwrap_or(if args.quick { 9 } else { 25 }) as usize;
    let bar = ProgressBar::new((sizes.len() * Case::all(cpus).len()) as u64);
    let style = ProgressStyle::with_template("{bar:30} {elapsed:>4} of {eta:>4} more  {msg}");
    bar.set_style(style.expect("the template is valid").progress_chars("=> "));
    let (mut matrix, mut xdp) = (Vec::new(), None);
    for size in sizes {
        bar.set_message(format!("filling {} slots of {} B", size.slots, size.value_bytes));
        let mut native = Native::new(size, cpus)?;
        let mut kernel = if with_kernel { Some(Kernel::new(size, cpus)?) } else { None };
        for case in Case::all(cpus) {
            bar.set_message(format!(
                "{case}, {} B, {} slots, {} CPUs",
                size.value_bytes, size.slots, case.cpus
            ));
            let subject = kernel.as_mut().map(|kernel| kernel as &mut dyn Subject);
            matrix.push(matrix::measure(&mut native, subject, (size, case), rounds)?);
            bar.inc(1);
        }
        if let (Some(kernel), USUAL) = (&mut kernel, size) {
            bar.set_message("frames on a veth");
            let segment = Segment::new(1)?;
            let end_to_end = end_to_end(kernel, &segment, rounds)?;
            bar.set_message("one read after the other");
            xdp = Some((
                end_to_end,
                peers::measure(kernel, &native, &segment, rounds.min(9))?,
                Resources::of(kernel.meter()),
            ));
        }
    }
    bar.finish_and_clear();
    let native =
        usual(&matrix, |row| Some(&row.native)).context("the usual size wasn't measured")?;
    let xdp = xdp.zip(usual(&matrix, |row| row.xdp.as_ref())).map(
        |(((routed, end_to_end), peers, resources), pipeline)| Xdp {
            pipeline,
            miss_routed_ns: routed,
            ops_per_second_core: end_to_end.read_hits.median.min(end_to_end.write_hits.median),
            end_to_end,
            peers,
            resources,
        },
    );
    Ok(Report {
        machine: Machine::here(),
        method: METHOD,
        counts_instructions: pinned::counts_instructions(),
        native,
        xdp,
        matrix,
    })
}

/// A routed miss, and frames on a veth.
fn end_to_end(
    kernel: &mut Kernel,
    segment: &Segment,
    rounds: usize,
) -> anyhow::Result<(f64, EndToEnd)> {
    const FRAMES: u32 = 1 << 18;
    let case = |operation, outcome| Case { operation, outcome, cpus: 1 };
    let spread = |figures: Vec<f64>| Spread::of(figures).context("no rounds");
    let mut live = |program, operation| {
        let sent = (program, case(operation, Outcome::Hit));
        let figures = (0..rounds)
            .map(|_| kernel.live(sent, segment, FRAMES))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let of = |clock: usize| spread(figures.iter().map(|figure| figure[clock]).collect());
        anyhow::Ok((of(0)?, of(1)?))
    };
    // Writes first: the matrix ended with deletes.
    let (write_hits, write_hits_per_cpu_second) = live(Program::Switch, Operation::Write)?;
    let (read_hits, read_hits_per_cpu_second) = live(Program::Switch, Operation::Read)?;
    let (bounced, bounced_per_cpu_second) = live(Program::Bounce, Operation::Read)?;
    let miss = case(Operation::Read, Outcome::Miss);
    let routed = (0..rounds)
        .map(|_| kernel.routed(&miss, segment).map(|took| took.ns))
        .collect::<anyhow::Result<_>>()?;
    Ok((
        spread(routed)?.median,
        EndToEnd {
            read_hits,
            write_hits,
            bounced,
            read_hits_per_cpu_second,
            write_hits_per_cpu_second,
            bounced_per_cpu_second,
        },
    ))
}
