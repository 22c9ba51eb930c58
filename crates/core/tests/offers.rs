//! What a controller does about offers that its answers don't reach.

use switchback_core::Now;
use switchback_core::control::{Envelope, Message, NodeReport, Offer, Peer, SwitchReport};
use switchback_core::controller::{Controller, ControllerConfig, Effect, Files};
use switchback_core::mechanisms::Mechanisms;
use switchback_wire::{Address, KeyHash};

/// A node repeats its offers until it hears that they are known. While it hears nothing, the controller must not remember each repetition.
#[test]
fn an_offer_that_is_repeated_is_answered_by_one_command() {
    let now = |at_us: u64| Now { monotonic_us: 1_000_000 + at_us, unix_ms: 1_800_000_000_000 };
    let node = Address::in_memory(3, 0);
    let config = ControllerConfig { nodes: vec![node], routes: vec![vec![0]], ..ControllerConfig::default() };
    let mut controller = Controller::new(config, Mechanisms::ALL, &Files::default(), 1, now(0)).expect("a new rack");
    let mut hear = |at_us: u64, from: Peer, message: Message| {
        controller.handle_message(now(at_us), Envelope { from, to: Peer::Controller, message });
        while let Some(effect) = controller.poll_effect() {
            if let Effect::Store(_, id, _) = effect {
                controller.handle_stored(now(at_us), id);
            }
        }
        controller.commands_outstanding()
    };
    let hello = SwitchReport::Hello { boot: 1, address: Address::in_memory(2, 0), epoch: 0, classes: vec![(1024, 16)] };
    hear(0, Peer::Switch(0), Message::FromSwitch(hello));
    let offer = Offer { id: 7, hash: KeyHash([1; 16]), key: b"key".to_vec(), value_bytes: 8 };
    let mut repeat = |at_us| {
        let offers = vec![offer.clone()];
        hear(at_us, Peer::Node(0), Message::FromNode(NodeReport::Offers { epoch: 1, offers }))
    };
    let once = repeat(1_000);
    for times in 2..100 {
        assert_eq!(repeat(times * 1_000), once, "after {times} times");
    }
}
