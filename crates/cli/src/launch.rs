//! The border to `switchback-rack`: how racks and parts are started, and what the command line asks
//! of them.

use crate::output;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use switchback_rack::admin::{KILL_ASKED, MetricsServer};
use switchback_rack::config::RackConfig;
use switchback_rack::embedded::EmbeddedRack;
use switchback_rack::gateway::{self, Gateway, Tls};
use switchback_rack::kernel::KernelSwitchPart;
use switchback_rack::metrics::{self, Samples, Sources};
use switchback_rack::parts::{ControllerPart, GatewayPart, NodePart, SwitchPart};
use switchback_rack::supervise::{Asks, Counted, Supervisor, SwitchHere};
use switchback_rack::threads::{AgentHandle, PacketLog};
use switchback_xdp::Mode;

/// A rack or a part that serves.
pub(crate) trait Running {
    /// The line for stdout, `ready resp=ADDR metrics=ADDR`.
    fn ready(&self) -> String;

    /// Whether it serves yet.
    fn serves(&self) -> bool {
        true
    }

    /// Where the gateway and the metrics are, if this process has them; for the hints.
    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (None, None)
    }

    /// The certificates that its gateway shows, if it speaks TLS.
    fn tls(&self) -> Option<Arc<Tls>> {
        None
    }

    /// Why it can't go on, if it can't.
    fn failure(&mut self) -> Option<String>;

    /// Brings every cached record to its node, within the time; or says what remains where.
    fn shutdown(self: Box<Self>, drain: Duration) -> Result<(), String>;
}

/// A part of a distributed rack.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Part {
    Switch(u16, Datapath),
    /// With the requests a second that it serves at most.
    Node(u16, Option<f64>),
    /// Whether the demo started it.
    Controller(bool),
    Gateway,
}

/// Where a switch processes packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Datapath {
    /// In user space, where packets can be written to a file.
    User(Option<CaptureFile>),
    /// In the kernel, on an interface.
    Kernel(Interface),
}

/// A file for packets, and how long it may become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CaptureFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes_max: u64,
}

/// Where the kernel is to run the datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mode: Mode,
}

/// Starts everything in this process; with a mode, the kernel runs the datapath.
pub(crate) fn embedded(
    config: &RackConfig,
    kernel: Option<Mode>,
) -> anyhow::Result<Box<dyn Running>> {
    let rack = EmbeddedRack::start(config, kernel)?;
    if let Some(mode) = rack.kernel_mode() {
        // Not on the line that says where the rack is, which programs read.
        output::note(&format!("datapath=xdp mode={mode}"));
    }
    Ok(Box::new(rack))
}

impl Running for EmbeddedRack {
    fn ready(&self) -> String {
        let tls = tls_address(self.gateway());
        format!("ready resp={} metrics={}{tls}", self.resp_address(), self.metrics_address())
    }

    fn tls(&self) -> Option<Arc<Tls>> {
        self.gateway().tls()
    }

    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (Some(self.resp_address()), Some(self.metrics_address()))
    }

    fn failure(&mut self) -> Option<String> {
        self.has_failed().then(|| "a part of the rack has ended; the log says why".to_owned())
    }

    fn shutdown(self: Box<Self>, drain: Duration) -> Result<(), String> {
        EmbeddedRack::shutdown(*self, drain)
    }
}

/// Where a gateway speaks TLS, for the line that says where it serves.
fn tls_address(gateway: &Gateway) -> String {
    gateway.tls_addr().map_or(String::new(), |address| format!(" tls={address}"))
}

/// Starts one part.
pub(crate) fn part(config: &RackConfig, part: &Part) -> anyhow::Result<Box<dyn Running>> {
    match part {
        Part::Switch(index, Datapath::User(capture)) => switch(config, *index, capture.as_ref()),
        Part::Switch(index, Datapath::Kernel(interface)) => {
            kernel_switch(config, *index, interface)
        }
        Part::Node(index, capacity_ops) => node(config, *index, *capacity_ops),
        Part::Controller(is_demo) => controller(config, *is_demo),
        Part::Gateway => gateway(config),
    }
}

/// A part with its metrics.
struct PartProcess<P> {
    name: String,
    address: Option<SocketAddr>,
    metrics: Option<MetricsServer>,
    part: P,
    serves: Option<gateway::Serves>,
    tls: Option<Arc<Tls>>,
    has_failed: fn(&P) -> bool,
    stop: fn(P),
}

impl<P> Running for PartProcess<P> {
    fn ready(&self) -> String {
        let address = self.address.map_or(String::new(), |address| format!(" address={address}"));
        let metrics = self
            .metrics
            .as_ref()
            .map_or(String::new(), |server| format!(" metrics={}", server.address()));
        format!("ready {}{address}{metrics}", self.name)
    }

    fn serves(&self) -> bool {
        self.serves.as_ref().is_none_or(|serves| serves())
    }

    fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (None, self.metrics.as_ref().map(MetricsServer::address))
    }

    fn failure(&mut self) -> Option<String> {
        (self.has_failed)(&self.part)
            .then(|| format!("{}: a thread of this process has ended; the log says why", self.name))
    }

    fn shutdown(self: Box<Self>, _drain: Duration) -> Result<(), String> {
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        (self.stop)(self.part);
        Ok(())
    }
}

/// What every process exports.
fn common(config: &RackConfig) -> Sources {
    let sources = Sources::default();
    let (name, scheme) = (config.rack.name.clone(), config.rack.scheme);
    sources.add(move |samples: &mut Samples| {
        metrics::build(samples, &name, scheme);
        metrics::process(samples);
    });
    sources
}

fn serve_metrics(
    config: &RackConfig,
    address: Option<SocketAddr>,
    supervisor: Supervisor,
    sources: Sources,
) -> anyhow::Result<Option<MetricsServer>> {
    let start = |address| MetricsServer::start(address, config, Arc::new(supervisor), sources);
    Ok(address.map(start).transpose()?)
}

fn switch_supervisor(config: &RackConfig, agent: &AgentHandle, counted: Counted) -> Supervisor {
    let here = SwitchHere { counted, agent: agent.clone(), is_last: true };
    Supervisor { switches: vec![here], ..Supervisor::new(config) }
}

fn switch(
    config: &RackConfig,
    index: u16,
    capture: Option<&CaptureFile>,
) -> anyhow::Result<Box<dyn Running>> {
    let log = capture.map(|file| PacketLog::create(&file.path, file.bytes_max)).transpose()?;
    let part = SwitchPart::start(config, index, log)?;
    let (datapath, agent) = (Arc::clone(&part.datapath), part.agent.clone());
    let counted = Arc::clone(&datapath);
    let supervisor = switch_supervisor(config, &agent, Box::new(move || counted.statistics()));
    let sources = common(config);
    let (label, meter) = (index.to_string(), Arc::clone(&part.meter));
    sources.add(move |samples: &mut Samples| {
        metrics::socket(samples, "switch", &label, meter.read());
        metrics::datapath(samples, &label, &datapath.statistics());
        metrics::agent(samples, &label, &agent.statistics());
    });
    let metrics = config.switches.get(usize::from(index)).and_then(|switch| switch.metrics);
    Ok(Box::new(PartProcess {
        name: format!("switch={index}"),
        address: Some(part.address),
        metrics: serve_metrics(config, metrics, supervisor, sources)?,
        part,
        serves: None,
        tls: None,
        has_failed: SwitchPart::has_failed,
        stop: SwitchPart::stop,
    }))
}

fn kernel_switch(
    config: &RackConfig,
    index: u16,
    at: &Interface,
) -> anyhow::Result<Box<dyn Running>> {
    let part = KernelSwitchPart::start(config, index, &at.name, at.mode)?;
    let (datapath, agent) = (Arc::clone(&part.datapath), part.agent.clone());
    let counted = Arc::clone(&datapath);
    let supervisor = switch_supervisor(config, &agent, Box::new(move || counted.statistics()));
    let sources = common(config);
    let watch = part.watch().clone();
    let ready = format!(
        "switch={index} datapath=xdp interface={} mode={}",
        watch.interface(),
        watch.mode()
    );
    let (label, switch) = (index.to_string(), part.switch.clone());
    sources.add(move |samples: &mut Samples| {
        metrics::interface(samples, &label, &watch, switch.packets());
        metrics::datapath(samples, &label, &datapath.statistics());
        metrics::agent(samples, &label, &agent.statistics());
    });
    let metrics = config.switches.get(usize::from(index)).and_then(|switch| switch.metrics);
    Ok(Box::new(PartProcess {
        name: ready,
        address: Some(part.address),
        metrics: serve_metrics(config, metrics, supervisor, sources)?,
        part,
        serves: None,
        tls: None,
        has_failed: KernelSwitchPart::has_failed,
        stop: KernelSwitchPart::stop,
    }))
}

fn node(
    config: &RackConfig,
    index: u16,
    capacity_ops: Option<f64>,
) -> anyhow::Result<Box<dyn Running>> {
    let part = NodePart::start_capped(config, index, capacity_ops)?;
    let supervisor =
        Supervisor { nodes: vec![(index, part.node.clone())], ..Supervisor::new(config) };
    let sources = common(config);
    let (handle, label, meter) = (part.node.clone(), index.to_string(), Arc::clone(&part.meter));
    sources.add(move |samples: &mut Samples| {
        metrics::socket(samples, "node", &label, meter.read());
        metrics::node(samples, &label, &handle.statistics());
        metrics::engine(samples, &label, &handle.engine());
        metrics::links(samples, &label, &handle.links());
        metrics::queue(samples, "node", &label, handle.queued() as u64);
    });
    let metrics = config.nodes.get(usize::from(index)).and_then(|node| node.metrics);
    Ok(Box::new(PartProcess {
        name: format!("node={index}"),
        address: Some(part.address),
        metrics: serve_metrics(config, metrics, supervisor, sources)?,
        part,
        serves: None,
        tls: None,
        has_failed: NodePart::has_failed,
        stop: NodePart::stop,
    }))
}

fn controller(config: &RackConfig, is_demo: bool) -> anyhow::Result<Box<dyn Running>> {
    let part = ControllerPart::start(config)?;
    let ask = || -> Asks { Box::new(|| output::line(KILL_ASKED).is_ok()) };
    let supervisor = Supervisor {
        controller: Some(part.controller.clone()),
        others: Box::new(part.metrics_of_others()),
        demo: is_demo.then(ask),
        ..Supervisor::new(config)
    };
    let sources = common(config);
    let (handle, control) = (part.controller.clone(), part.control_statistics());
    let listed = config.clone();
    sources.add(move |samples: &mut Samples| {
        metrics::control_channel(samples, &control());
        metrics::queue(samples, "controller", "0", handle.queued() as u64);
        if let Some(status) = handle.call(|controller, now| controller.status(now)) {
            metrics::controller(samples, &status, &listed);
        }
    });
    Ok(Box::new(PartProcess {
        name: "controller".to_owned(),
        address: Some(config.controller.listen),
        metrics: serve_metrics(config, Some(config.rack.metrics), supervisor, sources)?,
        part,
        serves: None,
        tls: None,
        has_failed: ControllerPart::has_failed,
        stop: ControllerPart::stop,
    }))
}

fn gateway(config: &RackConfig) -> anyhow::Result<Box<dyn Running>> {
    let part = GatewayPart::start(config)?;
    let supervisor = Supervisor {
        clients: gateway::clients_status(&part.gateway),
        gateway: Some(gateway::is_serving(&part.gateway)),
        heat: Some(part.gateway.heat()),
        ..Supervisor::new(config)
    };
    let sources = common(config);
    gateway::add_sources(&part.gateway, &sources);
    Ok(Box::new(PartProcess {
        name: format!("resp={}{}", part.address(), tls_address(&part.gateway)),
        address: None,
        metrics: serve_metrics(config, config.gateway.metrics, supervisor, sources)?,
        serves: Some(gateway::is_serving(&part.gateway)),
        tls: part.gateway.tls(),
        part,
        has_failed: GatewayPart::has_failed,
        stop: GatewayPart::stop,
    }))
}
