//! Any text as a rack.toml: a configuration, or every mistake with its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use switchback_rack::config::{Overrides, RackConfig};

fuzz_target!(|text: &str| {
    if let Err(error) = RackConfig::parse(text, "fuzz.toml", Path::new(""), &Overrides::default()) {
        assert!(!error.to_string().is_empty());
    }
});
