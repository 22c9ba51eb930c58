//! What people see: lines, and text from elsewhere made safe.

use anyhow::Context as _;
use std::io::Write;

pub(crate) use switchback_terminal::{
    Align, Paint, Screen, Style, Table, bytes, error, grouped, note, seconds,
};

/// A line on stdout, of what is there to print it.
pub(crate) fn line(line: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("writing to stdout")
}

/// Text from elsewhere, in one line of bearable length and never an escape sequence of the
/// terminal.
pub(crate) fn printable(text: &str) -> String {
    let safe =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let text: String = text.trim_end().chars().map(safe).collect();
    match text.chars().count() {
        0..=100 => text,
        _ => text.chars().take(97).collect::<String>() + "...",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_passes() {
        assert_eq!(printable("\x1b[2Jkey\n"), "\\u{1b}[2Jkey");
    }
}
