//! Packets as a capture file that Wireshark and tcpdump read (libpcap's format; `tools/wireshark`
//! takes the packets apart).
//!
//! Each packet gets the IPv6 and UDP headers that it would have on a network without links (link
//! type RAW). IPv4 endpoints appear mapped into IPv6.

use crate::Address;
use std::io::{self, Write};

/// Little-endian, microseconds, version 2.4, packets of at most 65,535 bytes, raw IP.
const FILE_HEADER: [u8; 24] = [
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0,
    0, //
];
const RECORD_HEADER_BYTES: usize = 16;
const IP_HEADER_BYTES: usize = 40;
const UDP_HEADER_BYTES: usize = 8;
const UDP: u8 = 17;

/// Writes packets to a capture file until it is as long as it may be.
#[derive(Debug)]
pub struct Capture<W: Write> {
    to: W,
    left_bytes: u64,
    frame: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// A capture of at most `bytes_max` bytes.
    pub fn new(mut to: W, bytes_max: u64) -> io::Result<Capture<W>> {
        to.write_all(&FILE_HEADER)?;
        Ok(Capture {
            to,
            left_bytes: bytes_max.saturating_sub(FILE_HEADER.len() as u64),
            frame: Vec::new(),
        })
    }

    /// Writes a packet that went from one endpoint to another; false if there is no room any more,
    /// for this one or any later one.
    pub fn write(
        &mut self,
        unix_us: u64,
        from: Address,
        to: Address,
        packet: &[u8],
    ) -> io::Result<bool> {
        let udp_bytes = UDP_HEADER_BYTES + packet.len();
        let captured = IP_HEADER_BYTES + udp_bytes;
        let bytes = (RECORD_HEADER_BYTES + captured) as u64;
        if bytes > self.left_bytes {
            self.left_bytes = 0;
            return Ok(false);
        }
        self.left_bytes -= bytes;
        let frame = &mut self.frame;
        frame.clear();
        for number in [unix_us / 1_000_000, unix_us % 1_000_000, captured as u64, captured as u64] {
            frame.extend_from_slice(&(number as u32).to_le_bytes());
        }
        frame.extend_from_slice(&[0x60, 0, 0, 0]);
        frame.extend_from_slice(&(udp_bytes as u16).to_be_bytes());
        frame.extend_from_slice(&[UDP, 64]);
        frame.extend_from_slice(&from.ip);
        frame.extend_from_slice(&to.ip);
        for number in [from.port, to.port, udp_bytes as u16, checksum(from, to, packet)] {
            frame.extend_from_slice(&number.to_be_bytes());
        }
        frame.extend_from_slice(packet);
        self.to.write_all(frame)?;
        Ok(true)
    }

    /// Writes everything to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// The checksum of UDP over IPv6.
fn checksum(from: Address, to: Address, packet: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        bytes.chunks(2).map(word).sum()
    };
    // The length counts twice: in the pseudo header and in UDP's own.
    let length = (UDP_HEADER_BYTES + packet.len()) as u64;
    let ports = u64::from(from.port) + u64::from(to.port);
    let mut sum =
        words(&from.ip) + words(&to.ip) + u64::from(UDP) + 2 * length + ports + words(packet);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // 0 would mean that there is none.
    if sum == 0xffff { 0xffff } else { !(sum as u16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_the_standards_say() {
        let mut capture = Capture::new(Vec::new(), 1000).unwrap();
        let (from, to) = (Address { ip: [1; 16], port: 7 }, Address { ip: [2; 16], port: 5357 });
        assert!(capture.write(1_700_000_000_000_005, from, to, b"abc").unwrap());
        let file = capture.into_inner();
        assert_eq!(file[..24], FILE_HEADER);
        let record = &file[24..];
        assert_eq!(record[..4], 1_700_000_000u32.to_le_bytes());
        assert_eq!(record[4..8], 5u32.to_le_bytes());
        assert_eq!((record[8..12].to_vec(), record.len()), (51u32.to_le_bytes().to_vec(), 16 + 51));
        let ip = &record[16..];
        assert_eq!(ip[..8], [0x60, 0, 0, 0, 0, 11, 17, 64]);
        assert_eq!((&ip[8..24], &ip[24..40]), (&from.ip[..], &to.ip[..]));
        assert_eq!(ip[40..46], [0, 7, 0x14, 0xed, 0, 11]);
        // Summed over pseudo header and datagram, checksum included, the words are all ones.
        let sum = 8 * 0x0101 + 8 * 0x0202 + 11 + 17 + 7 + 0x14ed + 11 + 0x6162 + 0x6300;
        let sum = sum + u32::from(u16::from_be_bytes([ip[46], ip[47]]));
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(&ip[48..], b"abc");
    }

    #[test]
    fn it_ends_where_it_has_to() {
        let mut capture = Capture::new(Vec::new(), 24 + 70).unwrap();
        let address = Address::in_memory(1, 2);
        assert!(capture.write(0, address, address, &[0; 6]).unwrap(), "exactly as long as allowed");
        assert!(!capture.write(0, address, address, b"").unwrap());
        assert_eq!(capture.into_inner().len(), 24 + 70);
        // What has no room ends it, or a reader would believe that nothing is missing in between.
        let mut capture = Capture::new(Vec::new(), 200).unwrap();
        assert!(!capture.write(0, address, address, &[0; 500]).unwrap());
        assert!(!capture.write(0, address, address, b"").unwrap());
    }
}
