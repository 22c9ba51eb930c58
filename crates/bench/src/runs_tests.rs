//! `switchback bench` from its arguments to its JSON, on fake racks.

use crate::cli::{BenchArgs, run};
use crate::fake::{Cheat, FakeRacks};
use clap::Parser;
use serde_json::Value;
use std::process::ExitCode;
use switchback_wire::Scheme;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Exit code and JSON of a run.
fn bench(line: &str, cheat: Option<Cheat>) -> (anyhow::Result<ExitCode>, Value, FakeRacks) {
    bench_on(line, FakeRacks { cheat, lose_every: 0, started: Vec::new() })
}

fn bench_on(line: &str, mut racks: FakeRacks) -> (anyhow::Result<ExitCode>, Value, FakeRacks) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let always =
        "--seconds 0.2 --warmup 0.02 --records 2000 --value-bytes 64 --cache-records 100 --json";
    let outstanding = if line.contains("--outstanding") { "" } else { "--outstanding 16 " };
    let always = &format!("{outstanding}{always}");
    let words =
        std::iter::once("bench").chain(line.split_whitespace()).chain(always.split_whitespace());
    let args = Cli::parse_from(words.chain([json.to_str().unwrap()])).bench;
    let code = run(args, &mut racks);
    let json = std::fs::read(json)
        .map(|json| serde_json::from_slice(&json).unwrap())
        .unwrap_or(Value::Null);
    (code, json, racks)
}

fn success(code: &anyhow::Result<ExitCode>) -> bool {
    *code.as_ref().unwrap() == ExitCode::SUCCESS
}

#[test]
fn schemes_run_in_turn_and_the_json_has_every_field() {
    let line = "--schemes nocache,farreach --preload --verify --node-capacity 5000 --repeat 2 --seed 9 --nodes 3";
    let (code, json, racks) = bench(line, None);
    assert!(success(&code));
    let started: Vec<_> = racks.started.iter().map(|(scheme, _)| *scheme).collect();
    assert_eq!(started, [Scheme::NoCache, Scheme::FarReach, Scheme::NoCache, Scheme::FarReach]);
    let options = &racks.started[0].1;
    assert_eq!(
        (options.nodes, options.seed, options.lanes, options.node_capacity_ops),
        (3, 9, 16, Some(5000.0))
    );
    assert_eq!(json["kind"], "measured");
    assert_eq!(json["arguments"]["workload"], "a");
    assert_eq!(json["runs"].as_array().unwrap().len(), 4);
    let run = &json["runs"][1];
    assert_eq!((&run["scheme"], &run["repetition"]), (&Value::from("farreach"), &Value::from(1)));
    for figure in [
        "throughput_ops",
        "limit_ops",
        "hit_ratio",
        "verified",
        "node_imbalance",
        "limit_cached_ops",
    ] {
        assert!(run[figure].as_f64().unwrap() > 0.0, "{figure} {run}");
    }
    assert_eq!((&run["mismatches"], &run["is_result"]), (&Value::from(0), &Value::from(true)));
    assert_eq!(run["node_ops"].as_array().unwrap().len(), 3);
    assert!(run["latency_us"]["read"]["cache"]["p999"].as_f64().unwrap() > 0.0);
    assert!(json["runs"][0]["latency_us"]["read"]["cache"].is_null(), "nocache caches nothing");
    assert!(json["runs"][1]["limit_ops"].as_f64() > json["runs"][0]["limit_ops"].as_f64());
    assert!(run["limit_learned_ops"].is_null(), "a preloaded cache has nothing to learn");
    let summary = &json["summary"][1];
    assert!(
        summary["throughput_ops"]["min"].as_f64() <= summary["throughput_ops"]["median"].as_f64()
    );
}

#[test]
fn wrong_answers_fail_the_command() {
    let (code, json, _) = bench("--schemes farreach --preload --verify", Some(Cheat::StaleRead));
    assert!(!success(&code));
    let run = &json["runs"][0];
    assert!(run["mismatches"].as_u64().unwrap() > 0 && run["is_result"] == false);
    assert_eq!(run["verification"]["examples"][0]["fault"], "stale");
    assert!(run["limit_ops"].is_null(), "nodes aren't capped");
}

#[test]
fn a_rate_may_be_a_share_of_the_limit() {
    let (code, json, _) =
        bench("--schemes farreach,netcache --preload --rate 50% --node-capacity 300", None);
    assert!(success(&code));
    let run = &json["runs"][0];
    let (offered, limit) =
        (run["offered_ops"].as_f64().unwrap(), run["limit_ops"].as_f64().unwrap());
    assert!((offered / limit - 0.5).abs() < 1e-6);
    assert!(
        json["runs"][1]["offered_ops"].as_f64().unwrap()
            < 0.5 * json["runs"][1]["limit_ops"].as_f64().unwrap()
    );
    for (line, reason) in [
        ("--rate 50%", "--node-capacity"),
        ("--rate 1e20% --node-capacity 300", "more than 100000000 operations"),
    ] {
        let error = format!("{:#}", bench(line, None).0.unwrap_err());
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn a_cold_run_is_also_judged_by_what_a_perfect_learner_could_have() {
    for workload in ["a", "d"] {
        let line = format!("--schemes farreach --node-capacity 1000 --workload {workload}");
        let (code, json, _) = bench(&line, None);
        assert!(success(&code));
        let run = &json["runs"][0];
        let [limit, learned, ours] = ["limit_ops", "limit_learned_ops", "throughput_ops"]
            .map(|figure| run[figure].as_f64().unwrap());
        assert!(
            learned > 0.3 * limit && learned <= limit * 1.05,
            "{workload}: {learned} of {limit}"
        );
        assert!((run["of_limit_learned"].as_f64().unwrap() - ours / learned).abs() < 1e-9);
        assert_eq!(run["limit_cached_ops"].is_null(), workload == "d", "what is hot in D moves");
    }
}

#[test]
fn each_scheme_is_measured_with_the_number_outstanding_that_it_does_best_with() {
    let line = "--schemes nocache,farreach --outstanding best --clients 2 --preload --verify";
    let (code, json, racks) = bench(line, None);
    assert!(success(&code));
    assert_eq!(json["arguments"]["outstanding"], "best");
    assert!(racks.started.iter().all(|(_, options)| options.lanes == 1024));
    for run in json["runs"].as_array().unwrap() {
        let number = |value: &Value| value.as_f64().unwrap();
        let tried: Vec<_> = run["tried"].as_array().unwrap().iter().collect();
        let outstanding: Vec<_> = tried.iter().map(|tried| number(&tried["outstanding"])).collect();
        assert_eq!(outstanding, [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]);
        let did = |tried: &&Value| number(&tried["throughput_ops"]);
        let best = tried.iter().copied().max_by(|a, b| did(a).total_cmp(&did(b))).unwrap();
        assert_eq!(run["outstanding"], best["outstanding"]);
    }
    let error = bench("--outstanding best --rate 100", None).0.unwrap_err();
    assert!(error.to_string().contains("closed loop"), "{error}");
    let (_, json, _) = bench("--schemes nocache --outstanding 8", None);
    assert_eq!(
        (&json["runs"][0]["outstanding"], &json["arguments"]["outstanding"]),
        (&8.into(), &8.into())
    );
    assert!(json["runs"][0]["tried"].as_array().unwrap().is_empty());
}

#[test]
fn a_run_with_loss_is_no_result() {
    let racks = FakeRacks { cheat: None, lose_every: 10, started: Vec::new() };
    let (code, json, _) = bench_on("--schemes nocache", racks);
    assert!(success(&code), "not fit to be cited, but nothing is broken");
    let run = &json["runs"][0];
    assert!(
        run["loss"].as_f64().unwrap() > 0.02
            && run["is_result"] == false
            && json["summary"][0]["is_result"] == false
    );
    assert!(run["objections"][0].as_str().unwrap().contains("sent again"));
}

#[test]
fn every_workload_and_a_change_of_popularity_run() {
    for line in [
        "load",
        "b",
        "c",
        "d",
        "f",
        "mix:75",
        "twitter:36",
        "c --change hot-in --change-every 0.1 --change-keys 20",
    ] {
        let line =
            format!("--schemes farreach --preload --verify --node-capacity 1000 --workload {line}");
        let (code, json, _) = bench(&line, None);
        assert!(success(&code), "{line}: {json}");
        let changes = json["runs"][0]["changes"].as_array().unwrap().len();
        assert_eq!(changes, usize::from(line.contains("change")), "{line}");
    }
}

#[test]
fn a_report_that_can_not_be_written_is_an_error_before_a_rack_starts() {
    let mut racks = FakeRacks { cheat: None, lose_every: 0, started: Vec::new() };
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("missing/report.json");
    let args =
        Cli::parse_from(["bench", "--seconds", "0.1", "--json", json.to_str().unwrap()]).bench;
    let error = format!("{:#}", run(args, &mut racks).unwrap_err());
    assert!(error.starts_with(&format!("cannot write {}: ", json.display())), "{error}");
    assert!(racks.started.is_empty());
}
