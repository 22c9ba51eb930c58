//! A switch whose data plane runs in the kernel, on an interface.

use crate::blueprint;
use crate::config::RackConfig;
use crate::parts::{Threads, bind, listed};
use crate::threads::{AgentHandle, KernelThread, SwitchHandle};
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::sync::Arc;
use switchback_net::DatapathTarget;
use switchback_xdp::{Attachment, Mode, Watch, XdpDatapath};

/// Interface and agent; the packets are the kernel's.
pub struct KernelSwitchPart {
    /// The pipeline.
    pub datapath: Arc<XdpDatapath>,
    /// The agent.
    pub agent: AgentHandle,
    /// What the kernel left to this process.
    pub switch: SwitchHandle,
    /// Where clients send packets.
    pub address: SocketAddr,
    attachment: Attachment,
    threads: Threads,
}

impl KernelSwitchPart {
    /// Starts switch `index` of the rack on an interface that has its address.
    pub fn start(
        config: &RackConfig,
        index: u16,
        interface: &str,
        mode: Mode,
    ) -> anyhow::Result<KernelSwitchPart> {
        let address = listed(&config.switches, "switch", index)?.address;
        ensure!(
            !address.ip().is_unspecified() && address.port() != 0,
            "the switch's address is {address}: in the kernel it has to be the interface's own address, and a port"
        );
        let datapath = XdpDatapath::new(&blueprint::rack(config).pipeline(), address.into());
        let datapath = Arc::new(datapath.context("the switch can't be made")?);
        // The port is bound, so that no other process gets what the kernel passes on; this process
        // answers it.
        let link = bind(address, config, "the switch")?;
        let target = DatapathTarget::new(Arc::clone(&datapath)).over(link.sender()?);
        let attachment = Attachment::new(&datapath, interface, mode)?;
        tracing::info!(
            interface,
            mode = %attachment.watch().mode(),
            peer_program = attachment.has_peer_program(),
            "the datapath is attached"
        );
        let mut threads = Threads::default();
        let (in_kernel, nodes) = (Arc::clone(&datapath), target.nodes());
        let thread =
            KernelThread { datapath: in_kernel, link, nodes, watch: attachment.watch().clone() };
        let switch = threads.start(|stop| thread.start(stop))?;
        let agent = threads.start_agent(config, index, address, target)?;
        Ok(KernelSwitchPart { datapath, agent, switch, address, attachment, threads })
    }

    /// The interface, the mode in which the datapath is really attached to it, and whether it still
    /// is.
    pub fn watch(&self) -> &Watch {
        self.attachment.watch()
    }

    /// Whether it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.has_failed()
    }

    /// Takes it off the interface and ends it. What it caches is recovered from clients and the
    /// last snapshot, unless the rack was drained first.
    pub fn stop(mut self) {
        self.threads.stop.ask();
        drop(self.attachment);
        self.threads.end();
    }
}
