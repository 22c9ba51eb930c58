//! When what is written is forced to the disk.

use std::fmt;
use std::str::FromStr;

/// When a group is forced to the disk. The write-ahead log is written before the answer in either
/// case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// Before it is answered: survives loss of power.
    #[default]
    Always,
    /// When the operating system likes: survives the end of the process, not of the machine.
    None,
}

impl FromStr for SyncPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<SyncPolicy, String> {
        match text {
            "always" => Ok(SyncPolicy::Always),
            "none" => Ok(SyncPolicy::None),
            _ => Err(format!("'{text}' is no sync policy: it is 'always' or 'none'")),
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncPolicy::Always => "always",
            SyncPolicy::None => "none",
        })
    }
}
