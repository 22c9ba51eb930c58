//! A switch's agent with the datapath in C: commands of the controller, packets of clients and
//! nodes, time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use switchback_core::Now;
use switchback_core::control::{
    Command, Entry, Location, Message, SwitchCommand, SwitchConfig, SwitchReport,
};
use switchback_core::switch::{Agent, AgentConfig, carry_out};
use switchback_core::topology::ChainId;
use switchback_datapath::{ClassConfig, Config, Datapath, Shard};
use switchback_fuzz::{CLIENT, Draw, LANES, PARTITIONS, START, STEPS_MAX, SWITCH, map, node};
use switchback_net::DatapathTarget;
use switchback_wire::{Map, Op, Place};

const BOOT: u64 = 7;
/// What clients and nodes send.
const OPS: &[Op] = &[
    Op::Read,
    Op::Write,
    Op::Delete,
    Op::ReadReply,
    Op::WriteReply,
    Op::Bounce,
    Op::CacheUpdate,
    Op::Fragment,
    Op::ReadFragment,
    Op::Scan,
    Op::FragmentReply,
];

struct Switch {
    agent: Agent,
    target: DatapathTarget<Datapath>,
    datapath: Arc<Datapath>,
    next: u64,
    now: Now,
}

fn config(lanes: u32) -> SwitchConfig {
    let (place, nodes) = (Place::sole(), vec![node(0), node(1)]);
    SwitchConfig { boot: BOOT, place, generation: 1, lanes, map: map(), nodes }
}

impl Switch {
    fn new() -> Switch {
        let class = |value_bytes| ClassConfig { value_bytes, slots: 8 };
        let classes = [128, 1168].map(class).to_vec();
        let sizes = Config {
            classes,
            lanes: 2 * LANES,
            partitions: PARTITIONS.into(),
            nodes: 2,
            sketch_width: 64,
            reports: 16,
            sampling: 1.0,
            threshold: 3,
            ..Config::default()
        };
        let datapath = Arc::new(Datapath::new(&sizes).expect("the configuration is valid"));
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let agent =
            Agent::new(BOOT, SWITCH, AgentConfig { records: 8, ..AgentConfig::default() }, START);
        Switch { agent, target, datapath, next: 1, now: START }
    }

    fn told(&mut self, epoch: u32, body: SwitchCommand) {
        let id = self.next;
        self.next += 1;
        self.agent.handle_message(self.now, Command { id, chain: ChainId::new(0), epoch, body });
        carry_out(&mut self.agent, self.now, &mut self.target);
    }

    fn tick(&mut self) {
        self.agent.handle_timeout(self.now);
        carry_out(&mut self.agent, self.now, &mut self.target);
    }

    fn command(&mut self, draw: &mut Draw<'_>) {
        let mut epoch = self.agent.epoch();
        let known: Vec<_> = self.agent.entries().map(|(entry, _)| entry.id).collect();
        let id = |draw: &mut Draw<'_>| {
            if known.is_empty() || draw.once_in(8) { draw.edgy() } else { *draw.one(&known) }
        };
        let body = match draw.below(12) {
            0 => {
                epoch = if draw.once_in(8) {
                    draw.edgy() as u32
                } else {
                    epoch + u32::from(draw.byte() % 2)
                };
                let mut config = config(draw.edgy() as u32);
                if draw.once_in(8) {
                    config.nodes = vec![node(0); usize::from(draw.byte())];
                    config.map = Map::equal(vec![vec![draw.byte().into()]; 1 << (draw.byte() % 8)]);
                }
                if draw.once_in(4) {
                    SwitchCommand::Freeze(config)
                } else {
                    SwitchCommand::Configure(config)
                }
            }
            1 => SwitchCommand::Lanes(draw.edgy() as u32),
            2 => SwitchCommand::NodeAddress(draw.edgy() as u16, node(draw.byte().into())),
            3 | 4 => {
                let next = 1_000 * self.next;
                let entries = draw.some(Draw::entry).into_iter().enumerate();
                let rising = |(at, entry): (usize, Entry)| Entry { id: next + at as u64, ..entry };
                SwitchCommand::Admit(entries.map(rising).collect())
            }
            5 => SwitchCommand::EvictBegin {
                candidates: draw.some(id),
                counts: draw.some(|draw| draw.edgy() as u32),
                waiting: draw.edgy() as u32,
            },
            6 => SwitchCommand::Remove(draw.some(id)),
            7 => SwitchCommand::Snapshot { generation: draw.edgy() as u32 },
            8 => SwitchCommand::DurableGeneration(draw.edgy() as u32),
            9 => SwitchCommand::Inspect(draw.some(id)),
            10 => SwitchCommand::LoadFrozen(draw.once_in(2).then(|| draw.location())),
            _ => SwitchCommand::ListEntries(draw.once_in(2).then(|| draw.location())),
        };
        let id = if draw.once_in(8) { draw.edgy() } else { self.next };
        self.next += 1;
        if let Some(Message::ToSwitch(command)) =
            draw.arrived(&Message::ToSwitch(Command { id, chain: ChainId::new(0), epoch, body }))
        {
            self.agent.handle_message(self.now, command);
            carry_out(&mut self.agent, self.now, &mut self.target);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let mut switch = Switch::new();
    switch.told(1, SwitchCommand::Configure(config(LANES)));
    let entry = |index: u8| {
        let key = vec![b'k', b'e', b'y', index];
        let at = Location { class: index % 2, slot: u32::from(index / 2) };
        Entry {
            id: 1 + u64::from(index),
            at,
            hash: switchback_fuzz::HASH_KEY.hash(&key),
            key,
            count: 1,
        }
    };
    switch.told(1, SwitchCommand::Admit((0..3).map(entry).collect()));
    for _ in 0..STEPS_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.below(8) {
            0..4 => {
                let mut packet = draw.packet(OPS, switch.agent.epoch().max(1));
                let from = if draw.once_in(2) { node(u16::from(draw.byte() % 3)) } else { CLIENT };
                let random = draw.number() as u32;
                let _ = switch.datapath.process(
                    &mut packet,
                    from,
                    switch.now.unix_ms,
                    random,
                    Shard::new(0),
                );
            }
            4 | 5 => switch.command(&mut draw),
            6 => switch.tick(),
            _ => {
                draw.pass(&mut switch.now);
                switch.tick();
            }
        }
        while let Some(report) = switch.agent.poll_message() {
            let chunk = matches!(report, SwitchReport::SnapshotChunk { .. });
            let checked = Message::FromSwitch(report).check();
            assert!(
                checked.is_ok(),
                "an agent reports what is refused (a chunk: {chunk}): {checked:?}"
            );
        }
    }
});
