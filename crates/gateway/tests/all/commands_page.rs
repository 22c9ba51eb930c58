//! `docs/use/commands.md` has every command in one row, with the status that the gateway gives it.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, config};
use std::collections::{BTreeMap, BTreeSet};
use switchback_gateway::{Cluster, Gateway, GatewayConfig, Refused, Verb};

const PAGE: &str = include_str!("../../../../docs/use/commands.md");

/// What the gateway says of a subcommand that it refuses; the last two are of HOTKEYS, which Redis
/// 8.6 refuses in its own words while it counts.
const REFUSALS: [&str; 3] =
    ["not supported by Switchback", "hot keys are always counted", "hotkey tracking session"];

struct Row {
    is_refused: bool,
    note: String,
}

/// The rows of the table, by the names of their commands: "GET", "OBJECT FREQ".
fn rows() -> BTreeMap<String, Row> {
    let (_, table) = PAGE.split_once("\n| Commands | Status |").expect("the table of commands");
    let mut rows = BTreeMap::new();
    for line in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, status, note] = cells[..] else { panic!("a row has three cells: {line}") };
        if names.starts_with("**") {
            assert!(
                status.is_empty() && note.is_empty(),
                "the name of a group stands alone: {line}"
            );
            continue;
        }
        assert!(["done", "differs", "refused"].contains(&status), "an unknown status: {line}");
        assert!(status == "done" || !note.is_empty(), "how or why isn't said: {line}");
        for name in names.split(", ") {
            let row = Row { is_refused: status == "refused", note: note.to_owned() };
            assert!(rows.insert(name.to_owned(), row).is_none(), "{name} has two rows");
        }
    }
    rows
}

/// The rows of a command: its own, and those of its subcommands.
fn rows_of<'a>(rows: &'a BTreeMap<String, Row>, command: &str) -> Vec<&'a Row> {
    let is_of = |name: &str| name.split(' ').next() == Some(command);
    rows.iter().filter(|(name, _)| is_of(name)).map(|(_, row)| row).collect()
}

/// A gateway that has all subcommands of CLUSTER.
fn gateway() -> Gateway {
    FakeRack::default().start(GatewayConfig { cluster: Cluster::Emulated, ..config() })
}

#[test]
fn a_command_that_there_is_has_a_row_that_is_not_refused() {
    let rows = rows();
    for name in Verb::all().map(|verb| verb.name().to_ascii_uppercase()) {
        let found = rows_of(&rows, &name);
        assert!(!found.is_empty(), "{name} has no row");
        assert!(found.iter().any(|row| !row.is_refused), "{name} is there, but its row is refused");
        assert!(rows.get(&name).is_none_or(|row| !row.is_refused), "{name} is there");
    }
}

#[test]
fn a_refused_command_has_a_row_that_says_why() {
    let (rows, gateway) = (rows(), gateway());
    let mut client = Client::connect(&gateway);
    let is_refused = |name: &&str| Verb::from_name(name.as_bytes()).is_none() && *name != "other";
    for lower in Refused::all().map(Refused::name).filter(is_refused) {
        let name = lower.to_ascii_uppercase();
        let row = rows.get(&name).unwrap_or_else(|| panic!("{name} has no row"));
        assert!(row.is_refused, "{name} isn't there, but its row isn't refused");
        let reply = client.ask(&name);
        let begin = format!("-ERR '{lower}' is not supported by Switchback: ");
        let reason = reply.strip_prefix(&begin).unwrap_or_else(|| panic!("{name}: {reply}")).trim();
        let note = row.note.replace('`', "").to_lowercase();
        assert!(
            note.contains(&reason.to_lowercase()),
            "{name} is refused since {reason}, not: {note}"
        );
    }
    gateway.stop();
}

#[test]
fn a_row_names_commands_that_the_gateway_knows() {
    let known: Vec<_> = Refused::all().map(|name| name.name().to_ascii_uppercase()).collect();
    for name in rows().keys() {
        let command = name.split(' ').next().unwrap();
        assert!(known.iter().any(|known| known == command), "the gateway doesn't know {name}");
    }
}

/// A subcommand is refused if that is what the gateway says of it, but for a wrong number of
/// arguments.
#[test]
fn a_subcommand_is_refused_if_its_row_says_so() {
    let gateway = gateway();
    let mut client = Client::connect(&gateway);
    for (name, row) in rows().iter().filter(|(name, _)| name.contains(' ')) {
        let replies = ["", " 1", " 1 1"].map(|arguments| client.ask(&format!("{name}{arguments}")));
        let all_say = |texts: &[&str]| {
            let says = |reply: &String| texts.iter().any(|text| reply.contains(text));
            replies.iter().filter(|reply| !reply.contains("wrong number of arguments")).all(says)
        };
        assert!(!all_say(&["unknown subcommand"]), "the gateway doesn't know {name}: {replies:?}");
        assert_eq!(row.is_refused, all_say(&REFUSALS), "{name}: {replies:?}");
    }
    gateway.stop();
}

/// The subcommands that a HELP names.
fn named(help: &str) -> BTreeSet<String> {
    let line_of = |line: &str| line.strip_prefix('+').map(str::to_owned);
    let lines = help.lines().filter_map(line_of).skip(1);
    let is_explained = |line: &String| !line.starts_with([' ', '(']);
    lines.filter(is_explained).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// HELP lists what the table has and doesn't refuse, and each of them is answered.
#[test]
fn a_help_names_the_subcommands_that_are_answered() {
    let (rows, gateway) = (rows(), gateway());
    let mut client = Client::connect(&gateway);
    let commands = rows.keys().filter_map(|name| name.split_once(' ')).map(|(command, _)| command);
    for command in commands.collect::<BTreeSet<_>>() {
        let of_it = rows.iter().filter_map(|(name, row)| Some((name.split_once(' ')?, row)));
        let there = of_it.filter(|((of, _), row)| *of == command && !row.is_refused);
        let mut wanted: BTreeSet<_> = there.map(|((_, sub), _)| sub.to_owned()).collect();
        if wanted.is_empty() || Verb::from_name(command.as_bytes()).is_none() {
            continue;
        }
        // Another name of REPLICAS, which Redis' own HELP doesn't list.
        wanted.remove("SLAVES");
        let help = client.ask(&format!("{command} HELP"));
        let begin =
            format!("+{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
        assert!(help.contains(&begin), "{command}: {help}");
        assert!(help.ends_with("+HELP\r\n+    Prints this help.\r\n"), "{command}: {help}");
        assert_eq!(named(&help), wanted, "{command}");
        for sub in named(&help) {
            let reply = client.ask(&format!("{command} {sub}"));
            let is_unknown = reply.contains("unknown subcommand")
                || REFUSALS.iter().any(|text| reply.contains(text));
            assert!(!is_unknown, "{command} {sub}: {reply}");
        }
    }
    gateway.stop();
}

#[test]
fn every_command_of_redis_has_a_row() {
    let Some(redis) = Redis::start(&[]) else { return };
    let rows = rows();
    let list = redis.client().ask("COMMAND LIST").to_ascii_uppercase();
    let names: Vec<_> = list.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    assert!(names.contains(&"GET") && names.contains(&"OBJECT|FREQ"), "{list}");
    for name in names {
        let is_there = match name.split_once('|') {
            // A refused command's row is that of all its subcommands.
            Some((command, sub)) => {
                rows.contains_key(&format!("{command} {sub}"))
                    || rows.get(command).is_some_and(|row| row.is_refused)
            }
            None => !rows_of(&rows, name).is_empty(),
        };
        assert!(is_there, "{name} has no row");
    }
}
