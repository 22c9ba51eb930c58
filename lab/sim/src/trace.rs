//! What happened, as a hash (always) and as text (on demand). The same seed and binary make the
//! same trace.

use std::fmt::{self, Write as _};
use switchback_wire::{Address, Capture};

/// A capture of a run's packets is no longer than this.
const CAPTURE_BYTES_MAX: u64 = 256 << 20;

/// Words that are hashed side by side.
const LANES: usize = 4;

/// What a trace is to hold beside the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// A line an event; much slower.
    pub text: bool,
    /// All packets that arrive somewhere, as a capture file.
    pub packets: bool,
}

/// A run's trace.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    text: Option<String>,
    capture: Option<Capture<Vec<u8>>>,
}

impl Trace {
    /// A trace.
    pub fn new(wanted: Wanted) -> Trace {
        let capture = wanted
            .packets
            .then(|| Capture::new(Vec::new(), CAPTURE_BYTES_MAX).expect("memory takes bytes"));
        Trace { hash: 0xcbf2_9ce4_8422_2325, text: wanted.text.then(String::new), capture }
    }

    /// Whether text is wanted.
    #[inline]
    pub fn is_text(&self) -> bool {
        self.text.is_some()
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

    /// Writes a line, if text is wanted.
    #[inline]
    pub fn line(&mut self, at_us: u64, line: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            let line = line();
            let _ = writeln!(text, "{at_us:>10} {line}");
        }
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
