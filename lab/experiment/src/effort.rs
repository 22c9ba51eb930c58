//! What a call of the program cost: requests simulated, processor time, memory.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests of all worlds that have ended.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Counts the requests of a world that has ended.
pub(crate) fn simulated(requests: u64) {
    REQUESTS.fetch_add(requests, Ordering::Relaxed);
}

/// A line with requests simulated, times and memory.
pub(crate) fn spent(wall: Duration) -> String {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let requests = REQUESTS.load(Ordering::Relaxed) as f64;
    let memory = peak_mb().map_or(String::new(), |mb| format!(", {mb} MB of memory at most"));
    format!(
        "{:.1} million requests simulated in {:.0} s, {cpu_s:.0} s of processor time: {:.2} \
         million a second and processor{memory}",
        requests / 1e6,
        wall.as_secs_f64(),
        requests / 1e6 / cpu_s,
    )
}

/// The most memory that the process had, in MB; `None` where the kernel doesn't say.
fn peak_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kb: u64 = line.trim().trim_end_matches("kB").trim_end().parse().ok()?;
    Some(kb / 1024)
}
