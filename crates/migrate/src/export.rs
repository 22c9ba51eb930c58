//! `switchback export`: the records of a rack as an RDB file, which redis-server loads.

use crate::progress;
use crate::server::{self, Certificates, Found, Server};
use anyhow::{Context, ensure};
use clap::Args;
use redis::Connection;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{SystemTime, UNIX_EPOCH};
use switchback_gateway::rdb;
use switchback_terminal::{bytes, count};

/// Write the records of a rack to an RDB file, which redis-server loads.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  switchback export --from redis://127.0.0.1:6380 --to dump.rdb \
                  && redis-server --dbfilename dump.rdb\n\n\
                  It goes on where it was after a crash. What is written meanwhile may be in the \
                  file or not."
)]
pub struct ExportArgs {
    /// The gateway whose records are written: redis[s]://[[USER]:PASSWORD@]HOST:PORT.
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6380")]
    from: String,
    /// The file.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Keys that are read at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    batch: u16,
    #[command(flatten)]
    certificates: Certificates,
}

/// How far an export is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Progress {
    from: String,
    cursor: u64,
    /// Bytes of the unfinished file that count.
    bytes: u64,
    written: u64,
}

/// Of version 9, which Redis reads since 5.0; then database 0.
const HEAD: &[u8] = b"REDIS0009\xfe\x00";
/// Before the time at which a record expires: milliseconds, the lowest byte first.
const EXPIRES: u8 = 0xfc;
/// A string.
const STRING: u8 = 0;
const END: u8 = 0xff;

/// Writes, until it is done or a signal comes.
///
/// # Errors
/// A gateway that can't be reached or refuses something, a disk that is full.
pub fn export(args: &ExportArgs, signals: Receiver<i32>) -> anyhow::Result<ExitCode> {
    server::undisturbed(move || run(args, &signals))
}

fn run(args: &ExportArgs, signals: &Receiver<i32>) -> anyhow::Result<ExitCode> {
    let [gateway] = Server::of([&args.from], &args.certificates)?;
    let (mut server, from) = (gateway.connect()?, gateway.address());
    let (part, state) = (beside(&args.to, "part"), beside(&args.to, "state"));
    ensure!(!args.to.exists(), "{} is there already", args.to.display());
    let earlier: Option<Progress> = progress::load(&state)?;
    let mut done = earlier.filter(|earlier| earlier.from == from && part.exists());
    if let Some(done) = &done {
        eprintln!("going on after {} ({})", count(done.written, "record"), state.display());
    }
    let done = done.get_or_insert_with(Progress::default);
    done.from = from;
    let opened = open(&part, done);
    let mut file = opened.with_context(|| format!("{} can't be written", part.display()))?;
    let bar = progress::bar();
    loop {
        if signals.try_recv() != Err(TryRecvError::Empty) {
            eprintln!("stopped before the end; the same command goes on ({})", state.display());
            return Ok(ExitCode::FAILURE);
        }
        let (next, keys) = server::scan(&mut server, done.cursor, None, args.batch.into())?;
        let encoded = records(&mut server, &keys, &mut done.written)?;
        file.write_all(&encoded).with_context(|| format!("{}", part.display()))?;
        done.bytes += encoded.len() as u64;
        done.cursor = next;
        bar.set_message(format!("{}, {}", count(done.written, "record"), bytes(done.bytes)));
        if next == 0 {
            break;
        }
        file.sync_data()?;
        progress::store(&state, done)?;
    }
    finish(file).with_context(|| format!("{}", part.display()))?;
    std::fs::rename(&part, &args.to).with_context(|| format!("{}", args.to.display()))?;
    // What stays of it is beside a file that is whole, and does no harm.
    let _ = std::fs::remove_file(&state);
    println!("{}: {}", args.to.display(), count(done.written, "record"));
    Ok(ExitCode::SUCCESS)
}

/// The name of a file that belongs to another one.
fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

/// Opens the unfinished file at the end of what counts of it.
fn open(part: &Path, done: &mut Progress) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(part)?;
    if file.metadata()?.len() < done.bytes {
        let why = "it lacks records that it had; remove it to begin anew";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    }
    file.set_len(done.bytes)?;
    file.seek(SeekFrom::End(0))?;
    if done.bytes == 0 {
        file.write_all(HEAD)?;
        done.bytes = HEAD.len() as u64;
    }
    Ok(file)
}

/// Keys and their records, as the file has them.
fn records(
    server: &mut Connection,
    keys: &[Vec<u8>],
    written: &mut u64,
) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    let found = server::read(server, keys)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    for (key, found) in keys.iter().zip(found) {
        let Found::Record(record) = found else { continue };
        if let Some(ms) = record.expires_in_ms {
            out.push(EXPIRES);
            out.extend((now_ms + ms).to_le_bytes());
        }
        out.push(STRING);
        rdb::put_string(&mut out, key);
        rdb::put_string(&mut out, &record.value);
        *written += 1;
    }
    Ok(out)
}

/// Ends the file: with a checksum of all that is in it.
fn finish(mut file: File) -> std::io::Result<()> {
    file.write_all(&[END])?;
    file.seek(SeekFrom::Start(0))?;
    let (mut sum, mut chunk) = (0, vec![0; 1 << 20]);
    let mut reader = BufReader::with_capacity(1 << 20, &file);
    loop {
        match reader.read(&mut chunk)? {
            0 => break,
            bytes => sum = rdb::checksum(sum, &chunk[..bytes]),
        }
    }
    file.seek(SeekFrom::End(0))?;
    file.write_all(&sum.to_le_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if records that an unfinished file has lost are taken for zeros.
    #[test]
    fn an_unfinished_file_that_is_too_short_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("dump.rdb.part");
        std::fs::write(&part, [HEAD, b"record, half"].concat()).unwrap();
        let mut done = Progress { bytes: HEAD.len() as u64 + 7, ..Progress::default() };
        drop(open(&part, &mut done).unwrap());
        assert_eq!(std::fs::read(&part).unwrap(), [HEAD, b"record,"].concat());
        done.bytes += 1;
        let error = open(&part, &mut done).unwrap_err().to_string();
        assert!(error.contains("it lacks records that it had"), "{error}");
        assert_eq!(std::fs::read(&part).unwrap(), [HEAD, b"record,"].concat());
    }
}
