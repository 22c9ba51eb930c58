//! The connections that MONITOR has made monitors, and the lines that wait for them.
//!
//! Any worker adds a line for each command that it executes. The worker that has the monitor takes
//! what has gathered when the monitor's socket has room. A monitor that is slower than the gateway
//! loses lines and is told how many: no worker waits for it.

use crate::connection::ConnectionId;
use crate::resp::Args;
use mio::Waker;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Monitors at a time.
pub(crate) const MONITORS_MAX: usize = 8;
/// Bytes of lines that wait for one monitor.
pub(crate) const WAITING_BYTES_MAX: usize = 1 << 20;

/// A connection that sees all commands.
#[derive(Debug)]
struct Monitor {
    /// The connection, as CLIENT LIST numbers it.
    number: u64,
    id: ConnectionId,
    /// The index of the worker that has it, and what wakes that.
    worker: usize,
    waker: Arc<Waker>,
    /// Lines that it hasn't taken yet.
    lines: Vec<u8>,
    /// Commands that had no room behind `lines`.
    dropped: u64,
    /// Its worker was woken since lines were taken last: one wake-up is enough.
    is_told: bool,
    /// Its worker has listed it among the connections to write to since then.
    is_noted: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    /// How many there are, for a look without the lock.
    count: AtomicUsize,
    all: Mutex<Vec<Monitor>>,
}

impl Monitors {
    fn all(&self) -> MutexGuard<'_, Vec<Monitor>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a monitor.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Adds a connection of a worker; false if there are [`MONITORS_MAX`] already.
    pub(crate) fn enter(
        &self,
        number: u64,
        id: ConnectionId,
        worker: usize,
        waker: Arc<Waker>,
    ) -> bool {
        let mut all = self.all();
        if all.len() >= MONITORS_MAX {
            return false;
        }
        all.push(Monitor {
            number,
            id,
            worker,
            waker,
            lines: Vec::new(),
            dropped: 0,
            is_told: false,
            is_noted: false,
        });
        self.count.store(all.len(), Relaxed);
        true
    }

    /// Takes a connection out, and appends to `out` what waited for it.
    pub(crate) fn leave(&self, number: u64, out: &mut Vec<u8>) {
        self.take(number, out);
        let mut all = self.all();
        all.retain(|monitor| monitor.number != number);
        self.count.store(all.len(), Relaxed);
    }

    /// Shows all monitors a command that `by` sent: an address, or `lua`. The words at `hidden` are
    /// shown as `(redacted)`.
    pub(crate) fn show(&self, by: impl Display, args: Args<'_>, hidden: impl Fn(usize) -> bool) {
        // The line is made without the lock, so that workers don't wait for each other meanwhile.
        let line = (args.bytes() < WAITING_BYTES_MAX).then(|| {
            let mut line = head(by);
            for (at, word) in args.from(0).enumerate() {
                line.push(b' ');
                quote(&mut line, if hidden(at) { b"(redacted)" } else { word });
            }
            line.extend_from_slice(b"\r\n");
            line
        });
        for monitor in self.all().iter_mut() {
            match &line {
                // What comes after a dropped command is dropped, too, until the monitor takes its
                // lines: so the line that tells of them is where they were.
                Some(line)
                    if monitor.dropped == 0
                        && monitor.lines.len() + line.len() <= WAITING_BYTES_MAX =>
                {
                    monitor.lines.extend_from_slice(line);
                }
                _ => monitor.dropped += 1,
            }
            if !std::mem::replace(&mut monitor.is_told, true)
                && let Err(error) = monitor.waker.wake()
            {
                tracing::warn!(%error, worker = monitor.worker, "can't wake a monitor's worker");
            }
        }
    }

    /// Tells a worker which of its connections have lines that it wasn't told of.
    pub(crate) fn note(&self, worker: usize, mut tell: impl FnMut(ConnectionId)) {
        for monitor in self.all().iter_mut() {
            if monitor.worker == worker
                && monitor.is_told
                && !std::mem::replace(&mut monitor.is_noted, true)
            {
                tell(monitor.id);
            }
        }
    }

    /// Appends to `out` what waits for a monitor.
    pub(crate) fn take(&self, number: u64, out: &mut Vec<u8>) {
        let mut all = self.all();
        let Some(monitor) = all.iter_mut().find(|monitor| monitor.number == number) else { return };
        let lines = std::mem::take(&mut monitor.lines);
        let dropped = std::mem::take(&mut monitor.dropped);
        (monitor.is_told, monitor.is_noted) = (false, false);
        drop(all);
        out.extend_from_slice(&lines);
        if dropped > 0 {
            out.extend(head("switchback:0"));
            out.extend(format!(" \"DROPPED\" \"{dropped}\"\r\n").bytes());
        }
    }
}

/// What a line begins with: the time, and whose command it is.
fn head(by: impl Display) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = String::with_capacity(128);
    // Writing to a `String` can't fail.
    let _ = write!(text, "+{}.{:06} [0 {by}]", now.as_secs(), now.subsec_micros());
    text.into_bytes()
}

/// A word as Redis quotes it.
fn quote(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                out.extend([b'\\', b'x', digits[0], digits[1]]);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::resp::Range;
    use mio::{Poll, Token};

    fn monitors(count: u64) -> (Poll, Monitors) {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let monitors = Monitors::default();
        for number in 0..count {
            let id = ConnectionId { index: number as u32, serial: 0 };
            assert!(monitors.enter(number, id, number as usize % 2, Arc::clone(&waker)));
        }
        (poll, monitors)
    }

    fn show(monitors: &Monitors, word: &[u8]) {
        monitors.show("1.2.3.4:5", Args::new(word, &[Range::new(0, word.len())]), |_| false);
    }

    /// The lines without their times.
    fn taken(monitors: &Monitors, number: u64) -> Vec<String> {
        let mut out = Vec::new();
        monitors.take(number, &mut out);
        let text = String::from_utf8(out).unwrap();
        let after_time = |line: &str| line.split_once(' ').unwrap().1.to_owned();
        text.lines().map(after_time).collect()
    }

    #[test]
    fn bytes_are_quoted() {
        let mut out = Vec::new();
        quote(&mut out, b"a b'\"\\\n\r\t\x07\x08\0\x7f\xff~");
        assert_eq!(out, br#""a b'\"\\\n\r\t\a\b\x00\x7f\xff~""#);
    }

    #[test]
    fn each_monitor_takes_all_lines_once() {
        let (_poll, monitors) = monitors(2);
        show(&monitors, b"one");
        show(&monitors, b"two");
        let wanted = ["[0 1.2.3.4:5] \"one\"", "[0 1.2.3.4:5] \"two\""];
        assert_eq!(taken(&monitors, 0), wanted);
        assert!(taken(&monitors, 0).is_empty());
        let mut rest = Vec::new();
        monitors.leave(1, &mut rest);
        assert_eq!(rest.iter().filter(|byte| **byte == b'\n').count(), 2);
        assert!(taken(&monitors, 1).is_empty());
        assert!(monitors.are_any());
        monitors.leave(0, &mut rest);
        assert!(!monitors.are_any());
    }

    #[test]
    fn a_worker_is_told_once_of_what_it_can_take() {
        let (_poll, monitors) = monitors(4);
        let noted = |worker| {
            let mut ids = Vec::new();
            monitors.note(worker, |id| ids.push(id.index));
            ids
        };
        assert_eq!(noted(0), [0u32; 0]);
        show(&monitors, b"a");
        assert_eq!((noted(0), noted(0), noted(1)), (vec![0, 2], vec![], vec![1, 3]));
        show(&monitors, b"b");
        assert_eq!(noted(0), [0u32; 0], "nothing was taken");
        assert_eq!(taken(&monitors, 2).len(), 2);
        show(&monitors, b"c");
        assert_eq!(noted(0), [2]);
    }

    #[test]
    fn what_has_no_room_is_dropped_and_counted() {
        let (_poll, monitors) = monitors(1);
        let half = vec![b'x'; WAITING_BYTES_MAX / 2];
        for word in [&b"first"[..], &half, &half, b"short", b"short"] {
            show(&monitors, word);
        }
        let lines = taken(&monitors, 0);
        assert_eq!((lines.len(), &lines[0][..]), (3, "[0 1.2.3.4:5] \"first\""));
        assert_eq!(lines[2], "[0 switchback:0] \"DROPPED\" \"3\"");
        // One that never has room, by its length or by that of its line.
        for long in [vec![b'x'; 2 * WAITING_BYTES_MAX], vec![0; WAITING_BYTES_MAX / 2]] {
            show(&monitors, &long);
            assert_eq!(taken(&monitors, 0), ["[0 switchback:0] \"DROPPED\" \"1\""]);
        }
        show(&monitors, b"again");
        assert_eq!(taken(&monitors, 0), ["[0 1.2.3.4:5] \"again\""]);
    }

    #[test]
    fn there_are_few_monitors() {
        let (poll, monitors) = monitors(MONITORS_MAX as u64);
        let waker = Arc::new(Waker::new(poll.registry(), Token(1)).unwrap());
        assert!(!monitors.enter(99, ConnectionId::default(), 0, Arc::clone(&waker)));
        monitors.leave(0, &mut Vec::new());
        assert!(monitors.enter(99, ConnectionId::default(), 0, waker));
    }
}
