//! A client's connection: its buffers, and its replies in order.

use crate::arena::Arena;
use crate::programs::{Transaction, Watched};
use crate::resp::Parser;
use crate::socket::Socket;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What a buffer begins with, and what one read takes at most while it hasn't grown.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// Buffers up to here are used again.
const POOLED_BYTES_MAX: usize = 64 << 10;
/// Spare buffers kept.
const POOLED_MAX: usize = 256;

/// A connection: an index, and the number of the connection among those that had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

/// Buffers that idle connections don't need.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Pool {
    /// An output buffer, empty.
    #[inline]
    pub(crate) fn output(&mut self) -> Vec<u8> {
        self.outputs.pop().unwrap_or_else(|| Vec::with_capacity(1024))
    }

    /// Takes an output buffer back.
    #[inline]
    pub(crate) fn reuse_output(&mut self, mut buffer: Vec<u8>) {
        // One without room is of a reply that wasn't wanted.
        let is_fit = (1..=POOLED_BYTES_MAX).contains(&buffer.capacity());
        if is_fit && self.outputs.len() < 4 * POOLED_MAX {
            buffer.clear();
            self.outputs.push(buffer);
        }
    }
}

/// Bytes that arrived and weren't consumed. Holds no memory while it is empty.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end);
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Room to read into. Grows by doubling and only when full, so that memory follows what was
    /// really sent.
    pub(crate) fn room(&mut self, pool: &mut Pool) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = pool.inputs.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        }
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.bytes.len());
    }

    /// Gives the buffer back if nothing is in it.
    pub(crate) fn rest(&mut self, pool: &mut Pool) {
        if self.start < self.end || self.bytes.is_empty() {
            return;
        }
        (self.start, self.end) = (0, 0);
        let buffer = std::mem::take(&mut self.bytes);
        if buffer.len() <= POOLED_BYTES_MAX && pool.inputs.len() < POOLED_MAX {
            pool.inputs.push(buffer);
        }
    }
}

/// Stands for a reply that isn't known yet.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// A reply that is known before its turn.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) buffer: Vec<u8>,
    /// What it tells isn't in the spool yet.
    pub(crate) unspooled: Option<Unspooled>,
}

/// Bytes of a connection's early replies, and the memory that these take: a short one's buffer has
/// room for a longer one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EarlySizes {
    pub(crate) bytes: usize,
    pub(crate) memory: usize,
}

impl EarlySizes {
    /// Of the reply in this buffer.
    #[inline]
    #[allow(clippy::ptr_arg)] // It is about the capacity.
    pub(crate) fn of(buffer: &Vec<u8>) -> EarlySizes {
        EarlySizes { bytes: buffer.len(), memory: buffer.capacity() + size_of::<Early>() }
    }

    #[inline]
    pub(crate) fn add(&mut self, one: EarlySizes) {
        self.bytes += one.bytes;
        self.memory += one.memory;
    }

    #[inline]
    pub(crate) fn remove(&mut self, one: EarlySizes) {
        self.bytes -= one.bytes;
        self.memory -= one.memory;
    }
}

/// A reply that must wait for the spool, and go wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unspooled {
    /// Of whatever this iteration of the loop absorbed or read.
    Any,
    /// Of the key with this number, see
    /// [`Replies::unspooled_key`](crate::replies::Replies::unspooled_key).
    Key(u32),
}

/// What a connection's first replies are thought to be at most: nothing is known of them.
const FIRST_REPLY_BYTES: usize = 64 << 10;

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) number: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) input: Input,
    pub(crate) parser: Parser,
    pub(crate) out: Vec<u8>,
    pub(crate) sent: usize,
    /// Replies from number `first` on that aren't in `out`: which [`Early`] one it is, or
    /// [`UNKNOWN`].
    pub(crate) slots: VecDeque<u32>,
    pub(crate) first: u64,
    /// What the early replies take.
    pub(crate) early: EarlySizes,
    /// Operations and batches under way, and the bytes that they hold.
    pub(crate) unfinished: usize,
    pub(crate) held_bytes: usize,
    /// Bytes that batches under way have read for it.
    pub(crate) result_bytes: usize,
    /// How many of them the session refused for now.
    pub(crate) parked: usize,
    /// A batch is under way that hasn't started all its parts, or whose arguments don't name its
    /// keys: nothing may overtake it.
    pub(crate) barrier: bool,
    /// What came since MULTI.
    pub(crate) multi: Option<Box<Transaction>>,
    pub(crate) watched: Option<Box<Watched>>,
    /// What is left of a transaction whose commands are executed one after the other.
    pub(crate) replayed: Option<Box<Transaction>>,
    /// How long a reply may become, going by those before it.
    pub(crate) reply_bytes: usize,
    /// Since when the client has taken none of the replies that it could take.
    pub(crate) unread_since_us: Option<u64>,
    /// When it last sent or took something.
    pub(crate) active_us: u64,
    /// It takes no replies for now.
    pub(crate) takes_nothing: bool,
    pub(crate) resp3: bool,
    /// Replies before this one aren't sent.
    pub(crate) silent_until: u64,
    pub(crate) authenticated: bool,
    pub(crate) name: Vec<u8>,
    /// It is among the [`Monitors`](crate::monitors::Monitors).
    pub(crate) is_monitor: bool,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    /// The peer has said that it sends no more; what it sent may still be unread.
    pub(crate) hung_up: bool,
    /// It has been read to its end.
    pub(crate) ended: bool,
    /// Its next command waits for something: it is gone on with when anything of it finishes.
    pub(crate) stalled: bool,
    /// Nothing more is executed; when the replies are out, it is closed.
    pub(crate) closing: bool,
    /// It is in the list of those to be flushed.
    pub(crate) in_dirty: bool,
    /// It is in the list of those to be gone on with.
    pub(crate) in_resume: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        number: u64,
        peer: SocketAddr,
        authenticated: bool,
        now_us: u64,
    ) -> Connection {
        Connection {
            socket,
            number,
            peer,
            input: Input::default(),
            parser: Parser::default(),
            out: Vec::new(),
            sent: 0,
            slots: VecDeque::new(),
            first: 0,
            early: EarlySizes::default(),
            unfinished: 0,
            held_bytes: 0,
            result_bytes: 0,
            parked: 0,
            barrier: false,
            multi: None,
            watched: None,
            replayed: None,
            reply_bytes: FIRST_REPLY_BYTES,
            unread_since_us: None,
            active_us: now_us,
            takes_nothing: false,
            resp3: false,
            silent_until: 0,
            authenticated,
            name: Vec::new(),
            is_monitor: false,
            readable: true,
            hung_up: false,
            ended: false,
            stalled: false,
            closing: false,
            in_dirty: false,
            in_resume: false,
        }
    }

    /// Bytes of replies that the client hasn't taken.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether the socket has all replies that are in `out`.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        self.unsent() == 0 && !self.socket.is_behind()
    }

    /// Bytes of memory that its client can be blamed for.
    pub(crate) fn memory(&self) -> usize {
        self.input.memory()
            + self.socket.memory()
            + self.out.capacity()
            + self.early.memory
            + self.slots.capacity() * size_of::<u32>()
            + self.held_bytes
            + self.result_bytes
            + self.parser.memory()
            + [&self.multi, &self.replayed]
                .into_iter()
                .flatten()
                .map(|all| all.bytes())
                .sum::<usize>()
    }

    /// Takes note of a reply's length. A long one is forgotten over some fifty short ones.
    #[inline]
    pub(crate) fn replied(&mut self, bytes: usize) {
        self.reply_bytes = bytes.max(self.reply_bytes - self.reply_bytes / 16);
    }

    /// Bytes of replies that the client hasn't taken, and of those that are still to come.
    #[inline]
    pub(crate) fn owed(&self) -> usize {
        self.unsent() + self.early.bytes + self.unfinished * self.reply_bytes
    }

    /// Whether it seems to send all its commands before it takes a reply: there is more of them
    /// than was read.
    pub(crate) fn sends_first(&self) -> bool {
        self.takes_nothing && self.readable
    }

    /// Takes note of what the client took when it could.
    pub(crate) fn took(&mut self, bytes: usize, now_us: u64) {
        if bytes > 0 {
            self.active_us = now_us;
        }
        if self.unsent() == 0 {
            (self.unread_since_us, self.takes_nothing) = (None, false);
        } else if bytes > 0 || self.unread_since_us.is_none() {
            self.unread_since_us = Some(now_us);
        }
    }

    /// The number of the next command's reply.
    #[inline]
    pub(crate) fn next_reply(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether nothing is under way.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.unfinished == 0 && self.slots.is_empty()
    }

    /// Moves the replies that are known and at their turn to `out`; tells of each unspooled one
    /// where it is.
    pub(crate) fn advance(
        &mut self,
        early: &mut Arena<Early>,
        pool: &mut Pool,
        mut unspooled: impl FnMut(Unspooled, usize, usize),
    ) {
        while let Some(&at) = self.slots.front()
            && at != UNKNOWN
        {
            self.slots.pop_front();
            self.first += 1;
            let reply = &mut early[at];
            self.early.remove(EarlySizes::of(&reply.buffer));
            let from = self.out.len();
            self.out.extend_from_slice(&reply.buffer);
            if let Some(of) = reply.unspooled.take() {
                unspooled(of, from, self.out.len());
            }
            pool.reuse_output(std::mem::take(&mut reply.buffer));
            early.give_back(at);
        }
    }
}
