//! Comma-separated values (RFC 4180), one row a run.

use std::fmt::Write;

/// A file of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Csv {
    columns: Vec<&'static str>,
    text: String,
}

impl Csv {
    /// A file without rows.
    pub(crate) fn new(columns: &[&'static str]) -> Csv {
        Csv { columns: columns.to_vec(), text: columns.join(",") + "\n" }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, fields: &[String]) {
        assert_eq!(fields.len(), self.columns.len());
        for (at, field) in fields.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let written = if field.contains([',', '"', '\n']) {
                write!(self.text, "{comma}\"{}\"", field.replace('"', "\"\""))
            } else {
                write!(self.text, "{comma}{field}")
            };
            written.expect("a string takes everything");
        }
        self.text.push('\n');
    }

    /// The file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.row(&["1,5".to_owned(), "say \"x\"".to_owned()]);
        assert_eq!(csv.text(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }
}
