//! The parts of a rack in one process: started in the order in which they need each other, stopped in reverse.

use crate::drive::{
    AgentHandle, AgentThread, ControllerFiles, ControllerHandle, ControllerThread, NodeHandle, NodeLinks, NodeThread,
    Stop, SwitchHandle, SwitchThread,
};
use anyhow::Context;
use rand::TryRng;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_core::control::Peer;
use switchback_core::controller::{Controller, ControllerConfig};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::switch::{Agent, AgentConfig};
use switchback_datapath::{Config as DatapathConfig, Datapath, SHARDS, Shard};
use switchback_engine::{Options as EngineOptions, RocksEngine};
use switchback_net::{
    ClientControl, Clock, ControlLink, MemoryFabric, MemoryHub, MemoryUplink, NativeTarget, SWITCH_ADDRESS, UdpLink,
    Uplink,
};
use switchback_wire::Address;

/// What to assemble.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// The switch's pipeline.
    pub datapath: DatapathConfig,
    /// The controller; its `nodes` are filled in by the assembly.
    pub controller: ControllerConfig,
    /// The agent's times.
    pub agent: AgentConfig,
    /// Limits of each node.
    pub limits: NodeLimits,
    /// Directory and engine options of each node.
    pub nodes: Vec<(PathBuf, EngineOptions)>,
    /// The controller's directory.
    pub controller_data: PathBuf,
    /// Client sessions that may be opened.
    pub clients: u16,
    /// Requests a second that each node serves at most.
    pub node_capacity_ops: Option<f64>,
    /// Sockets instead of queues; receive and send buffer of each.
    pub udp: Option<(usize, usize)>,
    /// What is random about the rack; `None`: really random.
    pub seed: Option<u64>,
}

/// Running parts.
pub struct Assembly {
    /// The clock of all of them.
    pub clock: Clock,
    /// The controller.
    pub controller: ControllerHandle,
    /// The agent.
    pub agent: AgentHandle,
    /// The nodes.
    pub nodes: Vec<NodeHandle>,
    /// The pipeline.
    pub datapath: Arc<Datapath>,
    /// The switch's socket thread, if there is one.
    pub switch: Option<SwitchHandle>,
    hub: Arc<MemoryHub>,
    fabric: Arc<MemoryFabric>,
    udp: Option<(usize, usize)>,
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

/// A number that no other start draws.
pub fn draw_boot() -> u64 {
    rand::rngs::SysRng.try_next_u64().expect("the system gives random numbers") | 1
}

/// The shard of the `index`-th client or node thread. Clients have the lower half, so that the busiest never share one.
fn shard(is_node: bool, index: usize) -> Shard {
    let half = usize::from(SHARDS) / 2;
    let at = index % half + if is_node { half } else { 0 };
    Shard::new(at as u8)
}

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

impl Assembly {
    /// Starts everything; returns once the rack serves.
    ///
    /// # Errors
    /// Directories that are locked, damaged or not writable; a rack that was made with other nodes.
    pub fn start(blueprint: Blueprint) -> anyhow::Result<Assembly> {
        let clock = Clock::default();
        let seed = blueprint.seed.unwrap_or_else(draw_boot);
        let (files, found) = ControllerFiles::open(&blueprint.controller_data)?;
        let engines = open_engines(&blueprint.nodes)?;
        let datapath = Arc::new(Datapath::new(&blueprint.datapath).context("the switch can't be made")?);
        let fabric = MemoryFabric::new(Arc::clone(&datapath), blueprint.nodes.len() as u16, blueprint.clients);
        let mut assembly = Assembly {
            clock,
            controller: ControllerHandle::detached(),
            agent: AgentHandle::default(),
            nodes: Vec::new(),
            switch: None,
            hub: Arc::new(MemoryHub::default()),
            fabric: Arc::new(fabric),
            datapath,
            udp: blueprint.udp,
            stop: Stop::default(),
            threads: Vec::new(),
        };
        let addresses = assembly.start_nodes(&blueprint, engines)?;
        assembly.start_controller(&blueprint, addresses, files, &found, seed)?;
        assembly.start_switch(&blueprint)?;
        assembly.wait_until_serving(Duration::from_secs(120))?;
        Ok(assembly)
    }

    fn start_nodes(
        &mut self,
        blueprint: &Blueprint,
        engines: Vec<(RocksEngine, switchback_core::storage::Loaded)>,
    ) -> anyhow::Result<Vec<Address>> {
        let mut addresses = Vec::new();
        for (index, (engine, loaded)) in engines.into_iter().enumerate() {
            let node = index as u16;
            let (links, address) = match self.udp {
                None => (NodeLinks::memory(&self.fabric, node, shard(true, index)), MemoryFabric::node_address(node)),
                Some((receive, send)) => {
                    let link = UdpLink::bind(loopback(), receive, send).context("a node's socket")?;
                    let address = link.address().into();
                    (NodeLinks::Udp(Box::new(link)), address)
                }
            };
            let limits = blueprint.limits.clone();
            let now = self.clock.now();
            let shim = Shim::new(node, draw_boot(), address, limits, Mechanisms::ALL, loaded, now)
                .with_context(|| format!("node {node}"))?;
            let port = self.hub.port(Peer::Node(node));
            let capacity_ops = blueprint.node_capacity_ops;
            let thread = NodeThread { shim, engine, links, port, clock: self.clock, capacity_ops };
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
        let config = ControllerConfig { nodes: addresses, ..blueprint.controller.clone() };
        let controller = Controller::new(config, Mechanisms::ALL, found, seed, self.clock.now())
            .with_context(|| format!("the rack in {}", blueprint.controller_data.display()))?;
        let inbox = self.hub.controller_inbox();
        let carrier = Arc::clone(&self.hub) as Arc<dyn switchback_net::Carrier>;
        let (handle, joined) =
            ControllerThread::start(controller, files, inbox, carrier, self.clock, self.stop.clone())?;
        self.controller = handle;
        self.threads.push(joined);
        Ok(())
    }

    fn start_switch(&mut self, blueprint: &Blueprint) -> anyhow::Result<()> {
        let target = NativeTarget::new(Arc::clone(&self.datapath), &blueprint.datapath);
        let mut address = SWITCH_ADDRESS;
        if let Some((receive, send)) = self.udp {
            let link = UdpLink::bind(loopback(), receive, send).context("the switch's socket")?;
            address = link.address().into();
            let datapath = Arc::clone(&self.datapath);
            let thread = SwitchThread { datapath, link, nodes: target.nodes(), shard: shard(false, 0) };
            let (handle, joined) = thread.start(self.stop.clone())?;
            self.switch = Some(handle);
            self.threads.push(joined);
        }
        let agent = Agent::new(draw_boot(), address, blueprint.agent.clone(), self.clock.now());
        let port = self.hub.port(Peer::Switch(0));
        let thread = AgentThread { agent, target, port, clock: self.clock };
        let (handle, joined) = thread.start(self.stop.clone())?;
        self.agent = handle;
        self.threads.push(joined);
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
            if start.elapsed() > limit {
                let status = self.controller.call(|controller, now| controller.status(now));
                anyhow::bail!("the rack doesn't serve after {} s: {status:?}", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The links of client `client`, whose number on the control channel is `id`.
    pub fn client(&self, client: u16, id: u64) -> anyhow::Result<(Box<dyn Uplink>, Box<dyn ControlLink>)> {
        let uplink: Box<dyn Uplink> = match self.udp {
            None => Box::new(MemoryUplink::new(&self.fabric, client, shard(false, usize::from(client)))),
            Some((receive, send)) => Box::new(UdpLink::bind(loopback(), receive, send).context("a client's socket")?),
        };
        Ok((uplink, Box::new(ClientControl(self.hub.port(Peer::Client(id))))))
    }

    /// Packets dropped by queues.
    pub fn dropped(&self) -> u64 {
        self.fabric.dropped()
    }

    /// The in-memory links.
    pub fn fabric(&self) -> &Arc<MemoryFabric> {
        &self.fabric
    }

    /// Brings every cached record to its node; a line for each node that lacks some if `limit` is not enough.
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
                let keys = self.controller.call(|controller, _| controller.cached_keys()).unwrap_or_default();
                return Err(crate::supervise::describe_remaining(&keys));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes a snapshot and waits until it is durable; false if `limit` is not enough.
    pub fn snapshot(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let before = self.controller.call(|controller, now| {
            controller.snapshot_now(now);
            controller.snapshots_completed()
        });
        let Some(before) = before else { return false };
        while start.elapsed() < limit {
            match self.controller.call(|controller, _| controller.snapshots_completed()) {
                Some(completed) if completed > before => return true,
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
                None => return false,
            }
        }
        false
    }

    /// Forgets all client sessions, after a drain.
    pub fn close_sessions(&self) {
        if self.controller.call(|controller, now| controller.close_sessions(now)).is_none() {
            tracing::error!("the controller's thread has ended");
        }
    }

    /// Whether a thread has ended by itself.
    pub fn has_failed(&self) -> bool {
        !self.stop.is_asked() && self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends all threads; engines are closed.
    pub fn stop(mut self) {
        self.stop.ask();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the rack had panicked");
            }
        }
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        self.stop.ask();
    }
}

/// Opens all engines at a time: each has its own disk work to do.
fn open_engines(
    nodes: &[(PathBuf, EngineOptions)],
) -> anyhow::Result<Vec<(RocksEngine, switchback_core::storage::Loaded)>> {
    let opened = std::thread::scope(|scope| {
        let open = |(path, options)| scope.spawn(move || RocksEngine::open(path, options));
        let opening: Vec<_> = nodes.iter().map(|(path, options)| open((path, options))).collect();
        opening.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut engines = Vec::new();
    for (node, opened) in opened.into_iter().enumerate() {
        let opened = opened.map_err(|_| anyhow::anyhow!("opening node {node} panicked"))?;
        engines.push(opened.with_context(|| format!("node {node} can't be opened"))?);
    }
    Ok(engines)
}
