//! `switchback lab sim`: seeds, on all cores, until one breaks a promise.

use crate::ablation::Ablation;
use crate::check::{Check, Checks, strings};
use crate::focus::Focus;
use crate::plan::Plan;
use crate::run::{Outcome, Searches, run_traced};
use crate::sweep;
use crate::trace::{TraceEvent, Wanted};
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use switchback_terminal::scheme_parser;
use switchback_wire::Scheme;

/// Torments simulated racks: every seed is another rack with other faults and another load.
#[derive(Args, Clone, Debug, Default)]
pub struct SimArgs {
    /// Run this one seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "minutes"])]
    pub seed: Option<u64>,
    /// Run these seeds (the second one excluded)
    #[arg(long, value_name = "N..M", value_parser = parse_range)]
    pub seeds: Option<(u64, u64)>,
    /// Run seed after seed for T minutes
    #[arg(long, value_name = "T")]
    pub minutes: Option<f64>,
    /// Begin with this seed
    #[arg(long, value_name = "N", requires = "minutes", default_value_t = 0)]
    pub from: u64,
    /// What the cache does (all schemes unless given)
    #[arg(long, value_parser = scheme_parser())]
    pub scheme: Option<Scheme>,
    /// Leave a mechanism out, to see that it is missed
    #[arg(long, value_name = "NAME", value_parser = parse_ablation)]
    pub ablate: Option<&'static str>,
    /// Write what was run and found to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a readable log of every event to this file (of one seed). Of one scheme, and with a
    /// name that ends in .json, the last 20,000 events, which the console's page "Lab" plays
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub trace: Option<PathBuf>,
    /// Write all packets that arrive somewhere to this file, for Wireshark (of one seed and scheme;
    /// 256 MiB at most)
    #[arg(long, value_name = "FILE", requires = "seed", requires = "scheme")]
    pub pcap: Option<PathBuf>,
    /// What racks are about: anything, evictions, switches, splits, stragglers, restarts,
    /// snapshots, losses, disks, clients, bypass, floors, cleanings, maintenance, backups or
    /// repeats (drawn unless given)
    #[arg(long, value_name = "NAME")]
    pub focus: Option<Focus>,
    /// How many seeds run at a time (as many as there are cores unless given)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Two or three replicas of each partition, in racks of schemes that can have them
    #[arg(long)]
    pub replicated: bool,
    /// Without faults (calm), or with those of the data plane only (lossy)
    #[arg(long, value_name = "calm|lossy", value_parser = ["calm", "lossy"])]
    pub mild: Option<String>,
    /// Leave out every mechanism in turn, and print what catches it: the table of
    /// docs/understand/guarantees.md; in racks of a scheme, or of the one that misses it each
    #[arg(long, conflicts_with_all = ["seed", "seeds", "minutes", "ablate"])]
    pub ablations: bool,
    /// Check only what clients can see: what they ask and are told, not how the rack keeps its
    /// promises
    #[arg(long)]
    pub black_box: bool,
    /// Go on after a violation, and count
    #[arg(long)]
    pub keep_going: bool,
    /// Simulate nothing: check what Redis clients recorded in this file, JSON lines (see
    /// `check::strings`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "minutes"])]
    pub check_history: Option<PathBuf>,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let range =
        text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match range {
        Some((from, to)) if from < to => Ok((from, to)),
        _ => Err(format!("'{text}' is no range of seeds: write 0..100")),
    }
}

fn parse_ablation(text: &str) -> Result<&'static str, String> {
    let names =
        || Ablation::ALL.iter().map(|ablation| ablation.name).collect::<Vec<_>>().join(", ");
    Ablation::by_name(text)
        .map(|ablation| ablation.name)
        .ok_or_else(|| format!("'{text}' is no mechanism that can be left out: {}", names()))
}

/// Seeds that each ablation gets at least, for the table.
const ABLATED_SEEDS: u64 = 50;

/// What a number of runs came to.
#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    operations: u64,
    events: u64,
    virtual_us: u64,
    recoveries: u64,
    losses: u64,
    snapshots: u64,
    backups: u64,
    cached: u64,
    /// Runs in which a history was searched.
    searched_runs: u64,
    searches: Searches,
    /// Runs in which something was broken all the time.
    idle: u64,
    faults: BTreeMap<&'static str, u64>,
    violations: Vec<Outcome>,
    /// CPU time of each run.
    cpu: Vec<Duration>,
}

impl Total {
    fn add(&mut self, outcome: Outcome, cpu: Duration) {
        self.seeds += 1;
        self.cpu.push(cpu);
        self.operations += outcome.operations;
        self.events += outcome.statistics.events;
        self.virtual_us += outcome.virtual_us;
        self.recoveries += outcome.statistics.recoveries;
        self.losses += outcome.statistics.losses;
        self.snapshots += outcome.statistics.snapshots;
        self.backups += outcome.statistics.backups;
        self.cached += outcome.statistics.cached;
        self.idle += outcome.statistics.idle;
        self.searched_runs += u64::from(outcome.searches.decided > 0);
        self.searches.decided += outcome.searches.decided;
        self.searches.given_up += outcome.searches.given_up;
        self.searches.operations += outcome.searches.operations;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if outcome.violation.is_some() {
            self.violations.push(outcome);
        }
    }

    fn cpu_seconds(&self) -> f64 {
        self.cpu.iter().sum::<Duration>().as_secs_f64()
    }

    fn median_cpu_seconds(&mut self) -> f64 {
        self.cpu.sort_unstable();
        self.cpu.get(self.cpu.len() / 2).map_or(0.0, Duration::as_secs_f64)
    }
}

/// Runs a plan; how much time of a core it took, however busy the machine is.
fn run_timed(plan: Plan, wanted: Wanted) -> (Outcome, Duration) {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let began = cpu();
    let outcome = run_traced(plan, wanted);
    (outcome, cpu().saturating_sub(began))
}

/// Prints a line. A reader that has ended (`| head`) is no reason to fail.
macro_rules! say {
    ($($part:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// Runs what was asked for; 1 if a promise was broken, or a file can't be written.
pub fn run(args: &SimArgs) -> ExitCode {
    if let Some(path) = &args.check_history {
        return check_history(path);
    }
    if args.ablations {
        let missed = sweep::miss_each(args.scheme, checks(args), ABLATED_SEEDS, threads(args));
        print!("{}", sweep::table(&missed));
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let (mut total, is_written) = match args.seed {
        Some(seed) => run_one(args, seed),
        None => (run_many(args, began), true),
    };
    let seconds = began.elapsed().as_secs_f64();
    total.violations.sort_by_key(|outcome| outcome.plan.seed);
    for outcome in &total.violations {
        say!("{}", describe(outcome));
    }
    summarize(&mut total, seconds);
    if let Some(path) = &args.json
        && let Err(error) = std::fs::write(path, to_json(&total, seconds))
    {
        eprintln!("{} can't be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if total.violations.is_empty() && is_written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// 1 if there is a violation, 2 if it is no history.
fn check_history(path: &Path) -> ExitCode {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let verdict = match read.and_then(|lines| strings::check(&lines)) {
        Ok(verdict) => verdict,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    for violation in &verdict.violations {
        say!("{}: {violation}", Check::Linearizable.name());
    }
    for key in &verdict.undecided {
        say!("undecided: key {key}: it would take too long to tell");
    }
    let (keys, undecided, violations) =
        (verdict.keys, verdict.undecided.len(), verdict.violations.len());
    say!(
        "{} commands ({} unknown) on {keys} keys: {violations} violations, {undecided} keys undecided",
        verdict.commands,
        verdict.unknown
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn threads(args: &SimArgs) -> usize {
    args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

fn ablation(args: &SimArgs) -> Ablation {
    let ablation = args.ablate.and_then(Ablation::by_name).unwrap_or(Ablation::NOTHING);
    Ablation { focus: args.focus.or(ablation.focus), ..ablation }
}

fn checks(args: &SimArgs) -> Checks {
    if args.black_box { Checks::BLACK_BOX } else { Checks::ALL }
}

fn plan(args: &SimArgs, seed: u64, scheme: Scheme) -> Plan {
    let plan = match args.mild.as_deref() {
        None => Plan::draw(seed, scheme, ablation(args)),
        Some("calm") => Plan::calm(seed, scheme),
        Some(_) => Plan::lossy(seed, scheme),
    };
    let plan = if args.replicated { plan.replicated() } else { plan };
    Plan { ablation: ablation(args), checks: checks(args), ..plan }
}

fn schemes(args: &SimArgs) -> Vec<Scheme> {
    args.scheme.map_or(Scheme::ALL.to_vec(), |scheme| vec![scheme])
}

/// One seed; and whether the files that were asked for are written.
fn run_one(args: &SimArgs, seed: u64) -> (Total, bool) {
    let (mut total, mut is_written) = (Total::default(), true);
    let is_json = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    let events = args.trace.as_ref().is_some_and(is_json);
    if events && args.scheme.is_none() {
        eprintln!(
            "a trace in JSON is of one scheme: give --scheme, or a file that doesn't end in .json"
        );
        return (total, false);
    }
    let text = args.trace.is_some() && !events;
    let wanted = Wanted { text, packets: args.pcap.is_some(), events };
    let mut text = String::new();
    for scheme in schemes(args) {
        let (mut outcome, cpu) = run_timed(plan(args, seed, scheme), wanted);
        say!("seed {seed} {}: trace {:016x}", scheme.name(), outcome.trace);
        match events {
            true => text = played(&mut outcome),
            false => text.push_str(&outcome.text),
        }
        if let Some(path) = &args.pcap {
            is_written &= write(path, &std::mem::take(&mut outcome.capture));
        }
        total.add(outcome, cpu);
    }
    if let Some(path) = &args.trace {
        is_written &= write(path, text.as_bytes());
    }
    (total, is_written)
}

/// A run for the console's player. What only a search of the whole history has found is its last
/// event.
fn played(outcome: &mut Outcome) -> String {
    let (mut events, left_out) = std::mem::take(&mut outcome.events);
    let found = outcome.violation.as_ref();
    if let Some(violation) = found.filter(|_| events.iter().all(|it| it.kind != "violation")) {
        let (at_us, text) = (outcome.virtual_us, violation.to_string());
        events.push(TraceEvent { at_us, kind: "violation", text, ..TraceEvent::default() });
    }
    let ablation = outcome.plan.ablation.name;
    let json = serde_json::json!({
        "seed": outcome.plan.seed,
        "scheme": outcome.plan.scheme.name(),
        "ablation": (ablation != "nothing").then_some(ablation),
        "violation": found.map(|it| serde_json::json!({ "check": it.check.name(), "text": it.text })),
        "left_out": left_out,
        "events": events,
    });
    format!("{json}\n")
}

fn write(path: &Path, bytes: &[u8]) -> bool {
    let written = std::fs::write(path, bytes);
    if let Err(error) = &written {
        eprintln!("{} can't be written: {error}", path.display());
    }
    written.is_ok()
}

fn run_many(args: &SimArgs, began: Instant) -> Total {
    let (from, to) =
        args.seeds.unwrap_or((args.from, if args.minutes.is_some() { u64::MAX } else { 100 }));
    let until = args.minutes.map(|minutes| began + Duration::from_secs_f64(minutes * 60.0));
    let schemes = schemes(args);
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    let threads = threads(args);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed)
                    && until.is_none_or(|until| Instant::now() < until)
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    for scheme in &schemes {
                        let (outcome, cpu) =
                            run_timed(plan(args, seed, *scheme), Wanted::default());
                        if outcome.violation.is_some() && !args.keep_going {
                            stop.store(true, Ordering::Relaxed);
                        }
                        let mut total =
                            total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        total.add(outcome, cpu);
                        progress(&total, began);
                    }
                }
            });
        }
    });
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn progress(total: &Total, began: Instant) {
    if std::io::stderr().is_terminal() && total.seeds.is_multiple_of(8) {
        let seconds = began.elapsed().as_secs_f64();
        let rate = total.operations as f64 / seconds;
        let violations = total.violations.len();
        eprint!(
            "\r{} runs, {:.0} operations/s, {violations} violations, {seconds:.0} s ",
            total.seeds, rate
        );
        let _ = std::io::stderr().flush();
    }
}

/// What was promised, how it was broken, and how to see it again.
fn describe(outcome: &Outcome) -> String {
    let (seed, scheme) = (outcome.plan.seed, outcome.plan.scheme.name());
    let ablation = outcome.plan.ablation.name;
    let ablate =
        if ablation == "nothing" { String::new() } else { format!(" --ablate {ablation}") };
    // An ablation brings its focus along.
    let own = Ablation::by_name(ablation).and_then(|ablation| ablation.focus);
    let forced = outcome.plan.ablation.focus.filter(|focus| Some(*focus) != own);
    let focus = forced.map_or(String::new(), |focus| format!(" --focus {}", focus.name()));
    let black_box = if outcome.plan.checks == Checks::BLACK_BOX { " --black-box" } else { "" };
    format!(
        "{}replay: switchback lab sim --seed {seed} --scheme {scheme}{ablate}{focus}{black_box} --trace trace.txt\n",
        outcome.report
    )
}

fn summarize(total: &mut Total, seconds: f64) {
    say!(
        "{} runs, {} operations ({} answered by the cache), {} recoveries, {} losses declared, {} snapshots, {} backups, {} faults, {} violations",
        total.seeds,
        total.operations,
        total.cached,
        total.recoveries,
        total.losses,
        total.snapshots,
        total.backups,
        total.faults.values().sum::<u64>(),
        total.violations.len()
    );
    say!(
        "{seconds:.1} s, {:.0} operations/s, {:.0} events/s, {:.0} virtual seconds",
        total.operations as f64 / seconds,
        total.events as f64 / seconds,
        total.virtual_us as f64 / 1e6
    );
    let Searches { decided, given_up, operations } = total.searches;
    say!(
        "{decided} histories of {operations} operations searched in {} of the runs, {given_up} given up; {} runs were idle",
        total.searched_runs,
        total.idle
    );
    let struck = total.faults.iter().filter(|(_, count)| **count > 0);
    let struck: Vec<_> = struck.map(|(kind, count)| format!("{kind} {count}")).collect();
    say!("faults: {}", struck.join(", "));
    let (cpu_seconds, median) = (total.cpu_seconds(), total.median_cpu_seconds());
    let rate = total.operations as f64 / cpu_seconds;
    say!(
        "{cpu_seconds:.1} s of CPU time, {rate:.0} operations in each; the median run took {median:.3}"
    );
}

fn to_json(total: &Total, seconds: f64) -> String {
    let violation = |outcome: &Outcome| {
        let found = outcome.violation.as_ref().expect("only violations are kept");
        serde_json::json!({
            "seed": outcome.plan.seed,
            "scheme": outcome.plan.scheme.name(),
            "ablation": outcome.plan.ablation.name,
            "check": found.check.name(),
            "text": found.text,
        })
    };
    let json = serde_json::json!({
        "seeds": total.seeds,
        "operations": total.operations,
        "recoveries": total.recoveries,
        "losses": total.losses,
        "snapshots": total.snapshots,
        "backups": total.backups,
        "idle_runs": total.idle,
        "searched_runs": total.searched_runs,
        "searched_histories": total.searches.decided,
        "given_up_histories": total.searches.given_up,
        "faults": total.faults,
        "violations": total.violations.iter().map(violation).collect::<Vec<_>>(),
        "seconds": seconds,
        "cpu_seconds": total.cpu_seconds(),
    });
    format!("{json:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_cannot_be_written_is_a_failure() {
        let is_written = |path: &str| {
            let (scheme, mild) = (Some(Scheme::FarReach), Some("calm".to_owned()));
            run_one(&SimArgs { scheme, mild, pcap: Some(path.into()), ..SimArgs::default() }, 0).1
        };
        assert!(is_written("/dev/null") && !is_written("/dev/full"));
    }

    #[test]
    fn a_trace_for_the_player_ends_with_the_violation() {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace.json");
        let seeds = 0..ABLATED_SEEDS;
        let broken = seeds.map(|seed| {
            let args = SimArgs {
                scheme: Some(Scheme::FarReach),
                ablate: Some("no-fence"),
                trace: Some(trace.clone()),
                ..SimArgs::default()
            };
            run_one(&args, seed)
        });
        let is_broken = |(total, is_written): &(Total, bool)| {
            assert!(is_written);
            !total.violations.is_empty()
        };
        assert!(broken.into_iter().any(|run| is_broken(&run)), "no seed misses the fence");
        let json = std::fs::read_to_string(&trace).unwrap();
        let played: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&played["scheme"], &played["ablation"]),
            (&"farreach".into(), &"no-fence".into())
        );
        let events = played["events"].as_array().unwrap();
        let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
        assert!(
            of("violation") > 0 && of("packet") > 0 && of("message") > 0,
            "{} events",
            events.len()
        );
        let sent = events.iter().find(|event| event["kind"] == "packet").unwrap();
        assert!(
            sent["from"].is_string() && sent["key"].is_string() && sent["arrives_us"].is_array()
        );
    }

    #[test]
    fn a_trace_for_the_player_is_of_one_scheme() {
        let trace = Some("/dev/null/trace.json".into());
        assert!(!run_one(&SimArgs { trace, ..SimArgs::default() }, 0).1);
    }
}
