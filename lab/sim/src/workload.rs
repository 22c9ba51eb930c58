//! What the clients' applications do: which keys, which operations, which values.

use crate::plan::Load;
use crate::random::Random;

/// What a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Reads a key.
    Read(u32),
    /// Writes a key: bytes of its value, milliseconds until it expires (0: never).
    Write(u32, usize, u64),
    /// Deletes a key.
    Delete(u32),
    /// Reads a key, then writes it if no other client has.
    Modify(u32),
    /// Writes (or deletes) a key if it is at the version that this application saw last.
    Guess(u32, usize, bool),
    /// Lists (or counts) the keys from a position on, in this many answers.
    Scan { from: u64, count_only: bool, answers: u32 },
}

/// Draws intents.
pub(crate) struct Workload {
    load: Load,
    random: Random,
    /// Cumulative popularity.
    popularity: Vec<f64>,
    keys: Vec<Vec<u8>>,
}

impl Workload {
    /// The keys and their popularity.
    pub(crate) fn new(load: &Load, mut random: Random) -> Workload {
        let mut sum = 0.0;
        let popularity = (0..load.keys).map(|rank| {
            sum += 1.0 / f64::from(rank + 1).powf(load.skew);
            sum
        });
        let popularity = popularity.collect();
        let name = |key: u32, random: &mut Random| {
            let mut name = format!("key-{key}").into_bytes();
            if random.chance(load.long_keys) {
                name.resize(random.between(129, 400) as usize, b'.');
            } else if random.chance(0.3) {
                name.resize(name.len() + random.below(100) as usize, b'-');
            }
            name
        };
        let keys = (0..load.keys).map(|key| name(key, &mut random)).collect();
        Workload { load: load.clone(), random, popularity, keys }
    }

    /// A key's bytes.
    pub(crate) fn key(&self, key: u32) -> &[u8] {
        &self.keys[key as usize]
    }

    /// The number of a key.
    pub(crate) fn number_of(&self, key: &[u8]) -> Option<u32> {
        let digits = key.strip_prefix(b"key-")?.iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(0u32, |number, digit| {
            number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))
        });
        (self.keys.get(number as usize)? == key).then_some(number)
    }

    /// How many keys there are.
    pub(crate) fn keys(&self) -> u32 {
        self.load.keys
    }

    fn draw_key(&mut self) -> u32 {
        let sum = self.popularity.last().copied().unwrap_or(1.0);
        let at = self.random.unit() * sum;
        self.popularity.partition_point(|&up_to| up_to <= at).min(self.keys.len() - 1) as u32
    }

    fn draw_bytes(&mut self) -> usize {
        if self.random.chance(self.load.large.0) {
            return self.random.between(1_169, self.load.large.1.max(1_169)) as usize;
        }
        self.random.between(8, self.load.value_bytes) as usize
    }

    /// What a thread does next.
    pub(crate) fn draw(&mut self) -> Intent {
        let key = self.draw_key();
        let total: f64 = self.load.mix.iter().sum();
        let mut at = self.random.unit() * total;
        let kind = self.load.mix.iter().position(|share| {
            at -= share;
            at < 0.0
        });
        match kind {
            Some(0) => Intent::Read(key),
            Some(2) => Intent::Delete(key),
            Some(3) => Intent::Modify(key),
            Some(4) => {
                let deletes = self.random.chance(0.2);
                Intent::Guess(key, self.draw_bytes(), deletes)
            }
            Some(5) => {
                let (from, count_only) = (self.random.bits(), self.random.chance(0.2));
                Intent::Scan { from, count_only, answers: self.random.between(1, 8) as u32 }
            }
            _ => {
                let expires = self.random.chance(self.load.expiring.0);
                let expiry_ms =
                    if expires { self.random.between(1, self.load.expiring.1.max(1)) } else { 0 };
                Intent::Write(key, self.draw_bytes(), expiry_ms)
            }
        }
    }

    /// What a thread of a client that only reads does next.
    pub(crate) fn draw_read(&mut self) -> Intent {
        Intent::Read(self.draw_key())
    }

    /// Length of a value that replaces another.
    pub(crate) fn bytes(&mut self) -> usize {
        self.draw_bytes()
    }

    /// A thread's pause.
    pub(crate) fn pause_us(&mut self) -> u64 {
        // Bursts: most pauses are short, so that operations on one key meet.
        if self.random.chance(0.5) {
            self.random.below(20)
        } else {
            self.random.exponential(self.load.think_us)
        }
    }
}
