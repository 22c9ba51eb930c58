//! Properties of the codec: what is encoded decodes to itself, and hostile bytes never panic.

use proptest::prelude::*;
use switchback_wire::*;

fn header() -> impl Strategy<Value = Header> {
    let numbers = (any::<[u64; 5]>(), any::<[u32; 8]>(), any::<[u16; 6]>(), any::<[u8; 3]>());
    let names = (
        prop::sample::select(Op::ALL),
        prop::sample::select(Status::ALL),
        any::<[u8; 16]>(),
        any::<u128>(),
        any::<[u8; 16]>(),
    );
    (numbers, names).prop_map(|((a, b, c, d), (op, status, hash, routing, ip))| Header {
        op,
        flags: c[5],
        tenant: c[0],
        epoch: b[0] & EPOCH_MAX,
        partition: c[1],
        hop: d[1],
        ttl: d[0],
        seq: Seq(a[0]),
        guard: a[1],
        request: a[2],
        lane: b[1],
        session: b[5],
        key_hash: KeyHash(hash),
        routing: RoutingKey(routing),
        expiry_ms: a[3],
        tag: a[4],
        view: b[6],
        generation: b[2],
        durable_generation: b[3],
        total_bytes: b[4],
        value_bytes: 0,
        key_bytes: 0,
        fragment_index: c[2],
        fragment_count: c[3],
        origin: Address { ip, port: c[4] },
        status,
        record_flags: d[2],
        location: b[7],
    })
}

proptest! {
    #[test]
    fn a_packet_decodes_to_what_was_encoded(
        header in header(),
        value in prop::collection::vec(
            any::<u8>(),
            0..=PACKET_BYTES_MAX - HEADER_BYTES - KEY_BYTES_MAX,
        ),
        key in prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX),
    ) {
        let packet = Packet::build(header, &value, &key);
        let parts = packet.parse().unwrap();
        let (value_bytes, key_bytes) = (value.len() as u16, key.len() as u16);
        let expected = Header { value_bytes, key_bytes, ..header };
        prop_assert_eq!(packet.op_and_origin(), Some((header.op, header.origin)));
        prop_assert_eq!(parts, PacketRef { header: expected, value: &value, key: &key });
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..1600)) {
        let _ = PacketRef::parse(&bytes);
    }

    #[test]
    fn a_damaged_packet_is_a_packet_or_an_error(
        header in header(), at in 0..HEADER_BYTES, to in any::<u8>(), cut in 0..180usize,
    ) {
        let mut packet = Packet::build(header, b"value", b"a key");
        packet.buffer_mut()[at] = to;
        let _ = packet.parse();
        let _ = PacketRef::parse(&packet.bytes()[..cut.min(packet.bytes().len())]);
    }

    #[test]
    fn scan_lists_come_back(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..20),
    ) {
        let mut list = Vec::new();
        for key in &keys {
            prop_assert!(push_scan_entry(&mut list, key.len() % 2 == 0, key, 2000));
        }
        let back: Vec<_> =
            scan_entries(&list).map(|(cached, key)| (cached, key.to_vec())).collect();
        let expected: Vec<_> = keys.into_iter().map(|key| (key.len() % 2 == 0, key)).collect();
        prop_assert_eq!(back, expected);
    }
}

#[test]
fn the_hash_is_siphash_2_4_128() {
    // First vectors of the reference implementation (key 00..0f, message empty and 00).
    let key = HashKey(std::array::from_fn(|i| i as u8));
    let hex = |hash: KeyHash| hash.0.map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(hex(key.hash(b"")), swap("a3817f04ba25a8e66df67214c7550293"));
    assert_eq!(hex(key.hash(b"\0")), swap("da87c1d86b99af44347659119b22fc45"));
}

/// The reference prints the two words little-endian; key hashes are big-endian.
fn swap(reference: &str) -> String {
    let bytes: Vec<&str> = (0..16).map(|i| &reference[2 * i..2 * i + 2]).collect();
    bytes[..8].iter().rev().chain(bytes[8..].iter().rev()).copied().collect()
}
