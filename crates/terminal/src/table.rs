//! Tables without borders.

use crate::{Paint, Style};
use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use std::fmt;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The names say it.
pub enum Align {
    Left,
    Right,
}

/// A column of [`Table::of`].
pub type Column<'a, T> = (&'a str, Align, &'a dyn Fn(&T) -> String);

/// Rows under headings, columns in line. Shown with two spaces before each line, as below a title.
#[derive(Clone, Debug)]
pub struct Table {
    table: comfy_table::Table,
    columns: usize,
}

impl Table {
    /// Columns with these headings.
    pub fn new(columns: impl IntoIterator<Item = (impl ToString, Align)>) -> Table {
        let (headings, sides): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(headings);
        for (column, side) in table.column_iter_mut().zip(&sides) {
            column.set_padding((0, 2)).set_cell_alignment(match side {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        Table { table, columns: sides.len() }
    }

    /// Columns of numbers beside a first one of words.
    pub fn of_numbers(headings: impl IntoIterator<Item = impl ToString>) -> Table {
        let side = |column| if column == 0 { Align::Left } else { Align::Right };
        Table::new(
            headings.into_iter().enumerate().map(|(column, heading)| (heading, side(column))),
        )
    }

    /// A row for each item. Columns have a heading, a side, and what an item's cell says.
    pub fn of<T>(items: &[T], columns: &[Column<'_, T>]) -> Table {
        let mut table = Table::new(columns.iter().map(|&(heading, side, _)| (heading, side)));
        for item in items {
            table.row(columns.iter().map(|(_, _, cell)| cell(item)));
        }
        table
    }

    /// One more row, with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns, "a cell for each column");
        self.table.add_row(cells);
    }

    /// All lines from the left edge, with emphasized headings.
    pub fn painted(&self, paint: Paint) -> String {
        let mut lines = self.lines();
        let headings = lines.next().map(|line| paint.text(Style::Bold, &line) + "\n");
        headings.into_iter().chain(lines.map(|line| line + "\n")).collect()
    }

    /// Headings first, without spaces at their ends.
    fn lines(&self) -> impl Iterator<Item = String> {
        self.table.lines().map(|line| line.trim_end().to_owned())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{}", format!("  {line}").trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_have_no_trailing_spaces() {
        let mut table =
            Table::new([("node", Align::Left), ("ops", Align::Right), ("state", Align::Left)]);
        table.row(["0".into(), "12".into(), "up".into()]);
        table.row(["node-with-name".into(), "1,234".into(), String::new()]);
        let text = table.painted(Paint::none());
        assert_eq!(
            text,
            "node              ops  state\n0                  12  up\nnode-with-name  1,234\n"
        );
        let headings = "\x1b[1mnode              ops  state\x1b[0m\n";
        assert!(table.painted(Paint(true)).starts_with(headings));
    }

    #[test]
    fn numbers_line_up_below_a_title() {
        let mut table = Table::of_numbers(["scheme", "ops/s", ""]);
        table.row(["nocache".to_owned(), "1,234,567".to_owned(), String::new()]);
        table.row(["µ".to_owned(), "9".to_owned(), String::new()]);
        table.row(["  of it ± ".to_owned(), String::new(), String::new()]);
        let text = "  scheme          ops/s\n  nocache     1,234,567\n  µ                   9\n    of it ±\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn no_width_of_a_terminal_breaks_a_line() {
        let mut table = Table::of_numbers(["", "words"]);
        table.row(["x".repeat(300), "one two ".repeat(100)]);
        assert_eq!(table.to_string().lines().count(), 2);
        assert_eq!(Table::of_numbers(["alone"]).to_string(), "  alone\n");
    }
}
