//! A network of this process's own, for a rack on one machine: two namespaces and the veth between
//! them.
//!
//! Neither namespace has a name, and nothing of them is in the machine's own: they exist as long as
//! a process has them open. So nothing is left behind however the process ends, any number of them
//! have the same names and addresses, and what is set in them is set nowhere else.

use crate::{Attachment, Error, Mode, XdpDatapath, attach, netlink, sys, within};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

const INTERFACE: &str = Segment::SWITCH_INTERFACE;
const HOSTS_INTERFACE: &str = Segment::HOSTS_INTERFACE;
const PREFIX_BITS: u8 = 24;
/// Queues of a veth at most, one for each CPU that may send at a time.
const QUEUES_MAX: u32 = 16;

/// A switch's interface on one side; on the other all parts that talk to it.
#[derive(Debug)]
pub struct Segment {
    switch: File,
    hosts: File,
}

impl Segment {
    /// The name of the switch's interface, on its side.
    pub const SWITCH_INTERFACE: &str = "switch";
    /// The name of the interface on the other.
    pub const HOSTS_INTERFACE: &str = "hosts";
    /// The switch's address.
    pub const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    /// The address of nodes and clients, who tell each other apart by their ports.
    pub const HOSTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// Makes it, with a queue for each of `cpus` CPUs.
    pub fn new(cpus: u32) -> Result<Segment, Error> {
        let segment = Segment { switch: namespace()?, hosts: namespace()? };
        let hosts = segment.hosts.as_fd();
        segment.on_switch(|| {
            netlink::add_veth(INTERFACE, HOSTS_INTERFACE, hosts, cpus.clamp(1, QUEUES_MAX))
                .map_err(Error::system("making a veth (CONFIG_VETH)"))?;
            configure(INTERFACE, Segment::SWITCH)?;
            // Never switched off again, since this namespace ends with the process.
            let setting = format!("/proc/sys/net/ipv4/conf/{INTERFACE}/forwarding");
            std::fs::write(setting, "1").map_err(Error::system("letting the veth forward"))
        })?;
        segment.on_hosts(|| configure(HOSTS_INTERFACE, Segment::HOSTS))?;
        Ok(segment)
    }

    /// Does something on the switch's side; a socket that is opened there stays there.
    pub fn on_switch<T: Send, E: Send + From<Error>>(
        &self,
        body: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        within(&self.switch, body)
    }

    /// Does something on the side of nodes and clients.
    pub fn on_hosts<T: Send, E: Send + From<Error>>(
        &self,
        body: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        within(&self.hosts, body)
    }

    /// Attaches a datapath to the switch's interface.
    pub fn attach(&self, datapath: &XdpDatapath, mode: Mode) -> Result<Attachment, Error> {
        self.on_switch(|| Attachment::with_peer(datapath, INTERFACE, mode, Some(&self.hosts)))
    }

    /// How to look into both sides with other programs, while this process runs: `nsenter
    /// --net=PATH ip addr`.
    pub fn paths(&self) -> [String; 2] {
        [&self.switch, &self.hosts]
            .map(|side| format!("/proc/{}/fd/{}", std::process::id(), side.as_raw_fd()))
    }
}

/// A new network namespace, made on a thread of its own, which keeps no other thread in it.
fn namespace() -> Result<File, Error> {
    let make = || {
        sys::unshare()?;
        File::open("/proc/thread-self/ns/net")
    };
    let made = match std::thread::scope(|scope| scope.spawn(make).join()) {
        Ok(made) => made,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    made.map_err(Error::system("making network namespaces"))
}

/// Sets the loopback interface and this one up.
fn configure(interface: &str, address: Ipv4Addr) -> Result<(), Error> {
    let set = || -> Result<(), io::Error> {
        let found = attach::link_named(interface).map_err(io::Error::other)?.index;
        netlink::add_address(found, address, PREFIX_BITS)?;
        netlink::set_up(attach::link_named("lo").map_err(io::Error::other)?.index)?;
        netlink::set_up(found)
    };
    set().map_err(Error::system("configuring a veth"))
}
