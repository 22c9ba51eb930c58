//! Comma-separated values (RFC 4180), one row for each run.

/// A file of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Csv {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row, by the names of its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CsvRow<'a> {
    columns: &'a [String],
    fields: &'a [String],
}

impl<'a> CsvRow<'a> {
    /// The field of a column, if there is such a column.
    pub(crate) fn text(&self, column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|name| *name == column)?;
        Some(&self.fields[at])
    }

    /// The same, if it is a number.
    pub(crate) fn number(&self, column: &str) -> Option<f64> {
        self.text(column)?.parse().ok()
    }
}

impl Csv {
    /// A file without rows.
    pub(crate) fn new(columns: &[impl AsRef<str>]) -> Csv {
        Csv {
            columns: columns.iter().map(|name| name.as_ref().to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, fields: &[String]) {
        assert_eq!(fields.len(), self.columns.len());
        self.rows.push(fields.to_vec());
    }

    /// The rows.
    pub(crate) fn records(&self) -> impl Iterator<Item = CsvRow<'_>> {
        self.rows.iter().map(|fields| CsvRow { columns: &self.columns, fields })
    }

    /// The file.
    pub(crate) fn text(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for line in std::iter::once(&self.columns).chain(&self.rows) {
            writer.write_record(line).expect("every row has a field for each column");
        }
        let bytes = writer.into_inner().expect("memory takes everything");
        String::from_utf8(bytes).expect("fields are UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.row(&["1,5".to_owned(), "say \"x\"".to_owned()]);
        let record = csv.records().next().unwrap();
        assert_eq!(
            (record.text("b"), record.number("b"), record.text("c")),
            (Some("say \"x\""), None, None)
        );
        assert_eq!(csv.text(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }
}
