//! Commands against the fake rack, in all its moods.

#![allow(clippy::unwrap_used)]

mod fake;

use fake::{Client, FakeRack, config};

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
        ("FLUSHALL", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("HSET h f v", "-ERR 'hset' is not supported by Switchback: it stores strings only\r\n"),
        ("MULTI", "-ERR 'multi' is not supported by Switchback: it has no transactions\r\n"),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    gateway.stop();
}

#[test]
fn what_comes_with_a_refused_multi_is_not_executed() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let send = |client: &mut Client, commands: &[&[&[u8]]]| {
        client.send(&commands.iter().flat_map(|words| Client::command(words)).collect::<Vec<_>>());
        commands.iter().map(|_| String::from_utf8(client.reply()).unwrap()).collect::<Vec<_>>()
    };
    let transaction: [&[&[u8]]; 4] = [&[b"MULTI"], &[b"SET", b"a", b"1"], &[b"HSET", b"b", b"2", b"3"], &[b"EXEC"]];
    for reply in send(&mut client, &transaction) {
        assert!(reply.starts_with("-ERR ") && reply.contains("transactions"), "{reply}");
    }
    assert_eq!(rack.value(b"a"), None);
    assert_eq!(send(&mut client, &[&[b"MULTI"], &[b"EXEC"], &[b"SET", b"a", b"1"]])[2], "+OK\r\n");
    // Who has read the refusal is served as ever: a connection that goes back to its pool, say.
    assert!(client.ask("MULTI").starts_with("-ERR"));
    assert_eq!(client.ask("GET a"), "$1\r\n1\r\n");
}
