//! `rack.toml`: what a rack is made of. Checked whole, before anything starts: every mistake is
//! reported, not the first one.
//!
//! [`RackConfig::load`] reads a file, lays the command line's [`Overrides`] over it and checks the
//! result. The structs hold plain data; their fields are the file's keys, and
//! `docs/run/configuration.md` says what each means.

mod check;
mod example;
mod parse;
mod problem;
mod protection;
mod reader;
mod shown;
mod types;

#[cfg(test)]
mod tests;

pub use example::EXAMPLE;
pub use parse::{NODES_MAX, RECORDS_MAX, REPLICATION_MAX};
pub use problem::{ConfigError, Problem};
pub use protection::Protection;
pub use types::{
    Cache, Client, Console, ConsoleAccess, Controller, Durability, Gateway, GatewayTls, KeyNames,
    LinkKind, Links, Node, Overrides, Rack, RackConfig, Shape, Switch, SyncChoice,
};

use std::io::Read;
use std::path::Path;

/// Files beyond this size are no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl RackConfig {
    /// Reads and checks `file` (without one: the defaults, in the working directory), the command
    /// line's choices on top.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<RackConfig, ConfigError> {
        let Some(file) = file else {
            return RackConfig::parse("", "the command line", Path::new(""), overrides);
        };
        let name = file.display().to_string();
        let unreadable = |why: String| ConfigError::whole_file(&name, why);
        let mut text = Vec::new();
        std::fs::File::open(file)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text))
            .map_err(|error| unreadable(reading_failed(&error)))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let message = format!(
                "these are too many bytes for a rack.toml: it has at most {FILE_BYTES_MAX}"
            );
            return Err(unreadable(message));
        }
        let text = String::from_utf8(text).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            unreadable(format!("not UTF-8 from byte {at} on; save the file as UTF-8"))
        })?;
        RackConfig::parse(&text, &name, file.parent().unwrap_or(Path::new("")), overrides)
    }

    /// Checks `text`. Mistakes name it `name`; relative paths in it start at `base`.
    pub fn parse(
        text: &str,
        name: &str,
        base: &Path,
        overrides: &Overrides,
    ) -> Result<RackConfig, ConfigError> {
        let (mut reader, document) = reader::Reader::new(text, name, base);
        let config = parse::rack_config(&document, &mut reader, overrides);
        reader.values_are_read();
        check::whole(&config, &mut reader, overrides);
        reader.finish().map(|()| config)
    }

    /// How many switches the rack has: those that the file lists, or in one process as many as
    /// serve.
    pub fn switches_len(&self) -> u16 {
        let types::Topology { chains, layers } = self.topology;
        match self.shape {
            Shape::Embedded => chains * u16::from(layers),
            Shape::Distributed => self.switches.len() as u16,
        }
    }

    /// How many keys the caches of all chains have room for.
    pub fn cached_keys_max(&self) -> u64 {
        u64::from(self.cache.records) * u64::from(self.topology.chains)
    }
}

impl Default for RackConfig {
    /// The rack that `switchback up` starts without a file: embedded, four nodes under
    /// `./switchback-data`.
    fn default() -> RackConfig {
        let (mut reader, document) = reader::Reader::new("", "the defaults", Path::new(""));
        parse::rack_config(&document, &mut reader, &Overrides::default())
    }
}

fn reading_failed(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "no such file; `switchback config example > rack.toml` writes one to start from"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => format!("can't be read: {error}"),
    }
}
