//! The engines that `rack.toml` can name, and how one is opened.

use crate::engine::Engine;
use crate::error::OpenError;
use crate::policy::SyncPolicy;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use switchback_core::storage::Loaded;

/// Every engine that can be chosen; the first is the default.
pub const ENGINES: &[Kind] = &[
    #[cfg(feature = "rocks")]
    crate::rocks::KIND,
    #[cfg(not(feature = "rocks"))]
    crate::memory::KIND,
];

/// An engine, and all that it found when it was opened.
pub type Opened = (Box<dyn Engine>, Loaded);

/// A kind of engine.
pub struct Kind {
    /// As `engine` in `[nodes]` spells it.
    pub name: &'static str,
    /// Its own keys in `[nodes]` and `[[node]]`.
    pub settings: &'static [Setting],
    /// Memory that it may take, in bytes.
    pub memory_bytes: fn(&Options) -> u64,
    /// Opens a directory, or makes it; reads all that a shim must know before it starts.
    pub open: fn(&Storage) -> Result<Opened, OpenError>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

impl FromStr for &'static Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<&'static Kind, String> {
        ENGINES.iter().find(|kind| kind.name == text).ok_or_else(|| {
            let names: Vec<_> = ENGINES.iter().map(|kind| format!("\"{}\"", kind.name)).collect();
            format!("\"{}\" is no engine: it is one of {}", text.escape_debug(), names.join(", "))
        })
    }
}

/// A key that an engine has of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// As the file spells it.
    pub key: &'static str,
    /// What it takes, and what it is if the file doesn't say.
    pub takes: Takes,
}

/// What a setting takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Takes {
    Integer { least: u64, most: u64, default: u64 },
    Flag { default: bool },
    Text { default: &'static str },
}

/// A setting's value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Value {
    Integer(u64),
    Flag(bool),
    Text(String),
}

impl Setting {
    /// What it is if the file doesn't say.
    pub fn default(&self) -> Value {
        match self.takes {
            Takes::Integer { default, .. } => Value::Integer(default),
            Takes::Flag { default } => Value::Flag(default),
            Takes::Text { default } => Value::Text(default.to_owned()),
        }
    }
}

/// What is chosen of an engine's own settings. Only the engine knows what they mean.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(BTreeMap<&'static str, Value>);

impl Options {
    /// Chooses.
    pub fn set(&mut self, setting: &Setting, value: Value) {
        self.0.insert(setting.key, value);
    }

    /// What was chosen, or the default.
    pub fn get(&self, setting: &Setting) -> Value {
        self.0.get(setting.key).cloned().unwrap_or_else(|| setting.default())
    }

    /// As [`Options::get`], of a setting that takes an integer.
    pub fn integer(&self, setting: &Setting) -> u64 {
        match self.get(setting) {
            Value::Integer(integer) => integer,
            other => unreachable!("{} takes an integer, not {other:?}", setting.key),
        }
    }
}

/// A node's storage: which engine, where, and how.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Which engine.
    pub kind: &'static Kind,
    /// Where it keeps everything.
    pub directory: PathBuf,
    /// When groups are forced to the disk.
    pub sync: SyncPolicy,
    /// Its own settings.
    pub options: Options,
    /// Files that it may hold open at a time.
    pub open_files_max: u32,
    /// Milliseconds since the Unix epoch, kept up to date by the node's thread. While it is 0, no
    /// record expires.
    pub clock: Arc<AtomicU64>,
}

impl Storage {
    /// Opens it.
    ///
    /// # Errors
    /// Why the directory can't be opened, and what an operator can do about it.
    pub fn open(&self) -> Result<Opened, OpenError> {
        (self.kind.open)(self)
    }
}
