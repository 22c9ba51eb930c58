//! `switchback restore`: a rack that has what a backup holds, and nothing else.

use crate::copy;
use crate::manifest::Manifest;
use crate::progress;
use crate::server::undisturbed;
use anyhow::{Context, bail, ensure};
use clap::Args;
use indicatif::HumanBytes;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use switchback_rack::backup::StoringPart;
use switchback_rack::config::RackConfig;

/// Put back what `switchback backup` has copied.
///
/// The rack must not run, and its directories must be empty: move away what is in them. Every part
/// of the rack has to be started anew. Run it as the user that runs the rack; in a distributed rack
/// on each machine, with --part.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  mv switchback-data switchback-data.old\n  \
                  switchback restore --from /backups/monday && switchback up\n  \
                  switchback restore --from /backups/monday --config rack.toml --part node-1\n\n\
                  After a crash, or Ctrl-C, the same command goes on.")]
pub struct RestoreArgs {
    /// Where the backup is.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the rack keeps everything, as of `switchback up`.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Only this part: controller, node-0, node-1 ... (repeated for several).
    #[arg(long = "part", value_name = "NAME")]
    parts: Vec<String>,
}

/// Restores, or goes on with it.
///
/// # Errors
/// A directory that isn't empty, a backup of another rack or one that isn't whole, a disk that is
/// full.
pub fn restore(
    args: &RestoreArgs,
    config: &RackConfig,
    signals: Receiver<i32>,
) -> anyhow::Result<ExitCode> {
    undisturbed(move || run(args, config, &signals))
}

fn run(
    args: &RestoreArgs,
    config: &RackConfig,
    signals: &Receiver<i32>,
) -> anyhow::Result<ExitCode> {
    let from = &args.from;
    let manifest = Manifest::load(from)?
        .with_context(|| format!("{} holds no backup (backup.json)", from.display()))?;
    manifest.check(config)?;
    let _lock = copy::lock(from)?;
    let parts = chosen(args, config, &manifest)?;
    let places: Vec<_> = parts.into_iter().map(|it| Place::new(it, manifest.number)).collect();
    for place in &places {
        place.check()?;
    }
    ensure!(
        !places.iter().all(Place::is_restored),
        "backup {} was restored there already: nothing was done",
        manifest.number
    );
    let spool = &config.gateway.spool;
    ensure!(
        copy::is_empty(spool)?,
        "{} holds what clients of the rack before knew, which doesn't belong to the backup: move it away",
        spool.display()
    );
    let bar = progress::bar();
    let mut bytes = 0;
    for place in places.iter().filter(|place| !place.is_restored()) {
        bytes += copy::tree(&from.join(&place.name), &place.aside, &bar, signals)?;
    }
    // The controller comes last: without its directory no rack begins to serve on some of the
    // nodes.
    for place in places.iter().rev().filter(|place| !place.is_restored()) {
        let put = place.put();
        put.with_context(|| format!("{} can't be put in place", place.data.display()))?;
    }
    for place in &places {
        let _ = fs::remove_file(place.data.join(MARK)); // harms nothing
    }
    bar.finish_and_clear();
    let (number, size) = (manifest.number, HumanBytes(bytes));
    println!("restored backup {number}: {} parts, {size}", places.len());
    Ok(ExitCode::SUCCESS)
}

/// The parts that are to be restored.
fn chosen(
    args: &RestoreArgs,
    config: &RackConfig,
    manifest: &Manifest,
) -> anyhow::Result<Vec<StoringPart>> {
    let mut parts = StoringPart::all(config);
    if args.parts.is_empty() {
        let lacking = parts.iter().find(|part| !manifest.has(part));
        if let Some(part) = lacking {
            bail!(
                "{} lacks {}: end the backup there, or say with --part what to restore",
                args.from.display(),
                part.name
            );
        }
        return Ok(parts);
    }
    for name in &args.parts {
        let part = parts.iter().find(|part| part.name == *name);
        let known = part.with_context(|| format!("the rack has no part called {name}"))?;
        ensure!(manifest.has(known), "{} lacks {name}", args.from.display());
    }
    parts.retain(|part| args.parts.contains(&part.name));
    Ok(parts)
}

/// Where a part is restored.
struct Place {
    name: String,
    data: PathBuf,
    /// Its files, until all are whole.
    aside: PathBuf,
    /// The backup's number.
    number: String,
}

/// A file beside the restored ones: of which backup they are, until all parts are in place.
const MARK: &str = "RESTORED";

impl Place {
    fn new(part: StoringPart, number: u64) -> Place {
        let mut aside = part.data.clone().into_os_string();
        aside.push(format!(".restoring-{number}"));
        let (name, number) = (part.name, number.to_string());
        Place { name, data: part.data, aside: aside.into(), number }
    }

    /// An interrupted run has put it there.
    fn is_restored(&self) -> bool {
        fs::read_to_string(self.data.join(MARK)).is_ok_and(|of| of == self.number)
    }

    /// Nothing is overwritten, and a directory can be put there.
    fn check(&self) -> anyhow::Result<()> {
        let data = self.data.display();
        ensure!(
            self.is_restored() || copy::has_only(&self.data, |name| name == LOCK)?,
            "{data} has data: stop the rack and move them away; nothing was touched"
        );
        let parent = fs::metadata(parent(&self.data)).map(|parent| parent.dev());
        let is_replaceable = match fs::symlink_metadata(&self.data) {
            Ok(there) => there.is_dir() && parent.is_ok_and(|parent| parent == there.dev()),
            Err(_) => true,
        };
        ensure!(
            is_replaceable,
            "{data} is a link or a mount point, which can't be replaced: let `data` in rack.toml name a directory in it"
        );
        Ok(())
    }

    fn put(&self) -> anyhow::Result<()> {
        let mark = self.aside.join(MARK);
        fs::write(&mark, &self.number)?;
        File::open(&mark)?.sync_all()?;
        copy::sync(&self.aside)?;
        if self.data.exists() {
            // A process that has begun meanwhile has more there, and keeps it.
            let _ = fs::remove_file(self.data.join(LOCK));
            fs::remove_dir(&self.data)?;
        }
        fs::rename(&self.aside, &self.data)?;
        copy::sync(parent(&self.data))
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What a process leaves that did nothing.
const LOCK: &str = "lock";
