//! A window that slides by seconds: a sketch for each of the last ones.

use super::sketch::{HotKey, Sketch};
use super::{Access, Subject};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use switchback_wire::KeyHash;

/// Whole seconds that a window has at most.
pub const SECONDS_MAX: u64 = 10;

/// The second that is under way has a sketch, too.
const PANES: usize = SECONDS_MAX as usize + 1;

const SECOND_US: u64 = 1_000_000;

/// The samples of one thread, by second.
#[derive(Debug, Default)]
pub(super) struct Window([Pane; PANES]);

#[derive(Debug, Default)]
struct Pane {
    second: u64,
    sketch: Sketch,
}

impl Window {
    /// Counts a sample. Time doesn't go back.
    pub(super) fn add(&mut self, now_us: u64, access: Access, subject: Subject<'_>) {
        let second = now_us / SECOND_US;
        let pane = &mut self.0[(second % PANES as u64) as usize];
        if pane.second != second {
            pane.second = second;
            pane.sketch.clear();
        }
        pane.sketch.add(access, subject);
    }

    /// Adds what was counted in the last `seconds` and the one under way.
    pub(super) fn add_to(&self, hottest: &mut Hottest, now_us: u64, seconds: u64) {
        let (first, last) = limits(now_us, seconds);
        hottest.window_us = now_us - first * SECOND_US;
        self.sketches(first, last).for_each(|sketch| hottest.add(sketch));
    }

    /// Samples of a key in the last `seconds` and the one under way.
    pub(super) fn samples_of(&self, hash: &KeyHash, now_us: u64, seconds: u64) -> u64 {
        let (first, last) = limits(now_us, seconds);
        self.sketches(first, last).map(|sketch| u64::from(sketch.samples_of(hash))).sum()
    }

    fn sketches(&self, first: u64, last: u64) -> impl Iterator<Item = &Sketch> {
        (first..=last).filter_map(move |second| {
            let pane = &self.0[(second % PANES as u64) as usize];
            (pane.second == second).then_some(&pane.sketch)
        })
    }
}

/// The first second of a window, and the one under way.
fn limits(now_us: u64, seconds: u64) -> (u64, u64) {
    let last = now_us / SECOND_US;
    (last.saturating_sub(seconds.min(SECONDS_MAX)), last)
}

/// The hottest keys of a window.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Hottest {
    keys: BTreeMap<KeyHash, HotKey>,
    window_us: u64,
    samples: u64,
    uncounted_max: u64,
}

impl Hottest {
    fn add(&mut self, sketch: &Sketch) {
        self.samples += u64::from(sketch.samples());
        self.uncounted_max += u64::from(sketch.uncounted_max());
        for key in sketch.keys() {
            let same = self.keys.entry(key.hash());
            same.and_modify(|known| known.add(key)).or_insert_with(|| key.clone());
        }
    }

    /// How long the window is.
    pub fn window_us(&self) -> u64 {
        self.window_us
    }

    /// Samples of all keys.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples that the count of a key lacks at most.
    pub fn uncounted_max(&self) -> u64 {
        self.uncounted_max
    }

    /// The keys, the most sampled first.
    pub fn keys(&self) -> Vec<&HotKey> {
        let mut keys: Vec<_> = self.keys.values().collect();
        keys.sort_by_key(|key| (Reverse(key.samples()), key.hash()));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(window: &mut Window, now_us: u64, name: u8) {
        let access = Access { hash: KeyHash([name; 16]), is_write: false, is_cached: true };
        window.add(now_us, access, Subject { key: &[name], value_bytes: Some(name.into()) });
    }

    fn counted(window: &Window, now_us: u64, seconds: u64) -> Vec<(u8, u32)> {
        let mut hottest = Hottest::default();
        window.add_to(&mut hottest, now_us, seconds);
        hottest.keys().iter().map(|key| (key.key()[0], key.samples())).collect()
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::default();
        for second in 0..20 {
            add(&mut window, second * SECOND_US, 1);
            add(&mut window, second * SECOND_US + 999_999, second as u8 + 100);
        }
        let now_us = 20 * SECOND_US - 1;
        assert_eq!(counted(&window, now_us, 0), [(1, 1), (119, 1)]);
        assert_eq!(counted(&window, now_us, 1), [(1, 2), (118, 1), (119, 1)]);
        assert_eq!(counted(&window, now_us, u64::MAX).len(), PANES + 1);
        assert_eq!(counted(&window, now_us, SECONDS_MAX)[0], (1, PANES as u32));
        // Nothing came since.
        assert_eq!(counted(&window, 29 * SECOND_US, SECONDS_MAX)[0], (1, 1));
        assert_eq!(counted(&window, 30 * SECOND_US, SECONDS_MAX), []);
        let samples = |name, seconds| window.samples_of(&KeyHash([name; 16]), now_us, seconds);
        assert_eq!((samples(1, 0), samples(1, 1), samples(1, u64::MAX)), (1, 2, PANES as u64));
        assert_eq!((samples(118, 1), samples(118, 0), samples(99, 9)), (1, 0, 0));
    }

    #[test]
    fn a_window_is_as_long_as_it_says() {
        let window = Window::default();
        let length = |now_us, seconds| {
            let mut hottest = Hottest::default();
            window.add_to(&mut hottest, now_us, seconds);
            hottest.window_us()
        };
        assert_eq!(length(5_300_000, 2), 2_300_000);
        assert_eq!(length(1_300_000, 2), 1_300_000, "it began then");
        assert_eq!(length(50_000_000, 99), 10_000_000);
    }
}
