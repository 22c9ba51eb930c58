//! `switchback demo`: a rack of processes under a verified load, and a key, and a button in the
//! console, that kill its switch.

mod load;
mod rack;
mod resp;
mod screen;
mod script;
mod text;

use crate::workload::{KeySpace, ValueBytes, Workload, WorkloadSpec};
use anyhow::Context as _;
use clap::Args;
use load::{Done, Order, drive};
use rack::DemoRack;
use screen::Screen;
use script::{Act, Script, Sight, Wish};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use switchback_terminal::error;
use text::{Board, Loads};

const EXAMPLES: &str = "\
Examples:
  On a terminal: k kills the switch that serves, q ends the demo:
      switchback demo
  Twenty kills without a terminal; the exit code is 1 if anything was lost:
      switchback demo --headless --kills 20";

/// Requests a second that each node serves at most. They, not this machine's processors, are the
/// bottleneck, as the servers of a real rack are.
const NODE_CAPACITY_OPS: u32 = 2000;
const NODES: u16 = 4;
/// One switch serves, one is a spare.
const SWITCHES: u16 = 2;
const CACHE_RECORDS: u32 = 1000;
const RECORDS: u64 = 10_000;
const ZIPF: f64 = 0.99;
const VALUE_BYTES: usize = 128;
const SEED: u64 = 1;
/// The demo ends by itself after this time.
const LONGEST: Duration = Duration::from_secs(3600);

/// Try it: a rack of processes under a load whose every answer is verified, and a key, and a button
/// in the console, that kill the switch with kill -9.
///
/// It starts a switch that serves, a spare, 4 nodes, a controller and a gateway as
/// processes on free loopback addresses. After each kill it says how long each step of the recovery
/// took, reads every record that was written once more, and says what was lost: nothing. All
/// processes and data are gone when it ends, which it does by itself after an hour.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Kill without a terminal, say each step in a line, and end.
    #[arg(long)]
    headless: bool,

    /// How many switches to kill, one after the other.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "headless",
        value_parser = clap::value_parser!(u32).range(1..=500)
    )]
    kills: u32,
}

/// Runs the demo with `program`, which is this one. A signal ends it as `q` does. The exit code is
/// a failure if anything was lost, or not all kills were done that were asked for.
///
/// # Errors
/// A part doesn't start, ends unasked, or no switch takes over.
pub fn run(args: &DemoArgs, program: &Path, signals: &Receiver<i32>) -> anyhow::Result<ExitCode> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !is_terminal && !args.headless {
        error("the demo draws on a terminal and takes keys from it, and here is none: --headless");
        return Ok(ExitCode::from(2));
    }
    let mut rack = DemoRack::start(program)?;
    let mut screen = if args.headless { Screen::lines() } else { Screen::board()? };
    let called = std::env::args().next().unwrap_or_else(|| "switchback".to_owned());
    screen.say(&text::introduction(&rack, &called)?)?;
    let gateway = rack.resp();
    let mut demo = Demo {
        script: Script::new(args.headless.then_some(args.kills)),
        loads: Loads::default(),
        started: Instant::now(),
        rack: &mut rack,
        screen: &mut screen,
        signals,
    };
    let done = drive(gateway, &workload(), KeySpace::new(SEED, 16), &mut |done| demo.look(done))?;
    let recoveries = demo.script.recoveries().to_vec();
    screen.end();
    screen.say(&text::summary(&done, &recoveries, screen.paint()))?;
    drop(rack);
    let is_done = !args.headless || recoveries.len() >= args.kills as usize;
    if !is_done {
        error(&format!("it was ended after {} of {} kills", recoveries.len(), args.kills));
    }
    Ok(if is_all_there(&done) && is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether every answer was right, and every record could be read at the end.
fn is_all_there(done: &Done) -> bool {
    done.verification.mismatches == 0 && done.unswept == 0
}

/// The load: half reads, half writes.
fn workload() -> WorkloadSpec {
    WorkloadSpec {
        workload: Workload::A,
        theta: ZIPF,
        records: RECORDS,
        value_bytes: ValueBytes::constant(VALUE_BYTES),
        change: None,
        seed: SEED,
    }
}

/// What goes on beside the load.
struct Demo<'a> {
    script: Script,
    loads: Loads,
    started: Instant,
    rack: &'a mut DemoRack,
    screen: &'a mut Screen,
    signals: &'a Receiver<i32>,
}

impl Demo<'_> {
    /// Looks at rack, load, keys and signals, does what the script says, and draws.
    fn look(&mut self, done: &Done) -> anyhow::Result<Order> {
        self.rack.check()?;
        let now = self.started.elapsed();
        let wish = if now < LONGEST { self.wish()? } else { Some(Wish::End) };
        let status = self.rack.status().context("the controller")?;
        let mut order = Order::GoOn;
        for act in self.script.step(&Sight { now, status: &status, done, wish })? {
            match act {
                Act::Kill(switch) => self.rack.kill_switch(switch),
                Act::Restart(switch) => self.rack.start_switch(switch)?,
                Act::Audit => order = Order::Audit,
                Act::End => {
                    // The terminal first: who is in a hurry may end the process now.
                    self.screen.end();
                    self.screen.say("ending: all that was written is read once more")?;
                    order = Order::End;
                }
                Act::Tell(event) => {
                    self.screen.say(&text::event(now, &event, self.screen.paint()))?;
                }
            }
        }
        let nodes = || self.rack.served_by_nodes();
        self.loads.take(now, done, nodes);
        if self.screen.is_board() {
            let rack = &*self.rack;
            let board = Board { rack, status: &status, done, loads: &self.loads };
            self.screen.draw(&board.text(self.screen.paint()));
        }
        Ok(order)
    }

    /// What is asked for by key, signal or the console's button.
    fn wish(&mut self) -> anyhow::Result<Option<Wish>> {
        match self.signals.try_recv() {
            Ok(_) | Err(TryRecvError::Disconnected) => return Ok(Some(Wish::End)),
            Err(TryRecvError::Empty) => {}
        }
        Ok(match self.screen.key()? {
            Some(b'k' | b'K') => Some(Wish::Kill),
            Some(b'q' | b'Q') => Some(Wish::End),
            _ if self.rack.is_asked_to_kill() => Some(Wish::Kill),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Verification;

    #[test]
    fn a_wrong_answer_or_an_unread_record_is_a_failure() {
        let done = |mismatches, unswept| Done {
            unswept,
            verification: Verification { mismatches, ..Verification::default() },
            ..Done::default()
        };
        assert!(is_all_there(&done(0, 0)));
        assert!(!is_all_there(&done(1, 0)) && !is_all_there(&done(0, 1)));
    }
}
