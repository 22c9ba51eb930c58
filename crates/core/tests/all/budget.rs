//! What the control plane may spend on admissions and evictions, and what doesn't wait for that.

use crate::rack::Rack;
use switchback_core::control::{Message, Peer, SwitchReport};
use switchback_core::controller::{
    ControlBudget, ControlCost, ControllerConfig, ControllerStatus, Spent,
};
use switchback_core::storage::Record;
use switchback_core::switch::LearningConfig;
use switchback_wire::{CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX, Scheme};

/// Of a budget that is so large that it limits nothing.
const AMPLE: u64 = 1 << 32;

/// How long the switch may be silent.
const SILENT_US: u64 = 1 << 40;

/// A rack without snapshots that may cache `records` keys.
fn config(records: usize, messages_per_s: u64, bytes_per_s: u64) -> ControllerConfig {
    ControllerConfig {
        scheme: Scheme::NetCache,
        cache_records: records,
        eviction_pause_us: 0,
        control_budget: ControlBudget { messages_per_s, bytes_per_s },
        switch_timeout_us: SILENT_US,
        snapshot_us: None,
        ..ControllerConfig::default()
    }
}

fn rack(records: usize, messages_per_s: u64, bytes_per_s: u64) -> Rack {
    let mut rack = Rack::new(config(records, messages_per_s, bytes_per_s), &[]);
    rack.evicts = true;
    rack.pass(0);
    rack
}

fn status(rack: &Rack) -> ControllerStatus {
    rack.controller.status(rack.now)
}

fn cost(rack: &Rack) -> ControlCost {
    status(rack).control_cost
}

/// In how long the controller is to be called next: never at once, for it was called just now.
/// `None`: when the switch has been silent for too long.
fn next_us(rack: &Rack) -> Option<u64> {
    let at_us = rack.controller.poll_timeout()?;
    assert!(at_us > rack.now.monotonic_us, "it would be called again and again");
    Some(at_us - rack.now.monotonic_us).filter(|in_us| *in_us < SILENT_US / 2)
}

#[test]
fn admissions_wait_for_the_budget_and_none_is_lost() {
    // A burst of two messages: a command and its answer.
    let mut rack = rack(16, 8, AMPLE);
    rack.node_offers(&[1]);
    for key in 2..=6 {
        rack.node_offers(&[key]);
    }
    assert_eq!((rack.controller.cached(), status(&rack).waiting_offers), (1, 5));
    assert_eq!(cost(&rack).delays, 1, "it is one delay, however many wait");
    assert_eq!(next_us(&rack), Some(1));
    rack.pass(1);
    assert_eq!((rack.controller.cached(), status(&rack).waiting_offers), (6, 0));
    assert_eq!(cost(&rack).admissions.messages, 4, "those that waited share a command");

    rack.node_offers(&[7]);
    assert_eq!(next_us(&rack), Some(250_000), "two messages are owed");
    rack.pass(249_999);
    assert_eq!(rack.controller.cached(), 6);
    assert_eq!(next_us(&rack), Some(1));
    rack.pass(1);
    assert_eq!(rack.controller.cached(), 7);
    assert_eq!((cost(&rack).delays, status(&rack).declined_offers.total()), (2, 0));
    assert_eq!(next_us(&rack), None, "nothing waits");
}

/// What was begun is brought to its end, or the cache would hold what is neither in it nor at its
/// node.
#[test]
fn an_eviction_that_has_begun_does_not_wait_for_the_budget() {
    let mut rack = rack(1, AMPLE, 1_000);
    rack.evicted = Some(Record { value: vec![7; 1_000], ..Record::default() });
    rack.node_offers(&[1]);
    rack.pass(250_000);
    rack.node_offers(&[2]);
    assert_eq!(rack.stored.len(), 1, "its record costs more than there is");
    assert_eq!(rack.controller.cached(), 0, "its slot is free");
    assert_eq!(rack.controller.commands_outstanding(), 0);
    assert_eq!((status(&rack).waiting_offers, cost(&rack).delays), (1, 1));
    let wait_us = next_us(&rack).expect("it waits");
    assert!(wait_us > 1_750_000, "there were 250 bytes, and two messages have 1,000: {wait_us}");
    rack.pass(wait_us);
    assert_eq!((rack.controller.cached(), status(&rack).waiting_offers), (1, 0));
}

#[test]
fn evictions_wait_for_the_budget() {
    let mut rack = rack(1, 8, AMPLE);
    rack.node_offers(&[1]);
    rack.node_offers(&[2]);
    assert_eq!((cost(&rack).evictions.messages, status(&rack).waiting_offers), (0, 1));
    rack.pass(next_us(&rack).expect("it waits"));
    assert_eq!(cost(&rack).evictions.messages, 4, "asked and removed, and two answers");
}

/// Each eviction costs messages and commits, however many keys it evicts.
#[test]
fn evictions_that_are_wanted_soon_after_another_share_a_command() {
    let config = ControllerConfig {
        eviction_pause_us: 5_000,
        eviction_sample: 1,
        ..config(2, AMPLE, AMPLE)
    };
    let mut rack = Rack::new(config, &[]);
    rack.evicts = true;
    rack.node_offers(&[1, 2]);
    rack.node_offers(&[3]);
    assert_eq!((cost(&rack).evictions.messages, status(&rack).waiting_offers), (4, 0), "at once");
    rack.pass(1_000);
    rack.node_offers(&[4]);
    rack.node_offers(&[5]);
    assert_eq!((cost(&rack).evictions.messages, status(&rack).waiting_offers), (4, 2));
    assert_eq!(next_us(&rack), Some(4_000));
    rack.pass(3_999);
    assert_eq!(status(&rack).waiting_offers, 2);
    rack.pass(1);
    assert_eq!((cost(&rack).evictions.messages, status(&rack).waiting_offers), (8, 0));
    assert_eq!(next_us(&rack), None, "nothing waits");
}

/// An offer that waits for an answer of the switch is not one that waits for the budget.
#[test]
fn a_budget_that_has_something_left_wakes_nothing() {
    let mut rack = rack(1, AMPLE, AMPLE);
    rack.evicts = false;
    rack.node_offers(&[1]);
    rack.node_offers(&[2]);
    assert_eq!(status(&rack).waiting_offers, 1);
    let config = ControllerConfig::default();
    assert_eq!(next_us(&rack), Some(config.retry_us), "the question is repeated");
    assert_eq!(cost(&rack).delays, 0);
}

#[test]
fn a_drain_a_recovery_and_a_record_that_outgrew_its_slot_do_not_wait_for_the_budget() {
    let mut rack = rack(16, 8, AMPLE);
    rack.node_offers(&(1..=16).collect::<Vec<_>>());
    rack.node_offers(&[17]);
    assert_eq!((rack.controller.cached(), cost(&rack).delays), (16, 1));
    let entries = vec![(1 << 40 | 1, None)];
    let report = SwitchReport::EvictMe { epoch: rack.controller.epoch(), entries };
    rack.hear(Peer::Switch(0), Message::FromSwitch(report));
    assert_eq!(rack.controller.cached(), 15);
    rack.controller.drain(rack.now);
    rack.pass(0);
    assert!(rack.controller.is_drained());
    rack.controller.resume();
    assert!(cost(&rack).evictions.messages >= 6, "they are paid for: {:?}", cost(&rack));
    rack.node_offers(&[1]);
    assert_eq!(rack.controller.cached(), 0, "and what they cost delays admissions");

    rack.switch_starts(2);
    assert!(rack.controller.is_serving());
    rack.pass(0);
    rack.node_offers(&[1]);
    rack.pass(next_us(&rack).expect("it waits"));
    assert_eq!(rack.controller.cached(), 1);
}

/// While no switch serves nothing can be admitted, so there is nothing to be woken for.
#[test]
fn a_rack_without_a_switch_waits_for_no_budget() {
    let timeout_us = ControllerConfig::default().switch_timeout_us;
    let config =
        ControllerConfig { switch_timeout_us: timeout_us, bypass_us: None, ..config(16, 8, AMPLE) };
    let mut rack = Rack::new(config, &[]);
    rack.node_offers(&[1]);
    rack.node_offers(&[2]);
    assert_eq!(status(&rack).waiting_offers, 1);
    rack.pass(timeout_us);
    assert_eq!(status(&rack).phase, "waiting for a switch");
    assert_eq!(next_us(&rack), None);
}

#[test]
fn nothing_is_admitted_without_a_budget() {
    for (messages_per_s, bytes_per_s) in [(0, AMPLE), (AMPLE, 0)] {
        let mut rack = rack(16, messages_per_s, bytes_per_s);
        rack.node_offers(&[1, 2]);
        rack.pass(3_600_000_000);
        assert_eq!((rack.controller.cached(), status(&rack).waiting_offers), (0, 0));
        assert_eq!(status(&rack).declined_offers.crowded, 2, "none waits in vain");
    }
}

/// Nodes may offer more than the budget could pay for.
#[test]
fn offers_do_not_use_up_the_budget() {
    let mut rack = rack(16, 8, 10_000);
    for _ in 0..1_000 {
        rack.node_offers_of(&[1, 2, 3], 100, 5_000);
    }
    assert_eq!(status(&rack).declined_offers.unfit, 3_000);
    assert!(cost(&rack).offers.messages >= 3_000, "{:?}", cost(&rack).offers);
    rack.node_offers(&[4]);
    assert_eq!((rack.controller.cached(), cost(&rack).delays), (1, 0));
}

/// The default is enough for as many admissions and evictions as the switch tells nodes of keys, if
/// keys and values are as long as can be and none shares a message.
#[test]
fn the_default_is_enough_for_every_key_that_nodes_are_told_of() {
    let mut rack = rack(1, AMPLE, AMPLE);
    rack.evicted = Some(Record { value: vec![7; CACHED_VALUE_BYTES_MAX], ..Record::default() });
    rack.node_offers_of(&[1], CACHED_KEY_BYTES_MAX, 8);
    let first = cost(&rack);
    rack.node_offers_of(&[2], CACHED_KEY_BYTES_MAX, 8);
    assert_eq!((rack.controller.cached(), rack.stored.len()), (1, 1));
    let ControlCost { admissions, evictions, .. } = cost(&rack);
    let messages = admissions.messages - first.admissions.messages + evictions.messages;
    let bytes = admissions.bytes - first.admissions.bytes + evictions.bytes;
    assert_eq!(messages, 8);
    assert!((2_500..=4_000).contains(&bytes), "{bytes}");
    let (usual, most) = (ControlBudget::default(), LearningConfig::default().admissions_per_s);
    assert!(u64::from(most) * 8 <= usual.messages_per_s);
    assert!(u64::from(most) * 4_000 <= usual.bytes_per_s);
}

/// What keys are said to cost is what is carried for them.
#[test]
fn what_keys_cost_is_what_is_carried() {
    let mut rack = rack(4, AMPLE, AMPLE);
    rack.evicted = Some(Record { value: vec![7; 200], ..Record::default() });
    let (before, carried) = (cost(&rack), rack.carried);
    for key in 1..=16 {
        rack.node_offers(&[key]);
    }
    assert_eq!(rack.stored.len(), 12);
    let total = |cost: ControlCost| {
        let ControlCost { offers, admissions, evictions, .. } = cost;
        let of = |count: fn(&Spent) -> u64| [offers, admissions, evictions].iter().map(count).sum();
        (of(|spent| spent.messages), of(|spent| spent.bytes))
    };
    let (before, after): ((u64, u64), (u64, u64)) = (total(before), total(cost(&rack)));
    let messages = rack.carried.0 - carried.0;
    assert_eq!(after.0 - before.0, messages);
    // Of a report's head the length is estimated.
    let bytes = rack.carried.1 - carried.1;
    assert!((after.1 - before.1).abs_diff(bytes) <= 4 * messages, "{before:?} {after:?} {bytes}");
}
