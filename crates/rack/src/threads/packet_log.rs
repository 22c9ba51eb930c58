//! What passes a switch, written to a capture file.

use anyhow::Context as _;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use switchback_wire::{Address, Capture, Packet};

/// Memory of what is not written yet.
const BUFFER_BYTES: usize = 1 << 18;

/// A capture file, until it is full or can't be written. Neither is a reason for the switch to
/// stop.
#[derive(Debug)]
pub struct PacketLog {
    path: PathBuf,
    /// `None`: it has ended.
    capture: Option<Capture<BufWriter<File>>>,
}

impl PacketLog {
    /// Creates the file, or empties it.
    pub fn create(path: &Path, bytes_max: u64) -> anyhow::Result<PacketLog> {
        let create =
            || Capture::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?), bytes_max);
        let capture =
            create().with_context(|| format!("cannot write packets to {}", path.display()))?;
        Ok(PacketLog { path: path.to_owned(), capture: Some(capture) })
    }

    /// Writes a packet that goes from one endpoint to another.
    pub fn write(&mut self, from: Address, to: Address, packet: &Packet) {
        let Some(capture) = &mut self.capture else { return };
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match capture.write(unix.as_micros() as u64, from, to, packet.bytes()) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    "{} is as long as it may be: no more packets are written",
                    self.path.display()
                );
                self.flush();
                self.capture = None;
            }
            Err(error) => self.end(&error),
        }
    }

    /// Flushes what was written to the file.
    pub fn flush(&mut self) {
        if let Some(Err(error)) = self.capture.as_mut().map(Capture::flush) {
            self.end(&error);
        }
    }

    fn end(&mut self, error: &io::Error) {
        tracing::warn!("{} can't be written, no more packets are: {error}", self.path.display());
        self.capture = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::{Header, Op};

    #[test]
    fn it_is_written_until_it_is_full_and_stays_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("packets.pcap");
        let packet = Packet::build(Header::new(Op::Read), b"", b"key");
        let record_bytes = 16 + 48 + packet.bytes().len();
        let mut log = PacketLog::create(&path, (24 + 2 * record_bytes) as u64).unwrap();
        let address = Address::in_memory(1, 0);
        log.write(address, address, &packet);
        log.flush();
        assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, 24 + record_bytes);
        for _ in 0..5 {
            log.write(address, address, &packet);
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() == 24 + 2 * record_bytes && bytes.ends_with(packet.bytes()));
        let error = PacketLog::create(&directory.path().join("no/such/directory"), 1).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write packets to"), "{error:#}");
    }
}
