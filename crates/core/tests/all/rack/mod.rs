//! A controller driven by hand: switch, node and storage do at once what they are told.
#![allow(dead_code, unreachable_pub, missing_docs)] // Each file of tests uses a part of it.

use switchback_core::Now;
use switchback_core::control::{
    ClientNotice, ClientReport, Command, Entry, EntryId, Envelope, Inspected, KeyedRecord, Message,
    NodeCommand, NodeReport, Offer, Peer, SwitchCommand, SwitchReport, SwitchResult,
};
use switchback_core::controller::{
    BackupFile, Controller, ControllerConfig, Files, RecoveryTimes, StoreFile, Stored,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::storage::{OfferId, Record};
use switchback_core::topology::{ByChain, ChainId};
use switchback_wire::{Address, KeyHash, Map};

pub const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
/// When a switch that has said nothing since counts as dead.
pub const LATER: Now = Now { monotonic_us: 2_000_000, unix_ms: 1_800_000_001_000 };

/// What a client says that has no session yet.
pub fn client_hello() -> ClientReport {
    let epochs = ByChain::default();
    ClientReport::Hello { boot: 7, sent_us: 0, lanes: 4, epochs, pressure: false, spooled: false }
}

/// What the switch has of an entry.
pub fn inspected(id: EntryId) -> Inspected {
    Inspected { id, count: id as u32 & 0xffff, dirty: id % 2 == 1, bytes: 9 }
}

/// A controller, and what it told its clients.
pub struct Rack {
    pub now: Now,
    pub controller: Controller,
    pub told: Vec<(u64, ClientNotice)>,
    /// Snapshots that the switch was told to take.
    pub snapshots: Vec<u32>,
    /// Checkpoints that the node was told to make.
    pub checkpoints: Vec<u64>,
    /// Whether the node answers when it is told to make one.
    pub makes_checkpoints: bool,
    /// Files of backups, in the order in which they were stored.
    pub backups: Vec<(BackupFile, Vec<u8>)>,
    /// Keys that the node was asked to offer.
    pub asked_for: Vec<Vec<u8>>,
    /// Whether the switch answers when it is told to evict.
    pub evicts: bool,
    /// Whether the switch answers when it is asked what it has.
    pub is_inspected: bool,
    /// How many keys each inspecting command asked for.
    pub inspections: Vec<usize>,
    /// What it tells of each record that it evicts.
    pub evicted: Option<Record>,
    /// Records that the node was told to store.
    pub stored: Vec<KeyedRecord>,
    /// Messages between the controller and the other two, and their bytes.
    pub carried: (u64, u64),
    boot: u64,
    config: ControllerConfig,
    files: Files,
    /// What the switch admitted.
    admitted: Vec<Entry>,
}

impl Rack {
    /// One switch, one node, and these clients with a session.
    pub fn with_clients(clients: &[u64]) -> Rack {
        Rack::new(ControllerConfig::default(), clients)
    }

    /// The same with a configuration of its own.
    pub fn new(config: ControllerConfig, clients: &[u64]) -> Rack {
        Rack::of(Files::default(), config, clients)
    }

    /// The same with a controller that has these files.
    pub fn of(files: Files, config: ControllerConfig, clients: &[u64]) -> Rack {
        let node = Address::in_memory(3, 0);
        let config =
            ControllerConfig { nodes: vec![node], map: Map::equal(vec![vec![0]]), ..config };
        let controller =
            Controller::new(config.clone(), Mechanisms::ALL, &files, 1, NOW).expect("a new rack");
        let mut rack = Rack {
            now: NOW,
            controller,
            told: Vec::new(),
            snapshots: Vec::new(),
            checkpoints: Vec::new(),
            makes_checkpoints: true,
            backups: Vec::new(),
            asked_for: Vec::new(),
            evicts: false,
            is_inspected: true,
            inspections: Vec::new(),
            evicted: None,
            stored: Vec::new(),
            carried: (0, 0),
            boot: 0,
            config,
            files,
            admitted: Vec::new(),
        };
        rack.node_says_hello();
        rack.switch_starts(1);
        for client in clients {
            rack.client_says(*client, client_hello());
        }
        assert!(rack.controller.is_serving());
        rack
    }

    /// The controller ends and starts again, over what it stored.
    pub fn controller_restarts(&mut self) {
        let epoch = self.controller.epoch();
        let config = self.config.clone();
        self.controller = Controller::new(config, Mechanisms::ALL, &self.files, 2, self.now)
            .expect("what it stored");
        self.carry_out_all();
        self.node_says_hello();
        self.switch_says_hello(epoch, false);
        assert!(self.controller.is_serving());
    }

    fn node_says_hello(&mut self) {
        let hello = NodeReport::Hello {
            boot: 1,
            address: self.config.nodes[0],
            chains: ByChain::default(),
            failure: None,
        };
        self.hear(Peer::Node(0), Message::FromNode(hello));
    }

    /// The switch has (re)started.
    pub fn switch_starts(&mut self, boot: u64) {
        self.boot = boot;
        self.switch_says_hello(0, false);
    }

    /// The switch says hello in this epoch.
    pub fn switch_says_hello(&mut self, epoch: u32, needs_epoch: bool) {
        let (boot, address, classes) = (self.boot, Address::in_memory(2, 0), vec![(1024, 512)]);
        let (layer, domain) = (1, String::new());
        let hello =
            SwitchReport::Hello { boot, address, layer, domain, epoch, classes, needs_epoch };
        self.hear(Peer::Switch(0), Message::FromSwitch(hello));
    }

    pub fn client_says(&mut self, client: u64, report: ClientReport) {
        self.hear(Peer::Client(client), Message::FromClient(report));
    }

    pub fn hear(&mut self, from: Peer, message: Message) {
        self.carry(&message);
        self.controller.handle_message(self.now, Envelope { from, to: Peer::Controller, message });
        self.carry_out_all();
    }

    /// `us` microseconds pass.
    pub fn pass(&mut self, us: u64) {
        self.now.monotonic_us += us;
        self.controller.handle_timeout(self.now);
        self.carry_out_all();
    }

    /// `us` microseconds pass, and the switch says hello now and then.
    pub fn lives_for(&mut self, us: u64) {
        for _ in 0..us / 100_000 {
            self.pass(100_000);
            self.switch_starts(self.boot);
        }
    }

    /// The node offers these keys.
    pub fn node_offers(&mut self, keys: &[u8]) {
        self.node_offers_of(keys, 1, 8);
    }

    /// The node offers these keys, of this length and with values of that.
    pub fn node_offers_of(&mut self, keys: &[u8], key_bytes: usize, value_bytes: u32) {
        let offer = |key: &u8| {
            let id = OfferId::from_bits(u64::from(self.controller.epoch()) << 8 | u64::from(*key));
            let (hash, key) = (KeyHash([*key; 16]), vec![*key; key_bytes]);
            Offer { id, hash, key, value_bytes, count: 1 }
        };
        self.node_makes(keys.iter().map(offer).collect());
    }

    /// The node makes these offers.
    pub fn node_makes(&mut self, offers: Vec<Offer>) {
        let epoch = self.controller.epoch();
        self.hear(Peer::Node(0), Message::FromNode(NodeReport::Offers { epoch, offers }));
    }

    /// The epoch of the last recovery that has gathered, and the clients that it gave up.
    pub fn abandoned(&self) -> (u32, &[u64]) {
        self.controller.abandoned_clients(ChainId::default())
    }

    /// What the controller tells of its last recovery.
    pub fn recovery(&self) -> RecoveryTimes {
        self.controller.status(self.now).recovery.expect("there was a recovery")
    }

    fn carry_out_all(&mut self) {
        loop {
            if let Some(store) = self.controller.poll_op() {
                match store.file {
                    StoreFile::Directory => self.files.directory = Some(store.bytes),
                    StoreFile::Snapshot(_) => {}
                    StoreFile::Backup(file) => self.backups.push((file, store.bytes)),
                }
                self.controller.handle_done(self.now, Stored { id: store.id });
            } else if let Some(envelope) = self.controller.poll_message() {
                self.deliver(envelope);
            } else {
                return;
            }
        }
    }

    /// A message is carried, in a frame as over TCP.
    fn carry(&mut self, message: &Message) {
        let encoded = postcard::to_stdvec(message).expect("plain data has an encoding");
        self.carried.0 += 1;
        self.carried.1 += 4 + encoded.len() as u64;
    }

    fn deliver(&mut self, envelope: Envelope) {
        self.carry(&envelope.message);
        let answer = match envelope.message {
            Message::ToSwitch(command) => {
                let Command { id, epoch, body, .. } = command;
                let result = match body {
                    SwitchCommand::Admit(entries) => {
                        self.admitted.extend(entries);
                        SwitchResult::Admitted { refused: Vec::new() }
                    }
                    SwitchCommand::ListEntries(_) => {
                        SwitchResult::Entries(self.admitted.clone(), None)
                    }
                    SwitchCommand::EvictBegin { .. } if !self.evicts => return,
                    SwitchCommand::EvictBegin { candidates, counts, .. } => {
                        let chosen = candidates.into_iter().take(counts.len());
                        let evicted = chosen.map(|entry| (entry, self.evicted.clone()));
                        SwitchResult::Evicting(evicted.collect())
                    }
                    SwitchCommand::Inspect(entries) => {
                        self.inspections.push(entries.len());
                        if !self.is_inspected {
                            return;
                        }
                        SwitchResult::Inspected(entries.into_iter().map(inspected).collect())
                    }
                    SwitchCommand::Snapshot { generation } => {
                        self.snapshots.push(generation);
                        SwitchResult::Ok
                    }
                    _ => SwitchResult::Ok,
                };
                Message::FromSwitch(SwitchReport::Done { id, epoch, result })
            }
            Message::ToNode(command) => {
                match &command.body {
                    NodeCommand::OfferKeys(keys) => {
                        self.asked_for.extend(keys.iter().map(|(_, key)| key.clone()));
                    }
                    NodeCommand::Store(records) => self.stored.extend_from_slice(records),
                    NodeCommand::Checkpoint(number) => {
                        self.checkpoints.push(*number);
                        if !self.makes_checkpoints {
                            return;
                        }
                    }
                    _ => {}
                }
                Message::FromNode(NodeReport::Done {
                    id: command.id,
                    chain: command.chain,
                    epoch: command.epoch,
                    error: None,
                })
            }
            Message::ToClient(notice) => {
                let Peer::Client(client) = envelope.to else {
                    panic!("{:?} is no client", envelope.to)
                };
                if let ClientNotice::Quiesce { epoch, .. } = notice {
                    Message::FromClient(ClientReport::Quiet { epoch })
                } else {
                    return self.told.push((client, notice));
                }
            }
            message => panic!("a controller doesn't send {message:?}"),
        };
        self.carry(&answer);
        self.controller.handle_message(
            self.now,
            Envelope { from: envelope.to, to: Peer::Controller, message: answer },
        );
    }

    pub fn answers_gather(&mut self, client: u64) {
        let epoch = self.controller.epoch();
        self.client_says(
            client,
            ClientReport::Preserved { epoch, chunk: 0, last: true, records: Vec::new() },
        );
    }
}
