//! Any text as a rack.toml: a configuration, or every mistake with its place.
#![no_main]

// Not from its crate, with which RocksDB would come: half an hour with a sanitizer.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/rack/src/config/mod.rs"]
mod config;

use config::{Overrides, RackConfig};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    if let Err(error) = RackConfig::parse(text, "fuzz.toml", Path::new(""), &Overrides::default()) {
        assert!(!error.to_string().is_empty());
    }
});
