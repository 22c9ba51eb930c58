//! What values say together.

use super::parse::{NODES_MAX, RECORDS_MAX, WORKERS_MAX};
use super::reader::Reader;
use super::types::*;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use switchback_wire::Scheme;

/// Largest value that a switch caches.
const VALUE_BYTES_MAX: u32 = switchback_wire::CACHED_VALUE_BYTES_MAX as u32;
/// Switches that serve at a time.
const SWITCHES_MAX: u16 = 128;
/// The datapath has two bits for the class.
const CLASSES_MAX: usize = 4;

pub(super) fn whole(config: &RackConfig, reader: &mut Reader<'_>, overrides: &Overrides) {
    counts(config, reader, overrides);
    timing(config, reader);
    cache(config, reader, overrides);
    shape(config, reader);
    listed_layers(config, reader);
    exposure(config, reader);
    addresses(config, reader);
    directories(config, reader);
}

/// Each chain has a switch of each layer, and partitions to serve. A rack in one process has as
/// many switches as that takes.
fn chains(config: &RackConfig, reader: &mut Reader<'_>) {
    let Topology { chains, layers } = config.topology;
    let partitions = config.rack.partitions as usize;
    layers_of_scheme(config, reader);
    if u16::from(layers) * chains > SWITCHES_MAX {
        let message = format!(
            "{chains} chains of {layers} layers are {} switches; a rack has at most {SWITCHES_MAX}: fewer [topology] chains or layers",
            u16::from(layers) * chains
        );
        reader.problem_among(&["topology.chains", "topology.layers"], message);
    }
    if config.shape == Shape::Distributed {
        (1..=layers).for_each(|layer| switches_of_layer(config, layer, reader));
    }
    let chains = usize::from(chains);
    if chains > partitions {
        let message = format!(
            "{chains} chains share {partitions} partitions; make it at least {} ([rack] partitions)",
            chains.next_power_of_two()
        );
        reader.problem_among(&["rack.partitions", "topology.chains"], message);
    }
}

/// No switch is of a layer that the rack doesn't have.
fn listed_layers(config: &RackConfig, reader: &mut Reader<'_>) {
    let layers = config.topology.layers;
    for (index, switch) in config.switches.iter().enumerate() {
        let layer = switch.layer;
        if layer > layers {
            let message = format!(
                "layer = {layer} of a rack with [topology] layers = {layers}: it is from 1 (next to the clients) to {layers}"
            );
            reader.problem_at(&format!("switch[{index}].layer"), message);
        }
    }
}

fn layers_of_scheme(config: &RackConfig, reader: &mut Reader<'_>) {
    let (scheme, layers) = (config.rack.scheme, config.topology.layers);
    let layers_max = scheme.layers_max();
    if layers > layers_max {
        let right = Scheme::ALL.into_iter().rev().filter(|other| other.layers_max() >= layers);
        let right: Vec<_> = right.map(|scheme| format!("\"{scheme}\"")).collect();
        let message = format!(
            "[topology] layers = {layers} needs a scheme that has as many, and \"{scheme}\" has \
             {layers_max}: make [rack] scheme {}, or layers {layers_max}",
            right.join(" or ")
        );
        reader.problem_among(&["topology.layers", "rack.scheme"], message);
    }
}

/// Those that are listed for a layer are as many as there are chains, at least.
fn switches_of_layer(config: &RackConfig, layer: u8, reader: &mut Reader<'_>) {
    let Topology { chains, layers } = config.topology;
    let switches = config.switches.iter().filter(|switch| switch.layer == layer).count();
    if usize::from(chains) > switches {
        let of_layer = if layers == 1 { String::new() } else { format!(" in layer {layer}") };
        let message = format!(
            "[topology] chains = {chains} needs as many switches that serve{of_layer}, and \
             {switches} {} listed; add [[switch]]es, or make chains at most {}",
            if switches == 1 { "is" } else { "are" },
            switches.max(1)
        );
        reader.problem_among(&["topology.chains", "topology.layers"], message);
    }
}

fn counts(config: &RackConfig, reader: &mut Reader<'_>, overrides: &Overrides) {
    let partitions = config.rack.partitions;
    if !partitions.is_power_of_two() {
        let right = partitions.next_power_of_two();
        let message = format!(
            "[rack] partitions = {partitions} is not a power of two; the next one is {right}"
        );
        reader.problem_at("rack.partitions", message);
    }
    let listed = reader.line_of("node[0]").is_some();
    let nodes = config.nodes.len();
    if nodes > partitions as usize {
        let right = nodes.next_power_of_two();
        let message = format!(
            "{nodes} nodes share {partitions} partitions; make it at least {right} ([rack] partitions)"
        );
        reader.problem_among(&["rack.partitions", "nodes.count", "node[0]"], message);
    }
    replication(config, reader, overrides);
    chains(config, reader);
    node_flag(nodes, reader, overrides);
    if listed && reader.line_of("nodes.count").is_some() {
        let message = "[nodes] count and [[node]] are both given; the list says how many there are, so leave count out";
        reader.problem_at("nodes.count", message.to_owned());
    }
    sessions(config, reader);
    let gateway = &config.gateway;
    if overrides.workers.is_some_and(|workers| workers > WORKERS_MAX) {
        let message = format!(
            "--workers {} is out of range; it is an integer from 0 to {WORKERS_MAX}",
            gateway.workers
        );
        reader.problem(None, message);
    }
    if gateway.unread_max_mb > gateway.buffers_max_mb {
        let message = format!(
            "[gateway] unread_max_mb = {0} is more than all connections of a worker get together, \
             buffers_max_mb = {1}; make unread_max_mb at most {1}, or buffers_max_mb at least {0}",
            gateway.unread_max_mb, gateway.buffers_max_mb
        );
        reader.problem_among(&["gateway.unread_max_mb", "gateway.buffers_max_mb"], message);
    }
}

/// Each replica of a partition is at another node, and a copy in a spine would have to be told of
/// writes by all of them.
fn replication(config: &RackConfig, reader: &mut Reader<'_>, overrides: &Overrides) {
    let (replication, nodes) = (config.rack.replication, config.nodes.len());
    let name = match overrides.replication {
        Some(_) => "--replication",
        None => "[rack] replication =",
    };
    let message = if usize::from(replication) > nodes {
        format!(
            "{name} {replication} needs as many nodes, each of which has a replica, and there {} \
             {nodes}; add nodes, or make it at most {nodes}",
            if nodes == 1 { "is" } else { "are" }
        )
    } else if replication > 1 && config.rack.scheme.has_copies() {
        let scheme = config.rack.scheme;
        format!(
            "{name} {replication} and scheme \"{scheme}\" don't go together: its nodes tell copies \
             in switches of writes, which replicas don't yet; another scheme, or replication 1"
        )
    } else if replication > 1 && config.nodes.iter().any(|node| node.sync != SyncChoice::Always) {
        format!(
            "{name} {replication} needs sync \"always\" at all nodes: replicas that lag behind would \
             differ once a machine has lost its power"
        )
    } else {
        return;
    };
    match overrides.replication {
        Some(_) => reader.problem(None, message),
        None => reader.problem_at("rack.replication", message),
    }
}

fn node_flag(nodes: usize, reader: &mut Reader<'_>, overrides: &Overrides) {
    let listed = reader.line_of("node[0]").is_some();
    match overrides.nodes {
        Some(0) => reader.problem(None, "--nodes 0: a rack has at least one node".to_owned()),
        Some(said) if said > NODES_MAX => {
            reader.problem(None, format!("--nodes {said}: a rack has at most {NODES_MAX} nodes"));
        }
        Some(said) if listed && usize::from(said) != nodes => {
            let message = format!(
                "--nodes {said}, but the file lists {nodes} as [[node]]; leave the flag out"
            );
            reader.problem_at("node[0]", message);
        }
        _ => {}
    }
}

fn sessions(config: &RackConfig, reader: &mut Reader<'_>) {
    let (first, last) = config.client.retry_ms;
    if first == 0 || first > last || last > config.client.deadline_ms {
        let deadline = config.client.deadline_ms;
        let message = format!(
            "[client] retry_ms = [{first}, {last}]: the first is at least 1 and not above the \
             second, which is not above deadline_ms = {deadline}"
        );
        reader.problem_among(&["client.retry_ms", "client.deadline_ms"], message);
    }
    let (lanes, all) = (config.client.lanes, config.controller.lanes);
    if lanes > all {
        let message = format!(
            "[client] lanes = {lanes} is more than there are for all sessions, [controller] \
             lanes = {all}; make the first at most {all}, or the second at least {lanes}"
        );
        reader.problem_among(&["client.lanes", "controller.lanes"], message);
    }
}

fn timing(config: &RackConfig, reader: &mut Reader<'_>) {
    let rack = &config.rack;
    let late = "would take one late heartbeat for a death";
    for (key, ms, why, heartbeats) in [
        ("switch_timeout_ms", rack.switch_timeout_ms, late, 3),
        ("lease_ms", rack.lease_ms, "runs out between heartbeats", 4),
    ] {
        let least = heartbeats * rack.heartbeat_ms;
        if ms < least {
            let message = format!(
                "[rack] {key} = {ms} {why}; it is at least {heartbeats} * heartbeat_ms = {least}"
            );
            reader.problem_among(&[&format!("rack.{key}"), "rack.heartbeat_ms"], message);
        }
    }
}

fn cache(config: &RackConfig, reader: &mut Reader<'_>, overrides: &Overrides) {
    let Cache { records, classes, sketch_width, .. } = &config.cache;
    if !sketch_width.is_power_of_two() {
        let right = sketch_width.next_power_of_two();
        let message = format!(
            "[cache] sketch_width = {sketch_width} is not a power of two; the next one is {right}"
        );
        reader.problem_at("cache.sketch_width", message);
    }
    if overrides.cache_records.is_some_and(|records| records == 0 || records > RECORDS_MAX) {
        let message = format!(
            "--cache-records {records} is out of range; it is an integer from 1 to {RECORDS_MAX}"
        );
        reader.problem(None, message);
        return;
    }
    if classes.is_empty() || classes.len() > CLASSES_MAX {
        let message =
            format!("[cache] classes has {} entries; it has 1 to {CLASSES_MAX}", classes.len());
        reader.problem_at("cache.classes", message);
        return;
    }
    let mut before = 0;
    for &(value_bytes, slots) in classes {
        if value_bytes == 0 || value_bytes > VALUE_BYTES_MAX || value_bytes % 8 != 0 {
            let message = format!(
                "[cache] classes: {value_bytes} is no size of a slot; it is a multiple of 8, from 8 to {VALUE_BYTES_MAX}"
            );
            reader.problem_at("cache.classes", message);
        }
        if value_bytes <= before {
            let message = format!(
                "[cache] classes: {value_bytes} comes after {before}; sizes rise from class to class"
            );
            reader.problem_at("cache.classes", message);
        }
        if slots == 0 {
            let message =
                format!("[cache] classes: [{value_bytes}, 0] has no slots; leave the class out");
            reader.problem_at("cache.classes", message);
        }
        before = value_bytes;
    }
    let slots: u64 = classes.iter().map(|&(_, slots)| u64::from(slots)).sum();
    if slots > 4 * u64::from(RECORDS_MAX) {
        let message = format!(
            "[cache] classes add up to {slots} slots; at most {} are possible",
            4 * u64::from(RECORDS_MAX)
        );
        reader.problem_at("cache.classes", message);
    }
    if u64::from(*records) > slots {
        let message = format!(
            "[cache] records = {records}, but classes have only {slots} slots; leave one of both out"
        );
        reader.problem_at("cache.records", message);
    }
}

/// A distributed rack needs addresses that others can send to, an embedded one has none.
fn shape(config: &RackConfig, reader: &mut Reader<'_>) {
    if config.shape == Shape::Embedded {
        for (index, node) in config.nodes.iter().enumerate() {
            if node.address.is_some() && !reader.is_malformed() {
                let message = format!(
                    "[[node]] {index} has an address, so the rack is one process a part, but no \
                     [[switch]] is listed; add one, or leave the address out"
                );
                reader.problem_at(&format!("node[{index}].address"), message);
            }
        }
        return;
    }
    for (index, node) in config.nodes.iter().enumerate() {
        let path = format!("node[{index}].address");
        if node.address.is_none() && reader.line_of(&path).is_none() && !reader.is_malformed() {
            let message = match reader.line_of(&format!("node[{index}]")) {
                Some(_) => {
                    format!("[[node]] {index} needs an address, as address = \"10.0.0.2:{}\"", 9410 + index % 1000)
                }
                None => "a rack with a [[switch]] is one process a part: list each node as [[node]], with its address"
                    .to_owned(),
            };
            reader.problem_at(&path, message);
        }
    }
    let switches = config
        .switches
        .iter()
        .enumerate()
        .map(|(index, switch)| (format!("switch[{index}].address"), switch.address));
    let nodes = config.nodes.iter().enumerate();
    let nodes =
        nodes.filter_map(|(index, node)| Some((format!("node[{index}].address"), node.address?)));
    let packets: Vec<_> = switches.chain(nodes).collect();
    let controller = [("controller.listen".to_owned(), config.controller.listen)];
    // The first switch, since there is one.
    if let Some((first, one)) = packets.first() {
        for (path, other) in packets.iter().filter(|(_, other)| other.is_ipv4() != one.is_ipv4()) {
            let message = format!(
                "{} = \"{other}\" and {} = \"{one}\" can't reach each other: give all switches and nodes IPv4 addresses, or all IPv6",
                shown(path),
                shown(first)
            );
            reader.problem_at(path, message);
        }
    }
    for (path, address) in packets.into_iter().chain(controller) {
        if reader.line_of(&path).is_none() {
            continue;
        }
        if address.port() == 0 {
            let message = format!("{} needs a port of its own: others send to it", shown(&path));
            reader.problem_at(&path, message);
        }
        if address.ip().is_unspecified() {
            let message = format!(
                "{} = \"{address}\" is every address of a machine; name the one that others send to",
                shown(&path)
            );
            reader.problem_at(&path, message);
        }
    }
}

/// Redis' protected mode: what listens for others has a password, or says that it wants none, or
/// asks for certificates.
fn exposure(config: &RackConfig, reader: &mut Reader<'_>) {
    let Gateway { resp, password, tls, .. } = &config.gateway;
    let certified = tls.as_ref().is_some_and(|tls| tls.files.client_ca.is_some());
    let beside = tls.as_ref().and_then(|tls| tls.resp);
    let resp_certified = certified && beside.is_none();
    let listening = [("resp", Some(*resp), resp_certified), ("tls_resp", beside, certified)];
    for (key, address, certified) in listening {
        let Some(address) = address else { continue };
        if !address.ip().is_loopback() && password.is_none() && !certified {
            let message = format!(
                "[gateway] {key} = \"{address}\" serves other machines without a password; set \
                 password_file or --resp-password (an empty password lets every client in)"
            );
            reader.problem_at(&format!("gateway.{key}"), message);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

fn addresses(config: &RackConfig, reader: &mut Reader<'_>) {
    let mut all: Vec<(Transport, String, SocketAddr)> = Vec::new();
    all.push((Transport::Tcp, "rack.metrics".into(), config.rack.metrics));
    all.push((Transport::Tcp, "gateway.resp".into(), config.gateway.resp));
    let tls = config.gateway.tls.as_ref().and_then(|tls| tls.resp);
    all.extend(tls.map(|address| (Transport::Tcp, "gateway.tls_resp".into(), address)));
    if config.shape == Shape::Distributed {
        all.push((Transport::Tcp, "controller.listen".into(), config.controller.listen));
        all.extend(
            config
                .gateway
                .metrics
                .map(|address| (Transport::Tcp, "gateway.metrics".into(), address)),
        );
        for (index, switch) in config.switches.iter().enumerate() {
            all.push((Transport::Udp, format!("switch[{index}].address"), switch.address));
            all.extend(
                switch
                    .metrics
                    .map(|address| (Transport::Tcp, format!("switch[{index}].metrics"), address)),
            );
        }
        for (index, node) in config.nodes.iter().enumerate() {
            let taken = |transport| {
                node.address.map(|it| (transport, format!("node[{index}].address"), it))
            };
            all.extend(taken(Transport::Udp));
            // For the links between nodes.
            all.extend(taken(Transport::Tcp).filter(|_| config.rack.replication > 1));
            all.extend(
                node.metrics
                    .map(|address| (Transport::Tcp, format!("node[{index}].metrics"), address)),
            );
        }
    }
    for (index, (transport, path, address)) in all.iter().enumerate() {
        let clashes = |other: &&(Transport, String, SocketAddr)| {
            let ip = other.2.ip();
            let same_host =
                ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
            other.0 == *transport
                && address.port() != 0
                && other.2.port() == address.port()
                && same_host
        };
        let Some((_, first, _)) = all[..index].iter().find(clashes) else { continue };
        let line = reader.line_of(first).map_or(String::new(), |line| format!(" (line {line})"));
        let message = format!(
            "{} = \"{address}\" is taken by {}{line}; give each its own port",
            shown(path),
            shown(first)
        );
        // The one that is in the file is where the mistake can be mended.
        let at = if reader.line_of(path).is_some() { path } else { first };
        reader.problem_at(at, message);
    }
}

fn directories(config: &RackConfig, reader: &mut Reader<'_>) {
    let mut all = vec![("controller.data".to_owned(), &config.controller.data)];
    if config.gateway.durability != Durability::Memory {
        all.push(("gateway.spool".to_owned(), &config.gateway.spool));
    }
    all.extend(
        config
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (format!("node[{index}].data"), &node.data)),
    );
    for (index, (path, directory)) in all.iter().enumerate() {
        let at = if reader.line_of(path).is_some() { path.as_str() } else { "rack.data" };
        if let Some(file) = file_in_the_way(directory) {
            let message = format!(
                "{}: {} is a file; a directory is needed there",
                shown(path),
                file.display()
            );
            reader.problem_at(at, message);
        }
        let plain = normal(directory);
        let mut before = all[..index].iter().map(|(path, directory)| (path, normal(directory)));
        if let Some((first, _)) =
            before.find(|(_, other)| plain.starts_with(other) || other.starts_with(&plain))
        {
            let message = format!(
                "{} = {} is also the directory of {}, or in it; each needs its own",
                shown(path),
                directory.display(),
                shown(first)
            );
            reader.problem_at(at, message);
        }
    }
}

/// The first part of a path that exists and is no directory.
fn file_in_the_way(path: &Path) -> Option<&Path> {
    let existing = path.ancestors().find(|part| part.exists())?;
    (!existing.is_dir()).then_some(existing)
}

/// Without `.` and `..`, as far as that can be said without asking the file system.
fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(plain.components().next_back(), Some(Component::Normal(_))) =>
            {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// A path as users write it: `rack.metrics` is `[rack] metrics`, `node[0].data` is `[[node]] 0
/// data`.
fn shown(path: &str) -> String {
    let (section, key) = path.split_once('.').unwrap_or((path, ""));
    match section.split_once('[') {
        None => format!("[{section}] {key}"),
        Some((name, index)) => format!("[[{name}]] {} {key}", index.trim_end_matches(']')),
    }
}
