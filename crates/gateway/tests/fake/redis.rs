//! The real redis-server, to compare with.

use super::Client;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A redis-server of this test's own; it ends with this value.
pub struct Redis {
    process: Child,
    pub address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Redis {
    /// `None`, and a line that says so, where there is no redis-server.
    pub fn start(more: &[&str]) -> Option<Redis> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: no redis-server to compare with");
            return None;
        }
        // Somebody may take a port between the look and the bind; then redis-server ends, and another port is tried.
        let redis = (0..20).find_map(|_| Redis::listening_on(free_port(), more));
        Some(redis.expect("redis-server doesn't listen"))
    }

    fn listening_on(port: u16, more: &[&str]) -> Option<Redis> {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(directory.path())
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut redis = Redis { process, address: SocketAddr::from(([127, 0, 0, 1], port)), _directory: directory };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) && redis.process.try_wait().unwrap().is_none() {
            if TcpStream::connect(redis.address).is_ok() {
                return Some(redis);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    pub fn client(&self) -> Client {
        Client::to(self.address)
    }
}

/// A port that nobody listens on, from outside of the range that outgoing connections take theirs from: such a connection
/// would otherwise take it first, or even reach itself.
fn free_port() -> u16 {
    let random = || RandomState::new().build_hasher().finish();
    let mut ports = std::iter::repeat_with(|| 10_000 + (random() % 22_000) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}
