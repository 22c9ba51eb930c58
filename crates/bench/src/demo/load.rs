//! The demo's load: a program that reads and writes through the gateway, in Redis' protocol, and
//! checks every answer.
//!
//! Redis' protocol tells no versions, so the load gives each write its own ([`Stamp`]). A record is
//! written over one connection only, which a gateway answers in order: the versions of a record
//! grow with its writes, and the verifier's checks hold as for sessions. That takes for granted
//! that no write whose outcome isn't known is done after later ones of its record. What a switch
//! had under way isn't, once another epoch has begun.

use super::resp::{Replies, Reply, command};
use crate::verify::{Known, Verification, Verifier};
use crate::workload::{KeySpace, Request, Requests, Stamp, Verb, WorkloadSpec};
use anyhow::{Context as _, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use switchback_wire::Seq;

/// Connections to the gateway.
const CONNECTIONS: usize = 8;
/// Operations that all of them have outstanding.
const OUTSTANDING: usize = 64;
/// The load's number among writers.
const WRITER: u16 = 1;
/// How long the load sleeps at most before it looks whether it is told something.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Time between two looks of the thread that watches.
const LOOK: Duration = Duration::from_millis(50);
/// How long the reads at the end may take.
const SWEEP: Duration = Duration::from_secs(60);

/// What the load has done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// Operations that ended.
    pub(super) operations: u64,
    /// Operations that ended without an outcome: the answer was an error.
    pub(super) failed: u64,
    /// What the verifier says of the answers.
    pub(super) verification: Verification,
    /// Audits that ended, and the records that the last of them read.
    pub(super) audits: u32,
    pub(super) audited: u64,
    /// Records that the reads at the end did not reach; 0 until then.
    pub(super) unswept: u64,
}

/// What the load is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    GoOn,
    /// Reads every record that was written, beside what it does anyway. The next one begins after
    /// the one that is under way, if there is one.
    Audit,
    /// Ends, and reads every record that was written once more.
    End,
}

/// What the load and the thread that watches it share.
#[derive(Default)]
struct LoadState {
    done: Mutex<Done>,
    /// Audits that were asked for.
    audits: AtomicU32,
    /// It is to end.
    ends: AtomicBool,
    /// It is to end at once, whatever is outstanding.
    aborts: AtomicBool,
}

impl LoadState {
    fn done(&self) -> Done {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs a workload on a rack that has no records yet, over the gateway at this address, until
/// `look` says that it is to end. That is asked some twenty times a second.
///
/// # Errors
/// The gateway can't be reached or breaks the protocol, or `look` fails.
pub(super) fn drive(
    gateway: SocketAddr,
    spec: &WorkloadSpec,
    keys: KeySpace,
    look: &mut dyn FnMut(&Done) -> anyhow::Result<Order>,
) -> anyhow::Result<Done> {
    let verifier = Verifier::new(0, spec.lengths(), WRITER);
    let shared = LoadState::default();
    std::thread::scope(|scope| {
        let load = || Load::connect(gateway, spec, keys, &verifier)?.run(&shared);
        let load = std::thread::Builder::new().name("load".into()).spawn_scoped(scope, load)?;
        let watched = watch(&shared, &|| load.is_finished(), look);
        if watched.is_err() {
            shared.aborts.store(true, Ordering::Relaxed);
        }
        let result = load.join().unwrap_or_else(|_| Err(anyhow!("its thread panicked")));
        // Why the watching thread failed tells more than what the load saw of it.
        watched?;
        result.context("the load")
    })?;
    let done = shared.done();
    let written = verifier.touched(0, 1).count() as u64;
    Ok(Done { unswept: written.saturating_sub(done.verification.swept), ..done })
}

fn watch(
    shared: &LoadState,
    is_over: &dyn Fn() -> bool,
    look: &mut dyn FnMut(&Done) -> anyhow::Result<Order>,
) -> anyhow::Result<()> {
    while !is_over() {
        match look(&shared.done())? {
            Order::GoOn => {}
            Order::Audit => {
                shared.audits.fetch_add(1, Ordering::Relaxed);
            }
            Order::End => {
                shared.ends.store(true, Ordering::Relaxed);
                return Ok(());
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// An operation whose answer is awaited.
#[derive(Clone, Copy, Debug)]
struct Operation {
    index: u64,
    /// The version that it writes; `None`: it reads.
    version: Option<u32>,
    known: Known,
    /// It is one of a sweep's reads.
    sweeps: bool,
}

/// A connection to the gateway.
struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    replies: Replies,
    /// What was asked, in the order of the answers.
    awaited: VecDeque<Operation>,
}

impl Connection {
    fn open(gateway: SocketAddr) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(gateway)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (output, replies) = (Vec::new(), Replies::default());
        Ok(Connection { stream, output, replies, awaited: VecDeque::new() })
    }

    /// Writes what it can.
    fn flush(&mut self) -> anyhow::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if is_later(error.kind()) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what is there.
    fn fill(&mut self) -> anyhow::Result<()> {
        let mut piece = [0; 16 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => bail!("the gateway closed a connection"),
                Ok(read) => self.replies.add(&piece[..read]),
                Err(error) if is_later(error.kind()) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_later(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads of every record that was written.
struct Sweep {
    left: Vec<u64>,
    outstanding: usize,
    read: u64,
}

/// The load.
struct Load<'a> {
    connections: Vec<Connection>,
    requests: Requests,
    keys: KeySpace,
    value_bytes: usize,
    verifier: &'a Verifier,
    /// Of the last write.
    version: u32,
    /// Records of which it isn't known whether the last write was done, and the audits that had
    /// begun by then. They are only read until the next audit has ended, so that their versions
    /// still grow: that comes after a recovery, and what a switch had under way before isn't done
    /// later.
    undecided: HashMap<u64, u32>,
    next: usize,
    outstanding: usize,
    sweep: Option<Sweep>,
    done: Done,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Load<'a> {
    fn connect(
        gateway: SocketAddr,
        spec: &WorkloadSpec,
        keys: KeySpace,
        verifier: &'a Verifier,
    ) -> anyhow::Result<Load<'a>> {
        let connections = (0..CONNECTIONS).map(|_| Connection::open(gateway));
        Ok(Load {
            connections: connections.collect::<anyhow::Result<_>>()?,
            requests: spec.requests(0, 1),
            keys,
            value_bytes: spec.value_bytes.longest(),
            verifier,
            version: 0,
            undecided: HashMap::new(),
            next: 0,
            outstanding: 0,
            sweep: None,
            done: Done::default(),
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    fn run(mut self, shared: &LoadState) -> anyhow::Result<()> {
        while !shared.ends.load(Ordering::Relaxed) {
            if self.sweep.is_none() && shared.audits.load(Ordering::Relaxed) > self.done.audits {
                self.begin_sweep();
            }
            while self.outstanding < OUTSTANDING {
                self.begin_one();
            }
            self.exchange(shared)?;
            self.end_audit();
        }
        // An audit that is under way is part of the reads at the end.
        self.sweep = None;
        let until = Instant::now() + SWEEP;
        while self.outstanding > 0 && Instant::now() < until {
            self.exchange(shared)?;
        }
        self.begin_sweep();
        while self.sweep.as_ref().is_some_and(|sweep| !sweep.is_over()) && Instant::now() < until {
            while self.outstanding < OUTSTANDING && self.begin_sweeping_read() {}
            self.exchange(shared)?;
        }
        self.verifier.add_swept(self.sweep.map_or(0, |sweep| sweep.read));
        self.done.verification = self.verifier.verification();
        *shared.done.lock().unwrap_or_else(PoisonError::into_inner) = self.done;
        Ok(())
    }

    fn begin_sweep(&mut self) {
        let left = self.verifier.touched(0, 1).collect();
        self.sweep = Some(Sweep { left, outstanding: 0, read: 0 });
    }

    /// Ends an audit whose last record was read.
    fn end_audit(&mut self) {
        if let Some(sweep) = self.sweep.take_if(|sweep| sweep.is_over()) {
            self.done.audits += 1;
            self.done.audited = sweep.read;
            self.undecided.retain(|_, begun| *begun >= self.done.audits);
        }
    }

    /// Begins an operation. An audit gets half of the room.
    fn begin_one(&mut self) {
        let has_room = |sweep: &Sweep| sweep.outstanding * 2 < OUTSTANDING;
        if self.sweep.as_ref().is_some_and(has_room) && self.begin_sweeping_read() {
            return;
        }
        let Request { verb, index } = self.requests.next_request();
        if verb == Verb::Update && !self.undecided.contains_key(&index) {
            self.write(index);
        } else {
            self.read(index, false);
        }
    }

    /// Begins the next read of a sweep; false if there is none left.
    fn begin_sweeping_read(&mut self) -> bool {
        let Some(sweep) = &mut self.sweep else { return false };
        let Some(index) = sweep.left.pop() else { return false };
        sweep.outstanding += 1;
        self.read(index, true);
        true
    }

    fn write(&mut self, index: u64) {
        self.version += 1;
        let stamp = Stamp { index, writer: WRITER, version: self.version };
        self.keys.write_key(index, &mut self.key);
        stamp.write_value(self.value_bytes, &mut self.value);
        let known = self.verifier.known(index);
        self.verifier.begin_write(stamp);
        let at = (index % CONNECTIONS as u64) as usize;
        command(&mut self.connections[at].output, &[b"SET", &self.key, &self.value]);
        let version = Some(self.version);
        self.await_answer(at, Operation { index, version, known, sweeps: false });
    }

    fn read(&mut self, index: u64, sweeps: bool) {
        self.keys.write_key(index, &mut self.key);
        let known = self.verifier.known(index);
        self.next = (self.next + 1) % CONNECTIONS;
        command(&mut self.connections[self.next].output, &[b"GET", &self.key]);
        self.await_answer(self.next, Operation { index, version: None, known, sweeps });
    }

    fn await_answer(&mut self, at: usize, operation: Operation) {
        self.connections[at].awaited.push_back(operation);
        self.outstanding += 1;
    }

    /// Sends what there is to send, waits for answers for a while, and takes them.
    fn exchange(&mut self, shared: &LoadState) -> anyhow::Result<()> {
        if shared.aborts.load(Ordering::Relaxed) {
            bail!("it was told to end at once");
        }
        for connection in &mut self.connections {
            connection.flush()?;
        }
        let wanted = |connection: &Connection| match connection.output.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let mut waits: Vec<_> =
            self.connections.iter().map(|it| PollFd::new(&it.stream, wanted(it))).collect();
        match poll(&mut waits, Some(&SLEEP)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for at in 0..self.connections.len() {
            self.connections[at].fill()?;
            self.take_answers(at)?;
        }
        self.done.verification = self.verifier.verification();
        shared.done.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.done);
        Ok(())
    }

    fn take_answers(&mut self, at: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[at];
        let mut answers = Vec::new();
        while let Some(reply) = connection.replies.next()? {
            let operation =
                connection.awaited.pop_front().context("an answer without a request")?;
            answers.push((operation, reply));
        }
        for (operation, reply) in answers {
            self.take(operation, &reply)?;
        }
        Ok(())
    }

    fn take(&mut self, operation: Operation, reply: &Reply) -> anyhow::Result<()> {
        let Operation { index, version, known, sweeps } = operation;
        self.outstanding -= 1;
        self.done.operations += 1;
        match (version, reply) {
            (_, Reply::Error(_)) => {
                self.done.failed += 1;
                if version.is_some() {
                    let begun = self.done.audits + u32::from(self.sweep.is_some());
                    self.undecided.insert(index, begun);
                }
            }
            (Some(version), Reply::Simple(text)) if text == "OK" => {
                let stamp = Stamp { index, writer: WRITER, version };
                self.verifier.written(stamp, known, None, seq_of(version));
            }
            (None, Reply::Bulk(value)) => {
                let stamp = Stamp::read_value(value, self.value_bytes).ok().flatten();
                let seq = stamp.map_or(Seq::NONE, |stamp| seq_of(stamp.version));
                self.verifier.read(index, known, seq, value);
            }
            (None, Reply::Nothing) => self.verifier.read_nothing(index, known, Seq::NONE),
            (_, other) => bail!("the gateway answered {other:?}"),
        }
        // A sweep that was ended by the end of the load has no more to count.
        if let Some(sweep) = self.sweep.as_mut().filter(|_| sweeps) {
            sweep.outstanding -= 1;
            match reply {
                Reply::Error(_) => sweep.left.push(index),
                _ => sweep.read += 1,
            }
        }
        Ok(())
    }
}

impl Sweep {
    fn is_over(&self) -> bool {
        self.left.is_empty() && self.outstanding == 0
    }
}

/// The load's versions in the order of the verifier's.
fn seq_of(version: u32) -> Seq {
    Seq::new(1, u64::from(version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Fault;
    use crate::workload::{ValueBytes, Workload};
    use std::net::TcpListener;
    use std::sync::Arc;
    use switchback_gateway::resp::{Parsed, Parser, ParserLimits, write};

    const RECORDS: u64 = 1000;

    /// What a gateway does wrong with one of a hundred writes.
    #[derive(Clone, Copy, PartialEq)]
    enum Fails {
        Never,
        /// It acknowledges the write and forgets it.
        Silently,
        /// It says that the outcome isn't known, and does it.
        Openly,
    }

    type Records = Arc<Mutex<(HashMap<Vec<u8>, Vec<u8>>, u64)>>;

    /// A gateway of one process without a rack. Its threads end with their connections.
    fn gateway(fails: Fails) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let records = Records::default();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS) {
                let (stream, records) = (stream.unwrap(), Arc::clone(&records));
                std::thread::spawn(move || serve(stream, &records, fails));
            }
        });
        address
    }

    fn serve(mut stream: TcpStream, records: &Records, fails: Fails) {
        let (mut input, mut parser) = (Vec::new(), Parser::default());
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            input.extend_from_slice(&piece[..read]);
            let mut output = Vec::new();
            while let Parsed::Command { consumed } =
                parser.next(&input, &ParserLimits::default()).unwrap()
            {
                answer(
                    &parser.args(&input).from(0).collect::<Vec<_>>(),
                    records,
                    fails,
                    &mut output,
                );
                parser.done();
                input.drain(..consumed);
            }
            stream.write_all(&output).unwrap();
        }
    }

    fn answer(arguments: &[&[u8]], records: &Records, fails: Fails, output: &mut Vec<u8>) {
        let (records, writes) = &mut *records.lock().unwrap();
        match *arguments {
            [b"GET", key] => match records.get(key) {
                Some(value) => write::bulk(output, value),
                None => write::null(output, false),
            },
            [b"SET", key, value] => {
                *writes += 1;
                let fails = if writes.is_multiple_of(100) { fails } else { Fails::Never };
                if fails != Fails::Silently {
                    records.insert(key.to_vec(), value.to_vec());
                }
                match fails {
                    Fails::Openly => write::error(output, "INDETERMINATE no answer came"),
                    _ => write::simple(output, "OK"),
                }
            }
            _ => panic!("{arguments:?}"),
        }
    }

    fn driven(fails: Fails, mut look: impl FnMut(&Done) -> Order) -> Done {
        let spec = WorkloadSpec {
            workload: Workload::A,
            theta: 0.9,
            records: RECORDS,
            value_bytes: ValueBytes::constant(64),
            change: None,
            seed: 1,
        };
        drive(gateway(fails), &spec, KeySpace::new(1, 16), &mut |done| Ok(look(done))).unwrap()
    }

    fn until(is_over: impl Fn(&Done) -> bool) -> impl FnMut(&Done) -> Order {
        move |done| if is_over(done) { Order::End } else { Order::GoOn }
    }

    #[test]
    fn it_goes_on_until_it_is_told_to_end_and_then_reads_what_it_wrote() {
        let done = driven(Fails::Never, until(|done| done.operations > 5000));
        assert!(done.verification.swept > 0 && done.unswept == 0, "{done:?}");
        assert_eq!((done.verification.mismatches, done.failed, done.audits), (0, 0, 0), "{done:?}");
    }

    #[test]
    fn an_audit_reads_every_record_that_was_written_beside_the_load() {
        let mut asked = false;
        let done = driven(Fails::Openly, |done| match done {
            _ if done.audits == 1 => Order::End,
            _ if !asked && done.operations > 2 * RECORDS => {
                asked = true;
                Order::Audit
            }
            _ => Order::GoOn,
        });
        assert!((RECORDS / 2..=RECORDS).contains(&done.audited), "{done:?}");
        assert!(done.verification.swept >= done.audited && done.unswept == 0, "{done:?}");
        assert!(done.verification.mismatches == 0 && done.failed > 0, "{done:?}");
    }

    #[test]
    fn a_write_that_was_acknowledged_and_lost_is_found() {
        let done = driven(Fails::Silently, until(|done| done.operations > 4 * RECORDS));
        let lost = [Fault::Stale, Fault::Missing];
        assert!(done.verification.faults.keys().any(|fault| lost.contains(fault)), "{done:?}");
    }

    #[test]
    fn a_gateway_that_goes_away_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().take(CONNECTIONS).for_each(drop));
        let spec = WorkloadSpec {
            workload: Workload::C,
            theta: 0.0,
            records: 1,
            value_bytes: ValueBytes::constant(64),
            change: None,
            seed: 1,
        };
        let look = &mut |_: &Done| Ok(Order::GoOn);
        let error = drive(address, &spec, KeySpace::new(1, 16), look).unwrap_err();
        assert!(format!("{error:#}").starts_with("the load: "), "{error:#}");
    }
}
