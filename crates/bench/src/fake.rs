//! A fake rack for tests, with its records in a hash map: it speaks the session's protocol, answers
//! cached keys in the call and others from a thread, loses packets, and can be told to cheat.

#[path = "../examples/grants/mod.rs"]
mod grants;

use crate::rack::{BenchRack, ClientLinks, RackFactory, RackOptions, RackStatistics};
use crate::workload::Preload;
use grants::{Grants, HASH_KEY, SWITCH};
use mio::{Registry, Token, Waker};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use switchback_net::{Sent, Uplink};
use switchback_wire::{
    Address, HashKey, Header, KeyHash, Map, Op, Packet, Scheme, Seq, Status, flags,
};

/// How the rack cheats in some operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cheat {
    /// Reads return the version before the newest.
    StaleRead,
    /// Reads return the version before the newest under the newest number.
    OldValueNewSeq,
    /// Reads return another record's value.
    OtherRecord,
    /// A byte of a value is wrong.
    Garbled,
    /// A write is acknowledged but not stored.
    LostWrite,
    /// A record vanishes.
    Vanished,
    /// A write gets a version that was given out long ago.
    OldSeq,
}

impl Cheat {
    pub(crate) const ALL: [Cheat; 7] = [
        Cheat::StaleRead,
        Cheat::OldValueNewSeq,
        Cheat::OtherRecord,
        Cheat::Garbled,
        Cheat::LostWrite,
        Cheat::Vanished,
        Cheat::OldSeq,
    ];
}

#[derive(Clone, Default)]
struct Record {
    seq: u64,
    value: Vec<u8>,
    before: Option<(u64, Vec<u8>)>,
}

struct State {
    map: Map,
    records: HashMap<Vec<u8>, Record>,
    last_seq: u64,
    cached: HashSet<Vec<u8>>,
    /// The answer to each lane's last write, for requests that are sent again.
    answered: HashMap<u32, (u64, Packet)>,
    statistics: RackStatistics,
    seen: u64,
    lose_every: u64,
    cheat: Option<Cheat>,
}

/// The rack cheats in every operation whose number is a multiple of this.
const CHEAT_EVERY: u64 = 101;

impl State {
    /// Turns a request into its answer.
    fn answer(&mut self, packet: &mut Packet, cached: bool) {
        let parts = packet.parse().unwrap();
        let (header, key, value) = (parts.header, parts.key.to_vec(), parts.value.to_vec());
        self.seen += 1;
        let cheat = self.cheat.filter(|_| self.seen.is_multiple_of(CHEAT_EVERY));
        if cached {
            self.statistics.hits += 1;
        } else {
            self.statistics.misses += 1;
            let head = self.map.of(header.key_hash).head();
            self.statistics.node_ops[usize::from(head)] += 1;
        }
        let flags = if cached { flags::CACHED } else { 0 };
        let answer = |op, status, seq| Header {
            op,
            flags,
            status,
            seq: Seq(seq),
            durable_generation: 1,
            ..header
        };
        if header.op == Op::Write {
            if let Some((_, again)) =
                self.answered.get(&header.lane).filter(|(request, _)| *request == header.request)
            {
                *packet = again.clone();
                return;
            }
            let stored = self.records.get(&key).map_or(0, |record| record.seq);
            if header.has(flags::CONDITIONAL) && header.guard != stored {
                packet.fill(&answer(Op::WriteReply, Status::ConditionFailed, stored), &[], &key);
            } else {
                let seq = self.write(key.clone(), value, cheat);
                packet.fill(&answer(Op::WriteReply, Status::Ok, seq), &[], &key);
            }
            self.answered.insert(header.lane, (header.request, packet.clone()));
            return;
        }
        match self.read(&key, cheat) {
            Some((seq, value)) => {
                packet.fill(&answer(Op::ReadReply, Status::Ok, seq), &value, &key)
            }
            None => packet.fill(&answer(Op::ReadReply, Status::NotFound, 0), &[], &key),
        }
    }

    fn write(&mut self, key: Vec<u8>, value: Vec<u8>, cheat: Option<Cheat>) -> u64 {
        self.last_seq += 1;
        let seq = if cheat == Some(Cheat::OldSeq) { 1 } else { self.last_seq };
        if cheat != Some(Cheat::LostWrite) {
            let record = self.records.entry(key).or_default();
            let before = (record.seq > 0).then(|| (record.seq, std::mem::take(&mut record.value)));
            *record = Record { seq, value, before };
        }
        seq
    }

    fn read(&self, key: &[u8], cheat: Option<Cheat>) -> Option<(u64, Vec<u8>)> {
        let record = self.records.get(key)?;
        let newest = (record.seq, record.value.clone());
        Some(match cheat {
            Some(Cheat::StaleRead) => record.before.clone().unwrap_or(newest),
            Some(Cheat::OldValueNewSeq) => (record.seq, record.before.clone().unwrap_or(newest).1),
            Some(Cheat::OtherRecord) => {
                (record.seq, self.records.iter().find(|(other, _)| *other != key)?.1.value.clone())
            }
            Some(Cheat::Garbled) => {
                let mut value = newest.1;
                value[20] ^= 4;
                (record.seq, value)
            }
            Some(Cheat::Vanished) => return None,
            _ => newest,
        })
    }
}

/// Packets for a client, and its waker.
#[derive(Default)]
struct Inbox {
    packets: Mutex<VecDeque<Packet>>,
    waker: Mutex<Option<Arc<Waker>>>,
}

/// A request on its way to the nodes.
type Forwarded = (Packet, Arc<Inbox>);

struct FakeUplink {
    state: Arc<Mutex<State>>,
    inbox: Arc<Inbox>,
    nodes: Sender<Forwarded>,
}

impl Uplink for FakeUplink {
    fn register(&mut self, _: &Registry, _: Token, waker: &Arc<Waker>) -> io::Result<()> {
        *self.inbox.waker.lock().unwrap() = Some(waker.clone());
        Ok(())
    }

    fn send(&mut self, to: Address, packet: &mut Packet) -> Sent {
        assert_eq!(to, SWITCH);
        let mut state = self.state.lock().unwrap();
        let key = packet.parse().unwrap().key;
        if state.cached.contains(key) {
            state.answer(packet, true);
            return Sent::Answered;
        }
        let _ = self.nodes.send((packet.clone(), self.inbox.clone()));
        Sent::OnItsWay
    }

    fn flush(&mut self) {}

    fn receive(&mut self, packet: &mut Packet) -> bool {
        let next = self.inbox.packets.lock().unwrap().pop_front();
        next.map(|next| *packet = next).is_some()
    }
}

/// The rack.
pub(crate) struct FakeRack {
    state: Arc<Mutex<State>>,
    nodes: Option<(Sender<Forwarded>, JoinHandle<()>)>,
}

fn serve(state: &Mutex<State>, requests: &Receiver<Forwarded>) {
    while let Ok((mut packet, inbox)) = requests.recv() {
        {
            let mut state = state.lock().unwrap();
            state.answer(&mut packet, false);
            // The answer is lost, so the request comes again.
            if state.lose_every > 0 && state.seen.is_multiple_of(state.lose_every) {
                state.statistics.dropped += 1;
                continue;
            }
        }
        inbox.packets.lock().unwrap().push_back(packet);
        inbox.waker.lock().unwrap().as_ref().unwrap().wake().unwrap();
    }
}

impl FakeRack {
    pub(crate) fn new(
        scheme: Scheme,
        nodes: u16,
        lose_every: u64,
        cheat: Option<Cheat>,
    ) -> FakeRack {
        let state = Arc::new(Mutex::new(State {
            map: Map::equal((0..64).map(|partition| vec![partition % nodes]).collect()),
            records: HashMap::new(),
            last_seq: 10,
            cached: HashSet::new(),
            answered: HashMap::new(),
            statistics: RackStatistics {
                node_ops: vec![0; nodes.into()],
                ..RackStatistics::default()
            },
            seen: 0,
            lose_every,
            cheat,
        }));
        assert!(Scheme::ALL.contains(&scheme));
        let (requests, inbox) = channel();
        let thread = std::thread::spawn({
            let state = state.clone();
            move || serve(&state, &inbox)
        });
        FakeRack { state, nodes: Some((requests, thread)) }
    }
}

impl BenchRack for FakeRack {
    fn map(&self) -> Map {
        self.state.lock().unwrap().map.clone()
    }

    fn hash_key(&self) -> HashKey {
        HASH_KEY
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        let nodes = self.nodes.as_ref().unwrap().0.clone();
        let uplink = FakeUplink { state: self.state.clone(), inbox: Arc::default(), nodes };
        let control = Grants::new(index);
        Ok(ClientLinks {
            id: u64::from(index) + 1,
            uplink: Box::new(uplink),
            control: Box::new(control),
        })
    }

    fn load(&mut self, mut records: Preload) -> anyhow::Result<()> {
        let mut state = self.state.lock().unwrap();
        while let Some((key, value)) = records.next_record() {
            state
                .records
                .insert(key.to_vec(), Record { seq: 1, value: value.to_vec(), before: None });
        }
        Ok(())
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        let mut state = self.state.lock().unwrap();
        state.cached.extend(keys);
        Ok(state.cached.len())
    }

    fn cached(&self) -> Vec<KeyHash> {
        let state = self.state.lock().unwrap();
        state.cached.iter().map(|key| HASH_KEY.hash(key)).collect()
    }

    fn statistics(&self) -> RackStatistics {
        self.state.lock().unwrap().statistics.clone()
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<()> {
        let (requests, thread) = self.nodes.take().unwrap();
        drop(requests);
        thread.join().map_err(|_| anyhow::anyhow!("the nodes panicked"))
    }
}

/// Starts fake racks that lose packets, and cheat if they are told to.
pub(crate) struct FakeRacks {
    pub(crate) cheat: Option<Cheat>,
    pub(crate) lose_every: u64,
    pub(crate) started: Vec<(Scheme, RackOptions)>,
}

impl RackFactory for FakeRacks {
    fn start(
        &mut self,
        scheme: Scheme,
        options: &RackOptions,
    ) -> anyhow::Result<Box<dyn BenchRack>> {
        self.started.push((scheme, options.clone()));
        Ok(Box::new(FakeRack::new(scheme, options.nodes, self.lose_every, self.cheat)))
    }
}
