//! HOTKEYS and OBJECT FREQ: what the gateway tells of the keys that are asked for most.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, config};

/// Sends a command `times` times, and takes the replies.
fn repeat(client: &mut Client, command: &str, times: usize) {
    for _ in 0..times.div_ceil(100) {
        client.send(format!("{command}\r\n").repeat(100).as_bytes());
        (0..100).for_each(|_| drop(client.reply()));
    }
}

/// A reply's words and numbers, without their lengths and heads of arrays.
fn words(reply: &str) -> Vec<&str> {
    let is_word = |line: &&str| !line.starts_with(['*', '%', '$']);
    reply.lines().filter(is_word).map(|line| line.trim_start_matches(':')).collect()
}

#[test]
fn keys_are_listed_by_how_often_they_are_asked_for() {
    let gateway = FakeRack::default().try_start(config(), 2).unwrap();
    let mut clients = [Client::connect(&gateway), Client::connect(&gateway)];
    let nothing = clients[0].ask("HOTKEYS GET");
    assert!(words(&nothing).ends_with(&["total-requests", "0", "by-requests"]), "{nothing}");
    for client in &mut clients {
        repeat(client, "SET hot v", 10_000);
        repeat(client, "GET hot", 10_000);
        repeat(client, "GET warm", 4_000);
    }
    let [client, _] = &mut clients;
    client.ask("SET warm v");
    let reply = client.ask("HOTKEYS GET");
    assert!(reply.starts_with("*1\r\n*14\r\n$15\r\ntracking-active\r\n:1\r\n"), "{reply}");
    let told = words(&reply);
    let at = |name: &str| told.iter().position(|word| *word == name).unwrap() + 1;
    assert_eq!(told[at("sample-ratio")], "64");
    assert_eq!(told[at("selected-slots")..][..2], ["0", "16383"]);
    let number = |at: usize| told[at].parse::<f64>().unwrap();
    let near = |got: f64, wanted: f64| (0.7 * wanted..1.3 * wanted).contains(&got);
    assert!(near(number(at("total-requests")), 48_000.0), "{reply}");
    let listed = at("by-requests");
    assert_eq!((told[listed], told[listed + 2]), ("hot", "warm"), "{reply}");
    assert!(near(number(listed + 1), 40_000.0), "{reply}");
    assert!((4_000.0..16_000.0).contains(&number(listed + 3)), "{reply}");
    let began_ms = number(at("collection-start-time-unix-ms"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(began_ms >= now.as_millis() as f64 - 60_000.0, "{reply}");

    let mut frequency = |key: &str| {
        let reply = client.ask(&format!("OBJECT FREQ {key}"));
        reply.trim_matches([':', '\r', '\n']).parse::<u32>().unwrap()
    };
    // 40,000 requests: 5 + sqrt(40,000 / 5).
    assert!((78..=107).contains(&frequency("hot")), "{}", frequency("hot"));
    assert!((33..=62).contains(&frequency("warm")), "{}", frequency("warm"));
    client.ask("HELLO 3");
    assert!(client.ask("HOTKEYS GET").starts_with("*1\r\n%7\r\n"));
}

#[test]
fn counting_of_hot_keys_is_always_on() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    for (command, reply) in [
        ("HOTKEYS START METRICS 1 CPU", "-ERR hotkey tracking session already in progress"),
        ("HOTKEYS RESET", "-ERR hotkey tracking session in progress, stop tracking first"),
        ("HOTKEYS STOP", "-ERR HOTKEYS STOP isn't supported: hot keys are always counted"),
        ("HOTKEYS STOP x", "-ERR wrong number of arguments for 'hotkeys|stop' command"),
        ("HOTKEYS GET x", "-ERR wrong number of arguments for 'hotkeys|get' command"),
        ("HOTKEYS", "-ERR wrong number of arguments for 'hotkeys' command"),
        ("HOTKEYS bogus", "-ERR unknown subcommand 'bogus'. Try HOTKEYS HELP."),
        ("OBJECT FREQ missing", "$-1"),
        (
            "OBJECT IDLETIME missing",
            "-ERR 'object|idletime' is not supported by Switchback: nothing knows when a key was \
             last asked for",
        ),
        (
            "OBJECT REFCOUNT missing",
            "-ERR 'object|refcount' is not supported by Switchback: values aren't shared",
        ),
    ] {
        assert_eq!(client.ask(command), format!("{reply}\r\n"), "{command}");
    }
}

#[test]
fn frequencies_are_told_as_by_redis_with_an_lfu_policy() {
    let Some(redis) = Redis::start(&["--maxmemory-policy", "allkeys-lfu"]) else { return };
    let gateway = FakeRack::default().start(config());
    let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
    for line in ["OBJECT FREQ k", "SET k v", "OBJECT FREQ", "OBJECT FREQ k k"] {
        assert_eq!(ours.ask(line), theirs.ask(line), "{line}");
    }
    for client in [&mut ours, &mut theirs] {
        assert!(client.ask("OBJECT FREQ k").starts_with(':'));
    }
    // It doesn't depend on the policy, which says what matters to programs: nothing is evicted.
    let policy = ours.ask("CONFIG GET maxmemory-policy");
    assert!(policy.contains("noeviction"), "{policy}");
    assert!(ours.ask("INFO memory").contains("maxmemory_policy:noeviction"));
}
