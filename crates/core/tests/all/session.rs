//! What a client's session preserves, and how it moves to another epoch.

use switchback_core::Now;
use switchback_core::client::{ClientConfig, Operation, Outcome, Session};
use switchback_core::control::{ChainGrant, ClientNotice, ClientReport, Destination, Grant};
use switchback_core::topology::{ByChain, ChainId, ChainMap};
use switchback_wire::{
    Address, HashKey, Header, LEAF_HOP, Op, Packet, SPINE_HOP, Seq, Status, flags, record_flags,
};

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };

fn chain(epoch: u32, preserves: bool) -> ChainGrant {
    ChainGrant {
        epoch,
        destination: Destination::Switch(Address::in_memory(2, 0)),
        durable_generation: 0,
        recovered_epoch: 0,
        preserves,
        gathers: false,
    }
}

/// A session in epoch 1, in which clients preserve what they are told, or not.
fn session(preserves: bool) -> Session {
    let mut session = Session::new(ClientConfig { lanes: 4, ..ClientConfig::default() }, 7, 1, NOW);
    session.handle_message(
        NOW,
        ClientNotice::Granted(Grant {
            boot: 7,
            hello_us: NOW.monotonic_us,
            lease_us: 1_000_000,
            chains: ByChain::new(1, |_| Some(chain(1, preserves))),
            served: ChainMap::default(),
            hash_key: HashKey([1; 16]),
            lane_first: 0,
            lanes: 4,
            request_base: 0,
        }),
    );
    session
}

/// Submits an operation, which the cache answers as `answer` changes the header of its request.
fn answered(
    session: &mut Session,
    operation: Operation<'_>,
    answer: impl FnOnce(Header) -> Header,
) -> Option<Outcome<'static>> {
    session.submit(NOW, operation, 0).unwrap();
    let mut packet = Packet::new();
    session.poll_packet(&mut packet).unwrap();
    let asked = packet.parse().unwrap();
    let header = Header { flags: flags::CACHED, seq: Seq::new(1, 5), ..asked.header };
    let packet = Packet::build(answer(header), &[], asked.key);
    match session.handle_packet(NOW, &packet)?.outcome {
        Outcome::Written { seq } => Some(Outcome::Written { seq }),
        Outcome::ConditionFailed { seq } => Some(Outcome::ConditionFailed { seq }),
        other => panic!("{other:?}"),
    }
}

fn write(condition: Option<Seq>) -> Operation<'static> {
    Operation::Write { key: b"key", value: b"value", expiry_ms: 0, condition }
}

/// Rule 25.
#[test]
fn nothing_is_preserved_where_switches_protect_what_is_told() {
    for preserves in [true, false] {
        let mut session = session(preserves);
        let done = |header| Header { op: Op::WriteReply, ..header };
        assert!(answered(&mut session, write(None), done).is_some());
        assert_eq!(session.preserved().len(), usize::from(preserves));
        // What refused a condition is read first, if it is to be preserved.
        let refused = |header| Header {
            op: Op::WriteReply,
            status: Status::ConditionFailed,
            record_flags: record_flags::DIRTY,
            ..header
        };
        let outcome = answered(&mut session, write(Some(Seq::new(1, 4))), refused);
        assert_eq!(outcome.is_none(), preserves);
    }
}

/// Rule 23.
#[test]
fn a_client_that_is_told_to_move_brings_what_it_preserves_only_if_that_is_gathered() {
    for gathers in [false, true] {
        let mut session = session(true);
        let done = |header| Header { op: Op::WriteReply, ..header };
        answered(&mut session, write(None), done);
        while session.poll_message().is_some() {}
        let to = ChainGrant { gathers, ..chain(2, false) };
        let (chain, served) = (ChainId::new(0), ChainMap::default());
        session.handle_message(NOW, ClientNotice::Move { chain, to, served });
        assert_eq!((session.epoch(), session.preserved().len()), (2, 1));
        let brought = session.poll_message();
        assert_eq!(matches!(brought, Some(ClientReport::Preserved { .. })), gathers);
    }
}

/// Writes that are under way when an epoch is about to change end in it; later ones are held back,
/// and sent in the next one.
#[test]
fn writes_are_held_back_until_the_epoch_has_changed() {
    let mut session = session(true);
    let told = |session: &mut Session| {
        let mut reports = std::iter::from_fn(|| session.poll_message());
        reports.any(|report| report == ClientReport::Quiet { epoch: 1 })
    };
    let chain_id = ChainId::new(0);
    session.submit(NOW, write(None), 1).unwrap();
    let mut first = Packet::new();
    session.poll_packet(&mut first).unwrap();
    session.handle_message(NOW, ClientNotice::Quiesce { chain: chain_id, epoch: 1 });
    session.submit(NOW, write(None), 2).unwrap();
    let mut packet = Packet::new();
    assert!(session.poll_packet(&mut packet).is_none(), "it is held back");
    session.submit(NOW, Operation::Read { key: b"k" }, 3).unwrap();
    assert!(session.poll_packet(&mut packet).is_some(), "reads change nothing");
    assert!(!told(&mut session), "a write is under way");
    let asked = first.parse().unwrap();
    let reply = Header { op: Op::WriteReply, seq: Seq::new(1, 5), ..asked.header };
    let reply = Packet::build(reply, &[], asked.key);
    let done = session.handle_packet(NOW, &reply).unwrap();
    assert!(matches!((done.token, done.outcome), (1, Outcome::Written { .. })));
    assert!(told(&mut session));
    let (to, served) = (chain(2, true), ChainMap::default());
    session.handle_message(NOW, ClientNotice::Move { chain: chain_id, to, served });
    assert!(session.poll_completion().is_none(), "no outcome is unknown");
    let sent: Vec<_> = std::iter::from_fn(|| {
        session.poll_packet(&mut packet)?;
        let header = packet.parse().unwrap().header;
        Some((header.op, header.epoch))
    })
    .collect();
    assert!(sent.contains(&(Op::Write, 2)) && sent.contains(&(Op::Read, 2)), "{sent:?}");
}

/// A recovery holds requests back by dropping them, so clients send them ever more rarely.
#[test]
fn what_waits_for_a_recovery_is_sent_as_soon_as_nodes_are_released() {
    let mut session = session(true);
    let (to, served, chain_id) = (chain(2, false), ChainMap::default(), ChainId::new(0));
    session.handle_message(NOW, ClientNotice::Move { chain: chain_id, to, served });
    session.submit(NOW, Operation::Read { key: b"k" }, 1).unwrap();
    let mut packet = Packet::new();
    let mut sent =
        |session: &mut Session| std::iter::from_fn(|| session.poll_packet(&mut packet)).count();
    let mut now = NOW;
    // Other timers are due as well.
    let retries = std::iter::repeat_with(|| {
        now.monotonic_us = session.poll_timeout().unwrap().max(now.monotonic_us);
        session.handle_timeout(now);
        sent(&mut session)
    });
    assert_eq!(retries.take(100).filter(|sent| *sent > 0).take(5).count(), 5);
    for (epoch, sends) in [(1, 0), (2, 1)] {
        session.handle_message(now, ClientNotice::Released { chain: chain_id, epoch });
        session.handle_timeout(now);
        assert_eq!(sent(&mut session), sends, "nodes are released in epoch {epoch}");
    }
}

/// The controller died, or gave the change up: what was held back is sent in the epoch that stays.
#[test]
fn writes_are_not_held_back_for_ever() {
    let mut session = session(true);
    session.handle_message(NOW, ClientNotice::Quiesce { chain: ChainId::new(0), epoch: 7 });
    session.submit(NOW, write(None), 1).unwrap();
    let mut packet = Packet::new();
    assert!(session.poll_packet(&mut packet).is_some(), "of another epoch");
    session.handle_message(NOW, ClientNotice::Quiesce { chain: ChainId::new(0), epoch: 1 });
    session.submit(NOW, write(None), 2).unwrap();
    assert!(session.poll_packet(&mut packet).is_none());
    let later = Now { monotonic_us: NOW.monotonic_us + 1_000_000, ..NOW };
    session.handle_timeout(later);
    let sent = std::iter::from_fn(|| {
        session.poll_packet(&mut packet)?;
        Some(packet.parse().unwrap().header.lane)
    });
    assert_eq!(sent.collect::<std::collections::BTreeSet<_>>().len(), 2);
}

/// Rule 29: while a backup is cut writes are held back, and each try has its own answer.
#[test]
fn writes_are_held_back_until_a_backup_is_cut() {
    let mut session = session(true);
    let (chain, mut packet) = (ChainId::new(0), Packet::new());
    let hold = |round| ClientNotice::Hold { chain, epoch: 1, round };
    let holding = |round| ClientReport::Holding { epoch: 1, round };
    while session.poll_message().is_some() {}
    session.handle_message(NOW, hold(1));
    assert_eq!(session.poll_message(), Some(holding(1)));
    session.submit(NOW, write(None), 1).unwrap();
    assert!(session.poll_packet(&mut packet).is_none(), "it is held back");
    session.handle_message(NOW, hold(2));
    assert_eq!(session.poll_message(), Some(holding(2)));
    session.handle_message(NOW, ClientNotice::Resume { round: 1 });
    assert!(session.poll_packet(&mut packet).is_none(), "another try holds it back");
    session.handle_message(NOW, ClientNotice::Resume { round: 2 });
    assert!(session.poll_packet(&mut packet).is_some());
    // A write that is under way ends first.
    session.handle_message(NOW, hold(3));
    assert_eq!(session.poll_message(), None);
    session.handle_message(NOW, ClientNotice::Hold { chain, epoch: 7, round: 4 });
    assert_eq!(session.poll_message(), None, "it is of another epoch");
    let asked = packet.parse().unwrap();
    let reply = Header { op: Op::WriteReply, seq: Seq::new(1, 5), ..asked.header };
    let reply = Packet::build(reply, &[], asked.key);
    session.handle_packet(NOW, &reply).unwrap();
    let mut told = std::iter::from_fn(|| session.poll_message());
    assert!(told.any(|report| report == holding(3)));
}

#[test]
fn reads_go_to_the_switch_that_is_less_loaded_as_answers_say() {
    let mut session = session(false);
    let (leaf, spine) = (Address::in_memory(2, 0), Address::in_memory(2, 1));
    let (chain, epoch) = (ChainId::new(0), 1);
    session.handle_message(NOW, ClientNotice::Spine { chain, epoch, switch: spine });
    let mut packet = Packet::new();
    let mut read = |now: Now, hop: u8, load: u32| {
        session.submit(now, Operation::Read { key: b"key" }, 0).unwrap();
        let to = session.poll_packet(&mut packet).unwrap();
        let asked = packet.parse().unwrap();
        let header = Header { op: Op::ReadReply, hop, location: load, ..asked.header };
        session.handle_packet(now, &Packet::build(header, b"value", asked.key)).unwrap();
        to
    };
    let later = |us| Now { monotonic_us: NOW.monotonic_us + us, ..NOW };
    assert_eq!(read(NOW, SPINE_HOP, 10), spine, "nothing is known");
    // A spine that has no copy passes the read on: it is the leaf that answers.
    assert_eq!(read(NOW, LEAF_HOP, 11), leaf, "the spine has ten packets");
    assert_eq!(read(NOW, LEAF_HOP, 9), spine, "and the leaf eleven");
    assert_eq!(read(NOW, LEAF_HOP, 9), leaf, "the spine was sent one more");
    assert_eq!(read(later(5_000), LEAF_HOP, 6), leaf);
    assert_eq!(read(later(10_000), LEAF_HOP, 100), spine, "its answer was a window ago");
    assert_eq!(read(later(10_000), SPINE_HOP, 100), spine);
    assert_eq!(read(later(10_000), SPINE_HOP, 101), spine, "both have a hundred");
    assert_eq!(read(later(10_000), LEAF_HOP, 100), leaf);
    // It is dead, or has no copy of what is read.
    let silent = (0..100).filter(|at| read(later(100_000 + at * 1_000), LEAF_HOP, 5) == spine);
    assert!((1..10).contains(&silent.count()), "a spine that answers nothing is given few reads");
}
