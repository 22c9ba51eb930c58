//! The BPF object: its maps sized from the configuration, its programs loaded.

use crate::Error;
use crate::layout::place;
use crate::resources::stack_of;
use crate::slots::{CLASSES, Chunks};
use crate::sys::{self, Calls, Ran};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, OpenMapMut, PrintLevel};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use switchback_datapath::Config;
use switchback_wire::{Address, PACKET_BYTES_MAX};
use zerocopy::{Immutable, IntoBytes};

/// What can be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    /// xdp.bpf.c.
    Switch,
    /// measure.bpf.c: the same, and what measures it.
    #[cfg(feature = "measure")]
    Measured,
}

impl Object {
    /// Compiled, if there was a clang that compiles for BPF.
    #[cfg(has_object)]
    fn bytes(self) -> Option<&'static [u8]> {
        Some(match self {
            Object::Switch => include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")),
            #[cfg(feature = "measure")]
            Object::Measured => include_bytes!(concat!(env!("OUT_DIR"), "/measure.bpf.o")),
        })
    }

    #[cfg(not(has_object))]
    fn bytes(self) -> Option<&'static [u8]> {
        None
    }
}

/// Whether this program was built with a clang that compiles for BPF.
pub fn is_built_in() -> bool {
    Object::Switch.bytes().is_some()
}

/// `struct parameters` of tables_bpf.h.
#[repr(C)]
#[derive(Default, Immutable, IntoBytes)]
struct Parameters {
    features: u64,
    sketch_width: u32,
    route_shift: u32,
    lookup_mask: u32,
    class_count: u32,
    slots: [u32; CLASSES],
    value_bytes: [u32; CLASSES],
    counter_base: [u32; CLASSES],
    chunk_shift: [u32; CLASSES],
    chunk_base: [u32; CLASSES],
    slot_bytes: [u32; CLASSES],
    chunk_bytes: u32,
    endpoint: Address,
    reserved: [u16; 5],
}

impl Parameters {
    fn new(config: &Config, endpoint: Address) -> Parameters {
        let chunks = Chunks::new(config);
        let mut parameters = Parameters {
            features: config.features.0,
            sketch_width: config.sketch_width,
            route_shift: 32 - config.partitions.trailing_zeros(),
            lookup_mask: buckets(config) - 1,
            class_count: config.classes.len() as u32,
            chunk_shift: chunks.shift,
            chunk_base: chunks.base,
            slot_bytes: chunks.slot_bytes,
            chunk_bytes: chunks.bytes,
            endpoint,
            ..Parameters::default()
        };
        let mut base = 0;
        for (i, class) in config.classes.iter().enumerate() {
            parameters.slots[i] = class.slots;
            parameters.value_bytes[i] = class.value_bytes;
            parameters.counter_base[i] = base;
            base += class.slots;
        }
        parameters
    }
}

/// What was loaded. Everything goes when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    maps: HashMap<String, MapHandle>,
    programs: HashMap<String, OwnedFd>,
    stack_bytes: HashMap<String, Vec<u32>>,
}

impl Loaded {
    pub(crate) fn new(object: Object, config: &Config, endpoint: Address) -> Result<Loaded, Error> {
        crate::architecture(std::env::consts::ARCH)?;
        config.check()?;
        let bytes = object.bytes().ok_or(Error::NotBuiltIn)?;
        keep_messages();
        let mut open = ObjectBuilder::default().name("switchback")?.open_memory(bytes)?;
        for mut map in open.maps_mut() {
            size(&mut map, config, endpoint)?;
        }
        // (Not of a switch: with the summary the kernel doesn't give the reason of a refusal.)
        let asked = open.progs_mut().filter(|_| object != Object::Switch);
        let logs: Vec<_> = asked
            .map(|mut program| (program.name().to_owned(), sys::Log::of(&mut program)))
            .collect();
        let loaded =
            open.load().map_err(|error| Error::Load(error.to_string(), take_messages()))?;
        let mut maps = HashMap::new();
        for map in loaded.maps() {
            maps.insert(map.name().to_string_lossy().into_owned(), MapHandle::try_from(&map)?);
        }
        let mut programs = HashMap::new();
        for program in loaded.progs() {
            let fd =
                program.as_fd().try_clone_to_owned().map_err(Error::system("keeping a program"))?;
            programs.insert(program.name().to_string_lossy().into_owned(), fd);
        }
        let stack = |(name, log): &(OsString, sys::Log)| {
            (name.to_string_lossy().into_owned(), stack_of(&log.text()))
        };
        let stack_bytes = logs.iter().map(stack).collect();
        Ok(Loaded { maps, programs, stack_bytes })
    }

    pub(crate) fn map(&self, name: &str) -> &MapHandle {
        self.maps.get(name).unwrap_or_else(|| panic!("datapath has no map {name}"))
    }

    pub(crate) fn program(&self, name: &str) -> BorrowedFd<'_> {
        self.programs.get(name).unwrap_or_else(|| panic!("datapath has no program {name}")).as_fd()
    }

    /// Bytes of stack of a program's functions.
    pub(crate) fn stack_bytes(&self, program: &str) -> Vec<u32> {
        self.stack_bytes.get(program).cloned().unwrap_or_default()
    }

    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program.as_fd()))
    }

    pub(crate) fn maps(&self) -> impl Iterator<Item = (&str, &MapHandle)> {
        self.maps.iter().map(|(name, map)| (name.as_str(), map))
    }
}

impl Calls for Loaded {
    fn run(&self, program: &str, packet: &[u8], out: &mut [u8]) -> io::Result<Ran> {
        sys::test_run(self.program(program), packet, out)
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.map(map).update(key, value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn lookup(&self, map: &str, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.map(map).lookup(key, MapFlags::ANY).map_err(io::Error::other)
    }

    fn lookup_percpu(&self, map: &str, key: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let found = self.map(map).lookup_percpu(key, MapFlags::ANY).map_err(io::Error::other)?;
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn delete(&self, map: &str, key: &[u8]) -> io::Result<()> {
        self.map(map).delete(key).map_err(io::Error::other)
    }
}

/// Bytes that the maps of a configuration hold, without loading anything; the kernel's own
/// bookkeeping comes on top.
pub fn map_bytes(config: &Config) -> Result<u64, Error> {
    let object = Object::Switch.bytes().ok_or(Error::NotBuiltIn)?;
    config.check()?;
    keep_messages();
    let mut open = ObjectBuilder::default().open_memory(object)?;
    let mut bytes = 0;
    for mut map in open.maps_mut() {
        size(&mut map, config, Address::default())?;
        bytes += u64::from(map.max_entries()) * u64::from(map.key_size() + map.value_size()).max(1);
    }
    Ok(bytes)
}

fn slots(config: &Config) -> u32 {
    config.classes.iter().map(|class| class.slots).sum()
}

/// As many as natively: half full at most, so that most lookups read one.
fn buckets(config: &Config) -> u32 {
    (slots(config).div_ceil(2) + 1).next_power_of_two()
}

fn size(map: &mut OpenMapMut<'_>, config: &Config, endpoint: Address) -> Result<(), Error> {
    let name = map.name().to_string_lossy().into_owned();
    match name.as_str() {
        ".rodata.parameters" => {
            map.set_initial_value(Parameters::new(config, endpoint).as_bytes())?
        }
        "lookups" => map.set_max_entries(buckets(config))?,
        "chunks" => {
            let chunks = Chunks::new(config);
            map.set_value_size(chunks.bytes)?;
            map.set_max_entries(chunks.count)?;
        }
        "counters" => map.set_max_entries(slots(config).max(1))?,
        "sketches" => map.set_max_entries(4 * config.sketch_width)?,
        "lanes" => map.set_max_entries(config.lanes)?,
        "routes" | "ranges" => map.set_max_entries(config.partitions)?,
        "nodes" | "node_addresses" => map.set_max_entries(u32::from(config.nodes))?,
        "reports" => {
            let room =
                u64::from(config.reports) * (place("size.record") as u64 + PACKET_BYTES_MAX as u64);
            map.set_max_entries(room.next_power_of_two().clamp(4096, 1 << 30) as u32)?;
        }
        _ => {}
    }
    Ok(())
}

static MESSAGES: Mutex<String> = Mutex::new(String::new());

/// libbpf says on stderr why a program was refused; kept instead, for the error.
fn keep_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.len() < 1 << 16 {
                messages.push_str(&message);
            }
        })));
    });
    take_messages();
}

fn take_messages() -> String {
    std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner))
}
