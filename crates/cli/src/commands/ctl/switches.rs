//! `switchback ctl switches drain|replace|add`: begins it, and waits until it is over.

use super::{Rack, SwitchesCommand};
use anyhow::bail;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};
use switchback_rack::admin::{ChainStatus, SwitchStatus};

/// The controller gives a drain up after 10 s, and tries again a minute later: in between a node
/// can be mended.
const LIMIT: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The switches once the change is over.
pub(super) fn change(rack: &Rack, command: SwitchesCommand) -> anyhow::Result<Vec<SwitchStatus>> {
    let (switch, path) = match command {
        SwitchesCommand::Drain { switch } => (switch, format!("switches/{switch}/drain")),
        SwitchesCommand::Replace { switch, spare } => {
            (switch, format!("switches/{switch}/drain?spare={spare}"))
        }
        SwitchesCommand::Add { switch } => return rack.post(&format!("switches/{switch}/add")),
    };
    let mut switches: Vec<SwitchStatus> = rack.post(&path)?;
    let mut progress = Progress { shown: false };
    let start = Instant::now();
    loop {
        let its = switches.iter().find(|its| its.index == switch);
        let Some(chain) = its.filter(|its| its.active).and_then(|its| its.chain) else {
            progress.end();
            return Ok(switches);
        };
        if start.elapsed() > LIMIT {
            progress.end();
            bail!(
                "switch {switch} still serves: its chain's cache can't be brought to the nodes; \
                 `switchback ctl nodes` says which one doesn't store. The rack goes on trying"
            );
        }
        let chains: Vec<ChainStatus> = rack.get("chains")?;
        if let Some(chain) = chains.iter().find(|its| its.chain == chain) {
            progress.show(switch, chain);
        }
        std::thread::sleep(LOOK_AGAIN);
        switches = rack.get("switches")?;
    }
}

/// A line that is written over and over, for people.
struct Progress {
    shown: bool,
}

impl Progress {
    fn show(&mut self, switch: u16, chain: &ChainStatus) {
        if stderr().is_terminal() {
            let ChainStatus { chain, cached, .. } = chain;
            let line = format!("switch {switch} drains: chain {chain} has {cached} keys cached");
            let _ = write!(stderr(), "\r{line}\x1b[K");
            self.shown = true;
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
