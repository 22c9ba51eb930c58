//! Chains of several switches: who forms one, in which order members are told, what happens when
//! one dies, returns, refuses, or when the controller starts again, and where a recovery takes
//! what was told from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_core::Now;
use switchback_core::control::{
    ClientNotice, ClientReport, Command, Destination, Entry, EntryId, Envelope, KeyedRecord,
    Message, NodeCommand, NodeReport, NodeStanding, Offer, Peer, SwitchCommand, SwitchReport,
    SwitchResult,
};
use switchback_core::controller::{
    ChainStatus, Controller, ControllerConfig, Files, Loss, OnLoss, Preserve, ServiceRefusal,
    StoreFile, Stored,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::storage::{OfferId, Record};
use switchback_core::topology::ByChain;
use switchback_wire::{Address, Heard, KeyHash, Map, Place, Scheme, Seq};

const NODE: Address = Address::in_memory(3, 0);
const CLIENT: u64 = 10;
const CLASSES: [(u32, u32); 1] = [(1024, 512)];

/// A switch as far as a controller notices.
#[derive(Default)]
struct Switch {
    boot: u64,
    epoch: u32,
    place: Option<Place>,
    entries: BTreeMap<EntryId, Entry>,
    /// What it was told to keep of an epoch, by its records.
    frozen: Vec<KeyedRecord>,
}

/// What a switch was told about entries.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Work {
    Admit(u16),
    Evict(u16),
    Remove(u16),
    List(u16),
    Load(u16),
    Clean(u16, Vec<(EntryId, Seq)>),
}

/// Two layers, one node, one client. Parts do at once what they are told, as far as they live.
struct Rack {
    now: Now,
    controller: Controller,
    files: Files,
    config: ControllerConfig,
    /// Whether switches are in domains of their own.
    apart: bool,
    /// Whether stores end at once.
    stores: bool,
    /// Whether the node does what it is told.
    node_obeys: bool,
    switches: BTreeMap<u16, Switch>,
    /// Those that take what they are told and say nothing.
    silent: BTreeSet<u16>,
    /// Those that refuse all entries.
    refusing: BTreeSet<u16>,
    told: Vec<Work>,
    /// Keys of records that the node was told to store.
    stored: Vec<u8>,
    /// Keys that it holds, if it holds any.
    held_keys: u32,
    /// Whether the client was told to move, and whether to bring what it preserves.
    moves: Vec<bool>,
    /// How often the client was asked to end its writes.
    quiesced: usize,
    /// What the client says of that is lost.
    quiet_is_lost: bool,
    /// Offers that the node was told to clear.
    cleared: usize,
    /// The address that the node takes packets from.
    owner: Option<Address>,
    /// Where the client sends.
    destination: Option<Destination>,
}

fn address(switch: u16) -> Address {
    Address::in_memory(2, switch)
}

impl Rack {
    fn new(layers: u8) -> Rack {
        Rack::with(layers, false, |_| ())
    }

    /// With this change of the configuration; `apart`: its switches are in domains of their own.
    fn with(layers: u8, apart: bool, change: impl FnOnce(&mut ControllerConfig)) -> Rack {
        let now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
        let files = Files::default();
        let mut config = ControllerConfig {
            nodes: vec![NODE],
            map: Map::equal(vec![vec![0]]),
            scheme: Scheme::DistReach,
            layers,
            ..ControllerConfig::default()
        };
        change(&mut config);
        let mut rack = Rack {
            now,
            controller: Rack::controller(&config, &files, now),
            files,
            config,
            apart,
            stores: true,
            node_obeys: true,
            switches: BTreeMap::new(),
            silent: BTreeSet::new(),
            refusing: BTreeSet::new(),
            told: Vec::new(),
            stored: Vec::new(),
            held_keys: 0,
            moves: Vec::new(),
            quiesced: 0,
            quiet_is_lost: false,
            cleared: 0,
            owner: None,
            destination: None,
        };
        rack.node_says_hello();
        rack
    }

    fn controller(config: &ControllerConfig, files: &Files, now: Now) -> Controller {
        Controller::new(config.clone(), Mechanisms::ALL, files, 1, now).expect("its own files")
    }

    /// The controller starts again.
    fn restart_controller(&mut self) {
        self.controller = Rack::controller(&self.config, &self.files, self.now);
        self.carry_out();
        self.node_says_hello();
    }

    /// A rack that serves with switches 0 and 1 and has cached this many keys.
    fn serving(keys: u8) -> Rack {
        Rack::new(2).served(keys)
    }

    /// The same, with switches in domains of their own.
    fn apart(keys: u8, change: impl FnOnce(&mut ControllerConfig)) -> Rack {
        Rack::with(2, true, change).served(keys)
    }

    fn served(mut self, keys: u8) -> Rack {
        self.start(0, 1);
        self.start(1, 2);
        self.client_says_hello();
        (0..keys).for_each(|key| self.offer(key));
        assert_eq!(self.members(), [0, 1]);
        self
    }

    fn chain(&self) -> ChainStatus {
        self.controller.chain_statuses(self.now).swap_remove(0)
    }

    fn node_says_hello(&mut self) {
        let (epoch, held_keys) = (self.controller.epoch(), self.held_keys);
        let standing = NodeStanding { epoch, held: false, needs_epoch: false, held_keys };
        let (boot, chains) = (1, ByChain::new(1, |_| standing));
        let hello = NodeReport::Hello { boot, address: NODE, chains, failure: None };
        self.hear(Peer::Node(0), Message::FromNode(hello));
    }

    fn client_says_hello(&mut self) {
        self.client_says_hello_in(ByChain::default());
    }

    /// The client is in this epoch of the chain.
    fn says_hello_in(&mut self, epoch: u32) {
        self.client_says_hello_in(ByChain::new(1, |_| epoch));
    }

    fn client_says_hello_in(&mut self, epochs: ByChain<u32>) {
        let hello = ClientReport::Hello {
            boot: 7,
            sent_us: self.now.monotonic_us,
            lanes: 4,
            epochs,
            pressure: false,
            spooled: false,
        };
        self.hear(Peer::Client(CLIENT), Message::FromClient(hello));
    }

    /// A switch of this layer starts, and says hello.
    fn start(&mut self, switch: u16, layer: u8) {
        self.start_with(switch, layer, &CLASSES);
    }

    fn start_with(&mut self, switch: u16, layer: u8, classes: &[(u32, u32)]) {
        let boot = self.switches.get(&switch).map_or(1, |known| known.boot + 1);
        self.switches.insert(switch, Switch { boot, ..Switch::default() });
        self.say_hello(switch, layer, classes);
    }

    fn say_hello(&mut self, switch: u16, layer: u8, classes: &[(u32, u32)]) {
        let Switch { boot, epoch, .. } = self.switches[&switch];
        let hello = SwitchReport::Hello {
            boot,
            address: address(switch),
            layer,
            domain: if self.apart { switch.to_string() } else { String::new() },
            epoch,
            classes: classes.to_vec(),
            needs_epoch: false,
        };
        self.hear(Peer::Switch(switch), Message::FromSwitch(hello));
    }

    /// Time passes, in which these switches, of these layers, say hello.
    fn pass(&mut self, us: u64, living: &[(u16, u8)]) {
        for _ in 0..us / 100_000 {
            self.now.monotonic_us += 100_000;
            for (switch, layer) in living {
                self.say_hello(*switch, *layer, &CLASSES);
            }
            self.client_says_hello();
            self.node_says_hello();
            self.controller.handle_timeout(self.now);
            self.carry_out();
        }
    }

    /// A switch tells how many probes have arrived: of the switch before and of the one after,
    /// short and full ones.
    fn hears(&mut self, switch: u16, counts: [u32; 4]) {
        let epoch = self.switches[&switch].epoch;
        let heard = SwitchReport::Heard { epoch, heard: Heard::from_counts(counts) };
        self.hear(Peer::Switch(switch), Message::FromSwitch(heard));
    }

    /// Time passes while all of these switches live, of which each hears what `heard` says after
    /// a number of heartbeats.
    fn pass_hearing(
        &mut self,
        us: u64,
        living: &[(u16, u8)],
        heard: impl Fn(u16, u32) -> [u32; 4],
    ) {
        for beat in 0..(us / 100_000) as u32 {
            self.pass(100_000, living);
            for (switch, _) in living {
                self.hears(*switch, heard(*switch, beat));
            }
        }
    }

    /// Why a switch isn't in a chain.
    fn refusal(&self, switch: u16) -> Option<String> {
        let switches = self.controller.status(self.now).switches;
        switches.into_iter().find(|it| it.index == switch)?.refusal
    }

    fn offer(&mut self, key: u8) {
        let id = OfferId::from_bits(u64::from(self.controller.epoch()) << 8 | u64::from(key));
        let (hash, epoch) = (KeyHash([key; 16]), self.controller.epoch());
        let offer = Offer { id, hash, key: vec![key], value_bytes: 8, count: 1 };
        self.hear(
            Peer::Node(0),
            Message::FromNode(NodeReport::Offers { epoch, offers: vec![offer] }),
        );
    }

    fn members(&self) -> Vec<u16> {
        self.controller.chain_statuses(self.now)[0].members.clone()
    }

    fn hear(&mut self, from: Peer, message: Message) {
        self.controller.handle_message(self.now, Envelope { from, to: Peer::Controller, message });
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let mut answers = VecDeque::new();
        loop {
            if let Some(store) = self.controller.poll_op() {
                if !self.stores {
                    continue;
                }
                if store.file == StoreFile::Directory {
                    self.files.directory = Some(store.bytes);
                }
                self.controller.handle_done(self.now, Stored { id: store.id });
            } else if let Some(envelope) = self.controller.poll_message() {
                answers.extend(self.deliver(envelope));
            } else if let Some(answer) = answers.pop_front() {
                self.controller.handle_message(self.now, answer);
            } else {
                return;
            }
        }
    }

    fn deliver(&mut self, Envelope { to, message, .. }: Envelope) -> Option<Envelope> {
        let message = match (to, message) {
            (Peer::Switch(switch), Message::ToSwitch(command)) => {
                Message::FromSwitch(self.obey(switch, command)?)
            }
            (_, Message::ToNode(_)) if !self.node_obeys => return None,
            (_, Message::ToNode(Command { id, chain, epoch, body })) => {
                match body {
                    NodeCommand::Epoch(config) => self.owner = config.switch,
                    NodeCommand::Store(records) => {
                        self.stored.extend(records.iter().map(|record| record.key[0]));
                    }
                    NodeCommand::ClearOffers(offers) => self.cleared += offers.len(),
                    _ => {}
                }
                Message::FromNode(NodeReport::Done { id, chain, epoch, error: None })
            }
            (_, Message::ToClient(ClientNotice::Granted(grant))) => {
                let chain = grant.chains.iter().next()?.1.clone()?;
                self.destination = Some(chain.destination);
                return None;
            }
            (_, Message::ToClient(ClientNotice::Quiesce { epoch, .. })) => {
                self.quiesced += 1;
                if self.quiet_is_lost {
                    return None;
                }
                Message::FromClient(ClientReport::Quiet { epoch })
            }
            (_, Message::ToClient(ClientNotice::Move { to, .. })) => {
                self.moves.push(to.gathers);
                if !to.gathers {
                    return None;
                }
                let epoch = to.epoch;
                let (chunk, last, records) = (0, true, Vec::new());
                Message::FromClient(ClientReport::Preserved { epoch, chunk, last, records })
            }
            _ => return None,
        };
        Some(Envelope { from: to, to: Peer::Controller, message })
    }

    fn obey(&mut self, switch: u16, command: Command<SwitchCommand>) -> Option<SwitchReport> {
        let Command { id, epoch, body, .. } = command;
        let refuses = self.refusing.contains(&switch);
        let its = self.switches.get_mut(&switch).expect("a switch that said hello");
        let result = match body {
            SwitchCommand::Configure(config) => {
                if config.boot != its.boot {
                    return None;
                }
                *its = Switch {
                    boot: its.boot,
                    epoch,
                    place: Some(config.place),
                    ..Switch::default()
                };
                SwitchResult::Ok
            }
            SwitchCommand::Freeze(config) => {
                if config.boot != its.boot {
                    return None;
                }
                let record = |entry: &Entry| {
                    let (hash, key) = (entry.hash, entry.key.clone());
                    let seq = Seq::new(its.epoch, entry.id & 0xff);
                    KeyedRecord { hash, key, record: Record { seq, ..Record::default() } }
                };
                let cached: Vec<_> = its.entries.values().map(record).collect();
                let frozen = if cached.is_empty() { its.frozen.clone() } else { cached };
                let (boot, place) = (its.boot, Some(config.place));
                *its = Switch { boot, epoch, place, frozen, ..Switch::default() };
                SwitchResult::Ok
            }
            SwitchCommand::LoadFrozen(_) => {
                self.told.push(Work::Load(switch));
                SwitchResult::Frozen(its.frozen.clone(), None)
            }
            SwitchCommand::Admit(entries) => {
                its.frozen.clear();
                self.told.push(Work::Admit(switch));
                let refused = entries.iter().map(|entry| entry.id).filter(|_| refuses).collect();
                if !refuses {
                    its.entries.extend(entries.into_iter().map(|entry| (entry.id, entry)));
                }
                SwitchResult::Admitted { refused }
            }
            SwitchCommand::EvictBegin { candidates, counts, .. } => {
                self.told.push(Work::Evict(switch));
                let chosen = candidates.into_iter().take(counts.len());
                SwitchResult::Evicting(chosen.map(|id| (id, None)).collect())
            }
            SwitchCommand::Remove(entries) => {
                self.told.push(Work::Remove(switch));
                its.entries.retain(|id, _| !entries.contains(id));
                SwitchResult::Ok
            }
            SwitchCommand::ListEntries(_) => {
                self.told.push(Work::List(switch));
                SwitchResult::Entries(its.entries.values().cloned().collect(), None)
            }
            SwitchCommand::Clean(versions) => {
                self.told.push(Work::Clean(switch, versions));
                SwitchResult::Ok
            }
            _ => SwitchResult::Ok,
        };
        (!self.silent.contains(&switch)).then_some(SwitchReport::Done { id, epoch, result })
    }

    fn cached_by(&self, switch: u16) -> usize {
        self.switches[&switch].entries.len()
    }
}

#[test]
fn a_new_chain_begins_with_all_its_layers_if_they_come_soon() {
    let mut rack = Rack::new(3);
    rack.start(0, 1);
    rack.start(2, 3);
    assert!(rack.members().is_empty(), "layer 2 is missing");
    rack.start(1, 2);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 1, 2], 1));
    assert!(rack.controller.is_serving());

    let mut rack = Rack::new(3);
    rack.start(0, 1);
    rack.pass(1_000_000, &[(0, 1)]);
    assert_eq!(rack.members(), [0], "it doesn't wait for ever");
    rack.start(2, 3);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 2], 2));
}

#[test]
fn members_hear_of_their_neighbours_nodes_of_the_owner_and_clients_of_the_first() {
    let mut rack = Rack::new(3);
    (0..3).for_each(|switch| rack.start(switch, switch as u8 + 1));
    rack.client_says_hello();
    let place = |switch: u16| rack.switches[&switch].place.expect("it is configured");
    let of = |position, before: Option<u16>, after: Option<u16>| Place {
        position,
        length: 3,
        before: before.map(address),
        after: after.map(address),
        protects: false,
    };
    assert_eq!(place(0), of(1, None, Some(1)));
    assert_eq!(place(1), of(2, Some(0), Some(2)));
    assert_eq!(place(2), of(3, Some(1), None));
    assert_eq!(rack.owner, Some(address(2)));
    assert_eq!(rack.destination, Some(Destination::Switch(address(0))));
}

#[test]
fn entries_get_to_keepers_before_the_owner_and_go_from_them_after_it() {
    let mut rack = Rack::serving(0);
    rack.silent.insert(0);
    rack.offer(1);
    assert_eq!(rack.told, [Work::Admit(0)], "the keeper hasn't confirmed it");
    rack.silent.clear();
    rack.pass(100_000, &[(0, 1), (1, 2)]);
    assert_eq!(rack.told[1..], [Work::Admit(0), Work::Admit(1)]);
    assert_eq!(rack.controller.cached(), 1);

    rack.told.clear();
    rack.silent.insert(0);
    rack.controller.drain(rack.now);
    rack.carry_out();
    assert_eq!(rack.told, [Work::Evict(1), Work::Remove(1), Work::Remove(0)]);
    assert_eq!((rack.cleared, rack.controller.cached()), (0, 1), "the keeper may have it still");
    rack.silent.clear();
    rack.pass(100_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.cleared, rack.controller.cached()), (1, 0));
    assert!(rack.controller.is_drained());
}

#[test]
fn an_entry_that_a_member_refuses_is_removed_where_it_is_and_its_offer_declined() {
    let mut rack = Rack::new(3);
    (0..3).for_each(|switch| rack.start(switch, switch as u8 + 1));
    rack.refusing.insert(1);
    rack.offer(1);
    assert_eq!(
        rack.told,
        [Work::Admit(0), Work::Admit(1), Work::Remove(0), Work::Remove(1)],
        "the owner isn't told"
    );
    assert_eq!((rack.cleared, rack.controller.cached()), (1, 0));

    rack.refusing = BTreeSet::from([2]);
    rack.offer(2);
    assert_eq!((rack.cleared, rack.controller.cached()), (2, 0), "the owner refused");
    assert!((0..3).all(|switch| rack.cached_by(switch) == 0));

    rack.refusing.clear();
    rack.offer(3);
    assert_eq!((rack.cleared, rack.controller.cached()), (2, 1));
}

#[test]
fn a_chain_goes_on_without_a_member_that_died_and_takes_it_back() {
    let mut rack = Rack::serving(1);
    rack.pass(1_000_000, &[(0, 1)]);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0], 2));
    assert!(rack.controller.is_serving());
    assert_eq!((rack.owner, rack.cached_by(0)), (Some(address(0)), 0), "it begins with nothing");
    rack.start(1, 2);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 1], 3));
    assert!(rack.controller.is_serving());
    rack.start(0, 1);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 1], 4), "a new life");
}

#[test]
fn a_spare_of_the_same_layer_takes_the_place_of_a_member_that_died() {
    let mut rack = Rack::serving(0);
    rack.start(2, 1);
    rack.start(3, 2);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 1], 1), "they wait");
    rack.pass(1_000_000, &[(0, 1), (2, 1), (3, 2)]);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 3], 2));
    rack.pass(1_000_000, &[(2, 1), (1, 2)]);
    assert_eq!(rack.members(), [2, 1], "both at once, and one of them is back as a spare");
}

#[test]
fn a_controller_that_starts_again_removes_what_only_keepers_hold() {
    let mut rack = Rack::serving(2);
    rack.silent.insert(1);
    rack.offer(2);
    assert_eq!((rack.cached_by(0), rack.cached_by(1)), (3, 3));
    // The owner never heard of it.
    let newest = *rack.switches[&1].entries.keys().next_back().expect("three");
    rack.switches.get_mut(&1).expect("it is there").entries.remove(&newest);
    rack.silent.clear();

    rack.told.clear();
    rack.restart_controller();
    rack.say_hello(0, 1, &CLASSES);
    assert!(!rack.controller.is_serving(), "the owner may live");
    rack.say_hello(1, 2, &CLASSES);
    assert_eq!(rack.told, [Work::List(0), Work::List(1), Work::Remove(0)]);
    assert!(rack.controller.is_serving());
    assert_eq!((rack.controller.epoch(), rack.controller.cached()), (1, 2));
    assert_eq!((rack.cached_by(0), rack.cached_by(1)), (2, 2));
    rack.offer(2);
    assert_eq!((rack.cached_by(0), rack.cached_by(1)), (3, 3), "it comes again");
}

#[test]
fn a_controller_that_starts_again_goes_on_without_a_member_that_does_not_come() {
    let mut rack = Rack::serving(1);
    rack.restart_controller();
    rack.pass(1_000_000, &[(1, 2)]);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![1], 2));
}

#[test]
fn a_switch_with_other_classes_or_of_no_layer_is_told_of() {
    let mut rack = Rack::new(2);
    rack.start(1, 2);
    rack.pass(1_000_000, &[(1, 2)]);
    rack.start_with(0, 1, &[(128, 8)]);
    rack.start(2, 3);
    assert_eq!(rack.members(), [1]);
    let refusals: Vec<_> = rack
        .controller
        .status(rack.now)
        .switches
        .into_iter()
        .map(|switch| switch.refusal.unwrap_or_default())
        .collect();
    assert!(
        refusals[0].contains("are not those of switch 1, the owner of chain 0"),
        "{refusals:?}"
    );
    assert_eq!(refusals[1], "");
    assert!(
        refusals[2].contains("it is of layer 3, and the rack has layers 1 to 2"),
        "{refusals:?}"
    );
}

/// Both switches start again at the same time, with nothing.
fn all_restart(rack: &mut Rack) {
    for switch in rack.switches.values_mut() {
        *switch = Switch { boot: switch.boot + 1, ..Switch::default() };
    }
    rack.say_hello(0, 1, &CLASSES);
    rack.say_hello(1, 2, &CLASSES);
}

#[test]
fn a_chain_is_recovered_from_a_switch_that_is_left_and_no_client_is_asked() {
    for apart in [false, true] {
        for left in [0, 1] {
            let mut rack = Rack::with(2, apart, |_| ()).served(2);
            assert_eq!((rack.chain().preserved, rack.chain().domains > 1), (!apart, apart));
            assert_eq!(rack.chain().snapshots.is_some(), !apart, "taken where clients preserve");
            assert_eq!(rack.switches[&0].place.map(|place| place.protects), Some(apart));
            rack.moves.clear();
            rack.pass(1_000_000, &[(left, left as u8 + 1)]);
            assert_eq!((rack.members(), rack.told.last()), (vec![left], Some(&Work::Load(left))));
            assert_eq!((&rack.stored[..], &rack.moves[..]), (&[0, 1][..], &[false][..]));
            assert!(rack.controller.is_serving() && rack.chain().preserved, "one domain is left");
            let periodic = rack.chain().snapshots.expect("snapshots are taken again");
            assert!(periodic.age_us < 1_000_000, "it counts from the recovery: {periodic:?}");
        }
    }
}

#[test]
fn what_both_domains_have_clients_preserve_too_if_they_are_to() {
    let rack = Rack::apart(1, |config| config.preserve = Preserve::Always);
    assert!(rack.chain().preserved && rack.chain().domains == 2);
    assert_eq!(rack.switches[&0].place.map(|place| place.protects), Some(false));
}

#[test]
fn any_living_switch_that_was_told_serves_the_next_epoch() {
    let mut rack = Rack::apart(1, |_| ());
    rack.start(2, 1);
    rack.start(3, 2);
    // Both members fall silent, and spares take their places; then one of them is heard again.
    rack.pass(1_000_000, &[(2, 1), (3, 2)]);
    assert_eq!((rack.members(), rack.controller.is_serving()), (vec![2, 3], false));
    assert!(rack.stored.is_empty());
    rack.say_hello(0, 1, &CLASSES);
    assert_eq!((rack.members(), &rack.stored[..]), (vec![0, 3], &[0][..]));
    assert!(rack.controller.is_serving());
}

#[test]
fn a_recovery_that_was_cut_short_begins_again_from_the_same_switches() {
    let mut rack = Rack::apart(2, |_| ());
    rack.pass(400_000, &[(1, 2)]);
    rack.stores = false;
    rack.pass(600_000, &[(1, 2)]);
    assert!(rack.stored.is_empty(), "the epoch isn't durable");
    // The controller dies at this point, and at the next ones.
    rack.stores = true;
    for epoch in [2, 3] {
        rack.silent = BTreeSet::from([1]);
        rack.restart_controller();
        rack.pass(1_000_000, &[(1, 2)]);
        assert_eq!((rack.members(), rack.controller.epoch()), (vec![1], epoch));
        assert!(rack.stored.is_empty());
    }
    rack.silent.clear();
    rack.pass(1_000_000, &[(1, 2)]);
    assert_eq!((&rack.stored[..], rack.controller.is_serving()), (&[0, 1][..], true));
}

#[test]
fn nothing_is_admitted_before_it_is_durable_that_a_chain_is_recovered() {
    let mut rack = Rack::apart(1, |_| ());
    rack.pass(400_000, &[(1, 2)]);
    rack.silent.insert(1);
    rack.pass(600_000, &[(1, 2)]);
    assert_eq!(rack.controller.epoch(), 2);
    rack.offer(5);
    // What ends the recovery isn't stored.
    rack.stores = false;
    rack.silent.clear();
    rack.pass(1_000_000, &[(1, 2)]);
    assert_eq!((&rack.stored[..], rack.controller.is_serving()), (&[0][..], false));
    assert_eq!((rack.cached_by(1), rack.switches[&1].frozen.len()), (0, 1));
}

#[test]
fn a_loss_is_declared_if_no_switch_that_was_told_comes_back() {
    let mut rack = Rack::apart(2, |_| ());
    rack.held_keys = 2;
    all_restart(&mut rack);
    assert!(!rack.controller.is_serving(), "the node hasn't said what it holds");
    rack.pass(100_000, &[(0, 1), (1, 2)]);
    assert!(rack.controller.is_serving() && rack.moves.contains(&true), "clients moved first");
    let status = rack.chain();
    assert_eq!((status.losses, status.last_loss), (1, Some(Loss { epoch: 1, keys: 2 })));

    let mut rack = Rack::apart(2, |_| ());
    all_restart(&mut rack);
    rack.pass(100_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.controller.is_serving(), rack.chain().losses), (true, 0), "nothing was held");
}

#[test]
fn a_silent_switch_is_waited_for_before_a_loss_is_declared() {
    let mut rack = Rack::apart(1, |config| config.witness_wait_us = 10_000_000);
    rack.start(2, 1);
    rack.start(3, 2);
    rack.held_keys = 1;
    rack.pass(9_000_000, &[(2, 1), (3, 2)]);
    assert_eq!((rack.controller.is_serving(), rack.chain().losses), (false, 0));
    rack.pass(3_000_000, &[(2, 1), (3, 2)]);
    assert_eq!((rack.controller.is_serving(), rack.chain().losses), (true, 1));
    assert!(rack.stored.is_empty());
    // It comes too late: older versions may have been read.
    rack.say_hello(0, 1, &CLASSES);
    assert_eq!((rack.members(), rack.stored.len()), (vec![2, 3], 0));
}

#[test]
fn a_rack_that_is_to_hold_on_a_loss_waits_for_ever() {
    let mut rack = Rack::apart(1, |config| config.on_loss = OnLoss::Hold);
    rack.held_keys = 1;
    all_restart(&mut rack);
    rack.pass(60_000_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.controller.is_serving(), rack.chain().losses), (false, 0));
}

#[test]
fn what_clients_preserve_is_no_loss() {
    let mut rack = Rack::serving(1);
    rack.held_keys = 1;
    rack.moves.clear();
    all_restart(&mut rack);
    rack.pass(100_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.controller.is_serving(), rack.chain().losses), (true, 0));
    assert!(rack.moves.contains(&true));
}

#[test]
fn a_dirty_record_counts_as_clean_once_its_node_has_stored_it() {
    let mut rack = Rack::serving(2);
    let epoch = rack.controller.epoch();
    let cached: Vec<_> = rack.switches[&1].entries.keys().copied().collect();
    let record = |counter| Record { seq: Seq::new(epoch, counter), ..Record::default() };
    let records = vec![(cached[0], record(7)), (cached[1], record(8)), (99, record(9))];
    rack.told.clear();
    rack.node_obeys = false;
    let owner = Peer::Switch(1);
    rack.hear(owner, Message::FromSwitch(SwitchReport::Dirty { epoch, records }));
    assert!(rack.told.is_empty() && rack.stored.is_empty());
    // The store is told again.
    rack.node_obeys = true;
    rack.pass(300_000, &[(0, 1), (1, 2)]);
    assert_eq!(rack.stored, [0, 1], "nothing that isn't cached");
    let versions = vec![(cached[0], Seq::new(epoch, 7)), (cached[1], Seq::new(epoch, 8))];
    let cleaned = [Work::Clean(0, versions.clone()), Work::Clean(1, versions)];
    assert!(cleaned.iter().all(|clean| rack.told.contains(clean)), "{:?}", rack.told);
    assert_eq!(rack.controller.status(rack.now).cleaned_records, 2);
}

fn drained(rack: &Rack) -> Vec<u16> {
    let status = rack.controller.status(rack.now);
    status.switches.iter().filter(|switch| switch.drained).map(|switch| switch.index).collect()
}

/// What was cached is at its node, and clients' writes have ended, before its chain goes on without
/// it.
#[test]
fn a_switch_is_taken_out_of_service_and_a_spare_takes_its_place() {
    let mut rack = Rack::apart(2, |_| ());
    rack.start(2, 2);
    rack.start(3, 2);
    let status = rack.controller.drain_switch(rack.now, 1, Some(3));
    assert_eq!(status, Ok(()));
    rack.carry_out();
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 3], 2));
    assert_eq!((rack.quiesced, drained(&rack)), (1, vec![1]));
    assert!(rack.told.contains(&Work::Evict(1)) && !rack.told.contains(&Work::Load(0)));
    assert!(rack.controller.is_serving() && rack.cached_by(0) == 0);
    // It stays out when others die, and when the next controller starts.
    rack.restart_controller();
    rack.pass(1_000_000, &[(0, 1), (1, 2), (2, 2)]);
    assert_eq!(rack.members(), [0, 2]);
    rack.pass(1_000_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.members(), drained(&rack)), (vec![0], vec![1]));
    assert_eq!(rack.controller.add_switch(rack.now, 1), Ok(()));
    rack.pass(1_000_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.members(), drained(&rack)), (vec![0, 1], vec![]));
}

/// Its writes would be held back until the controller waits for it no longer.
#[test]
fn a_client_that_says_hello_is_asked_again_to_end_its_writes() {
    let mut rack = Rack::apart(2, |_| ());
    rack.start(2, 2);
    rack.quiet_is_lost = true;
    assert_eq!(rack.controller.drain_switch(rack.now, 1, None), Ok(()));
    rack.carry_out();
    assert_eq!((rack.members(), rack.quiesced), (vec![0, 1], 1));
    rack.quiet_is_lost = false;
    rack.says_hello_in(rack.controller.epoch() - 1);
    assert_eq!(rack.quiesced, 1, "in another epoch it has no writes that could be answered");
    rack.says_hello_in(rack.controller.epoch());
    assert_eq!((rack.members(), rack.quiesced), (vec![0, 2], 2));
}

#[test]
fn a_switch_that_no_other_could_go_on_for_stays_in_service() {
    let mut rack = Rack::with(1, false, |config| config.scheme = Scheme::FarReach);
    rack.start(0, 1);
    rack.client_says_hello();
    let drain = |rack: &mut Rack, switch, spare| {
        let drained = rack.controller.drain_switch(rack.now, switch, spare);
        rack.carry_out();
        drained
    };
    let last = Err(ServiceRefusal::Last { switch: 0, chain: 0 });
    assert_eq!(drain(&mut rack, 0, None), last);
    assert_eq!(drain(&mut rack, 7, None), Err(ServiceRefusal::Unknown(7)));
    assert_eq!(rack.controller.add_switch(rack.now, 7), Err(ServiceRefusal::Unknown(7)));
    assert_eq!(drain(&mut rack, 0, Some(1)), Err(ServiceRefusal::NoSpare(1)));
    rack.start(1, 2);
    rack.start(2, 1);
    assert_eq!(drain(&mut rack, 0, Some(1)), Err(ServiceRefusal::Unfit { switch: 0, spare: 1 }));
    assert_eq!(drain(&mut rack, 2, None), Ok(()), "it is only a spare");
    assert_eq!(drain(&mut rack, 0, Some(2)), Err(ServiceRefusal::NoSpare(2)));
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0], 1));
    assert_eq!(rack.controller.add_switch(rack.now, 2), Ok(()));
    assert_eq!(drain(&mut rack, 0, None), Ok(()));
    // Clients are asked as always, since they preserve what a chain of one tells.
    assert_eq!((rack.members(), rack.moves.last()), (vec![2], Some(&true)));
    assert!(rack.controller.is_serving());
}

/// The controller dies in the middle: the next one goes on with it.
#[test]
fn a_switch_that_is_being_taken_out_is_taken_out_by_the_next_controller() {
    let mut rack = Rack::serving(2);
    rack.node_obeys = false;
    assert_eq!(rack.controller.drain_switch(rack.now, 1, None), Ok(()));
    rack.carry_out();
    assert_eq!((rack.members(), drained(&rack)), (vec![0, 1], vec![1]));
    rack.restart_controller();
    rack.node_obeys = true;
    rack.pass(300_000, &[(0, 1), (1, 2)]);
    assert_eq!((rack.members(), drained(&rack)), (vec![0], vec![1]));
}

const THREE: [(u16, u8); 3] = [(0, 1), (1, 2), (2, 3)];

/// Switches 0 to 2 of three layers, in domains of their own.
fn three() -> Rack {
    let mut rack = Rack::with(3, true, |_| ());
    THREE.iter().for_each(|(switch, layer)| rack.start(*switch, *layer));
    rack.client_says_hello();
    assert_eq!(rack.members(), [0, 1, 2]);
    rack
}

#[test]
fn a_chain_whose_switches_hear_each_other_stays_as_it_is() {
    let mut rack = three();
    rack.pass_hearing(5_000_000, &THREE, |_, beat| [beat; 4]);
    assert_eq!((rack.members(), rack.controller.epoch()), (vec![0, 1, 2], 1));
}

#[test]
fn a_chain_goes_on_without_the_end_of_a_dead_link_that_fewer_others_hear() {
    for (deaf, side, out) in [(1, 0, 0), (0, 1, 0), (2, 0, 2), (1, 1, 2)] {
        let mut rack = three();
        let heard = |switch, beat| {
            let mut counts = [beat; 4];
            if switch == deaf {
                counts[2 * side..2 * side + 2].fill(0);
            }
            counts
        };
        rack.pass_hearing(1_000_000, &THREE, heard);
        let others: Vec<_> = (0..3).filter(|switch| *switch != out).collect();
        assert_eq!(rack.members(), others, "switch {deaf}, side {side}");
        let reason = rack.refusal(out).unwrap();
        let (from, to) = if side == 0 { (deaf - 1, deaf) } else { (deaf + 1, deaf) };
        let what = format!("nothing gets from switch {from} to switch {to}: it is tried again in");
        assert!(reason.contains(&what), "{reason}");
    }
}

#[test]
fn a_keeper_goes_if_both_ends_of_a_dead_link_are_heard_by_no_other() {
    let mut rack = Rack::apart(3, |_| ());
    let living = [(0, 1), (1, 2)];
    rack.pass_hearing(
        1_000_000,
        &living,
        |switch, beat| if switch == 1 { [0; 4] } else { [beat; 4] },
    );
    assert_eq!(rack.members(), [1]);
    assert!(rack.moves.iter().all(|gathers| !gathers), "the owner has what was told");
    assert!(rack.chain().preserved, "one switch is one copy: clients preserve from now on");
}

#[test]
fn a_link_that_loses_long_packets_only_is_named_so() {
    let mut rack = Rack::apart(0, |_| ());
    let living = [(0, 1), (1, 2)];
    rack.pass_hearing(1_000_000, &living, |_, beat| [beat, 0, beat, 0]);
    assert_eq!(rack.members(), [1]);
    let reason = rack.refusal(0).unwrap();
    assert!(
        reason.contains("no packet of 1440 bytes (but short ones: an MTU is too small) gets"),
        "{reason}"
    );
}

#[test]
fn a_spare_takes_the_place_of_a_switch_to_which_a_link_is_dead() {
    let mut rack = Rack::apart(0, |_| ());
    rack.start(2, 1);
    let living = [(0, 1), (1, 2), (2, 1)];
    // The spare's link is good.
    rack.pass_hearing(
        2_000_000,
        &living,
        |switch, beat| if switch == 0 { [0; 4] } else { [beat; 4] },
    );
    assert_eq!(rack.members(), [2, 1]);
    assert!(!rack.chain().preserved);
}

#[test]
fn a_switch_that_was_left_out_is_tried_again_after_pauses_that_double() {
    let mut rack = Rack::apart(0, |config| config.link_pause_us = 2_000_000);
    let living = [(0, 1), (1, 2)];
    let mut pauses = Vec::new();
    let (mut since, mut is_out) = (rack.now.monotonic_us, false);
    for _ in 0..200 {
        rack.pass_hearing(100_000, &living, |_, _| [0; 4]);
        if is_out != (rack.members() == [1]) {
            is_out = !is_out;
            if !is_out {
                pauses.push((rack.now.monotonic_us - since) / 1_000_000);
            }
            since = rack.now.monotonic_us;
        }
    }
    assert_eq!(pauses, [2, 4, 8]);
}

#[test]
fn an_operator_has_a_switch_tried_again_at_once() {
    let mut rack = Rack::apart(0, |_| ());
    let living = [(0, 1), (1, 2)];
    rack.pass_hearing(1_000_000, &living, |_, _| [0; 4]);
    assert_eq!(rack.members(), [1]);
    rack.controller.add_switch(rack.now, 0).unwrap();
    rack.pass(1_000_000, &living);
    assert_eq!((rack.members(), rack.refusal(0)), (vec![0, 1], None));
}

#[test]
fn a_switch_that_was_left_out_is_needed_if_no_other_one_has_what_was_told() {
    let mut rack = Rack::apart(3, |_| ());
    rack.node_obeys = false;
    let living = [(0, 1), (1, 2)];
    rack.pass_hearing(700_000, &living, |_, _| [0; 4]);
    assert_eq!(rack.members(), [1], "recovering from the owner");
    // Which dies before it is recovered.
    rack.pass(1_000_000, &living[..1]);
    assert_eq!(rack.members(), [0]);
    assert_eq!(rack.chain().losses, 0);
}
