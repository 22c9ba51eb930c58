//! Which keys a command touches, and what else it does that matters to a transaction.

use super::Verb;
use crate::failure::Failure;
use crate::resp::{Args, parse_i64};

impl Verb {
    /// Where its keys are among its arguments.
    pub(crate) fn keys(self, args: Args<'_>) -> impl Iterator<Item = usize> + Clone {
        let end = args.len();
        let (first, end, step) = match self {
            Verb::Object | Verb::Memory => (2, end.min(3), 1),
            _ if self.is_script() => (3, 3 + self.count_keys(args).unwrap_or(0), 1),
            _ => match self.spec().keys {
                (0, _, _) => (0, 0, 1),
                (first, last, step) => {
                    let end = if last < 0 { end } else { end.min(last as usize + 1) };
                    (first as usize, end, step as usize)
                }
            },
        };
        (first..end).step_by(step)
    }

    /// Whether it touches keys that it doesn't name.
    pub(crate) fn touches_all(self) -> bool {
        matches!(
            self,
            Verb::Scan
                | Verb::Keys
                | Verb::RandomKey
                | Verb::DbSize
                | Verb::FlushAll
                | Verb::FlushDb
        )
    }

    /// Whether the gateway may answer it without the rack.
    pub(crate) fn asks_gateway(self) -> bool {
        self.spec().keys.0 == 0 && !self.touches_all() && !self.is_script()
    }

    /// Whether it runs a script.
    pub(crate) fn is_script(self) -> bool {
        matches!(self, Verb::Eval | Verb::EvalSha | Verb::EvalRo | Verb::EvalShaRo)
    }

    /// How many keys a script is given.
    pub(crate) fn count_keys(self, args: Args<'_>) -> Result<usize, Failure> {
        let keys = parse_i64(args.get(2)).ok_or(Failure::NotAnInteger)?;
        if keys > args.len() as i64 - 3 {
            let text = "ERR Number of keys can't be greater than number of args";
            return Err(Failure::Static(text));
        }
        usize::try_from(keys).map_err(|_| Failure::Static("ERR Number of keys can't be negative"))
    }

    /// Whether it may change a record, by a script or itself.
    pub(crate) fn may_write(self) -> bool {
        self.spec().writes() || matches!(self, Verb::Eval | Verb::EvalSha)
    }

    /// Whether it reads or writes records.
    pub(crate) fn reaches_records(self, args: Args<'_>) -> bool {
        self.touches_all()
            || self.is_script()
            || (self != Verb::Watch && self.keys(args).next().is_some())
    }

    /// Whether later replies look different after it, or are refused.
    pub(crate) fn changes_connection(self) -> bool {
        matches!(self, Verb::Hello | Verb::Auth | Verb::Monitor)
    }

    /// Whether it is executed at once after MULTI.
    pub(crate) fn is_never_queued(self) -> bool {
        matches!(
            self,
            Verb::Exec | Verb::Discard | Verb::Multi | Verb::Watch | Verb::Quit | Verb::Reset
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::resp::Range;

    #[test]
    fn keys_are_where_the_table_says() {
        for (line, wanted) in [
            ("get a", &[1][..]),
            ("mset a 1 b 2 c", &[1, 3, 5]),
            ("lcs a b len", &[1, 2]),
            ("rename a b", &[1, 2]),
            ("bitop and a b c", &[2, 3, 4]),
            ("del a b c", &[1, 2, 3]),
            ("object encoding a", &[2]),
            ("object help", &[]),
            ("ping", &[]),
            ("eval s 2 a b c", &[3, 4]),
            ("eval s 4 a b c", &[]),
        ] {
            let mut ranges = Vec::new();
            for word in line.split(' ') {
                let from = word.as_ptr() as usize - line.as_ptr() as usize;
                ranges.push(Range::new(from, from + word.len()));
            }
            let args = Args::new(line.as_bytes(), &ranges);
            let verb = Verb::from_name(args.get(0)).unwrap();
            assert_eq!(verb.keys(args).collect::<Vec<_>>(), wanted, "{line}");
        }
    }
}
