//! A counterexample, told step by step.

use super::config::Config;
use super::state::{Command, Decision, Node, Packet, State, To};
use super::step::Action;
use super::stored::{Stored, Version};
use crate::explore::Model as _;
use std::fmt::{self, Write as _};

/// A counterexample, a line a step, with what the step changed of nodes.
pub fn trace(config: &Config, path: &[Action]) -> Vec<String> {
    let mut state = config.first();
    let mut lines = Vec::new();
    for (at, action) in path.iter().enumerate() {
        let mut line = format!("{:>3}  {}", at + 1, Shown(&state, *action));
        let next = config.take(&state, *action).0;
        for (at, (before, after)) in state.nodes.iter().zip(&next.nodes).enumerate() {
            if before != after {
                write!(line, " | node {at}: {after}").expect("a string takes it");
            }
        }
        lines.push(line);
        state = next;
    }
    lines
}

/// An action in a state.
struct Shown<'a>(&'a State, Action);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(state, action) = self;
        match *action {
            Action::Invoke(client) => write!(f, "client {client} begins its next operation"),
            Action::GiveUp(client) => write!(f, "client {client} gives its operation up"),
            Action::Deliver(at) => write!(f, "{}", state.packets[usize::from(at)]),
            Action::CommandSwitch(at) => match state.commands[usize::from(at)] {
                Command::Admit(mark) => write!(f, "the switch admits the key under mark {mark}"),
                Command::Remove(mark) => write!(f, "the switch removes its entry of mark {mark}"),
                command => write!(f, "the switch gets {command:?}"),
            },
            Action::CommandHead(at, node) => match state.commands[usize::from(at)] {
                Command::Store(mark, version) => {
                    write!(f, "node {node} is to store {version}, evicted under mark {mark}")
                }
                Command::Clear(mark) => write!(f, "node {node} is to clear mark {mark}"),
                command => write!(f, "node {node} gets {command:?}"),
            },
            Action::Frame(from, to) => show_frame(f, state, from, to),
            Action::Confirm(node) => write!(f, "node {node} hears that all it has is confirmed"),
            Action::Offer(node) => write!(f, "node {node} offers the key"),
            Action::Evict => f.write_str("the key's eviction begins"),
            Action::Crash(node) => write!(f, "node {node} dies"),
            Action::Restart(node) => write!(f, "node {node} restarts"),
            Action::Break(from, to) => write!(f, "the link from node {from} to {to} breaks"),
            Action::Remove(node) => {
                write!(f, "the directory removes node {node}: view {}", state.newest() + 1)
            }
            Action::Join(node) => {
                write!(f, "the directory has node {node} join: view {}", state.newest() + 1)
            }
            Action::MakeCopy => f.write_str("the source makes a copy for the joiner"),
            Action::CopyArrives => f.write_str("the joiner merges the copy"),
            Action::Append => {
                write!(f, "the joiner is to be the tail: view {}", state.newest() + 1)
            }
            Action::HearOpened => f.write_str("the directory hears that the tail has opened"),
            Action::Route => write!(f, "the switch routes by view {}", state.newest()),
            Action::Enter(node, view) => write!(f, "node {node} enters view {view}"),
            Action::Hold => f.write_str("the head holds"),
            Action::Reorder(one, other) => write!(
                f,
                "the replicas at places {one} and {other} change them: view {}",
                state.newest() + 1
            ),
            Action::RaiseFloor(node) => write!(f, "the floor of node {node} rises"),
        }
    }
}

fn show_frame(f: &mut fmt::Formatter<'_>, state: &State, from: u8, to: u8) -> fmt::Result {
    let frame = state.link(from, to).next().expect("there is a frame on the link");
    write!(f, "node {to} gets of node {from} in view {}: {}", frame.view, frame.effect)?;
    match frame.decision {
        None => {}
        Some(Decision::Ran(packet)) => write!(f, ", \"{} ran\"", packet.version)?,
        Some(Decision::Overwritten(packet)) => {
            write!(f, ", \"{} is overwritten\"", packet.version)?
        }
        Some(Decision::Refused(packet, because_of)) => {
            write!(f, ", \"{} is refused because of @{because_of}\"", packet.version)?;
        }
        Some(Decision::Bounced(packet)) => write!(f, ", \"{} is bounced\"", packet.version)?,
        Some(Decision::Fenced(packet)) => write!(f, ", \"fenced up to {}\"", packet.guard)?,
        Some(Decision::Embedded(packet)) => write!(f, ", \"{} was embedded\"", packet.version)?,
        Some(Decision::EvictionStored(mark)) => write!(f, ", \"stored under mark {mark}\"")?,
        Some(Decision::Offered(mark)) => write!(f, ", \"offered under mark {mark}\"")?,
    }
    f.write_str(if frame.flush { ", FLUSH" } else { "" })
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            To::Node(node) => write!(f, "node {node}")?,
            To::Switch => f.write_str("the switch")?,
            To::Client => write!(f, "client {}", self.client)?,
        }
        write!(f, " gets {:?} of client {} request {}", self.op, self.client, self.request)?;
        if self.view != 0 {
            write!(f, " in view {}", self.view)?;
        }
        if self.version != Version::default() {
            write!(f, ", {}", self.version)?;
        }
        if self.guard != 0 {
            write!(f, ", guard {}", self.guard)?;
        }
        Ok(())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            0 => f.write_str("nothing"),
            _ => write!(f, "v{}@{}", self.value, self.seq),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        if self.fence != 0 {
            write!(f, ", fence {}", self.fence)?;
        }
        if self.mark != 0 {
            write!(f, ", mark {}", self.mark)?;
        }
        for (client, done) in self.completions.iter().enumerate() {
            if done.request != 0 {
                write!(f, ", client {client} completed {}@{}", done.request, done.seq)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.stored)?;
        if self.floor != 0 {
            write!(f, ", floor {}", self.floor)?;
        }
        f.write_str(if self.unconfirmed { ", unconfirmed" } else { "" })?;
        f.write_str(if self.open { ", open" } else { "" })
    }
}
