//! Asks a process over HTTP.

use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long to wait for what is to become true.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> T {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}: {body}");
    serde_json::from_str(body).unwrap()
}

/// Asks until it holds.
pub(crate) fn until<T: DeserializeOwned + Debug>(
    address: SocketAddr,
    path: &str,
    mut holds: impl FnMut(&T) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        let told = get(address, path);
        if holds(&told) {
            return told;
        }
        assert!(start.elapsed() < WAIT_MAX, "{path}: {told:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
