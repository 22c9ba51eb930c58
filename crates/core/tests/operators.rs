//! What operators ask of a controller: drains, and files of another rack.

mod rack;

use rack::{NOW, Rack};
use switchback_core::controller::{Controller, ControllerConfig, Files, Store, StoreFile};
use switchback_core::mechanisms::Mechanisms;
use switchback_wire::{Address, Map};

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

/// Fails if a rack is opened whose keys would be looked for at other nodes than those that store
/// them.
#[test]
fn the_shape_of_a_rack_is_that_of_its_first_start() {
    let config = |nodes: u16, partitions: usize| ControllerConfig {
        nodes: (0..nodes).map(|node| Address::in_memory(3, node)).collect(),
        map: Map::equal((0..partitions).map(|partition| vec![partition as u16 % nodes]).collect()),
        ..ControllerConfig::default()
    };
    let open = |config, files: &Files| Controller::new(config, Mechanisms::ALL, files, 1, NOW);
    let mut controller = open(config(2, 256), &Files::default()).unwrap();
    let Some(Store { file: StoreFile::Directory, bytes, .. }) = controller.poll_op() else {
        panic!("no directory")
    };
    let files = Files { directory: Some(bytes), snapshot: None };
    assert!(open(config(2, 256), &files).is_ok());
    for (nodes, partitions, expected) in [
        (
            4,
            256,
            "made with 2 nodes and can't be opened with 4: say --nodes 2, or count = 2 under [nodes]",
        ),
        (
            2,
            512,
            "made with 256 partitions and can't be opened with 512: say partitions = 256 under [rack]",
        ),
        (
            2,
            128,
            "made with 256 partitions and can't be opened with 128: say partitions = 256 under [rack]",
        ),
    ] {
        let error = open(config(nodes, partitions), &files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(Controller::check(&files, nodes.into(), partitions).is_err());
    }
}
