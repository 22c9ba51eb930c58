//! Reading a trace: one pass, a line at a time, in memory that doesn't grow with the trace.

use super::columns::Columns;
use super::monitor;
use super::tally::{Access, Tally};
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

/// A longer line is refused: it has more than the longest value that Switchback stores, escaped.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Commands that aren't served are counted by name, up to this number of names.
const NAMES_MAX: usize = 32;
/// Bytes of a name, and of the text that an error quotes.
const SHOWN_BYTES_MAX: usize = 32;
/// The byte order mark that spreadsheets put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The contents of a trace.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) tally: Tally,
    /// Times of the first and the last operation, in seconds.
    pub(super) times: Option<(f64, f64)>,
    /// Commands that Switchback doesn't serve, by name.
    pub(super) unserved: BTreeMap<String, u64>,
    /// The file ended within a line, which was left out.
    pub(super) cut_off: bool,
}

impl Trace {
    pub(super) fn new(keys_max: usize) -> Trace {
        Trace {
            tally: Tally::new(keys_max),
            times: None,
            unserved: BTreeMap::new(),
            cut_off: false,
        }
    }

    pub(super) fn add(&mut self, access: Access<'_>) {
        self.tally.add(access);
    }

    pub(super) fn at(&mut self, seconds: f64) {
        let (first, last) = self.times.unwrap_or((seconds, seconds));
        self.times = Some((first.min(seconds), last.max(seconds)));
    }

    pub(super) fn not_served(&mut self, name: &[u8]) {
        let name = shown(name).to_lowercase();
        let known = self.unserved.contains_key(&name) || self.unserved.len() < NAMES_MAX;
        *self.unserved.entry(if known { name } else { "others".to_owned() }).or_default() += 1;
    }
}

/// Bytes of a trace for a terminal: shortened, and without control characters.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)])
        .escape_debug()
        .to_string();
    if bytes.len() > SHOWN_BYTES_MAX { text + "..." } else { text }
}

/// Reads a trace from a file, or from stdin (`-`).
pub(super) fn read(path: &Path, keys_max: usize) -> anyhow::Result<Trace> {
    if path == Path::new("-") {
        return read_from(&mut io::stdin().lock(), "stdin", keys_max);
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    read_from(&mut BufReader::with_capacity(1 << 20, file), &name, keys_max)
}

/// The format of a trace's lines.
enum Format {
    Monitor,
    Columns(Columns),
}

/// Reads a trace; errors give `name` and line.
pub(super) fn read_from(
    from: &mut dyn BufRead,
    name: &str,
    keys_max: usize,
) -> anyhow::Result<Trace> {
    let mut trace = Trace::new(keys_max);
    let mut format = None;
    let (mut line, mut number) = (Vec::new(), 0u64);
    loop {
        line.clear();
        let length = from
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("reading {name}"))?;
        number += 1;
        if length == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if length as u64 == LINE_BYTES_MAX {
            bail!(
                "{name}:{number}: a line of more than {} MiB; this is no trace",
                LINE_BYTES_MAX >> 20
            );
        } else if matches!(format, Some(Format::Monitor)) {
            // redis-cli was ended while it wrote a line.
            trace.cut_off = true;
            break;
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let text =
            if number == 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line) } else { &line };
        read_line(text, &mut format, &mut trace)
            .map_err(|mistake| anyhow::anyhow!("{name}:{number}: {mistake}"))?;
    }
    anyhow::ensure!(
        trace.tally.operations > 0,
        "{name}: no operation on a key in {} lines",
        number - 1
    );
    Ok(trace)
}

fn read_line(line: &[u8], format: &mut Option<Format>, trace: &mut Trace) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    match format {
        Some(Format::Monitor) => monitor::read_line(line, trace),
        Some(Format::Columns(columns)) => columns.read_line(line, trace),
        // The first answer of MONITOR, or a comment. After the header a line that begins with `#`
        // is no comment: a key may begin so.
        None if line == b"OK" || line.starts_with(b"#") => Ok(()),
        None if monitor::is_line(line) => {
            *format = Some(Format::Monitor);
            monitor::read_line(line, trace)
        }
        None => {
            let (columns, is_header) = Columns::of_first_line(line)?;
            let columns = format.insert(Format::Columns(columns));
            match columns {
                Format::Columns(columns) if !is_header => columns.read_line(line, trace),
                _ => Ok(()),
            }
        }
    }
}
