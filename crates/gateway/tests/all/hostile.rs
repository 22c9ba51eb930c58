//! Clients that do what they shouldn't, and racks that don't answer.

use crate::fake::{Client, FakeRack, PATIENCE, config};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use switchback_core::client::ClientConfig;
use switchback_gateway::{Answerer, ErrorKind, GatewayConfig, Transactions};

fn quick() -> GatewayConfig {
    let session = ClientConfig { deadline_us: 300_000, ..ClientConfig::default() };
    GatewayConfig { session, wait_max: Duration::from_millis(300), ..config() }
}

#[test]
fn a_long_pipeline_over_every_kind_of_answer_stays_in_order() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.uncached_prefix = Some(b"n".to_vec()));
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let mut stream = Vec::new();
    for i in 0..20_000u32 {
        let key = format!("{}{}", if i % 3 == 0 { "n" } else { "c" }, i % 50);
        stream.extend(Client::command(&[b"SET", key.as_bytes(), i.to_string().as_bytes()]));
        stream.extend(Client::command(&[b"GET", key.as_bytes()]));
    }
    let mut writer = client.0.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&stream).unwrap());
    for i in 0..20_000u32 {
        assert_eq!(client.reply(), b"+OK\r\n");
        let number = i.to_string();
        assert_eq!(client.reply(), format!("${}\r\n{number}\r\n", number.len()).into_bytes());
    }
    thread.join().unwrap();
}

/// Fails if a web page can have a browser write: what it sends is a request whose body is commands.
#[test]
fn a_connection_that_speaks_http_is_closed_before_its_body() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    for request in ["POST / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\n"] {
        let mut client = Client::connect(&gateway);
        client.send(format!("{request}Origin: http://elsewhere\r\n\r\nSET k v\r\n").as_bytes());
        let mut answer = String::new();
        // Reset rather than closed, if something was still unread.
        let _ = client.0.read_to_string(&mut answer);
        assert!(!answer.contains("+OK"), "{answer}");
    }
    assert_eq!(rack.value(b"k"), None);
}

#[test]
fn counters_lose_nothing_between_connections_workers_and_a_bad_network() {
    for (nothing_cached, loss) in [(false, 0), (true, 0), (true, 5)] {
        let rack = FakeRack::default();
        rack.set(|knobs| {
            knobs.nothing_cached = nothing_cached;
            knobs.loss = loss;
            knobs.duplication = loss;
        });
        let gateway = rack.try_start(config(), 2).unwrap();
        let address = gateway.local_addr();
        let rounds = if loss > 0 { 20 } else { 200 };
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(move || {
                    let mut client = Client::to(address);
                    for _ in 0..rounds {
                        client.send(&Client::command(&[b"INCR", b"counter"]).repeat(5));
                        for _ in 0..5 {
                            assert_eq!(client.reply()[0], b':');
                        }
                    }
                });
            }
        });
        assert_eq!(rack.value(b"counter").unwrap(), (6 * rounds * 5).to_string().into_bytes());
    }
}

#[test]
fn a_client_that_sends_all_before_it_reads_is_answered() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { output_bytes_soft: 100_000, ..config() });
    let mut client = Client::connect(&gateway);
    client.call(&[b"SET", b"k", &[b'x'; 1000]]);
    // Far more than the kernel's buffers take either way.
    let commands = 40_000;
    client.send(&Client::command(&[b"GET", b"k"]).repeat(commands));
    for _ in 0..commands {
        assert_eq!(client.reply().len(), 1009);
    }
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let rack = FakeRack::default();
    let limits =
        GatewayConfig { output_bytes_soft: 100_000, output_bytes_hard: 4 << 20, ..config() };
    let gateway = rack.start(limits);
    let mut client = Client::connect(&gateway);
    client.call(&[b"SET", b"k", &[b'x'; 1000]]);
    let stream = Client::command(&[b"GET", b"k"]).repeat(1000);
    let started = Instant::now();
    while client.0.write_all(&stream).is_ok() {
        assert!(started.elapsed() < PATIENCE, "it is served for ever");
        // Others don't notice.
        assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
    }
    let served = gateway.statistics().commands(switchback_gateway::Answerer::Cache);
    assert!(served < 30_000, "{served} replies were made");
}

#[test]
fn large_replies_are_asked_for_a_few_at_a_time() {
    let rack = FakeRack::default();
    let limits =
        GatewayConfig { output_bytes_soft: 100_000, client_bytes_max: 4 << 20, ..config() };
    let gateway = rack.start(limits);
    Client::connect(&gateway).call(&[b"SET", b"k", &[b'x'; 100_000]]);
    let stream = Client::command(&[b"GET", b"k"]).repeat(100);
    let mut clients: Vec<_> = (0..10).map(|_| Client::connect(&gateway)).collect();
    for client in &mut clients {
        client.send(&stream);
    }
    for _ in 0..100 {
        for client in &mut clients {
            assert_eq!(client.reply().len(), 100_011, "it was closed for its memory");
        }
    }
}

#[test]
fn one_clients_memory_is_limited() {
    let rack = FakeRack::default();
    let limits =
        GatewayConfig { command_bytes_max: 1 << 20, client_bytes_max: 4 << 20, ..config() };
    let gateway = rack.start(limits);
    // A command that never ends.
    let mut client = Client::connect(&gateway);
    client.send(b"*1000000\r\n");
    let argument = [b"$1000\r\n", &[b'x'; 1000][..], b"\r\n"].concat();
    let mut failed = false;
    for _ in 0..10_000 {
        failed |= client.0.write_all(&argument).is_err();
    }
    assert!(failed, "it took 10 MB of one command");
    // Many that never end, each within its own limit: the largest are closed.
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&gateway)).collect();
    for client in &mut clients {
        let _ = client.0.write_all(b"*1000000\r\n");
        let _ = client.0.write_all(&argument.repeat(900));
    }
    let begin = Instant::now();
    while gateway.statistics().sum(|worker| worker.errors(ErrorKind::Memory)) == 0 {
        assert!(begin.elapsed() < PATIENCE, "no connection was closed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
}

#[test]
fn clients_over_the_limit_are_told_so() {
    let gateway = FakeRack::default().start(GatewayConfig { max_clients: 2, ..config() });
    let mut first = Client::connect(&gateway);
    let mut second = Client::connect(&gateway);
    assert_eq!((first.ask("PING"), second.ask("PING")), ("+PONG\r\n".into(), "+PONG\r\n".into()));
    assert_eq!(Client::connect(&gateway).reply(), b"-ERR max number of clients reached\r\n");
    drop(first);
    let begin = Instant::now();
    while gateway.connections() == 2 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
}

#[test]
fn keys_and_values_out_of_bounds_are_refused_in_step() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    let (long_key, largest) = (vec![b'k'; 1025], vec![b'v'; 1 << 20]);
    let too_large = vec![b'v'; (1 << 20) + 1];
    assert_eq!(client.call(&[b"SET", &long_key, b"v"]), b"-ERR a key has 1 to 1024 bytes\r\n");
    assert_eq!(client.call(&[b"MGET", b"a", &long_key]), b"-ERR a key has 1 to 1024 bytes\r\n");
    assert_eq!(client.call(&[b"GET", b""]), b"-ERR a key has 1 to 1024 bytes\r\n");
    assert_eq!(client.call(&[b"SET", &long_key[1..], &largest]), b"+OK\r\n");
    assert_eq!(client.call(&[b"STRLEN", &long_key[1..]]), b":1048576\r\n");
    assert!(client.call(&[b"SET", b"k", &too_large]).starts_with(b"-ERR string exceeds"));
    assert!(client.call(&[b"APPEND", &long_key[1..], b"x"]).starts_with(b"-ERR string exceeds"));
    assert_eq!(client.ask("PING"), "+PONG\r\n");
}

#[test]
fn what_the_rack_leaves_open_is_said() {
    let rack = FakeRack::default();
    let gateway = rack.start(quick());
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    rack.set(|knobs| knobs.silent = true);
    assert!(
        client.ask("SET k w").starts_with("-INDETERMINATE the write may or may not have happened")
    );
    assert!(client.ask("GET k").starts_with("-TIMEOUT "));
    assert!(client.ask("INCR k").starts_with("-TIMEOUT "));
    assert!(client.ask("MSET a 1 b 2").starts_with("-INDETERMINATE "));
    assert!(client.ask("DBSIZE").starts_with("-TIMEOUT "));
    rack.set(|knobs| {
        knobs.silent = false;
        knobs.no_space = true;
    });
    // It is not known: the packet may have been duplicated on the way, and the copy find room.
    let refusal = "-INDETERMINATE disk full on the node of this key: it refused the write, but a copy that is still on its way may find room\r\n";
    assert_eq!(client.ask("SET k w"), refusal);
    rack.set(|knobs| {
        knobs.no_space = false;
        knobs.fail_conditions = 3;
    });
    assert_eq!(client.ask("SETNX other 1"), ":1\r\n");
    rack.set(|knobs| knobs.fail_conditions = u32::MAX);
    assert!(client.ask("INCR other").starts_with("-ERR others kept writing this key"));
    assert_eq!(client.ask("GET other"), "$1\r\n1\r\n");
    assert_eq!(gateway.statistics().sum(|worker| worker.errors(ErrorKind::Indeterminate)), 2);
}

#[test]
fn without_a_session_commands_wait_and_then_say_why() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.no_session = true);
    let gateway = rack.start(quick());
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert!(client.ask("GET k").starts_with("-ERR no session with the rack's controller for "));
    assert!(client.ask("DBSIZE").starts_with("-ERR no session with the rack's controller for "));
    // One that waits for as long as it takes until there is a session.
    let gateway = rack.start(GatewayConfig { wait_max: PATIENCE, ..config() });
    let mut client = Client::connect(&gateway);
    client.send(&Client::command(&[b"GET", b"k"]));
    std::thread::sleep(Duration::from_millis(50));
    rack.set(|knobs| knobs.no_session = false);
    assert_eq!(client.reply(), b"$-1\r\n");
}

#[test]
fn few_lanes_are_shared() {
    let rack = FakeRack::default();
    rack.set(|knobs| {
        knobs.lanes = Some(2);
        knobs.nothing_cached = true;
    });
    let gateway = rack.start(config());
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(&gateway)).collect();
    let mut stream = Vec::new();
    for i in 0..50 {
        stream.extend(Client::command(&[b"SET", format!("k{i}").as_bytes(), b"v"]));
    }
    stream.extend(Client::command(&[b"MGET", b"k1", b"k2", b"k3", b"k4"]));
    stream.extend(Client::command(&[b"DBSIZE"]));
    clients.iter_mut().for_each(|client| client.send(&stream));
    for client in &mut clients {
        for _ in 0..50 {
            assert_eq!(client.reply(), b"+OK\r\n");
        }
        assert_eq!(client.reply(), b"*4\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n");
        assert_eq!(client.reply(), b":50\r\n");
    }
}

#[test]
fn a_peer_that_stops_sending_still_gets_its_replies() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.uncached_prefix = Some(b"n".to_vec()));
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    client.send(b"SET n1 a\r\nSET c1 b\r\nGET n1\r\nGET c1\r\nGET");
    client.0.shutdown(Shutdown::Write).unwrap();
    let mut replies = String::new();
    client.0.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "+OK\r\n+OK\r\n$1\r\na\r\n$1\r\nb\r\n");
}

/// Fails if a connection is closed that has sent all, of which not all is executed: when more
/// commands were waiting than may be under way, its end is read before the scripts behind them.
#[test]
fn a_peer_that_stops_sending_has_its_slow_commands_executed() {
    let gateway = FakeRack::default().start(config());
    let mut stream = Client::command(&[b"GET", b"k"]).repeat(200);
    stream.extend(Client::command(&[b"EVAL", b"while true do end", b"0"]).repeat(5));
    stream.extend(Client::command(&[b"PING"]));
    for _ in 0..10 {
        // While this runs, all of the other's bytes and its end arrive.
        let (mut busy, mut client) = (Client::connect(&gateway), Client::connect(&gateway));
        busy.send(&Client::command(&[b"EVAL", b"while true do end", b"0"]).repeat(3));
        client.send(&stream);
        client.0.shutdown(Shutdown::Write).unwrap();
        let mut replies = String::new();
        client.0.read_to_string(&mut replies).unwrap();
        assert_eq!(replies.matches("$-1\r\n").count(), 200);
        assert_eq!(replies.matches("-ERR the transaction or script ran").count(), 5);
        assert!(replies.ends_with("+PONG\r\n"), "{replies}");
    }
}

#[test]
fn connections_that_vanish_leave_nothing_behind() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.start(quick());
    for round in 0..200 {
        let mut client = Client::connect(&gateway);
        client.send(&Client::command(&[b"INCR", b"x"]).repeat(round % 7));
        client.send(b"*2\r\n$3\r\nMSE");
        if round % 3 == 0 {
            let _ = client.0.shutdown(Shutdown::Both);
        }
    }
    let begin = Instant::now();
    while gateway.connections() > 0 {
        assert!(begin.elapsed() < PATIENCE, "{} connections left", gateway.connections());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
}

#[test]
fn a_scan_finds_every_key_that_is_there_all_the_time() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    for i in 0..3000 {
        client.send(&Client::command(&[b"SET", format!("key:{i}").as_bytes(), b"v"]));
    }
    (0..3000).for_each(|_| assert_eq!(client.reply(), b"+OK\r\n"));
    for i in 0..500 {
        client.ask(&format!("DEL key:{i}"));
    }
    assert_eq!(client.ask("DBSIZE"), ":2500\r\n");
    for options in ["", " COUNT 100", " MATCH key:1*", " COUNT 5000"] {
        let (mut cursor, mut keys) = ("0".to_string(), std::collections::BTreeSet::new());
        loop {
            let reply = client.ask(&format!("SCAN {cursor}{options}"));
            let mut lines = reply
                .split("\r\n")
                .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
            cursor = lines.next().unwrap().to_string();
            for key in lines {
                assert!(keys.insert(key.to_string()), "{key} twice");
            }
            if cursor == "0" {
                break;
            }
        }
        let wanted = (500..3000)
            .filter(|i| !options.contains("MATCH") || i.to_string().starts_with('1'))
            .count();
        assert_eq!(keys.len(), wanted, "{options}");
    }
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");
    assert_eq!(client.ask("DBSIZE"), ":0\r\n");
    assert_eq!(rack.value(b"key:2000"), None);
}

#[test]
fn stopping_answers_what_is_under_way() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.silent = true);
    let gateway = rack.start(quick());
    let mut client = Client::connect(&gateway);
    client.send(&Client::command(&[b"SET", b"k", b"v"]));
    let begin = Instant::now();
    while rack.packets() == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing is sent to the rack");
        std::thread::sleep(Duration::from_millis(5));
    }
    gateway.stop();
    assert!(client.reply().starts_with(b"-INDETERMINATE "));
    assert_eq!(client.reply(), b"");
}

#[test]
fn garbage_hurts_no_other_connection() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.uncached_prefix = Some(b"k1".to_vec()));
    let gateway = rack.start(GatewayConfig { password: None, ..quick() });
    let pieces: Vec<&[u8]> = vec![
        b"*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$1\r\nv\r\n",
        b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n",
        b"*1\r\n$4\r\nSCAN\r\n",
        b"MSET k1 a k2 b\r\n",
        b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        b"*-1\r\n",
        b"*2\r\n$9\r\n",
        b"$5\r\n",
        b"\r\n",
        b"*1\r\n",
        b"\0\xff",
        b"HELLO 3\r\n",
        b"RESET\r\n",
        b"*1\r\n$2000000\r\n",
        b"FLUSHALL\r\n",
        b"DBSIZE\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"QUIT\r\n",
        b"set a \"b\\x4",
        b"CLIENT LIST\r\n",
        b"COMMAND DOCS\r\n",
        b"INFO everything\r\n",
        b"SET k1 v EX 1 NX GET\r\n",
        b"DEL k1 k2 k1\r\n",
        b"MGET k1 k2 k3 k1\r\n",
    ];
    let mut random = 42u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    for _ in 0..1500 {
        let mut stream: Vec<u8> =
            (0..draw(12)).flat_map(|_| pieces[draw(pieces.len())].to_vec()).collect();
        if !stream.is_empty() && draw(3) == 0 {
            let at = draw(stream.len());
            stream[at] = draw(256) as u8;
        }
        let mut client = Client::connect(&gateway);
        // It may be closed before everything is written.
        let _ = client.0.write_all(&stream);
        if draw(2) == 0 {
            let _ = client.0.shutdown(Shutdown::Write);
            let _ = client.0.read_to_end(&mut Vec::new());
        }
    }
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
    let begin = Instant::now();
    while gateway.connections() > 0 {
        assert!(begin.elapsed() < PATIENCE, "{} connections left", gateway.connections());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_worker_that_dies_is_noticed() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
    assert!(!gateway.has_failed());
    rack.set(|knobs| knobs.broken = true);
    let begin = Instant::now();
    while !gateway.has_failed() {
        assert!(begin.elapsed() < PATIENCE, "the failure goes unnoticed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fails if a short word in a command can be answered with long text as often as it is there.
#[test]
fn commands_that_name_one_thing_many_times_are_answered_within_the_limit() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { output_bytes_hard: 1 << 20, ..config() });
    let mut client = Client::connect(&gateway);
    let number = client.ask("CLIENT ID").trim_matches([':', '\r', '\n']).to_owned();
    let commands =
        [("CLIENT LIST ID", &number[..]), ("COMMAND INFO", "get"), ("COMMAND DOCS", "get")];
    for (command, word) in commands {
        let asked = |count: usize| format!("{command}{}", format!(" {word}").repeat(count));
        let refused = "-ERR the reply would be longer than 1048576 bytes\r\n";
        assert_eq!(client.ask(&asked(20_000)), refused, "{command}");
        assert!(client.ask(&asked(2)).matches(word).count() >= 2, "{command}");
    }
}

/// Fails if RENAME denies that it has written the new key, when it can't remove the old one.
#[test]
fn a_command_that_ends_half_way_does_not_deny_what_it_wrote() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { transactions: Transactions::Batch, ..quick() });
    let mut client = Client::connect(&gateway);
    let partly = "-INDETERMINATE some writes of this command have happened, others may or may not: \
                  no answer from the rack within 300 ms\r\n";
    let nothing = "-TIMEOUT no answer from the rack within 300 ms; nothing was changed\r\n";
    // The first `packets` of it are answered.
    for (packets, wanted) in [(0, nothing), (2, partly)] {
        rack.set(|knobs| knobs.silent_after = None);
        assert_eq!(client.ask("SET a v"), "+OK\r\n");
        client.ask("DEL b");
        let last = rack.packets() + packets;
        rack.set(|knobs| knobs.silent_after = Some(last));
        assert_eq!(client.ask("RENAME a b"), wanted);
    }
    assert_eq!([b"a", b"b"].map(|key| rack.value(key)), [Some(b"v".into()), Some(b"v".into())]);
}

/// Fails if replies that wait for one before them are as many as a client sends commands; none of
/// these has any bytes.
#[test]
fn replies_out_of_turn_are_limited_though_they_are_not_wanted() {
    const PINGS: u64 = 20_000;
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    rack.set(|knobs| knobs.silent = true);
    let pings = Client::command(&[b"PING"]).repeat(PINGS as usize);
    client.send(&[&b"CLIENT REPLY OFF\r\nGET k\r\n"[..], &pings].concat());
    let executed = || gateway.statistics().commands(Answerer::Gateway);
    let begin = Instant::now();
    while executed() < 1000 {
        assert!(begin.elapsed() < PATIENCE, "nothing is executed");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(executed() < 10_000, "{} of them are executed", executed());
    rack.set(|knobs| knobs.silent = false);
    while executed() < PINGS {
        assert!(begin.elapsed() < PATIENCE, "{} of them are executed", executed());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fails if what a command of many keys has read counts only once the last key is read.
#[test]
fn what_a_command_has_read_so_far_counts_as_its_connections_memory() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { client_bytes_max: 8 << 20, ..config() });
    let (mut client, mut other) = (Client::connect(&gateway), Client::connect(&gateway));
    client.call(&[b"SET", b"k", &vec![b'v'; 1 << 20]]);
    rack.set(|knobs| knobs.silent_key = Some(b"never".to_vec()));
    let read = "MGET k k k never";
    other.send(format!("{read}\r\n").as_bytes());
    assert_eq!(client.ask(&format!("{read}{}", " k".repeat(20))), "", "it is closed");
    assert_eq!(gateway.statistics().sum(|worker| worker.errors(ErrorKind::Memory)), 1);
    rack.set(|knobs| knobs.silent_key = None);
    assert!(other.reply().starts_with(b"*4\r\n$1048576\r\n"));
}

/// Fails if a write is begun that waited for a session, though its client is gone by then.
#[test]
fn a_write_that_waits_goes_with_its_client() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.no_session = true);
    let gateway = rack.start(GatewayConfig { wait_max: PATIENCE, ..config() });
    let (mut client, mut other) = (Client::connect(&gateway), Client::connect(&gateway));
    let number = client.ask("CLIENT ID").trim_matches([':', '\r', '\n']).to_owned();
    client.send(b"SET k v\r\n");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.ask(&format!("CLIENT KILL ID {number}")), ":1\r\n");
    assert_eq!(client.reply(), b"", "its end");
    rack.set(|knobs| knobs.no_session = false);
    assert_eq!(other.ask("SET other v"), "+OK\r\n");
    assert_eq!((rack.value(b"k"), rack.writes()), (None, 1));
}
