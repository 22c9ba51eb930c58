//! The controller's disk: its files, each replaced whole.

use super::{Effort, sample, timed};
use std::path::Path;
use switchback_calibration::Controller;
use switchback_core::controller::StoreFile;
use switchback_core::topology::ChainId;
use switchback_rack::threads::ControllerFiles;

/// A sync takes milliseconds: this many tell enough.
const FILES: usize = 40;
const LARGE_FILES: usize = 7;

pub(super) fn measure(effort: &Effort, scratch: &Path) -> anyhow::Result<Controller> {
    let (files, _) = ControllerFiles::open(&scratch.join("controller"))?;
    let store = |content: &[u8]| {
        timed(|| Ok(files.store(StoreFile::Snapshot(ChainId::default()), content)?))
    };
    let empty =
        (0..FILES.min(effort.rounds)).map(|_| store(&[])).collect::<anyhow::Result<Vec<_>>>()?;
    let file_ms = sample(empty.iter().map(|took| took.as_secs_f64() * 1e3).collect());
    let content: Vec<u8> = (0..effort.file_bytes as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut rates = Vec::new();
    for _ in 0..LARGE_FILES {
        let took_s = store(&content)?.as_secs_f64();
        // What an empty file takes is no part of the rate, unless there is no telling them apart.
        let bytes_s = (took_s - file_ms.median / 1e3).max(took_s / 10.0);
        rates.push(content.len() as f64 / 1e6 / bytes_s);
    }
    Ok(Controller { file_ms, mb_per_s: sample(rates) })
}
