//! The real redis-server, to compare with.

use super::Client;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use switchback_net::free_addresses;

/// A redis-server of this test's own; it ends with this value.
pub struct Redis {
    process: Child,
    pub address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Redis {
    /// `None`, and the test is skipped, where there is no redis-server.
    pub fn start(more: &[&str]) -> Option<Redis> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            switchback_testing::skip("redis-server");
            return None;
        }
        // Another process may take a port between the look and the bind; then redis-server ends,
        // and another port is tried.
        let redis = (0..20).find_map(|_| Redis::listening_on(free_addresses().unwrap(), more));
        Some(redis.expect("redis-server doesn't listen"))
    }

    fn listening_on([address]: [SocketAddr; 1], more: &[&str]) -> Option<Redis> {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let process = Command::new("redis-server")
            .args([
                "--port",
                &address.port().to_string(),
                "--bind",
                &address.ip().to_string(),
                "--save",
                "",
                "--dir",
            ])
            .arg(directory.path())
            .arg("--logfile")
            .arg(&log)
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut redis = Redis { process, address, _directory: directory };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10)
            && redis.process.try_wait().unwrap().is_none()
        {
            // That the port answers isn't enough: it may be another server's, which ends any time.
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if said.contains("Ready to accept connections") {
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

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}
