//! A client's session: operations under way, answers to them that are right but for some detail,
//! notices of the controller, time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use switchback_core::Now;
use switchback_core::client::{ClientConfig, Operation, Session};
use switchback_core::control::{ChainGrant, ClientNotice, Destination, Grant, Message};
use switchback_core::controller::deal_to_chains;
use switchback_core::topology::{ByChain, ChainId, ChainMap};
use switchback_fuzz::{Draw, HASH_KEY, LANES, START, STEPS_MAX, SWITCH, map, node};
use switchback_wire::{
    Header, Op, Packet, Seq, Status, VALUE_BYTES_MAX, flags, fragment_bytes, record_flags,
};

const BOOT: u64 = 7;
/// Packets of the session that may still be answered.
const SENT_MAX: usize = 64;

struct Client {
    session: Session,
    sent: VecDeque<Packet>,
    now: Now,
}

fn grant(now: Now, epoch: u32, destination: Destination) -> Grant {
    Grant {
        boot: BOOT,
        hello_us: now.monotonic_us,
        lease_us: 60_000_000,
        chains: ByChain::new(1, |_| {
            Some(ChainGrant {
                epoch,
                destination: destination.clone(),
                durable_generation: 0,
                recovered_epoch: 0,
                preserves: true,
                gathers: true,
            })
        }),
        served: ChainMap::default(),
        hash_key: HASH_KEY,
        lane_first: 16,
        lanes: LANES,
        request_base: 1 << 32,
    }
}

fn the_chain(grant: &mut Grant) -> &mut ChainGrant {
    grant.chains[ChainId::new(0)].as_mut().expect("it has something to offer")
}

impl Client {
    fn destination(draw: &mut Draw<'_>) -> Destination {
        match draw.once_in(4) {
            true => Destination::Nodes { map: map(), nodes: vec![node(0), node(1)] },
            false => Destination::Switch(SWITCH),
        }
    }

    fn submit(&mut self, draw: &mut Draw<'_>) {
        let key = draw.key();
        let large = if draw.once_in(8) { VALUE_BYTES_MAX } else { 5_000 };
        let value = if draw.once_in(4) { vec![1; large] } else { draw.value(2_048) };
        let condition = draw.once_in(4).then(|| draw.seq(1));
        let operation = match draw.below(5) {
            0 => Operation::Delete { key: &key, condition },
            1 => Operation::Scan { position: draw.number(), count_only: draw.once_in(2) },
            2 => Operation::Read { key: &key },
            _ => Operation::Write { key: &key, value: &value, expiry_ms: draw.edgy(), condition },
        };
        let token = draw.byte().into();
        let _ = self.session.submit(self.now, operation, token);
    }

    fn transmit(&mut self) {
        let mut packet = Packet::new();
        while self.session.poll_packet(&mut packet).is_some() {
            assert!(packet.parse().is_ok(), "a session sends what is no packet");
            self.sent.push_back(packet.clone());
            if self.sent.len() > SENT_MAX {
                self.sent.pop_front();
            }
        }
        while let Some(report) = self.session.poll_message() {
            let checked = Message::FromClient(report).check();
            assert!(checked.is_ok(), "a session tells what is refused: {checked:?}");
        }
        while self.session.poll_completion().is_some() {}
    }

    /// An answer to one of the packets, as a rack would give it, or nearly so.
    fn answer(&mut self, draw: &mut Draw<'_>) {
        if self.sent.is_empty() {
            return;
        }
        let at = usize::from(draw.byte()) % self.sent.len();
        let asked = self.sent[at].clone();
        let Ok(parts) = asked.parse() else { return };
        let key = parts.key;
        let mut header = Header { status: Status::Ok, ..parts.header };
        let room = fragment_bytes(key.len());
        header.op = match header.op {
            Op::Read => Op::ReadReply,
            Op::Write | Op::Delete => Op::WriteReply,
            Op::Fragment => Op::FragmentReply,
            Op::ReadFragment => Op::ReadFragmentReply,
            _ => Op::ScanReply,
        };
        header.seq =
            if header.op == Op::ReadFragmentReply { Seq(header.guard) } else { draw.seq(1) };
        header.flags = if draw.once_in(2) { flags::CACHED } else { 0 };
        header.record_flags = if draw.once_in(2) { record_flags::DIRTY } else { 0 };
        header.generation = draw.below(4);
        let mut value = draw.value(room);
        let total = 1_200 + 100 * usize::from(draw.byte());
        match header.op {
            Op::ReadReply if draw.once_in(2) => {
                header.flags |= flags::LARGE;
                header.total_bytes = total as u32;
                value = vec![1; room.min(total)];
            }
            Op::FragmentReply => value = vec![draw.one(&[0xff, 0, 1]).to_owned(); 32],
            Op::ReadFragmentReply => {
                header.fragment_index = header.fragment_index.wrapping_add(draw.below(40) as u16);
                let from = usize::from(header.fragment_index) * room;
                value = vec![1; room.min(total.saturating_sub(from))];
            }
            _ => {}
        }
        match draw.below(16) {
            8 => header.status = *draw.one(Status::ALL),
            9 => header.total_bytes = draw.edgy() as u32,
            10 => header.fragment_index = draw.edgy() as u16,
            11 => header.durable_generation = draw.edgy() as u32,
            12 => header.op = *draw.one(Op::ALL),
            13 => header.epoch = draw.edgy() as u32 & switchback_wire::EPOCH_MAX,
            14 => header.request = draw.edgy(),
            15 => header.lane = draw.edgy() as u32,
            _ => {}
        }
        let packet = draw.damaged(Packet::build(header, &value, key));
        let completion = self.session.handle_packet(self.now, &packet);
        if let Some(completion) = completion
            && let switchback_core::client::Outcome::Scanned { entries, .. } = completion.outcome
        {
            assert!(switchback_wire::scan_entries(entries).count() <= entries.len());
        }
    }

    fn notice(&mut self, draw: &mut Draw<'_>) {
        let epoch = match draw.below(8) {
            6 => draw.edgy() as u32,
            7 => self.session.epoch() + 1,
            _ => self.session.epoch(),
        };
        let notice = match draw.below(4) {
            0 => ClientNotice::Gathered { epoch, chunk: draw.edgy() as u32 },
            1 => ClientNotice::Move {
                chain: draw.chain(),
                to: ChainGrant {
                    epoch,
                    destination: Client::destination(draw),
                    durable_generation: draw.edgy() as u32,
                    recovered_epoch: draw.edgy() as u32,
                    preserves: draw.once_in(2),
                    gathers: draw.once_in(2),
                },
                served: ChainMap::from(&deal_to_chains(&map(), 1 + draw.below(2) as u16)),
            },
            _ => {
                let mut grant = grant(self.now, epoch, Client::destination(draw));
                match draw.below(12) {
                    4 => grant.lanes = draw.edgy() as u32,
                    5 => grant.lane_first = draw.edgy() as u32,
                    6 => grant.request_base = draw.edgy(),
                    8 => grant.hello_us = draw.edgy(),
                    9 => grant.lease_us = draw.edgy(),
                    10 => the_chain(&mut grant).durable_generation = draw.edgy() as u32,
                    11 => the_chain(&mut grant).recovered_epoch = draw.edgy() as u32,
                    7 => {
                        let more =
                            grant.chains[ChainId::new(0)].clone().filter(|_| draw.once_in(2));
                        grant.chains.known(ChainId::new(1), |_| more.clone());
                        grant.served = ChainMap::from(&deal_to_chains(&map(), 2));
                    }
                    _ => {}
                }
                ClientNotice::Granted(grant)
            }
        };
        if let Some(Message::ToClient(notice)) = draw.arrived(&Message::ToClient(notice)) {
            self.session.handle_message(self.now, notice);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let config = ClientConfig {
        lanes: LANES,
        preserve_bytes_max: 64 << 10,
        large_bytes_max: 3 << 20,
        ..ClientConfig::default()
    };
    let mut session = Session::new(config, BOOT, 1, START);
    session.handle_timeout(START);
    let granted = grant(START, 1, Client::destination(&mut draw));
    session.handle_message(START, ClientNotice::Granted(granted));
    let mut client = Client { session, sent: VecDeque::new(), now: START };
    for _ in 0..STEPS_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.below(8) {
            0 | 1 => client.submit(&mut draw),
            2..6 => client.answer(&mut draw),
            6 => client.notice(&mut draw),
            _ => {
                draw.pass(&mut client.now);
                client.session.handle_timeout(client.now);
            }
        }
        client.transmit();
    }
});
