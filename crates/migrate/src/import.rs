//! `switchback import`: the strings of a Redis, with their times to live, into a rack.

mod state;
#[cfg(test)]
mod tests;

use crate::changes::{self, Changes};
use crate::progress;
use crate::server::{self, Certificates, ExpiringValue, Found, Server};
use anyhow::{Context as _, bail};
use clap::Args;
use redis::{Connection, Pipeline, RedisError, pipe};
use state::{Progress, Stage};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use switchback_terminal::{count, grouped};

/// How long a batch is tried again while the gateway can't say what became of it, and the pause
/// before each time. A switch that dies is replaced meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);
/// How often the source is asked whether it still tells of changes.
const CHECK_PERIOD: Duration = Duration::from_secs(2);
/// How long a gateway may still be about what a run that was killed has sent it: somewhat more than
/// its usual deadline (`deadline_ms`).
const UNDER_WAY: Duration = Duration::from_secs(6);
/// The exit code if all strings were copied, and some keys were left out that hold something else.
const LEFT_OUT: u8 = 3;
/// Errors after which a batch may be sent again: what became of a write isn't known, or nothing did
/// because there was no answer in time.
const AGAIN: [&str; 3] = ["INDETERMINATE", "TIMEOUT", "TRYAGAIN"];

/// Copy the strings of a Redis into a rack, also while it is written to.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  switchback import --from redis://:secret@10.0.0.5:6379\n  \
                  switchback import --from redis://10.0.0.5:6379/0 --follow    # until Ctrl-C\n  \
                  switchback import --from redis://10.0.0.5:6379/0 --follow --delete    # once more, after a crash\n  \
                  switchback import --from rediss://:secret@redis.example:6380 --cacert ca.crt\n\n\
                  After a crash the same command goes on where it was, or with --follow \
                  begins again with the first key. docs/run/migrate.md says how to \
                  move a program that runs.\n\n\
                  Exit code: 0 all was copied, 3 all but keys that are no strings, which \
                  are named, 1 an error or a signal before the end.")]
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
    /// When all is copied, delete what the rack has and the source hasn't, or has as something else
    /// than a string: what was deleted, renamed or expired there meanwhile, and all keys that were
    /// never there. With --match only keys of that pattern.
    #[arg(long)]
    delete: bool,
    /// Where it is written how far this is, for a run that goes on after a crash.
    #[arg(long, value_name = "FILE", default_value = "switchback-import.json")]
    state: PathBuf,
    /// Keys that are copied at a time.
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
    if args.delete && server::is_empty(&mut from)? {
        bail!(
            "{}/{} has no keys, so --delete would delete all of the rack; FLUSHALL at the gateway \
             does that, if it is meant",
            source.address(),
            source.database()
        );
    }
    let this = Progress {
        what: format!("{}/{} {:?}", source.address(), source.database(), args.pattern),
        to: Some(gateway.address()),
        source_run: server::run_id(&mut from),
        follows: args.follow,
        ..Progress::default()
    };
    let earlier = progress::load(&args.state)?;
    if let Some(earlier) = earlier.as_ref().filter(|earlier| !this.is_as(earlier)) {
        let file = args.state.display();
        bail!("{file} is of another import, {earlier}: give --state another file, or remove it");
    }
    let (mut done, said) = this.after(earlier, args.delete);
    // One that is killed in the midst of its first writes is known to the next one.
    progress::store(&args.state, &done)?;
    let mut copier = Copier::new(from, to, &done, signals);
    if let Some(said) = said {
        eprintln!("{said} ({})", args.state.display());
        copier.wait_for_earlier_writes();
    }
    let result = copier.copy_all(args, &source, &mut done);
    // In any case the source's notifications are set to what they were.
    let ended = copier.end(args, &mut done);
    let is_whole = result?;
    ended?;
    let Progress { copied, other_types, ref left_out, deleted, .. } = done;
    let changes = count(copier.writes - copied - deleted, "change");
    println!("copied {}, and {changes}", count(copied, "key"));
    if other_types > 0 {
        let named = named(left_out, other_types);
        println!("left out {}: no string ({named})", count(other_types, "key"));
    }
    if args.delete {
        println!("deleted {}: no string at the source", count(deleted, "key"));
    }
    if !is_whole {
        let how = if args.follow { "begins again" } else { "goes on" };
        eprintln!("stopped before the end; the same command {how} ({})", args.state.display());
        return Ok(ExitCode::FAILURE);
    }
    std::fs::remove_file(&args.state)
        .with_context(|| format!("{} can't be removed", args.state.display()))?;
    Ok(if other_types == 0 { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}

/// Some keys of `all`, and how many more there are.
fn named(keys: &[String], all: u64) -> String {
    let named = keys.join(", ");
    match all - keys.len() as u64 {
        0 => named,
        // A run of an older version before this one has named none.
        more if keys.is_empty() => format!("{} of an earlier run", grouped(more)),
        more => format!("{named} and {} more", grouped(more)),
    }
}

struct Copier<'a> {
    from: Connection,
    to: Connection,
    /// Records that were written or deleted.
    writes: u64,
    /// A signal asks for the last changes, not for an end at once.
    follows: bool,
    /// What is another type than a string at the source is deleted at the target.
    deletes_others: bool,
    signals: &'a Receiver<i32>,
    is_told_to_stop: bool,
}

impl Copier<'_> {
    fn new<'a>(
        from: Connection,
        to: Connection,
        done: &Progress,
        signals: &'a Receiver<i32>,
    ) -> Copier<'a> {
        Copier {
            from,
            to,
            writes: done.copied + done.deleted,
            follows: done.follows,
            deletes_others: false,
            signals,
            is_told_to_stop: false,
        }
    }

    /// Whether a signal has come, until now.
    fn must_stop(&mut self) -> bool {
        self.is_told_to_stop |= self.signals.try_recv() != Err(TryRecvError::Empty);
        self.is_told_to_stop
    }

    /// Waits until the gateway is done with what an earlier run has sent it: a write of that could
    /// otherwise come after one of this run, and bring an older value back.
    fn wait_for_earlier_writes(&mut self) {
        let bar = progress::bar();
        bar.set_message("waiting for writes of the earlier run");
        let began = Instant::now();
        while began.elapsed() < UNDER_WAY && !self.must_stop() {
            std::thread::sleep(Duration::from_millis(20));
        }
        bar.finish_and_clear();
    }

    /// Copies all, and what changes meanwhile if it follows; false if a signal came before all keys
    /// were looked at.
    fn copy_all(
        &mut self,
        args: &ImportArgs,
        source: &Server,
        done: &mut Progress,
    ) -> anyhow::Result<bool> {
        if !args.follow {
            return self.copy_keys(args, done, None);
        }
        let before = changes::setting(&mut self.from)?;
        if let Some(wanted) = changes::wanted(&before) {
            // Before it is set, so that it is known if this ends in between.
            done.notifications = Some(before);
            progress::store(&args.state, done)?;
            changes::set(&mut self.from, &wanted)?;
        }
        let mut changes = Changes::watch(source.connect()?, source.database())?;
        self.copy_keys(args, done, Some(&mut changes))
    }

    fn copy_keys(
        &mut self,
        args: &ImportArgs,
        done: &mut Progress,
        mut changes: Option<&mut Changes>,
    ) -> anyhow::Result<bool> {
        let bar = progress::bar();
        let mut checked = Instant::now();
        loop {
            let stops = self.must_stop();
            if stops && done.stage != Stage::Whole {
                return Ok(false);
            }
            if done.stage != Stage::Whole {
                self.copy_or_delete_some(args, done)?;
                progress::store(&args.state, done)?;
            }
            let how = match done.stage {
                Stage::Copying => "copying",
                Stage::Deleting => "deleting",
                Stage::Whole => "following",
            };
            let keys = count(done.copied, "key");
            let Some(changes) = changes.as_deref_mut() else {
                bar.set_message(format!("{how}: {keys}"));
                if done.stage == Stage::Whole {
                    return Ok(true);
                }
                continue;
            };
            if stops {
                self.copy_rest(args, changes)?;
            }
            if stops || checked.elapsed() > CHECK_PERIOD {
                changes::check(&mut self.from)?;
                checked = Instant::now();
            }
            let changed = changes.take()?;
            for keys in changed.chunks(usize::from(args.batch)) {
                self.copy(keys)?;
            }
            bar.set_message(format!("{how}: {keys}, {}", count(self.writes, "write")));
            if stops {
                return Ok(true);
            }
            if done.stage == Stage::Whole && changed.is_empty() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Sets the source's notifications to what they were, if they were changed.
    fn end(&mut self, args: &ImportArgs, done: &mut Progress) -> anyhow::Result<()> {
        let Some(before) = &done.notifications else { return Ok(()) };
        changes::set(&mut self.from, before)?;
        done.notifications = None;
        progress::store(&args.state, done)
    }

    /// Goes on with a part of the keys.
    fn copy_or_delete_some(
        &mut self,
        args: &ImportArgs,
        done: &mut Progress,
    ) -> anyhow::Result<()> {
        let (pattern, batch) = (args.pattern.as_deref(), usize::from(args.batch));
        let next = match done.stage {
            Stage::Copying => {
                let (next, keys) = server::scan(&mut self.from, done.cursor, pattern, batch)?;
                for keys in keys.chunks(batch) {
                    let (copied, others) = self.copy(keys)?;
                    done.copied += copied;
                    done.leave_out(&others);
                }
                next
            }
            Stage::Deleting => {
                self.deletes_others = true;
                let (next, keys) = self.scan_target(done.cursor, pattern, batch)?;
                for keys in keys.chunks(batch) {
                    done.deleted += self.delete(keys)?;
                }
                next
            }
            Stage::Whole => return Ok(()),
        };
        done.advance(next, args.delete);
        Ok(())
    }

    fn scan_target(
        &mut self,
        cursor: u64,
        pattern: Option<&str>,
        count: usize,
    ) -> anyhow::Result<(u64, Vec<Vec<u8>>)> {
        let began = Instant::now();
        loop {
            match server::scan(&mut self.to, cursor, pattern, count) {
                Ok(found) => return Ok(found),
                Err(error) if is_passing(&error) => self.pause(began, &error)?,
                Err(error) => bail!("the gateway can't list its keys: {error}"),
            }
        }
    }

    /// Deletes those keys of the target that are no strings at the source; how many.
    ///
    /// What is written at the source meanwhile isn't lost. Before `copy` reads the key it is copied
    /// instead. After that the source tells of it, and this thread takes what was told, and copies
    /// it, when the deletion is done.
    fn delete(&mut self, keys: &[Vec<u8>]) -> anyhow::Result<u64> {
        let lacking = server::no_strings(&mut self.from, keys)?;
        let (copied, _) = self.copy(&lacking)?;
        Ok(lacking.len() as u64 - copied)
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

    /// Makes keys at the target what they are at the source. How many were strings, and which are
    /// something else.
    ///
    /// Where the gateway doesn't know what became of a write, the keys are read and written again.
    /// A key that is written twice has the same value; an older one could come back only by a
    /// packet that is late by more than the gateway's deadline.
    fn copy<'k>(&mut self, keys: &'k [Vec<u8>]) -> anyhow::Result<(u64, Vec<&'k [u8]>)> {
        let began = Instant::now();
        loop {
            let mut planned = self.commands(keys)?;
            match self.write(&mut planned)? {
                None => {
                    self.writes += planned.keys.len() as u64;
                    return Ok((planned.strings, planned.others));
                }
                Some(error) => self.pause(began, &error)?,
            }
        }
    }

    /// Waits before it is tried again what the gateway has refused for now, since `began`.
    fn pause(&mut self, began: Instant, error: &RedisError) -> anyhow::Result<()> {
        if began.elapsed() > PATIENCE {
            bail!("the gateway refused it for {PATIENCE:?}: {error}");
        }
        if !self.follows && self.must_stop() {
            bail!("stopped; the same command goes on. The gateway said last: {error}");
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// What makes these keys at the target what they are at the source.
    fn commands<'k>(&mut self, keys: &'k [Vec<u8>]) -> anyhow::Result<Planned<'k>> {
        let found = server::read(&mut self.from, keys)?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let mut planned =
            Planned { commands: pipe(), keys: Vec::new(), strings: 0, others: Vec::new() };
        for (key, found) in keys.iter().zip(&found) {
            let commands = &mut planned.commands;
            match found {
                Found::Record(ExpiringValue { value, expires_in_ms: None }) => {
                    commands.cmd("SET").arg(key).arg(value);
                    planned.strings += 1;
                }
                Found::Record(ExpiringValue { value, expires_in_ms: Some(ms) }) => {
                    commands.cmd("SET").arg(key).arg(value).arg("PXAT").arg(now_ms + ms.max(&1));
                    planned.strings += 1;
                }
                Found::Nothing => {
                    commands.cmd("DEL").arg(key);
                }
                Found::OtherType => {
                    planned.others.push(key);
                    if !self.deletes_others {
                        continue;
                    }
                    commands.cmd("DEL").arg(key);
                }
            }
            planned.keys.push(key);
        }
        Ok(planned)
    }

    /// Sends commands to the target: the first error after which they may be sent again.
    fn write(&mut self, planned: &mut Planned<'_>) -> anyhow::Result<Option<RedisError>> {
        if planned.keys.is_empty() {
            return Ok(None);
        }
        let mut again = None;
        let answers = server::run(&mut self.to, &mut planned.commands)?;
        for (key, answer) in planned.keys.iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(error) if is_passing(&error) => again = again.or(Some(error)),
                Err(error) => {
                    bail!("the gateway refused the record of {}: {error}", key.escape_ascii())
                }
            }
        }
        Ok(again)
    }
}

/// What is to be sent to the target.
struct Planned<'k> {
    commands: Pipeline,
    /// The key of each command.
    keys: Vec<&'k [u8]>,
    /// How many are strings at the source.
    strings: u64,
    /// Keys that are something else there.
    others: Vec<&'k [u8]>,
}

/// Whether the command may be sent again.
fn is_passing(error: &RedisError) -> bool {
    AGAIN.contains(&error.code().unwrap_or_default())
}
