//! What a controller does about offers that its answers don't reach.

use switchback_core::Now;
use switchback_core::control::{
    Envelope, Message, NodeCommand, NodeReport, Offer, Peer, SwitchReport,
};
use switchback_core::controller::{Controller, ControllerConfig, Files, Stored};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::storage::OfferId;
use switchback_wire::{Address, KeyHash, Map};

fn now(at_us: u64) -> Now {
    Now { monotonic_us: 1_000_000 + at_us, unix_ms: 1_800_000_000_000 }
}

/// A controller whose switch has said hello and answers nothing: whatever is offered waits.
struct Rack {
    controller: Controller,
    told: Vec<NodeCommand>,
}

impl Rack {
    fn with_slots(slots: u32) -> Rack {
        Rack::with_routes(slots, vec![vec![0]])
    }

    fn with_routes(slots: u32, routes: Vec<Vec<u16>>) -> Rack {
        let map = Map::equal(routes);
        let nodes = (0..map.nodes()).map(|node| Address::in_memory(3, node as u16)).collect();
        let config = ControllerConfig { nodes, map, ..ControllerConfig::default() };
        let controller = Controller::new(config, Mechanisms::ALL, &Files::default(), 1, now(0))
            .expect("a new rack");
        let mut rack = Rack { controller, told: Vec::new() };
        let (address, classes) = (Address::in_memory(2, 0), vec![(1024, slots)]);
        let hello = SwitchReport::Hello {
            boot: 1,
            address,
            layer: 1,
            domain: String::new(),
            epoch: 0,
            classes,
            needs_epoch: false,
        };
        rack.hear(0, Peer::Switch(0), Message::FromSwitch(hello));
        rack
    }

    fn hear(&mut self, at_us: u64, from: Peer, message: Message) {
        self.controller
            .handle_message(now(at_us), Envelope { from, to: Peer::Controller, message });
        loop {
            if let Some(store) = self.controller.poll_op() {
                self.controller.handle_done(now(at_us), Stored { id: store.id });
            } else if let Some(envelope) = self.controller.poll_message() {
                if let Message::ToNode(command) = envelope.message {
                    self.told.push(command.body);
                }
            } else {
                return;
            }
        }
    }

    fn offered(&mut self, at_us: u64, key: u8) {
        self.counted(at_us, key, 1);
    }

    fn counted(&mut self, at_us: u64, key: u8, count: u32) {
        let offer = Offer {
            id: OfferId::from_bits(key.into()),
            hash: KeyHash([key; 16]),
            key: vec![key],
            value_bytes: 8,
            count,
        };
        let offers = NodeReport::Offers { epoch: 1, offers: vec![offer] };
        self.hear(at_us, Peer::Node(0), Message::FromNode(offers));
    }

    fn declined(&self, key: u8) -> bool {
        let offer = (KeyHash([key; 16]), OfferId::from_bits(key.into()));
        self.told
            .iter()
            .any(|body| matches!(body, NodeCommand::ClearOffers(offers) if offers.contains(&offer)))
    }
}

/// A node repeats its offers until it hears that they are known. While it hears nothing, the
/// controller must not remember each repetition.
#[test]
fn an_offer_that_is_repeated_is_answered_by_one_command() {
    let mut rack = Rack::with_slots(16);
    let mut repeat = |at_us| {
        rack.offered(at_us, 7);
        rack.controller.commands_outstanding()
    };
    let once = repeat(1_000);
    for times in 2..100 {
        assert_eq!(repeat(times * 1_000), once, "after {times} times");
    }
}

/// One that was declined while it waited would be admitted under an offer that its node had
/// cleared: what the cache absorbed for it would be refused by the node as a late duplicate.
#[test]
fn an_offer_that_waits_is_not_declined_when_it_is_repeated_to_a_full_queue() {
    let mut rack = Rack::with_slots(2);
    for key in 1..=5 {
        rack.offered(key.into(), key);
    }
    rack.offered(10, 3);
    assert!(!rack.declined(3) && !rack.declined(4), "the first two have slots, these wait");
    assert!(rack.declined(5), "no more wait than there are slots");
}

/// A key that is asked for all the time must not stand behind those that were asked for once.
#[test]
fn the_most_counted_offers_wait_and_the_least_counted_is_declined() {
    let mut rack = Rack::with_slots(2);
    for key in 1..=4 {
        rack.offered(key.into(), key);
    }
    assert_eq!(rack.controller.status(now(0)).waiting_offers, 2);
    rack.counted(10, 5, 9);
    assert!(rack.declined(4) && !rack.declined(5), "the last one gives way");
    rack.counted(11, 6, 1);
    assert!(rack.declined(6) && !rack.declined(3), "not counted more often");
    assert_eq!(rack.controller.status(now(0)).declined_offers.crowded, 2);
}

/// A node may say an offer twice in one message. One that was declined at its first place, for a
/// more counted one, would be admitted at its second although its node is told to clear it.
#[test]
fn an_offer_that_one_message_brings_twice_is_not_declined_and_kept() {
    let mut rack = Rack::with_slots(2);
    rack.offered(1, 1);
    rack.offered(2, 2);
    let offers = [(3, 1), (4, 1), (5, 9), (4, 7)].map(|(key, count)| Offer {
        id: OfferId::from_bits(key.into()),
        hash: KeyHash([key; 16]),
        key: vec![key],
        value_bytes: 8,
        count,
    });
    let offers = NodeReport::Offers { epoch: 1, offers: offers.to_vec() };
    rack.hear(3, Peer::Node(0), Message::FromNode(offers));
    assert!(rack.declined(4) && !rack.declined(3) && !rack.declined(5), "3 and 5 wait");
    assert_eq!(rack.controller.status(now(0)).waiting_offers, 2);
}

/// What a switch held that died is offered again all at once: nothing of it that there is room for
/// may be declined, however long the switch takes to admit it.
#[test]
fn no_offer_is_declined_that_there_is_room_for() {
    const SLOTS: u64 = 50_000;
    let mut rack = Rack::with_slots(SLOTS as u32);
    let offer = |number: u64| {
        let mut hash = [0; 16];
        hash[8..].copy_from_slice(&number.to_be_bytes());
        Offer {
            id: OfferId::from_bits(number + 1),
            hash: KeyHash(hash),
            key: b"key".to_vec(),
            value_bytes: 8,
            count: 1,
        }
    };
    let mut declined_of = |range: std::ops::Range<u64>| {
        let offers = NodeReport::Offers { epoch: 1, offers: range.map(offer).collect() };
        rack.hear(0, Peer::Node(0), Message::FromNode(offers));
        rack.controller.status(now(0)).declined_offers.total()
    };
    assert_eq!(declined_of(0..SLOTS), 0);
    // Beyond that they wait for evictions: not all can.
    assert!(declined_of(SLOTS..2 * SLOTS) > 0);
}

/// The offers of a partition are its head's: what the cache holds of a key is stored there.
#[test]
fn an_offer_counts_if_the_head_of_its_partition_makes_it() {
    let mut rack = Rack::with_routes(16, vec![vec![0], vec![1, 0]]);
    let mut offer = |at_us, node, key: u8| {
        let offer = Offer {
            id: OfferId::from_bits(1),
            hash: KeyHash([key; 16]),
            key: vec![key],
            value_bytes: 8,
            count: 1,
        };
        let offers = NodeReport::Offers { epoch: 1, offers: vec![offer] };
        rack.hear(at_us, Peer::Node(node), Message::FromNode(offers));
        rack.controller.cached_keys().len()
    };
    assert_eq!(offer(1, 0, 0x80), 0, "node 0 doesn't head this key's partition");
    assert_eq!(offer(2, 1, 0x80), 1);
    assert_eq!(offer(3, 0, 0x7f), 2);
    let nodes: Vec<_> = rack.controller.cached_keys().iter().map(|key| key.node).collect();
    assert_eq!(nodes, [1, 0]);
}
