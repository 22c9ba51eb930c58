//! The files that experiments write: CSV, figures, the report.

pub(crate) mod csv;
mod draw;
pub(crate) mod figure;
pub(crate) mod report;
pub(crate) mod table;

pub(crate) use csv::{Csv, CsvRow};
pub(crate) use figure::{Figure, Series, Style, Ticks};
pub(crate) use report::Report;
pub(crate) use switchback_calibration::COMMIT;
pub(crate) use table::Table;
