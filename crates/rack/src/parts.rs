//! The parts of a distributed rack: one process each, UDP for data, the control channel over TCP.

use crate::assembly::draw_boot;
use crate::blueprint;
use crate::config::{Durability, RackConfig};
use crate::gateway;
use crate::threads::{
    AgentHandle, AgentThread, ControllerFiles, ControllerHandle, ControllerThread, NodeHandle,
    NodeLinks, NodeThread, PacketLog, Stop, SwitchHandle, SwitchThread,
};
use anyhow::{Context, anyhow, ensure};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use switchback_core::control::Peer;
use switchback_core::switch::Target;
use switchback_datapath::{Datapath, Shard};
use switchback_gateway::Gateway;
use switchback_net::{
    Carrier, ClientControl, Clock, ControlLink, ControlStatistics, DatapathTarget, LinkPort, Parts,
    SocketMeter, TcpHub, UdpLink, Uplink, address_refused, connect, directory_refused,
    listen_for_nodes,
};
use switchback_wire::Address;

/// The threads of a part; they end when it is stopped or dropped.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) stop: Stop,
    pub(crate) joined: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts one, which is given what will ask it to end; what others may know of it.
    pub(crate) fn start<Handle>(
        &mut self,
        start: impl FnOnce(Stop) -> io::Result<(Handle, JoinHandle<()>)>,
    ) -> io::Result<Handle> {
        let (handle, joined) = start(self.stop.clone())?;
        self.joined.push(joined);
        Ok(handle)
    }

    /// Starts the agent of switch `index`, which clients reach at `address`.
    pub(crate) fn start_agent(
        &mut self,
        config: &RackConfig,
        index: u16,
        address: SocketAddr,
        target: impl Target + Send + 'static,
    ) -> anyhow::Result<AgentHandle> {
        let clock = Clock::default();
        let listed = listed(&config.switches, "switch", index)?;
        let (layer, domain) = (listed.layer, listed.domain.clone());
        let rack = blueprint::rack(config);
        let agent = rack.agent(draw_boot(), layer, domain, address.into(), clock.now());
        let port = connect(Peer::Switch(index), listed.metrics, config.controller.listen)?;
        let thread = AgentThread { agent, target, port, clock };
        Ok(self.start(|stop| thread.start(stop))?)
    }

    pub(crate) fn end(&mut self) {
        self.stop.ask();
        for thread in self.joined.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of this part had panicked");
            }
        }
    }

    /// Whether one of them ended unasked.
    pub(crate) fn has_failed(&self) -> bool {
        !self.stop.is_asked() && self.joined.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn bind(
    address: SocketAddr,
    config: &RackConfig,
    what: &str,
) -> anyhow::Result<UdpLink> {
    let buffers = blueprint::buffers(config);
    UdpLink::bind(address, buffers.receive, buffers.send)
        .map_err(|error| not_bound(what, address, &error))
}

/// Says what to do about an address that can't be had.
fn not_bound(what: &str, address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let why = address_refused(error);
    anyhow!(
        "{what} can't have {address}: {why}; rack.toml says which part has which address, on which machine"
    )
}

/// A switch: socket, pipeline, agent.
pub struct SwitchPart {
    /// The pipeline.
    pub datapath: Arc<Datapath>,
    /// The agent.
    pub agent: AgentHandle,
    /// The socket's thread.
    pub switch: SwitchHandle,
    /// Where clients send packets.
    pub address: SocketAddr,
    /// What waits there.
    pub meter: Arc<SocketMeter>,
    threads: Threads,
}

impl SwitchPart {
    /// Starts switch `index` of the rack, which writes its packets to `packet_log`. Which one
    /// serves the controller decides.
    pub fn start(
        config: &RackConfig,
        index: u16,
        packet_log: Option<PacketLog>,
    ) -> anyhow::Result<SwitchPart> {
        let switch = listed(&config.switches, "switch", index)?;
        let pipeline = blueprint::rack(config).pipeline();
        let datapath = Arc::new(Datapath::new(&pipeline).context("the switch can't be made")?);
        let link = bind(switch.address, config, "the switch")?;
        let target = DatapathTarget::new(Arc::clone(&datapath)).over(link.sender()?);
        let (address, meter) = (link.address(), Arc::new(link.meter()?));
        let mut threads = Threads::default();
        let thread = SwitchThread {
            datapath: Arc::clone(&datapath),
            link,
            nodes: target.nodes(),
            shard: Shard::new(0),
            packet_log,
        };
        let switch = threads.start(|stop| thread.start(stop))?;
        let agent = threads.start_agent(config, index, address, target)?;
        Ok(SwitchPart { datapath, agent, switch, address, meter, threads })
    }

    /// Whether it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.has_failed()
    }

    /// Ends it. What it caches is recovered from clients and the last snapshot, unless the rack was
    /// drained first.
    pub fn stop(mut self) {
        self.threads.end();
    }
}

/// Part `index` of those of its kind that rack.toml lists.
pub(crate) fn listed<'c, T>(parts: &'c [T], what: &str, index: u16) -> anyhow::Result<&'c T> {
    parts.get(usize::from(index)).with_context(|| {
        format!("there is no {what} {index}: rack.toml lists {}, numbered from 0", parts.len())
    })
}

/// The links of a node to the others, where partitions have several replicas: over TCP, at the
/// addresses where nodes take packets.
fn links_to_others(config: &RackConfig, index: u16) -> anyhow::Result<Option<LinkPort>> {
    if config.rack.replication == 1 {
        return Ok(None);
    }
    let addresses: Option<Vec<_>> = config.nodes.iter().map(|node| node.address).collect();
    let addresses = addresses.context("a node of a distributed rack has an address")?;
    let own = addresses[usize::from(index)];
    let port = listen_for_nodes(index, addresses)
        .map_err(|error| not_bound("the node, for other nodes over TCP,", own, &error))?;
    Ok(Some(port))
}

/// A node: socket, shim, engine.
pub struct NodePart {
    /// The node.
    pub node: NodeHandle,
    /// Where the switch sends packets.
    pub address: SocketAddr,
    /// What waits there.
    pub meter: Arc<SocketMeter>,
    threads: Threads,
}

impl NodePart {
    /// Starts node `index` of the rack.
    pub fn start(config: &RackConfig, index: u16) -> anyhow::Result<NodePart> {
        NodePart::start_capped(config, index, None)
    }

    /// The same with a limit of requests a second, to play a slower server.
    pub fn start_capped(
        config: &RackConfig,
        index: u16,
        capacity_ops: Option<f64>,
    ) -> anyhow::Result<NodePart> {
        let node = listed(&config.nodes, "node", index)?;
        let address = node.address.context("a node of a distributed rack has an address")?;
        let clock = Clock::default();
        let storage = blueprint::storage(config, usize::from(index));
        let (engine, loaded) =
            storage.open().with_context(|| format!("node {index} can't be opened"))?;
        let link = bind(address, config, "the node")?;
        let (address, meter) = (link.address(), Arc::new(link.meter()?));
        let shim =
            blueprint::rack(config).shim(index, draw_boot(), address.into(), loaded, clock.now());
        let shim = shim.with_context(|| format!("node {index}"))?;
        let port = connect(Peer::Node(index), node.metrics, config.controller.listen)?;
        let links = NodeLinks::Udp(Box::new(link));
        let others = links_to_others(config, index)?;
        let mut threads = Threads::default();
        let thread = NodeThread {
            shim,
            engine,
            engine_clock: storage.clock,
            links,
            others,
            port,
            clock,
            capacity_ops,
        };
        let node = threads.start(|stop| thread.start(stop))?;
        Ok(NodePart { node, address, meter, threads })
    }

    /// Whether it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.has_failed()
    }

    /// Closes the engine and ends.
    pub fn stop(mut self) {
        self.threads.end();
    }
}

/// The controller.
pub struct ControllerPart {
    /// The controller.
    pub controller: ControllerHandle,
    hub: Arc<TcpHub>,
    threads: Threads,
}

impl ControllerPart {
    /// Starts the rack's controller.
    pub fn start(config: &RackConfig) -> anyhow::Result<ControllerPart> {
        ControllerPart::start_seeded(config, draw_boot())
    }

    /// The same, with what is random about a new rack (hash key, map) drawn from `seed`.
    pub fn start_seeded(config: &RackConfig, seed: u64) -> anyhow::Result<ControllerPart> {
        let clock = Clock::default();
        let address = |node: &crate::config::Node| node.address.map(Address::from);
        let nodes: Option<Vec<_>> = config.nodes.iter().map(address).collect();
        let nodes = nodes.context("every node of a distributed rack has an address")?;
        ensure!(!config.switches.is_empty(), "a distributed rack has a [[switch]]");
        let (files, found) = ControllerFiles::open(&config.controller.data)?;
        let rack = blueprint::rack(config);
        let controller = rack.controller(nodes, rack.deal(seed), &found, seed, clock.now());
        let controller = controller
            .with_context(|| format!("the rack in {}", config.controller.data.display()))?;
        let listen = config.controller.listen;
        let parts = Parts { switches: config.switches.len(), nodes: config.nodes.len() };
        let hub = TcpHub::listen(listen, parts)
            .map_err(|error| not_bound("the control channel", listen, &error))?;
        let mut threads = Threads::default();
        let carrier = Arc::clone(&hub) as Arc<dyn Carrier>;
        let inbox = hub.controller_inbox();
        let controller = threads.start(|stop| {
            ControllerThread::start(controller, files, inbox, carrier, clock, stop)
        })?;
        Ok(ControllerPart { controller, hub, threads })
    }

    /// Reads the counters of the control channel.
    pub fn control_statistics(&self) -> impl Fn() -> ControlStatistics + Send + Sync + 'static {
        let hub = Arc::clone(&self.hub);
        move || hub.statistics()
    }

    /// Reads where other processes of the rack tell over HTTP what they know.
    pub fn metrics_of_others(
        &self,
    ) -> impl Fn() -> Vec<(Peer, SocketAddr)> + Send + Sync + 'static {
        let hub = Arc::clone(&self.hub);
        move || hub.metrics()
    }

    /// Whether it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.has_failed()
    }

    /// Ends it. The rack goes on serving without it, but admits nothing and recovers from nothing.
    pub fn stop(mut self) {
        self.threads.end();
    }
}

impl Drop for ControllerPart {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// The links of a client of a distributed rack, whose number on the control channel is `id`, and
/// which tells what it knows at `metrics`.
pub fn client_links(
    config: &RackConfig,
    id: u64,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<(Box<dyn Uplink>, Box<dyn ControlLink>)> {
    // Any port; the kernel picks the address by which the switch is reached.
    let v4 = config.switches.first().is_none_or(|switch| switch.address.is_ipv4());
    let any = if v4 {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let uplink = bind(any, config, "a client")?;
    let port = connect(Peer::Client(id), metrics, config.controller.listen)?;
    Ok((Box::new(uplink), Box::new(ClientControl(port))))
}

/// The gateway.
pub struct GatewayPart {
    /// Its workers.
    pub gateway: Gateway,
}

impl GatewayPart {
    /// Starts the rack's gateway. It listens at once; commands wait until the controller grants a
    /// session.
    pub fn start(config: &RackConfig) -> anyhow::Result<GatewayPart> {
        let workers = gateway::workers(config);
        let base = client_id_base(config)?;
        let links = |_, id| client_links(config, id, config.gateway.metrics);
        let gateway = gateway::start(config, workers, base, links)?;
        Ok(GatewayPart { gateway })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    /// Whether it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.gateway.has_failed()
    }

    /// Answers what is under way, and ends. Records that it preserves stay in its spool until it is
    /// back.
    pub fn stop(self) {
        self.gateway.stop();
    }
}

/// The numbers of this gateway's sessions on the control channel: the same at every start if it
/// spools, so that a recovery knows which clients to wait for; else drawn anew.
fn client_id_base(config: &RackConfig) -> anyhow::Result<u64> {
    // Room for a worker's index below.
    let drawn = draw_boot() & !0xffff;
    if config.gateway.durability == Durability::Memory {
        return Ok(drawn);
    }
    let directory = &config.gateway.spool;
    let path = directory.join("client-id");
    let refused = |error: std::io::Error| {
        let (directory, why) = (directory.display(), directory_refused(&error));
        anyhow!(
            "the gateway can't keep its spool in {directory}: {why}; mend that, or move the spool \
             with all that it holds and name its new place with spool in [gateway]"
        )
    };
    std::fs::create_dir_all(directory).map_err(refused)?;
    match std::fs::read_to_string(&path) {
        Ok(text) => u64::from_str_radix(text.trim(), 16).with_context(|| {
            format!(
                "{} is damaged: it holds the gateway's id, 16 hexadecimal digits",
                path.display()
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let aside = directory.join("client-id.new");
            let written = std::fs::File::create(&aside).and_then(|mut file| {
                writeln!(file, "{drawn:016x}")?;
                file.sync_all()
            });
            written.and_then(|()| std::fs::rename(&aside, &path)).map_err(refused)?;
            Ok(drawn)
        }
        Err(error) => Err(refused(error)),
    }
}
