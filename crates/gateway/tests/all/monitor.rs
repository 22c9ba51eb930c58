//! MONITOR: what is shown, on which connections, and what becomes of a monitor that doesn't read.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, config};
use std::collections::BTreeSet;
use switchback_gateway::{Gateway, GatewayConfig};

/// With two workers, between which connections take turns.
fn start(config: GatewayConfig) -> Gateway {
    FakeRack::default().try_start(config, 2).unwrap()
}

fn monitor(mut client: Client) -> Client {
    assert_eq!(client.ask("MONITOR"), "+OK\r\n");
    client
}

/// The next line without its time and address; `+` stays if it has no time.
fn shown(monitor: &mut Client) -> String {
    let line = String::from_utf8(monitor.reply()).unwrap();
    let line = line.trim_end_matches("\r\n");
    let Some((time, rest)) = line.split_once(" [0 ") else { return line.to_owned() };
    let (seconds, micros) = time[1..].split_once('.').unwrap();
    assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{line}");
    let (by, command) = rest.split_once("] ").unwrap();
    if by == "lua" { format!("lua: {command}") } else { command.to_owned() }
}

/// Sends commands, and what monitors are shown of them; `number` is another one each time.
fn shown_of(
    client: &mut Client,
    monitor: &mut Client,
    commands: &[Vec<&[u8]>],
    number: usize,
) -> Vec<String> {
    for words in commands {
        client.call(words);
    }
    client.ask(&format!("ECHO end-{number}"));
    let end = format!("\"ECHO\" \"end-{number}\"");
    let mut lines = Vec::new();
    loop {
        match shown(monitor) {
            line if line == end => return lines,
            line => lines.push(line),
        }
    }
}

/// A line is a command, or several that are sent before it is looked at what is shown.
const COMMANDS: &str = "SET k v
gEt k
GET
NOSUCH x
MSET a 1 b 2
MGET a b nothing
INCR k
DEL a b
TTL k
DBSIZE
SCAN 0
AUTH pw
AUTH user pw
HELLO 2 AUTH user pw
HELLO 2 SETNAME x AUTH default pw
HELLO 2
CONFIG GET save
CONFIG SET slowlog-max-len 128
CLIENT LIST
CLIENT ID
CLIENT INFO
CLIENT SETNAME x
CLIENT PAUSE 0
CLIENT UNPAUSE
CLIENT REPLY ON
CLIENT NO-EVICT on
CLIENT KILL 1:1
CLIENT UNBLOCK 5
CLIENT GETREDIR
SLOWLOG LEN
SLOWLOG RESET
COMMAND COUNT
INFO server
MEMORY USAGE k
OBJECT ENCODING k
SCRIPT EXISTS a
TIME
PING
ECHO x
SELECT 0
SELECT 99
READONLY
MULTI;SET a 1;GET a;EXEC
MULTI;NOSUCH;EXEC
MULTI;SET a 1;DISCARD
WATCH a
UNWATCH
EVAL return(redis.call('get',KEYS[1])) 1 k
EVAL return(redis.call('nosuch',KEYS[1])) 1 k
EVAL_RO return(redis.call('echo','a\"b')) 0
EVAL nonsense 2 k
EVALSHA ffff 0
RESET
FLUSHALL";

#[test]
fn commands_are_shown_as_by_redis() {
    let Some(redis) = Redis::start(&[]) else { return };
    let gateway = start(config());
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    let mut their_monitor = monitor(redis.client());
    let mut our_monitor = monitor(Client::connect(&gateway));
    let bytes: &[&[u8]] = &[b"SET", b"k", b"\0\"\\\n\r\t\x07\x08\x7f\xff ~'x", b""];
    let words = |command: &'static str| command.split(' ').map(str::as_bytes).collect();
    let commands = COMMANDS.lines().map(|line| line.split(';').map(words).collect());
    let bytes = [vec![bytes.to_vec()], vec![bytes[..3].to_vec()]];
    let commands: Vec<Vec<Vec<&[u8]>>> = commands.chain(bytes).collect();
    for (number, commands) in commands.iter().enumerate() {
        let wanted = shown_of(&mut theirs, &mut their_monitor, commands, number);
        let got = shown_of(&mut ours, &mut our_monitor, commands, number);
        let what: Vec<_> = commands.iter().map(|words| words.join(&b' ')).collect();
        assert_eq!(got, wanted, "{}", String::from_utf8_lossy(&what.join(&b';')));
    }
}

/// What a connection is sent for a command: replies, and lines if it `monitors` then. `other` is
/// another connection to the same server.
fn said(client: &mut Client, other: &mut Client, line: &str, monitors: bool) -> Vec<String> {
    client.send(&Client::command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
    // Redis says +OK and closes.
    if line != "QUIT" {
        client.send(b"ECHO done\r\n");
    }
    let mut said = Vec::new();
    let mut until = |is_end: &dyn Fn(&str) -> bool| {
        loop {
            match shown(client) {
                end if is_end(&end) => break,
                line => said.push(line),
            }
        }
    };
    until(&|reply| reply == "$4\r\ndone" || reply.is_empty());
    if monitors {
        other.ask("ECHO end");
        until(&|line| line == "\"ECHO\" \"end\"");
    }
    // Lines may come before the reply or after it.
    said.sort();
    said
}

#[test]
fn commands_on_a_monitor_are_answered_as_by_redis() {
    let Some(redis) = Redis::start(&[]) else { return };
    let gateway = start(config());
    let mut theirs = (monitor(redis.client()), redis.client());
    let mut ours = (monitor(Client::connect(&gateway)), Client::connect(&gateway));
    let lines = "PING|GET k|SET k v|DBSIZE|KEYS *|EXISTS k|MONITOR|UNWATCH|EVAL return(1) 0|\
        EVAL_RO return(1) 0|SCRIPT EXISTS x|MEMORY USAGE k|OBJECT ENCODING k|\
        CONFIG GET save|NOSUCH|GET";
    for line in ["MULTI", "GET k", "EXEC"] {
        let reply = |monitor: &mut Client| {
            monitor.send(format!("{line}\r\n").as_bytes());
            loop {
                match shown(monitor) {
                    line if line.starts_with('"') => {}
                    reply => break reply,
                }
            }
        };
        assert_eq!(reply(&mut ours.0), reply(&mut theirs.0), "{line}");
    }
    let as_others = "RESET|GET k|SET k v|DEL k";
    for (lines, monitors) in
        [(lines, true), (as_others, false), ("MONITOR|PING", true), ("QUIT", false)]
    {
        for line in lines.split('|') {
            let wanted = said(&mut theirs.0, &mut theirs.1, line, monitors);
            assert_eq!(said(&mut ours.0, &mut ours.1, line, monitors), wanted, "{line}");
        }
    }
}

#[test]
fn monitors_see_what_all_workers_execute() {
    let gateway = start(config());
    let mut monitors: Vec<Client> = (0..4).map(|_| monitor(Client::connect(&gateway))).collect();
    const CLIENTS: usize = 4;
    const EACH: usize = 500;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut connection = Client::connect(&gateway);
            scope.spawn(move || {
                for at in 0..EACH {
                    connection.ask(&format!("SET {client} {at}"));
                }
            });
        }
    });
    for monitor in &mut monitors {
        let mut next = [0; CLIENTS];
        for _ in 0..CLIENTS * EACH {
            let line = shown(monitor);
            let words: Vec<&str> = line.split('"').collect();
            let client: usize = words[3].parse().unwrap();
            assert_eq!(words[5], next[client].to_string(), "{line}");
            next[client] += 1;
        }
        assert_eq!(next, [EACH; CLIENTS]);
    }
}

/// It is told of what it lost, and no other connection waits for it.
#[test]
fn a_monitor_that_does_not_read_loses_lines() {
    let gateway = start(config());
    let mut idle = monitor(Client::connect(&gateway));
    let mut client = Client::connect(&gateway);
    let value = vec![b'x'; 100_000];
    const COMMANDS: usize = 1_000;
    for _ in 0..COMMANDS {
        assert_eq!(client.call(&[b"SET", b"k", &value]), b"+OK\r\n");
    }
    let long = vec![b'x'; 1 << 20];
    assert_eq!(client.call(&[b"SET", b"k", &long]), b"+OK\r\n");
    let (mut lines, mut dropped) = (0, 0);
    // A command that comes while lines wait may be dropped; the end is one that isn't.
    while lines + dropped <= COMMANDS {
        let line = shown(&mut idle);
        match line.strip_prefix("\"DROPPED\" \"") {
            Some(count) => dropped += count.trim_end_matches('"').parse::<usize>().unwrap(),
            None => lines += 1,
        }
    }
    assert_eq!(lines + dropped, COMMANDS + 1);
    assert!(lines > 5 && dropped > 100, "{lines} lines, {dropped} dropped");
    client.ask("ECHO end");
    assert_eq!(shown(&mut idle), "\"ECHO\" \"end\"");
}

#[test]
fn there_are_eight_monitors_at_most() {
    let gateway = start(config());
    let mut monitors: Vec<Client> = (0..8).map(|_| monitor(Client::connect(&gateway))).collect();
    let mut ninth = Client::connect(&gateway);
    let refused = "-ERR there are 8 monitors already, which is the most\r\n";
    assert_eq!(ninth.ask("MONITOR"), refused);
    assert_eq!(ninth.ask("SET k v"), "+OK\r\n", "it is as before");
    // Each way to end leaves room for another one.
    let mut first = monitors.remove(0);
    first.send(b"RESET\r\n");
    while shown(&mut first) != "+RESET" {}
    assert_eq!(first.ask("GET k"), "$1\r\nv\r\n");
    assert_eq!(ninth.ask("MONITOR"), "+OK\r\n");
    assert_eq!(first.ask("MONITOR"), refused);
    let mut second = monitors.remove(0);
    second.send(b"QUIT\r\n");
    while !second.reply().is_empty() {}
    assert_eq!(first.ask("MONITOR"), "+OK\r\n");
    drop(monitors);
    let mut client = Client::connect(&gateway);
    let begin = std::time::Instant::now();
    while client.ask("MONITOR") != "+OK\r\n" {
        assert!(begin.elapsed() < crate::fake::PATIENCE, "their ends aren't noticed");
    }
}

#[test]
fn passwords_are_not_shown() {
    let gateway = start(GatewayConfig { password: Some("secret".into()), ..config() });
    let connect = || {
        let mut client = Client::connect(&gateway);
        assert_eq!(client.ask("MONITOR"), "-NOAUTH Authentication required.\r\n");
        assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
        client
    };
    let mut watching = monitor(connect());
    let mut client = connect();
    let mut seen = BTreeSet::new();
    for (number, line) in [
        "AUTH secret",
        "AUTH default secret",
        "AUTH secre",
        "HELLO 3 AUTH default secret",
        "HELLO 2 SETNAME a AUTH default secret BOGUS",
        "HELLO 2 BOGUS AUTH default secret",
        "HELLO 2 AUTH secret",
        "CONFIG SET requirepass secret",
    ]
    .into_iter()
    .enumerate()
    {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        seen.extend(shown_of(&mut client, &mut watching, &[words], number));
    }
    assert!(
        seen.iter().all(|line| !line.contains("secre") && !line.contains("default")),
        "{seen:?}"
    );
    assert!(seen.contains("\"AUTH\" \"(redacted)\""), "{seen:?}");
}
