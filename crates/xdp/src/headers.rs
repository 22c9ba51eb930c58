//! Ethernet, IPv4 and UDP in front of a packet, for frames that no network stack makes.

use std::net::SocketAddrV4;

/// Bytes of the three headers: no VLAN tag, no IP options.
const HEADERS_BYTES: usize = 42;
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const VERSION_AND_WORDS: u8 = 0x45;
const PROTOCOL_UDP: u8 = 17;
/// Locally administered Ethernet addresses.
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The checksum of IP's header, in which the checksum itself is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A frame with this payload. UDP's checksum is left out, as IPv4 allows.
///
/// # Panics
/// If the payload is too long for an IP packet.
pub(crate) fn frame(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let ip_bytes =
        u16::try_from(IP_BYTES + UDP_BYTES + payload.len()).expect("a payload of one packet");
    let udp_bytes = ip_bytes - IP_BYTES as u16;
    let mut head = [0; HEADERS_BYTES];
    head[..6].copy_from_slice(&DESTINATION);
    head[6..12].copy_from_slice(&SOURCE);
    head[12..14].copy_from_slice(&ETHERTYPE_IPV4);
    head[14] = VERSION_AND_WORDS;
    head[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    // Not to be fragmented; 64 hops at most.
    head[20..24].copy_from_slice(&[0x40, 0, 64, PROTOCOL_UDP]);
    head[26..30].copy_from_slice(&from.ip().octets());
    head[30..34].copy_from_slice(&to.ip().octets());
    head[34..36].copy_from_slice(&from.port().to_be_bytes());
    head[36..38].copy_from_slice(&to.port().to_be_bytes());
    head[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
    let sum = checksum(&head[ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES]);
    head[24..26].copy_from_slice(&sum.to_be_bytes());
    [&head, payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn frames_have_their_payload_lengths_and_a_right_checksum() {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
        let switch = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 5357);
        for payload in [&b""[..], b"one", &[7; 1440]] {
            let frame = frame(client, switch, payload);
            let u16_at = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            assert_eq!(&frame[42..], payload);
            assert_eq!((u16_at(16), u16_at(38)), (28 + payload.len(), 8 + payload.len()));
            assert_eq!((&frame[26..30], u16_at(34)), (&[10, 0, 0, 2][..], 4000));
            assert_eq!((&frame[30..34], u16_at(36)), (&[10, 0, 0, 1][..], 5357));
            assert_eq!(checksum(&frame[14..34]), 0);
        }
        // A header whose checksum is known.
        let known = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(checksum(&known), 0xb861);
    }
}
