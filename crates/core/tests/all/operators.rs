//! What operators ask of a controller: drains, inspections, and files of another rack.

use crate::rack::{NOW, Rack, inspected};
use switchback_core::control::{
    BATCH_MAX, Command, Inspected, Message, Offer, Peer, SwitchCommand, SwitchReport, SwitchResult,
};
use switchback_core::controller::{
    Controller, ControllerConfig, Files, Inspection, RackShape, Store, StoreFile, deal_partitions,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::storage::OfferId;
use switchback_wire::{Address, KeyHash, Scheme};

/// Fails if the end of one drain ends another: a rack that shuts down would wait for ever for a
/// cache that fills again.
#[test]
fn a_drain_lasts_until_all_who_asked_for_it_have_ended_it() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1]);
    assert_eq!(rack.controller.cached(), 1);
    rack.controller.drain(rack.now);
    rack.controller.drain(rack.now);
    rack.controller.resume();
    assert!(rack.controller.status(rack.now).draining);
    rack.node_offers(&[2]);
    assert_eq!(
        rack.controller.status(rack.now).declined_offers.total(),
        1,
        "nothing new is cached"
    );
    rack.controller.resume();
    assert!(!rack.controller.status(rack.now).draining);
    rack.node_offers(&[2]);
    assert_eq!(rack.controller.cached(), 2);
}

/// Longer than an inspection may take.
const TOO_LONG_US: u64 = 10_000_000;

impl Rack {
    /// An operator asks for what is cached.
    fn inspect(&mut self) -> Inspection {
        let inspection = self.controller.inspect(self.now);
        self.pass(0);
        inspection
    }

    /// What the switch told of each key; `None` while the inspection lasts.
    fn told(&self, inspection: &Inspection) -> Option<Vec<Option<Inspected>>> {
        let keys = self.controller.inspected(inspection, self.now)?;
        Some(keys.into_iter().map(|key| key.switch_has).collect())
    }
}

#[test]
fn an_inspection_asks_for_every_cached_key_one_batch_after_another() {
    let mut rack = Rack::with_clients(&[]);
    let offer = |number: u16| {
        let mut hash = [0; 16];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        let (id, key) = (OfferId::from_bits(1 + u64::from(number)), number.to_be_bytes().to_vec());
        Offer { id, hash: KeyHash(hash), key, value_bytes: 8, count: 1 }
    };
    let keys = BATCH_MAX as u16 + 44;
    rack.node_makes((0..keys).map(offer).collect());
    let inspection = rack.inspect();
    assert_eq!(rack.inspections, [BATCH_MAX, 44]);
    let told = rack.told(&inspection).unwrap();
    let first = told[0].unwrap().id;
    let expected: Vec<_> = (first..first + u64::from(keys)).map(inspected).map(Some).collect();
    assert_eq!(told, expected);
    assert_eq!(rack.controller.commands_outstanding(), 0);
}

/// Fails if each operator who waits adds to what the switch is asked, or if one waits for ever.
#[test]
fn operators_share_an_inspection_and_a_silent_switch_does_not_hold_them_up() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1, 2]);
    let told = rack.inspect();
    assert!(rack.told(&told).unwrap().iter().all(Option::is_some));
    rack.is_inspected = false;
    let inspection = rack.inspect();
    let outstanding = rack.controller.commands_outstanding();
    assert_eq!((rack.inspect(), rack.inspect()), (inspection.clone(), inspection.clone()));
    assert_eq!((outstanding, rack.controller.commands_outstanding()), (1, 1));
    assert_eq!(rack.told(&inspection), None);
    let deadline_us = rack.now.in_us(TOO_LONG_US);
    while rack.told(&inspection).is_none() {
        assert!(rack.now.monotonic_us < deadline_us, "the inspection doesn't end");
        rack.lives_for(100_000);
    }
    assert_eq!(rack.told(&inspection).unwrap(), [None, None], "not what it told the last time");
    assert_eq!(rack.controller.commands_outstanding(), 0, "it isn't asked any more");
    assert!(rack.told(&told).unwrap().iter().all(Option::is_some), "what it told is kept");
    rack.is_inspected = true;
    let next = rack.inspect();
    assert!(rack.told(&next).unwrap().iter().all(Option::is_some));
}

/// Fails if an operator waits for a switch that is dead, which says nothing of what it cached.
#[test]
fn an_inspection_ends_when_the_switch_dies() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1]);
    rack.is_inspected = false;
    let inspection = rack.inspect();
    let dies_us = ControllerConfig::default().switch_timeout_us;
    rack.pass(dies_us - 1);
    assert_eq!(rack.told(&inspection), None);
    rack.pass(1);
    assert_eq!(rack.told(&inspection), Some(vec![None]));
    let asked = rack.inspections.len();
    let inspection = rack.inspect();
    assert_eq!(rack.told(&inspection), Some(vec![None]), "at once");
    assert_eq!(rack.inspections.len(), asked, "there is no switch to ask");
}

#[test]
fn an_inspection_ends_with_the_epoch() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1]);
    rack.is_inspected = false;
    let inspection = rack.inspect();
    assert_eq!(rack.told(&inspection), None);
    rack.switch_starts(2);
    assert_eq!(rack.told(&inspection), Some(Vec::new()), "the switch has forgotten the key");
}

/// Fails if an answer to an inspection that was given up counts for the next one.
#[test]
fn a_late_answer_to_an_inspection_does_not_go_on_with_the_next_one() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1]);
    rack.is_inspected = false;
    rack.controller.inspect(rack.now);
    let sent = rack.controller.poll_message().unwrap();
    let Message::ToSwitch(Command { id, epoch, body: SwitchCommand::Inspect(asked), .. }) =
        sent.message
    else {
        panic!("{sent:?} is no inspecting command")
    };
    for _ in 0..TOO_LONG_US / 100_000 {
        rack.lives_for(100_000);
    }
    let next = rack.inspect();
    let result = SwitchResult::Inspected(asked.into_iter().map(inspected).collect());
    let late = SwitchReport::Done { id, epoch, result };
    rack.hear(Peer::Switch(0), Message::FromSwitch(late));
    assert_eq!(rack.told(&next), None);
}

#[test]
fn a_key_has_an_age_unless_it_was_cached_before_the_controller_started() {
    let mut rack = Rack::with_clients(&[]);
    rack.node_offers(&[1]);
    rack.now.monotonic_us += 7;
    rack.node_offers(&[2]);
    rack.now.monotonic_us += 5;
    let inspection = rack.inspect();
    let ages = |rack: &Rack, inspection| -> Vec<_> {
        let keys = rack.controller.inspected(inspection, rack.now).unwrap();
        keys.into_iter().map(|key| (key.key.key, key.age_us)).collect()
    };
    assert_eq!(ages(&rack, &inspection), [(vec![1], Some(12)), (vec![2], Some(5))]);
    rack.controller_restarts();
    let inspection = rack.inspect();
    assert_eq!(ages(&rack, &inspection), [(vec![1], None), (vec![2], None)]);
}

/// Fails if a rack is opened whose keys would be looked for at other nodes than those that store
/// them.
#[test]
fn the_shape_of_a_rack_is_that_of_its_first_start() {
    let config = |nodes: u16, replicas: u16, partitions: usize| ControllerConfig {
        nodes: (0..nodes).map(|node| Address::in_memory(3, node)).collect(),
        map: deal_partitions((nodes, replicas), 1, partitions as u32, 7),
        ..ControllerConfig::default()
    };
    let (scheme, chains) = (ControllerConfig::default().scheme, 1);
    let open = |config, files: &Files| Controller::new(config, Mechanisms::ALL, files, 1, NOW);
    let mut controller = open(config(2, 2, 256), &Files::default()).unwrap();
    let Some(Store { file: StoreFile::Directory, bytes, .. }) = controller.poll_op() else {
        panic!("no directory")
    };
    let files = Files { directory: Some(bytes), ..Files::default() };
    assert!(open(config(2, 2, 256), &files).is_ok());
    for (nodes, replicas, partitions, expected) in [
        (
            4,
            2,
            256,
            "made with 2 nodes and can't be opened with 4: say --nodes 2, or count = 2 under [nodes]",
        ),
        (
            2,
            2,
            512,
            "made with 256 partitions and can't be opened with 512: say partitions = 256 under [rack]",
        ),
        (
            2,
            1,
            256,
            "made with 2 replicas of each partition and can't be opened with 1: say replication = 2 under [rack]",
        ),
        (
            2,
            2,
            128,
            "made with 256 partitions and can't be opened with 128: say partitions = 256 under [rack]",
        ),
    ] {
        let error = open(config(nodes, replicas, partitions), &files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let (nodes, replicas) = (nodes.into(), replicas.into());
        let shape = RackShape { scheme, nodes, replicas, partitions, chains };
        assert!(Controller::check(&files, &shape).is_err());
    }
    let (nodes, replicas, partitions) = (2, 2, 256);
    let scheme = Scheme::DistCache;
    let shape = RackShape { scheme, nodes, replicas, partitions, chains };
    let error = Controller::check(&files, &shape).unwrap_err().to_string();
    assert!(error.contains("which scheme = \"distcache\" can't have"), "{error}");
}
