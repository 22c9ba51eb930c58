//! CLIENT REPLY, KILL and PAUSE, SLOWLOG and LATENCY: what they do to connections, of other
//! workers, too; and commands and scripts of several keys, with each setting of `transactions`.

use crate::fake::{Client, FakeRack, PATIENCE, config};
use std::time::{Duration, Instant};
use switchback_gateway::{Gateway, GatewayConfig, Transactions};

/// With two workers, between which connections take turns.
fn start() -> Gateway {
    FakeRack::default().try_start(config(), 2).unwrap()
}

fn number(client: &mut Client) -> String {
    client.ask("CLIENT ID").trim_matches([':', '\r', '\n']).to_owned()
}

#[test]
fn replies_that_a_client_does_not_want_are_not_sent() {
    let gateway = start();
    let mut client = Client::connect(&gateway);
    let commands = "SET a 1\r\nCLIENT REPLY OFF\r\nSET a 2\r\nGET a\r\nNONSENSE\r\nMGET a b\r\n\
        CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nGET a\r\nCLIENT REPLY SKIP\r\nGET a\r\nSTRLEN a\r\n\
        CLIENT REPLY SKIP\r\nMGET a\r\nECHO end\r\n";
    client.send(commands.as_bytes());
    let wanted = ["+OK\r\n", "+OK\r\n", "$1\r\n2\r\n", ":1\r\n", "$3\r\nend\r\n"];
    for wanted in wanted {
        assert_eq!(client.reply(), wanted.as_bytes());
    }
}

/// Fails if a connection that is reset stays without replies, or passes for one of RESP3.
#[test]
fn reset_ends_what_replies_were_chosen() {
    let gateway = start();
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("HELLO 3")[..1], *"%");
    assert!(client.ask("CLIENT INFO").contains(" resp=3 "));
    client.send(b"CLIENT REPLY OFF\r\nECHO unheard\r\nRESET\r\nECHO heard\r\n");
    assert_eq!(client.reply(), b"+RESET\r\n");
    assert_eq!(client.reply(), b"$5\r\nheard\r\n");
    assert!(client.ask("CLIENT INFO").contains(" resp=2 "));
    client.send(b"CLIENT REPLY SKIP\r\nRESET\r\nECHO heard\r\n");
    assert_eq!(client.reply(), b"$5\r\nheard\r\n");
}

#[test]
fn connections_are_killed_by_number_and_address() {
    let gateway = start();
    let mut killer = Client::connect(&gateway);
    let mut others: Vec<Client> = (0..6).map(|_| Client::connect(&gateway)).collect();
    let numbers: Vec<String> = others.iter_mut().map(number).collect();
    for at in [0, 1] {
        assert_eq!(killer.ask(&format!("CLIENT KILL ID {}", numbers[at])), ":1\r\n");
        assert_eq!(others[at].reply(), b"", "its end");
        assert_eq!(killer.ask(&format!("CLIENT KILL ID {}", numbers[at])), ":0\r\n");
    }
    for at in [2, 3] {
        let address = others[at].0.local_addr().unwrap();
        assert_eq!(killer.ask(&format!("CLIENT KILL {address}")), "+OK\r\n");
        assert_eq!(others[at].reply(), b"");
    }
    // All others, and then itself, which still gets the answer.
    assert_eq!(killer.ask("CLIENT KILL TYPE normal"), ":2\r\n");
    assert!(others[4].reply().is_empty() && others[5].reply().is_empty());
    let own = number(&mut killer);
    assert_eq!(killer.ask(&format!("CLIENT KILL ID {own}")), ":0\r\n", "it is spared");
    assert_eq!(killer.ask(&format!("CLIENT KILL ID {own} SKIPME no")), ":1\r\n");
    assert_eq!(killer.reply(), b"");
    assert_eq!(Client::connect(&gateway).ask("PING"), "+PONG\r\n");
}

#[test]
fn paused_commands_wait_on_all_connections() {
    let gateway = start();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&gateway)).collect();
    assert_eq!(clients[0].ask("CLIENT PAUSE 600000 WRITE"), "+OK\r\n");
    for client in &mut clients {
        assert_eq!(client.ask("GET a"), "$-1\r\n", "reads go on");
        client.send(b"INCR a\r\nGET a\r\n");
        client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut byte = [0];
        std::io::Read::read(&mut client.0, &mut byte).unwrap_err();
        client.0.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let mut other = Client::connect(&gateway);
    assert_eq!(other.ask("CLIENT UNPAUSE"), "+OK\r\n");
    let mut found: Vec<Vec<u8>> = clients.iter_mut().map(Client::reply).collect();
    found.sort();
    assert_eq!(found, [b":1\r\n", b":2\r\n", b":3\r\n", b":4\r\n"]);
    clients.iter_mut().for_each(|client| assert_eq!(client.reply()[0], b'$'));

    // A second pause ends and loosens no earlier one.
    assert_eq!(other.ask("CLIENT PAUSE 600000 ALL"), "+OK\r\n");
    assert_eq!(other.ask("CLIENT PAUSE 1 WRITE"), "+OK\r\n");
    clients[0].send(b"GET a\r\n");
    clients[0].0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    std::io::Read::read(&mut clients[0].0, &mut [0]).unwrap_err();
    clients[0].0.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(other.ask("CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(clients[0].reply()[0], b'$');

    // All commands; it is over by itself.
    let began = Instant::now();
    assert_eq!(other.ask("CLIENT PAUSE 300"), "+OK\r\n");
    assert_eq!(clients[1].ask("GET a"), "$1\r\n4\r\n");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[test]
fn slow_commands_are_listed_with_their_keys() {
    let batch = GatewayConfig { transactions: Transactions::Batch, ..config() };
    let gateway = FakeRack::default().start(batch);
    let mut client = Client::connect(&gateway);
    client.ask("CLIENT SETNAME me");
    assert_eq!(client.ask("CONFIG SET slowlog-log-slower-than 0"), "+OK\r\n");
    client.ask("SLOWLOG RESET");
    client.ask("SET key value");
    client.ask("MGET one two");
    client.ask(&format!("GET {}", "k".repeat(200)));
    assert_eq!(client.ask("SLOWLOG LEN"), ":3\r\n");
    let entries = client.ask("SLOWLOG GET 2");
    let long = format!("$147\r\n{}... (72 more bytes)\r\n", "k".repeat(128));
    assert!(entries.starts_with("*2\r\n*6\r\n:2\r\n:"), "{entries}");
    assert!(entries.contains(&format!("*2\r\n$3\r\nget\r\n{long}")), "{entries}");
    assert!(entries.contains("*2\r\n$4\r\nmget\r\n$3\r\none\r\n"), "{entries}");
    assert!(entries.ends_with("$2\r\nme\r\n") && !entries.contains("value"), "{entries}");
    assert_eq!(client.ask("CONFIG SET slowlog-max-len 1"), "+OK\r\n");
    assert_eq!(client.ask("SLOWLOG LEN"), ":1\r\n");
    assert_eq!(client.ask("CONFIG SET slowlog-log-slower-than -1"), "+OK\r\n");
    client.ask("GET other");
    assert!(client.ask("SLOWLOG GET").contains("more bytes"), "nothing is slow now");
}

#[test]
fn connections_are_listed_by_number_and_type() {
    let gateway = start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&gateway)).collect();
    let mut numbers: Vec<String> = clients.iter_mut().map(number).collect();
    numbers.sort();
    let mut listed = |what: &str| {
        let text = clients[0].ask(&format!("CLIENT LIST{what}"));
        let numbers = text.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
        numbers.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed(""), numbers);
    assert_eq!(listed(" TYPE normal"), numbers);
    assert!(listed(" TYPE pubsub").is_empty());
    let [first, _, third] = &numbers[..] else { panic!("{numbers:?}") };
    assert_eq!(listed(&format!(" ID {third} {first} 99")), [third.clone(), first.clone()]);
}

#[test]
fn connections_that_say_nothing_are_closed_after_the_timeout() {
    let gateway = start();
    let mut client = Client::connect(&gateway);
    let [mut silent, mut watching] = [Client::connect(&gateway), Client::connect(&gateway)];
    let watching_number = number(&mut watching);
    assert_eq!(watching.ask("MONITOR"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET timeout 1"), "+OK\r\n");
    silent.ask("PING");
    let began = Instant::now();
    silent.0.set_nonblocking(true).unwrap();
    // It has sent a part of a command only, which counts, too.
    silent.send(b"PI");
    let is_open = |silent: &mut Client| {
        std::io::Read::read(&mut silent.0, &mut [0; 16])
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    while is_open(&mut silent) {
        assert_eq!(client.ask("PING"), "+PONG\r\n");
        assert!(began.elapsed() < PATIENCE, "it is still open");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
    let listed = client.ask(&format!("CLIENT LIST ID {watching_number}"));
    assert!(listed.contains(&format!("id={watching_number} ")), "a monitor stays: {listed}");
}

#[test]
fn connections_are_as_many_as_were_set_up_to_the_configured_number() {
    let gateway = FakeRack::default().start(GatewayConfig { max_clients: 3, ..config() });
    let mut client = Client::connect(&gateway);
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - max_clients \
        in [gateway] of rack.toml, and the files that the process may open, allow 3\r\n";
    assert_eq!(client.ask("CONFIG SET timeout 5 maxclients 4"), failed);
    assert_eq!(client.ask("CONFIG GET timeout"), "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    let mut others = vec![Client::connect(&gateway)];
    assert_eq!(others[0].ask("PING"), "+PONG\r\n");
    let full = b"-ERR max number of clients reached\r\n";
    for (most, is_taken) in [(1, false), (2, false), (3, true)] {
        assert_eq!(client.ask(&format!("CONFIG SET maxclients {most}")), "+OK\r\n");
        assert!(client.ask("INFO clients").contains(&format!("maxclients:{most}\r\n")));
        let mut next = Client::connect(&gateway);
        if is_taken {
            assert_eq!(next.ask("PING"), "+PONG\r\n");
        } else {
            assert_eq!(next.reply(), full);
        }
        others.push(next);
    }
    assert_eq!(others[0].ask("PING"), "+PONG\r\n", "those that are there stay");
}

#[test]
fn what_can_not_be_set_is_refused_with_the_reason() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    let all = client.ask("CONFIG GET *");
    let mut words = all.lines().skip(2).step_by(2);
    let mut fixed = Vec::new();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let same = client.call(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()]);
        let is_immutable = String::from_utf8_lossy(&same).contains("can't set immutable config");
        assert!(is_immutable == (name == "databases"), "{name}");
        if client.ask(&format!("CONFIG SET {name} nonsense")).contains("can't be set: ") {
            fixed.push(name.to_owned());
        }
    }
    let wanted = [
        "appendfsync",
        "appendonly",
        "bind",
        "client-output-buffer-limit",
        "client-query-buffer-limit",
        "maxmemory",
        "maxmemory-clients",
        "maxmemory-policy",
        "port",
        "proto-max-bulk-len",
        "save",
        "tls-port",
    ];
    assert_eq!(fixed, wanted);
    assert_eq!(
        client.ask("CONFIG SET maxmemory-policy allkeys-lru"),
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - can't be set: \
         nodes keep all records, and evict none\r\n"
    );
}

/// The integers of a reply, in their order.
fn integers(reply: &str) -> Vec<u64> {
    reply.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect()
}

#[test]
fn slow_moments_are_kept_by_event() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    // A command that the rack answers after more than 30 ms.
    let slow = |client: &mut Client, command: &str| {
        rack.set(|knobs| knobs.silent = true);
        client.send(format!("{command}\r\n").as_bytes());
        std::thread::sleep(Duration::from_millis(30));
        rack.set(|knobs| knobs.silent = false);
        client.reply();
    };
    slow(&mut client, "GET a");
    assert_eq!(client.ask("LATENCY LATEST"), "*0\r\n", "the threshold is 0");
    assert!(client.ask("LATENCY DOCTOR").contains("isn't monitored."));
    assert_eq!(client.ask("CONFIG SET latency-monitor-threshold 20"), "+OK\r\n");
    assert!(client.ask("LATENCY DOCTOR").contains("No command took 20 ms or more."));
    let before_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    slow(&mut client, "GET a");
    assert!(client.ask("SET k v").starts_with('+'), "one that isn't slow");
    slow(&mut client, "MGET a b");
    slow(&mut client, "SET k v");
    let latest = client.ask("LATENCY LATEST");
    let parts: Vec<&str> = latest.split("*4\r\n").collect();
    assert_eq!(parts.len(), 3, "{latest}");
    assert!(parts[1].starts_with("$7\r\ncommand\r\n:"), "{latest}");
    assert!(parts[2].starts_with("$12\r\nfast-command\r\n:"), "{latest}");
    let [second, last_ms, max_ms] = integers(parts[2])[..] else { panic!("{latest}") };
    assert!(second >= before_s.as_secs() && second <= before_s.as_secs() + 60, "{latest}");
    assert!((20..=max_ms).contains(&last_ms), "{latest}");
    let history = integers(&client.ask("LATENCY HISTORY fast-command"));
    assert_eq!(history[history.len() - 2..], [second, last_ms]);
    let told = client.ask("LATENCY DOCTOR");
    assert!(told.contains("\ncommand: ") && told.contains(" worst of all "), "{told}");
    let graph = "-ERR 'latency|graph' is not supported by Switchback: it draws no graph\r\n";
    assert_eq!(client.ask("LATENCY GRAPH command"), graph);
    assert_eq!(client.ask("LATENCY RESET command nosuch"), ":1\r\n");
    assert_eq!(client.ask("LATENCY RESET"), ":1\r\n");
    assert_eq!(client.ask("LATENCY LATEST"), "*0\r\n");
}

#[test]
fn times_are_counted_by_command() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    for _ in 0..7 {
        client.ask("SET k v");
    }
    client.ask("PING");
    assert_eq!(client.ask("LATENCY HISTOGRAM get nosuch"), "*0\r\n");
    let reply = client.ask("LATENCY HISTOGRAM get SET nosuch");
    let head = "*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:7\r\n$14\r\nhistogram_usec\r\n*";
    assert!(reply.starts_with(head), "{reply}");
    let numbers = integers(&reply);
    let (bounds, counts): (Vec<u64>, Vec<u64>) =
        numbers[1..].chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    assert!(bounds.is_sorted() && bounds.iter().all(|bound| bound.is_power_of_two()), "{reply}");
    assert!(counts.is_sorted() && counts.last() == Some(&7), "{reply}");
    client.ask("HELLO 3");
    let reply = client.ask("LATENCY HISTOGRAM");
    assert!(reply.starts_with('%') && reply.contains("\r\n%2\r\n$5\r\ncalls\r\n"), "{reply}");
    for name in ["ping", "set", "latency", "hello"] {
        assert!(reply.contains(&format!("\r\n{name}\r\n")), "{name}: {reply}");
    }
}

/// Under "refuse", commands on several keys are refused, those on one key are not.
#[test]
fn commands_on_several_keys_need_the_setting() {
    let gateway = start();
    let mut client = Client::connect(&gateway);
    for command in ["MSETNX a 1 b 2", "RENAME a b", "RENAMENX a b", "COPY a b", "BITOP AND a a b"] {
        let reply = client.ask(command);
        assert!(reply.starts_with("-ERR no write spans several keys"), "{command}: {reply}");
        assert!(reply.contains("transactions = \"batch\""), "{command}: {reply}");
    }
    assert_eq!(client.ask("MSETNX a 1"), ":1\r\n");
    assert_eq!(client.ask("MSETNX a 2 a 3"), ":0\r\n");
    assert_eq!(client.ask("BITOP NOT a a"), ":1\r\n");
    assert_eq!(client.ask("RENAME a a"), "+OK\r\n");
    assert_eq!(client.ask("EXISTS b"), ":0\r\n");
}

/// A script that writes one of its keys is exact in that one, whatever runs meanwhile.
#[test]
fn a_script_of_several_keys_loses_no_write_of_the_first() {
    let batch = GatewayConfig { transactions: Transactions::Batch, ..config() };
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.try_start(batch, 2).unwrap();
    const EACH: usize = 200;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = Client::connect(&gateway);
            scope.spawn(move || {
                let script = "redis.call('get',KEYS[2])return(redis.call('incr',KEYS[1]))";
                for _ in 0..EACH {
                    let reply = client.ask(&format!("EVAL {script} 2 counter other"));
                    assert!(reply.starts_with(':'), "{reply}");
                }
            });
        }
    });
    let total = format!(":{}\r\n", 4 * EACH + 1);
    assert_eq!(Client::connect(&gateway).ask("INCR counter"), total);
    let mut client = Client::connect(&gateway);
    let keys: Vec<String> = (0..1001).map(|at| format!("k{at}")).collect();
    let reply = client.ask(&format!("EVAL return(1) 1001 {}", keys.join(" ")));
    assert_eq!(reply, "-ERR a script has at most 1000 keys\r\n");
}
