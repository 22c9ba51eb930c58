//! Which commit the figures come from.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// What decides the figures.
const SOURCES: [&str; 5] = ["Cargo.lock", "Cargo.toml", "crates", "datapath", "lab"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        println!("cargo::rustc-env=SWITCHBACK_COMMIT=unknown");
        return;
    };
    let sources = SOURCES.map(|source| format!(":/{source}"));
    let differs = ["--no-optional-locks", "diff", "--name-only", "HEAD", "--"];
    let differing =
        git(&differs.into_iter().chain(sources.iter().map(String::as_str)).collect::<Vec<_>>());
    let changed = if differing.is_some_and(|files| files.is_empty()) { "" } else { "-dirty" };
    println!("cargo::rustc-env=SWITCHBACK_COMMIT={commit}{changed}");
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed=../../{source}"));
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
