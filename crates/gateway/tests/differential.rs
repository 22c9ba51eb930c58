//! The same commands to redis-server and to the gateway: the replies must be the same bytes.
#![allow(clippy::unwrap_used)]

mod fake;

use fake::redis::Redis;
use fake::{Client, FakeRack, Knobs, config};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

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

#[test]
fn the_script_is_answered_as_by_redis() {
    let Some(redis) = Redis::start(&[]) else { return };
    for (mood, knobs) in moods() {
        for version in ["2", "3"] {
            let rack = FakeRack::default();
            rack.set(|to| *to = knobs.clone());
            let gateway = rack.start(config());
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
    (verb, key, value, time, option).prop_map(|(verb, key, value, time, option)| {
        let word = |word: &str| match word {
            "k" => key.to_string(),
            "v" => value.to_string(),
            "t" => time.to_string(),
            "o" => option.to_string(),
            other => other.to_string(),
        };
        verb.split(' ').map(word).collect::<Vec<_>>().join(" ").trim_end().to_string()
    })
}

#[test]
fn random_commands_are_answered_as_by_redis_one_by_one_and_pipelined() {
    let Some(redis) = Redis::start(&[]) else { return };
    for (mood, knobs) in moods() {
        let cases = if mood == "lossy" { 10 } else { 60 };
        let rack = FakeRack::default();
        rack.set(|to| *to = knobs.clone());
        let gateway = rack.start(config());
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
    let Some(redis) = Redis::start(&[]) else { return };
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
