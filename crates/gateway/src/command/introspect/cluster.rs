//! CLUSTER, READONLY, READWRITE, ASKING: a cluster of one owner, for clients that are made for
//! Redis Cluster. The gateway owns all slots and sends no client elsewhere, so keys of several
//! slots go into one command.

use super::{Verb, no_subcommand, ok, wrong_arity};
use crate::config::Cluster;
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::ErrorKind;
use crate::resp::{Args, parse_i64, write};
use crate::running::Running;
use crate::shared::Shared;
use std::net::SocketAddr;
use switchback_wire::HashKey;

/// Slots of a Redis Cluster.
const SLOTS: u16 = 1 << 14;
/// Where a cluster's nodes would talk to each other: as far from the port for clients.
const BUS_PORT_OFFSET: u16 = 10_000;

const DISABLED: &str = "ERR This instance has cluster support disabled";

/// Subcommands of Redis that change a cluster, or look into what there is none of here, with their
/// words as COMMAND tells them: as many, or if it is negative at least as many.
pub(super) const UNSUPPORTED: [(&str, i8); 17] = [
    ("addslots", -3),
    ("addslotsrange", -4),
    ("bumpepoch", 2),
    ("count-failure-reports", 3),
    ("countkeysinslot", 3),
    ("delslots", -3),
    ("delslotsrange", -4),
    ("failover", -2),
    ("flushslots", 2),
    ("forget", 3),
    ("getkeysinslot", 4),
    ("meet", -4),
    ("replicate", 3),
    ("reset", -2),
    ("saveconfig", 2),
    ("set-config-epoch", 3),
    ("setslot", -4),
];

/// Whether the gateway passes for a cluster; if not, the command is refused as Redis does.
fn is_cluster(running: &mut Running, shared: &Shared, id: ConnectionId) -> bool {
    let is_cluster = shared.config.cluster == Cluster::Emulated;
    if !is_cluster {
        refuse(running, id, ErrorKind::Command, DISABLED);
    }
    is_cluster
}

/// READONLY, READWRITE and ASKING: the gateway answers everything in any case.
pub(crate) fn set_mode(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    if let Some(verb) = Verb::from_name(args.get(0))
        && is_cluster(running, shared, id)
    {
        ok(running, id, verb);
    }
}

pub(crate) fn cluster(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let put = |running: &mut Running, write: &dyn Fn(&mut Vec<u8>, bool)| {
        answer_here(running, id, Some(Verb::Cluster), |out, resp3| write(out, resp3));
    };
    let sub = args.get(1).to_ascii_lowercase();
    let unsupported = UNSUPPORTED.iter().find(|(name, _)| name.as_bytes() == sub);
    let words = match &sub[..] {
        b"info" | b"myid" | b"slots" | b"shards" | b"nodes" | b"links" | b"help" => 2,
        b"keyslot" | b"replicas" | b"slaves" => 3,
        _ => match unsupported {
            Some(&(_, words)) => words,
            None => return no_subcommand(running, shared, id, args),
        },
    };
    let (said, least) = (args.len(), usize::from(words.unsigned_abs()));
    if said < least || (words > 0 && said > least) {
        let name = format!("cluster|{}", String::from_utf8_lossy(&sub));
        return wrong_arity(running, id, &name);
    }
    if !is_cluster(running, shared, id) {
        return;
    }
    let Some(address) = address_of(running, shared, id) else { return };
    let node = node_id(&address);
    match &sub[..] {
        b"info" => put(running, &|out, resp3| write::verbatim(out, &info(), resp3)),
        b"myid" => put(running, &|out, _| write::bulk(out, node.as_bytes())),
        b"slots" => put(running, &|out, resp3| slots(out, &address, &node, resp3)),
        b"shards" => put(running, &|out, resp3| shards(out, &address, &node, resp3)),
        b"nodes" => put(running, &|out, resp3| {
            write::verbatim(out, &described(&address, &node), resp3);
        }),
        b"links" => put(running, &|out, _| write::array(out, 0)),
        b"keyslot" => {
            put(running, &|out, _| write::integer(out, slot_of(args.get(2)).into()));
        }
        b"replicas" | b"slaves" if args.get(2) == node.as_bytes() => {
            put(running, &|out, _| write::array(out, 0));
        }
        b"replicas" | b"slaves" => {
            let name = String::from_utf8_lossy(&args.get(2)[..args.get(2).len().min(128)]);
            refuse(running, id, ErrorKind::Command, &format!("ERR Unknown node {name}"));
        }
        // The rack cannot tell which keys a slot has: nodes have them by another hash.
        b"countkeysinslot" | b"getkeysinslot" => match parse_i64(args.get(2)) {
            Some(slot) if (0..SLOTS.into()).contains(&slot) => {
                no_subcommand(running, shared, id, args);
            }
            Some(_) => refuse(running, id, ErrorKind::Command, "ERR Invalid slot"),
            None => {
                let text = "ERR value is not an integer or out of range";
                refuse(running, id, ErrorKind::Command, text);
            }
        },
        _ => no_subcommand(running, shared, id, args),
    }
}

/// The address at which the client has reached the gateway: it can reach it there again.
fn address_of(running: &Running, shared: &Shared, id: ConnectionId) -> Option<SocketAddr> {
    let number = running.outbox.replies.connections.get(id)?.number;
    shared.clients().get(&number).map(|info| info.local)
}

/// The name of a node: 40 hexadecimal digits, the same at every start.
fn node_id(address: &SocketAddr) -> String {
    let hash = HashKey([0; 16]).hash(address.to_string().as_bytes());
    let digits: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}{}", &digits[..8])
}

fn info() -> String {
    let lines = [
        ("cluster_state", "ok".to_owned()),
        ("cluster_slots_assigned", SLOTS.to_string()),
        ("cluster_slots_ok", SLOTS.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", "0".to_owned()),
        ("cluster_known_nodes", "1".to_owned()),
        ("cluster_size", "1".to_owned()),
        ("cluster_current_epoch", "0".to_owned()),
        ("cluster_my_epoch", "0".to_owned()),
        ("cluster_stats_messages_sent", "0".to_owned()),
        ("cluster_stats_messages_received", "0".to_owned()),
        ("total_cluster_links_buffer_limit_exceeded", "0".to_owned()),
    ];
    lines.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
}

fn slots(out: &mut Vec<u8>, address: &SocketAddr, node: &str, resp3: bool) {
    write::array(out, 1);
    write::array(out, 3);
    write::integer(out, 0);
    write::integer(out, (SLOTS - 1).into());
    write::array(out, 4);
    write::bulk(out, address.ip().to_string().as_bytes());
    write::integer(out, address.port().into());
    write::bulk(out, node.as_bytes());
    write::map(out, 0, resp3); // what else there is to know of the node
}

fn shards(out: &mut Vec<u8>, address: &SocketAddr, node: &str, resp3: bool) {
    write::array(out, 1);
    write::map(out, 2, resp3);
    write::bulk(out, b"slots");
    write::array(out, 2);
    write::integer(out, 0);
    write::integer(out, (SLOTS - 1).into());
    write::bulk(out, b"nodes");
    write::array(out, 1);
    let ip = address.ip().to_string();
    write::map(out, 7, resp3);
    write::bulk(out, b"id");
    write::bulk(out, node.as_bytes());
    write::bulk(out, b"port");
    write::integer(out, address.port().into());
    for (name, value) in [("ip", &ip[..]), ("endpoint", &ip), ("role", "master")] {
        write::bulk(out, name.as_bytes());
        write::bulk(out, value.as_bytes());
    }
    write::bulk(out, b"replication-offset");
    write::integer(out, 0);
    write::bulk(out, b"health");
    write::bulk(out, b"online");
}

fn described(address: &SocketAddr, node: &str) -> String {
    let (ip, port) = (address.ip(), address.port());
    let bus_port = port.checked_add(BUS_PORT_OFFSET).unwrap_or(0);
    format!("{node} {ip}:{port}@{bus_port} myself,master - 0 0 0 connected 0-{}\n", SLOTS - 1)
}

/// The slot of a key, by its hash tag if it has one (Redis Cluster specification, "Hash tags").
fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let begin = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[begin..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[begin..begin + length])
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM: polynomial 0x1021, the highest bit first.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "the specification's check value");
        for (key, slot) in [
            (&b"foo"[..], 12_182),
            (b"{foo}bar", 12_182),
            (b"foo{}{bar}", 8_363),
            (b"foo{{bar}}zap", 4_015),
            (b"foo{bar}{zap}", 5_061),
            (b"", 0),
        ] {
            assert_eq!(slot_of(key), slot, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_node_is_named_by_its_address() {
        let address: SocketAddr = "127.0.0.1:6380".parse().unwrap();
        let node = node_id(&address);
        assert!(node.len() == 40 && node.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(node, node_id(&address));
        assert!(described(&address, &node).contains("127.0.0.1:6380@16380 myself,master"));
    }
}
