//! What a spool asks of a directory.

use std::io::{self, Read};

/// A directory of files. A file's bytes are safe from a crash once the file is synced, its name
/// (and what became of other names) once the names are.
pub trait Disk {
    /// A file that is open for appending.
    type File;

    /// Where it is, for messages.
    fn place(&self) -> String;

    /// The names of all files.
    ///
    /// # Errors
    /// The directory can't be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading, from its beginning.
    ///
    /// # Errors
    /// It can't be read.
    fn open(&self, name: &str) -> io::Result<impl Read>;

    /// Opens an empty file, which may have existed before.
    ///
    /// # Errors
    /// It can't be created.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;

    /// Writes at the end of a file.
    ///
    /// # Errors
    /// Some of the bytes may have been written.
    fn append(&mut self, file: &Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file off after this many bytes.
    ///
    /// # Errors
    /// It is as it was.
    fn truncate(&mut self, file: &Self::File, bytes: u64) -> io::Result<()>;

    /// Makes a file's bytes durable.
    ///
    /// # Errors
    /// It is unknown which of them are.
    fn sync(&mut self, file: &Self::File) -> io::Result<()>;

    /// Makes created, renamed and deleted names durable.
    ///
    /// # Errors
    /// They may not be.
    fn sync_names(&mut self) -> io::Result<()>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// It has its old one.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file.
    ///
    /// # Errors
    /// It is still there.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Has a file, and all names, synced within a second or so.
    ///
    /// # Errors
    /// Such a sync has failed since the last call.
    fn sync_soon(&mut self, file: &Self::File) -> io::Result<()>;

    /// Why a sync that was to happen soon has failed, if one has that wasn't told of yet.
    fn failed_sync(&mut self) -> Option<io::Error> {
        None
    }

    /// What was to be synced soon needn't be any more.
    fn forget_syncs(&mut self);

    /// Has a file deleted soon, after those before it.
    fn remove_soon(&mut self, name: &str);

    /// Whether all is deleted that was to be.
    fn has_removed(&self) -> bool;

    /// Does now what was to be done soon.
    ///
    /// # Errors
    /// A sync failed.
    fn finish(&mut self) -> io::Result<()>;
}
