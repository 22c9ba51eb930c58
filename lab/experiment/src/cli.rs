//! `switchback lab experiment`.

use crate::counterpart::{self, Request};
use crate::effort;
use crate::experiments::{Context, Experiment, Finding, Memo, label};
use crate::output::Report;
use crate::profile::Chosen;
use crate::trial::{Case, Effort};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_bench::rack::RackFactory;
use switchback_bench::report::say;
use switchback_bench::workload::ValueBytes;

/// The name of all experiments.
const ALL: &str = "all";
/// The largest seed: those of the repetitions come after it.
const SEED_MAX: u64 = u64::MAX >> 1;

/// What `switchback lab experiment` is given.
#[derive(clap::Args, Clone, Debug)]
pub struct ExperimentArgs {
    /// Which experiments: `all`; numbers of FarReach's (1 to 9) and of DistReach's (10 to 14, S1 to
    /// S3; 13b and S4 to S6 are ours); `twitter` (the published figures of its cache clusters)
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Directory for CSV files, figures and the report; made if it doesn't exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run each experiment's counterpart instead: a small rack in virtual time, and the same one by
    /// the wall clock, with RocksDB in capped nodes (of 1, 2, 7, 8 and 9)
    #[arg(long)]
    measured: bool,
    /// Fewer repetitions and shorter runs: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Seed of the first repetition; the same seed gives the same figures
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: u64,
    /// Length of values: a number, uniform:MIN..MAX, zipfian:MIN..MAX or BYTES:WEIGHT,...; a key
    /// keeps its length (not of 6 and twitter, which have lengths of their own) [default: 128]
    #[arg(long, value_name = "BYTES|DISTRIBUTION", conflicts_with = "measured")]
    value_bytes: Option<ValueBytes>,
    /// Costs of the parts: `paper` (its testbed), `software` (its nodes, this repository's switch),
    /// or a file that `switchback lab calibrate` wrote of a machine
    #[arg(
        long,
        default_value = "paper",
        default_value_if("measured", "true", "software"),
        value_name = "NAME|FILE"
    )]
    profile: Chosen,
    /// Runs at a time; as many as there are processors if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

impl ExperimentArgs {
    fn effort(&self) -> Effort {
        if self.quick { Effort::QUICK } else { Effort::FULL }
    }
}

/// The experiments of these names, in order, each once.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Experiment>> {
    let known: Vec<_> = Experiment::ALL.iter().map(|experiment| experiment.name).collect();
    if let Some(name) = names.iter().find(|name| *name != ALL && !known.contains(&name.as_str())) {
        anyhow::bail!("there is no experiment {name:?}: it is all, or some of {}", known.join(" "));
    }
    let is_chosen =
        |experiment: &&Experiment| names.iter().any(|name| name == ALL || name == experiment.name);
    Ok(Experiment::ALL.iter().filter(is_chosen).collect())
}

/// The counterparts of these names: all that there are, or those that are asked for, which must
/// exist.
fn counterparts(names: &[String]) -> anyhow::Result<Vec<u8>> {
    let there_are = counterpart::EXPERIMENTS;
    if names.iter().any(|name| name == ALL) {
        return Ok(there_are.to_vec());
    }
    let number = |name: &String| name.parse().ok().filter(|number| there_are.contains(number));
    let found = |name| {
        number(name).with_context(|| format!("{name} has no counterpart; {there_are:?} have one"))
    };
    names.iter().map(found).collect()
}

/// Runs experiments, and leaves what they found in a directory. Counterparts are measured on racks
/// of `racks`.
///
/// # Errors
/// Names that nothing has, a directory that can't be written.
pub fn run(args: &ExperimentArgs, racks: &mut dyn RackFactory) -> anyhow::Result<()> {
    let experiments = chosen(&args.experiments)?;
    let counterparts = if args.measured { counterparts(&args.experiments)? } else { Vec::new() };
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    tempfile::tempfile_in(&args.out)
        .with_context(|| format!("--out {} can't be written", args.out.display()))?;
    if args.measured {
        let (is_quick, seed, chosen, out) =
            (args.quick, args.seed, &args.profile, args.out.as_path());
        return counterpart::run(
            &Request { experiments: &counterparts, is_quick, seed, chosen, out },
            racks,
        );
    }
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(processors, |threads| threads as usize);
    let (memo, mut findings) = (Arc::new(Memo::default()), Vec::new());
    let (all, begun_all) = (experiments.len(), Instant::now());
    let weight = |experiments: &[&Experiment]| {
        experiments.iter().map(|experiment| experiment.weight).sum::<u64>()
    };
    for (at, experiment) in experiments.iter().enumerate() {
        let context = Context {
            profile: args.profile.profile.clone(),
            effort: args.effort(),
            value_bytes: args.value_bytes.clone().unwrap_or(Case::default().value_bytes),
            seed: args.seed,
            threads,
            progress: progress(&format!("{} ({} of {all})", label(experiment.name), at + 1)),
            memo: Arc::clone(&memo),
        };
        let begun = Instant::now();
        let finding = experiment.run(&context);
        context.progress.finish_and_clear();
        write(&args.out, &finding)?;
        let text = text(&finding, begun.elapsed());
        findings.push(finding);
        report(args, &findings).write(&args.out)?;
        say(&text)?;
        let (done, left) = experiments.split_at(at + 1);
        if !left.is_empty() {
            let left_s =
                begun_all.elapsed().as_secs_f64() * weight(left) as f64 / weight(done) as f64;
            let spent_s = begun_all.elapsed().as_secs();
            say(&format!(
                "{} of {all} experiments after {spent_s} s, about {left_s:.0} s left\n\n",
                at + 1
            ))?;
        }
    }
    let spent = effort::spent(begun_all.elapsed());
    say(&format!(
        "{}: CSV files, figures and the report (report.html, report.md)\n{spent}\n",
        args.out.display()
    ))
}

/// A progress bar with an experiment's name and the time it will take. It isn't drawn if the output
/// is no terminal.
fn progress(name: &str) -> ProgressBar {
    let bar = ProgressBar::new(1).with_prefix(name.to_owned());
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent} %, about {eta} left");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The report of what was found so far: an experiment that is interrupted leaves those before it.
fn report<'a>(args: &'a ExperimentArgs, findings: &'a [Finding]) -> Report<'a> {
    let quick = if args.quick { " --quick" } else { "" };
    let lengths = args.value_bytes.as_ref().map(|lengths| format!(" --value-bytes {lengths}"));
    let lengths = lengths.unwrap_or_default();
    let (profile, seed) = (&args.profile.given, args.seed);
    Report {
        profile: &args.profile,
        experiments: args.experiments.join(" "),
        options: format!("{quick}{lengths} --profile {profile} --seed {seed}"),
        seed,
        repetitions: args.effort().repetitions,
        findings,
    }
}

/// Writes an experiment's files.
fn write(out: &Path, finding: &Finding) -> anyhow::Result<()> {
    for (name, csv) in &finding.csv {
        let path = out.join(format!("{name}.csv"));
        std::fs::write(&path, csv.text()).with_context(|| path.display().to_string())?;
    }
    finding.figures.iter().try_for_each(|figure| figure.write(out))
}

/// For the terminal: an experiment's tables.
fn text(finding: &Finding, took: Duration) -> String {
    let tables: String = finding.tables.iter().map(|table| table.text() + "\n").collect();
    format!("{} ({:.0} s)\n{tables}", finding.heading(), took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_name_and_the_error_for_another_name_lists_all() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let found = |chosen: Vec<&Experiment>| {
            chosen.iter().map(|experiment| experiment.name).collect::<Vec<_>>()
        };
        assert_eq!(found(chosen(&names(&["3", "1", "3"])).unwrap()), ["1", "3"]);
        assert_eq!(found(chosen(&names(&["twitter"])).unwrap()), ["twitter"]);
        assert_eq!(chosen(&names(&["all"])).unwrap().len(), Experiment::ALL.len());
        for wrong in [&["15"][..], &["all", "15"]] {
            assert!(chosen(&names(wrong)).err().unwrap().to_string().contains("some of 1 "));
        }
        assert_eq!(counterparts(&names(&["all"])).unwrap(), [1, 2, 7, 8, 9]);
        assert_eq!(counterparts(&names(&["9", "1"])).unwrap(), [9, 1]);
        for none in ["3", "twitter"] {
            let error = counterparts(&names(&["1", none])).unwrap_err().to_string();
            assert!(error.contains(none) && error.contains("[1, 2, 7, 8, 9] have one"), "{error}");
        }
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: ExperimentArgs,
        }
        let parse =
            |line: &str| <Cli as clap::Parser>::try_parse_from(line.split(' ')).map(|cli| cli.args);
        assert_eq!(
            parse("experiment 1 --out o --seed 9223372036854775807").unwrap().seed,
            SEED_MAX
        );
        for wrong in [
            "--seed 9223372036854775808",
            "--threads 0",
            "--profile none",
            "--value-bytes 65537",
            "--value-bytes 64 --measured",
        ] {
            assert!(parse(&format!("experiment 1 --out o {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_document_has_a_place_for_each_experiment() {
        let document = include_str!("../../../docs/measure/evaluation.md");
        let all = Experiment::ALL.iter().map(|experiment| experiment.name);
        let places = all.map(|name| (crate::experiments::file(name), name));
        for (name, experiment) in places.chain([("goals".to_owned(), ALL)]) {
            let block = format!("<!-- generated: {name}: switchback lab experiment {experiment} ");
            assert!(document.contains(&block), "no place for {name}");
        }
    }
}
