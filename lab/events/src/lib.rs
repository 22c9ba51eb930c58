//! The event queue of everything that runs in virtual time: what happens next, in the order of
//! time, then of insertion.
//!
//! It knows neither what an event is nor what its time is counted in.

/// Buckets: one for each bit of a time.
const BUCKETS: usize = u64::BITS as usize;

/// Events by time: a radix heap. Nothing is ever added before the last event that was taken out, so
/// an entry's bucket is the highest bit in which its time differs from that event's. Entries of one
/// time are always in one bucket, in the order of insertion.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Time of the last event that was taken out.
    last: u64,
    /// Those of `last`, the next one last.
    now: Vec<(u64, E)>,
    /// Those that came to `last` since.
    added: Vec<(u64, E)>,
    /// The others.
    buckets: [Vec<(u64, E)>; BUCKETS],
    /// The earliest time in each bucket; of no meaning if it is empty.
    earliest: [u64; BUCKETS],
    /// Which buckets have entries.
    filled: u64,
    count: usize,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            last: 0,
            now: Vec::new(),
            added: Vec::new(),
            buckets: std::array::from_fn(|_| Vec::new()),
            earliest: [u64::MAX; BUCKETS],
            filled: 0,
            count: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event, which isn't before the last one that was taken out.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        assert!(at >= self.last, "an event of the past");
        self.count += 1;
        self.put(at, event);
    }

    #[inline]
    fn put(&mut self, at: u64, event: E) {
        let Some(bit) = (at ^ self.last).checked_ilog2() else {
            self.added.push((at, event));
            return;
        };
        let bucket = bit as usize;
        self.buckets[bucket].push((at, event));
        let is_first = self.filled & (1 << bit) == 0;
        self.earliest[bucket] = if is_first { at } else { self.earliest[bucket].min(at) };
        self.filled |= 1 << bit;
    }

    /// When the next event is.
    #[inline]
    pub fn next_at(&self) -> Option<u64> {
        if !self.now.is_empty() || !self.added.is_empty() {
            return Some(self.last);
        }
        // Times of a lower bucket are before those of a higher one.
        (self.filled != 0).then(|| self.earliest[self.filled.trailing_zeros() as usize])
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if self.now.is_empty() {
            if self.added.is_empty() {
                self.go_on()?;
            }
            std::mem::swap(&mut self.now, &mut self.added);
            self.now.reverse();
        }
        self.count -= 1;
        self.now.pop()
    }

    /// To the next time at which there is an event: its bucket is spread over those below it.
    fn go_on(&mut self) -> Option<()> {
        self.last = self.next_at()?;
        let lowest = self.filled.trailing_zeros() as usize;
        self.filled &= !(1 << lowest);
        let mut bucket = std::mem::take(&mut self.buckets[lowest]);
        bucket.drain(..).for_each(|(at, event)| self.put(at, event));
        self.buckets[lowest] = bucket;
        Some(())
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_insertion() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
            queue.push(at, event);
        }
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(popped, [(3, 2), (3, 4), (5, 1), (5, 3)]);
        assert!(queue.is_empty());
    }

    proptest::proptest! {
        /// As a sorted list would do it, whenever events are added.
        #[test]
        fn events_come_in_order(
            steps in proptest::collection::vec((0u64..40, 0usize..3, 0u32..12), 1..200),
        ) {
            let mut queue = EventQueue::default();
            let mut sorted: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (number, (after, pops, shift)) in steps.into_iter().enumerate() {
                let entry = (now + (after << shift), number);
                queue.push(entry.0, entry.1);
                sorted.push(entry);
                sorted.sort_by_key(|(at, _)| *at);
                for _ in 0..pops.min(sorted.len()) {
                    assert_eq!(queue.next_at(), Some(sorted[0].0));
                    let first = sorted.remove(0);
                    now = first.0;
                    assert_eq!(queue.pop(), Some(first));
                }
                assert_eq!(queue.len(), sorted.len());
                assert_eq!(queue.next_at(), sorted.first().map(|(at, _)| *at));
            }
        }
    }
}
