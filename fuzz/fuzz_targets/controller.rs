//! A controller with chains of two switches and a spare, two nodes and clients: reports of all of
//! them, answers to its commands in any order, lost connections, slow storage, operators, restarts
//! over its files, damaged or of format 1.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, VecDeque};
use switchback_core::Now;
use switchback_core::control::{
    ClientReport, EntryId, Envelope, Inspected, Message, NodeReport, NodeStanding, Peer,
    SwitchCommand, SwitchReport, SwitchResult,
};
use switchback_core::controller::{
    Controller, ControllerConfig, Files, Inspection, StoreFile, Stored, deal_to_chains,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::topology::ByChain;
use switchback_fuzz::{Draw, HASH_KEY, LANES, START, STEPS_MAX, SWITCH, map, node};
use switchback_wire::Address;

/// Messages of the controller that may still be answered.
const SENT_MAX: usize = 64;

struct Rack {
    chains: u16,
    controller: Controller,
    sent: VecDeque<Envelope>,
    stores: VecDeque<Stored>,
    /// Its files, as they are on the disk.
    files: Files,
    drains: u32,
    /// That an operator waits for, and when it began.
    inspection: Option<(Inspection, Now)>,
    now: Now,
}

impl Rack {
    fn config(chains: u16) -> ControllerConfig {
        ControllerConfig {
            nodes: vec![node(0), node(1)],
            chains,
            layers: 2,
            map: deal_to_chains(&map(), chains),
            cache_records: 12,
            eviction_sample: 2,
            lanes: (4 * LANES, LANES),
            ..ControllerConfig::default()
        }
    }

    fn new(chains: u16) -> Rack {
        let (config, files) = (Rack::config(chains), Files::default());
        let controller =
            Controller::new(config, Mechanisms::ALL, &files, 1, START).expect("a new rack");
        let (sent, stores) = Default::default();
        Rack { chains, controller, sent, stores, files, drains: 0, inspection: None, now: START }
    }

    /// The controller ends and starts again, over what is on its disk.
    fn restart(&mut self, draw: &mut Draw<'_>) {
        let files = self.found(draw);
        match Controller::new(Rack::config(self.chains), Mechanisms::ALL, &files, 2, self.now) {
            Ok(controller) => self.controller = controller,
            Err(error) => {
                assert!(files != self.files, "it wrote these files: {error}");
                return;
            }
        }
        self.stores.clear();
        (self.drains, self.inspection) = (0, None);
        self.take_effects();
        self.store();
    }

    /// Its files, mostly as it wrote them.
    fn found(&self, draw: &mut Draw<'_>) -> Files {
        let mut files = self.files.clone();
        match draw.below(8) {
            4 => files.directory = Some(draw.damaged_file(&files.directory.unwrap_or_default())),
            5 => {
                let snapshot = files.snapshots.entry(draw.chain()).or_default();
                *snapshot = draw.damaged_file(snapshot);
            }
            6 | 7 => {
                let mut directory = Rack::directory_1(draw);
                if draw.once_in(4) {
                    directory = draw.damaged_file(&directory);
                }
                if let Ok(upgraded) = StoreFile::Directory.upgrade(1, directory) {
                    files.directory = Some(upgraded);
                }
            }
            _ => {}
        }
        files
    }

    /// A directory of format 1: counters, hash key, replicas of equal ranges, who serves, and
    /// sessions by client: boot, first lane, lanes, number, whether it has a spool.
    fn directory_1(draw: &mut Draw<'_>) -> Vec<u8> {
        let counters: [u32; 5] = std::array::from_fn(|_| draw.edgy() as u32);
        let routes: Vec<Vec<u16>> =
            map().partitions().iter().map(|partition| partition.replicas.clone()).collect();
        let active = draw.once_in(2).then(|| (draw.below(3) as u16, draw.edgy()));
        let session = |draw: &mut Draw<'_>| {
            let lanes = (draw.edgy() as u32, draw.edgy() as u32);
            (u64::from(draw.below(6)), (draw.edgy(), lanes, draw.edgy() as u32, draw.once_in(2)))
        };
        let sessions: BTreeMap<_, _> = draw.some(session).into_iter().collect();
        let directory = (counters, HASH_KEY, routes, (active, draw.once_in(4)), sessions);
        postcard::to_stdvec(&directory).expect("plain data has an encoding")
    }

    fn hear(&mut self, draw: &mut Draw<'_>, from: Peer, message: Message) {
        if let Some(message) = draw.arrived(&message) {
            self.controller
                .handle_message(self.now, Envelope { from, to: Peer::Controller, message });
        }
        self.take_effects();
    }

    fn take_effects(&mut self) {
        loop {
            if let Some(store) = self.controller.poll_op() {
                self.stores.push_back(Stored { id: store.id });
                match store.file {
                    StoreFile::Backup(_) => {}
                    StoreFile::Directory => self.files.directory = Some(store.bytes),
                    StoreFile::Snapshot(chain) => {
                        self.files.snapshots.insert(chain, store.bytes);
                    }
                }
            } else if let Some(envelope) = self.controller.poll_message() {
                let checked = envelope.message.check();
                assert!(checked.is_ok(), "a controller says what is refused: {checked:?}");
                self.sent.push_back(envelope);
                if self.sent.len() > SENT_MAX {
                    self.sent.pop_front();
                }
            } else {
                return;
            }
        }
    }

    fn store(&mut self) {
        while let Some(done) = self.stores.pop_front() {
            self.controller.handle_done(self.now, done);
            self.take_effects();
        }
    }

    fn switch_hello(&mut self, draw: &mut Draw<'_>) {
        let switch = draw.below(3) as u16;
        let classes = match draw.below(8) {
            6 => draw.some(|draw| (draw.edgy() as u32, draw.edgy() as u32)),
            7 => vec![(64, 1), (1024, 1 << 30)],
            _ => vec![(128, 8), (1024, 8)],
        };
        let boot = 1 + u64::from(draw.once_in(16));
        let epoch = if draw.once_in(4) { draw.edgy() as u32 } else { self.controller.epoch() };
        let address = if draw.once_in(8) { Address::default() } else { SWITCH };
        let (layer, needs_epoch) = (1 + (switch % 2) as u8, draw.once_in(4));
        let domain = format!("domain-{}", draw.below(2));
        let hello =
            SwitchReport::Hello { boot, address, layer, domain, epoch, classes, needs_epoch };
        self.hear(draw, Peer::Switch(switch), Message::FromSwitch(hello));
    }

    fn node_hello(&mut self, draw: &mut Draw<'_>, index: u16) {
        let report = NodeReport::Hello {
            boot: 1 + u64::from(draw.once_in(16)),
            address: node(if draw.once_in(16) { 9 } else { index }),
            chains: ByChain::new(draw.below(4) as u16, |_| NodeStanding {
                epoch: if draw.once_in(4) { draw.edgy() as u32 } else { self.controller.epoch() },
                held: draw.once_in(4),
                needs_epoch: draw.once_in(8),
                held_keys: draw.below(4) as u32,
            }),
            failure: draw.once_in(8).then(|| "full".into()),
        };
        self.hear(draw, Peer::Node(index), Message::FromNode(report));
    }

    /// An answer to one of its messages, as a peer would give it, or nearly so.
    fn answer(&mut self, draw: &mut Draw<'_>) {
        if self.sent.is_empty() {
            return;
        }
        let at = usize::from(draw.byte()) % self.sent.len();
        let again = draw.once_in(8);
        let asked = if again { Some(self.sent[at].clone()) } else { self.sent.remove(at) };
        let Some(Envelope { to, message, .. }) = asked else { return };
        let answer = match message {
            Message::ToSwitch(command) => {
                let result = match command.body {
                    SwitchCommand::Admit(entries) => {
                        let refused = entries
                            .iter()
                            .map(|entry| entry.id)
                            .filter(|_| draw.once_in(4))
                            .collect();
                        SwitchResult::Admitted { refused }
                    }
                    SwitchCommand::EvictBegin { candidates, .. } => SwitchResult::Evicting(
                        candidates
                            .into_iter()
                            .take(4)
                            .map(|id| {
                                (id, draw.once_in(2).then(|| draw.record(self.controller.epoch())))
                            })
                            .collect(),
                    ),
                    SwitchCommand::ListEntries(_) => {
                        let next = draw.once_in(4).then(|| draw.location());
                        SwitchResult::Entries(draw.some(Draw::entry), next)
                    }
                    SwitchCommand::LoadFrozen(_) => {
                        let next = draw.once_in(4).then(|| draw.location());
                        let record =
                            |draw: &mut Draw<'_>| draw.keyed_record(self.controller.epoch());
                        SwitchResult::Frozen(draw.some(record), next)
                    }
                    SwitchCommand::Inspect(entries) => SwitchResult::Inspected(
                        entries.into_iter().map(|id| Rack::inspected(draw, id)).collect(),
                    ),
                    SwitchCommand::Snapshot { .. } if draw.once_in(8) => SwitchResult::Busy,
                    _ => SwitchResult::Ok,
                };
                let result = match draw.below(16) {
                    12 => SwitchResult::Inspected(draw.some(|draw| {
                        let id = draw.edgy();
                        Rack::inspected(draw, id)
                    })),
                    13 => SwitchResult::Admitted { refused: draw.some(Draw::edgy) },
                    14 => SwitchResult::Evicting(draw.some(|draw| (draw.edgy(), None))),
                    15 => SwitchResult::Entries(draw.some(Draw::entry), None),
                    _ => result,
                };
                Message::FromSwitch(SwitchReport::Done {
                    id: command.id,
                    epoch: command.epoch,
                    result,
                })
            }
            Message::ToNode(command) => {
                let error = draw.once_in(8).then(|| "no space".into());
                let (id, epoch) = (command.id, command.epoch);
                let chain = if draw.once_in(16) { draw.chain() } else { command.chain };
                Message::FromNode(NodeReport::Done { id, chain, epoch, error })
            }
            _ => return self.preserved(draw, 1),
        };
        self.hear(draw, to, answer);
    }

    fn inspected(draw: &mut Draw<'_>, id: EntryId) -> Inspected {
        let (count, bytes) = (draw.edgy() as u32, draw.edgy() as u32);
        Inspected { id, count, dirty: draw.once_in(2), bytes }
    }

    fn preserved(&mut self, draw: &mut Draw<'_>, client: u64) {
        let epoch = self.controller.epoch();
        let report = ClientReport::Preserved {
            epoch,
            chunk: draw.edgy() as u32,
            last: draw.once_in(2),
            records: draw.some(|draw| draw.keyed_record(epoch)),
        };
        self.hear(draw, Peer::Client(client), Message::FromClient(report));
    }

    fn client(&mut self, draw: &mut Draw<'_>) {
        let client = draw.below(6).into();
        let boot = 7 + u64::from(draw.once_in(8));
        let report = match draw.below(8) {
            6 => ClientReport::Close { boot },
            7 => return self.preserved(draw, client),
            _ => ClientReport::Hello {
                boot,
                sent_us: if draw.once_in(8) { draw.edgy() } else { self.now.monotonic_us },
                lanes: if draw.once_in(4) { draw.edgy() as u32 } else { LANES },
                epochs: ByChain::new(draw.below(4) as u16, |_| {
                    if draw.once_in(4) { draw.edgy() as u32 } else { self.controller.epoch() }
                }),
                pressure: draw.once_in(8),
                spooled: draw.once_in(4),
            },
        };
        self.hear(draw, Peer::Client(client), Message::FromClient(report));
    }

    fn switch_says(&mut self, draw: &mut Draw<'_>) {
        let epoch = if draw.once_in(16) { draw.edgy() as u32 } else { self.controller.epoch() };
        let taking = self.sent.iter().rev().find_map(|envelope| match &envelope.message {
            Message::ToSwitch(command) => match command.body {
                SwitchCommand::Snapshot { generation } => Some(generation),
                _ => None,
            },
            _ => None,
        });
        let generation = if draw.once_in(8) { draw.edgy() as u32 } else { taking.unwrap_or(1) };
        let cached = self.sent.iter().filter_map(|envelope| match &envelope.message {
            Message::ToSwitch(command) => match &command.body {
                SwitchCommand::Admit(entries) => entries.first().map(|entry| entry.id),
                SwitchCommand::EvictBegin { candidates, .. } => candidates.first().copied(),
                _ => None,
            },
            _ => None,
        });
        let cached = cached.collect::<Vec<_>>();
        let report = match draw.below(4) {
            0 => {
                let id = |draw: &mut Draw<'_>| {
                    if cached.is_empty() { draw.edgy() } else { *draw.one(&cached) }
                };
                let evicted =
                    |draw: &mut Draw<'_>| (id(draw), draw.once_in(2).then(|| draw.record(epoch)));
                SwitchReport::EvictMe { epoch, entries: draw.some(evicted) }
            }
            1 => {
                let (chunks, complete) = (draw.edgy() as u32, !draw.once_in(8));
                SwitchReport::SnapshotEnd { epoch, generation, chunks, complete }
            }
            _ => {
                let (index, records) =
                    (draw.edgy() as u32, draw.some(|draw| draw.keyed_record(epoch)));
                SwitchReport::SnapshotChunk { epoch, generation, index, records }
            }
        };
        let switch = if draw.once_in(8) { draw.byte().into() } else { draw.below(2) as u16 };
        self.hear(draw, Peer::Switch(switch), Message::FromSwitch(report));
    }

    /// Time has passed: the operator has an answer, or is to wait no longer than this.
    fn inspects(&mut self) {
        let Some((inspection, began)) = &self.inspection else { return };
        if self.controller.inspected(inspection, self.now).is_some() {
            self.inspection = None;
        } else {
            let waited_us = self.now.monotonic_us - began.monotonic_us;
            assert!(waited_us < 10_000_000, "an operator waits for {waited_us} us");
        }
    }

    fn operator(&mut self, draw: &mut Draw<'_>) {
        match draw.below(5) {
            0 => {
                self.controller.snapshot_now(self.now);
            }
            1 => {
                self.controller.drain(self.now);
                self.drains += 1;
            }
            2 if self.drains > 0 => {
                self.controller.resume();
                self.drains -= 1;
            }
            2 => {}
            3 => {
                let inspection = self.controller.inspect(self.now);
                self.inspection.get_or_insert((inspection, self.now));
            }
            _ => self.controller.preload(self.now, draw.some(Draw::key)),
        }
        self.take_effects();
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let chains = 1 + draw.below(2) as u16;
    let mut rack = Rack::new(chains);
    // Zeros are an input, too: both nodes, a switch and a client say hello, and everything is
    // answered once.
    let mut begins = Draw::new(&[]);
    rack.node_hello(&mut begins, 0);
    rack.node_hello(&mut begins, 1);
    rack.switch_hello(&mut begins);
    rack.client(&mut begins);
    rack.store();
    for _ in 0..STEPS_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.below(16) {
            0 => rack.switch_hello(&mut draw),
            1 => {
                let index = draw.below(2) as u16;
                rack.node_hello(&mut draw, index);
            }
            2 => rack.client(&mut draw),
            3 => rack.switch_says(&mut draw),
            4 | 5 => {
                let epoch = rack.controller.epoch();
                let offers = draw.some(Draw::offer);
                let index = draw.below(3) as u16;
                rack.hear(
                    &mut draw,
                    Peer::Node(index),
                    Message::FromNode(NodeReport::Offers { epoch, offers }),
                );
            }
            6 => rack.operator(&mut draw),
            7 => {
                let peer =
                    *draw.one(&[Peer::Switch(0), Peer::Switch(1), Peer::Node(0), Peer::Client(0)]);
                rack.controller.handle_lost(rack.now, peer);
            }
            8 if draw.once_in(8) => rack.restart(&mut draw),
            8 => rack.store(),
            9 => {
                draw.pass(&mut rack.now);
                rack.controller.handle_timeout(rack.now);
                rack.take_effects();
                rack.inspects();
            }
            _ => rack.answer(&mut draw),
        }
        assert!(rack.controller.status(rack.now).cached <= 16 * usize::from(chains));
    }
});
