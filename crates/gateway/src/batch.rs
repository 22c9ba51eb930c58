//! Commands of many keys, or of all: each key is an operation of its own, a limited number at a
//! time. Some read keys before they write others, in stages.

use crate::command::Verb;
use crate::command::glob;
use crate::command::options::{Expiry, OnlyIf, ScanOptions, SetOptions};
use crate::connection::ConnectionId;
use crate::failure::Failure;
use crate::operation::{ATTEMPTS_MAX, Action, Answer};
use crate::programs::{Effect, Program, Programs};
use crate::resp::{Args, Range, write};
use crate::strings::{BitOperation, Common, LcsOptions, View, combined, common};
use switchback_core::client::Operation as Request;
use switchback_wire::{Seq, scan_entries};

/// Parts of one batch that are under way at a time.
const WINDOW: usize = 64;
/// Scan requests that one SCAN makes at most.
const SCANS_MAX: u32 = 32;
/// Bytes of the values of a script's keys together.
const FOUND_BYTES_MAX: usize = 64 << 20;
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
    /// Sets all keys if none of them is there.
    SetMissing,
    Transfer(Transfer),
    /// Sets a key to what others come to.
    Combine(BitOperation),
    /// A script of several keys.
    Script,
}

/// Gives a record's value and expiry to another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// The first key loses them, and has to be there.
    pub(crate) moves: bool,
    /// The second key may be there.
    pub(crate) replaces: bool,
}

/// How far a command has come that reads keys before it writes others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Read,
    Write,
    /// What was moved is removed where it was.
    Remove,
}

impl Kind {
    /// Whether what it writes depends on what it has read of other keys, so that it isn't isolated
    /// from what others write meanwhile.
    pub(crate) fn has_stages(self) -> bool {
        matches!(self, Kind::SetMissing | Kind::Transfer(_) | Kind::Combine(_) | Kind::Script)
    }

    /// Whether later commands wait until it is done, so that it begins when nothing is under way.
    pub(crate) fn goes_alone(self) -> bool {
        self.scans() || self.has_stages()
    }

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
        matches!(self, Kind::Get | Kind::Lcs(_) | Kind::Transfer(_) | Kind::Combine(_))
    }
}

/// What a part of a batch does, and with what.
pub(crate) struct Part<'a> {
    pub(crate) action: Action,
    pub(crate) key: &'a [u8],
    pub(crate) argument: &'a [u8],
    /// What the value is compared with.
    pub(crate) expected: &'a [u8],
}

/// What a batch does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This part.
    Part(u32),
    /// [`Batch::scan_request`].
    Scan,
    /// [`Batch::run_script`].
    Run,
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
    /// One of its writes has succeeded.
    has_written: bool,
    held_bytes: usize,
    bytes: Vec<u8>,
    ranges: Vec<Range>,
    stage: Stage,
    next: usize,
    running: usize,
    sum: i64,
    results: Vec<u8>,
    result_ranges: Vec<Option<Range>>,
    /// Bytes of results that are charged to its connection so far.
    charged_bytes: usize,
    position: u64,
    scans: u32,
    scan_ended: bool,
    scan_running: bool,
    options: Option<ScanOptions>,
    /// A scan for any key came to the end, and begins at the beginning.
    wrapped: bool,
    common: Option<Common>,
    /// Of the record that is transferred.
    expiry_ms: u64,
    script: Option<Box<Script>>,
}

/// Value and expiry, if there is a record; and its version.
type FoundVersion = (Option<(Vec<u8>, u64)>, Seq);

/// A script, what was found of its keys, and what it has come to.
#[derive(Debug)]
struct Script {
    program: Program,
    found: Vec<FoundVersion>,
    /// What is to be written, and to which key.
    effects: Vec<(usize, Effect, Vec<u8>)>,
    /// Bytes of what was found and of what is to be written.
    bytes: usize,
    attempts: u32,
    has_run: bool,
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
        self.has_written = false;
        self.sum = 0;
        self.held_bytes = 0;
        self.charged_bytes = 0;
        self.position = 0;
        self.scans = 0;
        self.scan_ended = !kind.scans();
        self.options = None;
        self.wrapped = false;
        self.common = None;
        self.stage = Stage::Read;
        self.expiry_ms = 0;
        self.script = None;
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
        let (first, count) = match self.kind {
            Kind::Lcs(_) | Kind::Transfer(_) => (1, 2),
            Kind::Combine(_) => (2, args.len()),
            _ => (1, args.len()),
        };
        for argument in args.from(first).take(count) {
            self.push_key(argument);
        }
        self.held_bytes = self.bytes.len();
        if self.kind.reads_values() {
            self.result_ranges.resize(self.parts(), None);
        }
    }

    /// Takes over a script and its keys; one that is there twice counts once.
    pub(crate) fn fill_script<'a>(
        &mut self,
        program: Program,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        self.held_bytes = program.held_bytes();
        for key in keys {
            if (0..self.ranges.len()).all(|at| self.argument(at) != key) {
                self.push_key(key);
            }
        }
        let found = vec![(None, Seq::NONE); self.ranges.len()];
        let (effects, bytes, attempts, has_run) = (Vec::new(), 0, 0, false);
        let script = Script { program, found, effects, bytes, attempts, has_run };
        self.script = Some(Box::new(script));
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
        self.script = None;
        self.connection = ConnectionId::default();
        if self.bytes.capacity()
            + self.results.capacity()
            + self.ranges.capacity() * size_of::<Range>()
            + self.result_ranges.capacity() * size_of::<Option<Range>>()
            > 64 << 10
        {
            *self = Batch::default();
        }
    }

    fn parts(&self) -> usize {
        match (self.kind, self.stage) {
            (Kind::Set | Kind::SetMissing, _) => self.ranges.len() / 2,
            (Kind::Transfer(_), _) | (Kind::Combine(_), Stage::Write) => 1,
            (Kind::Combine(_), _) => self.ranges.len() - 1,
            (Kind::Script, Stage::Write) => {
                self.script.as_ref().map_or(0, |script| script.effects.len())
            }
            _ => self.ranges.len(),
        }
    }

    /// Bytes of its command.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of what it has read and made.
    fn result_bytes(&self) -> usize {
        self.results.len() + self.script.as_ref().map_or(0, |script| script.bytes)
    }

    /// Bytes of results that were charged to its connection, and that are from now on.
    pub(crate) fn charge(&mut self) -> (usize, usize) {
        let bytes = self.result_bytes();
        (std::mem::replace(&mut self.charged_bytes, bytes), bytes)
    }

    /// Bytes of results that are charged to its connection.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charged_bytes
    }

    /// Whether all parts have been started, so that later commands can see what keys they touch.
    pub(crate) fn is_all_started(&self) -> bool {
        self.scan_ended
            && self.next == self.parts()
            && !self.kind.scans()
            && !self.kind.has_stages()
    }

    pub(crate) fn next(&mut self, is_wanted: bool) -> Next {
        let goes_on = is_wanted && self.failure.is_none();
        if goes_on && self.next < self.parts() {
            // A script's writes go one after the other, in its order.
            let in_order = self.kind == Kind::Script && self.stage == Stage::Write;
            if self.running >= if in_order { 1 } else { WINDOW } {
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
        if goes_on && self.script.as_ref().is_some_and(|script| !script.has_run) {
            return Next::Run;
        }
        if goes_on && self.advance() {
            return self.next(is_wanted);
        }
        if let Kind::Lcs(_) = self.kind
            && goes_on
        {
            match common(self.value(0), self.value(1)) {
                Ok(common) => self.common = Some(common),
                Err(failure) => self.fail(failure),
            }
        }
        self.admit_writes();
        Next::Finished
    }

    /// What is told of a failure must not deny what was written. (That the spool can't be written
    /// denies nothing.)
    fn admit_writes(&mut self) {
        if let Some(failure) = &self.failure
            && self.has_written
            && !failure.is_unknown_outcome()
            && !matches!(failure, Failure::Text(_))
        {
            self.failure = Some(failure.partly());
        }
    }

    /// Whether the answer to a part tells of a write.
    fn tells_of_write(&self, answer: &Answer<'_>) -> bool {
        match (self.kind, self.stage) {
            (Kind::Set | Kind::Flush, _) | (Kind::Script, Stage::Write) => {
                !matches!(answer, Answer::Failed(_) | Answer::Changed)
            }
            (Kind::Delete, _) | (_, Stage::Write | Stage::Remove) => {
                matches!(answer, Answer::Ok | Answer::Integer(1))
            }
            (_, Stage::Read) => false,
        }
    }

    /// Begins the next stage, if there is one.
    fn advance(&mut self) -> bool {
        let next = match (self.kind, self.stage) {
            (Kind::SetMissing, Stage::Read) if self.sum == 0 => Stage::Write,
            (Kind::Transfer(_), Stage::Read) if self.has_found() && !self.is_to_itself() => {
                Stage::Write
            }
            (Kind::Transfer(transfer), Stage::Write) if transfer.moves && self.sum == 1 => {
                Stage::Remove
            }
            (Kind::Script, Stage::Read) => Stage::Write,
            (Kind::Combine(operation), Stage::Read) => {
                let values: Vec<_> = (0..self.parts()).map(|part| self.value(part)).collect();
                self.results = combined(operation, &values);
                Stage::Write
            }
            _ => return false,
        };
        (self.stage, self.next) = (next, 0);
        true
    }

    /// Runs the script on what was found.
    pub(crate) fn run_script(&mut self, programs: &mut Programs, now_ms: u64) {
        let Some(mut script) = self.script.take() else { return };
        let found = script.found.iter().enumerate().map(|(at, (found, _))| {
            let found = found.as_ref().map(|(value, expiry_ms)| (&value[..], *expiry_ms));
            (self.argument(at), found)
        });
        let ran = programs.run_several(&mut script.program, found, now_ms);
        script.has_run = true;
        match ran {
            Ok(effects) => {
                let effects = effects.into_iter().enumerate();
                let changed = effects.filter(|(_, (effect, _))| *effect != Effect::Nothing);
                script.effects = changed.map(|(at, (effect, value))| (at, effect, value)).collect();
                script.bytes += script.effects.iter().map(|(.., value)| value.len()).sum::<usize>();
            }
            Err(failure) => self.fail(failure),
        }
        self.script = Some(script);
    }

    /// A write of a script found another record than was read.
    fn overtaken(&mut self, part: u32) {
        let Some(script) = &mut self.script else { return };
        script.attempts += 1;
        let attempts = script.attempts;
        match part {
            0 if attempts < ATTEMPTS_MAX => {
                (self.stage, self.next, script.has_run) = (Stage::Read, 0, false);
                script.found.fill((None, Seq::NONE));
                script.effects.clear();
                script.bytes = 0;
            }
            0 => self.fail(Failure::Overtaken(attempts)),
            _ => {
                let key = script.effects[part as usize].0 + 1;
                self.fail(Failure::Torn(key));
            }
        }
    }

    /// The first of the keys that its command names.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        (self.kind.names_keys() && !self.ranges.is_empty()).then(|| self.argument(0))
    }

    fn argument(&self, at: usize) -> &[u8] {
        &self.bytes[self.ranges[at].from()..self.ranges[at].to()]
    }

    /// Whether a record that is to be transferred was there.
    fn has_found(&self) -> bool {
        self.result_ranges.first().is_some_and(Option::is_some)
    }

    fn is_to_itself(&self) -> bool {
        self.argument(0) == self.argument(1)
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

    pub(crate) fn part(&self, part: u32) -> Part<'_> {
        let part = part as usize;
        let exists = Action::View(View::Exists);
        let (action, key, argument) = match (self.kind, self.stage) {
            (Kind::Get | Kind::Lcs(_), _) => (Action::Get, self.argument(part), &[][..]),
            (Kind::Set, _) | (Kind::SetMissing, Stage::Write | Stage::Remove) => {
                let set = Action::Set { expiry_ms: 0 };
                (set, self.argument(2 * part), self.argument(2 * part + 1))
            }
            (Kind::SetMissing, Stage::Read) => (exists, self.argument(2 * part), &[][..]),
            (Kind::Delete, _) => (Action::Delete, self.argument(part), &[][..]),
            (Kind::Exists | Kind::Scan | Kind::Keys | Kind::Random | Kind::Count, _) => {
                (exists, self.argument(part), &[][..])
            }
            (Kind::Flush, _) => (Action::Erase, self.argument(part), &[][..]),
            (Kind::Transfer(_), Stage::Read) => (Action::Record, self.argument(0), &[][..]),
            (Kind::Transfer(transfer), Stage::Write) => {
                (self.put(transfer), self.argument(1), self.value(0))
            }
            // What was written there meanwhile is another record, and stays.
            (Kind::Transfer(_), Stage::Remove) => {
                (Action::DeleteIf(OnlyIf::Equal), self.argument(0), &[][..])
            }
            (Kind::Script, Stage::Read) => (Action::Record, self.argument(part), &[][..]),
            (Kind::Script, _) => self.effect(part),
            (Kind::Combine(_), Stage::Read) => (Action::Get, self.argument(part + 1), &[][..]),
            (Kind::Combine(_), _) if self.results.is_empty() => {
                (Action::Delete, self.argument(0), &[][..])
            }
            (Kind::Combine(_), _) => {
                (Action::Set { expiry_ms: 0 }, self.argument(0), &self.results[..])
            }
        };
        let expected = if self.stage == Stage::Remove { self.value(0) } else { &[] };
        Part { action, key, argument, expected }
    }

    /// What a script does to one of its keys.
    fn effect(&self, part: usize) -> (Action, &[u8], &[u8]) {
        let Some(script) = &self.script else { return (Action::Get, &[], &[]) };
        let (at, effect, value) = &script.effects[part];
        let seq = script.found[*at].1;
        match *effect {
            Effect::Write { expiry_ms } => {
                (Action::Replace { seq, expiry_ms }, self.argument(*at), value)
            }
            Effect::Delete | Effect::Nothing => (Action::Remove(seq), self.argument(*at), &[]),
        }
    }

    /// How the second key of a transfer is written.
    fn put(&self, transfer: Transfer) -> Action {
        let expiry_ms = self.expiry_ms;
        if transfer.replaces {
            return Action::Set { expiry_ms };
        }
        let expiry = Expiry::At(expiry_ms);
        Action::SetIf(SetOptions { only_if: OnlyIf::Missing, get: false, expiry }, true)
    }

    /// A part is done.
    pub(crate) fn done(&mut self, part: u32, answer: &Answer<'_>, result_bytes_max: usize) {
        self.running -= 1;
        self.has_written |= self.tells_of_write(answer);
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
            (Answer::Record { found, seq }, Kind::Script) => {
                let Some(script) = &mut self.script else { return };
                script.bytes += found.map_or(0, |(value, _)| value.len());
                if script.bytes > FOUND_BYTES_MAX {
                    return self.fail(Failure::FoundLength(FOUND_BYTES_MAX));
                }
                let found = found.map(|(value, expiry_ms)| (value.to_vec(), expiry_ms));
                script.found[part as usize] = (found, *seq);
            }
            (Answer::Record { found: Some((value, expiry_ms)), .. }, _) => {
                self.results.extend_from_slice(value);
                self.result_ranges[part as usize] = Some(Range::new(0, value.len()));
                self.expiry_ms = *expiry_ms;
            }
            (Answer::Changed, Kind::Script) => self.overtaken(part),
            (Answer::Ok, Kind::Transfer(_)) => self.sum = 1,
            (Answer::Integer(_), Kind::Transfer(_)) if self.stage == Stage::Remove => {}
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
            Kind::Script => {
                let script = self.script.as_ref();
                out.extend_from_slice(script.map_or(&[], |script| script.program.reply()));
            }
            Kind::SetMissing => write::integer(out, i64::from(self.stage == Stage::Write)),
            Kind::Combine(_) => write::integer(out, self.results.len() as i64),
            Kind::Transfer(Transfer { moves: true, .. }) if !self.has_found() => {
                write::error(out, "ERR no such key");
            }
            Kind::Transfer(Transfer { moves: true, replaces: true }) => write::simple(out, "OK"),
            Kind::Transfer(_) => write::integer(out, self.sum),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of these words, whose parts end like this; they are started before any ends.
    fn failure(kind: Kind, words: [&[u8]; 5], answers: &[Answer<'_>]) -> Option<Failure> {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        for word in words {
            let from = bytes.len();
            bytes.extend_from_slice(word);
            ranges.push(Range::new(from, bytes.len()));
        }
        let mut batch = Batch::default();
        batch.begin(kind, ConnectionId::default(), 0, Verb::MSet);
        batch.fill(Args::new(&bytes, &ranges));
        let mut started = 0;
        let mut answers = answers.iter();
        loop {
            match batch.next(true) {
                Next::Part(part) => started = part + 1,
                Next::Finished => return batch.failure,
                _ => (0..std::mem::take(&mut started)).for_each(|part| {
                    batch.done(part, answers.next().unwrap(), usize::MAX);
                }),
            }
        }
    }

    fn script(keys: &[String]) -> Batch {
        let mut batch = Batch::default();
        batch.begin(Kind::Script, ConnectionId::default(), 0, Verb::Eval);
        let program = Program::transaction(crate::programs::Transaction::default(), None, false);
        batch.fill_script(program, keys.iter().map(|key| key.as_bytes()));
        batch
    }

    /// Fails if a script denies its first key's write, when the second one finds no lane.
    #[test]
    fn a_script_that_has_written_a_key_does_not_deny_it() {
        for (first, is_partly) in [(Answer::Ok, true), (Answer::Failed(Failure::Busy(7)), false)] {
            let mut batch = script(&["a".to_owned(), "b".to_owned()]);
            for part in 0..2 {
                assert_eq!(batch.next(true), Next::Part(part));
                batch.done(part, &Answer::Record { found: None, seq: Seq(1) }, usize::MAX);
            }
            assert_eq!(batch.next(true), Next::Run);
            let ran = batch.script.as_mut().unwrap();
            let write = |at| (at, Effect::Write { expiry_ms: 0 }, b"v".to_vec());
            (ran.has_run, ran.effects) = (true, vec![write(0), write(1)]);
            assert_eq!(batch.next(true), Next::Part(0));
            batch.done(0, &first, usize::MAX);
            if is_partly {
                assert_eq!(batch.next(true), Next::Part(1));
                batch.done(1, &Answer::Failed(Failure::Busy(7)), usize::MAX);
            }
            assert_eq!(batch.next(true), Next::Finished);
            let busy = Failure::Busy(7);
            assert_eq!(batch.failure, Some(if is_partly { busy.partly() } else { busy }));
        }
    }

    /// Fails if each value that a script reads is limited, but not all of them.
    #[test]
    fn the_values_of_a_scripts_keys_are_limited_together() {
        let value = vec![b'v'; 1 << 20];
        let keys: Vec<String> = (0..65).map(|number| format!("k{number}")).collect();
        let mut batch = script(&keys);
        for read in 0..65 {
            assert!(matches!(batch.next(true), Next::Part(_)), "{read}");
            let found = Some((&value[..], 0));
            batch.done(read, &Answer::Record { found, seq: Seq(1) }, usize::MAX);
            let (before, after) = batch.charge();
            assert_eq!((before >> 20, after >> 20), (read as usize, read as usize + 1));
        }
        assert_eq!(batch.next(true), Next::Finished);
        assert_eq!(batch.failure, Some(Failure::FoundLength(FOUND_BYTES_MAX)));
    }

    /// Fails if a command that has written something says that it hasn't, in whatever order its
    /// parts end.
    #[test]
    fn a_failure_after_a_write_does_not_deny_it() {
        let busy = Answer::Failed(Failure::Busy(7));
        let [one, none] = [Answer::Integer(1), Answer::Integer(0)];
        let partly = Some(Failure::Busy(7).partly());
        let words: [&[u8]; 5] = [b"mset", b"a", b"1", b"b", b"2"];
        let both = |kind, first: &Answer<'_>, second: &Answer<'_>| {
            let ends = [[first, second], [second, first]];
            let failures = ends.map(|[a, b]| failure(kind, words, &[a.clone(), b.clone()]));
            assert_eq!(failures[0], failures[1]);
            failures[0].clone()
        };
        assert_eq!(both(Kind::Set, &Answer::Ok, &busy), partly);
        assert_eq!(both(Kind::Set, &busy, &busy), Some(Failure::Busy(7)));
        let unknown = Answer::Failed(Failure::Indeterminate(7));
        assert_eq!(both(Kind::Set, &Answer::Ok, &unknown), Some(Failure::Indeterminate(7)));
        let delete =
            |answers: [&Answer<'_>; 4]| failure(Kind::Delete, words, &answers.map(Clone::clone));
        assert_eq!(delete([&none, &none, &one, &busy]), partly);
        assert_eq!(delete([&none, &none, &none, &busy]), Some(Failure::Busy(7)));
        let missing = |last: &[Answer<'_>]| {
            let read = [none.clone(), none.clone()];
            failure(Kind::SetMissing, words, &[&read[..], last].concat())
        };
        assert_eq!(missing(&[Answer::Ok, busy.clone()]), partly);
        assert_eq!(missing(&[busy.clone(), busy.clone()]), Some(Failure::Busy(7)));
    }
}
