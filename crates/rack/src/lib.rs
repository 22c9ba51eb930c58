//! A rack assembled: its configuration, its parts in one process or one process each, metrics and
//! administration.

pub mod admin;
pub mod assembly;
pub mod backup;
pub mod blueprint;
pub mod config;
pub mod descriptors;
pub mod embedded;
pub mod gateway;
pub mod kernel;
pub mod machine;
pub mod metrics;
pub mod observer;
pub mod parts;
pub mod supervise;
pub mod threads;
pub mod wiring;
