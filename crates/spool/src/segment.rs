//! Segments: `w<worker>-<number>.spool`, a header and records.

use crate::record;
use std::io::{self, BufRead, BufReader, Read};
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
    /// Something follows it: the tail of a write that a crash cut off, or damage.
    pub is_torn: bool,
    /// The newest generation of a record.
    pub newest_generation: u32,
}

/// Why a segment can't be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// Another version of the format wrote it, this one.
    Version(u8),
    /// It doesn't begin like a segment.
    Foreign,
    /// The disk failed.
    Io(io::Error),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> LoadError {
        LoadError::Io(error)
    }
}

/// Reads a segment's records into `preserved`, up to the first that is damaged. Of a file of any
/// length one record at a time is in memory.
///
/// # Errors
/// It is none, or of another version, or can't be read.
pub fn load(file: impl Read, preserved: &mut Preservation) -> Result<Loaded, LoadError> {
    let mut file = BufReader::new(file);
    let mut loaded = Loaded::default();
    let mut bytes = Vec::new();
    file.by_ref().take(HEADER.len() as u64).read_to_end(&mut bytes)?;
    if bytes != HEADER {
        return match bytes.split_last() {
            _ if is_torn_header(&bytes, &mut file)? => {
                Ok(Loaded { is_torn: !bytes.is_empty(), ..loaded })
            }
            Some((version, magic)) if magic == &HEADER[..7] => Err(LoadError::Version(*version)),
            _ => Err(LoadError::Foreign),
        };
    }
    loaded.bytes = bytes.len() as u64;
    loop {
        record::read(&mut file, &mut bytes)?;
        let Some((spooled, length)) = record::decode(&bytes) else { break };
        spooled.keep(preserved);
        loaded.records += 1;
        loaded.newest_generation = loaded.newest_generation.max(spooled.generation);
        loaded.bytes += length as u64;
    }
    loaded.is_torn = !bytes.is_empty();
    Ok(loaded)
}

/// Whether the machine stopped while the file was created: of the header a part was written, and
/// nothing, or zeros, after it.
fn is_torn_header(first: &[u8], rest: &mut impl BufRead) -> io::Result<bool> {
    let written = first.iter().zip(&HEADER).take_while(|(byte, wanted)| byte == wanted).count();
    let mut after = first[written..].iter().map(|byte| Ok(*byte)).chain(rest.bytes());
    let end = after.find(|byte| !matches!(byte, Ok(0))).transpose()?;
    Ok(written < HEADER.len() && end.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_a_crash_tore_is_told_from_other_files() {
        let load = |bytes: &[u8]| {
            load(bytes, &mut Preservation::default()).map_err(|error| match error {
                LoadError::Version(version) => Some(version),
                LoadError::Foreign => None,
                LoadError::Io(error) => panic!("{error}"),
            })
        };
        let torn = |is_torn| Ok(Loaded { is_torn, ..Loaded::default() });
        assert_eq!(
            (load(b""), load(b"SWSP"), load(b"\0\0")),
            (torn(false), torn(true), torn(true))
        );
        assert_eq!((load(b"SWSP\0\0\0\0"), load(&[0; 20])), (torn(true), torn(true)));
        assert_eq!(load(&HEADER), Ok(Loaded { bytes: 8, ..Loaded::default() }));
        assert_eq!(load(b"SWSPOOL\x02"), Err(Some(2)));
        assert_eq!((load(b"some text"), load(b"SWSP\0\0\0\0x")), (Err(None), Err(None)));
    }

    /// Neither does what follows the damage, without end, stay in memory, nor is it waited for.
    #[test]
    fn a_file_is_read_up_to_the_damage() {
        for damage in [0, 0x55, 0xff] {
            let mut preserved = Preservation::default();
            let loaded = load(HEADER.chain(io::repeat(damage)), &mut preserved).unwrap();
            assert_eq!(loaded, Loaded { bytes: 8, is_torn: true, ..Loaded::default() });
        }
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
