//! What a packet costs the switch (`switchback lab datapath bench`), what each role takes of a
//! switch (`switchback lab experiment 14`), and what every part costs (`switchback lab calibrate`).
//!
//! The native build and the kernel's are driven with the same requests in the same run. Throughput
//! of whole racks is `switchback-bench`'s business.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calibrate;
mod cases;
pub mod cli;
mod kernel;
mod matrix;
mod native;
mod peers;
mod pinned;
mod report;
mod requests;
pub mod roles;

pub use calibrate::{CalibrateArgs, run as calibrate};
pub use cli::DatapathArgs;
