//! Where the parts of a rack keep what they store, and their share of a backup (rule 29).

use crate::config::RackConfig;
use crate::threads::backup_directory;
use std::path::{Path, PathBuf};
use switchback_engine::rocks::{checkpoints_of, drop_later, remove_dropped};

/// A part that stores something, and has a share in each backup.
#[derive(Clone, Debug)]
pub struct StoringPart {
    /// `controller` or `node-0`: how a backup calls it.
    pub name: String,
    /// Its directory.
    pub data: PathBuf,
    share: fn(&Path, u64) -> PathBuf,
}

impl StoringPart {
    /// Those of a rack: the controller, then every node.
    pub fn all(config: &RackConfig) -> Vec<StoringPart> {
        let controller = StoringPart {
            name: "controller".into(),
            data: config.controller.data.clone(),
            share: backup_directory,
        };
        let nodes = config.nodes.iter().enumerate().map(|(index, node)| StoringPart {
            name: format!("node-{index}"),
            data: node.data.clone(),
            share: |data, number| checkpoints_of(data).join(number.to_string()),
        });
        std::iter::once(controller).chain(nodes).collect()
    }

    /// Removes its share of a backup, which was copied. What can't be removed goes with the next
    /// one.
    pub fn drop_share(&self, number: u64) {
        let share = self.share(number);
        let parent = share.parent().unwrap_or(&self.data);
        // It may be gone: an interrupted run has removed it.
        let _ = drop_later(&share);
        remove_dropped(parent);
    }

    /// Where its share of the backup of this number is, on its machine, until there is a newer one.
    pub fn share(&self, number: u64) -> PathBuf {
        (self.share)(&self.data, number)
    }
}
