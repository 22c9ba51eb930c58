//! `switchback import`: the strings of a Redis, with their times to live, into a rack.

mod state;

use crate::changes::Changes;
use crate::progress;
use crate::server::{self, Certificates, Found, Record, Server};
use anyhow::bail;
use clap::Args;
use redis::{Connection, Pipeline, RedisError, pipe};
use state::Progress;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use switchback_terminal::count;

/// How long a batch is tried again while the gateway can't say what became of it, and the pause
/// before each time. A switch that dies is replaced meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);
/// Errors after which a batch may be sent again: what became of a write isn't known, or nothing did
/// because there was no answer in time.
const AGAIN: [&str; 3] = ["INDETERMINATE", "TIMEOUT", "TRYAGAIN"];

/// Copy the strings of a Redis into a rack, also while it is written to.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  switchback import --from redis://:secret@10.0.0.5:6379\n  \
                  switchback import --from redis://10.0.0.5:6379/0 --follow    # until Ctrl-C\n  \
                  switchback import --from rediss://:secret@redis.example:6380 --cacert ca.crt\n\n\
                  It goes on where it was after a crash. docs/run/migrate.md says how to move a program that runs.")]
pub struct ImportArgs {
    /// Where the records are: redis[s]://[[USER]:PASSWORD@]HOST:PORT[/DATABASE].
    #[arg(long, value_name = "URL")]
    from: String,
    /// The gateway that gets them.
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6380")]
    to: String,
    /// Only keys that match this pattern.
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// Go on with what is written meanwhile, until told to stop (SIGINT, SIGTERM); the last changes
    /// are copied then. The source has to tell of changes (notify-keyspace-events), which is set
    /// for that time if it may be.
    #[arg(long, conflicts_with = "pattern")]
    follow: bool,
    /// Where it is written how far this is, for a run that goes on after a crash.
    #[arg(long, value_name = "FILE", default_value = "switchback-import.json")]
    state: PathBuf,
    /// Keys that are copied at a time.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,
    #[command(flatten)]
    certificates: Certificates,
}

/// Copies, until it is done or a signal comes.
///
/// # Errors
/// Servers that can't be reached or refuse something; the state says how far it was.
pub fn import(args: &ImportArgs, signals: Receiver<i32>) -> anyhow::Result<ExitCode> {
    server::undisturbed(move || run(args, &signals))
}

fn run(args: &ImportArgs, signals: &Receiver<i32>) -> anyhow::Result<ExitCode> {
    let [source, gateway] = Server::of([&args.from, &args.to], &args.certificates)?;
    let (mut from, to) = (source.connect()?, gateway.connect()?);
    let this = Progress {
        what: format!("{}/{} {:?}", source.address(), source.database(), args.pattern),
        to: Some(gateway.address()),
        source_run: server::run_id(&mut from),
        ..Progress::default()
    };
    let mut copier =
        Copier { from, to, copied: 0, follows: args.follow, signals, is_told_to_stop: false };
    let mut changes = match args.follow {
        false => None,
        true => Some(Changes::watch(&mut copier.from, source.connect()?, source.database())?),
    };
    // Changes during a pause weren't told, so following begins with the first key.
    let earlier = if args.follow { None } else { progress::load(&args.state)? };
    let (mut done, said) = this.after(earlier);
    if let Some(said) = said {
        eprintln!("{said} ({})", args.state.display());
    }
    let result = copier.copy_all(args, &mut done, changes.as_mut());
    if let Some(changes) = changes {
        changes.end(&mut copier.from)?;
    }
    let is_whole = result?;
    let Progress { copied, other_types, .. } = done;
    let changes = count(copier.copied - copied, "change");
    println!("copied {}, and {changes}", count(copied, "key"));
    if other_types > 0 {
        println!("left out {}: no string", count(other_types, "key"));
    }
    if !is_whole {
        eprintln!("stopped before the end; the same command goes on ({})", args.state.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

struct Copier<'a> {
    from: Connection,
    to: Connection,
    /// Records that were written or deleted.
    copied: u64,
    /// A signal asks for the last changes, not for an end at once.
    follows: bool,
    signals: &'a Receiver<i32>,
    is_told_to_stop: bool,
}

impl Copier<'_> {
    /// Whether a signal has come, until now.
    fn must_stop(&mut self) -> bool {
        self.is_told_to_stop |= self.signals.try_recv() != Err(TryRecvError::Empty);
        self.is_told_to_stop
    }

    /// False if a signal came before all keys were looked at.
    fn copy_all(
        &mut self,
        args: &ImportArgs,
        done: &mut Progress,
        mut changes: Option<&mut Changes>,
    ) -> anyhow::Result<bool> {
        let bar = progress::bar();
        self.copied = done.copied;
        let mut scanned = false;
        loop {
            let stops = self.must_stop();
            if !scanned && stops {
                return Ok(false);
            }
            if !scanned {
                let batch = usize::from(args.batch);
                let pattern = args.pattern.as_deref();
                let (next, keys) = server::scan(&mut self.from, done.cursor, pattern, batch)?;
                for keys in keys.chunks(batch) {
                    let (copied, other_types) = self.copy(keys)?;
                    done.copied += copied;
                    done.other_types += other_types;
                }
                done.cursor = next;
                scanned = next == 0;
                match (scanned, args.follow) {
                    (true, _) => forget(&args.state),
                    (false, false) => progress::store(&args.state, done)?,
                    (false, true) => {}
                }
            }
            let Some(changes) = changes.as_deref_mut() else {
                bar.set_message(count(done.copied, "key"));
                if scanned {
                    return Ok(true);
                }
                continue;
            };
            if stops {
                self.copy_rest(args, changes)?;
            }
            let changed = changes.take()?;
            for keys in changed.chunks(usize::from(args.batch)) {
                self.copy(keys)?;
            }
            let how = if scanned { "following" } else { "copying" };
            let (keys, writes) = (count(done.copied, "key"), count(self.copied, "write"));
            bar.set_message(format!("{how}: {keys}, {writes}"));
            if stops {
                return Ok(true);
            }
            if scanned && changed.is_empty() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Copies what has changed until now, but for what was told last.
    fn copy_rest(&mut self, args: &ImportArgs, changes: &mut Changes) -> anyhow::Result<()> {
        changes.mark(&mut self.from)?;
        let began = Instant::now();
        while !changes.is_marked(began.elapsed())? {
            for keys in changes.take()?.chunks(usize::from(args.batch)) {
                self.copy(keys)?;
            }
        }
        Ok(())
    }

    /// Makes keys at the target what they are at the source. How many were strings, and how many
    /// something else.
    ///
    /// Where the gateway doesn't know what became of a write, the keys are read and written again.
    /// A key that is written twice has the same value; an older one could come back only by a
    /// packet that is late by more than the gateway's deadline.
    fn copy(&mut self, keys: &[Vec<u8>]) -> anyhow::Result<(u64, u64)> {
        let began = Instant::now();
        loop {
            let (mut commands, strings, others) = self.commands(keys)?;
            match self.write(&mut commands)? {
                None => {
                    self.copied += commands.len() as u64;
                    return Ok((strings, others));
                }
                Some(error) if began.elapsed() > PATIENCE => {
                    bail!("the gateway refused a record for {PATIENCE:?}: {error}");
                }
                Some(error) if !self.follows && self.must_stop() => {
                    bail!("stopped; the same command goes on. The gateway said last: {error}");
                }
                Some(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// What makes these keys at the target what they are at the source, how many are strings there,
    /// and how many something else.
    fn commands(&mut self, keys: &[Vec<u8>]) -> anyhow::Result<(Pipeline, u64, u64)> {
        let found = server::read(&mut self.from, keys)?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let (mut strings, mut others) = (0, 0);
        let mut commands = pipe();
        for (key, found) in keys.iter().zip(&found) {
            match found {
                Found::Record(Record { value, expires_in_ms: None }) => {
                    commands.cmd("SET").arg(key).arg(value);
                    strings += 1;
                }
                Found::Record(Record { value, expires_in_ms: Some(ms) }) => {
                    commands.cmd("SET").arg(key).arg(value).arg("PXAT").arg(now_ms + ms.max(&1));
                    strings += 1;
                }
                Found::Nothing => {
                    commands.cmd("DEL").arg(key);
                }
                Found::OtherType => others += 1,
            }
        }
        Ok((commands, strings, others))
    }

    /// Sends commands to the target: the first error after which they may be sent again.
    fn write(&mut self, commands: &mut Pipeline) -> anyhow::Result<Option<RedisError>> {
        if commands.is_empty() {
            return Ok(None);
        }
        let mut again = None;
        for answer in server::run(&mut self.to, commands)? {
            match answer {
                Ok(_) => {}
                Err(error) if AGAIN.contains(&error.code().unwrap_or_default()) => {
                    again = again.or(Some(error));
                }
                Err(error) => bail!("the gateway refused a record: {error}"),
            }
        }
        Ok(again)
    }
}

/// The state isn't needed any more; one that stays only says what was done.
fn forget(state: &std::path::Path) {
    let _ = std::fs::remove_file(state);
}
