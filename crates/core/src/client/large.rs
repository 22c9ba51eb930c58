//! Large values: staged in fragments before a write, pulled in fragments after a read (protocol,
//! section 7).

use std::collections::VecDeque;
use switchback_wire::{Seq, VALUE_BYTES_MAX, fragment_bytes};

/// Fragments under way at a time, either direction.
pub const FRAGMENTS_AT_ONCE: u16 = 32;
/// Fragments that one FRAGMENT_REPLY's bitmap covers.
const BITMAP_FRAGMENTS: u16 = 256;

/// The fragments that all lanes together may have under way. A lane takes its share before it sends
/// or asks for the first one, and gives it back when its value is there; one that finds none waits
/// its turn.
#[derive(Debug)]
pub(super) struct FragmentBudget {
    free: u16,
    /// Each lane once.
    waiting: VecDeque<u32>,
}

impl FragmentBudget {
    pub(super) fn new(fragments: u16) -> FragmentBudget {
        assert!(fragments >= FRAGMENTS_AT_ONCE, "a lane has its window");
        FragmentBudget { free: fragments, waiting: VecDeque::new() }
    }

    /// Takes the share of a lane, or lets it wait.
    pub(super) fn take_or_wait(&mut self, share: u16, lane: u32) -> bool {
        let is_free = self.waiting.is_empty() && share <= self.free;
        if is_free {
            self.free -= share;
        } else if !self.waiting.contains(&lane) {
            self.waiting.push_back(lane);
        }
        is_free
    }

    pub(super) fn give_back(&mut self, share: u16) {
        self.free += share;
    }

    /// The lane that waits longest and its share, taken, if that is free. `share` is what a lane
    /// waits for; none if it doesn't any more.
    pub(super) fn next(&mut self, share: impl Fn(u32) -> Option<u16>) -> Option<(u32, u16)> {
        while let Some(&lane) = self.waiting.front() {
            match share(lane) {
                Some(share) if share > self.free => return None,
                Some(share) => {
                    self.waiting.pop_front();
                    self.free -= share;
                    return Some((lane, share));
                }
                None => _ = self.waiting.pop_front(),
            }
        }
        None
    }
}

/// A large value on its way to a node.
#[derive(Clone, Debug)]
pub(super) struct Staging {
    pub(super) value: Vec<u8>,
    per_fragment: usize,
    arrived: Vec<bool>,
    missing: u16,
    next: u16,
    /// A WRITE was sent for it. It may be stored even after FRAGMENTS_MISSING: a copy of the WRITE
    /// may arrive after the fragments that are sent anew.
    pub(super) was_asked_for: bool,
}

impl Staging {
    pub(super) fn new(value: &[u8], key_bytes: usize) -> Staging {
        assert!(!value.is_empty() && value.len() <= VALUE_BYTES_MAX);
        let per_fragment = fragment_bytes(key_bytes);
        let count = value.len().div_ceil(per_fragment);
        Staging {
            value: value.to_vec(),
            per_fragment,
            arrived: vec![false; count],
            missing: count as u16,
            next: 0,
            was_asked_for: false,
        }
    }

    pub(super) fn count(&self) -> u16 {
        self.arrived.len() as u16
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn fragment(&self, index: u16) -> &[u8] {
        let from = usize::from(index) * self.per_fragment;
        &self.value[from..(from + self.per_fragment).min(self.value.len())]
    }

    /// The node lost what it had.
    pub(super) fn restart(&mut self) {
        self.arrived.fill(false);
        self.missing = self.count();
        self.next = 0;
    }

    /// Fragments to send now: the next window, or after a timeout (`again`) the missing ones from
    /// the start.
    pub(super) fn next_to_send(&mut self, again: bool, mut send: impl FnMut(u16)) {
        if again {
            self.next = 0;
        }
        let mut sent = 0;
        while self.next < self.count() && sent < FRAGMENTS_AT_ONCE {
            if !self.arrived[usize::from(self.next)] {
                send(self.next);
                sent += 1;
            }
            self.next += 1;
        }
    }

    /// Takes a FRAGMENT_REPLY's bitmap; true if everything sent so far has arrived, so that more
    /// may be sent.
    pub(super) fn arrived(&mut self, index: u16, bitmap: &[u8]) -> bool {
        let base = index - index % BITMAP_FRAGMENTS;
        for (at, byte) in bitmap.iter().take(usize::from(BITMAP_FRAGMENTS / 8)).enumerate() {
            for bit in 0..8u16 {
                let fragment = usize::from(base) + at * 8 + usize::from(bit);
                if byte & (1 << bit) != 0
                    && fragment < self.arrived.len()
                    && !self.arrived[fragment]
                {
                    self.arrived[fragment] = true;
                    self.missing -= 1;
                }
            }
        }
        self.arrived[..usize::from(self.next)].iter().all(|&arrived| arrived)
    }
}

/// A large value on its way from a node.
#[derive(Clone, Debug, Default)]
pub(super) struct PulledValue {
    pub(super) value: Vec<u8>,
    pub(super) seq: Seq,
    pub(super) expiry_ms: u64,
    per_fragment: usize,
    arrived: Vec<bool>,
    missing: u16,
}

impl PulledValue {
    /// Begins with the first answer; `None` if it makes no sense.
    pub(super) fn begin(
        first: &[u8],
        total: usize,
        key_bytes: usize,
        seq: Seq,
        expiry_ms: u64,
    ) -> Option<PulledValue> {
        if total > VALUE_BYTES_MAX || total == 0 {
            return None;
        }
        let per_fragment = fragment_bytes(key_bytes);
        let count = total.div_ceil(per_fragment);
        let arrived = vec![false; count];
        let mut pulled = PulledValue {
            value: vec![0; total],
            seq,
            expiry_ms,
            per_fragment,
            arrived,
            missing: count as u16,
        };
        pulled.put(0, first).then_some(pulled)
    }

    /// Takes one fragment; false if it doesn't fit where it says.
    pub(super) fn put(&mut self, index: u16, bytes: &[u8]) -> bool {
        let at = usize::from(index);
        let from = at * self.per_fragment;
        if at >= self.arrived.len() || bytes.len() != self.per_fragment.min(self.value.len() - from)
        {
            return false;
        }
        if !self.arrived[at] {
            self.arrived[at] = true;
            self.missing -= 1;
            self.value[from..from + bytes.len()].copy_from_slice(bytes);
        }
        true
    }

    pub(super) fn count(&self) -> u16 {
        self.arrived.len() as u16
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The first run of missing fragments, as `(index, count)`.
    pub(super) fn wanted(&self) -> (u16, u16) {
        let first = self.arrived.iter().position(|&arrived| !arrived).unwrap_or(0);
        let count = self.arrived[first..]
            .iter()
            .take(usize::from(FRAGMENTS_AT_ONCE))
            .take_while(|&&arrived| !arrived)
            .count();
        (first as u16, count as u16)
    }

    /// Whether the last pull has been answered whole, so that the next may go out.
    pub(super) fn window_done(&self, first: u16, count: u16) -> bool {
        let end = (usize::from(first) + usize::from(count)).min(self.arrived.len());
        self.arrived[usize::from(first)..end].iter().all(|&arrived| arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_survives_fragments_in_any_order_and_twice(
            total in 1usize..60_000, key_bytes in 1usize..1024, seed in any::<u64>(),
        ) {
            let value: Vec<u8> = (0..total).map(|i| (i as u64 ^ seed) as u8).collect();
            let staging = Staging::new(&value, key_bytes);
            let first = staging.fragment(0).to_vec();
            let mut pulled = PulledValue::begin(&first, total, key_bytes, Seq(1), 0).unwrap();
            let count = u64::from(staging.count());
            for i in 0..count * 2 {
                let index = (i.wrapping_mul(seed | 1) % count) as u16;
                prop_assert!(pulled.put(index, staging.fragment(index)));
            }
            while !pulled.is_complete() {
                let (first, wanted) = pulled.wanted();
                prop_assert!(wanted > 0);
                for index in first..first + wanted {
                    prop_assert!(pulled.put(index, staging.fragment(index)));
                }
                prop_assert!(pulled.window_done(first, wanted));
            }
            prop_assert_eq!(pulled.value, value);
        }
    }

    #[test]
    fn a_fragment_of_the_wrong_length_or_place_is_refused() {
        let mut pulled = PulledValue::begin(&[0; fragment_bytes(16)], 3000, 16, Seq(1), 0).unwrap();
        assert!(!pulled.put(1, &[0; 10]));
        assert!(!pulled.put(9, &[0; fragment_bytes(16)]));
        assert!(PulledValue::begin(&[0; 5], 3000, 16, Seq(1), 0).is_none());
    }
}
