//! The controller's recovery: which clients it waits for, and what is told of it.

use crate::rack::{LATER, Rack, client_hello};
use switchback_core::control::{ClientNotice, ClientReport, KeyedRecord};
use switchback_core::controller::ControllerConfig;
use switchback_core::storage::Record;
use switchback_wire::{KeyHash, Seq};

#[test]
fn a_recovery_waits_for_every_client() {
    let mut rack = Rack::with_clients(&[10, 11]);
    rack.switch_starts(2);
    let asked = rack
        .told
        .iter()
        .filter(|(_, notice)| matches!(notice, ClientNotice::Move { to, .. } if to.epoch == 2));
    assert_eq!(asked.map(|(client, _)| *client).collect::<Vec<_>>(), [10, 11]);
    rack.answers_gather(10);
    assert!(!rack.controller.is_serving());
    rack.answers_gather(11);
    assert!(rack.controller.is_serving());
}

#[test]
fn a_client_that_closes_its_session_during_a_recovery_is_no_longer_waited_for() {
    let mut rack = Rack::with_clients(&[10, 11]);
    rack.switch_starts(2);
    rack.answers_gather(10);
    rack.client_says(11, ClientReport::Close { boot: 6 });
    assert!(!rack.controller.is_serving(), "another life's Close ended the wait");
    rack.client_says(11, ClientReport::Close { boot: 7 });
    assert!(rack.controller.is_serving(), "it is still waited for");
    assert_eq!(rack.abandoned(), (2, &[][..]), "it gave nothing up that it had promised to keep");
}

#[test]
fn a_client_whose_first_hello_came_while_there_was_no_switch_is_waited_for() {
    let mut rack = Rack::with_clients(&[]);
    rack.now = LATER;
    rack.controller.handle_timeout(LATER);
    assert!(!rack.controller.is_serving(), "the switch isn't dead yet");
    rack.client_says(10, client_hello());
    rack.switch_starts(2);
    assert!(!rack.controller.is_serving(), "it wasn't waited for");
    rack.answers_gather(10);
    assert!(rack.controller.is_serving());
}

#[test]
fn a_first_start_is_no_recovery() {
    let mut rack = Rack::with_clients(&[]);
    assert_eq!(rack.controller.status(rack.now).recovery, None);
    rack.switch_starts(2);
    assert_eq!(rack.recovery().epoch, 2);
}

#[test]
fn detection_is_counted_from_the_last_sign_of_life_of_the_switch_that_died() {
    let mut rack = Rack::with_clients(&[]);
    rack.pass(30_000);
    rack.switch_starts(2);
    assert_eq!(
        rack.recovery().detect_us,
        30_000,
        "the successor's hello is no sign of life of the one before"
    );
}

#[test]
fn readmission_ends_with_the_keys_that_were_cached_whatever_else_waits() {
    let mut rack =
        Rack::new(ControllerConfig { cache_records: 2, ..ControllerConfig::default() }, &[]);
    rack.node_offers(&[1, 2]);
    rack.switch_starts(2);
    assert_eq!((rack.recovery().missing, rack.recovery().readmit_us), (2, 0));
    rack.pass(1_000);
    rack.node_offers(&[2]);
    assert_eq!((rack.recovery().missing, rack.recovery().readmit_us), (1, 0));
    rack.pass(1_000);
    rack.node_offers(&[1, 3]);
    assert!(rack.controller.status(rack.now).waiting_offers > 0, "one more than there is room for");
    assert_eq!((rack.recovery().missing, rack.recovery().readmit_us), (0, 2_000));
    rack.pass(1_000);
    rack.node_offers(&[4]);
    assert_eq!(rack.recovery().readmit_us, 2_000);
}

#[test]
fn a_key_that_is_declined_after_a_recovery_is_no_longer_waited_for() {
    let mut rack =
        Rack::new(ControllerConfig { cache_records: 2, ..ControllerConfig::default() }, &[]);
    rack.node_offers(&[1]);
    rack.controller.drain(rack.now);
    rack.switch_starts(2);
    assert_eq!(rack.recovery().missing, 1);
    rack.node_offers(&[1]);
    assert_eq!(rack.recovery().missing, 0);
}

#[test]
fn a_client_that_is_gone_is_waited_for_once() {
    for spooled in [false, true] {
        let ClientReport::Hello { boot, sent_us, lanes, epochs, pressure, .. } = client_hello()
        else {
            unreachable!()
        };
        let mut rack = Rack::with_clients(&[10]);
        rack.client_says(
            11,
            ClientReport::Hello { boot, sent_us, lanes, epochs, pressure, spooled },
        );
        rack.pass(1);
        rack.switch_starts(2);
        rack.answers_gather(10);
        assert!(!rack.controller.is_serving(), "it isn't waited for");
        let config = ControllerConfig::default();
        rack.lives_for(if spooled {
            config.spool_wait_us
        } else {
            config.lease_us + config.drift_us
        });
        assert!(rack.controller.is_serving());
        assert_eq!(rack.abandoned(), (2, &[11][..]));
        rack.client_says(10, client_hello());
        rack.switch_starts(3);
        rack.answers_gather(10);
        assert!(rack.controller.is_serving(), "it is waited for again");
        // It comes back, as a new client.
        rack.told.clear();
        rack.client_says(11, client_hello());
        let is_granted =
            |told: &(u64, ClientNotice)| matches!(told, (11, ClientNotice::Granted(_)));
        assert!(rack.told.iter().any(is_granted));
    }
}

#[test]
fn lanes_of_clients_that_are_gone_are_granted_again() {
    let mut rack =
        Rack::new(ControllerConfig { lanes: (8, 4), ..ControllerConfig::default() }, &[10, 11]);
    let grants = |rack: &Rack, client| {
        let grant = |told: &(u64, ClientNotice)| match told {
            (to, ClientNotice::Granted(grant)) if *to == client => {
                Some((grant.lane_first, grant.request_base))
            }
            _ => None,
        };
        rack.told.iter().filter_map(grant).collect::<Vec<_>>()
    };
    rack.client_says(12, client_hello());
    assert_eq!(grants(&rack, 12), [], "there are none while the others have a lease");
    let config = ControllerConfig::default();
    rack.lives_for(config.lease_us + config.drift_us);
    rack.client_says(11, client_hello());
    rack.lives_for(200_000);
    rack.client_says(12, client_hello());
    assert_eq!(grants(&rack, 12), [(0, 3 << 32)], "those of 10, with requests that are newer");
    // 10 was only slow, and is a new client once 12 is gone.
    rack.client_says(10, client_hello());
    assert_eq!(grants(&rack, 10).len(), 1);
    rack.client_says(12, ClientReport::Close { boot: 7 });
    rack.client_says(10, client_hello());
    assert_eq!(grants(&rack, 10), [(0, 1 << 32), (0, 4 << 32)]);
}

/// A client sends a chunk, which isn't the last one, of a hundred records of 165 bytes.
fn preserves(rack: &mut Rack, client: u64, chunk: u32, first_key: u8, counter: u64) {
    let record = |key: u8| KeyedRecord {
        hash: KeyHash([key; 16]),
        key: vec![key],
        record: Record { seq: Seq::new(1, counter), value: vec![0; 100], ..Record::default() },
    };
    let (epoch, records) =
        (rack.controller.epoch(), (first_key..first_key + 100).map(record).collect());
    rack.client_says(client, ClientReport::Preserved { epoch, chunk, last: false, records });
}

/// A recovery of two clients that waits for client 10 only, of which it holds 40,000 bytes at most.
fn recovery_with_limit() -> Rack {
    let config = ControllerConfig { gather_bytes_max: 40_000, ..ControllerConfig::default() };
    let mut rack = Rack::new(config, &[10, 11]);
    rack.switch_starts(2);
    rack
}

/// Fails if a client can make the controller hold as much as it likes.
#[test]
fn a_client_that_sends_more_than_any_preserves_is_given_up() {
    let mut rack = recovery_with_limit();
    rack.answers_gather(11);
    for _ in 0..10 {
        preserves(&mut rack, 10, 0, 0, 1); // again, since it didn't hear that it had arrived
    }
    preserves(&mut rack, 10, 1, 100, 1);
    assert!(!rack.controller.is_serving(), "it has not exceeded its limit");
    preserves(&mut rack, 10, 2, 150, 1);
    assert!(rack.controller.is_serving(), "it is still waited for");
    assert_eq!(rack.abandoned(), (2, &[10][..]));
    assert_eq!(rack.recovery().abandoned_clients, 1);
    assert_eq!(rack.recovery().records, 242, "what was within its limit is stored");
}

#[test]
fn what_a_client_sends_is_not_held_against_it_once_another_one_has_newer() {
    let mut rack = recovery_with_limit();
    preserves(&mut rack, 10, 0, 0, 1);
    preserves(&mut rack, 10, 1, 100, 1);
    preserves(&mut rack, 11, 0, 0, 2);
    preserves(&mut rack, 10, 2, 150, 1);
    rack.answers_gather(11);
    assert!(!rack.controller.is_serving(), "it has not exceeded its limit");
}

/// Fails if a client can make the controller remember chunks without end, all of them empty.
#[test]
fn a_client_that_numbers_more_chunks_than_any_sends_is_given_up() {
    let mut rack = Rack::with_clients(&[10]);
    rack.switch_starts(2);
    let epoch = rack.controller.epoch();
    let chunk = |chunk| ClientReport::Preserved { epoch, chunk, last: false, records: Vec::new() };
    rack.client_says(10, chunk(100_000));
    assert!(!rack.controller.is_serving(), "a client may have that many");
    rack.client_says(10, chunk(200_000));
    assert!(rack.controller.is_serving(), "it is still waited for");
    assert_eq!(rack.abandoned(), (2, &[10][..]));
}
