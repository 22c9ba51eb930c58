//! `switchback backup`: what a running rack has at one moment, in a directory.
//!
//! The rack makes the cut (rule 29); each part then has its share beside its data. This copies the
//! shares, and removes them once all are copied.

use crate::copy;
use crate::manifest::Manifest;
use crate::progress;
use crate::server::undisturbed;
use anyhow::{Context, bail, ensure};
use clap::Args;
use indicatif::HumanBytes;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use switchback_rack::admin::BackupStatus;
use switchback_rack::backup::StoringPart;
use switchback_rack::config::{RackConfig, Shape};

/// Copy what a running rack has at one moment to a directory.
///
/// Everything that was acknowledged before is in it, absorbed writes included. Clients hold their
/// writes back for some milliseconds meanwhile. Run it as the user that runs the rack; in a
/// distributed rack on the controller's machine first, then on the others with --number.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  switchback backup --to /backups/monday\n  \
                  switchback backup --to /backups/monday --config rack.toml\n\n\
                  After a crash, or Ctrl-C, the same command goes on. switchback restore puts it \
                  back.")]
pub struct BackupArgs {
    /// Where to: a new or empty directory, or one that an interrupted backup has left.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the rack keeps everything, as of `switchback up`.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where the rack, or its controller, serves its metrics, if not where the file says.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// Copy what this machine has of this backup, which was begun on another one.
    #[arg(long, value_name = "N")]
    number: Option<u64>,
}

/// How to ask a rack.
pub trait RunningRack: Sync {
    /// Begins a backup.
    ///
    /// # Errors
    /// No rack answers, or it refuses.
    fn begin(&self) -> anyhow::Result<BackupStatus>;

    /// How the last one stands.
    ///
    /// # Errors
    /// No rack answers.
    fn status(&self) -> anyhow::Result<BackupStatus>;
}

/// Between two looks at a backup that a rack makes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Makes a backup, or goes on with one.
///
/// # Errors
/// A rack that can't be reached or makes none, a directory that holds something else, a disk that
/// is full.
pub fn backup(
    args: &BackupArgs,
    config: &RackConfig,
    rack: &dyn RunningRack,
    signals: Receiver<i32>,
) -> anyhow::Result<ExitCode> {
    undisturbed(move || run(args, config, rack, &signals))
}

fn run(
    args: &BackupArgs,
    config: &RackConfig,
    rack: &dyn RunningRack,
    signals: &Receiver<i32>,
) -> anyhow::Result<ExitCode> {
    let to = &args.to;
    fs::create_dir_all(to).with_context(|| format!("{} can't be made", to.display()))?;
    let _lock = copy::lock(to)?;
    let parts = StoringPart::all(config);
    let mut manifest = begin(args, config, rack, signals, &parts)?;
    let number = manifest.number;
    let (here, elsewhere): (Vec<&StoringPart>, Vec<_>) =
        parts.iter().partition(|part| manifest.has(part) || part.share(number).is_dir());
    let are_all_here = config.shape == Shape::Embedded;
    if let Some(part) = elsewhere.first().filter(|_| are_all_here || here.is_empty()) {
        bail!(
            "{} isn't there: another command has copied it, or another backup was made since. Remove {} and begin again",
            part.share(number).display(),
            to.display()
        );
    }
    let bar = progress::bar();
    let mut bytes = 0;
    for part in here {
        if !manifest.has(part) {
            bytes += copy::tree(&part.share(number), &to.join(&part.name), &bar, signals)?;
            manifest.parts.push(part.name.clone());
            manifest.complete = manifest.parts.len() == parts.len();
            manifest.store(to)?;
        }
        part.drop_share(number);
    }
    bar.finish_and_clear();
    let (parts, size) = (manifest.parts.len(), HumanBytes(bytes));
    println!("{}: backup {number}, {parts} parts, {size}", to.display());
    if !manifest.complete {
        let lacking: Vec<_> = elsewhere.iter().map(|part| part.name.as_str()).collect();
        println!(
            "not on this machine: {}; there: switchback backup --number {number} --to DIR",
            lacking.join(", ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// What the directory is to hold: the rest of an interrupted backup, or a new one.
fn begin(
    args: &BackupArgs,
    config: &RackConfig,
    rack: &dyn RunningRack,
    signals: &Receiver<i32>,
    parts: &[StoringPart],
) -> anyhow::Result<Manifest> {
    let to = &args.to;
    if let Some(earlier) = Manifest::load(to)? {
        ensure!(!earlier.complete, "{} holds a complete backup already", to.display());
        earlier.check(config)?;
        ensure!(
            args.number.is_none_or(|number| number == earlier.number),
            "{} holds a part of backup {}: name another directory",
            to.display(),
            earlier.number
        );
        let is_there = |part: &StoringPart| part.share(earlier.number).is_dir();
        if !earlier.parts.is_empty() || parts.iter().any(is_there) {
            eprintln!("going on with backup {}", earlier.number);
            return Ok(earlier);
        }
        // No share is here whole, and none can be had any more.
        for share in parts.iter().map(|part| to.join(&part.name)).filter(|share| share.exists()) {
            fs::remove_dir_all(&share).with_context(|| format!("{}", share.display()))?;
        }
    } else {
        ensure!(copy::is_empty(to)?, "{} holds something else than a backup", to.display());
    }
    let number = match args.number {
        Some(number) => number,
        None => cut(rack, signals)?,
    };
    let manifest = Manifest::new(config, number);
    manifest.store(to)?;
    Ok(manifest)
}

/// Has the rack make a backup; its number.
fn cut(rack: &dyn RunningRack, signals: &Receiver<i32>) -> anyhow::Result<u64> {
    // One that is cut already lacks what was written since.
    wait(rack, signals, |status| !matches!(status.stage.as_str(), "cutting" | "collecting"))?;
    let request = rack.begin()?.request;
    let status = wait(rack, signals, |it| it.stage == "ended" || it.request != request)?;
    ensure!(
        status.request == request,
        "the controller was restarted, or another backup was begun: run it again"
    );
    ended(&status)
}

/// Waits until the rack's backup stands as it should.
fn wait(
    rack: &dyn RunningRack,
    signals: &Receiver<i32>,
    is_so: impl Fn(&BackupStatus) -> bool,
) -> anyhow::Result<BackupStatus> {
    let bar = progress::bar();
    loop {
        let status = rack.status()?;
        if is_so(&status) {
            bar.finish_and_clear();
            return Ok(status);
        }
        let what = status.waits_for.as_deref().unwrap_or("the rack");
        bar.set_message(format!("waits for {what}"));
        match signals.recv_timeout(LOOK_AGAIN) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => bail!("stopped; the rack ends the backup by itself"),
        }
    }
}

fn ended(status: &BackupStatus) -> anyhow::Result<u64> {
    let why = status.failure.as_deref().unwrap_or("it was given up");
    ensure!(status.complete, "the rack made no backup: {why}");
    eprintln!(
        "backup {}: clients held their writes back for {:.0} ms",
        status.number,
        status.held_seconds * 1e3
    );
    Ok(status.number)
}
