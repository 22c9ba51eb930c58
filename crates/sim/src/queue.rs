//! The event queue: what happens next, in the order of time, then of insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

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

#[derive(Clone, Copy)]
struct Entry {
    at_us: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap gives out the greatest.
    #[inline]
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at_us, other.order).cmp(&(self.at_us, self.order))
    }
}

/// Events by time.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl EventQueue {
    /// Adds an event.
    #[inline]
    pub(crate) fn push(&mut self, at_us: u64, event: Event) {
        self.order += 1;
        self.heap.push(Entry { at_us, order: self.order, event });
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at_us, entry.event))
    }

    /// Events that wait.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
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
}
