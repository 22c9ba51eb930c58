//! Which keys the source changes while they are copied, by its keyspace notifications.

use anyhow::{Context, bail, ensure};
use redis::{Connection, Msg, cmd};
use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Changed keys that are remembered; no more notifications are taken while all places are full.
const KEYS_MAX: usize = 100_000;
/// How long the source may take to tell what it has changed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events of keys (`E`), of all types and reasons (`A`).
const WANTED: &str = "EA";

type Keys = Arc<Mutex<HashSet<Vec<u8>>>>;

/// A subscription to what changes; a thread takes it.
pub(crate) struct Changes {
    keys: Keys,
    /// Told when the marker comes; closed when the subscription ends.
    marked: Receiver<()>,
    marker: String,
}

fn lock(keys: &Keys) -> MutexGuard<'_, HashSet<Vec<u8>>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Changes {
    /// Subscribes, to what a source tells on which that is enabled.
    pub(crate) fn watch(mut subscribed: Connection, database: i64) -> anyhow::Result<Changes> {
        let marker = format!("switchback-import-{}", std::process::id());
        for (how, channel) in
            [("PSUBSCRIBE", format!("__keyevent@{database}__:*")), ("SUBSCRIBE", marker.clone())]
        {
            let mut command = cmd(how);
            command.arg(channel);
            subscribed.send_packed_command(&command.get_packed_command())?;
            subscribed.recv_response()?;
        }
        // Between two changes any time may pass.
        subscribed.set_read_timeout(None)?;
        let (keys, (marks, marked)) = (Keys::default(), channel());
        let (theirs, name) = (Arc::clone(&keys), marker.clone());
        std::thread::Builder::new()
            .name("changes".into())
            .spawn(move || take_notes(subscribed, &theirs, &name, &marks))?;
        Ok(Changes { keys, marked, marker })
    }

    /// Takes the keys that have changed until now, as far as the source has told.
    pub(crate) fn take(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let ended = self.marked.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
        ensure!(!ended, "{LOST}");
        Ok(lock(&self.keys).drain().collect())
    }

    /// Has the source send the marker: it answers in order, so that all that has changed until now
    /// is told before.
    pub(crate) fn mark(&mut self, source: &mut Connection) -> anyhow::Result<()> {
        let told: i64 = cmd("PUBLISH").arg(&self.marker).arg("").query(source)?;
        ensure!(told == 1, "{LOST}");
        Ok(())
    }

    /// Whether the marker has come; waits a little.
    pub(crate) fn is_marked(&mut self, waited: Duration) -> anyhow::Result<bool> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.marked.recv_timeout(Duration::from_millis(20)) {
            Ok(()) => Ok(true),
            Err(Timeout) if waited < PATIENCE => Ok(false),
            Err(Timeout | Disconnected) => bail!("{LOST}"),
        }
    }
}

/// Takes what the source tells, until it ends the subscription.
fn take_notes(mut subscribed: Connection, keys: &Keys, marker: &str, marks: &Sender<()>) {
    while let Ok(message) = subscribed.recv_response() {
        let Some(message) = Msg::from_value(&message) else { continue };
        if message.get_channel_name() == marker {
            if marks.send(()).is_err() {
                return;
            }
            continue;
        }
        while lock(keys).len() >= KEYS_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        lock(keys).insert(message.get_payload_bytes().to_vec());
    }
}

const LOST: &str = "the source has ended the subscription to its changes, so some may be missed; \
     raise its client-output-buffer-limit for pubsub, and begin again";

const SETTING: &str = "notify-keyspace-events";

/// What a source's notifications are set to.
pub(crate) fn setting(source: &mut Connection) -> anyhow::Result<String> {
    let found: Vec<String> = cmd("CONFIG").arg("GET").arg(SETTING).query(source)?;
    match <[String; 2]>::try_from(found) {
        Ok([_, setting]) => Ok(setting),
        Err(_) => bail!("the source has no {SETTING}, so --follow can't know what it changes"),
    }
}

/// What notifications have to be set to so that a source tells of changes, if that is another
/// setting than this.
pub(crate) fn wanted(setting: &str) -> Option<String> {
    let missing = || WANTED.chars().filter(|flag| !setting.contains(*flag));
    missing().next()?;
    Some(setting.chars().chain(missing()).collect())
}

/// Fails if a source doesn't tell of all changes any more.
pub(crate) fn check(source: &mut Connection) -> anyhow::Result<()> {
    let setting = setting(source)?;
    ensure!(
        wanted(&setting).is_none(),
        "{SETTING} of the source was set to \"{setting}\" meanwhile, so changes may be missed; \
         begin again"
    );
    Ok(())
}

/// Sets the source's notifications.
pub(crate) fn set(source: &mut Connection, value: &str) -> anyhow::Result<()> {
    cmd("CONFIG").arg("SET").arg(SETTING).arg(value).exec(source).with_context(|| {
        format!("the source refuses CONFIG SET {SETTING} {value}; set it there by other means")
    })
}
