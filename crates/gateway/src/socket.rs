//! A client's socket: bytes as they are, or TLS around them.

use crate::tls::PENDING_BYTES_MAX;
use mio::Registry;
use mio::net::TcpStream;
use rustls::ServerConnection;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind as Io, Read, Write};
use std::time::Duration;

/// What an idle connection over TLS takes beside its socket, by measurement.
const TLS_BYTES: usize = 8 << 10;

/// What Linux takes at most.
const KEEP_ALIVE_S_MAX: u64 = 32_767;

/// See the [module](self). It never waits.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

/// Has the system ask a peer that was silent for this time whether it is there, as Redis does:
/// three times, in thirds of that time. 0: never.
pub(crate) fn keep_alive(stream: &TcpStream, seconds: u64) -> io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    let seconds = seconds.min(KEEP_ALIVE_S_MAX);
    let [first, next] = [seconds, (seconds / 3).max(1)].map(Duration::from_secs);
    let asks = TcpKeepalive::new().with_time(first).with_interval(next).with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&asks)
}

/// What a read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// There was no more, so that the next bytes bring an event.
    pub(crate) was_all: bool,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, tls: Option<ServerConnection>) -> Socket {
        Socket { stream, tls: tls.map(Box::new) }
    }

    /// Bytes of memory that TLS takes.
    pub(crate) fn memory(&self) -> usize {
        match &self.tls {
            None => 0,
            Some(tls) if tls.wants_write() => TLS_BYTES + PENDING_BYTES_MAX,
            Some(_) => TLS_BYTES,
        }
    }

    /// Reads once; 0 bytes are the end. An error of the kind `InvalidData` is the peer's TLS.
    #[inline]
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<Received> {
        match &mut self.tls {
            None => {
                let bytes = self.stream.read(room)?;
                Ok(Received { bytes, was_all: bytes < room.len() })
            }
            Some(tls) => read(tls, &mut self.stream, room),
        }
    }

    /// Writes once; the socket may have less of it than TLS has taken.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write(bytes) };
        if tls.wants_write() {
            return Err(Io::WouldBlock.into());
        }
        let taken = tls.writer().write(bytes)?;
        flush(tls, &mut self.stream)?;
        Ok(taken)
    }

    /// Hands over what TLS has for the socket, as far as that takes it.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => flush(tls, &mut self.stream),
        }
    }

    /// Whether TLS has something that the socket didn't take.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Ends it: a peer that speaks TLS is told, if its socket takes that.
    pub(crate) fn close(mut self, registry: &Registry) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = flush(tls, &mut self.stream);
        }
        // It is closed next anyway.
        let _ = registry.deregister(&mut self.stream);
    }
}

fn read(
    tls: &mut ServerConnection,
    stream: &mut TcpStream,
    room: &mut [u8],
) -> io::Result<Received> {
    let mut counted = Counted { stream, was_all: false };
    loop {
        match tls.reader().read(room) {
            Ok(bytes) => {
                return Ok(Received { bytes, was_all: counted.was_all && bytes < room.len() });
            }
            // An end without goodbye is one, too: commands say themselves how long they are.
            Err(error) if error.kind() == Io::UnexpectedEof => {
                return Ok(Received { bytes: 0, was_all: true });
            }
            Err(error) if error.kind() == Io::WouldBlock => {}
            Err(error) => return Err(error),
        }
        tls.read_tls(&mut counted)?;
        let processed = tls.process_new_packets();
        // What handshakes ask for, or why this one ends.
        let flushed = flush(tls, counted.stream);
        processed.map_err(|error| io::Error::new(Io::InvalidData, error))?;
        flushed?;
    }
}

fn flush(tls: &mut ServerConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(stream) {
            Ok(0) => return Err(Io::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) if error.kind() == Io::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Notes whether a read has emptied the socket.
struct Counted<'a> {
    stream: &'a mut TcpStream,
    was_all: bool,
}

impl Read for Counted<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(room)?;
        self.was_all = bytes < room.len();
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_after_the_time_that_is_set() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let asks = |stream: &TcpStream| {
            let socket = SockRef::from(stream);
            let [first, next] = [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()];
            let [first, next] = [first, next].map(|time| time.unwrap().as_secs());
            (socket.keepalive().unwrap(), first, next, socket.tcp_keepalive_retries().unwrap())
        };
        keep_alive(&stream, 0).unwrap();
        assert!(!asks(&stream).0);
        for (seconds, first, next) in [(300, 300, 100), (2, 2, 1), (1 << 31, 32_767, 10_922)] {
            keep_alive(&stream, seconds).unwrap();
            assert_eq!(asks(&stream), (true, first, next, 3));
        }
    }
}
