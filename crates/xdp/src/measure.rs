//! What measures the pipeline in the kernel: requests made there, in test runs or as live frames on
//! a veth.

use crate::headers;
use crate::object::Object;
use crate::{Error, Segment, XdpDatapath, attach, sys};
use libbpf_rs::{MapCore, MapFlags};
use std::io;
use std::net::SocketAddrV4;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::time::Duration;
use switchback_datapath::Config;
use switchback_wire::{Address, KeyHash, Packet};

/// `MEASURE_REQUESTS`, `MEASURE_LANES` and `MEASURE_HEAD_BYTES` of measure.bpf.c.
pub const REQUESTS: usize = 1 << 18;
/// Lanes of each CPU.
pub const LANES: u32 = 256;
const HEAD_BYTES: usize = 192;

/// What a repeated program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Makes the request.
    Build,
    /// And takes it through the pipeline.
    Packet,
}

/// The pipeline in the kernel with its own source of requests.
#[derive(Debug)]
pub struct Meter {
    datapath: XdpDatapath,
    frame: Vec<u8>,
}

impl Deref for Meter {
    type Target = XdpDatapath;
    fn deref(&self) -> &XdpDatapath {
        &self.datapath
    }
}

const CLIENT_PORT: u16 = 4000;

impl Meter {
    /// Loads it.
    pub fn new(config: &Config) -> Result<Meter, Error> {
        let endpoint = Address::from(std::net::SocketAddr::from((
            Segment::SWITCH,
            switchback_wire::SWITCH_PORT,
        )));
        Ok(Meter {
            datapath: XdpDatapath::load(Object::Measured, config, endpoint)?,
            frame: Vec::new(),
        })
    }

    fn set(&self, map: &str, index: u32, value: &[u8]) -> Result<(), Error> {
        Ok(self.loaded.map(map).update(&index.to_ne_bytes(), value, MapFlags::ANY)?)
    }

    /// The keys of the requests, in the order in which they come, again and again.
    ///
    /// # Panics
    /// If they aren't [`REQUESTS`] keys.
    pub fn set_keys(&self, keys: impl Iterator<Item = (KeyHash, [u8; 16])>) -> Result<(), Error> {
        let mut count = 0;
        for (index, (hash, key)) in keys.enumerate() {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&hash.position().to_be_bytes());
            bytes[8..16].copy_from_slice(&hash.low().to_be_bytes());
            bytes[16..].copy_from_slice(&key);
            self.set("measure_requests", index as u32, &bytes)?;
            count = index + 1;
        }
        assert_eq!(count, REQUESTS);
        Ok(())
    }

    /// What the requests are like: `packet` with other keys, lanes and numbers. `sends`: whether
    /// verdicts are carried out.
    pub fn set_request(&mut self, packet: &Packet, sends: bool) -> Result<(), Error> {
        self.frame = frame(packet);
        let mut settings = Vec::with_capacity(16 + HEAD_BYTES);
        let value_bytes = packet.bytes().len() - switchback_wire::HEADER_BYTES - 16;
        for word in [self.frame.len() as u32, value_bytes as u32, 0, u32::from(sends)] {
            settings.extend(word.to_ne_bytes());
        }
        settings.extend(&self.frame[..HEAD_BYTES]);
        self.set("measure_setting", 0, &settings)
    }

    /// Runs this many requests on this CPU, as if they had come in on an interface (0: none in
    /// particular). The last one's XDP action, and what one took.
    pub fn run(&self, step: Step, interface: u32, repeat: u32) -> io::Result<(u32, Duration)> {
        let program = match step {
            Step::Build => "measure_build",
            Step::Packet => "measure_packet",
        };
        let ran = sys::test_repeat(self.loaded.program(program), &self.frame, interface, repeat)?;
        Ok((ran.value, ran.took))
    }

    /// Puts a program on an interface of this thread's network namespace, in its driver.
    pub fn put(&self, program: Program, interface: &str) -> Result<Put, Error> {
        let index = attach::link_named(interface)?.index;
        let name = match program {
            Program::Switch => "switchback",
            Program::Bounce => "measure_bounce",
            Program::Sink => "measure_sink",
        };
        sys::link(self.loaded.program(name), index, attach::XDP_FLAGS_DRV_MODE)
            .map(|link| Put { _link: link, index })
            .map_err(Error::system("attaching to a veth"))
    }

    /// Where [`Meter::generate`] sends: to the other end of this interface.
    pub fn send_to(&self, interface: &Put) -> Result<(), Error> {
        let zero = 0u32.to_ne_bytes();
        let mut settings =
            self.loaded.map("measure_setting").lookup(&zero, MapFlags::ANY)?.unwrap_or_default();
        settings[8..12].copy_from_slice(&interface.index.to_ne_bytes());
        self.set("measure_setting", 0, &settings)
    }

    /// What the attached program has taken and how often it ran, as long as a process has the
    /// kernel count it.
    pub fn run_time(&self) -> (Duration, u64) {
        let run = self.program_resources().into_iter().find(|program| program.name == "switchback");
        run.map_or((Duration::ZERO, 0), |program| program.run_time)
    }

    /// Sends this many requests to the other end of an interface, on this CPU, and waits for the
    /// last.
    pub fn generate(&self, frames: u32) -> io::Result<()> {
        const BATCH: u32 = 64;
        // A frame that comes back is used again, with the length of the answer unless the program
        // changes what it began with: so it begins too long.
        let too_long = [&self.frame[..], &[0; 8]].concat();
        sys::test_live(self.loaded.program("measure_generate"), &too_long, frames, BATCH)
    }

    /// Frames that ended in the sink.
    pub fn returned(&self) -> u64 {
        let states =
            self.loaded.map("measure_states").lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let returned = |state: &Vec<u8>| state.get(8..16)?.try_into().ok().map(u64::from_ne_bytes);
        states.ok().flatten().unwrap_or_default().iter().filter_map(returned).sum()
    }
}

/// What can be put on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// The datapath.
    Switch,
    /// Sends every frame back as it is.
    Bounce,
    /// Where frames end.
    Sink,
}

/// A program on an interface, until it is dropped.
#[derive(Debug)]
pub struct Put {
    _link: OwnedFd,
    /// The interface's.
    pub index: u32,
}

/// Has the kernel count what programs take, until it is dropped. It looks at the clock twice for
/// that.
#[derive(Debug)]
pub struct RunTimes {
    _on: OwnedFd,
}

impl RunTimes {
    /// From now on.
    pub fn count() -> Result<RunTimes, Error> {
        sys::count_run_time()
            .map(|on| RunTimes { _on: on })
            .map_err(Error::system("having the kernel count run times"))
    }
}

/// A frame from a client, without UDP's checksum.
fn frame(packet: &Packet) -> Vec<u8> {
    let own = SocketAddrV4::new(Segment::HOSTS, CLIENT_PORT);
    let to = SocketAddrV4::new(Segment::SWITCH, switchback_wire::SWITCH_PORT);
    headers::frame(own, to, packet.bytes())
}
