//! The spool's disk: a directory, and the thread that does what needn't be done at once.

use super::background::Background;
use super::directory::sync_directory;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_spool::Disk;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    background: Background,
    /// What writes and syncs have cost since they were looked at last.
    pub(super) writes: Vec<Duration>,
    pub(super) syncs: Vec<Duration>,
}

impl Files {
    /// The worker's files in `directory`.
    pub(super) fn start(directory: &Path, worker: usize) -> io::Result<Files> {
        let background = Background::start(directory, worker)?;
        Ok(Files {
            directory: directory.to_owned(),
            background,
            writes: Vec::new(),
            syncs: Vec::new(),
        })
    }

    /// The last sync counts as failed.
    #[cfg(test)]
    pub(super) fn fail_sync(&self) {
        self.background.fail();
    }
}

impl Disk for Files {
    type File = Arc<File>;

    fn place(&self) -> String {
        self.directory.display().to_string()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        names(&self.directory)
    }

    fn open(&self, name: &str) -> io::Result<impl Read> {
        File::open(self.directory.join(name))
    }

    fn create(&mut self, name: &str) -> io::Result<Arc<File>> {
        // Appending, so that truncation needs no seek.
        let file = OpenOptions::new().create(true).append(true).open(self.directory.join(name))?;
        file.set_len(0)?;
        Ok(Arc::new(file))
    }

    fn append(&mut self, file: &Arc<File>, bytes: &[u8]) -> io::Result<()> {
        let begin = Instant::now();
        (&**file).write_all(bytes)?;
        self.writes.push(begin.elapsed());
        Ok(())
    }

    fn truncate(&mut self, file: &Arc<File>, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn sync(&mut self, file: &Arc<File>) -> io::Result<()> {
        let begin = Instant::now();
        file.sync_data()?;
        self.syncs.push(begin.elapsed());
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn sync_soon(&mut self, file: &Arc<File>) -> io::Result<()> {
        let synced = self.background.written(file, &mut self.syncs);
        synced.map_err(sync_failed)
    }

    fn failed_sync(&mut self) -> Option<io::Error> {
        self.background.failure().map(sync_failed)
    }

    fn forget_syncs(&mut self) {
        self.background.forget();
    }

    fn remove_soon(&mut self, name: &str) {
        self.background.delete(self.directory.join(name));
    }

    fn has_removed(&self) -> bool {
        self.background.has_deleted()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.background.finish()
    }
}

fn sync_failed(text: String) -> io::Error {
    io::Error::other(format!("fdatasync failed: {text}"))
}

/// The names in a directory that are text; the spool's are.
pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(io::Result::transpose).collect()
}
