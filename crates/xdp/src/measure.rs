//! What measures the pipeline in the kernel: requests made there, in test runs or as live frames on a veth.

use crate::object::Object;
use crate::{Error, XdpDatapath, netlink, sys};
use libbpf_rs::{MapCore, MapFlags};
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::time::Duration;
use switchback_datapath::Config;
use switchback_wire::{Address, KeyHash, Packet};

/// `MEASURE_REQUESTS`, `MEASURE_LANES` and `MEASURE_HEAD_BYTES` of measure.bpf.c.
pub const REQUESTS: usize = 1 << 18;
/// Lanes of each CPU.
pub const LANES: u32 = 256;
const HEAD_BYTES: usize = 160;
const HEADERS_BYTES: usize = 42;

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

/// The endpoint of a switch that is measured, and the client's.
const SWITCH: [u8; 4] = [10, 213, 0, 2];
const CLIENT: [u8; 4] = [10, 213, 0, 1];
const CLIENT_PORT: u16 = 4000;

impl Meter {
    /// Loads it.
    pub fn new(config: &Config) -> Result<Meter, Error> {
        let endpoint = Address::from(std::net::SocketAddr::from((SWITCH, switchback_wire::SWITCH_PORT)));
        Ok(Meter { datapath: XdpDatapath::load(Object::Measured, config, endpoint)?, frame: Vec::new() })
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

    /// What the requests are like: `packet` with other keys, lanes and numbers. `sends`: whether verdicts are carried out.
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

    fn set_interface(&self, index: u32) -> Result<(), Error> {
        let zero = 0u32.to_ne_bytes();
        let mut settings = self.loaded.map("measure_setting").lookup(&zero, MapFlags::ANY)?.unwrap_or_default();
        settings[8..12].copy_from_slice(&index.to_ne_bytes());
        self.set("measure_setting", 0, &settings)
    }

    /// Runs so many requests on this CPU, as if they had come in on an interface (0: none in particular). The last one's XDP action, and
    /// what one took.
    pub fn run(&self, step: Step, interface: u32, repeat: u32) -> io::Result<(u32, Duration)> {
        let program = match step {
            Step::Build => "measure_build",
            Step::Packet => "measure_packet",
        };
        let ran = sys::test_repeat(self.loaded.program(program), &self.frame, interface, repeat)?;
        Ok((ran.value, ran.took))
    }

    /// Puts the datapath on one end of a veth pair of this network namespace and the sink on the other.
    pub fn attach(&self, switch: &str, client: &str) -> Result<Line, Error> {
        let links = netlink::links().map_err(|error| Error::System("listing interfaces", error))?;
        let index = |name: &str| {
            let link = links.iter().find(|link| link.name == name);
            link.map(|link| link.index).ok_or_else(|| Error::Interface(format!("there is no interface {name}")))
        };
        let put = |program: &str, on: u32| {
            sys::link(self.loaded.program(program), on, crate::attach::XDP_FLAGS_DRV_MODE)
                .map_err(|error| Error::System("attaching to a veth", error))
        };
        let client = index(client)?;
        let links = [put("switchback", index(switch)?)?, put("measure_sink", client)?];
        self.set_interface(client)?;
        Ok(Line { _links: links })
    }

    /// Sends so many requests along a [`Line`], on this CPU, and waits for the last.
    pub fn generate(&self, frames: u32) -> io::Result<()> {
        const BATCH: u32 = 64;
        // A frame that comes back is used again, with the length of the answer unless the program changes what it began with: so it
        // begins too long.
        let too_long = [&self.frame[..], &[0; 8]].concat();
        sys::test_live(self.loaded.program("measure_generate"), &too_long, frames, BATCH)
    }

    /// Frames that came back along a [`Line`].
    pub fn returned(&self) -> u64 {
        let states = self.loaded.map("measure_states").lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let returned = |state: &Vec<u8>| state.get(8..16)?.try_into().ok().map(u64::from_ne_bytes);
        states.ok().flatten().unwrap_or_default().iter().filter_map(returned).sum()
    }
}

/// A veth pair with the datapath at one end.
#[derive(Debug)]
pub struct Line {
    _links: [OwnedFd; 2],
}

/// A frame from a client, without UDP's checksum.
fn frame(packet: &Packet) -> Vec<u8> {
    let length = (8 + packet.bytes().len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((length + 20).to_be_bytes());
    frame.extend([0, 9, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([CLIENT, SWITCH].concat());
    frame.extend([CLIENT_PORT, switchback_wire::SWITCH_PORT, length, 0].map(u16::to_be_bytes).concat());
    debug_assert_eq!(frame.len(), HEADERS_BYTES);
    frame.extend(packet.bytes());
    frame
}
