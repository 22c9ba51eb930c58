//! What happened, as a hash (always), and as text or for the console's player (on demand). The same
//! seed and binary make the same trace.

use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use switchback_assembly::Part;
use switchback_wire::{Address, Capture, KeyHash};

/// A capture of a run's packets is no longer than this.
const CAPTURE_BYTES_MAX: u64 = 256 << 20;

/// Events that are kept for the player, the last ones: it is the end that shows what went wrong.
const EVENTS_MAX: usize = 20_000;

/// Words that are hashed side by side.
const LANES: usize = 4;

/// What a trace is to hold beside the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// A line an event; much slower.
    pub text: bool,
    /// All packets that arrive somewhere, as a capture file.
    pub packets: bool,
    /// The last events, to be played in the console; much slower.
    pub events: bool,
}

/// An event, as the console's player reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TraceEvent {
    /// When.
    pub at_us: u64,
    /// `packet` or `message`, which are sent; `part`, which starts or crashes; `violation`; `note`.
    pub kind: &'static str,
    /// Who sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What starts or crashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Hash of the key that a packet is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When copies arrive of what was sent; none: it is lost.
    pub arrives_us: Vec<u64>,
    /// What.
    pub text: String,
}

/// Something that is sent.
pub(crate) struct Sending {
    pub(crate) from: Part,
    pub(crate) to: Part,
    /// Of a packet; a message has none.
    pub(crate) key: Option<KeyHash>,
    pub(crate) text: String,
    /// When copies arrive.
    pub(crate) arrives_us: Vec<u64>,
    /// What becomes of it, for people.
    pub(crate) fate: String,
}

/// A run's trace.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    text: Option<String>,
    capture: Option<Capture<Vec<u8>>>,
    events: Option<VecDeque<TraceEvent>>,
    left_out: u64,
}

impl Trace {
    /// A trace.
    pub fn new(wanted: Wanted) -> Trace {
        let capture = wanted
            .packets
            .then(|| Capture::new(Vec::new(), CAPTURE_BYTES_MAX).expect("memory takes bytes"));
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            text: wanted.text.then(String::new),
            capture,
            events: wanted.events.then(VecDeque::new),
            left_out: 0,
        }
    }

    /// Whether events are to be described.
    #[inline]
    pub fn is_described(&self) -> bool {
        self.text.is_some() || self.events.is_some()
    }

    /// Takes a number into the hash.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.hash = mix(self.hash, number);
    }

    /// Takes bytes into the hash, in four lanes: a multiplication waits for the one before it, so
    /// one lane would be a quarter as fast.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut lanes: [u64; LANES] = [self.hash, 1, 2, 3];
        let mut blocks = bytes.chunks_exact(LANES * 8);
        for block in &mut blocks {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
                *lane = mix(*lane, word);
            }
        }
        self.hash = lanes.into_iter().reduce(mix).expect("there are four");
        for word in blocks.remainder().chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.number(u64::from_le_bytes(padded));
        }
    }

    /// Notes something, if that is wanted.
    #[inline]
    pub fn line(&mut self, at_us: u64, line: impl FnOnce() -> String) {
        if self.is_described() {
            self.describe(TraceEvent {
                at_us,
                kind: "note",
                text: line(),
                ..TraceEvent::default()
            });
        }
    }

    /// Notes that a promise was broken.
    pub(crate) fn violation(&mut self, at_us: u64, text: String) {
        let text = format!("VIOLATION {text}");
        self.describe(TraceEvent { at_us, kind: "violation", text, ..TraceEvent::default() });
    }

    /// Notes that a part `starts` or `crashes`, if that is wanted.
    pub(crate) fn part(&mut self, at_us: u64, part: Part, what: &str) {
        if !self.is_described() {
            return;
        }
        let (text, part) = (format!("{part} {what}"), Some(part.to_string()));
        self.describe(TraceEvent { at_us, kind: "part", part, text, ..TraceEvent::default() });
    }

    /// Notes what is sent, if that is wanted.
    #[inline]
    pub(crate) fn sent(&mut self, at_us: u64, sending: impl FnOnce() -> Sending) {
        if self.is_described() {
            self.describe_sent(at_us, sending());
        }
    }

    fn describe_sent(&mut self, at_us: u64, sending: Sending) {
        let Sending { from, to, key, text, arrives_us, fate } = sending;
        let (arrow, kind) = if key.is_some() { ("->", "packet") } else { ("=>", "message") };
        self.write(at_us, format_args!("{from} {arrow} {to} {text} {fate}"));
        let (from, to) = (Some(from.to_string()), Some(to.to_string()));
        let key = key.map(|key| format!("{key:?}"));
        self.keep(TraceEvent { at_us, kind, from, to, part: None, key, arrives_us, text });
    }

    fn describe(&mut self, event: TraceEvent) {
        self.write(event.at_us, format_args!("{}", event.text));
        self.keep(event);
    }

    fn write(&mut self, at_us: u64, line: fmt::Arguments<'_>) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{at_us:>10} {line}");
        }
    }

    fn keep(&mut self, event: TraceEvent) {
        let Some(events) = &mut self.events else { return };
        if events.len() == EVENTS_MAX {
            events.pop_front();
            self.left_out += 1;
        }
        events.push_back(event);
    }

    /// Takes the last events out, and how many came before them; none if they weren't wanted.
    pub fn take_events(&mut self) -> (Vec<TraceEvent>, u64) {
        (self.events.take().unwrap_or_default().into(), self.left_out)
    }

    /// Captures a packet, if packets are wanted and there is room.
    #[inline]
    pub fn packet(&mut self, at_us: u64, from: Address, to: Address, packet: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.write(at_us, from, to, packet).expect("memory takes bytes");
        }
    }

    /// Takes the capture file out; empty if packets weren't wanted.
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.capture.take().map(Capture::into_inner).unwrap_or_default()
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}
