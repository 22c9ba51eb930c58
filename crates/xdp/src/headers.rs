//! Ethernet, IPv4 and UDP in front of a packet, for what doesn't go through the kernel's network stack.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of the three headers: no VLAN tag, no IP options.
pub(crate) const HEADERS_BYTES: usize = 42;
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const VERSION_AND_WORDS: u8 = 0x45;
const PROTOCOL_UDP: u8 = 17;

/// What one sender's packets begin with.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    own: SocketAddrV4,
    bytes: [u8; HEADERS_BYTES],
}

/// The checksum of IP's header, in which the checksum itself is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn u16_at(bytes: &[u8; HEADERS_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn address_at(bytes: &[u8; HEADERS_BYTES], ip: usize, port: usize) -> SocketAddrV4 {
    let [a, b, c, d] = [bytes[ip], bytes[ip + 1], bytes[ip + 2], bytes[ip + 3]];
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16_at(bytes, port))
}

impl Headers {
    /// From `own`, at the Ethernet address `from`, all to one next hop.
    pub(crate) fn new(own: SocketAddrV4, from: [u8; 6], next_hop: [u8; 6]) -> Headers {
        let mut bytes = [0; HEADERS_BYTES];
        bytes[..6].copy_from_slice(&next_hop);
        bytes[6..12].copy_from_slice(&from);
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        bytes[14] = VERSION_AND_WORDS;
        // Not to be fragmented; 64 hops at most.
        bytes[20..24].copy_from_slice(&[0x40, 0, 64, PROTOCOL_UDP]);
        bytes[26..30].copy_from_slice(&own.ip().octets());
        bytes[34..36].copy_from_slice(&own.port().to_be_bytes());
        Headers { own, bytes }
    }

    /// Writes a frame with this payload, and says how long it is; none if it doesn't fit. UDP's checksum is left out, as IPv4 allows.
    pub(crate) fn write(&self, to: SocketAddrV4, payload: &[u8], frame: &mut [u8]) -> Option<usize> {
        let (head, body) = frame.split_first_chunk_mut::<HEADERS_BYTES>()?;
        let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).ok()?;
        let ip_bytes = udp_bytes.checked_add(IP_BYTES as u16)?;
        body.get_mut(..payload.len())?.copy_from_slice(payload);
        *head = self.bytes;
        head[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
        head[30..34].copy_from_slice(&to.ip().octets());
        head[36..38].copy_from_slice(&to.port().to_be_bytes());
        head[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
        let sum = checksum(&head[ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
        Some(HEADERS_BYTES + payload.len())
    }

    /// Sender and payload of a frame to us; none of any other frame. Checksums aren't looked at: the frame never left the machine, or the
    /// interface has done it.
    pub(crate) fn read<'a>(&self, frame: &'a [u8]) -> Option<(SocketAddrV4, &'a [u8])> {
        let (head, body) = frame.split_first_chunk::<HEADERS_BYTES>()?;
        let is_fragment = u16_at(head, 20) & 0x3fff != 0;
        let is_udp = head[12..14] == ETHERTYPE_IPV4 && head[14] == VERSION_AND_WORDS && head[23] == PROTOCOL_UDP;
        if !is_udp || is_fragment || address_at(head, 30, 36) != self.own {
            return None;
        }
        let udp_bytes = usize::from(u16_at(head, 38));
        if usize::from(u16_at(head, 16)) != IP_BYTES + udp_bytes {
            return None;
        }
        // Short frames are padded.
        let payload = body.get(..udp_bytes.checked_sub(UDP_BYTES)?)?;
        Some((address_at(head, 26, 34), payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
    const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 5357);

    fn headers(own: SocketAddrV4) -> Headers {
        Headers::new(own, [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = [0xff; 2048];
        let length = headers(SWITCH).write(CLIENT, payload, &mut frame).unwrap();
        frame[..length].to_vec()
    }

    #[test]
    fn frames_carry_what_was_put_in_and_a_right_checksum() {
        for payload in [&b""[..], b"one", &[7; 1440]] {
            let frame = frame(payload);
            assert_eq!(headers(CLIENT).read(&frame), Some((SWITCH, payload)));
            assert_eq!(checksum(&frame[14..34]), 0);
            // Padded, as Ethernet's shortest frames are.
            assert_eq!(headers(CLIENT).read(&[&frame[..], &[0; 20]].concat()), Some((SWITCH, payload)));
        }
        // The example of RFC 1071's users: a header that others have computed.
        let known = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&known), 0xb861);
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        assert_eq!(headers(SWITCH).write(CLIENT, &[7; 100], &mut [0; 141]), None);
        assert_eq!(headers(SWITCH).write(CLIENT, &[], &mut [0; 41]), None);
        assert_eq!(headers(SWITCH).write(CLIENT, &[7; 65_508], &mut vec![0; 70_000]), None);
    }

    #[test]
    fn frames_of_others_and_broken_ones_are_none_of_ours() {
        let whole = frame(b"payload");
        for length in 0..whole.len() {
            assert_eq!(headers(CLIENT).read(&whole[..length]), None, "cut to {length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut frame = whole.clone();
            frame[at] = byte;
            headers(CLIENT).read(&frame).map(|(_, payload)| payload.to_vec())
        };
        // Ethertype, options, lengths, a fragment that others follow, one that follows others, TCP, address and port, UDP's length.
        let wrong = [
            (12, 0x86),
            (14, 0x46),
            (14, 0x65),
            (16, 1),
            (17, 0),
            (20, 0x20),
            (21, 1),
            (23, 6),
            (33, 9),
            (37, 9),
            (39, 0),
        ];
        for (at, byte) in wrong {
            assert_eq!(changed(at, byte), None, "byte {at}");
        }
        // Any byte, any value: never more than was received, and no panic.
        for (at, byte) in (0..whole.len()).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
            assert!(changed(at, byte).is_none_or(|payload| payload.len() == 7), "byte {at} is {byte}");
        }
        // Lengths that agree with each other, but not with UDP's header or the frame.
        for udp_bytes in [0u16, 7, 16, 65_515] {
            let mut frame = whole.clone();
            frame[16..18].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
            frame[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
            assert_eq!(headers(CLIENT).read(&frame), None, "{udp_bytes} bytes of UDP");
        }
    }
}
