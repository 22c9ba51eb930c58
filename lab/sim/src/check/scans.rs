//! Listings of keys, each answer by itself: it covers a stretch of the key space as it was at one
//! moment between question and answer for each key.
//!
//! A key that was there all that time must be listed, one that wasn't must not be, and none twice.
//! Keys of which only a read tells whether they exist are flagged; that they may be there is all
//! that is said of them. Checked at the end of a run, when it is known of most operations whether
//! they happened.

use super::{Check, Violation};
use crate::clock::START_UNIX_MS;
use crate::history::{Answered, History, Kind, Op};
use switchback_wire::Seq;

/// An answer to a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// First position of the key space that it covers.
    pub from: u64,
    /// First position that it doesn't cover; 0: it goes to the end.
    pub next: u64,
    /// Only to be counted: keys are listed only if they are flagged.
    pub count_only: bool,
    /// Keys that are there and not flagged, as the answer says.
    pub live: u32,
    /// What is listed.
    pub entries: Vec<Entry>,
    /// When it was asked and answered, in the order of all such moments.
    pub asked: u64,
    /// See `asked`.
    pub answered: u64,
    /// The same in virtual time.
    pub asked_us: u64,
    /// The same in virtual time.
    pub answered_us: u64,
}

/// A listed key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which; none if it is no key of the run.
    pub key: Option<u32>,
    /// Only a read tells whether it exists.
    pub flagged: bool,
}

/// What can be true of a key while an answer was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Possible {
    present: bool,
    absent: bool,
}

/// Checks every listing. `positions` are those of the keys, by number; clocks differ by `skew_ms`
/// at most.
pub fn check(history: &History, positions: &[u64], skew_ms: u64) -> Result<(), Violation> {
    if history.listings.is_empty() {
        return Ok(());
    }
    let mut by_key: Vec<Vec<&Op>> = vec![Vec::new(); positions.len()];
    for op in &history.ops {
        by_key[op.key as usize].push(op);
    }
    let mut keys: Vec<u32> = (0..positions.len() as u32).collect();
    keys.sort_by_key(|key| positions[*key as usize]);
    let scans = Scans { by_key, keys, positions, skew_ms };
    for listing in &history.listings {
        scans.check(listing).map_err(|(key, text)| {
            let (from, next, asked_us) = (listing.from, listing.next, listing.asked_us);
            let text = format!("a scan of {from:x} to {next:x}, asked at {asked_us} us, {text}");
            Violation { key, ..Violation::general(Check::Scan, text) }
        })?;
    }
    Ok(())
}

struct Scans<'a> {
    by_key: Vec<Vec<&'a Op>>,
    /// In the order of the key space.
    keys: Vec<u32>,
    positions: &'a [u64],
    skew_ms: u64,
}

impl Scans<'_> {
    fn check(&self, listing: &Listing) -> Result<(), (Option<u32>, String)> {
        if listing.next != 0 && listing.next <= listing.from {
            return Err((None, "goes backwards".to_owned()));
        }
        let mut listed: Vec<(u64, u32, bool)> = Vec::with_capacity(listing.entries.len());
        for entry in &listing.entries {
            let Some(key) = entry.key else {
                return Err((None, "lists a key that was never written".to_owned()));
            };
            let position = self.positions[key as usize];
            if position < listing.from || (listing.next != 0 && position >= listing.next) {
                return Err((Some(key), format!("lists key {key}, which is at {position:x}")));
            }
            if listed.last().is_some_and(|(last, ..)| *last >= position) {
                return Err((Some(key), format!("lists key {key} twice, or out of order")));
            }
            listed.push((position, key, entry.flagged));
        }
        let from = self.keys.partition_point(|key| self.positions[*key as usize] < listing.from);
        let covered = self.keys[from..].iter().copied();
        let covered = covered
            .take_while(|key| listing.next == 0 || self.positions[*key as usize] < listing.next);
        let (mut surely, mut maybe, mut unflagged) = (0, 0, 0);
        for key in covered {
            let position = self.positions[key as usize];
            let found = listed.binary_search_by_key(&position, |(position, ..)| *position).ok();
            let found = found.map(|at| listed[at].2);
            unflagged += u32::from(found == Some(false));
            if found == Some(true) {
                continue;
            }
            let possible = self.possible(key, listing);
            surely += u32::from(!possible.absent);
            maybe += u32::from(possible.present);
            if listing.count_only {
                continue;
            }
            if found.is_some() && !possible.present {
                return Err((Some(key), format!("lists key {key}, which was not there")));
            }
            if found.is_none() && !possible.absent {
                return Err((Some(key), format!("leaves out key {key}, which was there")));
            }
        }
        let live = listing.live;
        if listing.count_only && !(surely..=maybe).contains(&live) {
            return Err((None, format!("counts {live} keys, and there were {surely} to {maybe}")));
        }
        if !listing.count_only && live != unflagged {
            return Err((None, format!("says that it lists {live} keys, and lists {unflagged}")));
        }
        Ok(())
    }

    /// What can be true of a key at some moment while a listing was under way.
    fn possible(&self, key: u32, listing: &Listing) -> Possible {
        let of_key = &self.by_key[key as usize];
        let known = |op: &&&Op| {
            let told = matches!(
                op.answered,
                Answered::Value | Answered::Absent | Answered::Written | Answered::ConditionFailed
            );
            told && op.responded < listing.asked && !op.weak
        };
        // The newest version that was known before. Whatever is there is that, or newer.
        let floor = of_key.iter().filter(known).map(|op| op.seq).max().unwrap_or(0);
        let mut possible = Possible::default();
        let made = |op: &&&Op| op.may_have_changed() && op.seq == floor;
        match of_key.iter().find(made) {
            _ if Seq(floor).counter() == 0 => possible.absent = true,
            Some(op) => self.add(&mut possible, op, listing),
            None => possible = Possible { present: true, absent: true },
        }
        for op in of_key {
            if op.may_have_changed()
                && op.invoked < listing.answered
                && (op.seq == 0 || op.seq > floor)
            {
                self.add(&mut possible, op, listing);
            }
        }
        possible
    }

    /// What is true of a key once an operation has changed it.
    fn add(&self, possible: &mut Possible, op: &Op, listing: &Listing) {
        let [asked_ms, answered_ms] =
            [listing.asked_us, listing.answered_us].map(|us| START_UNIX_MS + us / 1000);
        let expires = op.expiry_ms != 0;
        possible.present |=
            op.kind == Kind::Write && (!expires || op.expiry_ms + self.skew_ms >= asked_ms);
        possible.absent |=
            op.kind == Kind::Delete || (expires && op.expiry_ms <= answered_ms + self.skew_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key 1 is there, key 2 was deleted, key 3 never written, key 4 expires at 5 ms, key 5's
    /// delete is under way.
    fn history() -> History {
        let mut history = History::default();
        let mut seq = 1;
        let mut done = |history: &mut History, key, kind, expiry_ms, answered: bool| {
            let index = history.begin(Op { expiry_ms, ..Op::ask(0, 1, key, kind) }, 0);
            let moment = history.tick();
            let op = &mut history.ops[index as usize];
            if answered {
                (op.answered, op.responded, op.seq) = (Answered::Written, moment, seq);
                seq += 1;
            }
        };
        done(&mut history, 1, Kind::Write, 0, true);
        done(&mut history, 2, Kind::Write, 0, true);
        done(&mut history, 2, Kind::Delete, 0, true);
        done(&mut history, 4, Kind::Write, START_UNIX_MS + 5, true);
        done(&mut history, 5, Kind::Write, 0, true);
        done(&mut history, 5, Kind::Delete, 0, false);
        history
    }

    fn listing(keys: &[(u32, bool)]) -> Listing {
        let entries: Vec<Entry> =
            keys.iter().map(|&(key, flagged)| Entry { key: Some(key), flagged }).collect();
        let live = keys.iter().filter(|(_, flagged)| !flagged).count() as u32;
        Listing { live, entries, asked: 100, answered: 101, ..Listing::default() }
    }

    /// Key `k` is at position `10 k`.
    fn verdict(listing: Listing) -> Result<(), Violation> {
        let mut history = history();
        history.listings.push(listing);
        check(&history, &[0, 10, 20, 30, 40, 50], 1)
    }

    #[test]
    fn what_is_there_is_listed_once() {
        for good in [
            &[(1, false), (4, false), (5, false)][..],
            &[(1, false), (4, false)],
            &[(1, true), (2, true), (4, false)],
        ] {
            verdict(listing(good)).unwrap();
        }
        for bad in [
            &[(4, false)][..],
            &[(1, false)],
            &[(1, false), (2, false), (4, false)],
            &[(1, false), (3, false), (4, false)],
            &[(1, false), (1, false), (4, false)],
            &[(4, false), (1, false)],
        ] {
            assert_eq!(verdict(listing(bad)).unwrap_err().check, Check::Scan, "{bad:?}");
        }
        let unknown = Listing { entries: vec![Entry { key: None, flagged: true }], ..listing(&[]) };
        verdict(unknown).unwrap_err();
    }

    #[test]
    fn a_listing_covers_its_stretch_and_no_more() {
        verdict(Listing { from: 20, ..listing(&[(4, false)]) }).unwrap();
        verdict(Listing { next: 20, ..listing(&[(1, false)]) }).unwrap();
        verdict(Listing { from: 11, ..listing(&[(1, false), (4, false)]) }).unwrap_err();
        // As a listing does that repeats the last key of the stretch before.
        verdict(Listing { next: 40, ..listing(&[(1, false), (4, false)]) }).unwrap_err();
        verdict(Listing { from: 20, next: 20, ..listing(&[]) }).unwrap_err();
    }

    #[test]
    fn clocks_decide_what_has_expired_as_far_as_they_agree() {
        let at_ms = |ms: u64, keys| Listing {
            asked_us: ms * 1000,
            answered_us: ms * 1000,
            ..listing(keys)
        };
        let (with, without) = (&[(1, false), (4, false)][..], &[(1, false)][..]);
        verdict(at_ms(3, with)).unwrap();
        verdict(at_ms(3, without)).unwrap_err();
        for ms in 4..=6 {
            verdict(at_ms(ms, with)).unwrap();
            verdict(at_ms(ms, without)).unwrap();
        }
        verdict(at_ms(7, with)).unwrap_err();
        verdict(at_ms(7, without)).unwrap();
    }

    #[test]
    fn counts_lie_between_what_was_surely_there_and_what_may_have_been() {
        let count = |live| Listing { count_only: true, live, ..listing(&[(1, true)]) };
        assert!([1, 2].map(count).map(verdict).iter().all(Result::is_ok));
        assert!([0, 3].map(count).map(verdict).iter().all(Result::is_err));
        verdict(Listing { live: 3, ..listing(&[(1, false), (4, false)]) }).unwrap_err();
    }
}
