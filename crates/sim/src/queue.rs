//! The event queue: what happens next, in the order of time, then of insertion.

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A packet arrives: its place among the packets under way.
    Packet(u32),
    /// A part's timer.
    Wake(u8),
    /// A control message arrives: its place among the messages under way.
    Message(u32),
    /// A switch's agent gets to the commands that wait for it.
    Agent(u8, u32),
    /// A node's engine has committed a group.
    Committed(u8, u32),
    /// The controller's oldest store is done.
    Stored(u32),
    /// A client's spool has written what was handed to it.
    Spooled(u8, u32),
    /// A thread of a client's application wants to do something.
    Submit(u8, u16),
    /// A control connection is made again.
    Reconnect(u8, u32),
    /// The controller notices that a connection broke.
    Lost(u8, u32),
    /// The next fault.
    Nemesis,
    /// A fault ends: its place in the list.
    Ends(u32),
    /// Bounds and other things are looked at now and then.
    Inspect,
}

type Entry = (u64, Event);

/// Events by time: a radix heap. Nothing is ever added before the last event that was taken out, so an entry's bucket is the highest bit
/// in which its time differs from that event's. Entries of one time are always in one bucket, in the order of insertion.
pub(crate) struct EventQueue {
    /// Time of the last event that was taken out.
    last_us: u64,
    /// Those of `last_us`, the next one last.
    now: Vec<Entry>,
    /// Those that came to `last_us` since.
    added: Vec<Entry>,
    /// The others.
    buckets: [Vec<Entry>; 64],
    /// Which buckets have entries.
    filled: u64,
    count: usize,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        let buckets = std::array::from_fn(|_| Vec::new());
        EventQueue { last_us: 0, now: Vec::new(), added: Vec::new(), buckets, filled: 0, count: 0 }
    }
}

impl EventQueue {
    /// Adds an event, which isn't before the last one that was taken out.
    #[inline]
    pub(crate) fn push(&mut self, at_us: u64, event: Event) {
        assert!(at_us >= self.last_us, "an event of the past");
        self.count += 1;
        self.put((at_us, event));
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        match (entry.0 ^ self.last_us).checked_ilog2() {
            None => self.added.push(entry),
            Some(bit) => {
                self.buckets[bit as usize].push(entry);
                self.filled |= 1 << bit;
            }
        }
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
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

    /// The first time at which there is an event: the lowest bucket is spread over those below it.
    fn go_on(&mut self) -> Option<()> {
        if self.filled == 0 {
            return None;
        }
        let lowest = self.filled.trailing_zeros() as usize;
        self.filled &= !(1 << lowest);
        let mut bucket = std::mem::take(&mut self.buckets[lowest]);
        self.last_us = bucket.iter().map(|(at_us, _)| *at_us).min().expect("it is filled");
        for entry in bucket.drain(..) {
            self.put(entry);
        }
        self.buckets[lowest] = bucket;
        Some(())
    }

    /// Events that wait.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_insertion() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
            queue.push(at, Event::Packet(event));
        }
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [(3, 2), (3, 4), (5, 1), (5, 3)].map(|(at, event)| (at, Event::Packet(event)));
        assert_eq!(popped, expected);
        assert_eq!(queue.len(), 0);
    }

    proptest::proptest! {
        /// As a sorted list would do it, whenever events are added.
        #[test]
        fn events_come_in_order(steps in proptest::collection::vec((0u64..40, 0usize..3, 0u32..12), 1..200)) {
            let mut queue = EventQueue::default();
            let mut sorted: Vec<Entry> = Vec::new();
            let mut now_us = 0;
            for (number, (after_us, pops, shift)) in steps.into_iter().enumerate() {
                let entry = (now_us + (after_us << shift), Event::Packet(number as u32));
                queue.push(entry.0, entry.1);
                sorted.push(entry);
                sorted.sort_by_key(|(at_us, _)| *at_us);
                for _ in 0..pops.min(sorted.len()) {
                    let first = sorted.remove(0);
                    now_us = first.0;
                    assert_eq!(queue.pop(), Some(first));
                }
                assert_eq!(queue.len(), sorted.len());
            }
        }
    }
}
