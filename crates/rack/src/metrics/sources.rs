//! What each part counts, as metrics. docs/run/operations.md lists them.

use super::histogram::HistogramSnapshot;
use super::samples::Samples;
use crate::config::RackConfig;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use switchback_core::controller::{
    ChainStatus, ControlCost, ControllerStatus, Declined, RecoveryTimes, ReplicationStatus,
};
use switchback_core::node::NodeStatistics;
use switchback_core::switch::AgentStatistics;
use switchback_datapath::{DropReason, Statistics};
use switchback_gateway::{Answerer, ErrorKind, GatewayStatistics, Refused, Verb, WorkerStatistics};
use switchback_heat::{Heat, SECONDS_MAX};
use switchback_net::LinkStatistics;
use switchback_net::{ControlStatistics, SocketQueue};
use switchback_wire::Scheme;
use switchback_xdp::Watch;

/// What runs here.
pub fn build(samples: &mut Samples, rack: &str, scheme: Scheme) {
    let labels =
        [("version", env!("CARGO_PKG_VERSION")), ("rack", rack), ("scheme", scheme.name())];
    samples.gauge("switchback_build_info", "Always 1; the labels say what runs.", &labels, 1.0);
}

/// Where the kernel runs the pipeline of one switch.
pub fn interface(samples: &mut Samples, switch: &str, watch: &Watch, passed: u64) {
    let (mode, is_attached) = (watch.mode().to_string(), watch.is_attached());
    let labels = [("switch", switch), ("interface", watch.interface()), ("mode", mode.as_str())];
    let help = "1 while the kernel runs the datapath there, in this mode; 0 once it was taken off.";
    samples.gauge("switchback_xdp_attached", help, &labels, f64::from(u8::from(is_attached)));
    let help =
        "Packets that the kernel couldn't answer where they came in, and left to the process.";
    samples.counter("switchback_xdp_passed_total", help, &[("switch", switch)], passed);
}

/// The pipeline of one switch.
pub fn datapath(samples: &mut Samples, switch: &str, counted: &Statistics) {
    requests(samples, switch, counted);
    lookups(samples, switch, counted);
    outcomes(samples, switch, counted);
    for (reason, &count) in DropReason::ALL.iter().zip(&counted.drops).skip(1) {
        dropped(samples, "switch", switch, reason.name(), count);
    }
}

fn requests(samples: &mut Samples, switch: &str, counted: &Statistics) {
    const REQUESTS: &str = "Requests that the switch took from clients, retries included.";
    let requests = [
        ("read", counted.read),
        ("write", counted.write),
        ("delete", counted.delete),
        ("fragment", counted.fragment),
        ("read_fragment", counted.read_fragment),
        ("scan", counted.scan),
    ];
    let (name, labels) = ("switchback_switch_requests_total", [("switch", switch)]);
    samples.counter_by(name, REQUESTS, &labels, "verb", requests);
    const ANSWERS: &str =
        "Answers to clients by kind of request (deletes count as writes) and by who gave them.";
    for (verb, by, count) in [
        ("read", "switch", counted.cached_reads()),
        ("read", "node", counted.read_reply),
        ("write", "switch", counted.absorbed_writes + counted.repeated_answers),
        ("write", "node", counted.write_reply),
        ("scan", "node", counted.scan_reply),
    ] {
        let labels = [("switch", switch), ("verb", verb), ("by", by)];
        samples.counter("switchback_switch_answers_total", ANSWERS, &labels, count);
    }
}

fn lookups(samples: &mut Samples, switch: &str, counted: &Statistics) {
    const LOOKUPS: &str =
        "Lookups of the cache by requests: a hit found a valid record, even if the node answered.";
    for (verb, result, count) in [
        ("read", "hit", counted.read_hits),
        ("read", "miss", counted.read_misses),
        ("write", "hit", counted.write_hits),
        ("write", "miss", counted.write_misses),
    ] {
        let labels = [("switch", switch), ("verb", verb), ("result", result)];
        samples.counter("switchback_cache_lookups_total", LOOKUPS, &labels, count);
    }
    const CONSERVATIVE: &str = "Reads of cached keys that went to the node: fenced (outdated), \
                                embedded (with the record, which is being evicted), or plain.";
    let reads = [
        ("fenced", counted.fenced_reads),
        ("embedded", counted.embedded_reads),
        ("plain", counted.plain_reads),
    ];
    let (name, labels) = ("switchback_conservative_reads_total", [("switch", switch)]);
    samples.counter_by(name, CONSERVATIVE, &labels, "kind", reads);
}

fn outcomes(samples: &mut Samples, switch: &str, counted: &Statistics) {
    const ABSORBED: &str = "Writes and deletes that the cache took.";
    const FORWARDED: &str = "Writes and deletes sent on to a node, retries included.";
    const REPEATED: &str = "Retries that were answered again.";
    const BOUNCED: &str = "Bounces of nodes that ran as new writes.";
    const PROMOTED: &str = "Outdated records that a node's answer made latest.";
    const UPDATED: &str = "Write-through updates that made a record latest.";
    const CONDITIONS: &str = "Conditional writes whose condition didn't hold.";
    const OUTGROWN: &str = "Records that left the cache because a value outgrew the slot.";
    const HOT: &str = "Misses of which a node was told that the key is hot.";
    const REPORTS: &str = "Reports of the pipeline to its agent.";
    const PASSED: &str = "Packets that a keeper passed between the clients and its chain's owner.";
    const PROBES: &str = "Probes of its neighbours in the chain that arrived.";
    const KEPT: &str = "Records that a keeper stored of the owner's answers.";
    let counters = [
        ("switchback_absorbed_writes_total", ABSORBED, counted.absorbed_writes),
        ("switchback_forwarded_writes_total", FORWARDED, counted.forwarded_writes),
        ("switchback_repeated_answers_total", REPEATED, counted.repeated_answers),
        ("switchback_bounced_writes_total", BOUNCED, counted.bounces_executed),
        ("switchback_promotions_total", PROMOTED, counted.promotions),
        ("switchback_cache_updates_total", UPDATED, counted.cache_updates_applied),
        ("switchback_condition_failures_total", CONDITIONS, counted.condition_failures),
        ("switchback_outgrown_records_total", OUTGROWN, counted.self_evictions),
        ("switchback_hot_misses_total", HOT, counted.hot_misses),
        ("switchback_agent_reports_total", REPORTS, counted.reports),
        ("switchback_passed_packets_total", PASSED, counted.passed),
        ("switchback_kept_records_total", KEPT, counted.kept),
        ("switchback_switch_probes_total", PROBES, counted.probe),
    ];
    samples.counters(&[("switch", switch)], counters);
}

/// The control channel of the controller's process.
pub fn control_channel(samples: &mut Samples, counted: &ControlStatistics) {
    const BYTES: &str = "Bytes on the control channel, as the controller sees them.";
    const DROPPED: &str = "Control messages that found no room.";
    for (direction, bytes, dropped) in [
        ("sent", counted.bytes_sent, counted.dropped_sent),
        ("received", counted.bytes_received, counted.dropped_received),
    ] {
        let labels = [("direction", direction)];
        samples.counter("switchback_control_bytes_total", BYTES, &labels, bytes);
        samples.counter("switchback_control_dropped_messages_total", DROPPED, &labels, dropped);
    }
    const PEERS: &str = "Parts and clients that are connected to the controller.";
    samples.gauge("switchback_control_peers", PEERS, &[], counted.peers as f64);
    const REFUSED: &str = "Connections to the control port that were refused.";
    samples.counter("switchback_control_refused_connections_total", REFUSED, &[], counted.refused);
}

/// A queue's length.
pub fn queue(samples: &mut Samples, part: &str, index: &str, waiting: u64) {
    const HELP: &str = "Packets or messages that wait for a part.";
    samples.gauge("switchback_queued", HELP, &[("part", part), ("index", index)], waiting as f64);
}

/// What waits in a part's UDP socket, and what found no room there.
pub fn socket(samples: &mut Samples, part: &str, index: &str, socket: SocketQueue) {
    const HELP: &str = "Memory of the packets that wait in a part's UDP socket.";
    samples.gauge(
        "switchback_socket_queued_bytes",
        HELP,
        &[("part", part), ("index", index)],
        socket.queued_bytes as f64,
    );
    dropped(samples, part, index, "receive_buffer", socket.dropped);
}

/// The gateway: each worker with its session and its spool.
pub fn gateway(samples: &mut Samples, counted: &GatewayStatistics) {
    const HELP: &str = "Latency of commands at the gateway, by command and by who answered.";
    for verb in Verb::all() {
        for by in Answerer::ALL {
            let mut latency = HistogramSnapshot::default();
            for worker in counted.workers() {
                latency.add(&worker.latency(verb, by).into());
            }
            if latency.count() > 0 {
                let labels = [("verb", verb.name()), ("by", by.name())];
                samples.histogram("switchback_request_duration_seconds", HELP, &labels, &latency);
            }
        }
    }
    const ERRORS: &str = "Commands that the gateway answered with an error, by kind.";
    for kind in ErrorKind::ALL {
        let count = counted.sum(|worker| worker.errors(kind));
        samples.counter("switchback_gateway_errors_total", ERRORS, &[("kind", kind.name())], count);
    }
    const REFUSED: &str = "Commands refused because Switchback doesn't have them, by name; other: no command of Redis 7.0.";
    for command in Refused::all() {
        let count = counted.sum(|worker| worker.refused(command));
        if count > 0 {
            let labels = [("command", command.name())];
            samples.counter("switchback_gateway_refused_commands_total", REFUSED, &labels, count);
        }
    }
    for (index, worker) in counted.workers().iter().enumerate() {
        gateway_worker(samples, &index.to_string(), worker);
    }
}

fn gateway_worker(samples: &mut Samples, worker: &str, counted: &WorkerStatistics) {
    let labels = [("worker", worker)];
    let counters = [
        (
            "switchback_gateway_accepted_total",
            "Connections accepted.",
            &counted.connections_accepted,
        ),
        ("switchback_gateway_received_bytes_total", "Bytes of commands.", &counted.bytes_in),
        ("switchback_gateway_sent_bytes_total", "Bytes of replies.", &counted.bytes_out),
        (
            "switchback_spooled_records_total",
            "Absorbed records written to the spool.",
            &counted.spool_records,
        ),
        ("switchback_spooled_bytes_total", "Bytes written to the spool.", &counted.spool_bytes),
        (
            "switchback_spool_errors_total",
            "Failures to write or sync the spool.",
            &counted.spool_errors,
        ),
        (
            "switchback_spool_rewrites_total",
            "Rewrites with only the newest versions.",
            &counted.spool_rewrites,
        ),
        ("switchback_session_submitted_total", "Operations submitted.", &counted.session_submitted),
        (
            "switchback_session_cache_answers_total",
            "Operations that the cache answered.",
            &counted.session_answered_by_cache,
        ),
        ("switchback_session_retries_total", "Requests sent again.", &counted.session_retries),
        (
            "switchback_session_epoch_changes_total",
            "Epochs that the session moved to.",
            &counted.session_epoch_changes,
        ),
    ];
    samples.counters(&labels, counters.map(|(name, help, counter)| (name, help, counter.get())));
    const PRESERVED: &str = "Absorbed records that are kept until they are durable elsewhere.";
    let gauges = [
        ("switchback_gateway_connections", "Connections open.", &counted.connections_open),
        ("switchback_spool_bytes", "Size of the spool.", &counted.spool_size),
        ("switchback_preserved_records", PRESERVED, &counted.preserved_records),
        ("switchback_preserved_bytes", "Memory of preserved records.", &counted.preserved_bytes),
    ];
    samples.gauges(&labels, gauges.map(|(name, help, gauge)| (name, help, gauge.get() as f64)));
    for (step, times) in [("write", &counted.spool_writes), ("sync", &counted.spool_syncs)] {
        const SPOOL: &str = "Time of writing to the spool and of forcing it to the disk.";
        let labels = [("worker", worker), ("step", step)];
        samples.histogram("switchback_spool_duration_seconds", SPOOL, &labels, &times.into());
    }
}

/// What the gateway's clients ask for. No key is named: a scrape is kept for long.
pub fn heat(samples: &mut Samples, asked: &Heat) {
    const SHARE: &str = "Share of the requests of the last seconds that were for the hottest key.";
    let hottest = asked.hottest(SECONDS_MAX);
    let most = hottest.keys().first().map_or(0, |key| key.samples());
    let share = f64::from(most) / (hottest.samples() as f64).max(1.0);
    samples.gauge("switchback_hottest_key_share", SHARE, &[], share);
}

/// The certificate that a gateway shows.
pub fn certificate(samples: &mut Samples, expires_unix_s: u64) {
    const EXPIRES: &str = "Unix time at which the gateway's certificate expires.";
    let at = expires_unix_s as f64;
    samples.gauge("switchback_gateway_certificate_expiry_timestamp_seconds", EXPIRES, &[], at);
}

/// Packets that a part dropped.
fn dropped(samples: &mut Samples, part: &str, index: &str, reason: &str, count: u64) {
    const HELP: &str = "Packets dropped, by the part that did and why.";
    let labels = [("part", part), ("index", index), ("reason", reason)];
    samples.counter("switchback_dropped_packets_total", HELP, &labels, count);
}

/// The agent of one switch.
pub fn agent(samples: &mut Samples, switch: &str, counted: &AgentStatistics) {
    let counters = [
        ("switchback_admissions_total", "Keys admitted to the cache.", counted.admitted),
        (
            "switchback_refused_admissions_total",
            "Keys not admitted because their hash collides.",
            counted.refused,
        ),
        ("switchback_evictions_total", "Keys evicted to make room.", counted.evicted),
        (
            "switchback_self_evictions_total",
            "Keys evicted because their value outgrew the slot.",
            counted.evicted_themselves,
        ),
        ("switchback_snapshots_taken_total", "Snapshots that the agent took.", counted.snapshots),
        (
            "switchback_snapshot_originals_total",
            "Records copied before a write overwrote them, for a snapshot.",
            counted.originals,
        ),
        (
            "switchback_ageings_total",
            "How often all counts of requests were halved.",
            counted.ageings,
        ),
    ];
    samples.counters(&[("switch", switch)], counters);
}

/// Phases as the controller calls them, and their labels.
const PHASES: [(&str, &str); 5] = [
    ("waiting for a switch", "waiting"),
    ("resynchronizing", "resynchronizing"),
    ("recovering", "recovering"),
    ("serving", "serving"),
    ("serving without a switch", "bypassing"),
];

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The controller. The rack's switches are down until it hears them.
pub fn controller(samples: &mut Samples, status: &ControllerStatus, config: &RackConfig) {
    for (phase, label) in PHASES {
        let is = f64::from(u8::from(status.phase == phase));
        samples.gauge(
            "switchback_phase",
            "1 for the phase that the rack is in.",
            &[("phase", label)],
            is,
        );
    }
    let gauges = [
        (
            "switchback_epoch",
            "Newest epoch of a chain of switches; it rises with every recovery.",
            f64::from(status.epoch),
        ),
        ("switchback_generation", "Snapshot generation.", f64::from(status.generation)),
        (
            "switchback_durable_generation",
            "Records of older generations are durable.",
            f64::from(status.durable_generation),
        ),
        (
            "switchback_cached_keys",
            "Keys in the cache, or on their way in or out.",
            status.cached as f64,
        ),
        (
            "switchback_cached_keys_max",
            "Keys that the caches of all chains have room for.",
            config.cached_keys_max() as f64,
        ),
        (
            "switchback_waiting_offers",
            "Hot keys that wait for admission.",
            status.waiting_offers as f64,
        ),
        ("switchback_sessions", "Client sessions.", status.sessions as f64),
    ];
    samples.gauges(&[], gauges);
    snapshots(samples, status);
    const DECLINED: &str = "Hot keys that were not admitted, by the reason.";
    let Declined { unfit, crowded, outdone } = status.declined_offers;
    let declined = [("unfit", unfit), ("crowded", crowded), ("outdone", outdone)];
    samples.counter_by("switchback_declined_offers_total", DECLINED, &[], "reason", declined);
    samples.counter(
        "switchback_cleaned_records_total",
        "Records that were stored because only switches had them for too long.",
        &[],
        status.cleaned_records,
    );
    control_cost(samples, &status.control_cost);
    replication(samples, &status.replication);
    for node in &status.nodes {
        let index = node.index.to_string();
        let labels = [("node", index.as_str())];
        let up = f64::from(u8::from(node.alive));
        samples.gauge("switchback_node_up", "1 if the controller hears the node.", &labels, up);
        samples.gauge(
            "switchback_node_cached_keys",
            "Cached keys of the node.",
            &labels,
            node.cached_keys as f64,
        );
    }
    for index in 0..config.switches_len() {
        let heard = status.switches.iter().find(|switch| switch.index == index);
        let label = index.to_string();
        let labels = [("switch", label.as_str())];
        let up = f64::from(u8::from(heard.is_some_and(|switch| switch.alive)));
        samples.gauge("switchback_switch_up", "1 if the controller hears it.", &labels, up);
        let active = f64::from(u8::from(heard.is_some_and(|switch| switch.active)));
        samples.gauge(
            "switchback_switch_active",
            "1 for a switch that serves a chain.",
            &labels,
            active,
        );
        let drained = f64::from(u8::from(heard.is_some_and(|switch| switch.drained)));
        const DRAINED: &str = "1 for a switch that is out of service, or is being taken out.";
        samples.gauge("switchback_switch_drained", DRAINED, &labels, drained);
        let is_refused = heard.is_some_and(|switch| switch.alive && switch.refusal.is_some());
        const REFUSED: &str = "1 for a switch that lives, but that a chain goes on without.";
        let refused = f64::from(u8::from(is_refused));
        samples.gauge("switchback_switch_refused", REFUSED, &labels, refused);
    }
    if let Some(domains) = config.listed_domains() {
        const DOMAINS: &str = "Failure domains of all switches of the rack.";
        samples.gauge("switchback_listed_domains", DOMAINS, &[], domains as f64);
    }
    status.chains.iter().for_each(|status| chain(samples, status));
    if let Some(times) = &status.recovery {
        recovery(samples, times);
    }
}

fn replication(samples: &mut Samples, status: &ReplicationStatus) {
    let gauges = [
        ("switchback_replicas", "Replicas that each partition is to have.", status.replicas as f64),
        (
            "switchback_lacking_partitions",
            "Partitions that have fewer replicas than they are to have.",
            status.lacking as f64,
        ),
        (
            "switchback_joining_partitions",
            "Partitions that a node joins: it gets a copy.",
            status.joining as f64,
        ),
        (
            "switchback_unavailable_partitions",
            "Partitions none of whose replicas is heard.",
            status.unavailable as f64,
        ),
        (
            "switchback_node_failures_tolerated",
            "How many more nodes may fail, whichever they are, and nothing is lost.",
            status.may_fail as f64,
        ),
    ];
    samples.gauges(&[], gauges);
}

fn snapshots(samples: &mut Samples, status: &ControllerStatus) {
    let gauges = [
        (
            "switchback_snapshot_duration_seconds",
            "Duration of the last snapshot.",
            seconds(status.snapshot_duration_us),
        ),
        ("switchback_snapshot_bytes", "Size of the last snapshot.", status.snapshot_bytes as f64),
        (
            "switchback_snapshot_records",
            "Records in the last snapshot.",
            status.snapshot_records as f64,
        ),
    ];
    samples.gauges(&[], gauges);
    const SNAPSHOTS: &str = "Snapshots, by what became of them.";
    let snapshots = [("durable", status.snapshots_completed), ("failed", status.snapshots_failed)];
    samples.counter_by("switchback_snapshots_total", SNAPSHOTS, &[], "result", snapshots);
}

/// Who protects what a chain of switches tells.
fn chain(samples: &mut Samples, status: &ChainStatus) {
    let label = status.chain.to_string();
    let labels = [("chain", label.as_str())];
    const DOMAINS: &str = "Failure domains of the chain's switches: each has what it tells.";
    samples.gauge("switchback_chain_domains", DOMAINS, &labels, status.domains as f64);
    const PRESERVED: &str = "1 if clients preserve what the chain tells.";
    let preserved = f64::from(u8::from(status.preserved));
    samples.gauge("switchback_chain_preserved", PRESERVED, &labels, preserved);
    const LOSSES: &str =
        "Recoveries that found neither a switch nor a client that had what was told.";
    samples.counter("switchback_chain_losses_total", LOSSES, &labels, status.losses);
    if let Some(periodic) = status.snapshots {
        const PERIOD: &str = "Time between two snapshots of the chain; absent if none are taken.";
        const AGE: &str =
            "Time since the chain's last durable snapshot or recovery; absent if none are taken.";
        let period = seconds(periodic.period_us);
        samples.gauge("switchback_snapshot_period_seconds", PERIOD, &labels, period);
        samples.gauge("switchback_snapshot_age_seconds", AGE, &labels, seconds(periodic.age_us));
    }
}

/// What keys cost on the control channel on their way into the cache and out of it.
fn control_cost(samples: &mut Samples, cost: &ControlCost) {
    const MESSAGES: &str = "Messages about keys on the control channel, by what they were for.";
    const BYTES: &str = "Bytes of the messages about keys on the control channel.";
    let purposes = [
        ("offer", cost.offers),
        ("admission", cost.admissions),
        ("eviction", cost.evictions),
        ("cleaning", cost.cleanings),
    ];
    let messages = purposes.map(|(purpose, spent)| (purpose, spent.messages));
    let bytes = purposes.map(|(purpose, spent)| (purpose, spent.bytes));
    samples.counter_by("switchback_cache_messages_total", MESSAGES, &[], "purpose", messages);
    samples.counter_by("switchback_cache_message_bytes_total", BYTES, &[], "purpose", bytes);
    const DELAYS: &str = "How often admissions and evictions had to wait for their budget.";
    samples.counter("switchback_budget_delays_total", DELAYS, &[], cost.delays);
}

/// The last recovery.
fn recovery(samples: &mut Samples, times: &RecoveryTimes) {
    const STEPS: &str = "How long the steps of the last recovery took.";
    for (step, us) in [
        ("detect", times.detect_us),
        ("collect", times.collect_us),
        ("store", times.store_us),
        ("readmit", times.readmit_us),
    ] {
        let labels = [("step", step)];
        samples.gauge("switchback_recovery_duration_seconds", STEPS, &labels, seconds(us));
    }
    samples.gauge(
        "switchback_recovery_records",
        "Records that the last recovery stored.",
        &[],
        times.records as f64,
    );
    const BROUGHT: &str = "Records that were brought to the last recovery, by those who did.";
    for (by, records) in [("switches", times.loaded), ("clients", times.gathered)] {
        let labels = [("by", by)];
        samples.gauge("switchback_recovery_brought_records", BROUGHT, &labels, records as f64);
    }
    samples.gauge(
        "switchback_recovery_lost_keys",
        "Keys of which the last recovery may have lost what was told.",
        &[],
        times.lost_keys as f64,
    );
}

/// The shim of one node.
pub fn node(samples: &mut Samples, node: &str, counted: &NodeStatistics) {
    let labels = [("node", node)];
    const REQUESTS: &str = "Requests that the node handled.";
    let requests = [
        ("read", counted.reads),
        ("write", counted.writes),
        ("scan", counted.scans),
        ("fragment", counted.fragments),
        ("cache_update", counted.cache_updates),
    ];
    samples.counter_by("switchback_node_requests_total", REQUESTS, &labels, "verb", requests);
    const WRITES: &str = "Writes at the node, by what became of them.";
    let writes = [
        ("applied", counted.applied),
        ("superseded", counted.superseded),
        ("bounced", counted.bounced),
        ("condition_failed", counted.condition_failed),
    ];
    samples.counter_by("switchback_node_writes_total", WRITES, &labels, "result", writes);
    let counters = [
        (
            "switchback_node_fenced_reads_total",
            "Reads that set a fence first.",
            counted.fenced_reads,
        ),
        (
            "switchback_node_embedded_records_total",
            "Evicted records that arrived with a read.",
            counted.embedded_stored,
        ),
        ("switchback_node_offers_total", "Hot keys offered to the cache.", counted.offers),
        (
            "switchback_node_engine_errors_total",
            "Operations that the storage engine failed.",
            counted.engine_errors,
        ),
        (
            "switchback_node_frames_total",
            "What was passed on to other replicas, and to nodes that join.",
            counted.frames,
        ),
        (
            "switchback_node_resent_frames_total",
            "Frames with what another replica might lack.",
            counted.frames_resent,
        ),
        (
            "switchback_node_copied_parts_total",
            "Parts of copies for nodes that join.",
            counted.parts_copied,
        ),
    ];
    samples.counters(&labels, counters);
    for (reason, count) in [
        ("malformed", counted.dropped_malformed),
        ("epoch", counted.dropped_epoch),
        ("stranger", counted.dropped_stranger),
        ("view", counted.dropped_view),
        ("held", counted.dropped_held),
        ("unready", counted.dropped_unready),
        ("below_floor", counted.dropped_below_floor),
        ("no_fence", counted.dropped_no_fence),
        ("overload", counted.dropped_overload),
        ("no_space", counted.dropped_no_space),
    ] {
        dropped(samples, "node", node, reason, count);
    }
}

/// A node's links to other nodes.
pub fn links(samples: &mut Samples, node: &str, counted: &LinkStatistics) {
    const BYTES: &str = "Bytes of links between nodes.";
    let directions = [("sent", counted.bytes_sent), ("received", counted.bytes_received)];
    let labels = [("node", node)];
    samples.counter_by("switchback_link_bytes_total", BYTES, &labels, "direction", directions);
    samples.counter(
        "switchback_link_drops_total",
        "Messages of links between nodes that found no room or no connection; they are repeated.",
        &labels,
        counted.dropped,
    );
}

/// The storage engine of one node.
pub fn engine(samples: &mut Samples, node: &str, counted: &switchback_engine::Statistics) {
    let labels = [("node", node)];
    let gauges = [
        (
            "switchback_engine_disk_bytes",
            "Size of the node's directory, log included.",
            counted.disk_bytes,
        ),
        ("switchback_engine_memtable_bytes", "Memory of memtables.", counted.memtable_bytes),
        (
            "switchback_engine_cache_bytes",
            "Memory of the block cache, memtables included.",
            counted.cache_bytes,
        ),
        (
            "switchback_engine_largest_group",
            "The most writes that one commit took.",
            counted.largest_group,
        ),
    ];
    samples.gauges(&labels, gauges.map(|(name, help, value)| (name, help, value as f64)));
    let counters = [
        ("switchback_engine_reads_total", "Reads of the store.", counted.reads),
        ("switchback_engine_groups_total", "Groups of writes that were committed.", counted.groups),
        ("switchback_engine_writes_total", "Writes in those groups.", counted.writes),
        (
            "switchback_engine_failed_groups_total",
            "Groups that could not be committed.",
            counted.failed_groups,
        ),
        ("switchback_engine_scans_total", "Scans.", counted.scans),
        (
            "switchback_engine_dropped_records_total",
            "Tombstones and expired records that compactions dropped.",
            counted.dropped,
        ),
    ];
    samples.counters(&labels, counters);
    const STALLED: &str =
        "Time for which writes were held back because flushes or compactions lagged.";
    samples.counter_us(
        "switchback_engine_stalled_seconds_total",
        STALLED,
        &labels,
        counted.stalled_us,
    );
    const COMMITS: &str = "Time spent in commits.";
    samples.counter_us(
        "switchback_engine_commit_seconds_total",
        COMMITS,
        &labels,
        counted.commit_us,
    );
}

/// When this process began, as far as scrapes are concerned.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
});

/// This process, under the names that every Prometheus client library has.
pub fn process(samples: &mut Samples) {
    const START: &str = "Start time of the process since the Unix epoch.";
    samples.gauge("process_start_time_seconds", START, &[], *STARTED);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces and parentheses; fields count from the last one.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    if let (Some(user), Some(system), Some(threads)) = (field(11), field(12), field(17)) {
        let ticks = rustix::param::clock_ticks_per_second();
        const CPU: &str = "Processor time, user and system.";
        samples.counter_us(
            "process_cpu_seconds_total",
            CPU,
            &[],
            (user + system) * 1_000_000 / ticks.max(1),
        );
        samples.gauge("process_threads", "Threads.", &[], threads as f64);
    }
    if let Some(pages) = field(21) {
        let bytes = pages as f64 * rustix::param::page_size() as f64;
        samples.gauge("process_resident_memory_bytes", "Memory in use.", &[], bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        samples.gauge("process_open_fds", "Open files and sockets.", &[], open.count() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use std::path::Path;
    use switchback_core::controller::{
        NodeStatus, PeriodicSnapshots, RecoveryTimes, Spent, SwitchStatus,
    };

    /// A rack of two switches, which are copies.
    fn rack() -> RackConfig {
        let switch = |index: u8| format!("[[switch]]\naddress = \"10.0.0.{index}:7000\"\n");
        let text = format!(
            "[rack]\nscheme = \"distreach\"\n[topology]\nlayers = 2\n\
             [controller]\nlisten = \"10.0.0.9:7000\"\n{}{}[[node]]\naddress = \"10.0.0.8:7000\"\n",
            switch(0),
            switch(1)
        );
        let parsed = RackConfig::parse(&text, "rack.toml", Path::new(""), &Overrides::default());
        parsed.unwrap_or_else(|error| panic!("{error}"))
    }

    fn status() -> ControllerStatus {
        ControllerStatus {
            phase: "serving",
            epoch: 3,
            generation: 9,
            durable_generation: 8,
            cached: 5,
            waiting_offers: 0,
            declined_offers: Declined::default(),
            cleaned_records: 4,
            control_cost: ControlCost {
                admissions: Spent { messages: 2, bytes: 300 },
                evictions: Spent { messages: 6, bytes: 4_000 },
                delays: 1,
                ..ControlCost::default()
            },
            sessions: 1,
            draining: false,
            snapshots_completed: 7,
            snapshots_failed: 1,
            snapshot_duration_us: 2_500,
            snapshot_bytes: 100,
            snapshot_records: 5,
            recovery: Some(RecoveryTimes { detect_us: 150_000, ..RecoveryTimes::default() }),
            chains: vec![ChainStatus {
                chain: 0,
                phase: "serving",
                epoch: 3,
                members: vec![0],
                generation: 9,
                durable_generation: 8,
                cached: 5,
                domains: 1,
                preserved: true,
                snapshots: Some(PeriodicSnapshots { period_us: 10_000_000, age_us: 2_500_000 }),
                losses: 0,
                last_loss: None,
            }],
            nodes: vec![NodeStatus {
                index: 0,
                alive: true,
                epoch: 3,
                held: false,
                silent_us: 0,
                cached_keys: 5,
                partitions: 256,
                joining: 0,
                error: None,
            }],
            replication: ReplicationStatus {
                replicas: 2,
                lacking: 9,
                joining: 2,
                unavailable: 0,
                may_fail: 0,
            },
            switches: vec![SwitchStatus {
                index: 0,
                layer: 1,
                active: true,
                chain: Some(0),
                drained: false,
                alive: true,
                epoch: 3,
                silent_us: 0,
                refusal: None,
            }],
        }
    }

    /// Every metric of every part at once: names and helps are checked as they are added.
    #[test]
    fn all_parts_go_together() {
        let mut samples = Samples::default();
        build(&mut samples, "rack", Scheme::FarReach);
        process(&mut samples);
        controller(&mut samples, &status(), &rack());
        gateway(&mut samples, &GatewayStatistics::new(1));
        certificate(&mut samples, 1_800_000_000);
        heat(&mut samples, &Heat::new(1));
        control_channel(&mut samples, &ControlStatistics::default());
        for index in ["0", "1"] {
            let counted = Statistics {
                read_hits: 10,
                fenced_reads: 2,
                embedded_reads: 1,
                plain_reads: 3,
                ..Statistics::default()
            };
            datapath(&mut samples, index, &counted);
            agent(&mut samples, index, &AgentStatistics::default());
            node(&mut samples, index, &NodeStatistics::default());
            engine(&mut samples, index, &switchback_engine::Statistics::default());
            queue(&mut samples, "node", index, 1);
        }
        let number = |name, labels| samples.number(name, labels);
        assert_eq!(
            number("switchback_switch_answers_total", "switch=\"0\",verb=\"read\",by=\"switch\""),
            Some(4.0)
        );
        let evictions = "purpose=\"eviction\"";
        assert_eq!(number("switchback_cache_messages_total", evictions), Some(6.0));
        assert_eq!(number("switchback_cache_message_bytes_total", evictions), Some(4000.0));
        assert_eq!(number("switchback_budget_delays_total", ""), Some(1.0));
        assert_eq!(number("switchback_phase", "phase=\"serving\""), Some(1.0));
        assert_eq!(number("switchback_phase", "phase=\"waiting\""), Some(0.0));
        assert_eq!(number("switchback_switch_up", "switch=\"0\""), Some(1.0));
        assert_eq!(
            number("switchback_switch_up", "switch=\"1\""),
            Some(0.0),
            "a switch that was never heard"
        );
        assert_eq!(number("switchback_recovery_duration_seconds", "step=\"detect\""), Some(0.15));
        assert_eq!(number("switchback_snapshot_period_seconds", "chain=\"0\""), Some(10.0));
        assert_eq!(number("switchback_snapshot_age_seconds", "chain=\"0\""), Some(2.5));
        assert_eq!(number("switchback_listed_domains", ""), Some(2.0));
        assert!(number("process_resident_memory_bytes", "").unwrap() > 1e5);
        assert!(number("process_open_fds", "").unwrap() > 2.0);
        let book = committed("docs/run/operations.md");
        for name in samples.names() {
            assert!(
                book.contains(&format!("`{name}`")),
                "{name} is missing in docs/run/operations.md"
            );
        }
        alerts_match(&samples);
    }

    fn committed(path: &str) -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap()
    }

    /// Rules of alerts use metrics that there are: counters under `rate` and `increase`, gauges
    /// under everything else.
    fn alerts_match(samples: &Samples) {
        let rules = committed("contrib/prometheus/switchback.rules.yml");
        let exposition = samples.text();
        // Not in comments, and not the file's own name.
        let rules = rules
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n");
        let mut uses = 0;
        for (at, _) in rules.match_indices("switchback_") {
            let name: String =
                rules[at..].chars().take_while(|&c| c.is_ascii_lowercase() || c == '_').collect();
            let over_time =
                ["rate(", "increase("].iter().any(|function| rules[..at].ends_with(function));
            let kind = if over_time { "counter" } else { "gauge" };
            let wanted = format!("# TYPE {name} {kind}\n");
            assert!(exposition.contains(&wanted), "a rule uses {name} as a {kind}");
            uses += 1;
        }
        assert!(uses >= 11, "{uses} uses of metrics in the rules");
    }

    #[test]
    fn a_chain_of_which_no_snapshots_are_taken_has_neither_period_nor_age() {
        let mut status = status();
        status.chains[0].snapshots = None;
        let mut samples = Samples::default();
        controller(&mut samples, &status, &RackConfig::default());
        assert!(!samples.text().contains("switchback_snapshot_period_seconds"));
        assert!(!samples.text().contains("switchback_snapshot_age_seconds"));
        let domains = samples.number("switchback_listed_domains", "");
        assert_eq!(domains, None, "a chain of one switch protects nothing");
    }

    #[test]
    fn a_rack_in_one_process_lists_the_switches_of_all_its_chains() {
        let mut config = RackConfig::default();
        config.topology.chains = 3;
        let mut samples = Samples::default();
        controller(&mut samples, &status(), &config);
        let up = |switch| samples.number("switchback_switch_up", &format!("switch=\"{switch}\""));
        assert_eq!([0, 1, 2, 3].map(up), [Some(1.0), Some(0.0), Some(0.0), None]);
    }

    #[test]
    fn each_phase_has_one_label() {
        for (phase, label) in PHASES {
            let mut samples = Samples::default();
            controller(
                &mut samples,
                &ControllerStatus { phase, ..status() },
                &RackConfig::default(),
            );
            for (_, other) in PHASES {
                let is = samples.number("switchback_phase", &format!("phase=\"{other}\""));
                assert_eq!(is, Some(f64::from(u8::from(other == label))), "{phase}: {other}");
            }
        }
    }
}
