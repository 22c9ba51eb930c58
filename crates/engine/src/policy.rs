//! When what is written is forced to the disk.

use std::fmt;
use std::str::FromStr;

/// When a group is forced to the disk, with Redis' meanings of `appendfsync`. The write-ahead log
/// is written before the answer in any case, in order: what is forced takes all before it along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// Before it is answered: survives loss of power.
    #[default]
    Always,
    /// Clients' records within a second, or two if the disk is slow; everything else as under
    /// [`SyncPolicy::Always`].
    EverySec,
    /// Records when the operating system likes: they survive the end of the process, not of the
    /// machine. Marks, states and floors as under [`SyncPolicy::Always`].
    None,
}

/// How much depends on it that a change is on the disk when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Urgency {
    /// It may be lost with the machine's power: a client's record, a mark that was cleared.
    #[default]
    MayLag,
    /// A record of the cache: nothing else keeps it for longer.
    Cache,
    /// What later decisions rest on: a mark, a state, a floor.
    Must,
}

impl SyncPolicy {
    /// Whether a group is forced to the disk before it is answered.
    pub(crate) fn forces(self, urgency: Urgency) -> bool {
        match self {
            SyncPolicy::Always => true,
            SyncPolicy::EverySec => urgency >= Urgency::Cache,
            SyncPolicy::None => urgency >= Urgency::Must,
        }
    }
}

impl FromStr for SyncPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<SyncPolicy, String> {
        match text {
            "always" => Ok(SyncPolicy::Always),
            "everysec" => Ok(SyncPolicy::EverySec),
            "none" => Ok(SyncPolicy::None),
            _ => Err(format!("'{text}' is no sync policy: it is 'always', 'everysec' or 'none'")),
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncPolicy::Always => "always",
            SyncPolicy::EverySec => "everysec",
            SyncPolicy::None => "none",
        })
    }
}
