//! Which keys the source changes while they are copied, by its keyspace notifications.

use anyhow::{Context, bail, ensure};
use redis::{Connection, Msg, RedisError, cmd};
use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changed keys that are remembered; more are copied before further ones are taken.
const KEYS_MAX: usize = 100_000;
/// How long to wait for notifications that may be under way, and to take what comes without end.
const QUIET: Duration = Duration::from_millis(10);
const TAKEN_WITHIN: Duration = Duration::from_millis(50);

/// Events of keys (`E`), of all types and reasons (`A`).
const WANTED: &str = "EA";

/// A subscription to what changes.
pub(crate) struct Changes {
    /// Never used for other commands.
    subscribed: Connection,
    /// What the source's notifications were set to, if that was changed.
    before: Option<String>,
    marker: String,
    keys: HashSet<Vec<u8>>,
}

impl Changes {
    /// Subscribes; has the source tell of changes if it doesn't yet.
    pub(crate) fn watch(
        source: &mut Connection,
        mut subscribed: Connection,
        database: i64,
    ) -> anyhow::Result<Changes> {
        let before = enable(source)?;
        let marker = format!("switchback-import-{}", std::process::id());
        for (how, channel) in
            [("PSUBSCRIBE", format!("__keyevent@{database}__:*")), ("SUBSCRIBE", marker.clone())]
        {
            let mut command = cmd(how);
            command.arg(channel);
            subscribed.send_packed_command(&command.get_packed_command())?;
            subscribed.recv_response()?;
        }
        Ok(Changes { subscribed, before, marker, keys: HashSet::new() })
    }

    /// Takes the keys that have changed until now, as far as the source has told.
    pub(crate) fn take(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        self.subscribed.set_read_timeout(Some(QUIET))?;
        let end = Instant::now() + TAKEN_WITHIN;
        while self.keys.len() < KEYS_MAX && Instant::now() < end {
            match self.subscribed.recv_response() {
                Ok(message) => self.note(&message),
                Err(error) if error.is_timeout() || is_interrupted(&error) => break,
                Err(error) => return Err(error).context(LOST),
            };
        }
        Ok(self.keys.drain().collect())
    }

    /// The same, of all that has changed until now for certain: the source answers in order, so
    /// that everything is told before a message that is published now.
    pub(crate) fn take_all(&mut self, source: &mut Connection) -> anyhow::Result<Vec<Vec<u8>>> {
        let told: i64 = cmd("PUBLISH").arg(&self.marker).arg("").query(source)?;
        ensure!(told == 1, "{LOST}");
        self.subscribed.set_read_timeout(Some(Duration::from_secs(30)))?;
        loop {
            let message = match self.subscribed.recv_response() {
                Err(error) if is_interrupted(&error) => continue,
                message => message.context(LOST)?,
            };
            if self.note(&message) {
                return Ok(self.keys.drain().collect());
            }
        }
    }

    /// Takes note of a message; true if it is the marker.
    fn note(&mut self, message: &redis::Value) -> bool {
        let Some(message) = Msg::from_value(message) else { return false };
        if message.get_channel_name() == self.marker {
            return true;
        }
        self.keys.insert(message.get_payload_bytes().to_vec());
        false
    }

    /// Sets the source's notifications to what they were.
    pub(crate) fn end(self, source: &mut Connection) -> anyhow::Result<()> {
        let Some(before) = self.before else { return Ok(()) };
        set(source, &before)
    }
}

/// Whether a signal came while it waited.
fn is_interrupted(error: &RedisError) -> bool {
    type Cause = Arc<dyn Error + Send + Sync>;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Cause>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::Interrupted)
}

const LOST: &str = "the source has ended the subscription to its changes, so some may be missed; \
     raise its client-output-buffer-limit for pubsub, and begin again";

const SETTING: &str = "notify-keyspace-events";

/// Has the source tell of changes; what the setting was, if it wasn't right.
fn enable(source: &mut Connection) -> anyhow::Result<Option<String>> {
    let found: Vec<String> = cmd("CONFIG").arg("GET").arg(SETTING).query(source)?;
    let [_, before] = &found[..] else {
        bail!("the source has no {SETTING}, so --follow can't know what it changes");
    };
    if before.contains('E') && before.contains('A') {
        return Ok(None);
    }
    let mut wanted = before.clone();
    wanted.extend(WANTED.chars().filter(|flag| !before.contains(*flag)));
    set(source, &wanted)?;
    Ok(Some(before.clone()))
}

fn set(source: &mut Connection, value: &str) -> anyhow::Result<()> {
    cmd("CONFIG").arg("SET").arg(SETTING).arg(value).exec(source).with_context(|| {
        format!("the source refuses CONFIG SET {SETTING} {value}; set it there by other means")
    })
}
