//! What building Switchback in a checkout needs.

use super::{Check, Fitness, first_line, tool, version_in};
use std::path::Path;

const BUILD: &str = "building from this checkout";
/// As in Cargo.toml.
const RUST_MIN: &str = env!("CARGO_PKG_RUST_VERSION");

/// Whether the working directory is Switchback's own repository.
pub(super) fn in_a_checkout() -> bool {
    Path::new("datapath/pipeline.h").exists() && Path::new("Cargo.toml").exists()
}

pub(super) fn checkout() -> Vec<Check> {
    vec![rust(), compiler(), libclang(), ccache()]
}

fn rust() -> Check {
    match first_line("rustc", &["--version"]) {
        Some(line) if version_in(&line) >= version_in(RUST_MIN) => {
            Check::fits(BUILD, "rustc", line)
        }
        Some(line) => {
            let found = format!("{line}; {RUST_MIN} or newer is needed");
            Check::missing(BUILD, "rustc", found, "rustup update stable")
        }
        None => {
            let mend = "`make run` prints the command that installs it";
            Check::missing(BUILD, "rustc", "not found", mend)
        }
    }
}

fn compiler() -> Check {
    let mend = "apt-get install build-essential, for RocksDB";
    tool(BUILD, "C++ compiler", "c++", Fitness::Missing, mend)
}

/// RocksDB's bindings are generated with it.
fn libclang() -> Check {
    let directories =
        ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib"];
    let llvm =
        std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let llvm = llvm.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-"))
    });
    let candidates = directories
        .iter()
        .map(|path| Path::new(path).to_owned())
        .chain(llvm.map(|path| path.join("lib")));
    let is_it = |name: &str| {
        name.starts_with("libclang") && name.contains(".so") && !name.starts_with("libclang-cpp")
    };
    let found = candidates.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
    match found
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| is_it(&name.to_string_lossy())))
    {
        Some(path) => Check::fits(BUILD, "libclang", path.display().to_string()),
        None if std::env::var_os("LIBCLANG_PATH").is_some() => {
            Check::fits(BUILD, "libclang", "by LIBCLANG_PATH")
        }
        None => {
            let mend = "apt-get install libclang-dev, for RocksDB's bindings";
            Check::missing(BUILD, "libclang", "not found", mend)
        }
    }
}

fn ccache() -> Check {
    let mend = "apt-get install ccache: RocksDB is rebuilt in a minute instead of ten";
    tool(BUILD, "ccache", "ccache", Fitness::Optional, mend)
}
