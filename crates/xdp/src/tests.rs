//! What becomes of failing system calls, and of other machines. Without a kernel.

use super::*;
use switchback_core::Now;
use switchback_core::control::{Command, SwitchCommand, SwitchConfig};
use switchback_core::switch::{Agent, AgentConfig, Target, carry_out};
use switchback_core::topology::ChainId;
use switchback_datapath::ClassConfig;
use switchback_net::DatapathTarget;
use sys::Ran;

#[test]
fn other_architectures_than_x86_64_are_refused() {
    assert!(architecture("x86_64").is_ok());
    for name in ["aarch64", "arm", "riscv64", "s390x", "powerpc64", "loongarch64", "x86", ""] {
        let refused = architecture(name).expect_err(name).to_string();
        assert!(refused.contains(&format!("this machine is {name}: ")), "{refused}");
        assert!(refused.contains("without --datapath xdp"), "{refused}");
    }
}

/// A kernel that does what it is asked, but for one program or map, of which every call fails.
#[derive(Debug)]
struct Failing {
    name: &'static str,
    error: i32,
}

impl Failing {
    fn check(&self, name: &str) -> io::Result<()> {
        if name == self.name { Err(io::Error::from_raw_os_error(self.error)) } else { Ok(()) }
    }
}

impl Calls for Failing {
    fn run(&self, program: &str, packet: &[u8], out: &mut [u8]) -> io::Result<Ran> {
        self.check(program)?;
        out[..packet.len()].copy_from_slice(packet);
        let value = match program {
            "switchback_control" => 1,
            "switchback_clear" => 2,
            _ => 0,
        };
        Ok(Ran {
            value,
            length: packet.len(),
            #[cfg(feature = "measure")]
            took: std::time::Duration::ZERO,
        })
    }

    fn update(&self, map: &str, _: &[u8], _: &[u8]) -> io::Result<()> {
        self.check(map)
    }

    fn lookup(&self, map: &str, _: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check(map).map(|()| None)
    }

    fn lookup_percpu(&self, map: &str, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.check(map).map(|()| Vec::new())
    }

    fn delete(&self, map: &str, _: &[u8]) -> io::Result<()> {
        self.check(map)
    }
}

/// A datapath of which this program, map or ring fails.
fn failing(name: &'static str, error: i32) -> XdpDatapath {
    let classes = vec![ClassConfig { value_bytes: 128, slots: 4 }];
    let config = Config {
        classes,
        lanes: 8,
        partitions: 1,
        nodes: 1,
        sketch_width: 64,
        reports: 4,
        ..Config::default()
    };
    // (A file's memory stands for a map's.)
    let memory = |bytes| {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes as u64).expect("a file of this length");
        MappedMemory::new(file.as_fd(), bytes).expect("some memory")
    };
    let chunks = Chunks::new(&config);
    XdpDatapath {
        loaded: Arc::default(),
        calls: Arc::new(Failing { name, error }),
        failure: OnceLock::new(),
        shared: memory(sys::PAGE),
        slots: memory(chunks.length()),
        chunks,
        reports: Mutex::new(Reports::answering(if name == "reports" { -error } else { 0 })),
        tables: Mutex::new(()),
        config,
        endpoint: Address::default(),
    }
}

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };

/// An agent is told to begin, and goes on for a while.
fn drive(datapath: &Arc<XdpDatapath>) {
    let mut target = DatapathTarget::new(Arc::clone(datapath));
    let mut agent = Agent::new(1, Address::default(), AgentConfig::default(), NOW);
    let mut tell = |number, body| {
        let command = Command { id: number, chain: ChainId::new(0), epoch: 1, body };
        agent.handle_message(NOW, command);
        carry_out(&mut agent, NOW, &mut target);
        let later = Now { monotonic_us: NOW.monotonic_us + 100_000_000 * number, ..NOW };
        agent.handle_timeout(later);
        carry_out(&mut agent, later, &mut target);
    };
    let config = SwitchConfig {
        boot: 1,
        place: Place::sole(),
        generation: 1,
        lanes: 8,
        map: Map::equal(vec![vec![0]]),
        nodes: vec![Address::in_memory(3, 0)],
    };
    tell(1, SwitchCommand::Configure(config));
    tell(2, SwitchCommand::NodeAddress(0, Address::in_memory(3, 1)));
    tell(3, SwitchCommand::Snapshot { generation: 2 });
    assert_eq!(target.failure(), datapath.failure());
}

/// Neither a panic nor a loop without end.
#[test]
fn a_failed_system_call_ends_service_and_says_what_failed() {
    for (name, what) in [
        ("switchback_control", "run a control packet"),
        ("switchback_clear", "clear the datapath"),
        ("routes", "take an entry of routes"),
        ("node_addresses", "say where a node is"),
        ("statistics", "say what it counted"),
        ("reports", "give its reports"),
    ] {
        let datapath = Arc::new(failing(name, libc::ENOMEM));
        datapath.shared.set_u32(place("registers.epoch"), 7);
        drive(&datapath);
        let failure = datapath.failure().expect(name);
        assert!(failure.starts_with(&format!("the kernel doesn't {what}: ")), "{name}: {failure}");
        assert!(failure.contains("Cannot allocate memory"), "{name}: {failure}");
        assert_eq!(
            datapath.shared.get_u32(place("registers.epoch")),
            0,
            "{name}: it goes on serving"
        );
    }
    let datapath = Arc::new(failing("nothing", libc::ENOMEM));
    drive(&datapath);
    assert_eq!(datapath.failure(), None);
}

#[test]
fn a_lookup_table_that_can_not_be_changed_ends_service() {
    let datapath = failing("switchback_lookup", libc::EFAULT);
    assert!(!datapath.lookup_remove(&KeyHash::default(), 0, 0));
    assert!(datapath.failure().is_some_and(|failure| failure.contains("change the lookup table")));
    // What is there isn't known any more, so nothing is added to it.
    assert_eq!(datapath.lookup_insert(&KeyHash::default(), 0, 0), Err(TableError::Full));
}

#[test]
fn a_call_that_signals_always_interrupt_is_given_up() {
    for program in ["switchback_control", "switchback_clear"] {
        let datapath = Arc::new(failing(program, libc::EINTR));
        drive(&datapath);
        assert!(
            datapath.failure().is_some_and(|failure| failure.contains("Interrupted")),
            "{program}"
        );
    }
}
