//! What there is: one key, one switch, the nodes, the views, the clients, and everything that was
//! sent and can still matter.

use super::config::{Config, Times};
use super::stored::{Stored, Version};
use super::view::View;
use crate::state::{CLIENTS_MAX, LaneState, OPERATIONS_MAX, Op, Outcome};

/// Most nodes: three replicas and a joiner.
pub(super) const NODES_MAX: usize = 4;

/// Who gets a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum To {
    Node(u8),
    Switch,
    Client,
}

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Packet {
    pub(super) to: To,
    pub(super) op: Op,
    pub(super) client: u8,
    pub(super) request: u8,
    /// By which view the switch sent it to a node; else 0.
    pub(super) view: u8,
    /// Of the write, or of the version that is answered or embedded.
    pub(super) version: Version,
    /// Fence, or the number that a condition expects.
    pub(super) guard: u8,
}

/// What a head has decided, and the tail says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Decision {
    /// The write has run.
    Ran(Packet),
    /// It has run, or what is newer stands for it.
    Overwritten(Packet),
    /// Its condition failed, because of the version with this number.
    Refused(Packet, u8),
    /// It is to be tried again, under another number.
    Bounced(Packet),
    /// The fence of this read is set: it may be answered.
    Fenced(Packet),
    /// The record in this read is stored: it may be answered.
    Embedded(Packet),
    /// The record that was evicted under this mark is stored.
    EvictionStored(u8),
    /// The key is marked: it may be cached.
    Offered(u8),
}

/// What a node passes on to the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Frame {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) view: u8,
    pub(super) effect: Stored,
    pub(super) decision: Option<Decision>,
    /// All that was unconfirmed when the view began came before it.
    pub(super) flush: bool,
}

impl Frame {
    /// Whether it is on the link from this node to that one.
    pub(super) fn is_on(&self, from: u8, to: u8) -> bool {
        (self.from, self.to) == (from, to)
    }
}

/// What the controller says. Each may arrive any number of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Command {
    /// To the switch: an empty entry for the key, under this mark.
    Admit(u8),
    /// To the head: store the record that is evicted.
    Store(u8, Version),
    /// To the switch: the entry goes.
    Remove(u8),
    /// To the head: the entry is gone.
    Clear(u8),
}

/// A storage node. All of this is durable, but for `unconfirmed` if that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Node {
    /// It hasn't died.
    pub(super) is_up: bool,
    /// The view that it is in; 0: none yet.
    pub(super) view: u8,
    pub(super) stored: Stored,
    /// Up to here nothing is applied to an absent key.
    pub(super) floor: u8,
    /// Not all that it has stored is known to be at the tail; if it is the tail, at the joiner.
    pub(super) unconfirmed: bool,
    /// As the tail it answers.
    pub(super) open: bool,
    /// As the head it takes nothing more in this view.
    pub(super) held: bool,
    /// The join in which it has begun empty.
    pub(super) join: u8,
    /// It has the copy of that join.
    pub(super) copied: bool,
}

/// A cached record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Record {
    /// The mark under which it is cached; 0: it isn't.
    pub(super) mark: u8,
    pub(super) latest: bool,
    pub(super) evicting: bool,
    pub(super) dirty: bool,
    pub(super) version: Version,
    /// The last number given out when it was admitted.
    pub(super) adm: u8,
}

/// What the switch knows of a client's newest write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Lane {
    pub(super) request: u8,
    pub(super) seq: u8,
    pub(super) state: LaneState,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Switch {
    /// The view that it routes by.
    pub(super) view: u8,
    /// Numbers given out.
    pub(super) counter: u8,
    pub(super) record: Record,
    /// The last mark under which the key was admitted.
    pub(super) admitted_to: u8,
    pub(super) lanes: [Lane; CLIENTS_MAX],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Client {
    /// Operations that have ended.
    pub(super) ended: u8,
    pub(super) waits: bool,
    /// What its next conditional write expects.
    pub(super) seen: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Operation {
    pub(super) outcome: Outcome,
    /// What a read returned; what a conditional write expected.
    pub(super) value: u8,
    /// Operations that had ended before it began, a bit each.
    pub(super) before: u16,
    /// The number under which a write ran.
    pub(super) executed: u8,
}

/// What a source sent to a joiner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct JoinerCopy {
    pub(super) to: u8,
    pub(super) join: u8,
    pub(super) stored: Stored,
    pub(super) floor: u8,
}

/// All that there is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub(super) switch: Switch,
    pub(super) nodes: [Node; NODES_MAX],
    /// All views that the directory made; the one with number 0 is empty.
    pub(super) views: Vec<View>,
    pub(super) clients: [Client; CLIENTS_MAX],
    pub(super) history: [Operation; CLIENTS_MAX * OPERATIONS_MAX],
    /// The newest number that an answer rests on, or that the cache answered before its record
    /// went.
    pub(super) told: u8,
    pub(super) spent: Times,
    /// In order, as are commands.
    pub(super) packets: Vec<Packet>,
    /// Link by link; on each in order of sending.
    pub(super) frames: Vec<Frame>,
    pub(super) commands: Vec<Command>,
    pub(super) copy: Option<JoinerCopy>,
}

impl State {
    pub(super) fn first(config: &Config) -> State {
        let mut nodes = [Node::default(); NODES_MAX];
        nodes[..config.nodes()].iter_mut().for_each(|node| node.is_up = true);
        nodes[..config.replicas].iter_mut().for_each(|node| node.view = 1);
        nodes[config.replicas - 1].open = true;
        State {
            switch: Switch { view: 1, ..Switch::default() },
            nodes,
            views: vec![View::default(), View::of_first(config.replicas)],
            clients: Default::default(),
            history: Default::default(),
            told: 0,
            spent: Times::NEVER,
            packets: Vec::new(),
            frames: Vec::new(),
            commands: Vec::new(),
            copy: None,
        }
    }

    /// The number of the newest view.
    pub(super) fn newest(&self) -> u8 {
        self.views.len() as u8 - 1
    }

    /// The newest view, as the directory has it.
    pub(super) fn directory(&self) -> View {
        self.view(self.newest())
    }

    pub(super) fn view(&self, number: u8) -> View {
        self.views[usize::from(number)]
    }

    pub(super) fn node(&self, node: u8) -> Node {
        self.nodes[usize::from(node)]
    }

    pub(super) fn node_mut(&mut self, node: u8) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// Whether a node decides about requests.
    pub(super) fn decides(&self, node: u8) -> bool {
        let Node { is_up, view, held, .. } = self.node(node);
        is_up && view != 0 && !held && self.view(view).head() == node
    }

    /// Whether a node is the tail of its view and answers.
    pub(super) fn answers(&self, node: u8) -> bool {
        let Node { is_up, view, open, .. } = self.node(node);
        is_up && view != 0 && open && self.view(view).tail() == node
    }

    /// The frames on a link, in order.
    pub(super) fn link(&self, from: u8, to: u8) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.iter().filter(move |frame| frame.is_on(from, to))
    }

    /// The newest number that a node has stored, or dropped.
    pub(super) fn reached(&self, node: u8) -> u8 {
        let node = self.node(node);
        node.stored.version.seq.max(node.floor)
    }

    pub(super) fn send(&mut self, packet: Packet) {
        if let Err(at) = self.packets.binary_search(&packet) {
            self.packets.insert(at, packet);
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        if let Err(at) = self.commands.binary_search(&command) {
            self.commands.insert(at, command);
        }
    }
}
