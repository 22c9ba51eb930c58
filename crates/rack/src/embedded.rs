//! A whole rack in this process: `switchback up`.

use crate::admin::MetricsServer;
use crate::assembly::{Assembly, Switch};
use crate::blueprint;
use crate::config::{Durability, RackConfig, Shape};
use crate::gateway;
use crate::metrics::{
    Samples, Sources, agent, build, controller, datapath, engine, interface, links, node, process,
    queue,
};
use crate::supervise::{Supervisor, SwitchHere};
use crate::wiring::Wires;
use anyhow::ensure;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use switchback_assembly::Rack;
use switchback_gateway::Gateway;
use switchback_gateway::spool::SpoolDirectory;
use switchback_xdp::Mode;

/// A running rack with its gateway and metrics.
pub struct EmbeddedRack {
    assembly: Arc<Assembly>,
    gateway: Gateway,
    metrics: MetricsServer,
    /// The gateway's spool, if it has one.
    spool: Option<PathBuf>,
}

impl EmbeddedRack {
    /// Starts everything; returns when it serves. With a mode, the switch is the kernel's, on a
    /// network of the rack's own.
    ///
    /// # Errors
    /// Ports that are taken, directories that are locked, damaged or not writable, what the kernel
    /// refuses; each says how to mend it.
    pub fn start(config: &RackConfig, kernel: Option<Mode>) -> anyhow::Result<EmbeddedRack> {
        ensure!(
            config.shape == Shape::Embedded,
            "the file lists a [[switch]], so it describes a rack of several processes: start each \
             with `switchback controller`, `node`, `switch` and `gateway --config` with it"
        );
        let supervisor = Supervisor::new(config);
        let workers = gateway::workers(config);
        let mut blueprint =
            blueprint::embedded(config, workers as u16, crate::assembly::draw_boot());
        if let Some(mode) = kernel {
            blueprint.wires = Wires::Kernel(blueprint::buffers(config), mode);
        }
        let assembly = Arc::new(Assembly::start(blueprint)?);
        let gateway = gateway::start(config, workers, 1, |index, id| assembly.client(index, id))?;
        let sources = Sources::default();
        let supervisor = attach(supervisor, &assembly, &gateway, config, &sources);
        let admin = Arc::new(supervisor);
        let metrics = MetricsServer::start(config.rack.metrics, config, admin, sources)?;
        let spool =
            (config.gateway.durability != Durability::Memory).then(|| config.gateway.spool.clone());
        Ok(EmbeddedRack { assembly, gateway, metrics, spool })
    }

    /// Where the gateway listens.
    pub fn resp_address(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    /// Its gateway.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Where metrics and administration are.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics.address()
    }

    /// The mode in which the kernel's switch is really attached, if it is the kernel's.
    pub fn kernel_mode(&self) -> Option<Mode> {
        let kernel = |switch: &Switch| switch.kernel.as_ref().map(|it| it.watch().mode());
        self.assembly.switches.iter().find_map(kernel)
    }

    /// Whether a thread of it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.assembly.has_failed() || self.gateway.has_failed()
    }

    /// Stops taking commands, brings every cached record to its node within `limit`, and ends.
    ///
    /// # Errors
    /// A line for each node that lacks records. They are in the last snapshot and the spool, and
    /// are stored at the next start.
    pub fn shutdown(self, limit: Duration) -> Result<(), String> {
        let EmbeddedRack { assembly, gateway, metrics, spool } = self;
        gateway.stop();
        let drained = assembly.drain(limit);
        match &drained {
            Ok(()) => {
                assembly.close_sessions();
                // The drain stored at the nodes what the ended gateway had left in its spool.
                if let Some(Err(error)) = spool.map(|spool| SpoolDirectory::clear(&spool)) {
                    tracing::warn!(
                        %error,
                        "the spool stays, though nothing in it is needed any more"
                    );
                }
            }
            Err(_) => {
                // What a node didn't take is in this snapshot, for the next start.
                assembly.snapshot(Duration::from_secs(5));
            }
        }
        metrics.stop();
        if let Ok(assembly) = Arc::try_unwrap(assembly) {
            assembly.stop();
        }
        drained.map_err(|remaining| {
            format!("not everything could be flushed:\n  {}", remaining.join("\n  "))
        })
    }
}

/// Lets the supervisor and the metrics see the parts.
fn attach(
    mut supervisor: Supervisor,
    assembly: &Arc<Assembly>,
    gateway: &Gateway,
    config: &RackConfig,
    sources: &Sources,
) -> Supervisor {
    supervisor.controller = Some(assembly.controller.clone());
    let rack = blueprint::rack(config);
    supervisor.switches = (0..).zip(&assembly.switches).map(|at| switch_here(&rack, at)).collect();
    supervisor.nodes = assembly
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (index as u16, node.clone()))
        .collect();
    supervisor.dropped = assembly.dropped();
    supervisor.clients = gateway::clients_status(gateway);
    supervisor.heat = Some(gateway.heat());
    gateway::add_sources(gateway, sources);
    let config = config.clone();
    for (index, switch) in assembly.switches.iter().enumerate() {
        add_switch(sources, index.to_string(), switch);
    }
    let (nodes, control) = (assembly.nodes.clone(), assembly.controller.clone());
    sources.add(move |samples: &mut Samples| {
        build(samples, &config.rack.name, config.rack.scheme);
        process(samples);
        for (index, handle) in nodes.iter().enumerate() {
            let index = index.to_string();
            node(samples, &index, &handle.statistics());
            links(samples, &index, &handle.links());
            engine(samples, &index, &handle.engine());
            queue(samples, "node", &index, handle.queued() as u64);
        }
        queue(samples, "controller", "0", control.queued() as u64);
        if let Some(status) = control.call(|controller, now| controller.status(now)) {
            controller(samples, &status, &config);
        }
    });
    supervisor
}

fn switch_here(rack: &Rack, (index, switch): (u16, &Switch)) -> SwitchHere {
    let counted = switch.pipeline.clone();
    SwitchHere {
        counted: Box::new(move || counted.statistics()),
        agent: switch.agent.clone(),
        is_last: rack.layer_of(index) == rack.layers,
    }
}

/// Lets the metrics see switch `label`.
fn add_switch(sources: &Sources, label: String, switch: &Switch) {
    if let Some(kernel) = &switch.kernel {
        let (watch, passed, label) = (kernel.watch().clone(), kernel.passed.clone(), label.clone());
        sources.add(move |samples: &mut Samples| {
            interface(samples, &label, &watch, passed.packets());
        });
    }
    let (pipeline, handle) = (switch.pipeline.clone(), switch.agent.clone());
    sources.add(move |samples: &mut Samples| {
        datapath(samples, &label, &pipeline.statistics());
        agent(samples, &label, &handle.statistics());
    });
}
