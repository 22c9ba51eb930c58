//! `switchback bench` on real embedded racks. With values of up to 64 KiB: what is written comes
//! back, and throughput is below a limit that knows what large values take of a node.

use clap::Parser;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use switchback_bench::racks::LocalRacks;
use switchback_bench::{BenchArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// The JSON of each scheme's run; the command must succeed, which with `--verify` says that every
/// answer was right.
fn bench(line: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let json = directory.path().join("report.json");
    let always = format!(
        "bench --verify --records 400 --nodes 2 --data {} --json {}",
        directory.path().display(),
        json.display()
    );
    let args = Cli::parse_from(always.split_whitespace().chain(line.split_whitespace())).bench;
    // Racks of processes aren't asked for.
    let mut racks = LocalRacks { program: PathBuf::new() };
    assert_eq!(run(args, &mut racks).expect("it runs"), ExitCode::SUCCESS);
    let report: Value =
        serde_json::from_slice(&std::fs::read(json).expect("a report")).expect("JSON");
    let runs = report["runs"].as_array().expect("runs");
    for run in runs {
        assert!(run["verified"].as_u64() > Some(500), "{run}");
        assert_eq!((run["mismatches"].as_u64(), run["unswept"].as_u64()), (Some(0), Some(0)));
        assert_eq!(run["not_found"].as_u64(), Some(0));
    }
    runs.clone()
}

fn number(run: &Value, figure: &str) -> f64 {
    run[figure].as_f64().unwrap_or_else(|| panic!("{figure}: {run}"))
}

#[test]
fn values_of_a_byte_to_64_kib_come_back_as_they_were_written() {
    let runs = bench(
        "--value-bytes uniform:1..65536 --schemes nocache,farreach --workload f --clients 2 \
         --outstanding 16 --warmup 0.1 --seconds 0.8",
    );
    for run in &runs {
        let mean_kb = 1000.0 * number(run, "values_mb_per_s") / number(run, "requests_ops");
        assert!(mean_kb > 1.0 && mean_kb < 65.6, "a value is much longer than a packet: {mean_kb}");
    }
}

#[test]
fn what_fits_a_slot_is_cached_and_the_rest_is_its_nodes() {
    let runs = bench(
        "--value-bytes 1:1,15:1,128:4,1168:1,1169:1,65536:2 --schemes farreach --workload a \
         --preload --cache-records 400 --outstanding 16 --warmup 0.1 --seconds 0.8",
    );
    // Seven of ten lengths.
    let cached = number(&runs[0], "cached_records");
    assert!((220.0..340.0).contains(&cached), "{cached}");
    assert!((0.2..0.95).contains(&number(&runs[0], "hit_ratio")), "{}", runs[0]);
}

#[test]
fn the_limit_of_capped_nodes_counts_fragments() {
    // A read of 64 KiB is 3 requests, a write 53.
    let runs = bench(
        "--value-bytes 128:1,65536:1 --schemes nocache --workload a --zipf 0 --node-capacity 2000 \
         --outstanding 32 --warmup 0.3 --seconds 1.5",
    );
    let (ops, limit) = (number(&runs[0], "throughput_ops"), number(&runs[0], "limit_ops"));
    let all_nodes_ops = 2.0 * 2000.0;
    assert!(limit < all_nodes_ops / 10.0, "{limit}");
    // Only from above: how close a run comes to its limit depends on the machine.
    assert!(ops < 1.15 * limit, "{ops} of {limit}");
}

#[test]
fn chains_of_two_switches_have_a_cache_each() {
    let runs = bench(
        "--layers 2 --chains 2 --preload --cache-records 20 --node-capacity 2000 \
         --outstanding 32 --warmup 0.2 --seconds 1",
    );
    let figure = |name| runs.iter().map(|run| number(run, name)).collect::<Vec<_>>();
    assert_eq!(runs.len(), 3, "DistReach and its two baselines");
    assert_eq!(figure("cached_records"), [0.0, 40.0, 40.0]);
    let [nocache, distcache, distreach] = figure("limit_ops")[..] else { panic!("three limits") };
    assert!(distcache > nocache && distreach > distcache, "a limit for each scheme");
    for (ops, limit) in figure("throughput_ops").into_iter().zip(figure("limit_ops")) {
        assert!(ops < 1.15 * limit, "{ops} of {limit}");
    }
    let hits = figure("hit_ratio");
    assert!(hits[0] == 0.0 && hits[1] > 0.2 && hits[2] > 0.4, "{hits:?}");
}
