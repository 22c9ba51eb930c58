//! Explores a configuration of the model from the command line.

use clap::{Args, Parser, Subcommand};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;
use switchback_model::ablation::{ABLATIONS, left_out_by};
use switchback_model::config::{Config, Protection};
use switchback_model::explore::{Conclusion, Model, explore};
use switchback_model::{backup, distcache, replicas, trace};

/// Looks at every state of a small rack: do the rules keep their promises?
///
/// Exits with 1, and a shortest counterexample, if not.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    rack: Rack,
}

/// A model of other rules.
#[derive(Subcommand)]
enum Other {
    /// Backups: one cut through two nodes and a cache.
    Backup(Backup),
    /// DistCache: read-only copies of a key in its leaf and in its spine.
    Distcache(Copies),
    /// Replicated nodes: views, links, joins, and a write-back cache before them.
    Replicas(Replicas),
}

/// A rack with a write-back cache.
#[derive(Args)]
struct Rack {
    /// What each client does: R reads, W writes, D deletes, E writes what expires, C writes if
    /// nothing changed since it saw the key.
    #[arg(default_value = "WR,WR")]
    operations: String,
    /// Times that the node may offer the key.
    #[arg(long, default_value_t = 1)]
    admissions: u8,
    /// Times that it may be evicted.
    #[arg(long, default_value_t = 1)]
    evictions: u8,
    /// Switches of a chain (at most 3): the owner, and those that keep what it tells.
    #[arg(long, default_value_t = 1)]
    layers: usize,
    /// Times that switches may die; the old ones run on. Of a chain any may survive, at least one.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Times that all switches may be exchanged while they live.
    #[arg(long, default_value_t = 0)]
    changes: u8,
    /// Times that a drained chain may be exchanged for one of other switches.
    #[arg(long, default_value_t = 0)]
    hand_overs: u8,
    /// Times that the partition may move to another chain (at most 1).
    #[arg(long, default_value_t = 0)]
    moves: u8,
    /// Times that another chain may be recovered (at most 2).
    #[arg(long, default_value_t = 0)]
    other_recoveries: u8,
    /// Who protects each epoch, in order; the last one stands for all later ones. By default
    /// clients protect one switch, and switches a longer chain.
    #[arg(long, value_delimiter = ',', value_parser = protection)]
    protection: Vec<Protection>,
    /// All switches may die though they alone protect their epoch: the loss is declared then.
    #[arg(long)]
    declares: bool,
    /// Times that a dirty record may be stored and marked as clean.
    #[arg(long, default_value_t = 0)]
    cleanings: u8,
    /// Snapshots.
    #[arg(long, default_value_t = 0)]
    snapshots: u8,
    /// Restarts of the node.
    #[arg(long, default_value_t = 0)]
    node_restarts: u8,
    /// Restarts of the controller. One within a recovery begins another, so crashes, changes,
    /// hand-overs, restarts and twice the moves are at most 3 together.
    #[arg(long, default_value_t = 0)]
    controller_restarts: u8,
    /// Times that the node's floor may rise; clients may give operations up then.
    #[arg(long, default_value_t = 0)]
    floor_rises: u8,
    /// Writes look the record up some time after they took their number, as on several cores.
    #[arg(long)]
    two_cores: bool,
    /// Clients may give operations up.
    #[arg(long)]
    gives_up: bool,
    /// Leave a mechanism out; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = names(ABLATIONS))]
    ablate: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    limits: Limits,
}

/// What is looked at of a rack with a write-back cache.
#[derive(Args)]
struct Scope {
    /// Numbers that a switch gives out before it refuses writes (1 to 31).
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=31))]
    counter_max: u8,
    /// Look only at what clients see, not at what could be lost since a part lacks it.
    #[arg(long)]
    only_seen: bool,
    /// Keep packets that can't matter any more: slower, and the same conclusion.
    #[arg(long)]
    keep_dead_packets: bool,
}

#[derive(Args)]
struct Copies {
    /// What each client does: R reads, W writes.
    #[arg(default_value = "WR,R")]
    operations: String,
    /// Times that a copy may be admitted, in all.
    #[arg(long, default_value_t = 2)]
    admissions: u8,
    /// Times that a copy may be evicted, in all.
    #[arg(long, default_value_t = 1)]
    evictions: u8,
    /// The spine may be taken for dead; the old one runs on.
    #[arg(long)]
    crash: bool,
    /// The node may restart, once.
    #[arg(long)]
    restart: bool,
    /// Leave a mechanism out; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = names(distcache::ABLATIONS))]
    ablate: Vec<String>,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
struct Replicas {
    /// What each client does: R reads, W writes, D deletes, C writes if nothing changed since it
    /// saw the key.
    #[arg(default_value = "WR,R")]
    operations: String,
    /// Replicas of the key's partition at first (at most 3).
    #[arg(long, short, default_value_t = 2)]
    replicas: usize,
    /// Times that the head may offer the key.
    #[arg(long, default_value_t = 0)]
    offers: u8,
    /// Times that the key may be evicted.
    #[arg(long, default_value_t = 0)]
    evictions: u8,
    /// Times that a node may die; another member lives.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Times that a node which lives may be removed: it leaves, or is taken for dead.
    #[arg(long, default_value_t = 0)]
    removals: u8,
    /// Times that a node may restart.
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// Times that a link may break, with frames on it.
    #[arg(long, default_value_t = 0)]
    breaks: u8,
    /// Times that a node may join.
    #[arg(long, default_value_t = 0)]
    joins: u8,
    /// Times that two replicas may change places.
    #[arg(long, default_value_t = 0)]
    reorders: u8,
    /// Times that a client may give an operation up.
    #[arg(long, default_value_t = 0)]
    given_up: u8,
    /// Times that a node's floor may rise.
    #[arg(long, default_value_t = 0)]
    floor_rises: u8,
    /// Leave a mechanism out; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = names(replicas::ABLATIONS))]
    ablate: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
struct Backup {
    /// What each client does: X and Y write that key, x and y read it.
    #[arg(default_value = "XY,Yx")]
    operations: String,
    /// Times that the controller may try to cut.
    #[arg(long, default_value_t = 1)]
    tries: u8,
    /// Times that a key may be admitted; X is cached at first.
    #[arg(long, default_value_t = 1)]
    admissions: u8,
    /// Times that a key may be evicted.
    #[arg(long, default_value_t = 1)]
    evictions: u8,
    /// Times that a dirty record may be stored and marked as clean.
    #[arg(long, default_value_t = 0)]
    cleanings: u8,
    /// Times that a client's lease may run out.
    #[arg(long, default_value_t = 0)]
    lapses: u8,
    /// Clients may give writes up.
    #[arg(long)]
    gives_up: bool,
    /// Leave a mechanism out; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = names(backup::ABLATIONS))]
    ablate: Vec<String>,
    #[command(flatten)]
    limits: Limits,
}

/// How far to go, and what to say meanwhile.
#[derive(Args)]
struct Limits {
    /// Stop after about this many states; 25 to 40 bytes each, and some 500 for each of the newest.
    #[arg(long, default_value_t = 20_000_000)]
    states: usize,
    /// A line to stderr for each depth.
    #[arg(long, short)]
    verbose: bool,
}

fn protection(name: &str) -> Result<Protection, String> {
    match name {
        "clients" => Ok(Protection::Clients),
        "switches" => Ok(Protection::Switches),
        _ => Err("neither 'clients' nor 'switches'".into()),
    }
}

fn names<M>(ablations: &[(&'static str, M)]) -> clap::builder::PossibleValuesParser {
    ablations.iter().map(|(name, _)| *name).collect::<Vec<_>>().into()
}

impl Copies {
    fn config(&self) -> Result<distcache::Config, String> {
        let left_out = |name: &String| left_out_by(distcache::ABLATIONS, name);
        Ok(distcache::Config {
            admissions: self.admissions,
            evictions: self.evictions,
            crashes: self.crash,
            restarts: self.restart,
            without: self.ablate.iter().filter_map(left_out).collect(),
            ..distcache::Config::of(&self.operations)?
        })
    }
}

impl Replicas {
    fn config(&self) -> Result<replicas::Config, String> {
        if !(1..=3).contains(&self.replicas) {
            return Err("1 to 3 replicas".into());
        }
        let left_out = |name: &String| left_out_by(replicas::ABLATIONS, name);
        Ok(replicas::Config {
            replicas: self.replicas,
            at_most: replicas::Times {
                offers: self.offers,
                evictions: self.evictions,
                crashes: self.crashes,
                removals: self.removals,
                restarts: self.restarts,
                breaks: self.breaks,
                joins: self.joins,
                reorders: self.reorders,
                given_up: self.given_up,
                floor_rises: self.floor_rises,
            },
            counter_max: self.scope.counter_max,
            without: self.ablate.iter().filter_map(left_out).collect(),
            only_seen: self.scope.only_seen,
            keeps_dead_packets: self.scope.keep_dead_packets,
            ..replicas::Config::of(&self.operations)?
        })
    }
}

impl Backup {
    fn config(&self) -> Result<backup::Config, String> {
        let left_out = |name: &String| left_out_by(backup::ABLATIONS, name);
        Ok(backup::Config {
            tries: self.tries,
            admissions: self.admissions,
            evictions: self.evictions,
            cleanings: self.cleanings,
            lapses: self.lapses,
            gives_up: self.gives_up,
            without: self.ablate.iter().filter_map(left_out).collect(),
            ..backup::Config::of(&self.operations)?
        })
    }

    fn run(&self, config: &backup::Config) -> io::Result<ExitCode> {
        let ended = run(config, &self.limits, backup::trace)?;
        writeln!(io::stdout(), "{} complete backups", config.checked.get())?;
        Ok(ended)
    }
}

impl Rack {
    fn config(&self) -> Result<Config, String> {
        let changes = self.crashes + self.changes + self.hand_overs;
        if changes + self.controller_restarts + 2 * self.moves > 3 {
            return Err("at most 3 crashes, changes, hand-overs, restarts of the controller and \
                        moves (each counts twice) together"
                .into());
        }
        if self.moves > 1 || self.other_recoveries > 2 || self.moves * self.other_recoveries > 0 {
            return Err("at most 1 move, or else 2 recoveries of the other chain".into());
        }
        if !(1..=3).contains(&self.layers) {
            return Err("1 to 3 layers".into());
        }
        Ok(Config {
            admissions: self.admissions,
            evictions: self.evictions,
            layers: self.layers,
            crashes: self.crashes,
            changes: self.changes,
            hand_overs: self.hand_overs,
            cleanings: self.cleanings,
            moves: self.moves,
            other_recoveries: self.other_recoveries,
            protection: self.protection.clone(),
            declares: self.declares,
            only_seen: self.scope.only_seen,
            snapshots: self.snapshots,
            node_restarts: self.node_restarts,
            controller_restarts: self.controller_restarts,
            floor_rises: self.floor_rises,
            two_cores: self.two_cores,
            gives_up: self.gives_up,
            counter_max: self.scope.counter_max,
            without: self.ablate.iter().filter_map(|name| left_out_by(ABLATIONS, name)).collect(),
            keeps_dead_packets: self.scope.keep_dead_packets,
            ..Config::of(&self.operations)?
        })
    }
}

fn main() -> ExitCode {
    let Arguments { other, rack } = Arguments::parse();
    let explored = match &other {
        None => rack.config().map(|config| run(&config, &rack.limits, trace::trace)),
        Some(Other::Backup(cut)) => cut.config().map(|config| cut.run(&config)),
        Some(Other::Distcache(copies)) => {
            copies.config().map(|config| run(&config, &copies.limits, distcache::trace))
        }
        Some(Other::Replicas(nodes)) => {
            nodes.config().map(|config| run(&config, &nodes.limits, replicas::trace))
        }
    };
    match explored {
        Ok(ended) => ended.unwrap_or(ExitCode::from(2)), // the reader has ended
        Err(error) => {
            eprintln!("switchback-model: {error}");
            ExitCode::from(2)
        }
    }
}

fn run<M: Model>(
    model: &M,
    limits: &Limits,
    trace: fn(&M, &[M::Action]) -> Vec<String>,
) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let began = Instant::now();
    let report = explore(model, limits.states, |depth, states| {
        if limits.verbose {
            eprintln!("depth {depth}: {states} states");
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    writeln!(out, "{} states, depth {}, {seconds:.1} s", report.states, report.depth)?;
    match report.conclusion {
        Conclusion::Holds => writeln!(out, "holds: every state was seen")?,
        Conclusion::HoldsSoFar => writeln!(out, "holds so far: there are more states")?,
        Conclusion::Violated(broken, path) => {
            writeln!(out, "violated: {broken}")?;
            for line in trace(model, &path) {
                writeln!(out, "{line}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
