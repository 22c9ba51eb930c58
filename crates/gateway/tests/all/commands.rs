//! Commands against the fake rack, in all its moods.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, config};

#[test]
fn the_core_commands() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    for (command, reply) in [
        ("PING", "+PONG\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("GET b", "$-1\r\n"),
        ("INCR a", ":2\r\n"),
        ("INCRBY a 40", ":42\r\n"),
        ("DECRBY a 2", ":40\r\n"),
        ("APPEND a x", ":3\r\n"),
        ("INCR a", "-ERR value is not an integer or out of range\r\n"),
        ("STRLEN a", ":3\r\n"),
        ("SETNX a 1", ":0\r\n"),
        ("SETNX b 1", ":1\r\n"),
        ("SET b 2 XX GET", "$1\r\n1\r\n"),
        ("GETSET b 3", "$1\r\n2\r\n"),
        ("GETDEL b", "$1\r\n3\r\n"),
        ("EXISTS a b a", ":2\r\n"),
        ("MSET x 1 y 2 z 3", "+OK\r\n"),
        ("MGET x nope y", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("DEL x y nope x", ":2\r\n"),
        ("EXPIRE z 100", ":1\r\n"),
        ("TTL z", ":100\r\n"),
        ("PERSIST z", ":1\r\n"),
        ("TTL z", ":-1\r\n"),
        ("TTL x", ":-2\r\n"),
        ("TYPE z", "+string\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("MEMORY USAGE a", ":4\r\n"),
        ("OBJECT ENCODING a", "$6\r\nembstr\r\n"),
        ("OBJECT FREQ none", "$-1\r\n"),
        (
            "MEMORY STATS",
            "-ERR 'memory|stats' is not supported by Switchback: INFO tells the memory of the \
             gateway's process\r\n",
        ),
        ("FLUSHALL", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("CLIENT SETNAME ~", "-ERR Client names cannot be longer than 256 bytes\r\n"),
        ("HELLO 2 SETNAME ~", "-ERR Client names cannot be longer than 256 bytes\r\n"),
        ("CLIENT SETINFO LIB-NAME ~", "-ERR lib-name cannot be longer than 256 bytes\r\n"),
        ("HSET h f v", "-ERR 'hset' is not supported by Switchback: it stores strings only\r\n"),
    ] {
        let command = command.replace('~', &"x".repeat(300));
        assert_eq!(client.ask(&command), reply, "{command}");
    }
    gateway.stop();
}

/// What Redis has since 8.4, so that there may be none to compare with.
#[test]
fn writes_that_compare_the_value() {
    for nothing_cached in [false, true] {
        let rack = FakeRack::default();
        rack.set(|knobs| knobs.nothing_cached = nothing_cached);
        let gateway = rack.start(config());
        let mut client = Client::connect(&gateway);
        for (command, reply) in [
            ("SET k new IFEQ old", "$-1\r\n"),
            ("EXISTS k", ":0\r\n"),
            ("SET k one IFNE old", "+OK\r\n"),
            ("SET k two IFNE one", "$-1\r\n"),
            ("SET k two ifeq On", "$-1\r\n"),
            ("SET k two ifeq onee", "$-1\r\n"),
            ("GET k", "$3\r\none\r\n"),
            ("SET k two IFEQ one EX 100", "+OK\r\n"),
            ("TTL k", ":100\r\n"),
            ("SET k three GET IFEQ one", "$3\r\ntwo\r\n"),
            ("SET k three KEEPTTL IFEQ two GET", "$3\r\ntwo\r\n"),
            ("GET k", "$5\r\nthree\r\n"),
            ("TTL k", ":100\r\n"),
            ("SET fresh 1 IFNE 1 GET", "$-1\r\n"),
            ("GET fresh", "$1\r\n1\r\n"),
            ("SET k 1 IFEQ", "-ERR syntax error\r\n"),
            ("SET k 1 NX IFEQ three", "-ERR syntax error\r\n"),
            ("SET k 1 IFEQ three XX", "-ERR syntax error\r\n"),
            ("SET k 1 IFEQ three IFEQ three", "-ERR syntax error\r\n"),
            ("SET k 1 IFEQ three IFNE three", "-ERR syntax error\r\n"),
            ("SET k 1 IFEQ three EX 0", "-ERR invalid expire time in 'set' command\r\n"),
            ("DELEX k IFEQ thre", ":0\r\n"),
            ("DELEX k IFNE three", ":0\r\n"),
            ("DELEX k IFXX three", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE\r\n"),
            ("DELEX k IFEQ", "-ERR wrong number of arguments for 'delex' command\r\n"),
            ("DELEX k IFEQ three x", "-ERR wrong number of arguments for 'delex' command\r\n"),
            ("DELEX missing IFNE x", ":0\r\n"),
            ("DELEX missing IFEQ x", ":0\r\n"),
            ("DELEX missing", ":0\r\n"),
            ("DELEX k ifeq three", ":1\r\n"),
            ("GET k", "$-1\r\n"),
            ("DELEX fresh IFNE 2", ":1\r\n"),
            ("SET k 1", "+OK\r\n"),
            ("DELEX k", ":1\r\n"),
        ] {
            assert_eq!(client.ask(command), reply, "{command}");
        }
        gateway.stop();
    }
}

/// Commands that read, compute and write, after another writer came between.
#[test]
fn what_is_computed_anew_is_computed_of_the_new_value() {
    for (failures, setup, command, reply, wanted) in [
        (3, "SET k 1.5", "INCRBYFLOAT k 1", "$3\r\n2.5\r\n", "2.5"),
        (3, "SET k abc", "SETRANGE k 1 xyz", ":4\r\n", "axyz"),
        (3, "SET k a", "SETBIT k 6 1", ":0\r\n", "c"),
        (3, "SET k aa", "BITFIELD k INCRBY u8 8 1 GET u8 0", "*2\r\n:98\r\n:97\r\n", "ab"),
        (3, "SET k a", "SET k b IFEQ a GET", "$1\r\na\r\n", "b"),
        (255, "SET k a", "SETRANGE k 0 b", ":1\r\n", "b"),
    ] {
        let rack = FakeRack::default();
        let gateway = rack.start(config());
        let mut client = Client::connect(&gateway);
        assert_eq!(client.ask(setup), "+OK\r\n");
        let writes = rack.writes();
        rack.set(|knobs| knobs.fail_conditions = failures);
        assert_eq!(client.ask(command), reply, "{command}");
        assert_eq!(rack.value(b"k").unwrap(), wanted.as_bytes(), "{command}");
        assert_eq!(rack.writes(), writes + 1, "{command}");
        rack.set(|knobs| knobs.fail_conditions = 1000);
        let reply = client.ask("SETRANGE k 0 never");
        assert!(reply.starts_with("-ERR others kept writing this key"), "{reply}");
        assert_eq!(rack.value(b"k").unwrap(), wanted.as_bytes());
        gateway.stop();
    }
}

#[test]
fn computed_writes_of_many_connections_lose_nothing() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.try_start(config(), 2).unwrap();
    let address = gateway.local_addr();
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut client = Client::to(address);
                let field = format!("BITFIELD f INCRBY u16 #{number} 1");
                for round in 1..=100 {
                    assert_eq!(client.ask(&field), format!("*1\r\n:{round}\r\n"));
                    assert_eq!(client.ask("INCRBYFLOAT n 0.5").as_bytes()[0], b'$');
                }
            });
        }
    });
    assert_eq!(rack.value(b"f").unwrap(), [0, 100].repeat(4));
    assert_eq!(rack.value(b"n").unwrap(), b"200");
}

#[test]
fn keys_are_listed_up_to_a_limit() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let set = |client: &mut Client, numbers: std::ops::Range<u32>| {
        for chunk in numbers.collect::<Vec<_>>().chunks(500) {
            let words: Vec<_> = chunk.iter().flat_map(|i| [format!("k{i}"), "v".into()]).collect();
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            assert_eq!(client.call(&[&[&b"MSET"[..]], &words[..]].concat()), b"+OK\r\n");
        }
    };
    set(&mut client, 0..10_000);
    let reply = client.ask("KEYS *");
    assert!(reply.starts_with("*10000\r\n"), "{}", &reply[..20]);
    let mut keys: Vec<&str> = reply.lines().filter(|line| line.starts_with('k')).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 10_000);
    set(&mut client, 10_000..10_001);
    assert_eq!(client.ask("KEYS *"), "-ERR more than 10000 keys match; use SCAN\r\n");
    assert!(client.ask("KEYS k1*").starts_with("*1112\r\n"));
    assert_eq!(client.ask("KEYS k9999"), "*1\r\n$5\r\nk9999\r\n");
    assert_eq!(client.ask("KEYS x*"), "*0\r\n");
}

#[test]
fn any_key_may_be_the_random_one() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
    client.ask("MSET a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8");
    client.ask("DEL a b");
    let mut seen = std::collections::BTreeSet::new();
    // That one of the six is missing after 10,000 draws has no chance worth naming.
    for _ in 0..10_000 {
        let reply = client.ask("RANDOMKEY");
        assert!(["c", "d", "e", "f", "g", "h"].contains(&reply.lines().nth(1).unwrap()), "{reply}");
        seen.insert(reply);
        if seen.len() == 6 {
            return;
        }
    }
    panic!("never seen but {seen:?}");
}

#[test]
fn the_time_is_that_of_the_clock() {
    let gateway = FakeRack::default().start(config());
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let before = now();
    let reply = Client::connect(&gateway).ask("TIME");
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!(lines[0], "*2");
    let (seconds, micros) = (lines[2].parse().unwrap(), lines[4].parse().unwrap());
    let time = std::time::Duration::from_secs(seconds) + std::time::Duration::from_micros(micros);
    assert!(before.as_micros() <= time.as_micros() && time <= now());
}

#[test]
fn info_tells_of_memory_and_not_of_keys() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let memory = client.ask("INFO memory");
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    assert!(used.parse::<u64>().unwrap() > 100_000, "{memory}");
    assert_eq!(client.ask("INFO keyspace"), "$0\r\n\r\n");
    gateway.stop();
}

#[test]
fn changes_are_counted_as_by_redis() {
    let Some(redis) = Redis::start(&[]) else { return };
    let gateway = FakeRack::default().try_start(config(), 2).unwrap();
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    let count = |client: &mut Client| {
        let text = client.ask("INFO persistence");
        let count = text.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        count.and_then(|count| count.parse::<i64>().ok()).unwrap_or(-1)
    };
    for line in [
        "GET a",
        "SET a 1",
        "SET a 1",
        "SETNX a 2",
        "SETNX b 2",
        "INCR a",
        "MSET a 1 b 2 c 3",
        "MGET a b c",
        "DEL a b missing",
        "DEL missing",
        "SET a text",
        "INCR a",
        "APPEND a text",
        "SETBIT bits 7 0",
        "SETBIT bits 7 0",
        "SETBIT bits 7 1",
        "SETBIT bits 90 0",
        "BITFIELD fields SET u4 0 7",
        "BITFIELD fields SET u4 0 7 GET u4 0",
        "BITFIELD fields OVERFLOW FAIL INCRBY u4 0 9",
        "BITFIELD fields INCRBY u4 0 1",
        "BITFIELD fields SET u4 90 0",
        "BITFIELD fields GET u4 0",
        "EXPIRE a 100",
        "EXPIRE missing 100",
        "GETEX a",
        "GETEX a PERSIST",
        "GETEX a PERSIST",
        "PERSIST a",
        "EXPIRE a -1",
        "GETDEL c",
        "GETDEL c",
    ] {
        let before = [count(&mut theirs), count(&mut ours)];
        assert_eq!(ours.ask(line), theirs.ask(line), "{line}");
        let [wanted, got] = [count(&mut theirs) - before[0], count(&mut ours) - before[1]];
        assert_eq!(got, wanted, "{line}");
    }
}

/// Sends all commands at once; their replies.
fn pipelined(client: &mut Client, commands: &[String]) -> Vec<String> {
    let words =
        |line: &String| Client::command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    client.send(&commands.iter().flat_map(words).collect::<Vec<_>>());
    commands.iter().map(|_| String::from_utf8(client.reply()).unwrap()).collect()
}

#[test]
fn commands_that_wait_for_one_key_share_requests_and_take_effect_in_their_order() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let (mut commands, mut replies) = (Vec::new(), Vec::new());
    let mut say = |command: String, reply: &str| {
        commands.push(command);
        replies.push(reply.to_owned());
    };
    for round in 0..3 {
        for i in 0..40 {
            say(format!("SET k {round}{i:03}"), "+OK\r\n");
            say(format!("SET other {i}"), "+OK\r\n");
        }
        let last = format!("$4\r\n{round}039\r\n");
        for _ in 0..20 {
            say("GET k".into(), &last);
            say("STRLEN k".into(), ":4\r\n");
            say("EXISTS k".into(), ":1\r\n");
        }
        // Neither a command that depends on what is there, nor a long value, goes along with
        // others.
        say("SET k 7".into(), "+OK\r\n");
        say("INCR k".into(), ":8\r\n");
        say("GET k".into(), "$1\r\n8\r\n");
        say(format!("SET k {}", "x".repeat(5000)), "+OK\r\n");
        say("STRLEN k".into(), ":5000\r\n");
        say("SET k short".into(), "+OK\r\n");
        say("DEL k".into(), ":1\r\n");
        say("GET k".into(), "$-1\r\n");
    }
    assert_eq!(pipelined(&mut client, &commands), replies);
    assert_eq!(rack.value(b"other").unwrap(), b"39");
    let writes = commands.iter().filter(|command| command.starts_with("SET")).count() as u64;
    assert!(rack.writes() < writes / 3, "{} requests for {writes} writes", rack.writes());
}

#[test]
fn what_a_shared_request_is_refused_all_are() {
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("SET k before"), "+OK\r\n");
    rack.set(|knobs| knobs.no_space = true);
    let commands: Vec<String> = (0..30).map(|i| format!("SET k {i}")).collect();
    let replies = pipelined(&mut client, &commands);
    assert!(replies.iter().all(|reply| reply.starts_with('-')), "{replies:?}");
    rack.set(|knobs| knobs.no_space = false);
    assert_eq!(client.ask("GET k"), "$6\r\nbefore\r\n");
}
