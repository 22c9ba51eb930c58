//! The demo's rack: a process for each part, which end with the demo, however it ends.

use super::{CACHE_RECORDS, NODE_CAPACITY_OPS, NODES, SWITCHES, VALUE_BYTES};
use crate::process_guard::ProcessGuard;
use crate::racks::part::{self, Asker};
use crate::scratch::Scratch;
use anyhow::{Context as _, bail};
use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use switchback_net::fill_with_free;
use switchback_rack::admin::{KILL_ASKED, RackStatus};
use switchback_rack::config::{Cache, Overrides, RackConfig};

/// A part of the rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Controller,
    Node(u16),
    Switch(u16),
    Gateway,
}

impl Part {
    /// All of them, in the order in which they are started.
    pub(super) fn all() -> impl Iterator<Item = Part> {
        let nodes = (0..NODES).map(Part::Node);
        let switches = (0..SWITCHES).map(Part::Switch);
        [Part::Controller].into_iter().chain(nodes).chain(switches).chain([Part::Gateway])
    }

    /// Its subcommand, and its own arguments.
    fn command(self) -> (&'static str, Vec<String>) {
        let index = |index: u16| vec!["--index".to_owned(), index.to_string()];
        match self {
            Part::Controller => ("controller", vec!["--demo".to_owned()]),
            Part::Gateway => ("gateway", Vec::new()),
            Part::Switch(switch) => ("switch", index(switch)),
            Part::Node(node) => {
                let capacity = ["--capacity".to_owned(), NODE_CAPACITY_OPS.to_string()];
                ("node", [index(node), capacity.to_vec()].concat())
            }
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Controller => f.pad("controller"),
            Part::Gateway => f.pad("gateway"),
            Part::Node(node) => f.pad(&format!("node {node}")),
            Part::Switch(switch) => f.pad(&format!("switch {switch}")),
        }
    }
}

/// A part, and its process unless that was killed.
struct Running {
    part: Part,
    process: Option<ProcessGuard>,
}

/// The rack.
pub(super) struct DemoRack {
    program: PathBuf,
    file: PathBuf,
    config: RackConfig,
    running: Vec<Running>,
    asker: Asker,
    scratch: Scratch,
    /// The controller says here that the console's button was pressed.
    asked: Receiver<()>,
}

impl DemoRack {
    /// Starts all parts, and waits until the gateway has a session with the rack.
    pub(super) fn start(program: &Path) -> anyhow::Result<DemoRack> {
        let scratch = Scratch::new(None, "demo")?;
        let file = scratch.join("rack.toml");
        std::fs::write(&file, described()?).with_context(|| file.display().to_string())?;
        let config = RackConfig::load(Some(&file), &Overrides::default())?;
        let program = program.to_path_buf();
        let (running, asker) = (Vec::new(), Asker::default());
        let (pressed, asked) = mpsc::sync_channel(1);
        let mut rack = DemoRack { program, file, config, running, asker, scratch, asked };
        for part in Part::all() {
            let process = Some(rack.spawn(part)?);
            rack.running.push(Running { part, process });
        }
        for at in 0..rack.running.len() {
            let Running { part, process } = &mut rack.running[at];
            let (part, process) = (*part, process.as_mut().context("it was just started")?);
            let Some(output) = part::wait_until_ready(process)? else {
                bail!("{part} doesn't start: {}", rack.last_words(part));
            };
            if part == Part::Controller {
                watch_button(output, pressed.clone())?;
            }
        }
        Ok(rack)
    }

    fn spawn(&self, part: Part) -> anyhow::Result<ProcessGuard> {
        let log = self.log_of(part);
        let log = File::options().create(true).append(true).open(&log);
        let (command, arguments) = part.command();
        part::start(&self.program, &self.file, command, &arguments, log.context("a log")?.into())
    }

    fn log_of(&self, part: Part) -> PathBuf {
        self.scratch.join(&(part.to_string().replace(' ', "-") + ".log"))
    }

    /// What a part said last.
    fn last_words(&self, part: Part) -> String {
        let log = std::fs::read(self.log_of(part)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().last().unwrap_or("it doesn't say why").to_owned()
    }

    /// Whether every part runs that wasn't killed.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let mut ended = None;
        for Running { part, process } in &mut self.running {
            if let Some(status) = process.as_mut().map(ProcessGuard::ended).transpose()?.flatten() {
                ended = Some((*part, status));
            }
        }
        match ended {
            Some((part, status)) => {
                bail!("{part} has ended, {status}: {}", self.last_words(part))
            }
            None => Ok(()),
        }
    }

    fn process(&mut self, part: Part) -> Option<&mut Option<ProcessGuard>> {
        let found = self.running.iter_mut().find(|running| running.part == part);
        found.map(|running| &mut running.process)
    }

    /// `kill -9`.
    pub(super) fn kill_switch(&mut self, switch: u16) {
        if let Some(process) = self.process(Part::Switch(switch)) {
            drop(process.take());
        }
    }

    /// Starts a switch again that was killed.
    pub(super) fn start_switch(&mut self, switch: u16) -> anyhow::Result<()> {
        let started = self.spawn(Part::Switch(switch))?;
        if let Some(process) = self.process(Part::Switch(switch)) {
            *process = Some(started);
        }
        Ok(())
    }

    /// Each part with its process id; `None`: it was killed.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Part, Option<u32>)> {
        self.running.iter().map(|Running { part, process }| {
            let id = process.as_ref().map(ProcessGuard::id);
            (*part, id)
        })
    }

    /// Whether the console's button was pressed since the last time.
    pub(super) fn is_asked_to_kill(&self) -> bool {
        self.asked.try_recv().is_ok()
    }

    /// What the controller says of the rack.
    pub(super) fn status(&self) -> anyhow::Result<RackStatus> {
        self.asker.status(Some(self.config.rack.metrics))
    }

    /// Requests that each node has served since its start.
    pub(super) fn served_by_nodes(&self) -> Vec<u64> {
        let served = |status: RackStatus| {
            let of = |node: &switchback_rack::admin::NodeStatus| {
                node.reads.unwrap_or(0) + node.writes.unwrap_or(0)
            };
            status.nodes.iter().map(of).sum()
        };
        let nodes = self.config.nodes.iter();
        nodes.map(|node| self.asker.status(node.metrics).map_or(0, served)).collect()
    }

    /// Where the gateway speaks Redis' protocol.
    pub(super) fn resp(&self) -> SocketAddr {
        self.config.gateway.resp
    }

    /// Where the controller serves its metrics.
    pub(super) fn metrics(&self) -> SocketAddr {
        self.config.rack.metrics
    }

    /// The console, with the token that its commands need.
    pub(super) fn console(&self) -> anyhow::Result<String> {
        let file = self.config.controller.data.join("console-token");
        let token = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(format!("http://{}/#t={}", self.metrics(), token.trim_end()))
    }

    /// Where its files are until it ends.
    pub(super) fn directory(&self) -> &Path {
        self.scratch.path()
    }
}

/// Passes on what the controller says after it is ready: that the console's button was pressed.
fn watch_button(output: impl BufRead + Send + 'static, pressed: SyncSender<()>) -> io::Result<()> {
    let watch = move || {
        for line in output.lines().map_while(Result::ok) {
            if line == KILL_ASKED {
                // One that isn't dealt with yet is enough.
                let _full = pressed.try_send(());
            }
        }
    };
    std::thread::Builder::new().name("button".into()).spawn(watch)?;
    Ok(())
}

/// `rack.toml` of the rack, whose data is beside it.
fn described() -> anyhow::Result<String> {
    // The controller's two, the gateway's two, and two of each switch and node.
    let count = 4 + 2 * usize::from(SWITCHES + NODES);
    let mut addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); count];
    fill_with_free(&mut addresses).context("no free addresses for the parts")?;
    let mut addresses = addresses.into_iter();
    let mut address = || addresses.next().expect("as many were drawn as are asked for");
    let (value_bytes, slots) = Cache::classes_of_one_size(CACHE_RECORDS, VALUE_BYTES as u32)[0];
    let mut text = format!(
        "[rack]\nname = \"demo\"\ndata = \"data\"\nmetrics = \"{}\"\n\
         [cache]\nrecords = {CACHE_RECORDS}\nclasses = [[{value_bytes}, {slots}]]\n\
         [console]\naccess = \"control\"\n\
         [controller]\nlisten = \"{}\"\n\
         [gateway]\nresp = \"{}\"\nmetrics = \"{}\"\nworkers = 1\n\
         [nodes]\nblock_cache_mb = 16\nmemtable_mb = 16\n",
        address(),
        address(),
        address(),
        address()
    );
    let switches = (0..SWITCHES).map(|_| "switch");
    for part in switches.chain((0..NODES).map(|_| "node")) {
        let _infallible =
            writeln!(text, "[[{part}]]\naddress = \"{}\"\nmetrics = \"{}\"", address(), address());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_description_is_that_of_its_parts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rack.toml");
        std::fs::write(&file, described().unwrap()).unwrap();
        let config = RackConfig::load(Some(&file), &Overrides::default()).unwrap();
        let listed = Part::all().filter(|part| matches!(part, Part::Switch(_) | Part::Node(_)));
        assert_eq!(config.switches.len() + config.nodes.len(), listed.count());
        assert!(config.rack.data.starts_with(directory.path()));
        assert!(config.gateway.spool.starts_with(directory.path()));
    }
}
