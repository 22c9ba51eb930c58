//! Traces in columns: CSV with a header line that names the columns, or Twitter's open traces,
//! which have no header.

use super::tally::Access;
use super::trace::{Trace, shown};

const WANTED: &str = "a header line that names `key`, `op` and perhaps `value_bytes`, `key_bytes`, \
                      `time`, separated by commas; or lines as of `redis-cli MONITOR`; or of \
                      Twitter's cache-trace";

/// Positions of the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    key: usize,
    op: usize,
    value_bytes: Option<usize>,
    key_bytes: Option<usize>,
    time: Option<usize>,
}

/// `timestamp,key,key size,value size,client,operation,TTL` of
/// https://github.com/twitter/cache-trace.
const TWITTER: Columns =
    Columns { time: Some(0), key: 1, key_bytes: Some(2), value_bytes: Some(3), op: 5 };
const TWITTER_COLUMNS: usize = 7;

impl Columns {
    /// The columns by the first line, and whether that is a header.
    pub(super) fn of_first_line(line: &[u8]) -> Result<(Columns, bool), String> {
        let fields = fields(line)?;
        if fields.len() == TWITTER_COLUMNS && operation(&fields[TWITTER.op]).is_some() {
            return Ok((TWITTER, false));
        }
        let names: Vec<String> = fields
            .iter()
            .map(|field| String::from_utf8_lossy(field).trim().to_ascii_lowercase())
            .collect();
        let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        let key = find(&["key"]).ok_or(format!("no column `key`; a trace has {WANTED}"))?;
        let op = find(&["op", "operation", "command", "verb"])
            .ok_or(format!("no column `op`; a trace has {WANTED}"))?;
        let columns = Columns {
            key,
            op,
            value_bytes: find(&["value_bytes", "value_size", "size"]),
            key_bytes: find(&["key_bytes", "key_size"]),
            time: find(&["time", "timestamp", "seconds"]),
        };
        Ok((columns, true))
    }

    /// Counts the operation of a line.
    pub(super) fn read_line(&self, line: &[u8], trace: &mut Trace) -> Result<(), String> {
        let fields = fields(line)?;
        let field = |at: usize, name: &str| {
            fields.get(at).ok_or_else(|| {
                format!("{} fields, and `{name}` is the one after", at.min(fields.len()))
            })
        };
        let number = |at: Option<usize>, name: &str| -> Result<Option<f64>, String> {
            let Some(at) = at else { return Ok(None) };
            let text = field(at, name)?.trim_ascii();
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            match number.filter(|number| number.is_finite() && *number >= 0.0) {
                None if !text.is_empty() => {
                    Err(format!("`{name}` is `{}`, which is no number from 0 on", shown(text)))
                }
                number => Ok(number),
            }
        };
        let (key, op) = (field(self.key, "key")?, field(self.op, "op")?);
        if key.is_empty() {
            return Err("an empty key".to_owned());
        }
        let Some((reads, writes)) = operation(op) else {
            return Err(format!(
                "`{}` is no operation: read, write (get, set, update, insert, delete, add, cas) or rmw (incr, append)",
                shown(op)
            ));
        };
        let value_bytes = number(self.value_bytes, "value_bytes")?.map(|bytes| bytes as u64);
        let key_bytes =
            number(self.key_bytes, "key_bytes")?.map_or(key.len(), |bytes| bytes as usize);
        if let Some(seconds) = number(self.time, "time")? {
            trace.at(seconds);
        }
        // A read that found no record has length 0, which is no value's.
        let value_bytes = value_bytes.filter(|&bytes| bytes > 0 || writes > 0);
        trace.add(Access { key, key_bytes, reads, writes, value_bytes });
        Ok(())
    }
}

/// Reads and writes of an operation. Each line is one request, but for operations that need the old
/// value.
fn operation(name: &[u8]) -> Option<(u8, u8)> {
    let name = std::str::from_utf8(name).ok()?.trim().to_ascii_lowercase();
    match name.as_str() {
        "get" | "gets" | "read" | "r" => Some((1, 0)),
        "set" | "put" | "write" | "w" | "update" | "insert" | "replace" | "delete" | "del"
        | "add" | "cas" => Some((0, 1)),
        "incr" | "decr" | "append" | "prepend" | "rmw" => Some((1, 1)),
        _ => None,
    }
}

/// The fields of a line; those in quotes may have commas, and quotes twice.
fn fields(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut fields = vec![Vec::new()];
    let mut bytes = line.iter().copied().peekable();
    let mut quoted = false;
    while let Some(byte) = bytes.next() {
        let field = fields.last_mut().expect("there is always one");
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' if quoted => quoted = false,
            b'"' if field.is_empty() => quoted = true,
            b',' if !quoted => fields.push(Vec::new()),
            byte => field.push(byte),
        }
    }
    if quoted { Err("a quote that isn't closed".to_owned()) } else { Ok(fields) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_columns() {
        let (columns, header) = Columns::of_first_line(b"Time,Operation,\"key\",extra").unwrap();
        let expected = Columns { key: 2, op: 1, value_bytes: None, key_bytes: None, time: Some(0) };
        assert_eq!((columns, header), (expected, true));
        for (line, reason) in
            [(&b"a,b"[..], "`key`"), (b"key,value", "`op`"), (b"\"key,op", "closed")]
        {
            let error = Columns::of_first_line(line).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn twitters_traces_are_read_as_they_are() {
        let lines: [&[u8]; 3] = [
            b"0,q:q:1:8WTfjZU14ee,17,213,4,get,0",
            b"1,q:q:1:8WTfjZU14ee,17,0,4,get,0",
            b"2,yDq,27,42,7,add,60",
        ];
        let (columns, header) = Columns::of_first_line(lines[0]).unwrap();
        assert_eq!((columns, header), (TWITTER, false));
        let mut trace = Trace::new(10);
        for line in lines {
            columns.read_line(line, &mut trace).unwrap();
        }
        assert_eq!((trace.tally.reads, trace.tally.writes, trace.times), (2, 1, Some((0.0, 2.0))));
        let sizes: Vec<_> =
            trace.tally.hottest_first().iter().map(|(_, count)| count.value_bytes).collect();
        assert_eq!(sizes, [Some(213), Some(42)]);
    }

    #[test]
    fn malformed_lines_are_refused() {
        let (columns, _) = Columns::of_first_line(b"key,op,value_bytes").unwrap();
        for (line, reason) in [
            ("a", "`op`"),
            ("a,scan,1", "`scan` is no operation"),
            (",get,1", "empty key"),
            ("a,get,x", "no number"),
            ("a,get,-1", "no number"),
            ("\"a,get,1", "isn't closed"),
        ] {
            let error = columns.read_line(line.as_bytes(), &mut Trace::new(1)).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        let mut trace = Trace::new(10);
        for line in ["\"a,\"\"b\",SET,", "x,r,3"] {
            columns.read_line(line.as_bytes(), &mut trace).unwrap();
        }
        assert_eq!((trace.tally.reads, trace.tally.writes), (1, 1));
    }
}
