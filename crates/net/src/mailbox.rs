//! A bounded queue into a part's thread, which it can sleep on with `mio`.

use mio::Waker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<T>,
    /// What they weigh, as far as their writers say.
    bytes: usize,
}

/// A queue with one reader and any number of writers. What finds no room is dropped and counted, as
/// a network would.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Mutex<Waiting<T>>,
    limit: usize,
    bytes_max: usize,
    waker: OnceLock<Arc<Waker>>,
    /// Set by the first writer since the reader last looked; saves the others a system call.
    signalled: AtomicBool,
    dropped: AtomicU64,
}

impl<T> Mailbox<T> {
    /// A queue of at most `limit` items.
    pub fn new(limit: usize) -> Mailbox<T> {
        Mailbox::with_bytes(limit, usize::MAX)
    }

    /// A queue of at most `limit` items and `bytes_max` bytes of [`Mailbox::push_bytes`].
    pub fn with_bytes(limit: usize, bytes_max: usize) -> Mailbox<T> {
        assert!(limit > 0);
        Mailbox {
            queue: Mutex::new(Waiting { items: VecDeque::new(), bytes: 0 }),
            limit,
            bytes_max,
            waker: OnceLock::new(),
            signalled: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        }
    }

    /// Sets the waker of its reader. The first one counts.
    pub fn register(&self, waker: &Arc<Waker>) {
        let _ = self.waker.set(Arc::clone(waker));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get()
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "waking a thread failed");
        }
    }

    /// Appends an item; false if there is no room.
    pub fn push(&self, item: T) -> bool {
        self.push_bytes(item, 0)
    }

    /// Appends an item of this many bytes; false if there is no room.
    pub fn push_bytes(&self, item: T, bytes: usize) -> bool {
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.items.len() >= self.limit || queue.bytes.saturating_add(bytes) > self.bytes_max
            {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            queue.items.push_back(item);
            queue.bytes += bytes;
        }
        if !self.signalled.swap(true, Ordering::AcqRel) {
            self.wake();
        }
        true
    }

    /// Moves everything to `to`. Call it after each wake-up.
    pub fn drain_into(&self, to: &mut VecDeque<T>) {
        self.signalled.store(false, Ordering::Release);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.bytes = 0;
        if to.is_empty() {
            std::mem::swap(&mut queue.items, to);
        } else {
            to.append(&mut queue.items);
        }
    }

    /// Items waiting.
    pub fn len(&self) -> usize {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).items.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that found no room, ever.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let mailbox = Mailbox::new(2);
        assert!(mailbox.push(1) && mailbox.push(2));
        assert!(!mailbox.push(3));
        assert_eq!((mailbox.len(), mailbox.dropped()), (2, 1));
        let mut got = VecDeque::new();
        mailbox.drain_into(&mut got);
        assert_eq!(got, [1, 2]);
        assert!(mailbox.is_empty() && mailbox.push(4));
    }

    #[test]
    fn bytes_find_room_as_items_do() {
        let mailbox = Mailbox::with_bytes(10, 100);
        assert!(
            mailbox.push_bytes(1, 60) && !mailbox.push_bytes(2, 60) && mailbox.push_bytes(3, 40)
        );
        assert_eq!((mailbox.len(), mailbox.dropped()), (2, 1));
        mailbox.drain_into(&mut VecDeque::new());
        assert!(mailbox.push_bytes(4, 100));
    }
}
