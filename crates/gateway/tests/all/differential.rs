//! The same commands to redis-server and to the gateway: the replies must be the same bytes.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, Knobs, config};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::{Duration, Instant};
use switchback_gateway::{Cluster, GatewayConfig, Transactions};

/// Fixed commands, one a line; `|` stands for an empty word, `~n~` for n bytes of x.
const SCRIPT: &str = include_str!("differential.script");

fn words(line: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| match word.strip_prefix('~').and_then(|word| word.strip_suffix('~')) {
        Some(count) => vec![b'x'; count.parse().unwrap()],
        None if word == "|" => Vec::new(),
        None => word.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

fn call(client: &mut Client, words: &[Vec<u8>]) -> String {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let reply = client.call(&words);
    String::from_utf8_lossy(&reply[..reply.len().min(400)]).into_owned()
}

/// Whether the replies are the same; what is left of a time may be some seconds less on the slower
/// side.
fn agree(line: &str, got: &str, wanted: &str) -> bool {
    let seconds = |reply: &str| reply.strip_prefix(':')?.trim_end().parse::<u64>().ok();
    match (seconds(got), seconds(wanted)) {
        (Some(got), Some(wanted)) if line.starts_with("TTL ") => got.abs_diff(wanted) <= 15,
        _ => got == wanted,
    }
}

/// The rack's moods, in all of which clients must see the same.
fn moods() -> Vec<(&'static str, Knobs)> {
    let uncached_prefix = Some(b"k".to_vec());
    vec![
        ("cached", Knobs::default()),
        ("mixed", Knobs { uncached_prefix, ..Knobs::default() }),
        ("uncached", Knobs { nothing_cached: true, ..Knobs::default() }),
        (
            "lossy",
            Knobs {
                nothing_cached: true,
                loss: 10,
                duplication: 20,
                reordering: 20,
                ..Knobs::default()
            },
        ),
    ]
}

/// A gateway that executes commands on several keys, too.
fn batching() -> GatewayConfig {
    GatewayConfig { transactions: Transactions::Batch, ..config() }
}

#[test]
fn the_script_is_answered_as_by_redis() {
    let Some(redis) = Redis::start(LIKE_SWITCHBACK) else { return };
    for (mood, knobs) in moods() {
        for version in ["2", "3"] {
            let rack = FakeRack::default();
            rack.set(|to| *to = knobs.clone());
            let gateway = rack.start(batching());
            let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
            theirs.ask(&format!("HELLO {version}"));
            ours.ask(&format!("HELLO {version}"));
            theirs.ask("FLUSHALL");
            for line in SCRIPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let words = words(line);
                let (wanted, got) = (call(&mut theirs, &words), call(&mut ours, &words));
                assert!(
                    agree(line, &got, &wanted),
                    "RESP{version}, {mood}: {got:?} is not {wanted:?}: {line}"
                );
            }
        }
    }
}

/// What clients for clusters ask, and what may be asked wrongly.
const OF_CLUSTERS: &[&str] = &[
    "CLUSTER INFO",
    "CLUSTER MYID",
    "CLUSTER SLOTS",
    "CLUSTER SHARDS",
    "CLUSTER NODES",
    "CLUSTER LINKS",
    "CLUSTER KEYSLOT a",
    "CLUSTER KEYSLOT a{b}c",
    "CLUSTER KEYSLOT a{}c",
    "CLUSTER KEYSLOT {b",
    "CLUSTER KEYSLOT",
    "CLUSTER REPLICAS unknown",
    "CLUSTER REPLICAS",
    "CLUSTER COUNTKEYSINSLOT x",
    "CLUSTER COUNTKEYSINSLOT 16384",
    "CLUSTER GETKEYSINSLOT 1",
    "CLUSTER nonsense",
    "CLUSTER SLOTS x",
    "CLUSTER",
    "READONLY",
    "READWRITE",
    "ASKING",
    "INFO cluster",
    "SELECT 0",
    "SELECT 1",
    "SELECT x",
];

/// But for what a cluster of which one server owns all slots is named and where it is.
#[test]
fn a_cluster_of_one_owner_answers_as_redis_does() {
    let more = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
    let Some(redis) = Redis::start(&more) else { return };
    let emulated = GatewayConfig { cluster: Cluster::Emulated, ..config() };
    let gateway = FakeRack::default().start(emulated);
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    theirs.ask("CLUSTER ADDSLOTSRANGE 0 16383");
    let begin = Instant::now();
    while !theirs.ask("CLUSTER INFO").contains("cluster_state:ok") {
        assert!(begin.elapsed() < crate::fake::PATIENCE, "redis-server is no cluster");
        std::thread::sleep(Duration::from_millis(20));
    }
    let name = |client: &mut Client| {
        let reply = client.ask("CLUSTER MYID");
        reply.lines().nth(1).expect("a name").to_owned()
    };
    let names = [name(&mut theirs), name(&mut ours)];
    let ports = [redis.address.port(), gateway.local_addr().port()];
    for version in ["2", "3"] {
        let [wanted, got] =
            [&mut theirs, &mut ours].map(|client| client.ask(&format!("HELLO {version}")));
        let mode = |hello: &str| {
            hello.lines().skip_while(|line| *line != "mode").nth(2).map(str::to_owned)
        };
        assert_eq!(mode(&got), mode(&wanted));
        for line in OF_CLUSTERS {
            let answer = |client: &mut Client, at: usize| {
                let bus = ports[at] + 10_000;
                let reply = call(client, &words(line)).replace(&names[at], "NAME");
                reply.replace(&bus.to_string(), "BUS").replace(&ports[at].to_string(), "PORT")
            };
            let (wanted, got) = (answer(&mut theirs, 0), answer(&mut ours, 1));
            assert_eq!(got, wanted, "RESP{version}: {line}");
        }
    }
}

/// Settings with which redis-server has the limits of Switchback, and DUMP compresses nothing.
const LIKE_SWITCHBACK: &[&str] = &["--proto-max-bulk-len", "1mb", "--rdbcompression", "no"];

/// What may stand for `o` in a command.
const OPTIONS: &[&str] = &[
    "",
    "NX",
    "XX",
    "GET",
    "EX 100",
    "PX 100000",
    "EXAT 4000000000",
    "PXAT 4000000000000",
    "KEEPTTL",
    "XX GET",
    "NX GET",
    "EX 0",
    "EX x",
    "EX",
    "PERSIST",
    "GT",
    "LT",
    "NX XX",
    "bogus",
    "KEEPTTL EX 5",
    "PX 9223372036854775807",
];

/// Commands, with keys, values and options left open.
const COMMANDS: &[&str] = &[
    "GET k",
    "SET k v o",
    "SET k v o",
    "SET k v",
    "SETNX k v",
    "SETEX k 100 v",
    "PSETEX k 100000 v",
    "SETEX k t v",
    "GETSET k v",
    "GETDEL k",
    "GETEX k o",
    "EXPIRE k 1000 o",
    "EXPIRE k t",
    "EXPIREAT k 4000000000 o",
    "PEXPIREAT k 4000000001000 o",
    "EXPIREAT k 5",
    "TTL k",
    "PERSIST k",
    "DEL k",
    "DEL k k",
    "UNLINK a b k",
    "EXISTS k k",
    "TOUCH a k",
    "MGET k a k1",
    "MSET k v k2 v",
    "MSET k v k",
    "STRLEN k",
    "APPEND k v",
    "INCR k",
    "DECR k",
    "INCRBY k v",
    "DECRBY k v",
    "TYPE k",
    "GETRANGE k i i",
    "SETRANGE k i v",
    "SETRANGE k n v",
    "GETBIT k i",
    "SETBIT k i n",
    "SETBIT k n 1",
    "BITCOUNT k",
    "BITCOUNT k i i u",
    "BITPOS k n i i u",
    "BITPOS k 1 i",
    "BITPOS k 0",
    "BITFIELD k GET f n",
    "BITFIELD k w SET f n i INCRBY f n i w SET f i v GET f #1",
    "BITFIELD_RO k GET f n GET f i",
    "INCRBYFLOAT k d",
    "INCRBYFLOAT k v",
    "SET k d",
    "LCS k k",
    "LCS k k1 IDX WITHMATCHLEN",
    "LCS k a LEN",
    "DUMP k",
    "MSETNX k v a v",
    "MSETNX k v k v",
    "RENAME k k1",
    "RENAME a k",
    "RENAMENX k k2",
    "COPY k k1",
    "COPY a k REPLACE",
    "BITOP AND k a k1",
    "BITOP OR k k k2",
    "BITOP XOR a k k1 k2",
    "BITOP NOT a k",
    "GET",
    "DBSIZE",
    "ECHO v",
    "SCAN x",
];

fn commands() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec!["a", "b", "k1", "k2"]);
    let value = prop::sample::select(vec![
        "1",
        "-5",
        "abc",
        "9223372036854775807",
        "-9223372036854775808",
        "007",
        "~30~",
        "~2000~",
        "1.5",
    ]);
    // None so short that it passes between two commands, which a lossy rack may take seconds for.
    let time = prop::sample::select(vec![
        "100",
        "-5",
        "0",
        "abc",
        "1.5",
        "007",
        "1000000",
        "9223372036854775807",
        "-9223372036854775808",
    ]);
    let option = prop::sample::select(OPTIONS);
    let verb = prop::sample::select(COMMANDS);
    let integers = prop::collection::vec(integers(), 8);
    let part = (integers, unit_and_type(), floats());
    (verb, key, value, time, option, part).prop_map(|(verb, key, value, time, option, part)| {
        let (integers, (unit, kind, overflow), float) = part;
        let mut integers = integers.into_iter();
        let mut word = |word: &str| match word {
            "k" => key.to_string(),
            "v" => value.to_string(),
            "t" => time.to_string(),
            "o" => option.to_string(),
            "i" => integers.next().unwrap(),
            // One that is small and not negative, mostly.
            "n" => integers.next().unwrap().trim_start_matches('-').chars().take(2).collect(),
            "u" => unit.clone(),
            "f" => kind.clone(),
            "w" => format!("OVERFLOW {overflow}"),
            "d" => float.clone(),
            other => other.to_string(),
        };
        verb.split(' ').map(&mut word).collect::<Vec<_>>().join(" ").trim_end().to_string()
    })
}

/// Offsets and operands, in and out of every range.
fn integers() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (-40..40i64).prop_map(|number| number.to_string()),
        2 => any::<i64>().prop_map(|number| number.to_string()),
        1 => prop::sample::select(vec!["x", "9223372036854775808", "1048576", "8388608"])
            .prop_map(str::to_string),
    ]
}

fn unit_and_type() -> impl Strategy<Value = (String, String, String)> {
    let unit = prop::sample::select(vec!["", "BIT", "BYTE", "bogus"]);
    let overflow = prop::sample::select(vec!["WRAP", "SAT", "FAIL"]);
    let kind = (prop::sample::select(vec!['i', 'u']), 1..65u8);
    (unit, kind, overflow).prop_map(|(unit, (sign, bits), overflow)| {
        (unit.to_string(), format!("{sign}{bits}"), overflow.to_string())
    })
}

/// Decimals of every length and size, and hexadecimal ones.
fn floats() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,20}",
        "-?[0-9]{1,25}[.][0-9]{0,25}",
        "-?[0-9]{1,3}[.]?[0-9]{0,30}e-?[0-9]{1,4}",
        "-?0x[0-9a-f]{1,20}(p-?[0-9]{1,5})?",
        "-?(0|5e-18|15e-18|0x1p-18|0x1p64|1e19|9007199254740993)",
    ]
}

#[test]
fn random_commands_are_answered_as_by_redis_one_by_one_and_pipelined() {
    let Some(redis) = Redis::start(LIKE_SWITCHBACK) else { return };
    for (mood, knobs) in moods() {
        let cases = if mood == "lossy" { 10 } else { 60 };
        let rack = FakeRack::default();
        rack.set(|to| *to = knobs.clone());
        let gateway = rack.start(batching());
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let scripts = (prop::collection::vec(commands(), 1..60), any::<bool>());
        runner
            .run(&scripts, |(script, pipelined)| {
                let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
                let flush = words("FLUSHALL");
                call(&mut theirs, &flush);
                call(&mut ours, &flush);
                if pipelined {
                    for line in &script {
                        let words = words(line);
                        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                        theirs.send(&Client::command(&words));
                        ours.send(&Client::command(&words));
                    }
                }
                for line in &script {
                    let reply = |client: &mut Client| match pipelined {
                        true => String::from_utf8_lossy(&client.reply()).into_owned(),
                        false => call(client, &words(line)),
                    };
                    // Both give a whole reply before anything is compared, so that the streams stay
                    // in step.
                    let (wanted, got) = (reply(&mut theirs), reply(&mut ours));
                    prop_assert!(
                        agree(line, &got, &wanted),
                        "{mood}: {got:?} is not {wanted:?}: {line} in {script:?}"
                    );
                }
                Ok(())
            })
            .unwrap();
    }
}

/// Values of the greatest length, and commands that would make longer ones. (Where one message in
/// ten is lost, a value of that length can take longer than a command may.)
#[test]
fn the_greatest_length_is_that_of_redis() {
    let Some(redis) = Redis::start(LIKE_SWITCHBACK) else { return };
    for nothing_cached in [false, true] {
        let rack = FakeRack::default();
        rack.set(|knobs| knobs.nothing_cached = nothing_cached);
        let gateway = rack.start(batching());
        let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
        theirs.ask("FLUSHALL");
        for line in [
            "SETRANGE r 1048575 x",
            "STRLEN r",
            "SETRANGE r 1048576 x",
            "SETRANGE r 3000000 |",
            "SETRANGE r 1048574 xyz",
            "GETRANGE r 1048570 -1",
            "APPEND r x",
            "SETBIT b 8388607 1",
            "STRLEN b",
            "BITPOS b 1",
            "BITCOUNT b",
            "BITCOUNT b -1 -1 BIT",
            "BITPOS b 0 -1",
            "BITFIELD b SET i64 8388544 -1 GET u63 8388600 INCRBY u8 8388600 1",
            "BITPOS b 1",
            "GETRANGE b -9 -1",
            "LCS r r",
            "LCS r missing",
        ] {
            let words = words(line);
            assert_eq!(call(&mut ours, &words), call(&mut theirs, &words), "{line}");
        }
    }
}

#[test]
fn dumped_values_can_be_restored_by_either() {
    let redis = Redis::start(LIKE_SWITCHBACK).zip(Redis::start(&["--rdbcompression", "yes"]));
    let Some((redis, compressing)) = redis else { return };
    let gateway = FakeRack::default().start(config());
    let mut ours = Client::connect(&gateway);
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
    let mut values: Vec<Vec<u8>> =
        ["", "a", "0", "-128", "128", "-32769", "2147483647", "2147483648", "007", "-0", "1.5"]
            .map(Vec::from)
            .to_vec();
    for length in [20, 21, 63, 64, 300, 16383, 16384, 70000] {
        values.push(vec![b'x'; length]);
        values.push((0..length as u32).map(noise).collect());
        values.push((0..length as u32).map(|i| noise(i % 100)).collect());
        values.push((0..length as u32).map(|i| noise(i) & 1).collect());
    }
    for value in values {
        let (mut plain, mut compressed) = (redis.client(), compressing.client());
        for client in [&mut ours, &mut plain, &mut compressed] {
            assert_eq!(client.call(&[b"SET", b"k", &value]), b"+OK\r\n");
        }
        let dump = |client: &mut Client| {
            let reply = client.call(&[b"DUMP", b"k"]);
            let begin = reply.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            reply[begin..reply.len() - 2].to_vec()
        };
        let (ours_dumped, theirs) = (dump(&mut ours), dump(&mut plain));
        assert_eq!(ours_dumped, theirs, "{:?}", value.escape_ascii().to_string());
        let compressed_dump = dump(&mut compressed);
        let wanted = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        for (client, payload) in
            [(&mut ours, &compressed_dump), (&mut compressed, &ours_dumped), (&mut plain, &theirs)]
        {
            let busy = b"-BUSYKEY Target key name already exists.\r\n";
            assert_eq!(client.call(&[b"RESTORE", b"k", b"0", payload]), busy);
            client.ask("SET k other");
            let restored = client.call(&[b"RESTORE", b"k", b"0", payload, b"REPLACE"]);
            assert_eq!(restored, b"+OK\r\n");
            assert_eq!(client.call(&[b"GET", b"k"]), wanted);
        }
    }
    // Times, and payloads that aren't as they were.
    let mut theirs = redis.client();
    theirs.ask("SET k hello");
    let reply = theirs.call(&[b"DUMP", b"k"]);
    let payload = &reply[b"$17\r\n".len()..reply.len() - 2];
    let mut broken = payload.to_vec();
    broken[3] ^= 1;
    for [key, time, payload, option, value] in [
        [&b"a"[..], b"100000", payload, b"", b""],
        [b"a", b"0", payload, b"replace", b""],
        [b"b", b"4000000000000", payload, b"ABSTTL", b""],
        [b"c", b"1", payload, b"ABSTTL", b""],
        [b"a", b"1", payload, b"ABSTTL", b""],
        [b"c", b"-1", payload, b"", b""],
        [b"c", b"0", &broken, b"", b""],
        [b"a", b"0", &broken, b"", b""],
        [b"a", b"x", &broken, b"REPLACE", b""],
        [b"c", b"0", b"", b"", b""],
        [b"d", b"0", payload, b"IDLETIME", b"5"],
        [b"e", b"0", payload, b"FREQ", b"255"],
    ] {
        let words: Vec<&[u8]> = [b"RESTORE", key, time, payload, option, value]
            .into_iter()
            .enumerate()
            .filter(|(at, word)| *at < 4 || !word.is_empty())
            .map(|(_, word)| word)
            .collect();
        let (wanted, got) = (theirs.call(&words), ours.call(&words));
        assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{words:?}");
        for line in ["GET a", "GET b", "PEXPIRETIME b", "GET c", "GET d"] {
            assert_eq!(ours.ask(line), theirs.ask(line), "{line} after {words:?}");
        }
        assert!(agree("TTL a", &ours.ask("TTL a"), &theirs.ask("TTL a")));
    }
}

#[test]
fn authentication_is_as_with_redis() {
    let Some(redis) = Redis::start(&["--requirepass", "secret"]) else { return };
    let rack = FakeRack::default();
    let gateway = rack.start(fake_config_with_password());
    let scripts = [
        "GET a\nAUTH wrong\nGET a\nAUTH secret\nSET a 1\nGET a\nRESET\nGET a\nPING\nAUTH default secret\nGET a",
        "HELLO 3\nHELLO 3 AUTH default wrong\nGET a\nNOSUCH x\nGET\nAUTH a b c d\nAUTH other secret\nAUTH default secret\nGET nope",
        "HELLO 4\nHELLO x\nHELLO 3 SETNAME x BOGUS\nHELLO 2 SETNAME x\nPING",
        "HELLO 3 AUTH default wrong BOGUS\nPING\nHELLO 3 AUTH default secret BOGUS\nPING",
    ];
    for script in scripts {
        let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
        for line in script.lines() {
            let words = words(line);
            assert_eq!(call(&mut ours, &words), call(&mut theirs, &words), "{line}");
        }
    }
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    for client in [&mut theirs, &mut ours] {
        let greeting = client.ask("HELLO 3 AUTH default secret SETNAME me");
        assert!(greeting.starts_with("%7\r\n"), "{greeting}");
        assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
        assert_eq!(client.ask("GET missing"), "_\r\n");
    }
}

fn fake_config_with_password() -> switchback_gateway::GatewayConfig {
    switchback_gateway::GatewayConfig { password: Some("secret".into()), ..config() }
}

/// Streams that break the protocol: what is answered before the connection is closed.
#[test]
fn broken_streams_are_answered_as_by_redis() {
    let Some(redis) = Redis::start(LIKE_SWITCHBACK) else { return };
    let gateway = FakeRack::default().start(config());
    let inline = "x".repeat(70_000);
    for stream in [
        "*x\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n:5\r\n",
        "*2147483648\r\n",
        &format!("*{}\r\n", "1".repeat(70)),
        &format!("*1\r\n${}\r\n", "1".repeat(70)),
        "*1\r\n$999999999999\r\n",
        "SET \"a\r\n",
        &inline,
        "PING\r\n*2\r\n$3\r\nGET\r\nx\r\n",
        "*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
        "QUIT\r\nPING\r\n",
    ] {
        let answers = |client: &mut Client| {
            // Redis closes while we may still be writing.
            let _ = std::io::Write::write_all(&mut client.0, stream.as_bytes());
            let mut replies = Vec::new();
            loop {
                match client.reply() {
                    reply if reply.is_empty() => {
                        return String::from_utf8_lossy(&replies).into_owned();
                    }
                    reply => replies.extend(reply),
                }
            }
        };
        let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
        let what = &stream[..stream.len().min(60)];
        let (wanted, got) = (answers(&mut theirs), answers(&mut ours));
        assert_eq!(got, wanted, "{what}");
    }
    // Streams that don't break it, inline ones among them.
    let stream = "PING\r\n\r\nset a 1\nget \"a\"\r\n*0\r\n*-1\r\necho 'x y'\r\n";
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    theirs.send(stream.as_bytes());
    ours.send(stream.as_bytes());
    for _ in 0..4 {
        assert_eq!(ours.reply(), theirs.reply());
    }
}
