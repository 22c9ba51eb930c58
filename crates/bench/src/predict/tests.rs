//! Predictions for traces whose answers are known.

use super::analysis::{Advice, Prediction, Rack, Way, predict};
use super::traffic::Traffic;
use super::{PredictArgs, SLOT_BYTES_MAX, overview, run, text, trace};
use crate::workload::twitter;
use clap::Parser;
use std::fmt::Write as _;
use std::io::Cursor;
use switchback_wire::Scheme;

const RACK: Rack = Rack {
    nodes: 1,
    partitions: 64,
    cache_records: 10,
    slot_bytes: SLOT_BYTES_MAX,
    node_capacity: None,
    outstanding: 256,
    seed: 1,
    maps: 1,
};

/// A trace of these operations, each with its number of repetitions: key, operation, length of the
/// value.
fn csv(operations: &[(&str, &str, u64, u32)]) -> String {
    let mut lines = String::from("key,op,value_bytes\n");
    for (key, op, value_bytes, times) in operations {
        for _ in 0..*times {
            let _ = writeln!(lines, "{key},{op},{value_bytes}");
        }
    }
    lines
}

fn traffic(lines: &str, keys_max: usize, slot_bytes: u64) -> Traffic {
    let trace = trace::read_from(&mut Cursor::new(lines), "test.csv", keys_max).unwrap();
    Traffic::of_trace("test.csv".to_owned(), trace, slot_bytes)
}

fn predicted(lines: &str, rack: Rack) -> Prediction {
    predict(&traffic(lines, 1_000_000, rack.slot_bytes.into()), rack)
}

fn gain(prediction: &Prediction, way: Way) -> f64 {
    prediction.outcome(way).gain.unwrap_or(f64::INFINITY)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn one_hot_key_that_is_written() {
    // 90 writes of one key, one read of each of ten others; one node, one record cached.
    let cold: Vec<String> = (0..10).map(|number| format!("cold{number}")).collect();
    let mut operations = vec![("hot", "set", 100, 90)];
    operations.extend(cold.iter().map(|key| (key.as_str(), "get", 100, 1)));
    let prediction = predicted(&csv(&operations), Rack { cache_records: 1, ..RACK });
    assert_eq!((prediction.operations, prediction.distinct_keys), (Some(100), 11));
    assert!(near(prediction.read_share, 0.1) && near(prediction.cacheable_share, 1.0));
    assert!(
        near(gain(&prediction, Way::ideal(Scheme::FarReach)), 10.0),
        "the node still serves 10 of 100"
    );
    assert!(
        near(gain(&prediction, Way::ideal(Scheme::NetCache)), 1.0),
        "every write goes to the node"
    );
    assert!(near(prediction.outcome(Way::ideal(Scheme::FarReach)).hit_ratio, 0.9));
    assert!(near(prediction.outcome(Way::ideal(Scheme::FarReach)).limit.unwrap(), 10.0));
    assert_eq!(prediction.verdict, Advice::WriteBack);
    // With all records cached, nodes serve no request.
    assert_eq!(prediction.steps.last().unwrap().gains[Scheme::FarReach], None);
    assert!(text::text(&prediction).contains("It will help: write-back can gain 10.00"));
}

#[test]
fn one_hot_key_that_is_read() {
    let prediction = predicted(
        &csv(&[("hot", "get", 100, 90), ("a", "get", 9, 5), ("b", "set", 9, 5)]),
        Rack { cache_records: 1, ..RACK },
    );
    for way in [
        Way::ideal(Scheme::NetCache),
        Way::closed_loop(Scheme::NetCache),
        Way::ideal(Scheme::FarReach),
    ] {
        assert!(near(gain(&prediction, way), 10.0), "{way:?}");
    }
    assert_eq!(prediction.verdict, Advice::WriteThrough);
    assert!(text::text(&prediction).contains("not much more than write-through"));
}

#[test]
fn uniform_keys() {
    // 6,400 keys, two reads and two writes each; the cache holds 64 of them, one in a hundred.
    let mut lines = String::from("key,op\n");
    for round in 0..4 {
        for key in 0..6400 {
            let _ = writeln!(lines, "key{key},{}", if round % 2 == 0 { "get" } else { "set" });
        }
    }
    let one_node = predicted(&lines, Rack { cache_records: 64, ..RACK });
    assert!(near(gain(&one_node, Way::ideal(Scheme::FarReach)), 1.0 / 0.99));
    assert!(near(gain(&one_node, Way::ideal(Scheme::NetCache)), 1.0 / 0.995));
    assert_eq!((one_node.verdict, one_node.sufficient_records), (Advice::Even, Some(0)));
    assert!(text::text(&one_node).contains("It will not help you: the load is even"));
    let loads: f64 = predicted(&lines, Rack { nodes: 4, ..RACK })
        .outcome(Way::ideal(Scheme::NoCache))
        .node_load
        .iter()
        .sum();
    assert!(near(loads, 1.0), "nodes share all requests");
}

#[test]
fn the_busiest_node_is_the_hot_keys() {
    // 500 writes of one key, 500 reads of others: 16 nodes could share these evenly, but one has
    // half and more.
    let mut lines = csv(&[("hot", "set", 10, 500)]);
    for key in 0..500 {
        let _ = writeln!(lines, "cold{key},get,10");
    }
    let prediction = predicted(&lines, Rack { nodes: 16, cache_records: 1, maps: 9, ..RACK });
    let none = prediction.outcome(Way::ideal(Scheme::NoCache));
    let busiest = none.node_load.iter().copied().fold(0.0, f64::max);
    assert!(busiest >= 0.5 && near(none.limit.unwrap(), 1.0 / busiest));
    let hottest = prediction.partition_load.iter().copied().fold(0.0, f64::max);
    assert!(
        (0.5..=busiest).contains(&hottest) && near(prediction.partition_load.iter().sum(), 1.0)
    );
    // The 500 reads are left; the busiest node of these sets the limit.
    let back = prediction.outcome(Way::ideal(Scheme::FarReach));
    let left = back.node_load.iter().copied().fold(0.0, f64::max);
    assert!(near(back.limit.unwrap(), 1.0 / left) && near(back.node_load.iter().sum(), 0.5));
    assert!(near(gain(&prediction, Way::ideal(Scheme::NetCache)), 1.0));
    assert_eq!(prediction.sufficient_records, Some(1), "one record suffices");
    let gains = back.gains.unwrap();
    assert!(
        gains.min <= back.gain.unwrap() && back.gain.unwrap() <= gains.max && gains.min > 3.0,
        "{gains:?}"
    );
}

#[test]
fn values_that_fit_no_slot() {
    let lines = csv(&[("hot", "set", 500, 90), ("small", "get", 10, 10)]);
    let large = predicted(&lines, Rack { slot_bytes: 128, ..RACK });
    assert!(
        near(large.cacheable_share, 0.1)
            && near(gain(&large, Way::ideal(Scheme::FarReach)), 1.0 / 0.9)
    );
    let lines = csv(&[("hot", "set", 500, 95), ("small", "get", 10, 5)]);
    let large = predicted(&lines, Rack { slot_bytes: 128, ..RACK });
    assert_eq!(large.verdict, Advice::TooLarge);
    assert!(
        text::text(&large)
            .contains("It will not help you: what is hot doesn't fit. Values of more than 128 B")
    );
    assert_eq!(predicted(&lines, RACK).verdict, Advice::WriteBack);
    // A key of 129 bytes fits no cache either.
    let long = csv(&[("k".repeat(129).as_str(), "set", 1, 95), ("small", "get", 10, 5)]);
    assert_eq!(predicted(&long, RACK).verdict, Advice::TooLarge);
}

#[test]
fn more_hot_keys_than_the_cache_holds() {
    // Two nodes, of which one has all of 1,000 keys that are asked for most; the cache holds ten.
    let all = traffic(&csv(&[("a", "set", 1, 1)]), 10, SLOT_BYTES_MAX.into());
    let first = |at: u64| switchback_wire::HashKey(*b"0123456789abcdef").hash(&at.to_be_bytes());
    let share = |at, share| crate::limit::KeyShare {
        hash: first(at),
        reads: 0.0,
        writes: share,
        cacheable: true,
    };
    let keys: Vec<_> = (0..1000).map(|at| share(at, 1e-3)).collect();
    let spread = predict(&Traffic { keys: keys.clone(), ..all.clone() }, Rack { nodes: 2, ..RACK });
    assert!(gain(&spread, Way::ideal(Scheme::FarReach)) < 1.1);
    let few = predict(
        &Traffic { keys: keys[..30].to_vec(), ..all },
        Rack { nodes: 64, cache_records: 0, ..RACK },
    );
    assert_eq!(
        few.verdict,
        Advice::TooMany,
        "30 keys are uneven on 64 nodes, and nothing is cached"
    );
}

#[test]
fn all_writes_all_reads_and_everything_cached() {
    for (op, through, verdict) in
        [("get", f64::INFINITY, Advice::WriteThrough), ("set", 1.0, Advice::WriteBack)]
    {
        let prediction = predicted(&csv(&[("a", op, 10, 5), ("b", op, 10, 3)]), RACK);
        assert_eq!(gain(&prediction, Way::ideal(Scheme::FarReach)), f64::INFINITY, "{op}");
        assert_eq!(gain(&prediction, Way::ideal(Scheme::NetCache)), through, "{op}");
        assert_eq!(prediction.verdict, verdict, "{op}: what leaves nodes nothing can't be outdone");
        assert!(near(prediction.outcome(Way::ideal(Scheme::FarReach)).hit_ratio, 1.0));
        assert!(text::text(&prediction).contains("all"));
        let json = serde_json::to_value(&prediction).unwrap();
        let back = json["outcomes"].as_array().unwrap().iter().find(|it| it["way"] == "write_back");
        let back = back.expect("write-back is shown");
        assert!(back["gain"].is_null() && back["hit_ratio"] == 1.0, "{json}");
    }
}

#[test]
fn more_keys_than_are_counted() {
    let mut lines = csv(&[("hot", "set", 10, 1000)]);
    for key in 0..1000 {
        let _ = writeln!(lines, "cold{key},get,10");
    }
    let rack = Rack { cache_records: 1, ..RACK };
    let (exact, bounded) =
        (predicted(&lines, rack), predict(&traffic(&lines, 100, SLOT_BYTES_MAX.into()), rack));
    assert!(near(gain(&exact, Way::ideal(Scheme::FarReach)), 2.0) && exact.notes.is_empty());
    assert!(
        near(gain(&bounded, Way::ideal(Scheme::FarReach)), 2.0),
        "the hot key was never forgotten"
    );
    assert!(
        bounded.distinct_keys == 100
            && !bounded.all_keys_counted
            && bounded.notes[0].contains("--keys-max"),
        "{:?}",
        bounded.notes
    );
}

#[test]
fn a_monitor_log_is_read_and_the_report_says_what_was_left_out() {
    let log = "OK\r\n1.0 [0 127.0.0.1:1] \"set\" \"k\" \"v\"\n\
               2.0 [0 127.0.0.1:1] \"lpush\" \"l\" \"v\"\n\
               3.0 [0 127.0.0.1:1] \"get\" \"other\"\n3.0 [0 127.0.0.1:1] \"ge";
    let traffic = traffic(log, 10, SLOT_BYTES_MAX.into());
    assert_eq!((traffic.operations, traffic.seconds), (Some(2), Some(2.0)));
    for (note, said) in traffic.notes.iter().zip([
        "33.3 % of the commands",
        "50.0 % of the requests",
        "ends within a line",
    ]) {
        assert!(note.contains(said), "{note}");
    }
    assert!(traffic.notes[0].contains("lpush 1"));
}

#[test]
fn a_csv_of_a_spreadsheet_is_read_and_a_key_is_no_comment() {
    let traffic = traffic(
        "\u{feff}# exported\r\nkey,op\r\n#tag,get\r\nplain,set\r\n\r\n#tag,get\r\n",
        10,
        SLOT_BYTES_MAX.into(),
    );
    assert_eq!((traffic.operations, traffic.distinct_keys), (Some(3), 2));
}

#[test]
fn escape_sequences_of_a_trace_do_not_reach_the_terminal() {
    for lines in ["key,op\na,\u{1b}[2Jscan\n", "key,op,value_bytes\na,get,\u{1b}[2J\n"] {
        let error =
            format!("{:#}", trace::read_from(&mut Cursor::new(lines), "t", 10).unwrap_err());
        assert!(error.contains("\\u{1b}[2J") && !error.contains('\u{1b}'), "{error:?}");
    }
    let log = "1.0 [0 a:1] \"\\x1b[2J\" \"k\"\n1.0 [0 a:1] \"get\" \"k\"\n";
    assert!(traffic(log, 10, SLOT_BYTES_MAX.into()).notes[0].contains("\\u{1b}[2j 1"));
    let long = format!("key,op\na,{}\n", "x".repeat(1000));
    let error = format!("{:#}", trace::read_from(&mut Cursor::new(long), "t", 10).unwrap_err());
    assert!(error.len() < 200, "{error}");
}

#[test]
fn mistakes_are_named_by_file_and_line() {
    for (lines, place) in [
        ("key,op\na,get\nb,scan\n", "t:3: `scan` is no operation"),
        ("OK\n1.0 [0 a:1] \"get\" \"k\"\nnonsense\n", "t:3: not a line of MONITOR"),
        ("what is this\n", "t:1: no column `key`"),
        ("", "t: no operation on a key"),
        ("key,op\n", "t: no operation on a key in 1 lines"),
    ] {
        let error =
            format!("{:#}", trace::read_from(&mut Cursor::new(lines), "t", 10).unwrap_err());
        assert!(error.starts_with(place), "{error}");
    }
}

#[test]
fn clusters_are_predicted_unless_a_figure_is_unknown() {
    let of = |number: &str, zipf| {
        Traffic::of_cluster(twitter::cluster(number).unwrap(), zipf, SLOT_BYTES_MAX.into(), 100_000)
    };
    assert!(format!("{:#}", of("5", None).unwrap_err()).contains("no figures"));
    assert!(format!("{:#}", of("43", None).unwrap_err()).contains("--zipf"));
    assert!(of("43", Some(0.9)).is_ok());
    let prediction =
        predict(&of("51", None).unwrap(), Rack { nodes: 16, cache_records: 10_000, ..RACK });
    assert!(near(prediction.read_share, 0.9) && near(prediction.cacheable_share, 1.0));
    // Zipf 1.97: the ten thousand hottest draw nearly everything, and a tenth of that are writes.
    assert!(
        gain(&prediction, Way::ideal(Scheme::FarReach))
            > 10.0 * gain(&prediction, Way::ideal(Scheme::NetCache))
    );
    assert_eq!(predict(&of("37", None).unwrap(), RACK).cacheable_share, 0.0, "values of 20 KB");
}

#[test]
fn the_overview_has_every_cluster_and_lists_where_write_back_does_not_pay() {
    let rack = Rack { nodes: 16, cache_records: 10_000, ..RACK };
    let rows = overview::overview(rack);
    let text = overview::text(&rows, &rack);
    assert!(
        text.contains("WRITE-BACK DOES NOT PAY in ") && text.contains("of the 51 clusters"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("twitter:")).count(), 54);
    for reason in [
        "of twitter:5 no figures",
        "of twitter:43 no Zipf exponent",
        "of twitter:46 no Zipf exponent",
    ] {
        assert!(text.contains(reason), "{reason}");
    }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    predict: PredictArgs,
}

#[test]
fn the_command_runs_from_file_to_json() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, json) = (directory.path().join("t.csv"), directory.path().join("t.json"));
    std::fs::write(&trace, csv(&[("a", "set", 10, 50), ("b", "get", 10, 50)])).unwrap();
    let line = |extra: &str| {
        let words =
            format!("predict --trace {} --json {} {extra}", trace.display(), json.display());
        Cli::try_parse_from(words.split_whitespace()).map(|cli| run(&cli.predict))
    };
    line("--nodes 4 --cache-records 1 --node-capacity 5,000").unwrap().unwrap();
    let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&read["rack"]["nodes"], &read["operations"]), (&4.into(), &100.into()));
    assert_eq!(read["partition_load"].as_array().unwrap().len(), 4096);
    assert!(read["outcomes"][0]["limit_ops"].as_f64().unwrap() >= 5000.0);
    for (wrong, reason) in [
        ("--partitions 100", "power of two"),
        ("--slot-bytes 0", "1..=1168"),
        ("--slot-bytes 1169", "1..=1168"),
        ("--nodes 0", "1..=1024"),
    ] {
        assert!(line(wrong).err().unwrap().to_string().contains(reason), "{wrong}");
    }
    let error = line("--zipf 0.9").unwrap().unwrap_err();
    assert!(format!("{error:#}").contains("twitter:N"), "{error:#}");
    let nowhere = ["predict", "--trace", "twitter:51", "--json", "/nowhere/t.json"];
    let error = run(&Cli::try_parse_from(nowhere).unwrap().predict).unwrap_err();
    assert!(format!("{error:#}").contains("/nowhere/t.json"), "{error:#}");
    let error = line("--nodes 9 --partitions 8").unwrap().unwrap_err();
    assert!(error.to_string().contains("make it at least 16"), "{error}");
}
