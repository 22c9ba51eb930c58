//! The parts of a rack in one process: started in the order in which they need each other, stopped
//! in reverse.

use crate::config::KeyNames;
use crate::threads::{
    AgentHandle, AgentThread, ControllerFiles, ControllerHandle, ControllerThread, KernelThread,
    NodeHandle, NodeThread, Stop, SwitchThread,
};
use crate::wiring::{Buffers, KernelSwitch, Pipeline, Wires, Wiring, shard};
use anyhow::Context;
use rand::TryRng;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_assembly::Rack;
use switchback_core::control::Peer;
use switchback_core::controller::Controller;
use switchback_core::switch::Target;
use switchback_datapath::{Control, Datapath, Statistics, Verdict};
use switchback_engine::{Opened, Storage};
use switchback_net::{
    ClientControl, Clock, ControlLink, DatapathTarget, MemoryFabric, MemoryHub, MemoryLinks, Uplink,
};
use switchback_wire::{Address, Header, Map, Op, Packet};

/// Storage that still fails after this time, while the rack starts, won't mend by itself.
const STORAGE_ERROR_LASTS: Duration = Duration::from_secs(5);

/// How long the threads of a rack that could not be started may take to end.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// What to assemble.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// What the rack is made of.
    pub rack: Rack,
    /// Which node has which partition, if the rack is made now.
    pub map: Map,
    /// Where and how each node keeps its records.
    pub nodes: Vec<Storage>,
    /// The controller's directory.
    pub controller_data: PathBuf,
    /// Client sessions that may be opened.
    pub clients: u16,
    /// Requests a second that each node serves at most.
    pub node_capacity_ops: Option<f64>,
    /// What connects the parts, and where the switches are.
    pub wires: Wires,
    /// What is random about the rack; `None`: really random.
    pub seed: Option<u64>,
}

/// Running parts.
pub struct Assembly {
    /// The clock of all of them.
    pub clock: Clock,
    /// The controller.
    pub controller: ControllerHandle,
    /// The switches, by number.
    pub switches: Vec<Switch>,
    /// The nodes.
    pub nodes: Vec<NodeHandle>,
    hub: Arc<MemoryHub>,
    wiring: Wiring,
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
    rack: Rack,
}

/// A switch of a rack in one process.
pub struct Switch {
    /// Its pipeline.
    pub pipeline: Pipeline,
    /// Its agent.
    pub agent: AgentHandle,
    /// What the kernel runs of it, if that has the pipeline.
    pub kernel: Option<KernelSwitch>,
    /// The agent's thread, which ends earlier than others when the switch is replaced.
    agent_thread: Option<(Stop, JoinHandle<()>)>,
}

impl Switch {
    /// Ends the agent's thread.
    fn stop_agent(&mut self) {
        if let Some((stop, thread)) = self.agent_thread.take() {
            stop.ask();
            if thread.join().is_err() {
                tracing::error!("an agent's thread had panicked");
            }
        }
    }
}

/// A number that no other start draws.
pub fn draw_boot() -> u64 {
    rand::rngs::SysRng.try_next_u64().expect("the system gives random numbers") | 1
}

/// What errors of the rack's own files are about.
fn rack_in(blueprint: &Blueprint) -> String {
    format!("the rack in {}", blueprint.controller_data.display())
}

impl Assembly {
    /// Starts everything; returns once the rack serves.
    ///
    /// # Errors
    /// Directories that are locked, damaged or not writable; a rack that was made with other nodes,
    /// partitions or chains.
    pub fn start(blueprint: Blueprint) -> anyhow::Result<Assembly> {
        let clock = Clock::default();
        let seed = blueprint.seed.unwrap_or_else(draw_boot);
        // First: it fails without privileges that it needs, and then no file was made.
        let rack = &blueprint.rack;
        let wiring = Wiring::new(blueprint.wires, rack, blueprint.clients)?;
        let (files, found) = ControllerFiles::open(&blueprint.controller_data)?;
        // Before engines are opened, which makes directories: a rack with another number of nodes
        // is refused.
        Controller::check(&found, &rack.shape()).with_context(|| rack_in(&blueprint))?;
        let engines = open_engines(&blueprint.nodes)?;
        let mut assembly = Assembly {
            clock,
            controller: ControllerHandle::detached(),
            switches: Vec::new(),
            nodes: Vec::new(),
            hub: Arc::new(MemoryHub::default()),
            wiring,
            stop: Stop::default(),
            threads: Vec::new(),
            rack: rack.clone(),
        };
        let addresses = assembly.start_nodes(&blueprint, engines)?;
        assembly.start_controller(&blueprint, addresses, files, &found, seed)?;
        assembly.start_switches()?;
        assembly.wait_until_serving(Duration::from_secs(120))?;
        Ok(assembly)
    }

    fn start_nodes(
        &mut self,
        blueprint: &Blueprint,
        engines: Vec<Opened>,
    ) -> anyhow::Result<Vec<Address>> {
        let mut addresses = Vec::new();
        let others = (self.rack.replicas > 1).then(|| MemoryLinks::new(self.rack.nodes));
        for (index, (storage, (engine, loaded))) in blueprint.nodes.iter().zip(engines).enumerate()
        {
            let node = index as u16;
            let (links, address) = self.wiring.node(node)?;
            let shim = self.rack.shim(node, draw_boot(), address, loaded, self.clock.now());
            let shim = shim.with_context(|| format!("node {node}"))?;
            let port = self.hub.port(Peer::Node(node));
            let capacity_ops = blueprint.node_capacity_ops;
            let thread = NodeThread {
                shim,
                engine,
                engine_clock: Arc::clone(&storage.clock),
                links,
                others: others.as_ref().and_then(|others| others.port(node)),
                port,
                clock: self.clock,
                capacity_ops,
            };
            let (handle, joined) = thread.start(self.stop.clone())?;
            self.nodes.push(handle);
            self.threads.push(joined);
            addresses.push(address);
        }
        Ok(addresses)
    }

    fn start_controller(
        &mut self,
        blueprint: &Blueprint,
        addresses: Vec<Address>,
        files: ControllerFiles,
        found: &switchback_core::controller::Files,
        seed: u64,
    ) -> anyhow::Result<()> {
        let controller =
            self.rack.controller(addresses, blueprint.map.clone(), found, seed, self.clock.now());
        let controller = controller.with_context(|| rack_in(blueprint))?;
        let inbox = self.hub.controller_inbox();
        let carrier = Arc::clone(&self.hub) as Arc<dyn switchback_net::Carrier>;
        let (handle, joined) = ControllerThread::start(
            controller,
            files,
            inbox,
            carrier,
            self.clock,
            self.stop.clone(),
        )?;
        self.controller = handle;
        self.threads.push(joined);
        Ok(())
    }

    fn start_switches(&mut self) -> anyhow::Result<()> {
        for switch in 0..self.rack.switches() {
            let started = match &self.wiring {
                Wiring::Memory(fabric) => {
                    let datapath = Arc::clone(&fabric.switches()[usize::from(switch)]);
                    self.start_in_memory(switch, datapath)
                }
                Wiring::Udp(buffers, datapaths) => {
                    let datapath = Arc::clone(&datapaths[usize::from(switch)]);
                    self.start_with_socket(switch, datapath, *buffers)
                }
                Wiring::Kernel(..) => self.start_in_kernel(switch),
            }?;
            self.switches.push(started);
        }
        Ok(())
    }

    fn start_in_memory(&self, switch: u16, datapath: Arc<Datapath>) -> anyhow::Result<Switch> {
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let address = MemoryFabric::switch_address(switch);
        self.start_agent(switch, Pipeline::User(datapath), address, target)
    }

    fn start_with_socket(
        &mut self,
        switch: u16,
        datapath: Arc<Datapath>,
        buffers: Buffers,
    ) -> anyhow::Result<Switch> {
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let link = Wiring::switch_socket(buffers)?;
        let address = link.address().into();
        let thread = SwitchThread {
            datapath: Arc::clone(&datapath),
            link,
            nodes: target.nodes(),
            shard: shard(false, 0),
            packet_log: None,
        };
        self.threads.push(thread.start(self.stop.clone())?.1);
        self.start_agent(switch, Pipeline::User(datapath), address, target)
    }

    fn start_in_kernel(&mut self, switch: u16) -> anyhow::Result<Switch> {
        let Wiring::Kernel(buffers, mode, segment, datapath) = &self.wiring else {
            anyhow::bail!("the rack's switch isn't the kernel's");
        };
        let datapath = Arc::clone(datapath);
        let link = Wiring::kernel_socket(*buffers, segment)?;
        let address = link.address().into();
        let attachment = segment.attach(&datapath, *mode)?;
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let thread = KernelThread {
            datapath: Arc::clone(&datapath),
            link,
            nodes: target.nodes(),
            watch: attachment.watch().clone(),
        };
        let (passed, joined) = thread.start(self.stop.clone())?;
        self.threads.push(joined);
        let started = self.start_agent(switch, Pipeline::Kernel(datapath), address, target)?;
        Ok(Switch { kernel: Some(KernelSwitch::new(passed, attachment)), ..started })
    }

    fn start_agent<T: Target + Send + 'static>(
        &self,
        switch: u16,
        pipeline: Pipeline,
        address: Address,
        target: T,
    ) -> anyhow::Result<Switch> {
        let layer = self.rack.layer_of(switch);
        // All switches of the process fail together.
        let agent = self.rack.agent(draw_boot(), layer, String::new(), address, self.clock.now());
        let port = self.hub.port(Peer::Switch(switch));
        let thread = AgentThread { agent, target, port, clock: self.clock };
        let stop = Stop::default();
        let (agent, joined) = thread.start(stop.clone())?;
        Ok(Switch { pipeline, agent, kernel: None, agent_thread: Some((stop, joined)) })
    }

    /// The first switch dies with all it knows; its successor starts after `restart`. The parts of
    /// one process die together, so this is for measurements of a recovery only.
    ///
    /// # Errors
    /// A switch with a socket or in the kernel: its process can be killed.
    pub fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        let Wiring::Memory(fabric) = &self.wiring else {
            anyhow::bail!("only a switch of a rack with links in memory can be replaced");
        };
        let datapath = Arc::clone(&fabric.switches()[0]);
        self.switches[0].stop_agent();
        // Epoch 0 refuses every packet, as if there were no switch.
        let no_epoch = Header { generation: 1, ..Header::new(Op::SetEpoch) };
        let refused = datapath.inject(&mut Packet::build(no_epoch, &[], b"-"));
        anyhow::ensure!(refused == Verdict::Reply, "the datapath keeps its epoch: {refused:?}");
        datapath.clear();
        self.hub.disconnect(Peer::Switch(0));
        std::thread::sleep(restart);
        self.switches[0] = self.start_in_memory(0, datapath)?;
        Ok(())
    }

    /// Waits until the first recovery, which every start is, leaves only clients to wait for.
    fn wait_until_serving(&self, limit: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let ready = self.controller.call(|controller, _| controller.is_ready_for_clients());
            match ready {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => anyhow::bail!("the controller's thread ended while the rack started"),
            }
            anyhow::ensure!(
                !self.has_failed(),
                "a part of the rack ended while it started; the log says why"
            );
            if start.elapsed() > STORAGE_ERROR_LASTS {
                self.check_storage()?;
            }
            if start.elapsed() > limit {
                let status = self.controller.call(|controller, now| controller.status(now));
                let phase =
                    status.map_or_else(|| "starting".to_owned(), |status| status.phase.to_string());
                anyhow::bail!("the rack is still {phase} after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// # Errors
    /// What the storage of the controller and of nodes says now; each is tried again and again.
    fn check_storage(&self) -> anyhow::Result<()> {
        let Some(status) = self.controller.call(|controller, now| controller.status(now)) else {
            return Ok(());
        };
        let failing = |node: switchback_core::controller::NodeStatus| {
            node.error.map(|error| format!("node {}: {error}", node.index))
        };
        let of_nodes = status.nodes.into_iter().filter_map(failing);
        let errors: Vec<String> =
            self.controller.store_error().into_iter().chain(of_nodes).collect();
        anyhow::ensure!(errors.is_empty(), "the rack can't serve: {}", errors.join("; "));
        Ok(())
    }

    /// The links of client `client`, whose number on the control channel is `id`.
    pub fn client(
        &self,
        client: u16,
        id: u64,
    ) -> anyhow::Result<(Box<dyn Uplink>, Box<dyn ControlLink>)> {
        let uplink = self.wiring.client(client)?;
        Ok((uplink, Box::new(ClientControl(self.hub.port(Peer::Client(id))))))
    }

    /// The switches of the last layer, which decide about what passes the others, too.
    pub fn last_switches(&self) -> impl Iterator<Item = &Switch> {
        let is_last = |switch: &(u16, &Switch)| self.rack.layer_of(switch.0) == self.rack.layers;
        (0..).zip(&self.switches).filter(is_last).map(|(_, switch)| switch)
    }

    /// What the switches did for requests so far.
    pub fn counted(&self) -> Statistics {
        let is_last = |index| self.rack.layer_of(index) == self.rack.layers;
        let of_switch =
            |(index, switch): (u16, &Switch)| (is_last(index), switch.pipeline.statistics());
        Statistics::of_rack((0..).zip(&self.switches).map(of_switch))
    }

    /// Counts packets dropped by queues.
    pub fn dropped(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        self.wiring.dropped()
    }

    /// Brings every cached record to its node; a line for each node that lacks some if `limit` is
    /// not enough.
    pub fn drain(&self, limit: Duration) -> Result<(), Vec<String>> {
        let start = Instant::now();
        if self.controller.call(|controller, now| controller.drain(now)).is_none() {
            return Err(vec!["the controller's thread has ended".into()]);
        }
        loop {
            if self.controller.call(|controller, _| controller.is_drained()) == Some(true) {
                return Ok(());
            }
            if start.elapsed() > limit {
                let keys = self
                    .controller
                    .call(|controller, _| controller.cached_keys())
                    .unwrap_or_default();
                return Err(crate::supervise::describe_remaining(&keys, KeyNames::Names));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes a snapshot and waits until it is durable; false if `limit` is not enough.
    pub fn snapshot(&self, limit: Duration) -> bool {
        matches!(crate::supervise::take_snapshot(&self.controller, limit), Ok(Some(_)))
    }

    /// Forgets all client sessions, after a drain.
    pub fn close_sessions(&self) {
        if self.controller.call(|controller, now| controller.close_sessions(now)).is_none() {
            tracing::error!("the controller's thread has ended");
        }
    }

    /// Whether a thread has ended by itself.
    pub fn has_failed(&self) -> bool {
        let agents = self.switches.iter().filter_map(|switch| switch.agent_thread.as_ref());
        let mut threads = self.threads.iter().chain(agents.map(|(_, thread)| thread));
        !self.stop.is_asked() && threads.any(JoinHandle::is_finished)
    }

    /// Ends all threads; engines are closed.
    pub fn stop(mut self) {
        self.stop.ask();
        self.switches.iter_mut().for_each(Switch::stop_agent);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the rack had panicked");
            }
        }
    }
}

/// Of a rack that could not be started: a process that ended meanwhile would take what RocksDB's
/// threads use away from them. Not for ever, since on a full disk RocksDB may wait for room.
impl Drop for Assembly {
    fn drop(&mut self) {
        self.stop.ask();
        self.switches.iter_mut().for_each(Switch::stop_agent);
        let start = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished())
            && start.elapsed() < CLOSING_LIMIT
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Opens all engines at a time: each has its own disk work to do.
fn open_engines(nodes: &[Storage]) -> anyhow::Result<Vec<Opened>> {
    let opened = std::thread::scope(|scope| {
        let opening: Vec<_> = nodes.iter().map(|storage| scope.spawn(|| storage.open())).collect();
        opening.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut engines = Vec::new();
    for (node, opened) in opened.into_iter().enumerate() {
        let opened = opened.map_err(|_| anyhow::anyhow!("opening node {node} panicked"))?;
        engines.push(opened.with_context(|| format!("node {node} can't be opened"))?);
    }
    Ok(engines)
}
