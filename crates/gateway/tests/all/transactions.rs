//! MULTI, EXEC, DISCARD, WATCH.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, Knobs, config};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::{Duration, Instant};
use switchback_core::client::ClientConfig;
use switchback_gateway::{Gateway, GatewayConfig, Transactions};

/// Commands of one connection, one a line; `@ ` before it: of another.
const SCRIPT: &str = include_str!("transactions.script");

/// Commands on one key, which every transaction may have.
const COMMANDS: &[&str] = &[
    "GET k",
    "SET k 1",
    "SET k x",
    "SET k 5 EX 100",
    "SET k 7 NX",
    "SET k 8 XX GET",
    "INCR k",
    "DECRBY k 3",
    "INCRBYFLOAT k 1.5",
    "APPEND k 1",
    "STRLEN k",
    "DEL k",
    "DEL k k",
    "EXISTS k k",
    "GETDEL k",
    "GETEX k PERSIST",
    "EXPIRE k 1000 NX",
    "PERSIST k",
    "TTL k",
    "SETRANGE k 1 ab",
    "GETRANGE k 0 1",
    "SETBIT k 7 1",
    "BITCOUNT k",
    "BITFIELD k INCRBY u8 0 200 GET u8 0",
    "MGET k k",
    "MSET k 1 k 2",
    "SETNX k 3",
    "GETSET k 4",
    "PING",
    "ECHO a",
    "TYPE k",
    "LCS k k LEN",
    "EXPIREAT k 5",
    "INCR k x",
    "SET",
];

fn command(line: &str) -> Vec<u8> {
    let word = |word: &str| match word.strip_prefix('~').and_then(|word| word.strip_suffix('~')) {
        Some(count) => vec![b'x'; count.parse().unwrap()],
        None => word.as_bytes().to_vec(),
    };
    let words: Vec<Vec<u8>> = line.split(' ').map(word).collect();
    Client::command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn ask(client: &mut Client, line: &str) -> String {
    client.send(&command(line));
    client.reply().escape_ascii().to_string()
}

/// The rack's moods, in all of which clients must see the same.
fn moods() -> [Knobs; 3] {
    let uncached = Knobs { nothing_cached: true, ..Knobs::default() };
    let lossy = Knobs { loss: 10, duplication: 20, reordering: 20, ..uncached.clone() };
    [Knobs::default(), uncached, lossy]
}

fn start(knobs: &Knobs, transactions: Transactions) -> (FakeRack, Gateway) {
    let rack = FakeRack::default();
    rack.set(|to| *to = knobs.clone());
    let gateway = rack.start(GatewayConfig { transactions, ..config() });
    (rack, gateway)
}

#[test]
fn the_script_is_answered_as_by_redis() {
    let Some(redis) = Redis::start(&["--proto-max-bulk-len", "1mb", "--databases", "1"]) else {
        return;
    };
    for knobs in moods() {
        for (version, mode) in [("2", Transactions::Refuse), ("3", Transactions::Batch)] {
            let (_rack, gateway) = start(&knobs, mode);
            let mut theirs = [redis.client(), redis.client()];
            let mut ours = [Client::connect(&gateway), Client::connect(&gateway)];
            theirs[0].ask("FLUSHALL");
            for clients in [&mut theirs, &mut ours] {
                clients.iter_mut().for_each(|client| drop(client.ask(&format!("HELLO {version}"))));
            }
            for (number, line) in
                SCRIPT.lines().enumerate().filter(|(_, line)| !line.starts_with('#'))
            {
                let (by, line) = line.strip_prefix("@ ").map_or((0, line), |line| (1, line));
                let (wanted, got) = (ask(&mut theirs[by], line), ask(&mut ours[by], line));
                assert_eq!(got, wanted, "line {}: {line} ({mode:?}, {knobs:?})", number + 1);
            }
        }
    }
}

/// Transactions of one key, watched or not, one of another connection's commands at any place.
#[test]
fn random_transactions_are_answered_as_by_redis() {
    let Some(redis) = Redis::start(&["--proto-max-bulk-len", "1mb", "--databases", "1"]) else {
        return;
    };
    for knobs in moods() {
        let cases = if knobs.loss > 0 { 10 } else { 100 };
        let (_rack, gateway) = start(&knobs, Transactions::Refuse);
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let some = prop::sample::select(COMMANDS);
        let case = (
            any::<bool>(),
            some.clone(),
            prop::collection::vec(some.clone(), 0..12),
            0..16usize,
            some,
        );
        runner
            .run(&case, |(watches, before, commands, at, other)| {
                let run = |mut client: Client, mut second: Client| {
                    second.ask("FLUSHALL");
                    let mut lines = vec![before];
                    lines.extend(watches.then_some("WATCH k"));
                    lines.push("MULTI");
                    lines.extend(&commands);
                    lines.extend(["EXEC", "GET k", "TTL k"]);
                    let mut replies = Vec::new();
                    for (number, line) in lines.into_iter().enumerate() {
                        if number == at {
                            replies.push(ask(&mut second, other));
                        }
                        replies.push(ask(&mut client, line));
                    }
                    replies
                };
                let wanted = run(redis.client(), redis.client());
                let got = run(Client::connect(&gateway), Client::connect(&gateway));
                prop_assert_eq!(got, wanted);
                Ok(())
            })
            .unwrap();
    }
}

const SEVERAL: &str = "-ERR a transaction of several keys, which no write spans, is refused; with \
     transactions = \\\"batch\\\" in [gateway] its commands are executed one after the other, \
     without isolation\\r\\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\\r\\n";

#[test]
fn a_transaction_of_several_keys_is_refused_whole() {
    let (rack, gateway) = start(&Knobs::default(), Transactions::Refuse);
    let mut client = Client::connect(&gateway);
    for second in
        ["SET b 2", "MSET a 1 b 2", "DEL a b", "FLUSHALL", "SCAN 0", "LCS a b", "OBJECT ENCODING b"]
    {
        assert_eq!(client.ask("MULTI"), "+OK\r\n");
        assert_eq!(client.ask("SET a 1"), "+QUEUED\r\n");
        assert_eq!(ask(&mut client, second), SEVERAL, "{second}");
        assert_eq!(client.ask("GET a"), "+QUEUED\r\n");
        assert_eq!(ask(&mut client, "EXEC"), ABORTED, "{second}");
        assert_eq!(rack.value(b"a"), None, "{second}");
    }
    for never in ["HELLO 3", "AUTH x y"] {
        client.ask("MULTI");
        assert!(
            client.ask(never).contains("not supported by Switchback in a transaction"),
            "{never}"
        );
        assert_eq!(ask(&mut client, "EXEC"), ABORTED);
    }
}

/// What keyv's `setMany` sends, by @keyv/redis 5.1.6, in one go: it must be told of a refusal, and
/// nothing may be stored then.
#[test]
fn set_many_of_keyv_stores_all_or_fails() {
    for mode in Transactions::ALL {
        let (rack, gateway) = start(&Knobs::default(), mode);
        let mut client = Client::connect(&gateway);
        let [a, b] = ["{\"value\":1,\"expires\":1795929965100}", "{\"value\":2}"];
        let sets = [format!("SET keyv::keyv:a {a} PX 60000"), format!("SET keyv::keyv:b {b}")];
        let lines = ["MULTI", &sets[0], &sets[1], "EXEC"];
        client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
        let replies = lines.map(|_| client.reply().escape_ascii().to_string());
        let mget = client.ask("MGET keyv::keyv:a keyv::keyv:b");
        let value = |key: &str| rack.value(format!("keyv::keyv:{key}").as_bytes());
        match mode {
            Transactions::Refuse => {
                assert_eq!(replies[1..], ["+QUEUED\\r\\n", SEVERAL, ABORTED]);
                assert_eq!(mget, "*2\r\n$-1\r\n$-1\r\n");
                assert_eq!((value("a"), value("b")), (None, None));
            }
            Transactions::Batch => {
                let queued = "+QUEUED\\r\\n";
                assert_eq!(replies[1..], [queued, queued, "*2\\r\\n+OK\\r\\n+OK\\r\\n"]);
                assert_eq!([value("a"), value("b")], [a, b].map(|it| Some(it.into())));
            }
        }
    }
}

#[test]
fn what_is_watched_is_all_that_may_be_touched() {
    for mode in Transactions::ALL {
        let (rack, gateway) = start(&Knobs::default(), mode);
        let mut client = Client::connect(&gateway);
        let several = "-ERR WATCH of several keys is refused: no write spans several keys\r\n";
        assert_eq!(client.ask("WATCH a b"), several);
        assert_eq!(client.ask("WATCH a a"), "+OK\r\n");
        assert_eq!(client.ask("WATCH b"), several);
        assert_eq!(client.ask("MULTI"), "+OK\r\n");
        let refused = "-ERR a transaction that watches a key may touch that one only: no write spans several keys\r\n";
        assert_eq!(client.ask("SET b 1"), refused);
        assert_eq!(ask(&mut client, "EXEC"), ABORTED);
        assert_eq!(rack.value(b"b"), None);
    }
}

#[test]
fn a_transaction_that_loses_against_others_is_repeated_and_one_that_watches_is_not() {
    let (rack, gateway) = start(&Knobs::default(), Transactions::Refuse);
    let mut client = Client::connect(&gateway);
    let transaction = |client: &mut Client, before: &[&str]| {
        let lines = [before, &["MULTI", "INCR k", "APPEND k 0", "EXEC"]].concat();
        client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
        let replies = lines.iter().map(|_| String::from_utf8(client.reply()).unwrap());
        replies.last().unwrap()
    };
    rack.set(|knobs| knobs.fail_conditions = 200);
    assert_eq!(transaction(&mut client, &[]), "*2\r\n:1\r\n:2\r\n");
    rack.set(|knobs| knobs.fail_conditions = 1);
    assert_eq!(transaction(&mut client, &["WATCH k"]), "*-1\r\n");
    assert_eq!(transaction(&mut client, &["WATCH k"]), "*2\r\n:11\r\n:3\r\n");
    rack.set(|knobs| knobs.fail_conditions = 1000);
    let lost = "-TRYAGAIN others kept writing this key: gave up after 256 attempts, nothing was changed\r\n";
    assert_eq!(transaction(&mut client, &[]), lost);
    assert_eq!(rack.value(b"k").as_deref(), Some(&b"110"[..]));
}

#[test]
fn gateways_that_share_a_key_lose_no_increment() {
    const EACH: usize = 100;
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.try_start(config(), 2).unwrap();
    let add = |how: &'static [&'static str]| {
        let mut client = Client::connect(&gateway);
        std::thread::spawn(move || {
            let mut done = 0;
            while done < EACH {
                let replies: Vec<_> = how.iter().map(|line| client.ask(line)).collect();
                done += usize::from(replies.last().unwrap().starts_with("*1"));
            }
        })
    };
    let plain = &["MULTI", "INCR k", "EXEC"];
    let watching = &["WATCH k", "GET k", "MULTI", "INCR k", "EXEC"];
    let threads = [add(plain), add(plain), add(watching), add(watching)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rack.value(b"k"), Some((4 * EACH).to_string().into_bytes()));
}

#[test]
fn a_transaction_whose_write_is_not_answered_is_indeterminate() {
    let rack = FakeRack::default();
    let session = ClientConfig { deadline_us: 200_000, ..ClientConfig::default() };
    let gateway = rack.start(GatewayConfig { session, ..config() });
    let mut client = Client::connect(&gateway);
    rack.set(|knobs| knobs.silent_writes = true);
    for line in ["MULTI", "SET k 1", "INCR k"] {
        client.ask(line);
    }
    let reply = client.ask("EXEC");
    let wanted = "-INDETERMINATE all writes of this transaction or script happened, or none did: no answer came within 200 ms";
    assert!(reply.starts_with(wanted), "{reply}");
    // What is watched isn't known, so the transaction isn't executed.
    rack.set(|knobs| (knobs.silent_writes, knobs.silent) = (false, true));
    assert!(client.ask("WATCH k").starts_with("-TIMEOUT"));
    rack.set(|knobs| knobs.silent = false);
    for (line, wanted) in [("MULTI", "+OK\r\n"), ("SET k 5", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")] {
        assert_eq!(client.ask(line), wanted);
    }
}

#[test]
fn batch_executes_the_commands_of_several_keys_in_their_order() {
    let Some(redis) = Redis::start(&["--proto-max-bulk-len", "1mb", "--databases", "1"]) else {
        return;
    };
    for knobs in moods() {
        let (_rack, gateway) = start(&knobs, Transactions::Batch);
        let lines = [
            "FLUSHALL",
            "MULTI",
            "SET a 1",
            "INCR a",
            "MSET b 2 c 3",
            "APPEND b x",
            "INCR b",
            "MGET a b c d",
            "PING hi",
            "DEL a d",
            "SCAN 0 TYPE other",
            "DBSIZE",
            "EXEC",
            "GET b",
            "MULTI",
            "GET a",
            "GET b",
            "INCR",
            "EXEC",
            "MULTI",
            "FLUSHALL",
            "SET a 1",
            "EXEC",
            "DBSIZE",
            "MULTI",
            "ECHO only",
            "EXEC",
            "MULTI",
            "EXEC",
            "PING",
        ];
        for pipelined in [false, true] {
            let run = |mut client: Client| -> Vec<String> {
                if pipelined {
                    client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
                    return lines
                        .iter()
                        .map(|_| client.reply().escape_ascii().to_string())
                        .collect();
                }
                lines.iter().map(|line| ask(&mut client, line)).collect()
            };
            assert_eq!(
                run(Client::connect(&gateway)),
                run(redis.client()),
                "{pipelined} {knobs:?}"
            );
        }
    }
}

#[test]
fn a_transaction_that_is_too_large_is_refused() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { command_bytes_max: 1 << 20, ..config() });
    let mut client = Client::connect(&gateway);
    client.ask("MULTI");
    let value = format!("APPEND k {}", "x".repeat(100_000));
    let replies: Vec<_> = (0..12).map(|_| client.ask(&value)).collect();
    assert_eq!(replies[9], "+QUEUED\r\n");
    let refused = "-ERR a transaction has at most 100000 commands of 1048576 bytes together\r\n";
    assert_eq!(replies[10], refused);
    assert_eq!(ask(&mut client, "EXEC"), ABORTED);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
}

#[test]
fn a_transaction_that_takes_too_long_changes_nothing() {
    let (rack, gateway) = start(&Knobs::default(), Transactions::Refuse);
    let mut client = Client::connect(&gateway);
    client.ask(&format!("SET k {}", "x".repeat(1 << 20)));
    let mut lines = vec![Client::command(&[b"MULTI"])];
    lines.extend((0..20_000).map(|_| Client::command(&[b"BITCOUNT", b"k"])));
    lines.push(Client::command(&[b"SETRANGE", b"k", b"0", b"changed"]));
    lines.push(Client::command(&[b"EXEC"]));
    client.send(&lines.concat());
    let last = lines.iter().map(|_| String::from_utf8(client.reply()).unwrap()).last().unwrap();
    let slow = "-ERR the transaction or script ran for more than 5 ms; nothing was changed\r\n";
    assert_eq!(last, slow);
    assert_eq!(rack.value(b"k").unwrap()[0], b'x');
    assert_eq!(client.ask("STRLEN k"), ":1048576\r\n");
}

/// Fails if a command of a transaction that EXEC has begun waits for a pause: its worker would look
/// at nothing else for ever.
#[test]
fn a_pause_within_a_transaction_does_not_hold_its_other_commands() {
    for mode in Transactions::ALL {
        let (_rack, gateway) = start(&Knobs::default(), mode);
        let mut client = Client::connect(&gateway);
        for pause in ["CLIENT PAUSE 600 ALL", "CLIENT PAUSE 600 WRITE"] {
            let lines = ["MULTI", pause, "PING", "ECHO hi", "EXEC"];
            client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
            let [.., last] = lines.map(|_| client.reply());
            let wanted = "*3\r\n+OK\r\n+PONG\r\n$2\r\nhi\r\n";
            assert_eq!(String::from_utf8(last).unwrap(), wanted, "{mode:?} {pause}");
            assert_eq!(Client::connect(&gateway).ask("CLIENT UNPAUSE"), "+OK\r\n");
        }
        assert_eq!(client.ask("SET k v"), "+OK\r\n");
    }
}

/// Fails if a transaction is executed without a command that the client has sent in it.
#[test]
fn an_argument_that_is_too_long_spoils_its_transaction() {
    for mode in Transactions::ALL {
        let (rack, gateway) = start(&Knobs::default(), mode);
        let mut client = Client::connect(&gateway);
        assert_eq!(client.ask("MULTI"), "+OK\r\n");
        assert_eq!(client.ask("SET a 1"), "+QUEUED\r\n");
        let append = client.call(&[b"APPEND", b"a", &vec![b'x'; 2 << 20]]);
        assert!(append.starts_with(b"-ERR string exceeds"), "{}", append.escape_ascii());
        assert_eq!(client.ask("SET a 2"), "+QUEUED\r\n");
        assert_eq!(ask(&mut client, "EXEC"), ABORTED);
        assert_eq!(rack.value(b"a"), None);
    }
}

/// Fails if what the gateway answers in a transaction has no limit: 4 GiB of it end the process.
#[test]
fn what_the_gateway_answers_in_a_transaction_is_limited() {
    let rack = FakeRack::default();
    let gateway = rack.start(GatewayConfig { output_bytes_hard: 2 << 20, ..config() });
    let mut client = Client::connect(&gateway);
    let mut transaction = |commands: usize| {
        let echo = Client::command(&[b"ECHO", &[b'x'; 10_000]]);
        let lines = [command("MULTI"), command("SET k v"), echo.repeat(commands), command("EXEC")];
        client.send(&lines.concat());
        (0..commands + 3).map(|_| client.reply()).last().unwrap()
    };
    assert_eq!(transaction(210), b"-ERR the reply would be longer than 2097152 bytes\r\n");
    assert_eq!(rack.value(b"k"), None);
    assert!(transaction(2).starts_with(b"*3\r\n+OK\r\n$10000\r\n"));
    assert_eq!(rack.value(b"k").as_deref(), Some(&b"v"[..]));
}

/// Fails if other connections wait until all scripts of a transaction have taken their time.
#[test]
fn others_have_their_turn_between_the_scripts_of_a_transaction() {
    const SCRIPTS: usize = 100;
    let (_rack, gateway) = start(&Knobs::default(), Transactions::Batch);
    let (mut client, mut other) = (Client::connect(&gateway), Client::connect(&gateway));
    assert_eq!(other.ask("PING"), "+PONG\r\n");
    let script = Client::command(&[b"EVAL", b"while true do end", b"0"]);
    let lines = [command("MULTI"), script.repeat(SCRIPTS), command("EXEC")];
    client.send(&lines.concat());
    (0..=SCRIPTS).for_each(|_| assert_eq!(client.reply()[0], b'+'));
    let thread = std::thread::spawn(move || {
        let begin = Instant::now();
        assert!(client.reply().starts_with(b"*100\r\n-ERR the transaction or script ran"));
        begin.elapsed()
    });
    let mut longest = Duration::ZERO;
    while !thread.is_finished() {
        let begin = Instant::now();
        assert_eq!(other.ask("PING"), "+PONG\r\n");
        longest = longest.max(begin.elapsed());
    }
    let all = thread.join().unwrap();
    assert!(longest < all / 2, "one of others waited for {longest:?} of {all:?}");
}
