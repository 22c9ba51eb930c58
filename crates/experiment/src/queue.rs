//! The event queue: what happens next, in the order of time, then of insertion. (The simulator's own counts in microseconds, in which many
//! events fall together; here hardly two do, and packets don't come through it.)

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Clone, Copy)]
struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap gives out the greatest.
    #[inline]
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events by time.
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    order: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), order: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event.
    #[inline]
    pub(crate) fn push(&mut self, at: u64, event: E) {
        self.order += 1;
        self.heap.push(Entry { at, order: self.order, event });
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// When the next event is.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at)
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
        let expected = [(3, 2), (3, 4), (5, 1), (5, 3)];
        assert_eq!(popped, expected);
        assert_eq!(queue.next_at(), None);
    }
}
