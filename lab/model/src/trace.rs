//! A counterexample that people can read: what happened, and what there was then.

use crate::config::Config;
use crate::explore::Model as _;
use crate::state::{
    Command, Keeper, Lane, LaneState, Op, Packet, Preserved, Record, State, Switch, To, Version,
};
use crate::step::Action;
use std::fmt::{self, Write as _};

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            0 => f.write_str("nothing"),
            value => write!(f, "v{value}@{}.{}", self.seq.epoch(), self.seq.counter()),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            To::Switch => f.write_str("switch")?,
            To::Keeper(place) => write!(f, "keeper {place}")?,
            To::Node => f.write_str("node")?,
            To::Client => f.write_str("client")?,
        }
        write!(
            f,
            " gets {:?} of client {} request {} epoch {}",
            self.op, self.client, self.request, self.epoch
        )?;
        let has_value = self.version.value != 0 || self.version.seq.0 != 0;
        if has_value {
            write!(f, ", {}", self.version)?;
        }
        if matches!(self.op, Op::FencedRead | Op::FencedReadReply) {
            write!(f, ", fence {}.{}", self.guard.epoch(), self.guard.counter())?;
        }
        if self.cached {
            write!(
                f,
                ", cached{}, generation {}",
                if self.dirty { ", dirty" } else { "" },
                self.generation
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::AdmitKeeper(place, entry) => {
                write!(f, "keeper {place} admits entry {} of epoch {}", entry.id, entry.epoch)
            }
            Command::Admit(entry) => {
                write!(f, "switch admits entry {} of epoch {}", entry.id, entry.epoch)
            }
            Command::EvictBegin(entry) => {
                write!(f, "switch gets EVICT_BEGIN of entry {} again", entry.id)
            }
            Command::Remove(entry) => write!(f, "switch removes entry {}", entry.id),
            Command::RemoveKeeper(place, entry) => {
                write!(f, "keeper {place} removes entry {}", entry.id)
            }
            Command::StoreEvicted(entry, version) => {
                write!(f, "node stores {version}, evicted from entry {}", entry.id)
            }
            Command::ClearOffer(entry) => write!(f, "node clears offer {}", entry.offer),
            Command::StoreRecovered(epoch, version) => {
                write!(f, "node stores {version}, recovered in epoch {epoch}")
            }
            Command::Release(epoch) => write!(f, "node is released in epoch {epoch}"),
            Command::Released(epoch) => {
                write!(f, "controller hears that the node is released in epoch {epoch}")
            }
            Command::StoreCleaned(entry, version) => {
                write!(f, "node stores {version}, to clean entry {}", entry.id)
            }
            Command::MarkClean(entry, seq) => write!(
                f,
                "switch gets MARK_CLEAN of entry {}, number {}.{}",
                entry.id,
                seq.epoch(),
                seq.counter()
            ),
        }
    }
}

fn describe(config: &Config, state: &State, action: Action) -> String {
    match action {
        Action::Invoke(client) => {
            format!(
                "client {client} begins request {}",
                state.clients[usize::from(client)].ended + 1
            )
        }
        Action::GiveUp(client) => format!("client {client} gives up"),
        Action::Deliver(packet, at) => {
            let packet = state.packets[usize::from(packet)];
            let at_switch = matches!(packet.to, To::Switch | To::Keeper(_));
            let zombie = at_switch && usize::from(at) != state.active();
            format!("{}{packet}", if zombie { "zombie " } else { "" })
        }
        Action::Command(command, _) => state.commands[usize::from(command)].to_string(),
        Action::GoOn(_, client) => format!("switch goes on with the write of client {client}"),
        Action::Offer => "node marks the key as offered".into(),
        Action::Evict => "controller evicts: EVICT_BEGIN".into(),
        Action::Clean => "controller cleans what is dirty".into(),
        Action::Crash(witnesses) => format!(
            "switches die: epoch {}; {} can be asked",
            state.controller.last_epoch + 1,
            members(config, witnesses)
        ),
        Action::Change => format!(
            "the controller exchanges all switches: epoch {}; {} can be asked",
            state.controller.last_epoch + 1,
            members(config, config.members())
        ),
        Action::HandOver => format!(
            "the controller exchanges a drained chain: epoch {}; none is asked",
            state.controller.last_epoch + 1
        ),
        Action::Move => "the partition moves to the other chain; both get a new epoch".into(),
        Action::RecoverOther => {
            format!("the other chain is recovered in epoch {}", state.controller.last_epoch + 1)
        }
        Action::HearOther(client) => {
            format!("client {client} hears of its old chain's epoch, not of the move")
        }
        Action::Freeze(member) => {
            format!("FREEZE, then LOAD: {}", members(config, 1 << member))
        }
        Action::NodeChangesEpoch => "node moves to the new epoch".into(),
        Action::Gather(client) => {
            format!("client {client} moves to the new epoch and answers the gather")
        }
        Action::StoreGathered => "controller has gathered enough".into(),
        Action::HearRecovered(client) => format!("client {client} hears that the recovery is over"),
        Action::BeginSnapshot => "SNAPSHOT_BEGIN".into(),
        Action::EndSnapshot => "the agent has loaded the snapshot".into(),
        Action::StoreSnapshot => "the snapshot is durable".into(),
        Action::HearDurable(client) => {
            format!(
                "client {client} hears that generation {} is durable",
                state.controller.published
            )
        }
        Action::RestartNode => "node restarts".into(),
        Action::RestartController => "controller restarts".into(),
        Action::RaiseFloor => "node raises its floor".into(),
        Action::Expire => "what was to expire expires".into(),
    }
}

fn members(config: &Config, some: u8) -> String {
    let name = |member: usize| match member == config.owner() {
        true => "the owner".into(),
        false => format!("keeper {member}"),
    };
    let some: Vec<_> = (0..config.layers).filter(|member| some & 1 << member != 0).collect();
    match some.is_empty() {
        true => "none of them".into(),
        false => some.into_iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

fn record(record: &Record) -> String {
    if !record.is_valid() {
        return "-".into();
    }
    let mut text =
        format!("{} {}", record.version, if record.latest { "latest" } else { "outdated" });
    for (is, word) in [(record.dirty, " dirty"), (record.evicting, " evicting")] {
        text += if is { word } else { "" };
    }
    text
}

fn kept(keeper: &Keeper) -> String {
    let frozen = if keeper.frozen { " frozen" } else { "" };
    match keeper.is_valid() || keeper.frozen {
        true => format!("{}{frozen}", keeper.version),
        false => "-".into(),
    }
}

fn lane(lane: &Lane) -> String {
    match lane.state {
        LaneState::None => "-".into(),
        state => format!("{}:{state:?}@{}", lane.request, lane.seq.counter()),
    }
}

fn summary(config: &Config, state: &State) -> String {
    let mut text = String::new();
    let clients = config.clients.len();
    for (at, switch) in state.switches.iter().enumerate().filter(|(_, switch)| switch.epoch != 0) {
        let Switch { epoch, counter, .. } = switch;
        let lanes: Vec<_> = switch.lanes[..clients].iter().map(lane).collect();
        for (place, keeper) in state.keepers[at][..config.owner()].iter().enumerate() {
            let _ = write!(text, "keeper {place} [{}] ", kept(keeper));
        }
        let frozen = if switch.frozen { " frozen" } else { "" };
        let name = if at == state.active() { "switch" } else { "zombie" };
        let _ = write!(
            text,
            "{name} {epoch}.{counter}{frozen} [{}] lanes {}; ",
            record(&switch.record),
            lanes.join(" ")
        );
    }
    let node = &state.node;
    let _ = write!(text, "node {} fence {}", node.stored, node.fence.counter());
    for (is, word) in [(node.offer != 0, " offered"), (node.held, " held")] {
        text += if is { word } else { "" };
    }
    for (at, client) in state.clients[..clients].iter().enumerate() {
        let Preserved { version, .. } = client.preserved;
        if version.value != 0 {
            let _ = write!(text, "; client {at} keeps {version}");
        }
    }
    text
}

/// A numbered line for each action, with the state that it led to.
pub fn trace(config: &Config, path: &[Action]) -> Vec<String> {
    let mut state = config.first();
    let mut lines = Vec::new();
    for (at, action) in path.iter().enumerate() {
        let what = describe(config, &state, *action);
        state = config.take(&state, *action).0;
        lines.push(format!("{:>3}  {what}", at + 1));
        lines.push(format!("       {}", summary(config, &state)));
    }
    lines
}
