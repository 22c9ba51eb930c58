//! Golden messages (`tests/config/*.toml` beside `*.expected`), the example, and properties.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;
use switchback_wire::Scheme;

fn parse(text: &str) -> Result<RackConfig, ConfigError> {
    RackConfig::parse(text, "rack.toml", Path::new(""), &Overrides::default())
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

/// The example of commit 447d43a, which names every setting of then: each still means the same. Of
/// how keys are counted, and when nodes sync, it says what was usual then.
#[test]
fn the_example_of_an_older_version_gives_the_same_racks() {
    let was = std::fs::read_to_string(data().join("447d43a/rack.toml")).unwrap();
    let counted_as_then = |mut config: RackConfig| {
        (config.cache.threshold, config.cache.sampling) = (20, 0.5);
        config
    };
    let mut synced_as_then = RackConfig::default();
    synced_as_then.nodes.iter_mut().for_each(|node| node.sync = SyncChoice::Always);
    assert_eq!(parse(&was).unwrap(), counted_as_then(synced_as_then));
    assert_eq!(distributed_part(&was), counted_as_then(distributed_part(EXAMPLE)));
}

/// Every file of `tests/config` gives exactly the text beside it. `UPDATE_EXPECTED=1` rewrites it,
/// to be read before it is committed.
#[test]
fn messages_are_as_expected() {
    let mut seen = 0;
    for entry in std::fs::read_dir(data()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        seen += 1;
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
        let found = match RackConfig::parse(&text, name, &base, &Overrides::default()) {
            Ok(_) => "fine\n".to_owned(),
            Err(error) => format!("{error}\n").replace(base.to_str().unwrap(), "DIR"),
        };
        let expected = file.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, &found).unwrap();
        }
        assert_eq!(found, std::fs::read_to_string(&expected).unwrap_or_default(), "{name}");
    }
    assert!(seen >= 5, "the golden files are gone");
}

#[test]
fn nothing_is_the_default_rack() {
    let config = parse("").unwrap();
    assert_eq!(config, RackConfig::default());
    assert_eq!(config.shape, Shape::Embedded);
    assert_eq!(config.nodes.len(), 4);
    assert_eq!(config.nodes[3].data, Path::new("switchback-data/node-3"));
    assert_eq!(config.gateway.resp.to_string(), "127.0.0.1:6380");
    assert_eq!(config.rack.metrics.to_string(), "127.0.0.1:9464");
    assert_eq!(config.rack.scheme, Scheme::FarReach);
}

#[test]
fn the_example_says_the_defaults() {
    assert_eq!(parse(EXAMPLE).unwrap(), RackConfig::default());
    // With its optional keys as well: all but the password are what they would be anyway, in an
    // embedded rack.
    let embedded = EXAMPLE.split("# A distributed rack").next().unwrap();
    let optional = |line: &&str| {
        let key =
            line.strip_prefix("# ").and_then(|line| line.split_once(" = ")).map(|(key, _)| key);
        key.is_some_and(|key| ["classes", "data", "spool"].contains(&key))
    };
    assert_eq!(embedded.lines().filter(optional).count(), 3);
    let uncommented: Vec<_> = embedded
        .lines()
        .map(|line| if optional(&line) { line.trim_start_matches("# ") } else { line })
        .collect();
    assert_eq!(parse(&uncommented.join("\n")).unwrap(), RackConfig::default());
}

/// An example's distributed rack, which it has in comments.
fn distributed_part(example: &str) -> RackConfig {
    let heads = ["others are spares.\n", "others stand by.\n"];
    let (embedded, distributed) = heads.iter().find_map(|head| example.split_once(head)).unwrap();
    let distributed = distributed.replace("\n# ", "\n").replace("\n#\n", "\n\n");
    parse(&format!(
        "{}\n{}",
        embedded.replace("count = 4", ""),
        distributed.trim_start_matches("# ")
    ))
    .unwrap()
}

#[test]
fn the_examples_distributed_part_is_right() {
    let config = distributed_part(EXAMPLE);
    assert_eq!(
        (config.shape, config.switches.len(), config.nodes.len()),
        (Shape::Distributed, 2, 2)
    );
    assert_eq!(config.nodes[1].sync, SyncChoice::None);
    assert_eq!(config.nodes[1].data, Path::new("switchback-data/node-1"));
}

/// Every key that the parser knows is in the example and in the documentation.
#[test]
fn every_key_is_documented() {
    let text = "[rack]\nqqqqqqqq=1\n[cache]\nqqqqqqqq=1\n[controller]\nqqqqqqqq=1\n\
                [nodes]\nqqqqqqqq=1\n[gateway]\nqqqqqqqq=1\n\
                [client]\nqqqqqqqq=1\n[console]\nqqqqqqqq=1\n[links]\nqqqqqqqq=1\n\
                [topology]\nqqqqqqqq=1\n[[switch]]\nqqqqqqqq=1\n[[node]]\nqqqqqqqq=1\n";
    let error = parse(text).unwrap_err();
    let book = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run/configuration.md"),
    )
    .unwrap();
    let mut sections = 0;
    for problem in error.problems.iter().filter(|problem| problem.message.contains("qqqqqqqq")) {
        let (_, keys) = problem.message.split_once("; it has ").unwrap();
        sections += 1;
        for key in keys.split(", ") {
            let keyed =
                |line: &str| line.trim_start_matches(['#', ' ']).starts_with(&format!("{key} = "));
            assert!(EXAMPLE.lines().any(keyed), "{key} is missing in example.toml");
            assert!(
                book.contains(&format!("`{key}`")),
                "{key} is missing in docs/run/configuration.md"
            );
        }
    }
    assert_eq!(sections, 11);
}

#[test]
fn the_command_line_wins() {
    let overrides = Overrides {
        scheme: Some(Scheme::NoCache),
        nodes: Some(7),
        data: Some("/tmp/elsewhere".into()),
        resp: Some("127.0.0.1:0".parse().unwrap()),
        metrics: Some("127.0.0.1:0".parse().unwrap()),
        durability: Some(Durability::Memory),
        password: Some("secret".into()),
        links: Some(LinkKind::Udp),
        cache_records: Some(1000),
        sync: Some(SyncChoice::None),
        workers: Some(2),
        chains: Some(3),
        layers: Some(1),
        replication: Some(1),
    };
    let text = "[rack]\nscheme = 'netcache'\nreplication = 3\ndata = 'here'\n[cache]\nclasses = [[64, 10]]\n\
                [gateway]\npassword = 'other'";
    let config = RackConfig::parse(text, "rack.toml", Path::new("/etc"), &overrides).unwrap();
    assert_eq!(config.rack.scheme, Scheme::NoCache);
    assert_eq!((config.nodes.len(), config.rack.replication), (7, 1));
    assert_eq!(config.nodes[6].data, Path::new("/tmp/elsewhere/node-6"));
    assert_eq!(config.nodes[6].sync, SyncChoice::None);
    assert_eq!(config.controller.data, Path::new("/tmp/elsewhere/controller"));
    assert_eq!((config.gateway.resp.port(), config.rack.metrics.port()), (0, 0));
    assert_eq!(config.gateway.password.as_deref(), Some("secret"));
    assert_eq!((config.gateway.durability, config.gateway.workers), (Durability::Memory, 2));
    assert_eq!((config.links.kind, config.topology.chains), (LinkKind::Udp, 3));
    assert_eq!((config.cache.records, config.cache.classes[0]), (1000, (128, 1000)));
}

/// Fails if a rack in one process promises more or less of its nodes than of its gateway, or one of
/// several less than it did.
#[test]
fn nodes_of_one_process_sync_as_the_gateway_promises() {
    let sync = |text: &str| parse(text).unwrap().nodes[0].sync;
    for (durability, follows) in [
        ("always", SyncChoice::Always),
        ("everysec", SyncChoice::EverySec),
        ("memory", SyncChoice::None),
    ] {
        let gateway = format!("[gateway]\ndurability = \"{durability}\"\n");
        assert_eq!(sync(&gateway), follows);
        assert_eq!(sync(&format!("{gateway}[nodes]\nsync = \"always\"")), SyncChoice::Always);
    }
    assert_eq!(distributed_part(EXAMPLE).nodes[0].sync, SyncChoice::Always);
}

#[test]
fn the_command_line_is_checked_too() {
    let wrong = |overrides: Overrides| RackConfig::load(None, &overrides).unwrap_err().to_string();
    let nodes = wrong(Overrides { nodes: Some(300), ..Overrides::default() });
    assert_eq!(
        nodes,
        "the command line: 300 nodes share 256 partitions; make it at least 512 ([rack] partitions)"
    );
    let workers = wrong(Overrides { workers: Some(5000), ..Overrides::default() });
    assert_eq!(
        workers,
        "the command line: --workers 5000 is out of range; it is an integer from 0 to 256"
    );
    let same = Some("127.0.0.1:7000".parse().unwrap());
    let clash = wrong(Overrides { resp: same, metrics: same, ..Overrides::default() });
    assert!(
        clash.contains("[gateway] resp = \"127.0.0.1:7000\" is taken by [rack] metrics"),
        "{clash}"
    );
    let open =
        wrong(Overrides { resp: Some("0.0.0.0:6380".parse().unwrap()), ..Overrides::default() });
    assert!(open.contains("without a password"), "{open}");
    let said = Overrides {
        resp: Some("0.0.0.0:6380".parse().unwrap()),
        password: Some(String::new()),
        ..Overrides::default()
    };
    assert!(RackConfig::load(None, &said).is_ok(), "an empty password is a decision");
}

/// Fails if a reply may be longer than places in it can say.
#[test]
fn replies_have_at_most_4095_mib() {
    let mb = |mb: u32| parse(&format!("[gateway]\nunread_max_mb = {mb}\nbuffers_max_mb = 8192"));
    assert_eq!(mb(4095).unwrap().gateway.unread_max_mb, 4095);
    let error = mb(4096).unwrap_err().to_string();
    assert!(error.contains("out of range; it is an integer from 2 to 4095"), "{error}");
}

/// Fails if a file that was cut off counts as the wish for no password: the gateway would let
/// clients of other machines in.
#[test]
fn an_empty_password_is_a_decision_and_an_empty_file_a_mistake() {
    let config = parse("[gateway]\nresp = '0.0.0.0:6380'\npassword = ''").unwrap();
    assert_eq!(config.gateway.password.as_deref(), Some(""));
    assert_eq!(config.shown()["gateway"]["has_password"], false);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.toml");
    std::fs::write(&file, "[gateway]\npassword_file = 'pw'").unwrap();
    for (bytes, why) in [
        (&b""[..], "has no password: it is empty"),
        (b"\n", "has no password: it is empty"),
        (b"secret\xff\n", "isn't UTF-8, as a password has to be"),
    ] {
        std::fs::write(directory.path().join("pw"), bytes).unwrap();
        let error = RackConfig::load(Some(&file), &Overrides::default()).unwrap_err().to_string();
        assert!(error.contains("[gateway] password_file: ") && error.contains(why), "{error}");
    }
}

#[test]
fn relative_paths_start_at_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.toml");
    std::fs::write(&file, "[rack]\ndata = 'd'\n[gateway]\npassword_file = 'pw'").unwrap();
    std::fs::write(directory.path().join("pw"), "secret\n").unwrap();
    let config = RackConfig::load(Some(&file), &Overrides::default()).unwrap();
    assert_eq!(config.nodes[0].data, directory.path().join("d/node-0"));
    assert_eq!(config.gateway.password.as_deref(), Some("secret"));
}

#[test]
fn what_is_no_text_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.toml");
    let load = || RackConfig::load(Some(&file), &Overrides::default()).unwrap_err().to_string();
    assert!(
        load().ends_with(
            "no such file; `switchback config example > rack.toml` writes one to start from"
        ),
        "{}",
        load()
    );
    std::fs::write(&file, b"[rack]\nname = '\xff'").unwrap();
    assert!(load().contains("not UTF-8 from byte 15 on"), "{}", load());
    std::fs::write(&file, vec![b'#'; 2 << 20]).unwrap();
    assert!(load().contains("too many bytes for a rack.toml"), "{}", load());
}

/// Neither has a length that could be asked for.
#[test]
fn files_without_an_end_are_refused() {
    let endless = RackConfig::load(Some(Path::new("/dev/zero")), &Overrides::default())
        .unwrap_err()
        .to_string();
    assert!(endless.contains("too many bytes for a rack.toml"), "{endless}");
    let endless = parse("[gateway]\npassword_file = '/dev/zero'").unwrap_err().to_string();
    assert!(endless.starts_with("rack.toml:2:17: the password of [gateway]"), "{endless}");
}

/// Two keys contradict each other, one of them by its default: the mistake is where the file says
/// something.
#[test]
fn contradictions_have_the_place_of_the_key_that_is_there() {
    for (text, expected) in [
        ("[client]\ndeadline_ms = 100", "2:15: [client] retry_ms = [10, 500]"),
        ("[rack]\nheartbeat_ms = 1000", "2:16: [rack] switch_timeout_ms = 500"),
        ("[rack]\nswitch_timeout_ms = 60000\nheartbeat_ms = 5000", "3:16: [rack] lease_ms = 5000"),
        ("[controller]\nlanes = 100", "2:9: [client] lanes = 1024"),
        ("[nodes]\ncount = 500", "2:9: 500 nodes share 256 partitions"),
        ("[gateway]\nbuffers_max_mb = 100", "2:18: [gateway] unread_max_mb = 256"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(
            error.lines().any(|line| line.starts_with(&format!("rack.toml:{expected}"))),
            "{text}: {error}"
        );
    }
}

/// What changes in the example: one byte, one line.
fn mutated() -> impl Strategy<Value = String> {
    let lines = EXAMPLE.lines().count();
    let words = prop::sample::select(vec![
        "",
        "[",
        "[[node]]",
        "=",
        "-1",
        "1e999",
        "\"",
        "[[1,2]]",
        "'''",
        "\u{1F980}",
        "0x",
        "{}",
    ]);
    prop::collection::vec((0..lines, 0..80usize, words, any::<bool>()), 1..6).prop_map(|edits| {
        let mut lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
        for (at, column, word, insert) in edits {
            let line = &mut lines[at];
            let column = (0..=column.min(line.len()))
                .rev()
                .find(|&column| line.is_char_boundary(column))
                .unwrap_or(0);
            if insert {
                line.insert_str(column, word);
            } else {
                line.truncate(column);
                line.push_str(word);
            }
        }
        lines.join("\n")
    })
}

fn survives(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = parse(text) {
        prop_assert!(!error.problems.is_empty());
        let lines = text.lines().count() + 1;
        prop_assert!(error.problems.iter().all(|problem| problem.line <= lines.max(1)), "{error}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,400}") {
        survives(&text)?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_mutation_is_read_or_refused(text in mutated()) {
        survives(&text)?;
    }

    #[test]
    fn any_number_is_read_or_refused(key in prop::sample::select(vec![
        "[rack]\npartitions", "[rack]\nheartbeat_ms", "[rack]\nlease_ms", "[cache]\nrecords", "[cache]\nsketch_width",
        "[nodes]\ncount", "[client]\nlanes", "[gateway]\nmax_clients",
    ]), value in any::<i128>(), small in 0..100_000u32) {
        survives(&format!("{key} = {value}"))?;
        survives(&format!("{key} = {small}"))?;
    }

    #[test]
    fn any_classes_are_read_or_refused(
        classes in prop::collection::vec((any::<u32>(), any::<u32>()), 0..6),
    ) {
        let classes = classes.iter().map(|&(a, b)| [a, b]).collect::<Vec<_>>();
        survives(&format!("[cache]\nclasses = {classes:?}"))?;
    }
}

/// Deep nesting and long keys must not take the stack, or time that grows faster than they do: then
/// this would take hours.
#[test]
fn hostile_files_are_refused() {
    let deep = format!("x = {}", "[".repeat(200_000));
    assert!(parse(&deep).is_err());
    let long = format!("{} = 1", "k".repeat(500_000));
    assert!(parse(&long).is_err());
    let dotted = format!("{} = 1", vec!["a"; 100_000].join("."));
    assert!(parse(&dotted).is_err());
}

/// Every key of the example is among the settings that are shown, but for secrets and those that
/// say the same of all nodes.
#[test]
fn every_setting_is_shown() {
    let config = distributed_part(EXAMPLE);
    let shown = config.shown();
    let mut section = String::new();
    let mut keys = 0;
    for line in EXAMPLE.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        if line.starts_with('[') && line.ends_with(']') {
            section = line.trim_matches(['[', ']']).replace("nodes", "node");
            continue;
        }
        let key = line.split_once(" = ").map(|(key, _)| key);
        let is_key = |key: &&str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let Some(key) = key.filter(is_key) else { continue };
        if ["count", "password", "password_file"].contains(&key) {
            continue;
        }
        keys += 1;
        let of = shown[&section].get(0).unwrap_or(&shown[&section]);
        assert!(of.get(key).is_some(), "[{section}] {key} isn't shown: {of}");
    }
    assert!(keys > 60, "{keys}");
    let secret = parse("[gateway]\npassword = \"hunter2\"").unwrap().shown();
    assert!(!secret.to_string().contains("hunter2"));
    assert_eq!(secret["gateway"]["has_password"], true);
}

#[test]
fn who_protects_what_the_cache_tells_follows_from_scheme_layers_and_domains() {
    let protection =
        |text: &str| parse(text).unwrap_or_else(|error| panic!("{error}")).protection();
    let switches = |domains: [&str; 2], more: &str| {
        let switch = |(at, domain): (usize, &str)| {
            format!(
                "[[switch]]\naddress = \"10.0.0.{at}:7000\"\nlayer = {}\ndomain = \"{domain}\"\n",
                at + 1
            )
        };
        let switches: String = domains.into_iter().enumerate().map(switch).collect();
        format!(
            "[rack]\nscheme = \"distreach\"\n{more}[topology]\nlayers = 2\n\
             [controller]\nlisten = \"10.0.0.9:7000\"\n[gateway]\nresp = \"127.0.0.1:6380\"\n\
             {switches}[[node]]\naddress = \"10.0.0.8:7000\"\n"
        )
    };
    assert_eq!(protection(""), Protection::Clients);
    assert_eq!(protection("[rack]\nscheme = \"netcache\"\n"), Protection::Nodes);
    let embedded = "[rack]\nscheme = \"distreach\"\n[topology]\nlayers = 2\n";
    assert_eq!(protection(embedded), Protection::ClientsOfOneDomain);
    assert_eq!(protection(&switches(["a", "a"], "")), Protection::ClientsOfOneDomain);
    let both = Protection::Switches { domains: 2, and_clients: false };
    assert_eq!(protection(&switches(["a", "b"], "")), both);
    let all = Protection::Switches { domains: 2, and_clients: true };
    assert_eq!(protection(&switches(["a", "b"], "preserve = \"always\"\n")), all);
    let listed =
        |text: &str| parse(text).unwrap_or_else(|error| panic!("{error}")).listed_domains();
    assert_eq!(["", "[rack]\nscheme = \"netcache\"\n"].map(listed), [None, None]);
    assert_eq!([embedded, &switches(["a", "a"], "")].map(listed), [Some(1), Some(1)]);
    assert_eq!(listed(&switches(["a", "b"], "")), Some(2));
}
