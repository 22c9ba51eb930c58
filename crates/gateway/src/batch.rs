//! Commands of many keys, or of all: each key is an operation of its own, a limited number at a
//! time.

use crate::command::Verb;
use crate::command::glob;
use crate::command::options::ScanOptions;
use crate::connection::ConnectionId;
use crate::failure::Failure;
use crate::operation::{Action, Answer};
use crate::resp::{Args, Range, write};
use crate::strings::{Common, LcsOptions, View, common};
use switchback_core::client::Operation as Request;
use switchback_wire::scan_entries;

/// Parts of one batch that are under way at a time.
const WINDOW: usize = 64;
/// Scan requests that one SCAN makes at most.
const SCANS_MAX: u32 = 32;
/// Keys that one KEYS answers at most.
const KEYS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Get,
    Set,
    Delete,
    Exists,
    Lcs(LcsOptions),
    Scan,
    /// All keys of a pattern.
    Keys,
    /// Any key.
    Random,
    Count,
    Flush,
}

impl Kind {
    /// Whether it touches keys that its arguments don't name.
    fn scans(self) -> bool {
        self.lists_keys() || matches!(self, Kind::Count | Kind::Flush)
    }

    /// Whether its arguments name all its keys.
    pub(crate) fn names_keys(self) -> bool {
        !self.scans()
    }

    fn lists_keys(self) -> bool {
        matches!(self, Kind::Scan | Kind::Keys | Kind::Random)
    }

    fn reads_values(self) -> bool {
        matches!(self, Kind::Get | Kind::Lcs(_))
    }
}

/// What a batch does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This part.
    Part(u32),
    /// [`Batch::scan_request`].
    Scan,
    /// It waits for parts.
    Nothing,
    Finished,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) in_use: bool,
    pub(crate) connection: ConnectionId,
    pub(crate) number: u64,
    pub(crate) verb: Option<Verb>,
    pub(crate) kind: Kind,
    pub(crate) arrived_us: u64,
    pub(crate) parked_us: u64,
    /// All parts so far were answered by the cache; one was at least.
    pub(crate) cached: bool,
    pub(crate) any_cached: bool,
    pub(crate) failure: Option<Failure>,
    held_bytes: usize,
    bytes: Vec<u8>,
    ranges: Vec<Range>,
    next: usize,
    running: usize,
    sum: i64,
    results: Vec<u8>,
    result_ranges: Vec<Option<Range>>,
    position: u64,
    scans: u32,
    scan_ended: bool,
    scan_running: bool,
    options: Option<ScanOptions>,
    /// A scan for any key came to the end, and begins at the beginning.
    wrapped: bool,
    common: Option<Common>,
}

impl Batch {
    pub(crate) fn begin(&mut self, kind: Kind, connection: ConnectionId, number: u64, verb: Verb) {
        assert!(!self.in_use && self.running == 0);
        self.in_use = true;
        self.kind = kind;
        self.connection = connection;
        self.number = number;
        self.verb = Some(verb);
        self.cached = true;
        self.any_cached = false;
        self.failure = None;
        self.sum = 0;
        self.held_bytes = 0;
        self.position = 0;
        self.scans = 0;
        self.scan_ended = !kind.scans();
        self.options = None;
        self.wrapped = false;
        self.common = None;
        self.results.clear();
        self.result_ranges.clear();
        self.clear_keys();
    }

    fn clear_keys(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
        self.next = 0;
    }

    /// Takes over the keys (and values) of a command.
    pub(crate) fn fill(&mut self, args: Args<'_>) {
        let keys = if matches!(self.kind, Kind::Lcs(_)) { 2 } else { args.len() };
        for argument in args.from(1).take(keys) {
            self.push_key(argument);
        }
        self.held_bytes = self.bytes.len();
        if self.kind.reads_values() {
            self.result_ranges.resize(self.parts(), None);
        }
    }

    pub(crate) fn fill_scan(&mut self, options: ScanOptions) {
        self.position = options.cursor;
        self.scan_ended = options.other_type;
        if options.other_type {
            self.position = 0;
        }
        self.options = Some(options);
    }

    fn push_key(&mut self, key: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.ranges.push(Range::new(from, self.bytes.len()));
    }

    /// Gives everything back but small buffers.
    pub(crate) fn end(&mut self) {
        self.in_use = false;
        self.connection = ConnectionId::default();
        if self.bytes.capacity()
            + self.results.capacity()
            + self.ranges.capacity() * size_of::<Range>()
            > 64 << 10
        {
            *self = Batch::default();
        }
    }

    fn parts(&self) -> usize {
        if self.kind == Kind::Set { self.ranges.len() / 2 } else { self.ranges.len() }
    }

    /// Bytes of its command.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether all parts have been started, so that later commands can see what keys they touch.
    pub(crate) fn is_all_started(&self) -> bool {
        self.scan_ended && self.next == self.parts() && !self.kind.scans()
    }

    pub(crate) fn next(&mut self, is_wanted: bool) -> Next {
        let goes_on = is_wanted && self.failure.is_none();
        if goes_on && self.next < self.parts() {
            if self.running == WINDOW {
                return Next::Nothing;
            }
            self.next += 1;
            self.running += 1;
            return Next::Part(self.next as u32 - 1);
        }
        if self.running > 0 || self.scan_running {
            return Next::Nothing;
        }
        if goes_on && !self.scan_ended && !self.is_scan_satisfied() {
            return Next::Scan;
        }
        if let Kind::Lcs(_) = self.kind
            && goes_on
        {
            match common(self.value(0), self.value(1)) {
                Ok(common) => self.common = Some(common),
                Err(failure) => self.fail(failure),
            }
        }
        Next::Finished
    }

    fn is_scan_satisfied(&self) -> bool {
        let found = self.result_ranges.len();
        match (&self.options, self.kind) {
            (Some(options), Kind::Scan) => self.scans >= SCANS_MAX || found >= options.count,
            (_, Kind::Random) => found > 0,
            _ => false,
        }
    }

    /// The value of a part; empty if there was none.
    fn value(&self, part: usize) -> &[u8] {
        let range = self.result_ranges[part];
        range.map_or(&[], |range| &self.results[range.from()..range.to()])
    }

    /// What a part does, and with what.
    pub(crate) fn part(&self, part: u32) -> (Action, &[u8], &[u8]) {
        let part = part as usize;
        let argument = |at: usize| &self.bytes[self.ranges[at].from()..self.ranges[at].to()];
        match self.kind {
            Kind::Get | Kind::Lcs(_) => (Action::Get, argument(part), &[]),
            Kind::Set => (Action::Set { expiry_ms: 0 }, argument(2 * part), argument(2 * part + 1)),
            Kind::Delete => (Action::Delete, argument(part), &[]),
            Kind::Exists | Kind::Scan | Kind::Keys | Kind::Random | Kind::Count => {
                (Action::View(View::Exists), argument(part), &[])
            }
            Kind::Flush => (Action::Erase, argument(part), &[]),
        }
    }

    /// A part is done.
    pub(crate) fn done(&mut self, part: u32, answer: &Answer<'_>, result_bytes_max: usize) {
        self.running -= 1;
        match (answer, self.kind) {
            (Answer::Failed(failure), _) => self.fail(failure.clone()),
            (Answer::Bulk(value), kind) if kind.reads_values() => {
                if self.results.len() + value.len() > result_bytes_max {
                    return self.fail(Failure::ReplyLength(result_bytes_max));
                }
                let from = self.results.len();
                self.results.extend_from_slice(value);
                self.result_ranges[part as usize] = Some(Range::new(from, self.results.len()));
            }
            (Answer::Integer(1), kind) if kind.lists_keys() => {
                let range = self.ranges[part as usize];
                let from = self.results.len();
                self.results.extend_from_slice(&self.bytes[range.from()..range.to()]);
                self.listed(from);
            }
            (Answer::Integer(number), _) => self.sum += number,
            _ => {}
        }
    }

    /// The results have one more key, from here on.
    fn listed(&mut self, from: usize) {
        self.result_ranges.push(Some(Range::new(from, self.results.len())));
        if self.kind == Kind::Keys && self.result_ranges.len() > KEYS_MAX {
            self.fail(Failure::TooManyKeys(KEYS_MAX));
        }
    }

    /// An outcome that can't be known outranks every other failure.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() || failure.is_unknown_outcome() {
            self.failure = Some(failure);
        }
    }

    pub(crate) fn scan_started(&mut self) {
        self.scan_running = true;
    }

    pub(crate) fn scan_failed(&mut self, failure: Failure) {
        self.scan_running = false;
        self.fail(failure);
    }

    /// Takes a scan's answer.
    pub(crate) fn scanned(&mut self, entries: &[u8], next: u64, live: u32) {
        self.scan_running = false;
        self.scans += 1;
        self.clear_keys();
        if next != 0 && next <= self.position {
            return self.fail(Failure::Static("ERR a node's scan went backwards"));
        }
        self.position = next;
        let begins_again = self.kind == Kind::Random && !self.wrapped;
        self.scan_ended = next == 0 && !begins_again;
        self.wrapped |= next == 0;
        if self.kind == Kind::Count {
            self.sum += i64::from(live);
        }
        for (maybe_cached, key) in scan_entries(entries) {
            let pattern = self.options.as_ref().and_then(|options| options.pattern.as_deref());
            if key.is_empty() || pattern.is_some_and(|pattern| !glob::matches(pattern, key)) {
                continue;
            }
            match self.kind {
                kind if kind.lists_keys() && !maybe_cached => {
                    let from = self.results.len();
                    self.results.extend_from_slice(key);
                    self.listed(from);
                }
                Kind::Count if !maybe_cached => {}
                _ => self.push_key(key),
            }
        }
    }

    pub(crate) fn scan_request(&self) -> Request<'static> {
        Request::Scan { position: self.position, count_only: self.kind == Kind::Count }
    }

    /// Whether some of its parts are under way.
    pub(crate) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Writes the reply.
    pub(crate) fn write(&self, out: &mut Vec<u8>, resp3: bool) {
        if let Some(failure) = &self.failure {
            return write::error(out, &failure.text());
        }
        let result = |range: &Range| &self.results[range.from()..range.to()];
        match self.kind {
            Kind::Set | Kind::Flush => write::simple(out, "OK"),
            Kind::Delete | Kind::Exists | Kind::Count => write::integer(out, self.sum),
            Kind::Lcs(options) => {
                if let Some(common) = &self.common {
                    common.write(options, out, resp3);
                }
            }
            Kind::Random => match &self.result_ranges[..] {
                [] => write::null(out, resp3),
                // The scan began at random, and so does the choice among what it found.
                _ => {
                    let random = self.options.as_ref().map_or(0, |options| options.cursor);
                    let at = (random % self.result_ranges.len() as u64) as usize;
                    write::bulk(out, self.value(at));
                }
            },
            Kind::Keys => {
                write::array(out, self.result_ranges.len());
                for range in self.result_ranges.iter().flatten() {
                    write::bulk(out, result(range));
                }
            }
            Kind::Get => {
                write::array(out, self.result_ranges.len());
                for range in &self.result_ranges {
                    match range {
                        Some(range) => write::bulk(out, result(range)),
                        None => write::null(out, resp3),
                    }
                }
            }
            Kind::Scan => {
                write::array(out, 2);
                write::bulk(out, itoa::Buffer::new().format(self.position).as_bytes());
                write::array(out, self.result_ranges.len());
                for range in self.result_ranges.iter().flatten() {
                    write::bulk(out, result(range));
                }
            }
        }
    }
}
