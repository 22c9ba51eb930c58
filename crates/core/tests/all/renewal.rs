//! Another epoch before sequence numbers run out, as the controller sees it.

use crate::rack::Rack;
use switchback_core::control::ClientNotice;

const KEYS: [u8; 3] = [1, 2, 3];

/// A rack with all keys cached, and its epoch.
fn rack() -> (Rack, u32) {
    let mut rack = Rack::with_clients(&[11]);
    rack.evicts = true;
    rack.node_offers(&KEYS);
    let epoch = rack.controller.epoch();
    assert_eq!(rack.controller.status(rack.now).cached, KEYS.len());
    (rack, epoch)
}

#[test]
fn a_switch_that_asks_for_another_epoch_gets_it_and_the_same_keys() {
    let (mut rack, epoch) = rack();
    rack.switch_says_hello(epoch - 1, true);
    assert_eq!(rack.controller.epoch(), epoch, "it asks in another epoch");
    rack.switch_says_hello(epoch, true);
    assert_eq!(rack.controller.epoch(), epoch + 1);
    assert_eq!(
        rack.controller.status(rack.now).cached,
        0,
        "nodes have everything before the switch is wiped"
    );
    assert_eq!(rack.asked_for, [[0u8; 0]; 0], "not before the rack serves");
    let gather = |(client, notice): &(u64, ClientNotice)| {
        *client == 11 && matches!(notice, ClientNotice::Move { .. })
    };
    assert!(rack.told.iter().any(gather));
    rack.answers_gather(11);
    assert!(rack.controller.is_serving());
    assert_eq!(rack.asked_for, KEYS.map(|key| [key]));
    rack.node_offers(&KEYS);
    assert_eq!(rack.controller.status(rack.now).cached, KEYS.len(), "admissions go on");
}

/// Keys that can't be evicted (a node that doesn't store) keep the epoch; what was evicted comes
/// back.
#[test]
fn a_drain_that_takes_too_long_is_given_up_and_tried_again_later() {
    let (mut rack, epoch) = rack();
    rack.evicts = false;
    rack.switch_says_hello(epoch, true);
    rack.lives_for(9_900_000);
    assert_eq!(rack.asked_for, [[0u8; 0]; 0]);
    rack.lives_for(200_000);
    assert_eq!((rack.controller.epoch(), rack.asked_for.len()), (epoch, KEYS.len()));
    rack.evicts = true;
    rack.switch_says_hello(epoch, true);
    assert_eq!(rack.controller.epoch(), epoch, "not so soon");
    rack.lives_for(60_000_000);
    rack.switch_says_hello(epoch, true);
    assert_eq!(rack.controller.epoch(), epoch + 1);
}

#[test]
fn a_switch_that_dies_meanwhile_is_recovered_as_always() {
    let (mut rack, epoch) = rack();
    rack.evicts = false;
    rack.switch_says_hello(epoch, true);
    rack.switch_starts(2);
    assert_eq!(rack.controller.epoch(), epoch + 1);
    rack.answers_gather(11);
    assert!(rack.controller.is_serving());
    rack.node_offers(&KEYS);
    assert_eq!(rack.controller.status(rack.now).cached, KEYS.len(), "nothing drains any more");
}
