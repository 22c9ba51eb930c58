//! Tables: for the terminal, Markdown and HTML.

use std::fmt::Write;
use switchback_terminal::Align;

/// Rows under a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Columns of words, which are aligned to the left like the first one.
    words: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(title: impl Into<String>, head: &[impl AsRef<str>]) -> Table {
        Table {
            title: title.into(),
            head: head.iter().map(|name| name.as_ref().to_owned()).collect(),
            rows: Vec::new(),
            words: vec![0],
        }
    }

    /// Aligns these columns to the left as well, since they have words.
    pub(crate) fn with_words(mut self, columns: &[usize]) -> Table {
        self.words.extend(columns);
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// The table for a terminal, in aligned columns.
    pub(crate) fn text(&self) -> String {
        let side = |column| if self.words.contains(&column) { Align::Left } else { Align::Right };
        let columns = self.head.iter().enumerate().map(|(column, name)| (name, side(column)));
        let mut table = switchback_terminal::Table::new(columns);
        self.rows.iter().for_each(|row| table.row(row.iter().cloned()));
        format!("{}\n{table}", self.title)
    }

    /// The table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let shown = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
        let line = |cells: &[String]| {
            format!("| {} |\n", cells.iter().map(shown).collect::<Vec<_>>().join(" | "))
        };
        let side = |column: usize| if self.words.contains(&column) { " --- |" } else { " ---: |" };
        let rule = format!("|{}\n", (0..self.head.len()).map(side).collect::<String>());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}{rule}{rows}", self.title, line(&self.head))
    }

    /// The table as HTML.
    pub(crate) fn html(&self) -> String {
        let line = |cells: &[String], tag: &str| {
            let cell = |(column, cell): (usize, &String)| {
                let class = if self.words.contains(&column) { " class=words" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", escape(cell))
            };
            format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
        };
        let mut html = format!("<table>\n<caption>{}</caption>\n", escape(&self.title));
        html += &line(&self.head, "th");
        for row in &self.rows {
            let _ = write!(html, "{}", line(row, "td"));
        }
        html + "</table>\n"
    }
}

/// Text with HTML's special characters escaped.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_same_cells_in_all_formats() {
        let mut table = Table::new("Title", &["name", "n", "why"]).with_words(&[2]);
        table.row(vec!["a<b".to_owned(), "12".to_owned(), "because".to_owned()]);
        assert_eq!(table.text(), "Title\n  name   n  why\n  a<b   12  because\n");
        assert_eq!(
            table.markdown(),
            "Title\n\n| name | n | why |\n| --- | ---: | --- |\n| a<b | 12 | because |\n"
        );
        assert!(table.html().contains("<td class=words>a&lt;b</td><td>12</td>"));
        // Text from a profile's file doesn't end a cell.
        table.row(vec!["a|b".to_owned(), "1".to_owned(), "two\nlines".to_owned()]);
        assert!(table.markdown().ends_with("| a\\|b | 1 | two lines |\n"), "{}", table.markdown());
    }
}
