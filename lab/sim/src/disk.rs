//! A disk for spools: a crash of the machine forgets what was not synced, or tears it.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use switchback_spool::Disk;

/// A file's bytes, of which the first ones are synced.
#[derive(Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    synced: usize,
    /// Synced bytes, some of which were cut off since.
    before_cut: Option<Vec<u8>>,
}

impl Bytes {
    fn truncate(&mut self, bytes: usize) {
        if bytes < self.synced {
            self.before_cut.get_or_insert_with(|| self.now[..self.synced].to_vec());
            self.synced = bytes;
        }
        self.now.truncate(bytes);
    }

    fn sync(&mut self) {
        self.synced = self.now.len();
        self.before_cut = None;
    }

    /// The machine stops: what was not synced is lost from somewhere on, or torn.
    fn crash(&mut self, random: &mut Random) {
        if let Some(before) = self.before_cut.take()
            && random.chance(0.5)
        {
            self.now = before;
            return self.sync();
        }
        let length = random.between(self.synced as u64, self.now.len() as u64);
        self.now.truncate(length as usize);
        if random.chance(0.3) {
            // The file's length was written, the bytes weren't.
            let from = random.between(self.synced as u64, length) as usize;
            self.now[from..].fill(0);
        }
        self.sync();
    }
}

type Names = BTreeMap<String, u32>;

/// The disk of one client.
#[derive(Debug, Default)]
pub(crate) struct SpoolDisk {
    files: BTreeMap<u32, Bytes>,
    created: u32,
    names: Names,
    /// The names since they were synced, as they were before each change; the first are the synced
    /// ones.
    before: Vec<Names>,
    to_remove: VecDeque<String>,
    /// The machine stops after this number of further steps.
    steps_left: Option<u32>,
    /// The next write fails, and leaves a part behind.
    fails_next: bool,
}

impl SpoolDisk {
    /// The machine stops in the middle of what its client does next, in this number of steps.
    pub(crate) fn stops_in(&mut self, steps: u32) {
        self.steps_left = Some(steps);
    }

    /// The next write fails.
    pub(crate) fn fail_next(&mut self) {
        self.fails_next = true;
    }

    /// What was to be deleted soon is deleted.
    pub(crate) fn remove_now(&mut self) {
        while let Some(name) = self.to_remove.pop_front() {
            self.rename_to(|names| names.remove(&name));
        }
    }

    /// The client's process died; its machine goes on.
    pub(crate) fn process_dies(&mut self) {
        self.to_remove.clear();
        self.steps_left = None;
        self.fails_next = false;
    }

    /// The machine stops and starts again. Names are found as they were at one moment since they
    /// were synced, the bytes of each file as far as they were synced, and beyond that as far as
    /// the operating system got; what it wrote last may be torn.
    pub(crate) fn machine_dies(&mut self, random: &mut Random) {
        self.process_dies();
        let at = random.below(self.before.len() as u64 + 1) as usize;
        if let Some(names) = self.before.drain(..).nth(at) {
            self.names = names;
        }
        self.before.clear();
        for file in self.files.values_mut() {
            file.crash(random);
        }
    }

    /// Changes names.
    fn rename_to<T>(&mut self, change: impl FnOnce(&mut Names) -> T) -> T {
        self.before.push(self.names.clone());
        change(&mut self.names)
    }

    fn step(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.steps_left {
            *left =
                left.checked_sub(1).ok_or_else(|| io::Error::other("the machine has stopped"))?;
        }
        Ok(())
    }

    /// The bytes of a file as they are now.
    fn read(&self, name: &str) -> io::Result<&[u8]> {
        let file = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.files.get(file).map_or(&[], |file| &file.now))
    }

    fn file(&mut self, file: u32) -> &mut Bytes {
        self.files.entry(file).or_default()
    }
}

impl Disk for SpoolDisk {
    type File = u32;

    fn place(&self) -> String {
        "a simulated disk".to_owned()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<impl io::Read> {
        self.read(name)
    }

    fn create(&mut self, name: &str) -> io::Result<u32> {
        self.step()?;
        if let Some(file) = self.names.get(name).copied() {
            self.file(file).truncate(0);
            return Ok(file);
        }
        self.created += 1;
        let file = self.created;
        self.rename_to(|names| names.insert(name.to_owned(), file));
        Ok(file)
    }

    fn append(&mut self, file: &u32, bytes: &[u8]) -> io::Result<()> {
        if self.steps_left == Some(0) || std::mem::take(&mut self.fails_next) {
            self.file(*file).now.extend_from_slice(&bytes[..bytes.len() / 2]);
            self.step()?;
            return Err(io::Error::other("a part was written"));
        }
        self.step()?;
        self.file(*file).now.extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, file: &u32, bytes: u64) -> io::Result<()> {
        self.step()?;
        self.file(*file).truncate(bytes as usize);
        Ok(())
    }

    fn sync(&mut self, file: &u32) -> io::Result<()> {
        self.step()?;
        self.file(*file).sync();
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.step()?;
        self.before.clear();
        let named: BTreeSet<u32> = self.names.values().copied().collect();
        self.files.retain(|file, _| named.contains(file));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        let file = *self.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        self.rename_to(|names| {
            names.remove(from);
            names.insert(to.to_owned(), file);
        });
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.step()?;
        if !self.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.rename_to(|names| names.remove(name));
        Ok(())
    }

    fn sync_soon(&mut self, _file: &u32) -> io::Result<()> {
        Ok(()) // such a spool stands the death of its process only
    }

    fn forget_syncs(&mut self) {}

    fn remove_soon(&mut self, name: &str) {
        self.to_remove.push_back(name.to_owned());
    }

    fn has_removed(&self) -> bool {
        self.to_remove.is_empty()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.remove_now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_what_was_synced_and_perhaps_more() {
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let mut disk = SpoolDisk::default();
            let file = disk.create("a").unwrap();
            disk.append(&file, b"safe").unwrap();
            disk.sync(&file).unwrap();
            disk.sync_names().unwrap();
            disk.append(&file, b"perhaps").unwrap();
            disk.create("b").unwrap();
            disk.machine_dies(&mut Random::new(seed));
            let left = disk.read("a").unwrap();
            assert!(left.starts_with(b"safe"));
            lengths.insert((left.len(), disk.read("b").is_ok()));
        }
        assert_eq!(lengths.len(), 2 * (b"perhaps".len() + 1), "{lengths:?}");
    }

    #[test]
    fn a_machine_that_stops_does_no_more() {
        let mut disk = SpoolDisk::default();
        let file = disk.create("a").unwrap();
        disk.stops_in(1);
        disk.append(&file, b"whole").unwrap();
        assert!(disk.append(&file, b"half").is_err() && disk.sync(&file).is_err());
        assert_eq!(disk.read("a").unwrap(), b"wholeha");
    }
}
