//! A supervisor of a controller whose switch and node are played by the test.

use super::*;
use crate::threads::{ControllerFiles, ControllerThread, Stop};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use switchback_core::control::{
    Command, Envelope, Inspected, Message, NodeReport, Offer, Peer, SwitchCommand, SwitchReport,
    SwitchResult,
};
use switchback_core::controller::ControllerConfig;
use switchback_core::mechanisms::Mechanisms;
use switchback_core::storage::OfferId;
use switchback_core::topology::ByChain;
use switchback_net::{Carrier, Clock, ControlEvent, Mailbox};
use switchback_wire::{Address, KeyHash, Map};

/// Does at once what the controller asks, but for snapshots: their generations go to the test. Of
/// the keys that it caches it has counted the later ones more often; the first it doesn't have.
struct Played {
    inbox: Arc<Mailbox<ControlEvent>>,
    snapshots: Mutex<Sender<u32>>,
}

impl Carrier for Played {
    fn carry(&self, envelope: Envelope) {
        let answer = match envelope.message {
            Message::ToSwitch(Command { id, epoch, body, .. }) => {
                if let SwitchCommand::Snapshot { generation } = body {
                    let _the_test_is_over = self.snapshots.lock().unwrap().send(generation);
                }
                let result = match body {
                    SwitchCommand::Admit(_) => SwitchResult::Admitted { refused: Vec::new() },
                    SwitchCommand::Inspect(ids) => {
                        let told = |(at, id)| Inspected { id, count: at, dirty: at == 2, bytes: 9 };
                        SwitchResult::Inspected((0..).zip(ids).skip(1).map(told).collect())
                    }
                    _ => SwitchResult::Ok,
                };
                Message::FromSwitch(SwitchReport::Done { id, epoch, result })
            }
            Message::ToNode(Command { id, chain, epoch, .. }) => {
                Message::FromNode(NodeReport::Done { id, chain, epoch, error: None })
            }
            _ => return,
        };
        said(&self.inbox, envelope.to, answer);
    }
}

fn said(inbox: &Mailbox<ControlEvent>, from: Peer, message: Message) {
    inbox.push(ControlEvent::Message(Envelope { from, to: Peer::Controller, message }));
}

/// The controller of a rack of one switch and one node that serves, and the snapshots that it asks
/// the switch for.
fn controller(
    files: ControllerFiles,
    stop: &Stop,
) -> (ControllerHandle, Arc<Mailbox<ControlEvent>>, Receiver<u32>) {
    let inbox = Arc::new(Mailbox::new(1024));
    let (sender, snapshots) = channel();
    let carrier = Arc::new(Played { inbox: Arc::clone(&inbox), snapshots: Mutex::new(sender) });
    let (clock, node) = (Clock::default(), Address::in_memory(3, 0));
    // Nothing happens by itself, however slow the machine is.
    let config = ControllerConfig {
        nodes: vec![node],
        map: Map::equal(vec![vec![0]]),
        switch_timeout_us: 3_600_000_000,
        snapshot_us: None,
        ..ControllerConfig::default()
    };
    let found = switchback_core::controller::Files::default();
    let controller = Controller::new(config, Mechanisms::ALL, &found, 1, clock.now()).unwrap();
    let started = ControllerThread::start(
        controller,
        files,
        Arc::clone(&inbox),
        carrier,
        clock,
        stop.clone(),
    );
    let hello =
        NodeReport::Hello { boot: 1, address: node, chains: ByChain::default(), failure: None };
    said(&inbox, Peer::Node(0), Message::FromNode(hello));
    let address = Address::in_memory(2, 0);
    let hello = SwitchReport::Hello {
        boot: 1,
        address,
        layer: 1,
        domain: String::new(),
        epoch: 0,
        classes: vec![(1024, 16)],
        needs_epoch: false,
    };
    said(&inbox, Peer::Switch(0), Message::FromSwitch(hello));
    let (handle, _) = started.unwrap();
    until(|| handle.call(|controller, _| controller.is_serving()).unwrap());
    (handle, inbox, snapshots)
}

fn until(happened: impl Fn() -> bool) {
    while !happened() {
        thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn chains_switches_and_partitions_are_the_controllers() {
    let directory = tempfile::tempdir().unwrap();
    let (files, _) = ControllerFiles::open(directory.path()).unwrap();
    let stop = Stop::default();
    let (handle, _, _snapshots) = controller(files, &stop);
    let epoch = handle.call(|controller, _| controller.epoch()).unwrap();
    let alone = Supervisor::new(&RackConfig::default());
    let supervisor =
        Supervisor { controller: Some(handle), ..Supervisor::new(&RackConfig::default()) };
    let chains = supervisor.chains().unwrap();
    assert_eq!(chains.len(), 1);
    assert_eq!((chains[0].chain, chains[0].phase.as_str()), (0, "serving"));
    assert_eq!((chains[0].epoch, chains[0].switch), (epoch, Some(0)));
    let switches = supervisor.switches().unwrap();
    assert_eq!((switches.len(), switches[0].index, switches[0].active), (1, 0, true));
    let whole = PartitionStatus {
        first_key: "0".repeat(32),
        replicas: vec![0],
        ..PartitionStatus::default()
    };
    assert_eq!(supervisor.partitions().unwrap(), [whole]);
    assert!(matches!(alone.chains(), Err(AdminError::Unsupported(_))));
    assert!(matches!(alone.switches(), Err(AdminError::Unsupported(_))));
    assert!(matches!(alone.partitions(), Err(AdminError::Unsupported(_))));
    stop.ask();
}

#[test]
fn the_most_counted_keys_come_first_and_those_that_the_switch_does_not_have_last() {
    let directory = tempfile::tempdir().unwrap();
    let (files, _) = ControllerFiles::open(directory.path()).unwrap();
    let stop = Stop::default();
    let (handle, inbox, _snapshots) = controller(files, &stop);
    let offer = |key: u8| {
        let (id, hash) = (OfferId::from_bits(key.into()), KeyHash([key; 16]));
        Offer { id, hash, key: vec![b'k', key], value_bytes: 8, count: 1 }
    };
    let epoch = handle.call(|controller, _| controller.epoch()).unwrap();
    let offers = NodeReport::Offers { epoch, offers: (b'1'..=b'3').map(offer).collect() };
    said(&inbox, Peer::Node(0), Message::FromNode(offers));
    let all_cached = |keys: Vec<CachedKeyStatus>| {
        keys.len() == 3 && keys.iter().all(|key| key.stage == "cached")
    };
    until(|| all_cached(handle.call(|controller, _| controller.cached_keys()).unwrap()));

    let supervisor =
        Supervisor { controller: Some(handle), ..Supervisor::new(&RackConfig::default()) };
    let CachedStatus { total, records } = supervisor.cached(usize::MAX).unwrap();
    let told = |record: &CachedRecord| {
        (record.key.clone(), record.count, record.dirty, record.bytes, record.age_seconds.is_some())
    };
    let expected = [
        ("k3".to_owned(), Some(2), Some(true), Some(9), true),
        ("k2".to_owned(), Some(1), Some(false), Some(9), true),
        ("k1".to_owned(), None, None, None, true),
    ];
    assert_eq!((total, records.iter().map(told).collect::<Vec<_>>()), (3, expected.to_vec()));
    let first = supervisor.cached(1).unwrap();
    assert_eq!((first.total, first.records[0].key.as_str()), (3, "k3"));
    let alone = Supervisor::new(&RackConfig::default());
    assert!(matches!(alone.cached(1), Err(AdminError::Unsupported(_))));
    stop.ask();
}

#[test]
fn a_snapshot_that_began_before_it_was_asked_for_is_not_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let (files, _) = ControllerFiles::open(directory.path()).unwrap();
    let stop = Stop::default();
    let (handle, inbox, snapshots) = controller(files, &stop);
    handle.call(|controller, now| controller.snapshot_now(now)).unwrap();
    let earlier = snapshots.recv().unwrap();

    let supervisor =
        Supervisor { controller: Some(handle.clone()), ..Supervisor::new(&RackConfig::default()) };
    let before = handle.messages();
    let asked = thread::spawn(move || supervisor.snapshot());
    // Each call wakes the controller: the request is the first, and its first look comes after it.
    until(|| handle.messages() > before + 1);
    let mut began = earlier;
    while !asked.is_finished() {
        let epoch = handle.call(|controller, _| controller.epoch()).unwrap();
        let end = SwitchReport::SnapshotEnd { epoch, generation: began, chunks: 0, complete: true };
        said(&inbox, Peer::Switch(0), Message::FromSwitch(end));
        began = snapshots.recv_timeout(LOOK_AGAIN).unwrap_or(began);
    }
    let taken = asked.join().unwrap().unwrap();
    assert!(taken.generation > earlier, "{} began before it was asked for", taken.generation);
    stop.ask();
}
