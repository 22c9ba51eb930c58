//! What experiments leave behind: CSV files, figures, the report.

pub(crate) mod csv;
mod draw;
pub(crate) mod figure;
pub(crate) mod report;
pub(crate) mod table;

pub(crate) use csv::{Csv, Record};
pub(crate) use figure::{Figure, Series, Style, Ticks};
pub(crate) use report::Report;
pub(crate) use table::Table;

/// The commit that this was built from.
pub const COMMIT: &str = env!("SWITCHBACK_COMMIT");
