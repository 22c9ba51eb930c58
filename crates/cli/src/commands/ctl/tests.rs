//! The texts, and the errors against real sockets.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use switchback_rack::admin::{
    CacheStatus, ClientsStatus, ControlStatus, OperationsStatus, RecoveryStatus, SwitchStatus,
};

fn status() -> RackStatus {
    let node = |index, alive| NodeStatus {
        index,
        alive: Some(alive),
        reads: Some(300),
        writes: Some(200),
        cached_keys: Some(2500),
        partitions: Some(171),
        disk_bytes: Some(5 << 20),
        error: (!alive).then(|| "no space left on device\n".to_owned()),
        ..NodeStatus::default()
    };
    RackStatus {
        name: "rack".into(),
        version: "0.1.0".into(),
        scheme: "farreach".into(),
        shape: "embedded".into(),
        phase: "serving".into(),
        epoch: Some(2),
        uptime_seconds: 3725.0,
        cache: CacheStatus {
            records: Some(5000),
            records_max: 65536,
            admissions: Some(5100),
            evictions: Some(100),
            waiting_offers: Some(0),
            ..CacheStatus::default()
        },
        control: Some(ControlStatus {
            messages_per_s: 120,
            bytes_per_s: 45_678,
            messages_per_s_max: 200_000,
            bytes_per_s_max: 100_000_000,
            delays: 3,
        }),
        operations: Some(OperationsStatus {
            reads: 10_000,
            writes: 10_000,
            answered_by_switch: 15_000,
            answered_by_nodes: 5_000,
            absorbed_writes: 8_000,
            conservative_reads: 12,
            dropped: 0,
        }),
        snapshots: Some(SnapshotStatus {
            completed: 372,
            generation: 373,
            durable_generation: 373,
            ..SnapshotStatus::default()
        }),
        clients: ClientsStatus {
            sessions: Some(2),
            connections: Some(0),
            preserved_records: Some(10),
            preserved_bytes: Some(2048),
            spool_bytes: Some(0),
        },
        switches: vec![SwitchStatus {
            active: true,
            chain: Some(0),
            drained: false,
            alive: true,
            epoch: 2,
            ..SwitchStatus::default()
        }],
        nodes: vec![node(0, true), node(1, false)],
        replication: Some(ReplicationStatus {
            replicas: 2,
            lacking: 171,
            joining: 2,
            unavailable: 3,
            may_fail: 0,
        }),
        recovery: Some(RecoveryStatus {
            epoch: 2,
            complete: true,
            detect_seconds: 0.15,
            collect_seconds: 0.0123,
            store_seconds: 0.2,
            readmit_seconds: 0.05,
            records: 5000,
            loaded: 0,
            gathered: 6000,
            lost_keys: 0,
            abandoned_clients: 0,
        }),
        ..RackStatus::default()
    }
}

#[test]
fn status_reads_well() {
    let expected = "\
rack        rack (farreach, embedded, version 0.1.0)
phase       serving; epoch 2, up 62 min
replicas    171 partitions have fewer than 2, 2 are being copied; 0 more nodes may fail
            3 partitions wait for their nodes
cache       5,000 of 65,536 records; 0 wait, 5,100 admitted, 100 evicted
control     120 of 200,000 messages/s, 45,678 of 100,000,000 bytes/s for admissions and evictions; \
            delayed 3 times
operations  10,000 reads, 10,000 writes; 15,000 answered by the switch (75.0 %), 5,000 by nodes
            8,000 writes absorbed, 12 conservative reads, 0 packets dropped
snapshots   372 durable, 0 failed; the last: 0 records, 0 B, 0 us; generation 373, durable below 373
clients     2 sessions, 0 connections; 10 records (2.0 KiB) not yet durable elsewhere, spool 0 B
recovery    epoch 2: detect 150.0 ms, collect 12.3 ms, store 200.0 ms (5,000 records), \
            re-admit 50.0 ms

node  address  state  partitions  cached  reads  writes    load     disk  error
   0  -        up            171   2,500    300     200  50.0 %  5.0 MiB
   1  -        down          171   2,500    300     200  50.0 %  5.0 MiB  no space left on device
";
    assert_eq!(status_text(&status(), Paint::none()), expected);
}

#[test]
fn what_a_controller_can_not_know_is_not_shown_as_zero() {
    let nodes =
        vec![NodeStatus { alive: Some(true), cached_keys: Some(0), ..NodeStatus::default() }];
    let clients = ClientsStatus { sessions: Some(1), ..ClientsStatus::default() };
    let status =
        RackStatus { shape: "distributed".into(), nodes, clients, ..RackStatus::default() };
    let text = status_text(&status, Paint::none());
    for line in [
        "operations  known to the switch: ask it with --metrics, as metrics in its [[switch]] of rack.toml says",
        "clients     1 sessions, connections and preserved records are known to the gateway: ask it with --metrics",
        "   0  -        up              -       0      -       -     -     -",
        "load and disk are known to each node: ask it with --metrics, as metrics in its [[node]] of rack.toml says",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = serde_json::to_string(&status).unwrap();
    assert!(json.contains("\"operations\":null") && json.contains("\"disk_bytes\":null"), "{json}");
}

#[test]
fn a_node_knows_its_own_load_and_nothing_else() {
    let here = NodeStatus {
        reads: Some(3),
        writes: Some(1),
        disk_bytes: Some(2048),
        ..NodeStatus::default()
    };
    let text = nodes_text(&[here, NodeStatus { index: 1, ..NodeStatus::default() }], Paint::none());
    assert!(
        text.contains("   0  -        -               -       -      3       1     -  2.0 KiB"),
        "{text}"
    );
    assert!(
        text.ends_with("known to the controller: ask it with --metrics, as metrics in [rack] of rack.toml says\n"),
        "{text}"
    );
}

#[test]
fn chains_switches_and_partitions_are_tables() {
    let chain = |chain, switches: &[u16]| ChainStatus {
        chain,
        phase: "serving".into(),
        epoch: 12,
        switch: switches.last().copied(),
        switches: switches.to_vec(),
        generation: 373,
        durable_generation: 372,
        cached: 5000,
        domains: switches.len() as u64,
        preserved: switches.is_empty(),
        losses: 0,
    };
    assert_eq!(
        chains_text(&[chain(0, &[3, 1]), chain(1, &[])], Paint::none()),
        "\
chain  epoch  phase    switches  generation  durable below  cached  protected by
    0     12  serving      3, 1         373            372   5,000  switches of 2 domains
    1     12  serving         -         373            372   5,000  nodes
"
    );
    let switch = |index, active, alive| SwitchStatus {
        index,
        address: Some(format!("10.0.0.{index}:7000")),
        active,
        chain: active.then_some(0),
        drained: index == 3,
        alive,
        epoch: 12,
        error: (index == 1).then(|| "nothing gets from switch 1 to switch 0".to_owned()),
        ..SwitchStatus::default()
    };
    let switches = [
        switch(0, true, true),
        switch(1, false, true),
        switch(2, false, false),
        switch(3, false, true),
    ];
    assert_eq!(
        switches_text(&switches, Paint::none()),
        "\
switch  address        state    chain  epoch  error
     0  10.0.0.0:7000  serves       0     12
     1  10.0.0.1:7000  spare        -     12  nothing gets from switch 1 to switch 0
     2  10.0.0.2:7000  down         -     12
     3  10.0.0.3:7000  drained      -     12
"
    );
    let partition = |partition, first: u128, replicas| PartitionStatus {
        partition,
        first_key: format!("{first:032x}"),
        replicas,
        ..PartitionStatus::default()
    };
    assert_eq!(
        partitions_text(
            &[partition(0, 0, vec![1]), partition(1, 1 << 127, vec![0, 2])],
            Paint::none()
        ),
        "\
partition  first key                         view  chain  replicas
        0  00000000000000000000000000000000     0      0  1
        1  80000000000000000000000000000000     0      0  0, 2
"
    );
}

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    ctl: CtlArgs,
}

#[test]
fn json_has_a_short_name() {
    use clap::Parser;
    let parsed = |line: &[&str]| CommandLine::try_parse_from(line);
    assert!(parsed(&["ctl", "partitions", "--json"]).unwrap().ctl.json);
    assert!(!parsed(&["ctl", "chains"]).unwrap().ctl.json);
    assert!(parsed(&["ctl", "nodes", "--json", "-o", "text"]).is_err(), "one form, not two");
}

#[test]
fn a_controller_without_room_says_so() {
    let error = Some(
        "the controller can't use x: no space is left on its device; make room there".to_owned(),
    );
    let status = RackStatus {
        snapshots: Some(SnapshotStatus { error, ..SnapshotStatus::default() }),
        ..status()
    };
    assert!(
        status_text(&status, Paint::none())
            .contains("\n            the controller can't use x: no space")
    );
}

#[test]
fn cached_keys_are_a_table_with_dashes_for_what_the_switch_did_not_tell() {
    let told = |key: &str, count, age_seconds, dirty, bytes| CachedRecord {
        key: key.into(),
        node: 1,
        count: Some(count),
        age_seconds: Some(age_seconds),
        dirty: Some(dirty),
        bytes: Some(bytes),
        class: 0,
        slot: 7,
        stage: "cached".into(),
    };
    let untold =
        CachedRecord { key: "c".into(), stage: "admitting".into(), ..CachedRecord::default() };
    let records =
        vec![told("user:1", 12_345, 3725.0, true, 1_168), told("b", 2, 0.5, false, 9), untold];
    let cached = CachedStatus { total: 3, records };
    assert_eq!(
        cached_text(&cached, Paint::none()),
        "\
key     node   count       age  dirty  bytes  class  slot  stage
user:1     1  12,345    62 min  yes    1,168      0     7  cached
b          1       2  500.0 ms  no         9      0     7  cached
c          0       -         -  -          -      0     0  admitting
"
    );
    let json = serde_json::to_string(&cached.records[2]).unwrap();
    for name in ["count", "age_seconds", "dirty", "bytes"] {
        assert!(json.contains(&format!("\"{name}\":null")), "{json}");
    }
}

#[test]
fn cached_keys_can_not_write_to_the_terminal() {
    let record =
        CachedRecord { key: "\u{1b}[2J".into(), stage: "cached".into(), ..CachedRecord::default() };
    let text = cached_text(&CachedStatus { total: 12, records: vec![record] }, Paint::none());
    assert!(
        !text.contains('\u{1b}') && text.ends_with("and 11 more; --limit lists them\n"),
        "{text}"
    );
    assert!(cached_text(&CachedStatus::default(), Paint::none()).contains("nothing is cached yet"));
}

#[test]
fn hot_keys_are_a_table_that_says_why_they_are_not_cached() {
    use switchback_rack::admin::{HotKeyStatus, HotStatus, KeyPlace};
    let key = |key: &str, key_bytes, reads_per_s, cache| HotKeyStatus {
        key: key.into(),
        key_bytes,
        reads_per_s,
        writes_per_s: 100.4,
        share: reads_per_s / 52_000.0,
        cache_share: 0.5,
        value_bytes: Some(1_500),
        node: Some(2),
        cache,
        ..HotKeyStatus::default()
    };
    let hot = HotStatus {
        window_seconds: 2.25,
        sampled_one_in: 64,
        samples: 1_828,
        requests_per_s: 52_000.0,
        uncounted_per_s_max: 28.0,
        keys: vec![
            key("user:77", 7, 21_400.0, Some(KeyPlace::Cached)),
            key("\u{1b}[2J", 300, 900.0, Some(KeyPlace::KeyTooLong)),
            key("img:4", 5, 800.0, Some(KeyPlace::ValueTooLarge)),
        ],
    };
    assert_eq!(
        hot::hot_text(&hot, Paint::none()),
        "\
52,000 requests/s in the last 2.2 s; rates are from 1,828 samples, one in 64

key                requests/s   share  reads/s  writes/s  bytes  node  by cache  cached
user:77                21,500  41.2 %   21,400       100  1,500     2    50.0 %  yes
\\u{1b}[2J (300 B)       1,000   1.7 %      900       100  1,500     2    50.0 %  no: key too long
img:4                     900   1.5 %      800       100  1,500     2    50.0 %  \
            no: value fits no slot
"
    );
    let unknown = HotKeyStatus { node: None, cache: None, ..hot.keys[0].clone() };
    let text = hot::hot_text(&HotStatus { keys: vec![unknown], ..hot.clone() }, Paint::none());
    let hint = "1,500     -    50.0 %  -\n\
                nodes, and why a key isn't cached, are known to the controller";
    assert!(text.contains(hint), "{text}");
    let json = serde_json::to_string(&hot.keys[2]).unwrap();
    assert!(json.contains("\"cache\":\"value_too_large\""), "{json}");
    assert_eq!(
        hot::hot_text(&HotStatus { window_seconds: 2.0, ..HotStatus::default() }, Paint::none()),
        "nothing was asked for in the last 2.0 s"
    );
}

#[test]
fn events_read_well() {
    use switchback_rack::observer::{Event, EventsStatus, What};
    let event = |ago, what| Event { number: Some(7), unix_seconds: 1e9 - ago, what };
    let mut status = EventsStatus {
        now_unix_seconds: 1e9,
        has_controller: true,
        next: 8,
        events: vec![
            event(9000.0, What::Started { version: "0.1.0".into() }),
            event(65.5, What::Recovery(status().recovery.unwrap())),
            event(61.0, What::Node { node: 2, state: "down".into() }),
            event(2.0, What::Error { part: "node 2".into(), error: Some("disk\u{1b}[2J".into()) }),
            event(1.0, What::Error { part: "node 2".into(), error: None }),
        ],
        under_way: vec![Event {
            number: None,
            unix_seconds: 1e9 - 200.0,
            what: What::Admissions { seconds: 199.0, admitted: 5000, evicted: 12 },
        }],
    };
    assert_eq!(
        events::events_text(&status, Paint::none()),
        "       ago  event
2 h 30 min  start       version 0.1.0
    65.5 s  recovery    epoch 2: detect 150.0 ms, collect 12.3 ms, store 200.0 ms (5,000 records), \
            re-admit 50.0 ms
    61.0 s  node        2 down
     2.0 s  error       node 2: disk\\u{1b}[2J
     1.0 s  mended      node 2
     3 min  admissions  5,000 admitted, 12 evicted within 3 min
"
    );
    status.has_controller = false;
    let text = events::events_text(&status, Paint::none());
    let hint = "\nrecoveries, snapshots and what becomes of nodes and switches are known to the \
                controller";
    assert!(text.contains(hint), "{text}");
}

#[test]
fn a_sample_is_a_frame() {
    use switchback_rack::observer::{LiveNode, LiveSample, LiveSwitch};
    let node =
        LiveNode { state: Some("up".into()), reads_per_s: Some(2300.4), ..LiveNode::default() };
    let sample = LiveSample {
        name: "rack\u{1b}".into(),
        phase: "serving".into(),
        epoch: Some(7),
        uptime_seconds: 90.0,
        reads_per_s: Some(30_000.0),
        writes_per_s: Some(20_000.0),
        nodes_per_s: Some(10_000.0),
        connections: Some(412),
        cached: Some(41_000),
        cached_max: 65_536,
        admissions_per_s: Some(12.4),
        nodes: vec![node],
        hot: Some(Vec::new()),
        ..LiveSample::default()
    };
    let text = top::top_text(&sample);
    let expected = "\
rack\\u{1b}  serving  epoch 7  up 90.0 s
requests/s  50,000: 30,000 reads, 20,000 writes; 80.0 % by the cache, 10,000 reached nodes; \
            412 connections
cached      41,000 of 65,536 keys, - wait; 12 admitted/s, - evicted/s

node  state  reads/s  writes/s  cached
   0  up       2,300         -       -
";
    assert!(text.starts_with(expected), "{text}");
    let switch = LiveSwitch { requests_per_s: 50.0, ..LiveSwitch::default() };
    let elsewhere = LiveSample { reads_per_s: None, hot: None, switch: Some(switch), ..sample };
    let text = top::top_text(&elsewhere);
    for line in
        ["requests/s  50 at the switch; 0 answered by it", "hot keys are known to a gateway"]
    {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn what_remains_is_named() {
    let result = DrainResult {
        drained: 1,
        remaining: vec!["node 2: 17 records".into()],
        duration_seconds: 1.0,
    };
    assert_eq!(
        drain_text(&result, Paint::none()),
        "1 records brought to their nodes in 1.0 s\nremains: node 2: 17 records"
    );
}

/// Serves one exchange with this answer.
fn answering(answer: &'static str) -> Rack {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer.as_bytes());
    });
    Rack { address }
}

fn error(answer: &'static str) -> String {
    format!("{:#}", answering(answer).get::<RackStatus>("status").unwrap_err())
}

#[test]
fn errors_say_how_to_mend() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = Rack { address: free }.get::<RackStatus>("status").unwrap_err().to_string();
    assert!(
        refused.starts_with(&format!("no rack answers at {free}: is `switchback up` running?")),
        "{refused}"
    );
    assert!(
        error("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").contains("is no rack"),
        "a web server"
    );
    assert!(
        error("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").contains("no rack of this version")
    );
    assert!(
        error("SSH-2.0-OpenSSH_9.2\r\n").contains("no rack"),
        "{}",
        error("SSH-2.0-OpenSSH_9.2\r\n")
    );
    let failed =
        error("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 15\r\n\r\nnode 2 is down\n");
    assert_eq!(failed, "node 2 is down");
}
