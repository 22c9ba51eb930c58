//! The registry of `docs/understand/protocol.md`, section 9, and the code have the same numbers and
//! names.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::{BTreeMap, BTreeSet};
use switchback_datapath::layout;

/// What the first column of a table is called, and how its names begin in `datapath/layout.h`.
const TABLES: [(&str, &str); 8] = [
    ("operation", "op."),
    ("control", "op."),
    ("report", "op."),
    ("flag", "flag."),
    ("status", "status."),
    ("record flag", "record_flag."),
    ("record state", "constant.STATE_"),
    ("drop", "drop."),
];

struct Row {
    table: &'static str,
    name: String,
    number: u64,
    is_reserved: bool,
}

fn registry() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/understand/protocol.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("\n## 9. ").expect("section 9 of the protocol");
    let section = rest.split("\n## ").next().unwrap();
    let (mut rows, mut table) = (Vec::new(), None);
    for line in section.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", title, "name", ..] => {
                table =
                    Some(TABLES.iter().find(|(known, _)| *known == title).expect("a known table"));
            }
            ["", dashes, ..] if dashes.starts_with('-') => {}
            ["", number, name, meaning, ..] => {
                let (table, begin) = table.unwrap();
                let (name, number) = (format!("{begin}{name}"), number.parse().unwrap());
                rows.push(Row {
                    table,
                    name,
                    number,
                    is_reserved: meaning.starts_with("*reserved*"),
                });
            }
            _ => {}
        }
    }
    rows
}

fn code() -> BTreeMap<&'static str, u64> {
    let is_registered = |name: &str| TABLES.iter().any(|(_, begin)| name.starts_with(begin));
    layout().into_iter().filter(|(name, _)| is_registered(name)).collect()
}

#[test]
fn what_is_in_use_has_the_registered_number() {
    let rows = registry();
    let said: BTreeMap<&str, u64> =
        rows.iter().filter(|row| !row.is_reserved).map(|row| (&*row.name, row.number)).collect();
    assert_eq!(said, code());
}

#[test]
fn what_is_reserved_is_not_in_the_code() {
    let (rows, code) = (registry(), code());
    assert!(rows.iter().any(|row| row.is_reserved));
    for row in rows.iter().filter(|row| row.is_reserved) {
        assert!(!code.contains_key(&*row.name), "{} is in use", row.name);
    }
}

#[test]
fn no_number_and_no_name_is_given_twice() {
    let rows = registry();
    let begin = |row: &Row| TABLES.iter().find(|(table, _)| *table == row.table).unwrap().1;
    let numbers: BTreeSet<_> = rows.iter().map(|row| (begin(row), row.number)).collect();
    let names: BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
    assert_eq!((numbers.len(), names.len()), (rows.len(), rows.len()));
}

#[test]
fn operations_have_the_numbers_of_their_table() {
    for row in registry() {
        let is_right = match row.table {
            "operation" => (1..64).contains(&row.number),
            "control" => (64..80).contains(&row.number) || (88..=255).contains(&row.number),
            "report" => (80..88).contains(&row.number),
            "flag" => row.number.is_power_of_two() && row.number < 1 << 16,
            "record flag" | "record state" => row.number.is_power_of_two() && row.number < 1 << 8,
            _ => row.number < 1 << 8,
        };
        assert!(is_right, "{} {}", row.name, row.number);
    }
}
