//! Segments: `w<worker>-<number>.spool`, a header and records.

use crate::record;
use switchback_core::client::Preservation;

/// What every segment begins with: a magic and the format's version.
pub const HEADER: [u8; 8] = *b"SWSPOOL\x01";
const EXTENSION: &str = "spool";
/// The last number that has a segment; a file with a higher one is none of ours.
const NUMBER_MAX: u64 = 999_999_999_999;

/// The name of a worker's segment.
pub fn segment_name(worker: usize, number: u64) -> String {
    format!("w{worker}-{number:012}.{EXTENSION}")
}

/// The worker and the number of a segment, if it is one's name.
pub fn parse_name(name: &str) -> Option<(usize, u64)> {
    let (worker, number) =
        name.strip_suffix(EXTENSION)?.strip_suffix('.')?.strip_prefix('w')?.split_once('-')?;
    let number = number.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
    Some((worker.parse().ok()?, number))
}

/// The segments among these files of the workers for which `wanted` holds, oldest first: name,
/// worker, number.
pub fn segments(names: Vec<String>, wanted: impl Fn(usize) -> bool) -> Vec<(String, usize, u64)> {
    let named = |name: String| parse_name(&name).map(|(worker, number)| (name, worker, number));
    let mut found: Vec<_> =
        names.into_iter().filter_map(named).filter(|(_, worker, _)| wanted(*worker)).collect();
    found.sort_by(|(a, _, first), (b, _, second)| (first, a).cmp(&(second, b)));
    found
}

/// What loading a segment brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Whole records.
    pub records: u64,
    /// Length of the undamaged part.
    pub bytes: u64,
    /// What follows it: the tail of a write that a crash cut off, or damage.
    pub torn_bytes: u64,
    /// The newest generation of a record.
    pub newest_generation: u32,
}

/// Why a file is not read as a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another version of the format wrote it, this one.
    Version(u8),
    /// It doesn't begin like a segment.
    Foreign,
}

/// Reads a segment's records into `preserved`.
///
/// # Errors
/// It is none, or of another version.
pub fn load(bytes: &[u8], preserved: &mut Preservation) -> Result<Loaded, Refused> {
    let mut loaded = Loaded::default();
    match bytes.first_chunk::<8>() {
        Some(&HEADER) => {}
        _ if is_torn_header(bytes) => {
            return Ok(Loaded { torn_bytes: bytes.len() as u64, ..loaded });
        }
        Some(header) if header[..7] == HEADER[..7] => return Err(Refused::Version(header[7])),
        _ => return Err(Refused::Foreign),
    }
    let mut at = HEADER.len();
    while let Some((spooled, length)) = record::decode(&bytes[at..]) {
        spooled.keep(preserved);
        loaded.records += 1;
        loaded.newest_generation = loaded.newest_generation.max(spooled.generation);
        at += length;
    }
    loaded.bytes = at as u64;
    loaded.torn_bytes = (bytes.len() - at) as u64;
    Ok(loaded)
}

/// Whether the machine stopped while the file was created: of the header a part was written, and
/// nothing, or zeros, after it.
fn is_torn_header(bytes: &[u8]) -> bool {
    let written = bytes.iter().zip(&HEADER).take_while(|(byte, wanted)| byte == wanted).count();
    written < HEADER.len() && bytes[written..].iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_a_crash_tore_is_told_from_other_files() {
        let load = |bytes: &[u8]| load(bytes, &mut Preservation::default());
        let torn = |bytes: u64| Ok(Loaded { torn_bytes: bytes, ..Loaded::default() });
        assert_eq!((load(b""), load(b"SWSP"), load(b"\0\0")), (torn(0), torn(4), torn(2)));
        assert_eq!((load(b"SWSP\0\0\0\0"), load(&[0; 20])), (torn(8), torn(20)));
        assert_eq!(load(&HEADER), Ok(Loaded { bytes: 8, ..Loaded::default() }));
        assert_eq!(load(b"SWSPOOL\x02"), Err(Refused::Version(2)));
        assert_eq!(
            (load(b"some text"), load(b"SWSP\0\0\0\0x")),
            (Err(Refused::Foreign), Err(Refused::Foreign))
        );
    }

    #[test]
    fn segments_are_found_by_name_oldest_first() {
        let names = [
            "w1-000000000002.spool",
            "w0-000000000010.spool",
            "w0-000000000009.spool",
            "lock",
            "w0-1.tmp",
        ];
        let names = names.map(str::to_owned).to_vec();
        let found = segments(names, |worker| worker == 0);
        assert_eq!(found.iter().map(|(.., number)| *number).collect::<Vec<_>>(), [9, 10]);
        assert_eq!(parse_name(&segment_name(3, 7)), Some((3, 7)));
        assert_eq!(parse_name(&format!("w0-{}.spool", u64::MAX)), None);
    }
}
