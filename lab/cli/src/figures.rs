//! The pages with figures: every table says where it comes from, by a command that there is.

use crate::Cli;
use clap::Parser as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use switchback_bench::BenchArgs;

/// What `switchback bench` is given.
#[derive(clap::Parser)]
struct Bench {
    #[command(flatten)]
    _args: BenchArgs,
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `scripts/figures.sh` prints, and whether it succeeds.
fn figures(argument: &str) -> (bool, String) {
    let output =
        Command::new(checkout().join("scripts/figures.sh")).arg(argument).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_table_with_figures_says_where_it_comes_from() {
    let (is_right, objections) = figures("--check");
    assert!(is_right, "{objections}");
}

/// Why one command of a block's line isn't there; nothing if it is. `out` stands for OUT.
fn missing(command: &str, out: &Path) -> Option<String> {
    let is_word =
        |word: &&str| (word.starts_with('-') || !word.contains('=')) && !word.starts_with('>');
    let replaced = command.replace("OUT", out.to_str().unwrap());
    let words: Vec<&str> =
        replaced.split_whitespace().filter(is_word).filter(|word| *word != "sudo").collect();
    match words[..] {
        ["switchback", "lab", ref rest @ ..] => {
            Cli::try_parse_from([&["lab"], rest].concat()).err().map(|error| error.to_string())
        }
        ["switchback", "bench", ref rest @ ..] => {
            Bench::try_parse_from([&["bench"], rest].concat()).err().map(|error| error.to_string())
        }
        // The product's program, whose command line isn't here.
        ["switchback", "up", ..] => None,
        ["cargo", "bench", "-p", package, ..] => {
            let benches = checkout()
                .join("crates")
                .join(package.trim_start_matches("switchback-"))
                .join("benches");
            (!benches.is_dir()).then(|| format!("there is no {}", benches.display()))
        }
        ["trap" | "sleep" | "sed" | "grep", ..] => None,
        [script, ..] if script.contains('/') => {
            (!checkout().join(script).is_file()).then(|| format!("there is no {script}"))
        }
        _ => Some("it is neither the program's nor a script".to_owned()),
    }
}

#[test]
fn every_block_is_made_by_a_command_that_there_is() {
    let out = tempfile::tempdir().unwrap();
    let profile = include_str!("../../calibration/src/example.profile");
    std::fs::write(out.path().join("machine.toml"), profile).unwrap();
    let (is_listed, blocks) = figures("--list");
    assert!(is_listed && blocks.lines().count() > 10, "{blocks}");
    for block in blocks.lines() {
        let (name, rest) = block.split_once(' ').unwrap();
        let (_, line) = rest.trim_start().split_once(' ').unwrap();
        for command in line.split([';', '&', '|']).filter(|command| !command.trim().is_empty()) {
            assert_eq!(missing(command, out.path()), None, "{name}: {command}");
        }
    }
}

#[test]
fn a_command_that_there_is_not_is_told() {
    let out = Path::new("/tmp");
    for wrong in [
        "switchback lab experiment 1 --outt OUT",
        "switchback lab experimint 1",
        "switchback bench --nodess 4",
        "cargo bench -p switchback-nothing",
        "scripts/nothing.sh OUT",
        "perf stat",
    ] {
        assert!(missing(wrong, out).is_some(), "{wrong}");
    }
}
