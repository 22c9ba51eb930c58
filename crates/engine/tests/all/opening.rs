//! Directories that can't be opened: each ends in a message that says what, where, and what would
//! be right.

use crate::common::*;
use std::fs;
use std::path::Path;
use switchback_engine::rocks::{FORMAT_FILE, RocksEngine};
use switchback_engine::{Engine as _, OpenError, SyncPolicy};
use switchback_testing::Tmpfs;

fn open_error(path: &Path) -> OpenError {
    match RocksEngine::open(path, &small_options()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

/// The message must name the directory and the way out.
fn says(error: &OpenError, path: &Path, words: &[&str]) {
    let message = error.to_string();
    println!("{message}");
    assert!(message.contains(&path.display().to_string()), "{message}");
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
}

/// Fails if the lock is not taken, or RocksDB's words are passed on as they are.
#[test]
fn an_open_directory_is_locked() {
    let mut rocks = Rocks::new();
    let error = open_error(rocks.dir.path());
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    says(&error, rocks.dir.path(), &["in use", "another Switchback node", "directory of its own"]);
    // The one that has it is not disturbed, and its end frees the directory.
    assert_eq!(run_one(&mut rocks, put(b"a", record(1, b"x"), NEWER)), stored());
    rocks.drop_engine();
    rocks.open();
    assert_eq!(run_one(&mut rocks, get(b"a")), got(record(1, b"x")));
}

/// Fails if directories above are not made.
#[test]
fn missing_directories_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    drop(RocksEngine::open(&path, &small_options()).unwrap());
    assert!(path.join(FORMAT_FILE).exists());
}

/// Fails if a file, or a path through a file, is reported as something else.
#[test]
fn a_file_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = open_error(&path);
        assert!(matches!(error, OpenError::NotADirectory { .. }), "{error:?}");
        says(&error, &path, &["not a directory", "name another path"]);
    }
}

/// Fails if we write into a directory that isn't ours, another RocksDB included.
#[test]
fn directories_of_others_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "").unwrap();
    let error = open_error(dir.path());
    says(&error, dir.path(), &["thesis.tex", "not Switchback's", "an empty or a new directory"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let dir = tempfile::tempdir().unwrap();
    drop(rocksdb::DB::open_default(dir.path()).unwrap());
    assert!(matches!(open_error(dir.path()), OpenError::Foreign { .. }));

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FORMAT_FILE), [0xff, 0]).unwrap();
    let error = open_error(dir.path());
    assert!(matches!(error, OpenError::Marker { .. }), "{error:?}");
    says(
        &error,
        &dir.path().join(FORMAT_FILE),
        &["copy the file from another node", "an empty or a new directory"],
    );
}

/// Fails if another format is read as ours.
#[test]
fn other_formats_are_refused() {
    let mut rocks = Rocks::new();
    rocks.drop_engine();
    let marker = rocks.dir.path().join(FORMAT_FILE);
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("format 3", "format 4")).unwrap();
    let error = open_error(rocks.dir.path());
    assert!(matches!(error, OpenError::Version { .. }), "{error:?}");
    says(
        &error,
        rocks.dir.path(),
        &["format 4", "formats 1 to 3", "the version of Switchback that wrote it"],
    );
    fs::write(&marker, text).unwrap();
    rocks.open();
}

/// Fails if a directory of an older format isn't opened, stays one that an older program opens, or
/// is changed while another process has it.
#[test]
fn an_older_format_is_upgraded_once_it_is_open() {
    for format in ["format 1", "format 2"] {
        is_upgraded(format);
    }
}

fn is_upgraded(format: &str) {
    let mut rocks = Rocks::new();
    assert_eq!(run_one(&mut rocks, put(b"a", record(1, b"x"), NEWER)), stored());
    let marker = rocks.dir.path().join(FORMAT_FILE);
    let text = fs::read_to_string(&marker).unwrap();
    let older = text.replace("format 3", format);
    assert_ne!(older, text);
    fs::write(&marker, &older).unwrap();
    assert!(matches!(open_error(rocks.dir.path()), OpenError::Locked { .. }));
    assert_eq!(fs::read_to_string(&marker).unwrap(), older);
    rocks.drop_engine();
    // As if killed while the marker was written.
    fs::write(rocks.dir.path().join("SWITCHBACK.tmp"), "Switchback node st").unwrap();
    rocks.open();
    assert_eq!(run_one(&mut rocks, get(b"a")), got(record(1, b"x")));
    assert_eq!(fs::read_to_string(&marker).unwrap(), text);
}

/// Fails if a first opening that was cut short at any point leaves a directory that can't be
/// opened.
#[test]
fn a_first_opening_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("SWITCHBACK.tmp"), "Switch").unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    drop(RocksEngine::open(dir.path(), &small_options()).unwrap());
    let marker = dir.path().join(FORMAT_FILE);
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("complete", "creating")).unwrap();
    drop(RocksEngine::open(dir.path(), &small_options()).unwrap());
    assert_eq!(fs::read_to_string(&marker).unwrap(), text);
}

/// Fails if a directory that has lost its database is taken for a new one: its records would be
/// gone without a word.
#[test]
fn a_lost_database_is_not_replaced() {
    let mut rocks = Rocks::new();
    rocks.drop_engine();
    for entry in fs::read_dir(rocks.dir.path()).unwrap().flatten() {
        if entry.file_name() != FORMAT_FILE {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let error = open_error(rocks.dir.path());
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    says(&error, rocks.dir.path(), &["CURRENT is missing", "Restore it"]);
}

/// Fails if a missing table is opened over.
#[test]
fn a_missing_table_is_reported() {
    let mut rocks = Rocks::new();
    run(&mut rocks, [put(b"a", record(1, b"x"), NEWER)]);
    Box::new(rocks.engine.take().unwrap()).close().unwrap();
    for table in files(rocks.dir.path(), "sst") {
        fs::remove_file(table).unwrap();
    }
    let error = open_error(rocks.dir.path());
    assert!(matches!(error, OpenError::Corrupt { log: false, .. }), "{error:?}");
    says(&error, rocks.dir.path(), &["missing", ".sst", "Restore it"]);
}

/// Fails if a read-only file system is reported as anything else. Skipped where nothing can be
/// mounted.
#[test]
fn read_only_file_systems_are_reported() {
    let Some(mount) = Tmpfs::mount(1 << 10) else { return };
    drop(RocksEngine::open(mount.path().join("used"), &small_options()).map(|_| ()));
    mount.forbid_writes();
    for name in ["used", "new"] {
        let path = mount.path().join(name);
        let error = open_error(&path);
        assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
        says(&error, &path, &["can't be written to", "read-only"]);
    }
}

/// Fails if a choice can't be read back, or a wrong one is taken.
#[test]
fn sync_policies_are_spelt() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySec, SyncPolicy::None] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert!("sometimes".parse::<SyncPolicy>().unwrap_err().contains("'everysec' or 'none'"));
}
