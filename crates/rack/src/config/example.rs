//! A documented `rack.toml` with every key and its default.

/// What `switchback config example` prints; parses to the default rack.
pub const EXAMPLE: &str = include_str!("example.toml");
