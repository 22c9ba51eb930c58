//! Segments of a spool, damaged or not, as a gateway finds them: it takes what is whole, goes on
//! writing, and finds it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use switchback_core::client::Preservation;
use switchback_fuzz::{Draw, STEPS_MAX};
use switchback_gateway::spool::{Spool, SpoolDirectory};
use switchback_gateway::{Durability, WorkerStatistics};

const HEADER: &[u8] = b"SWSPOOL\x01";

/// A record, as a spool has it: with its checksum, or with another one.
fn record(draw: &mut Draw<'_>, to: &mut Vec<u8>) {
    let keyed = draw.keyed_record(1);
    let mut body = Vec::new();
    body.extend_from_slice(&keyed.record.seq.0.to_le_bytes());
    body.extend_from_slice(&keyed.record.expiry_ms.to_le_bytes());
    body.extend_from_slice(&(draw.edgy() as u32).to_le_bytes());
    body.push(draw.byte());
    body.extend_from_slice(&keyed.hash.0);
    let key_bytes = if draw.once_in(16) { draw.edgy() as u16 } else { keyed.key.len() as u16 };
    body.extend_from_slice(&key_bytes.to_le_bytes());
    body.extend_from_slice(&keyed.key);
    body.extend_from_slice(&keyed.record.value);
    let length = if draw.once_in(16) { draw.edgy() as u32 } else { body.len() as u32 };
    let checked = [&length.to_le_bytes(), &body[..]].concat();
    let checksum = if draw.once_in(16) { draw.number() as u32 } else { crc32fast::hash(&checked) };
    to.extend_from_slice(&checksum.to_le_bytes());
    to.extend_from_slice(&checked);
}

fn segment(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for _ in 0..draw.below(16) {
        record(draw, &mut bytes);
    }
    if draw.once_in(4) {
        let at = draw.number() as usize % bytes.len();
        bytes[at] = draw.byte();
    }
    if draw.once_in(4) {
        let length = draw.number() as usize % (bytes.len() + 1);
        bytes.truncate(length);
    }
    bytes
}

fn name(draw: &mut Draw<'_>) -> String {
    match draw.below(8) {
        6 => format!("w0-{}.spool", draw.edgy()),
        7 => format!("w{}-{:012}.spool", draw.edgy(), draw.byte()),
        number => format!("w0-{number:012}.spool"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let directory = tempfile::tempdir().expect("a temporary directory");
    for _ in 0..1 + draw.below(3) {
        let (name, segment) = (name(&mut draw), segment(&mut draw));
        fs::write(directory.path().join(name), segment).expect("it can be written");
    }
    for _ in 0..2 {
        let opened = SpoolDirectory::open(directory.path()).expect("no other process uses it");
        let mut preserved = Preservation::default();
        let spool = Spool::open(&opened, 0, Durability::EverySecond, 1 << 16, &mut preserved);
        let Ok(mut spool) = spool else { return };
        for _ in 0..STEPS_MAX {
            if draw.is_empty() || draw.once_in(16) {
                break;
            }
            match draw.below(4) {
                0 => spool.release(draw.edgy() as u32, draw.once_in(8)),
                1 => _ = spool.commit(&preserved, &WorkerStatistics::default()),
                _ => {
                    let keyed = draw.keyed_record(1);
                    let (record, generation) = (&keyed.record, draw.edgy() as u32);
                    let (seq, expiry_ms, tombstone) =
                        (record.seq, record.expiry_ms, record.tombstone);
                    preserved.keep(
                        keyed.hash,
                        &keyed.key,
                        &record.value,
                        seq,
                        tombstone,
                        expiry_ms,
                        generation,
                    );
                    preserved.drain_touched(|kept| spool.push(kept));
                }
            }
        }
        spool.commit(&preserved, &WorkerStatistics::default()).expect("it can be written");
    }
});
