//! Addresses for parts of a rack that are about to start on this machine, as benchmarks and tests
//! need them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Attempts, each with another host and other ports.
const ATTEMPTS: u32 = 100;

/// `COUNT` addresses on which no socket listens, TCP or UDP, all on one random loopback host and
/// outside of the ports that a system usually deals out: a port of 127.0.0.1 may be given to any
/// socket that asks for none in particular, before its part binds it.
///
/// # Errors
/// A machine on which no address can be bound.
pub fn free_addresses<const COUNT: usize>() -> io::Result<[SocketAddr; COUNT]> {
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    fill_with_free(&mut addresses).map(|()| addresses)
}

/// The same for a number that is known late.
///
/// # Errors
/// As of [`free_addresses`].
pub fn fill_with_free(addresses: &mut [SocketAddr]) -> io::Result<()> {
    let mut refused = io::Error::from(ErrorKind::AddrInUse);
    for _ in 0..ATTEMPTS {
        let random = RandomState::new().build_hasher().finish().to_le_bytes();
        let host = Ipv4Addr::new(127, 64 + random[0] % 64, random[1], random[2]);
        let first = 10_000 + u16::from_le_bytes([random[3], random[4]]) % 20_000;
        for (address, port) in addresses.iter_mut().zip(first..32_000) {
            *address = (host, port).into();
        }
        match addresses.iter().try_for_each(is_free) {
            Ok(()) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn is_free(address: &SocketAddr) -> io::Result<()> {
    UdpSocket::bind(address)?;
    TcpListener::bind(address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn addresses_are_free_and_differ() {
        let addresses = free_addresses::<300>().unwrap();
        assert_eq!(HashSet::from(addresses).len(), addresses.len());
        let listeners: Vec<_> = addresses.iter().map(TcpListener::bind).collect();
        assert!(listeners.iter().all(Result::is_ok));
        assert!(is_free(&addresses[0]).is_err(), "taken, so not free");
        assert!(free_addresses::<5>().unwrap().iter().all(|address| address.ip().is_loopback()));
    }
}
