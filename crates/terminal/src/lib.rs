//! What the programs have in common at a terminal: logs, colours, tables, numbers, errors, and an
//! end with the reader of their output.

pub mod log;
mod numbers;
mod scheme;
mod screen;
mod table;

pub use numbers::{bytes, count, grouped, seconds};
pub use scheme::scheme_parser;
pub use screen::Screen;
pub use table::{Align, Column, Table};

use signal_hook::consts::{SIGPIPE, SIGXFSZ};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An emphasis, if the stream is a terminal and NO_COLOR isn't set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The names say it.
pub enum Style {
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

/// Whether a stream takes colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paint(bool);

impl Paint {
    /// Of stdout.
    pub fn stdout() -> Paint {
        Paint(wanted() && std::io::stdout().is_terminal())
    }

    /// Of stderr.
    pub fn stderr() -> Paint {
        Paint(wanted() && std::io::stderr().is_terminal())
    }

    /// Of a stream that takes none.
    pub fn none() -> Paint {
        Paint(false)
    }

    /// The text with this emphasis.
    pub fn text(self, style: Style, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Reports a failure on stderr.
pub fn error(message: &str) {
    note(&format!("{} {message}", Paint::stderr().text(Style::Red, "error:")));
}

/// Writes a line to stderr; a closed stderr is ignored.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Lets SIGPIPE end the process when the reader of its output has gone (`| head`), as it ends other
/// programs; Rust ignores the signal. For commands that only print: a server goes on without a
/// reader.
pub fn end_with_the_reader() {
    if let Err(error) =
        signal_hook::flag::register_conditional_default(SIGPIPE, Arc::new(AtomicBool::new(true)))
    {
        tracing::warn!(%error, "SIGPIPE can't be handled");
    }
}

/// Lets a write fail that would make a file larger than the process may have (`ulimit -f`), as it
/// fails on a full disk; otherwise SIGXFSZ ends the process.
pub fn let_large_files_fail() {
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        tracing::warn!(%error, "SIGXFSZ can't be handled");
    }
}
