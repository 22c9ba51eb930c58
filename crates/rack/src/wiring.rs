//! What connects the parts of a rack in one process, and where its switches are: queues or loopback
//! sockets around pipelines in this process, or a network of its own with the pipeline in the
//! kernel.

use crate::threads::{NodeLinks, SwitchHandle};
use anyhow::{Context, ensure};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use switchback_assembly::Rack;
use switchback_datapath::{Datapath, SHARDS, Shard, Statistics};
use switchback_net::{MemoryFabric, MemoryUplink, UdpLink, Uplink};
use switchback_wire::Address;
use switchback_xdp::{Attachment, Mode, Segment, Watch, XdpDatapath};

/// Where clients find the switch of a rack that has a network of its own.
const SWITCH_PORT: u16 = 5357;

/// How the parts are to be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wires {
    /// Queues.
    Memory,
    /// Loopback sockets.
    Udp(Buffers),
    /// Sockets in network namespaces; the switch is the kernel's, attached in this mode.
    Kernel(Buffers, Mode),
}

/// What each socket is to buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Bytes received and not taken.
    pub receive: usize,
    /// Bytes on their way.
    pub send: usize,
}

impl Buffers {
    fn bind(self, ip: Ipv4Addr, port: u16, whose: &str) -> anyhow::Result<UdpLink> {
        let address = SocketAddr::new(IpAddr::V4(ip), port);
        UdpLink::bind(address, self.receive, self.send).with_context(|| format!("{whose} socket"))
    }
}

/// Where packets are processed.
#[derive(Clone, Debug)]
pub enum Pipeline {
    /// In this process.
    User(Arc<Datapath>),
    /// In the kernel.
    Kernel(Arc<XdpDatapath>),
}

impl Pipeline {
    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        match self {
            Pipeline::User(datapath) => datapath.statistics(),
            Pipeline::Kernel(datapath) => datapath.statistics(),
        }
    }
}

/// A switch of the kernel's on an interface of this process's own.
pub struct KernelSwitch {
    /// What the kernel left to this process.
    pub passed: SwitchHandle,
    attachment: Attachment,
}

impl KernelSwitch {
    pub(crate) fn new(passed: SwitchHandle, attachment: Attachment) -> KernelSwitch {
        KernelSwitch { passed, attachment }
    }

    /// The interface, the mode in which the datapath is really attached to it, and whether it still
    /// is.
    pub fn watch(&self) -> &Watch {
        self.attachment.watch()
    }
}

pub(crate) enum Wiring {
    Memory(Arc<MemoryFabric>),
    Udp(Buffers, Vec<Arc<Datapath>>),
    /// The one switch of the rack.
    Kernel(Buffers, Mode, Segment, Arc<XdpDatapath>),
}

impl Wiring {
    /// What connects `clients` with the rack.
    ///
    /// # Errors
    /// More switches than these wires have room for; what the kernel refuses.
    pub(crate) fn new(wires: Wires, rack: &Rack, clients: u16) -> anyhow::Result<Wiring> {
        let config = rack.pipeline();
        let user = || -> anyhow::Result<Vec<_>> {
            let switch = |_| Datapath::new(&config).map(Arc::new).context("a switch can't be made");
            (0..rack.switches()).map(switch).collect()
        };
        Ok(match wires {
            Wires::Memory => {
                Wiring::Memory(Arc::new(MemoryFabric::new(user()?, rack.nodes, clients)))
            }
            Wires::Udp(buffers) => Wiring::Udp(buffers, user()?),
            Wires::Kernel(buffers, mode) => {
                ensure!(
                    rack.switches() == 1,
                    "the network of a rack's own has one switch, and this rack has {}; leave \
                     --datapath xdp out, or list the switches of several machines as [[switch]]",
                    rack.switches()
                );
                let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                let segment = Segment::new(cpus as u32)?;
                let endpoint = SocketAddr::from((Segment::SWITCH, SWITCH_PORT));
                let datapath = XdpDatapath::new(&config, endpoint.into())
                    .context("the switch can't be made")?;
                tracing::info!(
                    paths = ?segment.paths(),
                    "the rack has network namespaces of its own"
                );
                Wiring::Kernel(buffers, mode, segment, Arc::new(datapath))
            }
        })
    }

    /// Counts packets dropped by queues.
    pub(crate) fn dropped(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        match self {
            Wiring::Memory(fabric) => {
                let fabric = Arc::clone(fabric);
                Box::new(move || fabric.dropped())
            }
            Wiring::Udp(..) | Wiring::Kernel(..) => Box::new(|| 0),
        }
    }

    /// The links of a node, and its address.
    pub(crate) fn node(&self, node: u16) -> anyhow::Result<(NodeLinks, Address)> {
        let link = match self {
            Wiring::Memory(fabric) => {
                let links = NodeLinks::memory(fabric, node, shard(true, usize::from(node)));
                return Ok((links, MemoryFabric::node_address(node)));
            }
            Wiring::Udp(buffers, _) => {
                buffers.bind(Ipv4Addr::LOCALHOST, 0, "a node's")?.segmenting()
            }
            Wiring::Kernel(buffers, mode, segment, _) => {
                host(*buffers, *mode, segment, "a node's")?
            }
        };
        let address = link.address().into();
        Ok((NodeLinks::Udp(Box::new(link)), address))
    }

    /// The links of a client.
    pub(crate) fn client(&self, client: u16) -> anyhow::Result<Box<dyn Uplink>> {
        Ok(match self {
            Wiring::Memory(fabric) => {
                Box::new(MemoryUplink::new(fabric, client, shard(false, usize::from(client))))
            }
            Wiring::Udp(buffers, _) => {
                Box::new(buffers.bind(Ipv4Addr::LOCALHOST, 0, "a client's")?.segmenting())
            }
            Wiring::Kernel(buffers, mode, segment, _) => {
                Box::new(host(*buffers, *mode, segment, "a client's")?)
            }
        })
    }

    /// The socket of a switch in user space, of racks whose parts have sockets.
    pub(crate) fn switch_socket(buffers: Buffers) -> anyhow::Result<UdpLink> {
        Ok(buffers.bind(Ipv4Addr::LOCALHOST, 0, "a switch's")?.segmenting())
    }

    /// The socket of the switch in the kernel, for what that leaves to the process.
    pub(crate) fn kernel_socket(buffers: Buffers, segment: &Segment) -> anyhow::Result<UdpLink> {
        segment.on_switch(|| buffers.bind(Segment::SWITCH, SWITCH_PORT, "the switch's"))
    }
}

/// A socket of a node or client. In generic mode the datapath would get a message that isn't taken
/// apart yet.
fn host(buffers: Buffers, mode: Mode, segment: &Segment, whose: &str) -> anyhow::Result<UdpLink> {
    let link = segment.on_hosts(|| buffers.bind(Segment::HOSTS, 0, whose))?;
    Ok(if mode == Mode::Native { link.segmenting() } else { link })
}

/// The shard of the `index`-th client or node thread. Clients have the lower half, so that the
/// busiest never share one.
pub(crate) fn shard(is_node: bool, index: usize) -> Shard {
    let half = usize::from(SHARDS) / 2;
    let at = index % half + if is_node { half } else { 0 };
    Shard::new(at as u8)
}
