//! Redis' own tools against the gateway.

use crate::fake::{Client, FakeRack, config};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn run(tool: &str, port: u16, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(tool).args(["-p", &port.to_string()]).args(arguments).output();
    if output.is_err() {
        switchback_testing::skip(tool);
    }
    output.ok()
}

#[test]
fn redis_cli_works() {
    let gateway = FakeRack::default().start(config());
    let port = gateway.local_addr().port();
    for (arguments, wanted) in [
        (&["set", "a", "1"][..], "OK\n"),
        (&["-3", "get", "a"], "1\n"),
        (&["mget", "a", "b"], "1\n\n"),
        (&["--scan"], "a\n"),
        (&["config", "get", "databases"], "databases\n1\n"),
        (
            &["hset", "h", "f", "v"],
            "ERR 'hset' is not supported by Switchback: it stores strings only\n\n",
        ),
    ] {
        let Some(output) = run("redis-cli", port, arguments) else { return };
        assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted, "{arguments:?}");
    }
    let help = run("redis-cli", port, &["command", "docs", "get"]).unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("Returns the value of a key."));
}

#[test]
fn redis_benchmark_works() {
    let rack = FakeRack::default();
    let gateway = rack.try_start(config(), 2).unwrap();
    let port = gateway.local_addr().port();
    for more in [&["-P", "16"][..], &["-P", "1", "-3"], &["-P", "500", "-c", "3"]] {
        let arguments =
            [&["-n", "5000", "-r", "100", "-d", "128", "-t", "ping,set,get,incr,mset", "-q"], more]
                .concat();
        let Some(output) = run("redis-benchmark", port, &arguments) else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !text.contains("rror"), "{more:?}: {text}");
        assert_eq!(text.matches("requests per second").count(), 6, "{more:?}: {text}");
    }
    assert!(rack.writes() > 30_000);
}

#[test]
fn redis_cli_monitors() {
    let gateway = FakeRack::default().try_start(config(), 2).unwrap();
    let port = gateway.local_addr().port();
    let mut cli = Command::new("redis-cli");
    let cli = cli.args(["-p", &port.to_string(), "monitor"]).stdout(Stdio::piped()).spawn();
    let Ok(mut cli) = cli else { return switchback_testing::skip("redis-cli") };
    let mut lines = BufReader::new(cli.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "OK");
    let mut client = Client::connect(&gateway);
    client.ask("SET key value");
    client.ask("CLIENT LIST");
    client.ask("GET key");
    let address = client.0.local_addr().unwrap();
    for command in ["\"SET\" \"key\" \"value\"", "\"GET\" \"key\""] {
        let line = lines.next().unwrap();
        assert!(line.ends_with(&format!(" [0 {address}] {command}")), "{line}");
    }
    cli.kill().unwrap();
    cli.wait().unwrap();
}

#[test]
fn redis_cli_finds_the_hot_key() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    client.ask("MSET cold 1 hot 2 cool 3");
    for _ in 0..100 {
        client.send("GET hot\r\n".repeat(100).as_bytes());
        (0..100).for_each(|_| drop(client.reply()));
    }
    let port = gateway.local_addr().port();
    let Some(output) = run("redis-cli", port, &["--hotkeys"]) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().find(|line| line.starts_with("hot key found with counter: "));
    let found = found.unwrap_or_else(|| panic!("{text}"));
    assert!(found.contains("keyname: \"hot\"") || found.ends_with("keyname: hot"), "{text}");
}
