//! Whether a history of one register can be put into an order that explains it (Herlihy and Wing,
//! "Linearizability", 1990). The search is Wing and Gong's of 1993, and remembers where it has been
//! (Lowe, "Testing for linearizability", 2017).

/// Whether the operations can be put into an order in which each returns what it returned.
///
/// Operations are numbered, at most 16. `before` has for each that may have run those which had
/// ended before it began, a bit each, and `None` for one that didn't run. `must` are the ones that
/// ran for sure. `first` is the register's first value, and `effect` its value after an operation:
/// `None` if that one can't have run upon this value.
pub(crate) fn is_linearizable(
    before: &[Option<u16>],
    must: u16,
    first: u8,
    effect: impl Fn(usize, u8) -> Option<u8>,
) -> bool {
    Search { before, must, effect, seen: Vec::with_capacity(32) }.extends(0, first)
}

struct Search<'a, F> {
    before: &'a [Option<u16>],
    must: u16,
    effect: F,
    seen: Vec<(u16, u8)>,
}

impl<F: Fn(usize, u8) -> Option<u8>> Search<'_, F> {
    /// Whether the operations that aren't `placed` can follow, now that the register has `value`.
    fn extends(&mut self, placed: u16, value: u8) -> bool {
        if placed & self.must == self.must {
            return true;
        }
        if self.seen.contains(&(placed, value)) {
            return false;
        }
        self.seen.push((placed, value));
        for (at, before) in self.before.iter().enumerate() {
            let Some(before) = before else { continue };
            let waits = before & !placed & self.must != 0;
            if placed & 1 << at != 0 || waits {
                continue;
            }
            if let Some(next) = (self.effect)(at, value)
                && self.extends(placed | 1 << at, next)
            {
                return true;
            }
        }
        false
    }
}
