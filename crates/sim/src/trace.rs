//! What happened, as a hash (always) and as text (on demand). The same seed and binary make the same trace.

use std::fmt::{self, Write as _};

/// A run's trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    text: Option<String>,
}

impl Trace {
    /// A trace; with text it is much slower.
    pub fn new(text: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, text: text.then(String::new) }
    }

    /// Whether text is wanted.
    #[inline]
    pub fn is_text(&self) -> bool {
        self.text.is_some()
    }

    /// Takes a number into the hash.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }

    /// Takes bytes into the hash.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.number(u64::from_le_bytes(word.try_into().expect("chunks of eight")));
        }
        for &byte in words.remainder() {
            self.number(u64::from(byte));
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

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}
