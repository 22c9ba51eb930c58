//! The real redis-server, to compare with.

use super::Client;
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
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(directory.path())
            .args(more)
            .stdout(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            eprintln!("SKIPPED: no redis-server to compare with");
            return None;
        };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "redis-server doesn't listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Redis { process, address, _directory: directory })
    }

    pub fn client(&self) -> Client {
        Client::to(self.address)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
