//! Compiles the pipeline for user space. `SWITCHBACK_SANITIZE=address,undefined` adds sanitizers.

use std::env;
use std::path::PathBuf;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let source = manifest.join("../../datapath");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=SWITCHBACK_SANITIZE");
    let mut build = cc::Build::new();
    build.file(source.join("native.c")).std("gnu11").opt_level(3).extra_warnings(true).warnings_into_errors(true);
    build.flag("-Wconversion").flag("-Wshadow");
    if let Ok(sanitizers) = env::var("SWITCHBACK_SANITIZE") {
        build.flag(format!("-fsanitize={sanitizers}")).flag("-fno-sanitize-recover=all");
        // Address sanitizing works only if its runtime comes first; a Rust test binary gets it by being linked with it.
        println!("cargo::rustc-link-arg=-fsanitize={sanitizers}");
    }
    build.compile("switchback_datapath");
}
