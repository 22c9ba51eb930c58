//! Tables that line up.

use std::fmt;

/// Rows of cells; the first column is flush left, all others flush right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these headings.
    pub fn new<'a>(head: impl IntoIterator<Item = &'a str>) -> Table {
        Table { rows: vec![head.into_iter().map(str::to_owned).collect()] }
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::from("  ");
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A whole number with its thousands apart.
pub fn grouped(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["scheme", "ops/s"]);
        table.row(["nocache".to_owned(), grouped(1_234_567.4)]);
        table.row(["µ".to_owned(), "9".to_owned()]);
        assert_eq!(table.to_string(), "  scheme       ops/s\n  nocache  1,234,567\n  µ                9\n");
    }

    #[test]
    fn numbers_are_grouped() {
        let grouped: Vec<_> = [0.0, 999.4, 1000.0, -12_345.0, 1e9, f64::INFINITY].map(grouped).into();
        assert_eq!(grouped, ["0", "999", "1,000", "-12,345", "1,000,000,000", "-"]);
        assert_eq!(percent(0.9312), "93.1 %");
    }
}
