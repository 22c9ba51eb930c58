//! Compiles the pipeline for the kernel. Without a clang that can, the crate builds all the same,
//! and says so when it is asked to load.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest clang whose BPF backend takes the pipeline.
const CLANG_MIN: u32 = 15;
/// The only one whose memory order datapath/platform.h implements for BPF; libbpf calls it x86.
const ARCHITECTURE: &str = "x86_64";

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let objects = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let source = manifest.join("../../datapath");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rustc-check-cfg=cfg(has_object)");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    if architecture != ARCHITECTURE {
        // (The loader says so, too.)
        println!(
            "cargo::warning=the kernel datapath is for {ARCHITECTURE} only: it is left out for {architecture}"
        );
        return;
    }
    match clang() {
        Some(clang) => {
            for name in ["xdp.bpf", "measure.bpf"] {
                compile(
                    &clang,
                    &source.join(name).with_extension("bpf.c"),
                    &objects.join(name).with_extension("bpf.o"),
                );
            }
            println!("cargo::rustc-cfg=has_object");
        }
        None => {
            // One may be installed later. Where there is one, a change of PATH compiles nothing
            // anew.
            println!("cargo::rerun-if-env-changed=PATH");
            println!(
                "cargo::warning=no clang {CLANG_MIN} or newer: the kernel datapath is left out"
            );
        }
    }
}

/// The newest clang there is.
fn clang() -> Option<String> {
    let names = (CLANG_MIN..=24)
        .rev()
        .map(|version| format!("clang-{version}"))
        .chain(["clang".to_owned()]);
    names.into_iter().find(|name| {
        let version = Command::new(name)
            .arg("-dumpversion")
            .output()
            .ok()
            .filter(|output| output.status.success());
        let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let major = text.and_then(|text| text.split('.').next()?.trim().parse::<u32>().ok());
        major.is_some_and(|major| major >= CLANG_MIN)
    })
}

fn compile(clang: &str, source: &Path, object: &Path) {
    let mut command = Command::new(clang);
    command.args([
        "-target",
        "bpf",
        "-D__TARGET_ARCH_x86",
        "-mcpu=v3",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    // libbpf's headers come with libbpf-sys; those of Linux are in the directory of the machine's
    // architecture on Debian.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    command
        .arg(format!("-I/usr/include/{ARCHITECTURE}-linux-gnu"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object);
    let status = command.status().unwrap_or_else(|error| panic!("{clang}: {error}"));
    assert!(status.success(), "{clang} can't compile {} for the kernel", source.display());
}
