//! `switchback lab calibrate`: what the parts of a rack cost on this machine, as a profile for
//! `switchback lab experiment`.
//!
//! Each part is the product's own, driven by one thread; what is measured is the median of many
//! short rounds.

mod controller;
mod links;
mod node;
mod switch;
#[cfg(test)]
mod tests;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use switchback_bench::report::{Machine, check_writable, say};
use switchback_bench::scratch::Scratch;

use switchback_calibration::{COMMIT, Calibration, Origin, Sample};

const EXAMPLES: &str = "\
Examples:
  A profile of this machine, and an experiment with it beside the paper's testbed:
      switchback lab calibrate --out this-machine.toml
      switchback lab experiment 9 --profile this-machine.toml --out measured-costs
      switchback lab experiment 9 --profile paper --out papers-costs

It takes some 20 seconds, with --quick some 3. Run it while nothing else runs: the load is noted in
the file. docs/measure/evaluation.md says what each figure is.";

/// Measure what the parts of a rack cost on this machine, as a profile for experiments.
///
/// Nodes (the shim over RocksDB), pipeline, links, control channel, agent and the controller's disk
/// are the product's own. Writes medians and spread, with machine, date and commit, to a file that
/// `switchback lab experiment --profile FILE` reads.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CalibrateArgs {
    /// The profile's file.
    #[arg(long, value_name = "FILE", default_value = "profile.toml")]
    out: PathBuf,
    /// Fewer rounds and records: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Where the nodes' and the controller's files are written meanwhile, in a directory that goes
    /// away: the disk that is measured. Beside the profile if not given.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds of each figure.
    rounds: usize,
    /// Records of a node.
    records: u64,
    /// Entries of the agent's tables.
    entries: u32,
    /// Bytes of the controller's large file.
    file_bytes: usize,
}

impl Effort {
    const FULL: Effort =
        Effort { rounds: 400, records: 500_000, entries: 1 << 16, file_bytes: 32 << 20 };
    const QUICK: Effort =
        Effort { rounds: 60, records: 20_000, entries: 1 << 13, file_bytes: 4 << 20 };
}

/// Calibrates, writes the file, and says what it found.
///
/// # Errors
/// A file or directory that can't be written; a part that doesn't do what it is to do.
pub fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    let beside =
        args.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let data = args.data.as_deref().unwrap_or(beside);
    check_writable(&args.out).context("--out")?;
    let calibration = calibrate(&effort, data)?;
    std::fs::write(&args.out, calibration.text())
        .with_context(|| format!("--out {}", args.out.display()))?;
    let Origin { machine, load, .. } = &calibration.origin;
    say(&format!(
        "{machine}, load {} to {}: medians, and the middle eight tenths\n{}\
         {3} has it: switchback lab experiment all --profile {3} --out DIR\n",
        load[0],
        load[1],
        calibration.summary(),
        args.out.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn calibrate(effort: &Effort, data: &Path) -> anyhow::Result<Calibration> {
    let scratch = Scratch::new(Some(data), "calibrate")?;
    let bar = ProgressBar::new(6);
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("the template is right");
    bar.set_style(style.progress_chars("=> "));
    let step = |what: &'static str| {
        bar.inc(1);
        bar.set_message(what);
    };
    let before = load();
    step("a node");
    let node = node::measure(effort, scratch.path())?;
    step("the pipeline");
    let pipeline = switch::pipeline(effort)?;
    step("the agent");
    let (agent, start) = switch::agent(effort)?;
    step("links");
    let link = links::measure(effort)?;
    step("the control channel");
    let control = links::control(effort)?;
    step("the controller's disk");
    let controller = controller::measure(effort, scratch.path())?;
    bar.finish_and_clear();
    let Machine { cpus, model, kernel } = Machine::here();
    let origin = Origin {
        machine: format!("{model}, {cpus} CPUs, Linux {kernel}"),
        date: date(SystemTime::now()),
        commit: COMMIT.to_owned(),
        load: [before, load()],
        method: format!(
            "{} rounds; nodes of {} records of 16 + 128 B, synced, in groups of {}",
            effort.rounds,
            effort.records,
            node::GROUP
        ),
    };
    Ok(Calibration { origin, node, pipeline, link, control, agent, controller, switch: start })
}

/// Processes that ran or wanted to, on average over a minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// A time as ISO 8601 has it, to the second, in UTC.
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day last (Howard Hinnant's algorithm, for dates
    // after 1970).
    let (era, day_of_era) = ((day + 719_468) / 146_097, (day + 719_468) % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A sample of rounds, of which there is at least one.
fn sample(rounds: Vec<f64>) -> Sample {
    let sample = Sample::of(rounds.into_iter().map(rounded).collect()).expect("there are rounds");
    // A clock that stood still says less than its own resolution.
    Sample {
        median: sample.median.max(1e-3),
        low: sample.low.clamp(1e-3, sample.median.max(1e-3)),
        ..sample
    }
}

/// Six digits: more than any clock tells.
fn rounded(figure: f64) -> f64 {
    let scale = 10f64.powf(5.0 - figure.abs().max(1e-9).log10().floor());
    (figure * scale).round() / scale
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How long something takes.
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
