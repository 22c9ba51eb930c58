//! The gateway: Redis clients on one side, a rack on the other.
//!
//! Each worker is one thread with its own connections, session and way to the switch. A request
//! that the cache answers, in a rack of the same process, goes from the socket's bytes to the
//! datapath and back on that thread's stack: no queue, no task, no allocation.
//! `docs/use` says what clients may expect.

mod arena;
mod batch;
mod command;
mod config;
mod connection;
mod execute;
mod failure;
mod gateway;
mod key_queues;
mod latency;
mod monitors;
mod operation;
mod programs;
mod replies;
pub mod resp;
mod retired;
mod running;
mod serve;
mod shared;
mod slowlog;
mod socket;
pub mod spool;
mod statistics;
mod strings;
mod tls;
mod worker;

pub use command::{Refused, Spec, VERBS, Verb};
pub use config::{Cluster, GatewayConfig, REPLY_BYTES_MAX, Transactions};
pub use failure::ErrorKind;
pub use gateway::{Gateway, GatewayError, WorkerLinks};
pub use spool::Durability;
pub use statistics::{Answerer, BUCKETS, Counter, GatewayStatistics, Histogram, WorkerStatistics};
pub use strings::rdb;
pub use tls::{Tls, TlsError, TlsFiles};
