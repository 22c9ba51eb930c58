//! Compiles the pipeline for user space. `SWITCHBACK_SANITIZE=address,undefined` adds sanitizers.

use std::env;
use std::path::PathBuf;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let source = manifest.join("../../datapath");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=SWITCHBACK_SANITIZE");
    let mut build = cc::Build::new();
    build
        .file(source.join("native.c"))
        .std("gnu11")
        .opt_level(3)
        .extra_warnings(true)
        .warnings_into_errors(true);
    build.flag("-Wconversion").flag("-Wshadow");
    if env::var_os("CARGO_FEATURE_ABLATIONS").is_some() {
        build.define("SWITCHBACK_ABLATIONS", None);
    }
    // The pipeline is one function that is short of registers, and there is nothing in it to
    // vectorize.
    build.force_frame_pointer(false).flag("-fno-tree-vectorize");
    if let Ok(sanitizers) = env::var("SWITCHBACK_SANITIZE") {
        build.flag(format!("-fsanitize={sanitizers}")).flag("-fno-sanitize-recover=all");
        // Rust links without the compiler's default libraries, so the runtimes are named. ASan's
        // wants to be loaded first: CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env
        // LD_PRELOAD=$(gcc -print-file-name=libasan.so)".
        for sanitizer in sanitizers.split(',') {
            println!(
                "cargo::rustc-link-arg=-l{}",
                if sanitizer == "undefined" { "ubsan" } else { "asan" }
            );
        }
    }
    build.compile("switchback_datapath");
}
