//! Tests of the gateway from outside, by connections to it.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod clients;
mod commands;
mod commands_page;
mod differential;
mod fake;
mod hostile;
mod hot;
mod logs;
mod monitor;
mod scripts;
mod spool;
mod tls;
mod tools;
mod transactions;
