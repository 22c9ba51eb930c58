//! The parts of a distributed rack over real sockets, in one process: what the client library sees
//! when a part goes.

#![allow(clippy::unwrap_used)]

mod http;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_client::{Client, ClientConfig, Error, Options};
use switchback_core::controller::{ChainStatus, ControllerStatus};
use switchback_net::free_addresses;
use switchback_rack::admin::{Admin, MetricsServer, RackStatus};
use switchback_rack::config::{Overrides, RackConfig};
use switchback_rack::metrics::Sources;
use switchback_rack::observer::{EventsStatus, What};
use switchback_rack::parts::{ControllerPart, NodePart, SwitchPart};
use switchback_rack::supervise::Supervisor;
use switchback_rack::threads::PacketLog;
use tempfile::TempDir;

/// What takes longer than this hangs: a busy machine may stall everything for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first switch's packets, in the rack's directory.
const CAPTURE: &str = "packets.pcap";

fn parsed(text: &str, directory: &Path) -> RackConfig {
    match RackConfig::parse(text, "test.toml", directory, &Overrides::default()) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// Two switches, two nodes, a controller.
fn config(directory: &Path, records: u32) -> RackConfig {
    let [controller, switch, spare, node, other] = free_addresses().unwrap();
    let text = format!(
        "[rack]\nsnapshot_period_ms = 300\nswitch_timeout_ms = 1000\nlease_ms = 2000\n\n\
         [cache]\nrecords = {records}\nthreshold = 3\nsampling = 1.0\n\n\
         [controller]\nlisten = \"{controller}\"\nbypass_ms = 300\n\n\
         [[switch]]\naddress = \"{switch}\"\n\n[[switch]]\naddress = \"{spare}\"\n\n\
         [[node]]\naddress = \"{node}\"\nsync = \"none\"\n\n\
         [[node]]\naddress = \"{other}\"\nsync = \"none\"\n",
    );
    parsed(&text, directory)
}

fn options() -> Options {
    let session = ClientConfig { deadline_us: 10_000_000, ..ClientConfig::default() };
    Options { session, ..Options::default() }
}

/// Repeats a write whose outcome is indeterminate: the last value is what counts here.
async fn write(client: &Client, key: &[u8], value: &[u8]) {
    for _ in 0..20 {
        match client.set(key, value).await {
            Ok(_) => return,
            Err(Error::Indeterminate | Error::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no write succeeds");
}

/// Repeats a read that a busy machine has let wait too long.
async fn value(client: &Client, key: &[u8]) -> Option<Vec<u8>> {
    for _ in 0..20 {
        match client.get(key).await {
            Ok(found) => return found.map(|found| found.value),
            Err(Error::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no read succeeds");
}

/// Makes some keys hot, until the cache takes writes.
async fn warm(client: &Client) {
    let start = Instant::now();
    let before = client.statistics().await.unwrap().answered_by_cache;
    loop {
        for key in 0..50u32 {
            write(client, &key.to_be_bytes(), b"warm").await;
        }
        let statistics = client.statistics().await.unwrap();
        if statistics.answered_by_cache > before + 100 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the cache doesn't warm up: {statistics:?}");
    }
}

/// Writes what [`warm`] has made hot, once and until this holds: a switch may learn later than
/// others.
async fn write_until(client: &Client, value: &[u8], holds: impl Fn() -> bool) {
    let start = Instant::now();
    loop {
        for key in 0..50u32 {
            write(client, &key.to_be_bytes(), value).await;
        }
        if holds() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "switches don't take what is written");
    }
}

/// Waits until the controller hears `count` switches.
async fn until_alive(controller: &ControllerPart, count: usize) {
    let start = Instant::now();
    loop {
        let status = controller.controller.call(|it, now| it.status(now)).unwrap();
        if status.switches.iter().filter(|switch| switch.alive).count() == count {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not {count} switches: {status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A controller after another one, whose port and files may be in use for a moment yet.
async fn restarted(config: &RackConfig) -> ControllerPart {
    let start = Instant::now();
    loop {
        match ControllerPart::start(config) {
            Ok(controller) => return controller,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A rack that serves, of which the spare isn't started, and a client of it.
struct Rack {
    config: RackConfig,
    controller: ControllerPart,
    nodes: [NodePart; 2],
    switch: SwitchPart,
    client: Client,
    directory: TempDir,
}

impl Rack {
    /// With room for `records` in its cache, which has begun to serve.
    async fn start(records: u32) -> Rack {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), records);
        let controller = ControllerPart::start(&config).unwrap();
        let nodes = [0, 1].map(|index| NodePart::start(&config, index).unwrap());
        let log = PacketLog::create(&directory.path().join(CAPTURE), 1 << 20).unwrap();
        let switch = SwitchPart::start(&config, 0, Some(log)).unwrap();
        let client = Client::connect(config.controller.listen, options()).await.unwrap();
        warm(&client).await;
        Rack { config, controller, nodes, switch, client, directory }
    }
}

#[tokio::test]
async fn a_spare_takes_over_and_nothing_is_lost() {
    let Rack { config, controller, nodes, switch: first, client, directory } =
        Rack::start(1024).await;
    let large = vec![7; 100_000];
    write(&client, b"large", &large).await;
    write_until(&client, &[1; 100], || first.datapath.statistics().absorbed_writes > 50).await;
    let second = SwitchPart::start(&config, 1, None).unwrap();
    let before = controller.controller.call(|controller, _| controller.epoch()).unwrap();
    // The spare has said hello; then the first is gone, with everything in it.
    until_alive(&controller, 2).await;
    first.stop();
    let captured = std::fs::metadata(directory.path().join(CAPTURE)).unwrap().len();
    assert!((10_000..=1 << 20).contains(&captured), "{captured} B of packets");
    for key in 0..50u32 {
        assert_eq!(value(&client, &key.to_be_bytes()).await, Some(vec![1; 100]), "key {key}");
    }
    assert_eq!(value(&client, b"large").await, Some(large));
    let after = controller.controller.call(|controller, _| controller.epoch()).unwrap();
    assert!(after > before);
    warm(&client).await;
    let status = controller.controller.call(|controller, now| controller.status(now)).unwrap();
    println!("recovery: {:?}", status.recovery);
    assert!(second.datapath.statistics().absorbed_writes > 0);
    drop(client);
    second.stop();
    controller.stop();
    nodes.into_iter().for_each(NodePart::stop);
}

#[tokio::test]
async fn a_killed_switchs_recovery_is_told_as_an_event_with_the_steps_of_the_status() {
    let Rack { config, controller, nodes, switch: first, client, directory: _directory } =
        Rack::start(1024).await;
    let handle = controller.controller.clone();
    let supervisor = Supervisor { controller: Some(handle), ..Supervisor::new(&config) };
    let any = "127.0.0.1:0".parse().unwrap();
    let admin = Arc::new(supervisor);
    let metrics = MetricsServer::start(any, &config, admin, Sources::default()).unwrap();
    let second = SwitchPart::start(&config, 1, None).unwrap();
    let serves = |status: &RackStatus| status.switches.iter().filter(|it| it.alive).count() == 2;
    let before: RackStatus = http::until(metrics.address(), "/status", serves);
    first.stop();
    // Its keys come back into the cache as they are asked for.
    warm(&client).await;
    let is_over = |status: &RackStatus| {
        status.epoch > before.epoch && status.recovery.as_ref().is_some_and(|it| it.complete)
    };
    let after: RackStatus = http::until(metrics.address(), "/status", is_over);
    let recovery = after.recovery.unwrap();
    let is_told = |events: &EventsStatus| {
        let told = events.events.iter().rev().find_map(|event| match &event.what {
            What::Recovery(told) => Some(told),
            _ => None,
        });
        told == Some(&recovery)
    };
    let events: EventsStatus = http::until(metrics.address(), "/events", is_told);
    assert!(events.has_controller);
    let mut epochs = events.events.iter().filter_map(|event| match event.what {
        What::Epoch { epoch } => Some(epoch),
        _ => None,
    });
    assert_eq!(epochs.next_back(), Some(recovery.epoch));
    metrics.stop();
    drop(client);
    second.stop();
    controller.stop();
    nodes.into_iter().for_each(NodePart::stop);
}

/// Two chains, a spare for both, two nodes, a controller.
fn config_of_two_chains(directory: &Path) -> RackConfig {
    let [controller, switch, other, spare, node, second] = free_addresses().unwrap();
    let text = format!(
        "[rack]\nsnapshot_period_ms = 300\nswitch_timeout_ms = 1000\nlease_ms = 2000\n\n\
         [cache]\nrecords = 1024\n\n\
         [controller]\nlisten = \"{controller}\"\nbypass_ms = 10000\n\n\
         [topology]\nchains = 2\n\n\
         [[switch]]\naddress = \"{switch}\"\n\n[[switch]]\naddress = \"{other}\"\n\n\
         [[switch]]\naddress = \"{spare}\"\n\n\
         [[node]]\naddress = \"{node}\"\nsync = \"none\"\n\n\
         [[node]]\naddress = \"{second}\"\nsync = \"none\"\n",
    );
    parsed(&text, directory)
}

/// Fails if two switches don't share the keys, if the death of one loses what it absorbed or begins
/// an epoch of the other's chain, or if a restarted controller forgets which of them serves what.
#[tokio::test]
async fn chains_serve_their_own_keys_and_one_dies_without_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_of_two_chains(directory.path());
    let controller = ControllerPart::start(&config).unwrap();
    let nodes = [0, 1].map(|index| NodePart::start(&config, index).unwrap());
    let switches = [0, 1].map(|index| SwitchPart::start(&config, index, None).unwrap());
    let client = Client::connect(config.controller.listen, options()).await.unwrap();
    warm(&client).await;
    let all_absorb =
        || switches.iter().all(|switch| switch.datapath.statistics().absorbed_writes > 10);
    write_until(&client, &[1; 100], all_absorb).await;
    controller.stop();
    let controller = restarted(&config).await;
    let spare = SwitchPart::start(&config, 2, None).unwrap();
    let chains = |controller: &ControllerPart| {
        controller.controller.call(|controller, now| controller.chain_statuses(now)).unwrap()
    };
    let start = Instant::now();
    while !chains(&controller).iter().all(|chain| chain.phase == "serving") {
        assert!(start.elapsed() < PATIENCE, "{:?}", chains(&controller));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = chains(&controller);
    // The spare has said hello; then the first is gone, with everything in it.
    until_alive(&controller, 3).await;
    let [first, second] = switches;
    first.stop();
    for key in 0..50u32 {
        assert_eq!(value(&client, &key.to_be_bytes()).await, Some(vec![1; 100]), "key {key}");
    }
    // The other chain alone could answer as much as `warm` asks for.
    write_until(&client, b"warm", || spare.datapath.statistics().absorbed_writes > 0).await;
    let after = chains(&controller);
    let of = |switch| before.iter().position(|chain| chain.members == [switch]).unwrap();
    let (died, lived) = (of(0), of(1));
    assert_eq!(after[died].members, [2]);
    assert!(after[died].epoch > before[died].epoch);
    assert_eq!(after[lived].members, [1]);
    assert_eq!(after[lived].epoch, before[lived].epoch);
    drop(client);
    second.stop();
    spare.stop();
    controller.stop();
    nodes.into_iter().for_each(NodePart::stop);
}

/// A chain of two switches, and a spare of each layer.
fn config_of_two_layers(directory: &Path) -> RackConfig {
    let [controller, first, second, third, fourth, node] = free_addresses().unwrap();
    let switches: String = [first, second, third, fourth]
        .map(|address| format!("[[switch]]\naddress = \"{address}\"\n\n"))
        .concat();
    let text = format!(
        "[rack]\nscheme = \"distreach\"\nswitch_timeout_ms = 1000\nlease_ms = 2000\n\n\
         [topology]\nlayers = 2\n\n[controller]\nlisten = \"{controller}\"\n\n{switches}\
         [[node]]\naddress = \"{node}\"\nsync = \"none\"\n",
    );
    parsed(&text, directory)
}

/// Fails if requests don't pass both switches of a chain, or if the death of either, keeper or
/// owner, loses what the chain had absorbed, or isn't mended by the spare of its layer.
#[tokio::test]
async fn a_chain_of_two_switches_outlives_each_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_of_two_layers(directory.path());
    let controller = ControllerPart::start(&config).unwrap();
    let node = NodePart::start(&config, 0).unwrap();
    let [keeper, owner] = [0, 1].map(|index| SwitchPart::start(&config, index, None).unwrap());
    let client = Client::connect(config.controller.listen, options()).await.unwrap();
    let chain_is = async |members: &[u16]| {
        let start = Instant::now();
        loop {
            let chains = controller.controller.call(|it, now| it.chain_statuses(now)).unwrap();
            if chains[0].members == members && chains[0].phase == "serving" {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{chains:?}, not {members:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    chain_is(&[0, 1]).await;
    warm(&client).await;
    let both_have_records = || {
        let (kept, absorbed) =
            (keeper.datapath.statistics().kept, owner.datapath.statistics().absorbed_writes);
        kept > 10 && absorbed > 10
    };
    write_until(&client, &[1; 100], both_have_records).await;
    let spares = [2, 3].map(|index| SwitchPart::start(&config, index, None).unwrap());
    until_alive(&controller, 4).await;
    let mut value_of_all = 1;
    for (dies, members) in [(owner, [0, 3]), (keeper, [2, 3])] {
        dies.stop();
        for key in 0..50u32 {
            let found = value(&client, &key.to_be_bytes()).await;
            assert_eq!(found, Some(vec![value_of_all; 100]), "key {key}");
        }
        chain_is(&members).await;
        warm(&client).await;
        value_of_all += 1;
        for key in 0..50u32 {
            write(&client, &key.to_be_bytes(), &[value_of_all; 100]).await;
        }
    }
    drop(client);
    spares.into_iter().for_each(SwitchPart::stop);
    controller.stop();
    node.stop();
}

/// Two chains of two switches, the layers of which are in domains of their own, without spares.
fn config_of_two_domains(directory: &Path) -> RackConfig {
    let [controller, first, second, third, fourth, node] = free_addresses().unwrap();
    let switches: String = [(first, "left"), (second, "right"), (third, "left"), (fourth, "right")]
        .map(|(address, domain)| {
            format!("[[switch]]\naddress = \"{address}\"\ndomain = \"{domain}\"\n\n")
        })
        .concat();
    let text = format!(
        "[rack]\nscheme = \"distreach\"\nswitch_timeout_ms = 1000\nlease_ms = 2000\n\
         snapshot_period_ms = 100\n\n\
         [topology]\nlayers = 2\nchains = 2\n\n\
         [controller]\nlisten = \"{controller}\"\n\n{switches}\
         [[node]]\naddress = \"{node}\"\nsync = \"none\"\n",
    );
    parsed(&text, directory)
}

/// Fails if a snapshot is taken of what switches of two domains have, or
/// if what only those of one domain have left is lost, or asked of clients.
#[tokio::test]
async fn chains_in_two_domains_are_recovered_from_one_of_them_and_no_client_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_of_two_domains(directory.path());
    let controller = ControllerPart::start(&config).unwrap();
    let node = NodePart::start(&config, 0).unwrap();
    let [first, second, third, fourth] =
        [0, 1, 2, 3].map(|index| SwitchPart::start(&config, index, None).unwrap());
    let client = Client::connect(config.controller.listen, options()).await.unwrap();
    let status = || controller.controller.call(|it, now| it.status(now)).unwrap();
    let until = async |what: &str, is: &dyn Fn(&ControllerStatus) -> bool| {
        let start = Instant::now();
        while !is(&status()) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", status());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let is_whole = |status: &ControllerStatus| {
        let whole = |chain: &ChainStatus| chain.members.len() == 2 && chain.phase == "serving";
        status.chains.iter().all(whole)
    };
    until("two chains of two switches serve", &is_whole).await;
    warm(&client).await;
    // While a chain had one switch, clients protected it, and snapshots were taken; the last one
    // has ended by now.
    let snapshots_before = status().snapshots_completed;
    let owners_absorb =
        || [&second, &fourth].iter().all(|it| it.datapath.statistics().absorbed_writes > 10);
    write_until(&client, &[1; 100], owners_absorb).await;
    assert!(status().chains.iter().all(|chain| chain.domains == 2 && !chain.preserved));
    // Some periods of snapshots.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(status().snapshots_completed, snapshots_before);

    // One domain dies, which has both owners.
    [second, fourth].into_iter().for_each(SwitchPart::stop);
    for key in 0..50u32 {
        let found = value(&client, &key.to_be_bytes()).await;
        assert_eq!(found, Some(vec![1; 100]), "key {key}");
    }
    let is_left = |status: &ControllerStatus| {
        let left = |chain: &ChainStatus| chain.members.len() == 1 && chain.phase == "serving";
        status.chains.iter().all(left)
    };
    until("what is left serves", &is_left).await;
    let after = status();
    let recovery = after.recovery.expect("there was one");
    assert!(recovery.loaded > 0 && recovery.gathered == 0, "{recovery:?}");
    let protects = |chain: &ChainStatus| (chain.domains, chain.preserved, chain.losses);
    assert!(after.chains.iter().all(|chain| protects(chain) == (1, true, 0)), "{after:?}");
    drop(client);
    [first, third].into_iter().for_each(SwitchPart::stop);
    controller.stop();
    node.stop();
}

/// Fails if a rack without any switch serves nothing, loses what the switch had absorbed, or
/// doesn't come back to its cache.
#[tokio::test]
async fn without_any_switch_clients_send_to_the_nodes() {
    let Rack { config, controller, nodes, switch, client, directory: _kept } =
        Rack::start(1024).await;
    for key in 0..50u32 {
        write(&client, &key.to_be_bytes(), &[1; 100]).await;
    }
    switch.stop();
    for key in 0..50u32 {
        assert_eq!(value(&client, &key.to_be_bytes()).await, Some(vec![1; 100]), "key {key}");
        write(&client, &key.to_be_bytes(), &[2; 100]).await;
    }
    write(&client, b"large", &vec![7; 100_000]).await;
    assert!(controller.controller.call(|controller, _| controller.is_bypassing()).unwrap());
    // A node that restarts has forgotten which numbers it gave out.
    let [first, second] = nodes;
    second.stop();
    let second = NodePart::start(&config, 1).unwrap();
    for key in 0..50u32 {
        assert_eq!(value(&client, &key.to_be_bytes()).await, Some(vec![2; 100]), "key {key}");
        write(&client, &key.to_be_bytes(), &[3; 100]).await;
    }
    let switch = SwitchPart::start(&config, 1, None).unwrap();
    warm(&client).await;
    assert!(!controller.controller.call(|controller, _| controller.is_bypassing()).unwrap());
    assert!(switch.datapath.statistics().absorbed_writes > 0);
    assert_eq!(value(&client, b"large").await, Some(vec![7; 100_000]));
    drop(client);
    switch.stop();
    controller.stop();
    [first, second].into_iter().for_each(NodePart::stop);
}

/// Fails if the controller's process can't tell what only the switch's process knows.
#[tokio::test]
async fn an_operator_of_the_controller_sees_what_the_switch_counted() {
    let Rack { config, controller, nodes, switch, client, directory: _kept } =
        Rack::start(1024).await;
    for _ in 0..1_000 {
        write(&client, b"hottest", &[1; 100]).await;
    }
    let supervisor =
        Supervisor { controller: Some(controller.controller.clone()), ..Supervisor::new(&config) };
    let cached = supervisor.cached(10).unwrap();
    assert_eq!((cached.records.len(), cached.total > 10), (10, true));
    let hottest = &cached.records[0];
    assert_eq!((hottest.key.as_str(), hottest.bytes), ("hottest", Some(107)));
    assert!(hottest.dirty.is_some() && hottest.age_seconds.is_some(), "{hottest:?}");
    let counts: Vec<_> = cached.records.iter().map(|record| record.count).collect();
    assert!(
        counts.is_sorted_by(|first, next| first >= next) && counts[0] > counts[9],
        "{counts:?}"
    );
    drop(client);
    switch.stop();
    controller.stop();
    nodes.into_iter().for_each(NodePart::stop);
}

#[tokio::test]
async fn a_controller_may_restart_while_the_rack_serves() {
    let Rack { config, controller, nodes, switch, client, directory: _kept } =
        Rack::start(1024).await;
    let epoch = controller.controller.call(|controller, _| controller.epoch()).unwrap();
    let cached = controller.controller.call(|controller, _| controller.cached()).unwrap();
    assert!(cached > 0);
    controller.stop();
    write(&client, b"meanwhile", b"1").await;
    let controller = restarted(&config).await;
    let start = Instant::now();
    loop {
        let serving = controller.controller.call(|controller, _| controller.is_serving()).unwrap();
        if serving {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Nothing was recovered, since nothing was lost; what was cached still is.
    assert_eq!(controller.controller.call(|controller, _| controller.epoch()).unwrap(), epoch);
    assert_eq!(controller.controller.call(|controller, _| controller.cached()).unwrap(), cached);
    assert_eq!(value(&client, b"meanwhile").await, Some(b"1".to_vec()));
    warm(&client).await;
    drop(client);
    switch.stop();
    controller.stop();
    nodes.into_iter().for_each(NodePart::stop);
}

#[tokio::test]
async fn a_dead_nodes_cached_records_are_served_and_stored_when_it_is_back() {
    let Rack { config, controller, nodes: [node, victim], switch, client, directory: _kept } =
        Rack::start(64).await;
    let cached = controller.controller.call(|controller, _| controller.cached_keys()).unwrap();
    let theirs: Vec<_> =
        cached.iter().filter(|key| key.node == 1).map(|key| key.key.clone()).collect();
    assert!(theirs.len() > 5, "{} keys of the node are cached", theirs.len());
    for key in &theirs {
        write(&client, key, b"only in the cache").await;
    }
    victim.stop();
    // Keys of the other node want slots: while theirs can't be stored, the records stay readable,
    // evicting or not.
    let (hash_key, map) = controller
        .controller
        .call(|controller, _| (controller.hash_key(), controller.map().clone()))
        .unwrap();
    let node_of = |key: &[u8]| map.of(hash_key.hash(key)).head();
    let others: Vec<_> =
        (1000..1400u32).map(u32::to_be_bytes).filter(|key| node_of(key) == 0).take(80).collect();
    for _ in 0..10 {
        for key in &others {
            write(&client, key, b"hot").await;
        }
        for key in &theirs {
            assert_eq!(value(&client, key).await.as_deref(), Some(&b"only in the cache"[..]));
        }
    }
    let victim = NodePart::start(&config, 1).unwrap();
    for key in &theirs {
        assert_eq!(value(&client, key).await.as_deref(), Some(&b"only in the cache"[..]));
    }
    let start = Instant::now();
    controller.controller.call(|controller, now| controller.drain(now)).unwrap();
    while !controller.controller.call(|controller, _| controller.is_drained()).unwrap() {
        assert!(start.elapsed() < PATIENCE, "the drain doesn't end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for key in &theirs {
        assert_eq!(
            value(&client, key).await.as_deref(),
            Some(&b"only in the cache"[..]),
            "from its node"
        );
    }
    drop(client);
    switch.stop();
    controller.stop();
    [node, victim].into_iter().for_each(NodePart::stop);
}
