//! What a directory holds of a backup.

use crate::copy;
use crate::progress;
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use switchback_rack::backup::StoringPart;
use switchback_rack::config::RackConfig;

/// The file `backup.json` in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    /// The rack's name.
    pub(crate) rack: String,
    /// Of its nodes.
    pub(crate) nodes: u16,
    /// Of its chains.
    pub(crate) chains: u16,
    /// The backup's.
    pub(crate) number: u64,
    /// The parts whose shares are here, whole.
    pub(crate) parts: Vec<String>,
    /// That is all of them.
    pub(crate) complete: bool,
}

const FORMAT: u32 = 1;

/// How many nodes and chains the rack has of which a directory holds a backup; `None`: it holds
/// none.
///
/// # Errors
/// What it holds can't be read.
pub fn nodes_and_chains(directory: &Path) -> anyhow::Result<Option<(u16, u16)>> {
    let manifest = Manifest::load(directory)?;
    Ok(manifest.map(|manifest| (manifest.nodes, manifest.chains)))
}

impl Manifest {
    pub(crate) fn new(config: &RackConfig, number: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            rack: config.rack.name.clone(),
            nodes: config.nodes.len() as u16,
            chains: config.topology.chains,
            number,
            parts: Vec::new(),
            complete: false,
        }
    }

    fn file(directory: &Path) -> PathBuf {
        directory.join("backup.json")
    }

    /// `None` if there is none.
    pub(crate) fn load(directory: &Path) -> anyhow::Result<Option<Manifest>> {
        let file = Manifest::file(directory);
        let manifest: Option<Manifest> = progress::load(&file)?;
        if let Some(Manifest { format, .. }) = manifest {
            let file = file.display();
            ensure!(
                format == FORMAT,
                "{file} is of format {format}, and this program knows {FORMAT}: use the version that wrote it"
            );
        }
        Ok(manifest)
    }

    /// On return it is on the disk, and all that it names.
    pub(crate) fn store(&self, directory: &Path) -> anyhow::Result<()> {
        progress::store(&Manifest::file(directory), self)?;
        copy::sync(directory)
    }

    /// It is of a rack with as many nodes and chains as the one that is described.
    ///
    /// # Errors
    /// It isn't.
    pub(crate) fn check(&self, config: &RackConfig) -> anyhow::Result<()> {
        let (nodes, chains) = (config.nodes.len() as u16, config.topology.chains);
        ensure!(
            (self.nodes, self.chains) == (nodes, chains),
            "the backup is of a rack with {} nodes and {} chains, and this one has {nodes} and \
             {chains}: use that rack's rack.toml",
            self.nodes,
            self.chains
        );
        Ok(())
    }

    /// Whether the share of a part is here.
    pub(crate) fn has(&self, part: &StoringPart) -> bool {
        self.parts.contains(&part.name)
    }
}
