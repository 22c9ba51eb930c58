//! The simulator: a whole rack in one deterministic event loop, which tries to break every promise.
//!
//! The parts are the production code: the native datapath, and the state machines of
//! `switchback-core`. Around them is a [`world`]: clocks that drift, a data plane that loses,
//! duplicates and reorders, a control plane whose connections break, disks that forget what was not
//! synced, and a nemesis that crashes and pauses parts and cuts links. One 64-bit seed draws
//! everything ([`plan`]), so a seed and a binary are a whole run, byte for byte ([`trace`]). What
//! clients asked and were told is the [`history`]; [`check`] says whether it can be true. An
//! [`ablation`] leaves a mechanism out, to prove that the checks would notice.

pub mod ablation;
pub mod check;
pub mod cli;
pub mod clock;
mod control;
mod disk;
mod event;
pub mod focus;
pub mod history;
mod network;
pub mod parts;
pub mod plan;
mod random;
pub mod run;
pub mod sweep;
pub mod trace;
mod workload;
pub mod world;
