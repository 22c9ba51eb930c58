//! The sections, key by key, with their defaults. `docs/run/configuration.md` and `example.toml`
//! say the same in prose; a test compares.

use super::reader::{Reader, Section, pair, pairs, strings};
use super::types::*;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use switchback_core::control::DOMAIN_BYTES_MAX;
use switchback_core::controller::{ControlBudget, OnLoss, Preserve};
use switchback_core::topology::CHAINS_MAX;
use switchback_engine::{ENGINES, Options};
use switchback_gateway::{Cluster, REPLY_BYTES_MAX, TlsFiles, Transactions};
use switchback_wire::{LAYERS_MAX, Scheme};
use toml::de::DeTable;

const DAY_MS: u64 = 24 * 3600 * 1000;
const MB_MAX: u32 = 1 << 20;
/// Of replies, in which places have 32 bits.
const UNREAD_MB_MAX: u32 = (REPLY_BYTES_MAX >> 20) as u32;
/// A header has 16 bits for the partition.
const PARTITIONS_MAX: u32 = 1 << 16;
/// Replicas of a partition. A node that joins has the fourth place.
pub const REPLICATION_MAX: u32 = 3;
/// Of all switches and of the sketch: what one process can hold in memory.
pub const RECORDS_MAX: u32 = 1 << 24;
/// Of a rack.
pub const NODES_MAX: u16 = 1024;
pub(super) const WORKERS_MAX: u32 = 256;
/// Of `metrics_hosts`: each request is compared with all of them.
const HOSTS_MAX: usize = 64;
const PASSWORD_BYTES_MAX: usize = 512;

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// What single values say; what they say together is checked afterwards.
pub(super) fn rack_config(
    document: &DeTable<'_>,
    reader: &mut Reader<'_>,
    overrides: &Overrides,
) -> RackConfig {
    let mut root = Section::root(document);
    let rack = rack(root.section(reader, "rack"), reader, overrides);
    let topology = topology(root.section(reader, "topology"), reader, overrides);
    let switches: Vec<_> = (0..)
        .zip(root.list(reader, "switch"))
        .map(|(index, section)| switch(index, section, reader, topology.layers))
        .collect();
    let shape = if switches.is_empty() { Shape::Embedded } else { Shape::Distributed };
    let gateway = gateway(root.section(reader, "gateway"), reader, &rack.data, overrides);
    let sync = usual_sync(shape, gateway.durability, rack.replication);
    let nodes = nodes(&mut root, reader, &rack.data, sync, overrides);
    let config = RackConfig {
        shape,
        cache: cache(root.section(reader, "cache"), reader, overrides),
        controller: controller(root.section(reader, "controller"), reader, &rack.data),
        gateway,
        client: client(root.section(reader, "client"), reader),
        console: console(root.section(reader, "console"), reader),
        links: links(root.section(reader, "links"), reader, overrides),
        rack,
        topology,
        switches,
        nodes,
    };
    root.finish(reader);
    config
}

fn rack(mut section: Section<'_, '_>, reader: &mut Reader<'_>, overrides: &Overrides) -> Rack {
    let name = section.string(reader, "name", "a string");
    if let Some((name, span)) = &name {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            let message = "[rack] name is 1 to 64 letters, digits, '-', '_' and '.', for it names the rack in metrics";
            reader.problem(Some(span.clone()), message.to_owned());
        }
    }
    let scheme = section.choice(reader, "scheme", Scheme::FarReach);
    let data =
        section.path(reader, "data").unwrap_or_else(|| reader.base().join("switchback-data"));
    let metrics = section.address(reader, "metrics").unwrap_or(loopback(9464));
    let partitions = section.small(reader, "partitions", 1..=PARTITIONS_MAX, 256);
    let replication = section.small(reader, "replication", 1..=REPLICATION_MAX, 1);
    let rack = Rack {
        name: name.map_or("rack".to_owned(), |(name, _)| name),
        scheme: overrides.scheme.unwrap_or(scheme),
        partitions,
        replication: overrides.replication.unwrap_or(replication as u16),
        data: overrides.data.clone().unwrap_or(data),
        metrics: overrides.metrics.unwrap_or(metrics),
        metrics_hosts: hosts(&mut section, reader, "metrics_hosts"),
        lease_ms: section.integer(reader, "lease_ms", 100..=DAY_MS, 5000),
        heartbeat_ms: section.integer(reader, "heartbeat_ms", 1..=60_000, 20),
        switch_timeout_ms: section.integer(reader, "switch_timeout_ms", 3..=600_000, 500),
        snapshot_period_ms: section.integer(reader, "snapshot_period_ms", 0..=DAY_MS, 10_000),
        preserve: section.choice(reader, "preserve", Preserve::Auto),
        on_loss: section.choice(reader, "on_loss", OnLoss::Declare),
        drain_timeout_ms: section.integer(reader, "drain_timeout_ms", 1..=DAY_MS, 30_000),
    };
    section.finish(reader);
    rack
}

fn topology(
    mut section: Section<'_, '_>,
    reader: &mut Reader<'_>,
    overrides: &Overrides,
) -> Topology {
    let chains = section.small(reader, "chains", 1..=u32::from(CHAINS_MAX), 1);
    let layers = section.small(reader, "layers", 1..=u32::from(LAYERS_MAX), 1);
    section.finish(reader);
    Topology {
        chains: overrides.chains.unwrap_or(chains as u16),
        layers: overrides.layers.unwrap_or(layers as u8),
    }
}

/// Host names, as a `Host` header has them.
fn hosts(section: &mut Section<'_, '_>, reader: &mut Reader<'_>, key: &'static str) -> Vec<String> {
    let right = "a list of host names, as [\"rack1.example.org\"]";
    let hosts = section.taken(reader, key, right, strings).unwrap_or_default();
    if hosts.len() > HOSTS_MAX {
        let message = format!("[rack] {key} has {} names; it has at most {HOSTS_MAX}", hosts.len());
        reader.problem_at(&section.path_of(key), message);
    }
    for (host, span) in &hosts {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if host.is_empty() || host.len() > 253 || !host.chars().all(fits) {
            let shown: String = host.chars().take(64).flat_map(char::escape_debug).collect();
            let message = format!(
                "[rack] {key}: \"{shown}\" is no host name: it has letters, digits, '-', '_' and \
                 '.', no port and no scheme (IP addresses and localhost need no entry)"
            );
            reader.problem(Some(span.clone()), message);
        }
    }
    hosts.into_iter().map(|(host, _)| host).collect()
}

fn cache(mut section: Section<'_, '_>, reader: &mut Reader<'_>, overrides: &Overrides) -> Cache {
    let records = section.small(reader, "records", 1..=RECORDS_MAX, 0);
    let classes = section.taken(
        reader,
        "classes",
        "a list of [value bytes, slots], as [[128, 65536], [1168, 4096]]",
        pairs,
    );
    let said = overrides.cache_records.or((records > 0).then_some(records));
    let records = match (said, &classes) {
        (Some(records), _) => records,
        (None, Some(classes)) => {
            classes.iter().fold(0, |sum, &(_, slots)| slots.saturating_add(sum))
        }
        (None, None) => 65536,
    };
    // The file's `classes` are for its own number of records, not for that of the command line.
    let classes = classes.filter(|_| overrides.cache_records.is_none());
    let cache = Cache {
        records,
        classes: classes.unwrap_or_else(|| Cache::classes_for(records)),
        admissions_per_s: section.small(reader, "admissions_per_s", 0..=10_000_000, 20_000),
        control_budget: control_budget(&mut section, reader),
        counted_per_s: section.small(reader, "counted_per_s", 1..=1_000_000_000, 1_500_000),
        threshold: section.small(reader, "threshold", 1..=65535, 1),
        sampling: section.share(reader, "sampling", 1.0),
        eviction_sample: section.small(reader, "eviction_sample", 1..=256, 8),
        ageing_period_ms: section.integer(reader, "ageing_period_ms", 10..=DAY_MS, 60_000),
        sketch_width: section.small(reader, "sketch_width", 64..=RECORDS_MAX, 65536),
        dirty_max_ms: section.integer(reader, "dirty_max_ms", 0..=DAY_MS, 30_000),
    };
    section.finish(reader);
    cache
}

fn control_budget(section: &mut Section<'_, '_>, reader: &mut Reader<'_>) -> ControlBudget {
    let ControlBudget { messages_per_s: messages, bytes_per_s: bytes } = ControlBudget::default();
    let messages = section.integer(reader, "control_messages_per_s", 0..=10_000_000, messages);
    let bytes = section.integer(reader, "control_bytes_per_s", 0..=10_000_000_000, bytes);
    ControlBudget { messages_per_s: messages, bytes_per_s: bytes }
}

fn controller(mut section: Section<'_, '_>, reader: &mut Reader<'_>, data: &Path) -> Controller {
    let controller = Controller {
        listen: section.address(reader, "listen").unwrap_or(loopback(9460)),
        data: section.path(reader, "data").unwrap_or_else(|| data.join("controller")),
        lanes: section.small(reader, "lanes", 1..=1 << 24, 65536),
        spool_wait_ms: section.integer(reader, "spool_wait_ms", 0..=DAY_MS, 60_000),
        witness_wait_ms: section.integer(reader, "witness_wait_ms", 0..=DAY_MS, 30_000),
        bypass_ms: section.integer(reader, "bypass_ms", 0..=DAY_MS, 2_000),
    };
    section.finish(reader);
    controller
}

/// Of the layers 1, 2, .. in turn, unless it says its layer: each row of as many as there are
/// layers could be a chain.
fn switch(
    index: usize,
    mut section: Section<'_, '_>,
    reader: &mut Reader<'_>,
    layers: u8,
) -> Switch {
    let missing = section.path_of("address");
    let address = section.address(reader, "address");
    if address.is_none() && reader.line_of(&missing).is_none() && !reader.is_malformed() {
        let message = "a [[switch]] needs an address, as address = \"10.0.0.1:9400\"; clients and nodes send packets there";
        reader.problem_at(&missing, message.to_owned());
    }
    let in_turn = (index % usize::from(layers)) as u32 + 1;
    let address = address.unwrap_or(loopback(0));
    let switch = Switch {
        address,
        domain: domain(&mut section, reader).unwrap_or_else(|| address.ip().to_string()),
        layer: section.small(reader, "layer", 1..=u32::from(LAYERS_MAX), in_turn) as u8,
        metrics: section.address(reader, "metrics"),
    };
    section.finish(reader);
    switch
}

/// The name of what a switch fails together with.
fn domain(section: &mut Section<'_, '_>, reader: &mut Reader<'_>) -> Option<String> {
    let (domain, span) = section.string(reader, "domain", "a string")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if domain.is_empty() || domain.len() > DOMAIN_BYTES_MAX || !domain.chars().all(fits) {
        let message = format!(
            "[[switch]] domain names what the switch fails together with, a host or a power feed: \
             1 to {DOMAIN_BYTES_MAX} letters, digits, '-', '_', '.' and ':'"
        );
        reader.problem(Some(span), message);
        return None;
    }
    Some(domain)
}

/// When nodes force their logs to the disk, if nothing is said. In a rack of one process the
/// gateway's durability says what may be lost with its machine, whichever part has it. Replicas
/// that lag behind would differ once their machine has lost its power.
fn usual_sync(shape: Shape, durability: Durability, replication: u16) -> SyncChoice {
    match (shape, durability) {
        _ if replication > 1 => SyncChoice::Always,
        (Shape::Distributed, _) | (_, Durability::Always) => SyncChoice::Always,
        (Shape::Embedded, Durability::Everysec) => SyncChoice::EverySec,
        (Shape::Embedded, Durability::Memory) => SyncChoice::None,
    }
}

fn nodes(
    root: &mut Section<'_, '_>,
    reader: &mut Reader<'_>,
    data: &Path,
    sync: SyncChoice,
    overrides: &Overrides,
) -> Vec<Node> {
    let mut all = root.section(reader, "nodes");
    let count = all.small(reader, "count", 1..=u32::from(NODES_MAX), 4);
    let count = overrides.nodes.map_or(count, u32::from);
    let common = Node {
        address: None,
        data: PathBuf::new(),
        engine: all.choice(reader, "engine", &ENGINES[0]),
        sync: overrides.sync.unwrap_or(sync),
        options: Options::default(),
        metrics: None,
    };
    let common = storage(&mut all, reader, common, overrides);
    all.finish(reader);

    let mut nodes = Vec::new();
    for (index, mut section) in root.list(reader, "node").into_iter().enumerate() {
        let node = storage(&mut section, reader, common.clone(), overrides);
        nodes.push(Node {
            address: section.address(reader, "address"),
            data: section.path(reader, "data").unwrap_or_else(|| node_directory(data, index)),
            metrics: section.address(reader, "metrics"),
            ..node
        });
        section.finish(reader);
    }
    if nodes.is_empty() {
        let node = |index| Node { data: node_directory(data, index as usize), ..common.clone() };
        nodes.extend((0..count).map(node));
    }
    nodes
}

fn node_directory(data: &Path, index: usize) -> PathBuf {
    data.join(format!("node-{index}"))
}

/// What `[nodes]` says of all and `[[node]]` of one.
fn storage(
    section: &mut Section<'_, '_>,
    reader: &mut Reader<'_>,
    default: Node,
    overrides: &Overrides,
) -> Node {
    let sync = section.choice(reader, "sync", default.sync);
    let mut options = default.options.clone();
    for setting in default.engine.settings {
        options.set(setting, section.engine_setting(reader, setting, default.options.get(setting)));
    }
    Node { sync: overrides.sync.unwrap_or(sync), options, ..default }
}

fn gateway(
    mut section: Section<'_, '_>,
    reader: &mut Reader<'_>,
    data: &Path,
    overrides: &Overrides,
) -> Gateway {
    let resp = section.address(reader, "resp").unwrap_or(loopback(6380));
    let durability = section.choice(reader, "durability", Durability::Everysec);
    let workers = section.small(reader, "workers", 0..=WORKERS_MAX, 0);
    let password = password(&mut section, reader, overrides);
    let tls = tls(&mut section, reader);
    let gateway = Gateway {
        resp: overrides.resp.unwrap_or(resp),
        tls,
        metrics: section.address(reader, "metrics"),
        workers: overrides.workers.unwrap_or(workers),
        durability: overrides.durability.unwrap_or(durability),
        spool: section.path(reader, "spool").unwrap_or_else(|| data.join("spool")),
        spool_max_mb: section.small(reader, "spool_max_mb", 1..=MB_MAX, 512),
        password,
        max_clients: section.small(reader, "max_clients", 1..=1_000_000, 10_000),
        pipeline_max: section.small(reader, "pipeline_max", 1..=65536, 128),
        transactions: section.choice(reader, "transactions", Transactions::Refuse),
        cluster: section.choice(reader, "cluster", Cluster::Off),
        wait_ms: section.integer(reader, "wait_ms", 1..=DAY_MS, 5000),
        unread_max_mb: section.small(reader, "unread_max_mb", 2..=UNREAD_MB_MAX, 256),
        buffers_max_mb: section.small(reader, "buffers_max_mb", 2..=MB_MAX, 512),
    };
    section.finish(reader);
    gateway
}

/// Certificate and key make TLS; the other keys need both.
fn tls(section: &mut Section<'_, '_>, reader: &mut Reader<'_>) -> Option<GatewayTls> {
    let resp = section.address(reader, "tls_resp");
    let certificate = section.path(reader, "tls_certificate");
    let key = section.path(reader, "tls_key");
    let client_ca = section.path(reader, "tls_client_ca");
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(GatewayTls { resp, files: TlsFiles { certificate, key, client_ca } })
        }
        (None, None) if resp.is_none() && client_ca.is_none() => None,
        (certificate, key) => {
            let missing = [("tls_certificate", certificate), ("tls_key", key)]
                .into_iter()
                .filter_map(|(name, path)| path.is_none().then_some(name));
            let message = format!(
                "TLS in [gateway] needs {}, the path of a file in PEM form",
                missing.collect::<Vec<_>>().join(" and ")
            );
            let keys = ["tls_certificate", "tls_key", "tls_resp", "tls_client_ca"]
                .map(|key| section.path_of(key));
            reader.problem_among(&keys.each_ref().map(String::as_str), message);
            None
        }
    }
}

/// From the command line, the file or the file that the file names. An empty one means: none, on
/// purpose; but a file that was to have one and hasn't is refused: it may have been cut off.
fn password(
    section: &mut Section<'_, '_>,
    reader: &mut Reader<'_>,
    overrides: &Overrides,
) -> Option<String> {
    let here = section.string(reader, "password", "a string");
    let file = section.path(reader, "password_file");
    let file_at = section.path_of("password_file");
    if let (Some((_, span)), Some(_)) = (&here, &file) {
        let message = "[gateway] has both password and password_file; keep one (password_file, if others can read this file)";
        reader.problem(Some(span.clone()), message.to_owned());
    }
    let (found, at) = match (&overrides.password, here, file) {
        (Some(password), _, _) => (password.clone(), String::new()),
        (None, Some((password, _)), _) => (password, section.path_of("password")),
        (None, None, Some(file)) => match read_password(&file) {
            Ok(text) => (text, file_at),
            Err(why) => {
                let message = format!("[gateway] password_file: {} {why}", file.display());
                reader.problem_at(&file_at, message);
                return None;
            }
        },
        (None, None, None) => return None,
    };
    if found.len() > PASSWORD_BYTES_MAX || found.chars().any(char::is_control) {
        let message = "the password of [gateway] has a line break or another control character, or \
                       more than 512 bytes; no client could send it";
        reader.problem_at(&at, message.to_owned());
    }
    Some(found)
}

/// The password in a file, or what is wrong with the file. Of a longer one as much is read as shows
/// that it is too long.
fn read_password(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX as u64 + 2).read_to_end(&mut bytes))
        .map_err(|error| format!("can't be read: {error}"))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err("has no password: it is empty".to_owned());
    }
    if bytes.len() > PASSWORD_BYTES_MAX {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| "isn't UTF-8, as a password has to be".to_owned())
}

fn client(mut section: Section<'_, '_>, reader: &mut Reader<'_>) -> Client {
    let client = Client {
        lanes: section.small(reader, "lanes", 1..=4096, 1024),
        deadline_ms: section.integer(reader, "deadline_ms", 1..=DAY_MS, 5000),
        retry_ms: section
            .taken(reader, "retry_ms", "a pair of shortest and longest wait, as [10, 500]", pair)
            .map_or((10, 500), |(first, last)| (first.into(), last.into())),
        preserve_max_mb: section.small(reader, "preserve_max_mb", 1..=MB_MAX, 256),
        large_max_mb: section.small(reader, "large_max_mb", 2..=MB_MAX, 64),
    };
    section.finish(reader);
    client
}

fn console(mut section: Section<'_, '_>, reader: &mut Reader<'_>) -> Console {
    let console = Console {
        access: section.choice(reader, "access", ConsoleAccess::Read),
        keys: section.choice(reader, "keys", KeyNames::Names),
    };
    section.finish(reader);
    console
}

fn links(mut section: Section<'_, '_>, reader: &mut Reader<'_>, overrides: &Overrides) -> Links {
    let kind = section.choice(reader, "kind", LinkKind::Memory);
    let links = Links {
        kind: overrides.links.unwrap_or(kind),
        receive_buffer_kb: section.small(reader, "receive_buffer_kb", 64..=MB_MAX, 4096),
        send_buffer_kb: section.small(reader, "send_buffer_kb", 64..=MB_MAX, 4096),
    };
    section.finish(reader);
    links
}
