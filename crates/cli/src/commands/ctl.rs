//! `switchback ctl`: asks and tells a running rack.

mod events;
mod hot;
mod switches;
mod top;

use super::address;
use crate::output::Align::{Left, Right};
use crate::output::{self, Paint, Style, Table, bytes, grouped, printable, seconds};
use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use switchback_rack::admin::{
    CachedRecord, CachedStatus, ChainStatus, ControlStatus, DrainResult, NodeStatus,
    PartitionStatus, RackStatus, ReplicationStatus, SECONDS_DEFAULT, SECONDS_MAX, SnapshotResult,
    SnapshotStatus, SwitchStatus,
};

const EXAMPLES: &str = "\
Examples:
  switchback ctl status
  switchback ctl cached --limit 20
  switchback ctl hot --seconds 10
  switchback ctl top --once
  switchback ctl status --json | jq .operations
  switchback ctl partitions --json | jq '.[] | select(.replicas[0] == 2)'
  switchback ctl switches replace 0 2       # 2 is a spare; then 0 can be stopped
  switchback ctl switches drain 0 && systemctl stop switchback-switch@0";

/// Ask or tell a running rack.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    command: CtlCommand,

    /// Where the rack serves its metrics: `metrics=` of the ready line.
    #[arg(
        long,
        global = true,
        value_name = "ADDR",
        default_value = "127.0.0.1:9464",
        value_parser = address
    )]
    metrics: SocketAddr,

    /// How to answer.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t = OutputForm::Text,
        value_name = "FORM"
    )]
    output: OutputForm,

    /// Short for `--output json`.
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
}

/// How commands answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OutputForm {
    /// For people.
    Text,
    /// For programs; documented in docs/run/operations.md.
    Json,
}

#[derive(Subcommand, Clone, Copy, Debug)]
enum CtlCommand {
    /// The rack at a glance: who answers, what is cached, the last recovery.
    Status,
    /// Which keys are cached, the most counted first: how often each was counted, since when it is
    /// cached, whether a node has its record, its size, where it is.
    ///
    /// The count is the switch's access counter, which is halved now and then (ageing): it tells
    /// how hot a key is of late, not how often it was asked for. The age is the time since the key
    /// got its slot. A dirty record is in the cache and at no node. Bytes are those of key and
    /// value. What the switch doesn't tell is a `-`; so is the age of a key that was cached before
    /// the controller started.
    Cached {
        /// How many to list at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// The hottest keys now: how often each is asked for, how long its value is, whether it is
    /// cached, or why not.
    ///
    /// The gateway counts one request in 64, so rates are estimates: of a key with n samples
    /// within 2 / sqrt(n) nearly always. `by cache` is the share of the key's requests that the
    /// cache answered in that time. Of a key beyond 128 B the beginning is shown.
    Hot {
        /// How many to list at most; 256 are counted.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Whole seconds to look back, besides the one that is under way; 10 at most.
        #[arg(
            long,
            value_name = "S",
            default_value_t = SECONDS_DEFAULT,
            value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX)
        )]
        seconds: u64,
    },
    /// What has happened, the last of it at the end: recoveries with their steps, snapshots,
    /// epochs, admissions in sum, drains, nodes and switches that came or went, errors.
    ///
    /// The process looks once a second and keeps 1,000 events. Snapshots and admissions are summed
    /// over 5 minutes.
    Events {
        /// How many to list at most.
        #[arg(long, value_name = "N", default_value_t = 40)]
        limit: usize,
    },
    /// The rack as it is now, each second anew: requests, cache, nodes, hottest keys. `q` or Ctrl-C
    /// ends it.
    ///
    /// With --json each sample is a line.
    Top {
        /// Print one frame, and end.
        #[arg(long)]
        once: bool,
    },
    /// Chains of switches: epoch, phase, the switch that serves, snapshots, what is cached.
    Chains,
    /// Every switch: whether it serves, is a spare or is down, its epoch; or take one out of
    /// service.
    Switches {
        #[command(subcommand)]
        command: Option<SwitchesCommand>,
    },
    /// Every node: whether it is up, its load, its size.
    Nodes,
    /// The map of partitions: first routing key, view, chain of switches, replicas.
    Partitions,
    /// Take a snapshot of the cache now, and wait until it is durable.
    Snapshot,
    /// Empty the cache: bring every cached record to its node. The rack goes on serving, and caches
    /// what is hot again.
    Drain,
}

/// Maintenance of switches while the rack runs. Nothing is lost, and no write fails.
#[derive(Subcommand, Clone, Copy, Debug)]
enum SwitchesCommand {
    /// Take a switch out of service, and wait until it serves no more: it can be stopped then.
    ///
    /// Its chain's cache is brought to the nodes, and fills again in the next epoch, in which a
    /// spare takes its place, or the chain is shorter by one. A switch that is drained stays so,
    /// also over restarts, until `add`. Refused if no other switch could serve.
    Drain {
        /// Its number.
        switch: u16,
    },
    /// The same, with this switch in its place: it is a spare of the same layer.
    Replace {
        /// The number of the one that goes.
        switch: u16,
        /// The number of the one that comes.
        spare: u16,
    },
    /// Take a switch back into service: it takes the place of its layer if that is free, else it
    /// is a spare.
    Add {
        /// Its number.
        switch: u16,
    },
}

pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let rack = Rack { address: args.metrics };
    let form = if args.json { OutputForm::Json } else { args.output };
    match args.command {
        CtlCommand::Status => show(form, &rack.get::<RackStatus>("status")?, status_text),
        CtlCommand::Cached { limit } => {
            show(form, &rack.get(&format!("cached?limit={limit}"))?, cached_text)
        }
        CtlCommand::Hot { limit, seconds } => {
            show(form, &rack.get(&format!("hot?limit={limit}&seconds={seconds}"))?, hot::hot_text)
        }
        CtlCommand::Events { limit } => {
            show(form, &rack.get(&format!("events?limit={limit}"))?, events::events_text)
        }
        CtlCommand::Top { once } => top::run(&rack, form, once),
        CtlCommand::Nodes => show(form, &rack.get::<Vec<NodeStatus>>("nodes")?, |nodes, paint| {
            nodes_text(nodes, paint)
        }),
        CtlCommand::Chains => {
            show(form, &rack.get::<Vec<ChainStatus>>("chains")?, |it, paint| chains_text(it, paint))
        }
        CtlCommand::Switches { command } => {
            let switches = match command {
                None => rack.get("switches")?,
                Some(command) => switches::change(&rack, command)?,
            };
            show(form, &switches, |it: &Vec<SwitchStatus>, paint| switches_text(it, paint))
        }
        CtlCommand::Partitions => {
            show(form, &rack.get::<Vec<PartitionStatus>>("partitions")?, |it, paint| {
                partitions_text(it, paint)
            })
        }
        CtlCommand::Snapshot => {
            show(form, &rack.post::<SnapshotResult>("snapshot")?, snapshot_text)
        }
        CtlCommand::Drain => {
            let result: DrainResult = rack.post("drain")?;
            show(form, &result, drain_text)?;
            if !result.remaining.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
            Ok(())
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

fn show<T: serde::Serialize>(
    form: OutputForm,
    value: &T,
    text: impl FnOnce(&T, Paint) -> String,
) -> anyhow::Result<()> {
    match form {
        OutputForm::Json => output::line(&serde_json::to_string_pretty(value)?),
        OutputForm::Text => output::line(text(value, Paint::stdout()).trim_end()),
    }
}

/// A running rack, by its HTTP address.
pub(crate) struct Rack {
    pub(crate) address: SocketAddr,
}

impl Rack {
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.answer(agent(Duration::from_secs(10)).get(self.url(path)).call())
    }

    /// The lines of an answer that goes on.
    fn stream(&self, path: &str) -> anyhow::Result<impl BufRead + Send + 'static> {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
        let agent: ureq::Agent =
            config.timeout_connect(Some(Duration::from_secs(2))).build().into();
        let mut answer = self.answered(agent.get(self.url(path)).call())?;
        match answer.status().as_u16() {
            200 => Ok(BufReader::new(answer.into_body().into_reader())),
            code => Err(self.refused(code, &answer.body_mut().read_to_string()?)),
        }
    }

    /// Commands take as long as they take: a drain writes every cached record to a disk.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.answer(agent(Duration::from_secs(3600)).post(self.url(path)).send_empty())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<T> {
        let address = self.address;
        let mut answer = self.answered(answer)?;
        let code = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(1 << 30).read_to_string();
        let body = body.with_context(|| format!("the answer of {address} broke off"))?;
        if code != 200 {
            return Err(self.refused(code, &body));
        }
        serde_json::from_str(&body).with_context(|| {
            format!("what answers at {address} is no rack of this version; use the `switchback` that runs there")
        })
    }

    /// Why the rack didn't carry out what it was asked.
    fn refused(&self, code: u16, body: &str) -> anyhow::Error {
        let address = self.address;
        match code {
            404 => anyhow!(
                "what answers at {address} is no rack; its ready line says where it serves its metrics"
            ),
            _ => anyhow!("{}", body.trim_end()),
        }
    }

    /// The answer, or why none came.
    fn answered(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<ureq::http::Response<ureq::Body>> {
        let address = self.address;
        match answer {
            Ok(answer) => Ok(answer),
            Err(ureq::Error::Timeout(_)) => {
                bail!(
                    "{address} doesn't answer in time: the rack hangs, or something between here and there drops packets"
                )
            }
            Err(ureq::Error::ConnectionFailed | ureq::Error::Io(_) | ureq::Error::HostNotFound) => {
                bail!(
                    "no rack answers at {address}: is `switchback up` running? If it serves its \
                 metrics elsewhere (its ready line says where), use --metrics ADDR"
                )
            }
            Err(error) => Err(error).context(format!("what answers at {address} is no rack")),
        }
    }
}

fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config
        .timeout_connect(Some(Duration::from_secs(2)))
        .timeout_global(Some(timeout))
        .build()
        .into()
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A number, or a dash for what the process that was asked can't know.
fn number(known: Option<impl Into<u64>>) -> String {
    known.map_or("-".to_owned(), |known| grouped(known.into()))
}

fn size(known: Option<u64>) -> String {
    known.map_or("-".to_owned(), bytes)
}

/// Where to ask for what the process that was asked can't know.
fn asked_at(who: &str, section: &str) -> String {
    format!("known to {who}: ask it with --metrics, as metrics in {section} of rack.toml says")
}

type Lines = Vec<(&'static str, String)>;

fn status_text(status: &RackStatus, paint: Paint) -> String {
    let mut lines = rack_lines(status, paint);
    lines.extend(replica_lines(status, paint));
    lines.extend(cache_lines(status));
    lines.extend(durability_lines(status, paint));
    lines.extend(recovery_lines(status, paint));
    let mut text = String::new();
    for (name, value) in lines {
        text += &format!("{} {value}\n", paint.text(Style::Bold, &format!("{name:<11}")));
    }
    if status.switches.len() > 1 || status.switches.iter().any(|switch| switch.address.is_some()) {
        text += "\n";
        text += &switches_text(&status.switches, paint);
    }
    text + "\n" + &nodes_text(&status.nodes, paint)
}

fn rack_lines(status: &RackStatus, paint: Paint) -> Lines {
    let phase = match status.phase.as_str() {
        "serving" => paint.text(Style::Green, "serving"),
        phase => paint.text(Style::Yellow, &printable(phase)),
    };
    let phase = if status.draining == Some(true) { format!("{phase}, draining") } else { phase };
    vec![
        (
            "rack",
            format!(
                "{} ({}, {}, version {})",
                printable(&status.name),
                printable(&status.scheme),
                printable(&status.shape),
                printable(&status.version)
            ),
        ),
        (
            "phase",
            format!(
                "{phase}; epoch {}, up {}",
                number(status.epoch),
                seconds(status.uptime_seconds)
            ),
        ),
    ]
}

fn replica_lines(status: &RackStatus, paint: Paint) -> Lines {
    let Some(replication) = status.replication.filter(|it| it.replicas > 1) else {
        return Vec::new();
    };
    let ReplicationStatus { replicas, lacking, joining, unavailable, may_fail } = replication;
    let nodes = if may_fail == 1 { "node" } else { "nodes" };
    let may_fail = format!("{may_fail} more {nodes} may fail");
    if lacking == 0 {
        return vec![("replicas", format!("{replicas} of each partition; {may_fail}"))];
    }
    let lacking = format!(
        "{} partitions have fewer than {replicas}, {} are being copied; {may_fail}",
        grouped(lacking),
        grouped(joining)
    );
    let mut lines = vec![("replicas", paint.text(Style::Yellow, &lacking))];
    if unavailable > 0 {
        let waiting = format!("{} partitions wait for their nodes", grouped(unavailable));
        lines.push(("", paint.text(Style::Red, &waiting)));
    }
    lines
}

fn cache_lines(status: &RackStatus) -> Lines {
    let cache = &status.cache;
    let cached = format!(
        "{} of {} records; {} wait, {} admitted, {} evicted",
        number(cache.records),
        grouped(cache.records_max),
        number(cache.waiting_offers),
        number(cache.admissions),
        number(cache.evictions)
    );
    let mut lines = vec![("cache", cached)];
    lines.extend(status.control.as_ref().map(|control| ("control", control_text(control))));
    let Some(operations) = &status.operations else {
        lines.push(("operations", asked_at("the switch", "its [[switch]]")));
        return lines;
    };
    let answered = format!(
        "{} reads, {} writes; {} answered by the switch ({}), {} by nodes",
        grouped(operations.reads),
        grouped(operations.writes),
        grouped(operations.answered_by_switch),
        percent(operations.hit_ratio()),
        grouped(operations.answered_by_nodes)
    );
    let more = format!(
        "{} writes absorbed, {} conservative reads, {} packets dropped",
        grouped(operations.absorbed_writes),
        grouped(operations.conservative_reads),
        grouped(operations.dropped)
    );
    lines.extend([("operations", answered), ("", more)]);
    lines
}

fn control_text(control: &ControlStatus) -> String {
    format!(
        "{} of {} messages/s, {} of {} bytes/s for admissions and evictions; delayed {} times",
        grouped(control.messages_per_s),
        grouped(control.messages_per_s_max),
        grouped(control.bytes_per_s),
        grouped(control.bytes_per_s_max),
        grouped(control.delays)
    )
}

fn durability_lines(status: &RackStatus, paint: Paint) -> Lines {
    let taken = match &status.snapshots {
        Some(snapshots) => snapshots_text(snapshots),
        None => asked_at("the controller", "[rack]"),
    };
    let mut lines = vec![("snapshots", taken)];
    if let Some(error) = status.snapshots.as_ref().and_then(|snapshots| snapshots.error.as_deref())
    {
        lines.push(("", paint.text(Style::Red, &printable(error))));
    }
    let clients = &status.clients;
    let sessions = format!("{} sessions", number(clients.sessions));
    let kept = match clients.connections {
        Some(connections) => format!(
            "{} connections; {} records ({}) not yet durable elsewhere, spool {}",
            grouped(connections),
            number(clients.preserved_records),
            size(clients.preserved_bytes),
            size(clients.spool_bytes)
        ),
        None => format!(
            "connections and preserved records are {}",
            asked_at("the gateway", "[gateway]")
        ),
    };
    lines.push(("clients", format!("{sessions}, {kept}")));
    lines
}

fn snapshots_text(snapshots: &SnapshotStatus) -> String {
    format!(
        "{} durable, {} failed; the last: {} records, {}, {}; generation {}, durable below {}",
        grouped(snapshots.completed),
        grouped(snapshots.failed),
        grouped(snapshots.records),
        bytes(snapshots.bytes),
        seconds(snapshots.duration_seconds),
        snapshots.generation,
        snapshots.durable_generation
    )
}

fn recovery_lines(status: &RackStatus, paint: Paint) -> Lines {
    let Some(recovery) = &status.recovery else { return Vec::new() };
    let mut lines = vec![("recovery", events::recovery_text(recovery))];
    if recovery.abandoned_clients > 0 {
        let clients = format!(
            "{} clients did not answer before their lease ran out",
            recovery.abandoned_clients
        );
        lines.push(("", paint.text(Style::Yellow, &clients)));
    }
    if recovery.lost_keys > 0 {
        let keys = format!(
            "what was acknowledged last of {} keys may be lost: no switch that had it came back",
            grouped(recovery.lost_keys)
        );
        lines.push(("", paint.text(Style::Red, &keys)));
    }
    lines
}

fn chains_text(chains: &[ChainStatus], paint: Paint) -> String {
    let table = Table::of(
        chains,
        &[
            ("chain", Right, &|chain| chain.chain.to_string()),
            ("epoch", Right, &|chain| chain.epoch.to_string()),
            ("phase", Left, &|chain| printable(&chain.phase)),
            ("switches", Right, &|chain| members(&chain.switches)),
            ("generation", Right, &|chain| chain.generation.to_string()),
            ("durable below", Right, &|chain| chain.durable_generation.to_string()),
            ("cached", Right, &|chain| grouped(chain.cached)),
            ("protected by", Left, &|chain| protection(chain)),
        ],
    );
    table.painted(paint)
}

/// Who has what a chain tells, until nodes have it.
fn protection(chain: &ChainStatus) -> String {
    let switches = format!("switches of {} domains", chain.domains);
    match (chain.domains > 1, chain.preserved) {
        (true, true) => format!("{switches}, clients"),
        (true, false) => switches,
        (false, true) if !chain.switches.is_empty() => "clients".into(),
        // Without a switch, or with one that answers only what they have.
        (false, _) => "nodes".into(),
    }
}

/// Parts by their numbers, in the order in which requests pass them.
fn members(numbers: &[u16]) -> String {
    if numbers.is_empty() {
        return "-".into();
    }
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn partitions_text(partitions: &[PartitionStatus], paint: Paint) -> String {
    let replicas = |partition: &PartitionStatus| members(&partition.replicas);
    let table = Table::of(
        partitions,
        &[
            ("partition", Right, &|partition| partition.partition.to_string()),
            ("first key", Left, &|partition| printable(&partition.first_key)),
            ("view", Right, &|partition| partition.view.to_string()),
            ("chain", Right, &|partition| partition.chain.to_string()),
            ("replicas", Left, &replicas),
        ],
    );
    table.painted(paint)
}

fn switches_text(switches: &[SwitchStatus], paint: Paint) -> String {
    let table = Table::of(
        switches,
        &[
            ("switch", Right, &|switch| switch.index.to_string()),
            ("address", Left, &|switch| switch.address.as_deref().map_or(String::new(), printable)),
            ("state", Left, &|switch| switch.state().to_owned()),
            ("chain", Right, &|switch| switch.chain.map_or("-".into(), |chain| chain.to_string())),
            ("epoch", Right, &|switch| switch.epoch.to_string()),
            ("error", Left, &|switch| switch.error.as_deref().map_or(String::new(), printable)),
        ],
    );
    table.painted(paint)
}

fn nodes_text(nodes: &[NodeStatus], paint: Paint) -> String {
    let load = |node: &NodeStatus| Some(node.reads? + node.writes?);
    // A share says nothing unless all are known.
    let all = nodes.iter().map(load).sum::<Option<u64>>().filter(|all| *all > 0);
    let share = |node: &NodeStatus| Some(load(node)? as f64 / all? as f64);
    let table = Table::of(
        nodes,
        &[
            ("node", Right, &|node| node.index.to_string()),
            ("address", Left, &|node| node.address.as_deref().map_or("-".into(), printable)),
            ("state", Left, &|node| node.state().unwrap_or("-").to_owned()),
            ("partitions", Right, &|node| number(node.partitions)),
            ("cached", Right, &|node| number(node.cached_keys)),
            ("reads", Right, &|node| number(node.reads)),
            ("writes", Right, &|node| number(node.writes)),
            ("load", Right, &|node| percent(share(node))),
            ("disk", Right, &|node| size(node.disk_bytes)),
            ("error", Left, &|node| node.error.as_deref().map_or(String::new(), printable)),
        ],
    );
    let mut text = table.painted(paint);
    if nodes.iter().any(|node| node.alive.is_some() && node.disk_bytes.is_none()) {
        text += &format!("load and disk are {}\n", asked_at("each node", "its [[node]]"));
    } else if nodes.iter().any(|node| node.alive.is_none()) {
        text += &format!("what others do is {}\n", asked_at("the controller", "[rack]"));
    }
    text
}

fn cached_text(cached: &CachedStatus, paint: Paint) -> String {
    let dirty = |record: &CachedRecord| match record.dirty {
        None => "-".to_owned(),
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
    };
    let table = Table::of(
        &cached.records,
        &[
            ("key", Left, &|record| printable(&record.key)),
            ("node", Right, &|record| record.node.to_string()),
            ("count", Right, &|record| number(record.count)),
            ("age", Right, &|record| record.age_seconds.map_or("-".to_owned(), seconds)),
            ("dirty", Left, &dirty),
            ("bytes", Right, &|record| number(record.bytes)),
            ("class", Right, &|record| record.class.to_string()),
            ("slot", Right, &|record| record.slot.to_string()),
            ("stage", Left, &|record| printable(&record.stage)),
        ],
    );
    let shown = cached.records.len() as u64;
    let more = cached.total.saturating_sub(shown);
    match (shown, more) {
        (0, 0) => {
            "nothing is cached yet: a key is admitted once it is asked for ([cache] of rack.toml sets limits)".to_owned()
        }
        (_, 0) => table.painted(paint),
        (_, more) => {
            table.painted(paint) + &format!("and {} more; --limit lists them\n", grouped(more))
        }
    }
}

fn snapshot_text(result: &SnapshotResult, _: Paint) -> String {
    format!(
        "durable: generation {}, {} records, {}, in {}",
        result.generation,
        grouped(result.records),
        bytes(result.bytes),
        seconds(result.duration_seconds)
    )
}

fn drain_text(result: &DrainResult, paint: Paint) -> String {
    let drained = format!(
        "{} records brought to their nodes in {}",
        grouped(result.drained),
        seconds(result.duration_seconds)
    );
    let remaining =
        result.remaining.iter().map(|line| paint.text(Style::Red, &format!("\nremains: {line}")));
    drained + &remaining.collect::<String>()
}

#[cfg(test)]
mod tests;
