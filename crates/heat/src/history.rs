//! What hash ranges were asked for over a day, in fixed memory.

use super::ranges::{Count, Counts, RANGES};

/// What is kept of each range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Reads.
    Reads,
    /// Writes and deletes.
    Writes,
    /// Requests of both kinds that a node answered.
    Nodes,
}

impl Plane {
    /// All of them.
    pub const ALL: [Plane; 3] = [Plane::Reads, Plane::Writes, Plane::Nodes];

    pub(super) fn of(self, count: Count) -> u32 {
        match self {
            Plane::Reads => count.reads(),
            Plane::Writes => count.writes(),
            Plane::Nodes => count.at_nodes(),
        }
    }
}

/// Values of a column: the ranges of each plane.
const CELLS: usize = RANGES * Plane::ALL.len();
type Cells = Box<[f32; CELLS]>;

fn empty() -> Cells {
    Box::new([0.0; CELLS])
}

/// Seconds that are kept one by one.
pub const FINE_SECONDS: u64 = 15 * 60;
/// Seconds that are kept in steps of [`COARSE_STEP`].
pub const COARSE_SECONDS: u64 = 24 * 60 * 60;
/// Seconds of such a step.
pub const COARSE_STEP: u64 = 15;

/// Rates of requests by hash range: each second of the last 15 minutes, and every 15 seconds of the
/// last day; 10.2 MB.
#[derive(Debug)]
pub struct History {
    counted: Counts,
    /// The second up to which it was counted.
    now_s: u64,
    fine: Ring,
    coarse: Ring,
    /// The coarse column under way: sums over `summed` seconds.
    sums: Cells,
    summed: u32,
}

impl Default for History {
    fn default() -> History {
        History {
            counted: Counts::default(),
            now_s: 0,
            fine: Ring::new(1, FINE_SECONDS),
            coarse: Ring::new(COARSE_STEP, COARSE_SECONDS),
            sums: empty(),
            summed: 0,
        }
    }
}

impl History {
    /// Takes what was counted from the start to the end of second `now_s - 1`. If it wasn't called
    /// for some seconds, each of them has their mean.
    pub fn push(&mut self, now_s: u64, counts: Counts) {
        let Some(elapsed) = now_s.checked_sub(self.now_s).filter(|elapsed| *elapsed > 0) else {
            return;
        };
        let mut rates = empty();
        for range in 0..=u8::MAX {
            let (now, before) = (counts.of(range), self.counted.of(range));
            for plane in Plane::ALL {
                let more = plane.of(now).wrapping_sub(plane.of(before));
                rates[place(plane, range)] = more as f32 / elapsed as f32;
            }
        }
        self.counted = counts;
        let oldest = now_s.saturating_sub(COARSE_SECONDS);
        for second in self.now_s.max(oldest)..now_s {
            self.put(second, &rates);
        }
        self.now_s = now_s;
    }

    fn put(&mut self, second: u64, rates: &Cells) {
        self.fine.put(second, rates);
        self.sums.iter_mut().zip(rates.iter()).for_each(|(sum, rate)| *sum += rate);
        self.summed += 1;
        if second % COARSE_STEP == COARSE_STEP - 1 {
            let seconds = std::mem::take(&mut self.summed) as f32;
            let mut means = std::mem::replace(&mut self.sums, empty());
            means.iter_mut().for_each(|mean| *mean /= seconds);
            self.coarse.put(second / COARSE_STEP, &means);
        }
    }

    /// The last `seconds`, in at most `columns_max` columns of equal length. A column of one length
    /// begins at the same seconds whenever it is asked for.
    pub fn view(&self, seconds: u64, columns_max: u64) -> View {
        let ring = if seconds <= FINE_SECONDS { &self.fine } else { &self.coarse };
        ring.view(seconds, columns_max.max(1))
    }
}

/// Where a range of a plane is.
fn place(plane: Plane, range: u8) -> usize {
    plane as usize * RANGES + usize::from(range)
}

/// Part of a history, as rates a second.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Seconds of a column.
    pub step_s: u64,
    /// The second at which the first column begins.
    pub first_s: u64,
    columns: Vec<Cells>,
}

impl View {
    /// The ranges' rates in each column.
    pub fn columns(&self, plane: Plane) -> impl Iterator<Item = &[f32]> {
        let first = place(plane, 0);
        self.columns.iter().map(move |cells| &cells[first..first + RANGES])
    }

    /// How many columns there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
}

/// Columns of equal length, the last ones.
#[derive(Debug)]
struct Ring {
    step_s: u64,
    /// How many it has room for.
    room: u64,
    /// The first column that was put, and the one after the last; numbers count from the start.
    first: Option<u64>,
    next: u64,
    cells: Vec<u16>,
}

impl Ring {
    fn new(step_s: u64, seconds: u64) -> Ring {
        let room = seconds / step_s;
        Ring { step_s, room, first: None, next: 0, cells: vec![0; room as usize * CELLS] }
    }

    fn place(&self, column: u64) -> usize {
        (column % self.room) as usize * CELLS
    }

    /// Columns come in their order, none left out but at the beginning.
    fn put(&mut self, column: u64, rates: &Cells) {
        self.first.get_or_insert(column);
        self.next = column + 1;
        let at = self.place(column);
        let cells = &mut self.cells[at..at + CELLS];
        cells.iter_mut().zip(rates.iter()).for_each(|(cell, rate)| *cell = encode(*rate));
    }

    fn view(&self, seconds: u64, columns_max: u64) -> View {
        let wanted = seconds.div_ceil(self.step_s).min(self.room);
        let group = wanted.div_ceil(columns_max).max(1);
        let oldest = self.first.unwrap_or(self.next).max(self.next.saturating_sub(self.room));
        if oldest == self.next {
            return View { step_s: group * self.step_s, first_s: 0, columns: Vec::new() };
        }
        let from = oldest.max(self.next.saturating_sub(wanted));
        let last = (self.next - 1) / group;
        let first = (from / group).max((last + 1).saturating_sub(columns_max));
        let mean = |number: u64| {
            self.mean((number * group).max(oldest)..((number + 1) * group).min(self.next))
        };
        View {
            step_s: group * self.step_s,
            first_s: first * group * self.step_s,
            columns: (first..=last).map(mean).collect(),
        }
    }

    fn mean(&self, columns: std::ops::Range<u64>) -> Cells {
        let count = (columns.end - columns.start) as f32;
        let mut means = empty();
        for column in columns {
            let at = self.place(column);
            let cells = &self.cells[at..at + CELLS];
            means.iter_mut().zip(cells).for_each(|(mean, cell)| *mean += decode(*cell) / count);
        }
        means
    }
}

/// Steps of the code for a doubling: values are kept within 0.02 %.
const STEPS: f32 = 2048.0;

/// Logarithmic, exact for 0; up to 2^32.
fn encode(rate: f32) -> u16 {
    // A cast of what is too large saturates.
    ((rate + 1.0).log2() * STEPS).round() as u16
}

fn decode(code: u16) -> f32 {
    (f32::from(code) / STEPS).exp2() - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Heat, Recorder, Subject};
    use switchback_wire::KeyHash;

    /// Reads of range 3 up to a number, and as many writes of range 9 by the cache.
    struct Asked(Heat, Recorder, u32);

    impl Asked {
        fn new() -> Asked {
            let heat = Heat::new(1);
            let recorder = Recorder::new(&heat, 0, 1);
            Asked(heat, recorder, 0)
        }

        fn up_to(&mut self, number: u32) -> Counts {
            for _ in self.2..number {
                for (range, is_write) in [(3, false), (9, true)] {
                    let hash = KeyHash([range; 16]);
                    let access = Access { hash, is_write, is_cached: is_write };
                    self.1.record(access, || Subject { key: b"k", value_bytes: None });
                }
            }
            self.2 = number;
            self.0.counts()
        }
    }

    fn of(view: &View, plane: Plane, range: usize) -> Vec<f32> {
        view.columns(plane).map(|column| column[range].round()).collect()
    }

    #[test]
    fn each_second_has_its_own_column() {
        let (mut asked, mut history) = (Asked::new(), History::default());
        assert!(history.view(900, 900).is_empty());
        history.push(1, asked.up_to(10));
        history.push(2, asked.up_to(40));
        history.push(2, asked.up_to(50));
        // It wasn't called for three seconds.
        history.push(5, asked.up_to(100));
        let view = history.view(900, 900);
        assert_eq!((view.step_s, view.first_s, view.len()), (1, 0, 5));
        assert_eq!(of(&view, Plane::Reads, 3), [10.0, 30.0, 20.0, 20.0, 20.0]);
        assert_eq!(of(&view, Plane::Nodes, 3), [10.0, 30.0, 20.0, 20.0, 20.0]);
        assert_eq!(of(&view, Plane::Writes, 9), [10.0, 30.0, 20.0, 20.0, 20.0]);
        assert_eq!(of(&view, Plane::Nodes, 9), [0.0; 5]);
        assert_eq!(of(&view, Plane::Writes, 3), [0.0; 5]);
        let last = history.view(2, 900);
        assert_eq!((last.first_s, of(&last, Plane::Reads, 3)), (3, vec![20.0, 20.0]));
        // In pairs: the last second is alone in its column.
        let pairs = history.view(900, 3);
        assert_eq!((pairs.step_s, pairs.first_s), (300, 0));
        let pairs = history.view(4, 2);
        assert_eq!((pairs.step_s, pairs.first_s), (2, 2));
        assert_eq!(of(&pairs, Plane::Reads, 3), [20.0, 20.0]);
    }

    #[test]
    fn the_oldest_columns_are_overwritten_and_memory_stays() {
        let (mut asked, mut history) = (Asked::new(), History::default());
        let bytes = |history: &History| 2 * (history.fine.cells.len() + history.coarse.cells.len());
        assert_eq!(bytes(&history), (900 + 5760) * 256 * 3 * 2, "10.2 MB");
        for second in 1..=2000 {
            history.push(second, asked.up_to(2 * second as u32));
        }
        let view = history.view(900, 900);
        assert_eq!((view.len(), view.first_s), (900, 1100));
        assert!(of(&view, Plane::Reads, 3).iter().all(|rate| *rate == 2.0));
        let day = history.view(COARSE_SECONDS, 10_000);
        assert_eq!((day.step_s, day.first_s, day.len()), (15, 0, 133));
        // Two days later, of which nothing is known but the end.
        history.push(2000 + 2 * COARSE_SECONDS, asked.up_to(4000));
        let day = history.view(u64::MAX, u64::MAX);
        assert_eq!(day.len(), 5760);
        assert_eq!(history.view(u64::MAX, 0).len(), 1);
        assert_eq!(bytes(&history), (900 + 5760) * 256 * 3 * 2);
    }

    #[test]
    fn rates_are_kept_within_a_thousandth() {
        assert_eq!((encode(0.0), decode(0)), (0, 0.0));
        for power in 0..31 {
            let rate = 1.37 * (1u64 << power) as f32;
            let kept = decode(encode(rate));
            assert!((kept / rate - 1.0).abs() < 0.001, "{rate}: {kept}");
        }
        assert_eq!(encode(f32::MAX), u16::MAX);
    }
}
