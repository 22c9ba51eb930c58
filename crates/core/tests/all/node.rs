//! What a node tells of itself, and what it takes of the controller.

use switchback_core::Now;
use switchback_core::control::{Command, KeyedRecord, NodeCommand, NodeConfig, NodeReport};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{
    EngineDone, EngineError, EngineOp, EngineReply, Loaded, OfferId, OpId, Record,
};
use switchback_core::topology::ChainId;
use switchback_wire::{Address, HashKey, Header, KeyHash, Map, Op, Packet, Seq};

/// What the shim's next hello says of its storage.
fn hello(shim: &mut Shim, now: Now) -> Option<String> {
    shim.handle_timeout(now);
    let mut hellos = std::iter::from_fn(|| shim.poll_message()).filter_map(|report| match report {
        NodeReport::Hello { failure, .. } => Some(failure),
        _ => None,
    });
    hellos.next().expect("it is time for one")
}

const START: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };

/// Node 0, which has never served.
fn new_node() -> Shim {
    let (address, limits) = (Address::in_memory(3, 0), NodeLimits::default());
    Shim::new(0, 1, address, limits, Mechanisms::ALL, Loaded::default(), START).unwrap()
}

/// Tells a node of epoch 1 and this map; the operation that makes that durable.
fn begin(shim: &mut Shim, map: Map) -> OpId {
    let config = NodeConfig {
        hash_key: HashKey([1; 16]),
        map,
        switch: Some(Address::in_memory(2, 0)),
        lanes: 16,
        refresh: switchback_core::control::Refresh::None,
    };
    let command =
        Command { id: 1, chain: ChainId::new(0), epoch: 1, body: NodeCommand::Epoch(config) };
    shim.handle_message(START, command);
    let mut ops = Vec::new();
    shim.poll_ops(&mut ops);
    let [EngineOp::SetState { id, .. }] = ops[..] else { panic!("{ops:?}") };
    id
}

#[test]
fn what_the_storage_refuses_is_told_for_a_while() {
    let (mut shim, mut now) = (new_node(), START);
    assert_eq!(hello(&mut shim, now), None);
    let id = begin(&mut shim, Map::equal(vec![vec![0]]));
    shim.handle_done(now, EngineDone { id, result: Err(EngineError::NoSpace("/data".into())) });
    now.monotonic_us += 1_000_000;
    assert_eq!(
        hello(&mut shim, now).as_deref(),
        Some("no space left on the device that holds /data")
    );
    now.monotonic_us += 10_000_000;
    assert_eq!(hello(&mut shim, now), None, "it was long ago");
}

/// Rule 8: what is durable is the epoch before, so the node doesn't serve the one it was told last.
#[test]
fn a_node_serves_an_epoch_once_that_one_is_durable() {
    let mut shim = new_node();
    let first = begin(&mut shim, Map::equal(vec![vec![0]]));
    let config = NodeConfig {
        hash_key: HashKey([1; 16]),
        map: Map::equal(vec![vec![0]]),
        switch: Some(Address::in_memory(2, 1)),
        lanes: 16,
        refresh: switchback_core::control::Refresh::None,
    };
    let body = NodeCommand::Epoch(config);
    shim.handle_message(START, Command { id: 2, chain: ChainId::new(0), epoch: 2, body });
    let [EngineOp::SetState { id: second, .. }] = ops(&mut shim)[..] else { panic!("it is new") };
    let read = |shim: &mut Shim| {
        let key_hash = HashKey([1; 16]).hash(&[1]);
        let routing = key_hash.routing();
        let header = Header { key_hash, routing, epoch: 2, ..Header::new(Op::Read) };
        shim.handle_packet(START, Address::in_memory(2, 1), &Packet::build(header, &[], &[1]));
        ops(shim).len()
    };
    assert_eq!(read(&mut shim), 0);
    shim.handle_done(START, EngineDone { id: first, result: Ok(EngineReply::Set) });
    assert_eq!(read(&mut shim), 0, "epoch 1 is durable");
    shim.handle_done(START, EngineDone { id: second, result: Ok(EngineReply::Set) });
    assert_eq!(read(&mut shim), 1, "epoch 2 is");
}

/// The other rack's controller is new, since its directory was lost: its epochs are far below those
/// that the node knows, and it can't go on without being told why.
#[test]
fn a_new_controller_hears_that_the_records_are_of_another_rack() {
    let mut shim = new_node();
    let epoch_of = |chain, epoch: u32, hash_key| {
        let config = NodeConfig {
            hash_key: HashKey(hash_key),
            map: Map::equal(vec![vec![0]]),
            switch: Some(Address::in_memory(2, 0)),
            lanes: 16,
            refresh: switchback_core::control::Refresh::None,
        };
        let body = NodeCommand::Epoch(config);
        Command { id: epoch.into(), chain: ChainId::new(chain), epoch, body }
    };
    shim.handle_message(START, epoch_of(0, 7, [1; 16]));
    let [EngineOp::SetState { id, .. }] = ops(&mut shim)[..] else { panic!("it serves") };
    shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Set) });
    while shim.poll_message().is_some() {}
    // The other rack may have more chains than the node's own.
    for chain in [0, 3] {
        shim.handle_message(START, epoch_of(chain, 1, [2; 16]));
        let Some(NodeReport::Done { id: 1, error: Some(error), .. }) = shim.poll_message() else {
            panic!("it refuses");
        };
        assert!(error.starts_with("this node holds records of another rack"), "{error}");
        assert!(ops(&mut shim).is_empty());
    }
    shim.handle_message(START, epoch_of(0, 6, [1; 16]));
    assert!(shim.poll_message().is_none(), "its own rack's controller of before is not answered");
}

/// Else a controller with an old map would take for stored what the partition's head doesn't have.
#[test]
fn only_the_head_of_a_partition_takes_commands_about_its_keys() {
    let (mut shim, now) = (new_node(), START);
    let id = begin(&mut shim, Map::equal(vec![vec![0], vec![1, 0]]));
    shim.handle_done(now, EngineDone { id, result: Ok(EngineReply::Set) });
    let mut refusal = |id, body| {
        shim.handle_message(now, Command { id, chain: ChainId::new(0), epoch: 1, body });
        shim.handle_timeout(Now { monotonic_us: now.in_us(10_000), ..now });
        let done = |report| match report {
            NodeReport::Done { id: its, error, .. } if its == id => Some(error),
            _ => None,
        };
        std::iter::from_fn(|| shim.poll_message())
            .find_map(done)
            .expect("nothing to store, so it answers at once")
    };
    let (own, other) = (KeyHash([0x7f; 16]), KeyHash([0x80; 16]));
    let store = |hash| {
        NodeCommand::Store(vec![KeyedRecord { hash, key: vec![1], record: Record::default() }])
    };
    let clear = |hashes: &[KeyHash]| {
        NodeCommand::ClearOffers(hashes.iter().map(|hash| (*hash, OfferId::from_bits(1))).collect())
    };
    assert!(refusal(2, store(own)).is_none() && refusal(3, store(other)).is_some());
    assert!(refusal(4, clear(&[own])).is_none() && refusal(5, clear(&[own, other])).is_some());
}

/// A node of epoch 1 that heads everything, and a key that it is about to offer.
fn node_with_a_hot_key() -> (Shim, KeyHash) {
    let (mut shim, hash) = (new_node(), KeyHash([7; 16]));
    let id = begin(&mut shim, Map::equal(vec![vec![0]]));
    shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Set) });
    tell(&mut shim, 2, NodeCommand::OfferKeys(vec![(hash, vec![1])]));
    let [EngineOp::Get { id, .. }] = ops(&mut shim)[..] else { panic!("its length is read") };
    shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Got(None)) });
    (shim, hash)
}

fn tell(shim: &mut Shim, id: u64, body: NodeCommand) {
    shim.handle_message(START, Command { id, chain: ChainId::new(0), epoch: 1, body });
}

fn ops(shim: &mut Shim) -> Vec<EngineOp> {
    let mut ops = Vec::new();
    shim.poll_ops(&mut ops);
    ops
}

fn later(us: u64) -> Now {
    Now { monotonic_us: START.in_us(us), ..START }
}

/// Forcing the log for a mark costs as much as for all that a group of requests writes.
#[test]
fn a_mark_waits_for_a_commit_that_it_can_be_part_of() {
    let (mut shim, hash) = node_with_a_hot_key();
    assert_eq!((ops(&mut shim), shim.offered()), (vec![], 0));
    tell(&mut shim, 3, NodeCommand::Release { floor: Seq::NONE });
    let ops = ops(&mut shim);
    let [EngineOp::SetState { .. }, EngineOp::SetMark { hash: its, .. }] = &ops[..] else {
        panic!("{ops:?}")
    };
    assert_eq!(*its, hash);
    assert_eq!(shim.offered(), 1);
}

#[test]
fn a_mark_waits_no_longer_than_it_may() {
    let (mut shim, hash) = node_with_a_hot_key();
    let defer_us = NodeLimits::default().defer_us;
    shim.handle_timeout(later(defer_us - 1));
    assert_eq!(ops(&mut shim), []);
    assert_eq!(shim.poll_timeout(), Some(later(defer_us).monotonic_us));
    shim.handle_timeout(later(defer_us));
    let ops = ops(&mut shim);
    assert!(matches!(&ops[..], [EngineOp::SetMark { hash: its, .. }] if *its == hash), "{ops:?}");
    assert!(shim.poll_timeout() > Some(later(defer_us).monotonic_us));
}

/// It would be offered for ever if the end of the offer before came after the mark.
#[test]
fn the_end_of_an_offer_comes_before_the_next_offer_of_the_same_key() {
    let (mut shim, hash) = node_with_a_hot_key();
    shim.handle_timeout(later(10_000));
    let [EngineOp::SetMark { id, mark: Some(mark), .. }] = ops(&mut shim)[..] else {
        panic!("its mark is due")
    };
    shim.handle_done(later(10_000), EngineDone { id, result: Ok(EngineReply::Set) });
    let clear = NodeCommand::ClearOffers(vec![(hash, mark.offer)]);
    tell(&mut shim, 3, clear.clone());
    tell(&mut shim, 3, clear);
    assert_eq!((ops(&mut shim), shim.offered()), (vec![], 1));
    shim.handle_timeout(later(20_000));
    let ops = ops(&mut shim);
    let [EngineOp::SetMark { id, mark: None, .. }] = ops[..] else { panic!("{ops:?}") };
    let answers = |shim: &mut Shim| {
        let is_done = |report: &NodeReport| matches!(report, NodeReport::Done { id: 3, .. });
        std::iter::from_fn(|| shim.poll_message()).filter(is_done).count()
    };
    assert_eq!(answers(&mut shim), 0, "it isn't durable yet");
    shim.handle_done(later(20_000), EngineDone { id, result: Ok(EngineReply::Set) });
    assert_eq!(answers(&mut shim), 1, "it was repeated");
    assert_eq!(shim.offered(), 0);
}

/// A node that was told to clear an offer which stands, and hasn't done so yet, and the offer.
fn node_with_an_offer_that_ends() -> (Shim, KeyHash, OfferId) {
    let (mut shim, hash) = node_with_a_hot_key();
    tell(&mut shim, 3, NodeCommand::Release { floor: Seq::NONE });
    let ops = ops(&mut shim);
    let [EngineOp::SetState { id: state, .. }, EngineOp::SetMark { id, mark: Some(mark), .. }] =
        ops[..]
    else {
        panic!("{ops:?}")
    };
    for id in [state, id] {
        shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Set) });
    }
    assert_eq!(offered(&mut shim), [mark.offer]);
    tell(&mut shim, 4, NodeCommand::ClearOffers(vec![(hash, mark.offer)]));
    assert_eq!(shim.offered(), 1);
    (shim, hash, mark.offer)
}

/// The offers that a node tells of.
fn offered(shim: &mut Shim) -> Vec<OfferId> {
    let offers = |report| match report {
        NodeReport::Offers { offers, .. } => offers,
        _ => Vec::new(),
    };
    let offers = std::iter::from_fn(|| shim.poll_message()).flat_map(offers);
    offers.map(|offer| offer.id).collect()
}

/// A controller that has just started takes what it is told of for what stands: it admitted such a
/// key, and then the node cleared the offer (seed 9412 of 20,000).
#[test]
fn an_offer_that_was_told_to_end_is_not_told_of_again() {
    let (mut shim, ..) = node_with_an_offer_that_ends();
    tell(&mut shim, 5, NodeCommand::OfferAgain);
    assert_eq!((offered(&mut shim), shim.offered()), (vec![], 0));
    // By itself, when it repeats its offers.
    let (mut shim, ..) = node_with_an_offer_that_ends();
    let retry_us = NodeLimits::default().retry_us;
    assert!(retry_us > 0);
    tell(&mut shim, 5, NodeCommand::OffersHeld(vec![]));
    shim.handle_timeout(later(retry_us));
    assert_eq!((offered(&mut shim), shim.offered()), (vec![], 0));
    // Because it is hotter by now: it is offered anew.
    let (mut shim, hash, ended) = node_with_an_offer_that_ends();
    tell(&mut shim, 5, NodeCommand::OfferKeys(vec![(hash, vec![1])]));
    let [EngineOp::Get { id, .. }] = ops(&mut shim)[..] else { panic!("its length is read") };
    shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Got(None)) });
    assert_eq!(offered(&mut shim), []);
    shim.handle_timeout(later(NodeLimits::default().defer_us));
    let ops = ops(&mut shim);
    let [EngineOp::SetMark { mark: None, .. }, EngineOp::SetMark { mark: Some(mark), .. }] =
        ops[..]
    else {
        panic!("{ops:?}")
    };
    assert_ne!(mark.offer, ended);
}

#[test]
fn a_bounded_number_of_marks_wait() {
    let (mut shim, _) = node_with_a_hot_key();
    let keys = (0..255u16).map(|key| (KeyHash([key as u8; 16]), key.to_be_bytes().to_vec()));
    tell(&mut shim, 3, NodeCommand::OfferKeys(keys.collect()));
    for op in ops(&mut shim) {
        let EngineOp::Get { id, .. } = op else { panic!("{op:?}") };
        shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Got(None)) });
    }
    assert_eq!((shim.offered(), ops(&mut shim).len()), (0, 0), "one of them waited already");
    let keys = vec![(KeyHash([255; 16]), vec![1])];
    tell(&mut shim, 4, NodeCommand::OfferKeys(keys));
    let [EngineOp::Get { id, .. }] = ops(&mut shim)[..] else { panic!("its length is read") };
    shim.handle_done(START, EngineDone { id, result: Ok(EngineReply::Got(None)) });
    assert_eq!((shim.offered(), ops(&mut shim).len()), (256, 256));
}
