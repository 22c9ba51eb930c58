//! Tables: for the terminal, Markdown and HTML.

use std::fmt::Write;

/// Rows under a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(title: impl Into<String>, head: &[&str]) -> Table {
        Table { title: title.into(), head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// For a terminal: columns in line, the first to the left.
    pub(crate) fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| lines().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..self.head.len()).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for row in lines() {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text += &format!("  {}\n", line.trim_end());
        }
        text
    }

    /// For Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("| --- |{}\n", " ---: |".repeat(self.head.len() - 1));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}{rule}{rows}", self.title, line(&self.head))
    }

    /// For HTML.
    pub(crate) fn html(&self) -> String {
        let line = |cells: &[String], tag: &str| {
            let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let mut html = format!("<table>\n<caption>{}</caption>\n", escape(&self.title));
        html += &line(&self.head, "th");
        for row in &self.rows {
            let _ = write!(html, "{}", line(row, "td"));
        }
        html + "</table>\n"
    }
}

/// Text as HTML shows it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_everywhere() {
        let mut table = Table::new("Title", &["name", "n"]);
        table.row(vec!["a<b".to_owned(), "12".to_owned()]);
        assert_eq!(table.text(), "Title\n  name   n\n  a<b   12\n");
        assert_eq!(table.markdown(), "Title\n\n| name | n |\n| --- | ---: |\n| a<b | 12 |\n");
        assert!(table.html().contains("<td>a&lt;b</td>"));
    }
}
