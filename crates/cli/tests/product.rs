//! What is shipped: the product, without the laboratory. (That it can't switch a mechanism off,
//! `main.rs` asserts.)

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// What belongs to the laboratory only, beside its own crates.
const DRAWING: [&str; 3] = ["plotters", "dejavu", "png"];

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Names of packages that cargo lists.
fn packages(arguments: &[&str]) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--prefix", "none"]).args(arguments);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
        .lines()
        .filter_map(|line| Some(line.split(' ').next()?.to_owned()))
        .collect()
}

#[test]
fn no_simulator_no_experiment_and_no_plotter_is_linked() {
    let linked = packages(&["--package", "switchback", "--edges", "normal"]);
    assert!(linked.iter().any(|name| name == "switchback-rack"), "{linked:?}");
    let laboratory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let crates: Vec<_> = std::fs::read_dir(laboratory)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap())
        .map(|manifest| {
            manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().replace('"', "")
        })
        .collect();
    assert!(crates.iter().any(|name| name == "switchback-sim"), "{crates:?}");
    for name in crates.iter().map(String::as_str).chain(DRAWING) {
        assert!(!linked.iter().any(|linked| linked == name), "{name} is linked");
    }
}

/// The program that is shipped has the switch's kernel programs and none that measure them.
#[test]
fn no_kernel_program_that_measures_is_shipped() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_switchback")).unwrap();
    let has = |name: &[u8]| program.windows(name.len()).any(|bytes| bytes == name);
    assert_eq!(has(b"switchback_control"), switchback_xdp::is_built_in());
    assert!(!has(b"measure_generate"));
}

/// Runs `switchback lab` as a program in a directory where there may be a laboratory, with nothing
/// else on PATH.
fn lab(laboratory: Option<&str>, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("switchback");
    std::fs::hard_link(env!("CARGO_BIN_EXE_switchback"), &program)
        .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_switchback"), &program).map(|_| ()))
        .unwrap();
    if let Some(script) = laboratory {
        let path = directory.path().join("switchback-lab");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Command::new(program).args(arguments).env("PATH", directory.path()).output().unwrap()
}

#[test]
fn the_laboratory_is_the_program_beside_this_one() {
    let output = lab(Some("echo \"$@\"; exit 7"), &["-v", "lab", "sim", "--seed", "3", "--help"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (Some(7), "--verbose sim --seed 3 --help")
    );
    let killed = lab(Some("kill -TERM $$"), &["lab"]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(15));
}

#[test]
fn a_laboratory_that_is_not_there_is_said_with_what_to_do() {
    let output = lab(None, &["lab", "sim"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("switchback-lab is neither beside") && error.contains("make build"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}
