//! What the datapath in the kernel needs: looked up first, judged then, so that the judgement can
//! be tested with any machine.

use super::{Check, Fitness, first_line, version_in};
use crate::output::bytes;
use std::fs::read_to_string;
use std::net::IpAddr;
use std::path::Path;
use switchback_rack::blueprint;
use switchback_rack::config::RackConfig;
use switchback_xdp::{Interface, MTU_MIN};

const GROUP: &str = "kernel datapath (only for --datapath xdp)";
/// The oldest clang whose BPF backend takes the pipeline.
const CLANG_MIN: u32 = 15;
/// The oldest Linux that takes the programs.
const LINUX_MIN: (u32, u32) = (6, 1);
/// The oldest Linux that tells what an interface's driver can.
const LINUX_THAT_TELLS: (u32, u32) = (6, 3);
/// Those that are needed, and their numbers. CAP_BPF is part of CAP_SYS_ADMIN.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)];
/// Above this MTU most drivers run only programs that take frames in pieces, which the datapath
/// doesn't.
const MTU_COMMON: u32 = 3000;
/// The kernel's own bookkeeping beside what maps hold, at most this share of it.
const OVERHEAD: u64 = 2;

/// A machine, as far as it matters here. `None`: not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// It is to be used: what is missing is missing, not optional.
    wanted: bool,
    /// As Rust names it.
    architecture: String,
    release: String,
    built_in: bool,
    /// The newest clang, and the first line that it prints of itself.
    clang: Option<(String, String)>,
    bpftool: Option<String>,
    btf: bool,
    /// This process's effective capabilities, a bit each.
    capabilities: u64,
    /// What the kernel said to a small datapath; none if it wasn't asked.
    loaded: Option<Result<(), String>>,
    jit: Option<u32>,
    jit_harden: Option<u32>,
    run_statistics: Option<u32>,
    map_bytes: Option<u64>,
    /// What is left of the machine's memory, or of this process's control group.
    available_bytes: Option<u64>,
    cores: u32,
    interfaces: Vec<String>,
    /// Addresses of the rack's switches; none if it is a rack in one process, which makes its own.
    switches: Vec<IpAddr>,
    interface: Option<Result<Interface, String>>,
}

impl Facts {
    pub(super) fn look(config: &RackConfig, iface: Option<&str>, wanted: bool) -> Facts {
        let capabilities = capabilities();
        let built_in = switchback_xdp::is_built_in();
        let may_load = built_in && lacking(capabilities).is_empty();
        let pipeline = blueprint::rack(config).pipeline();
        let setting =
            |name: &str| read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        Facts {
            wanted,
            architecture: std::env::consts::ARCH.to_owned(),
            release: read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            built_in,
            clang: newest_clang(),
            bpftool: ["bpftool", "/usr/sbin/bpftool"]
                .into_iter()
                .find_map(|program| first_line(program, &["version"])),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            capabilities,
            loaded: may_load
                .then(|| switchback_xdp::permission().map_err(|error| error.to_string())),
            jit: setting("net/core/bpf_jit_enable"),
            jit_harden: setting("net/core/bpf_jit_harden"),
            run_statistics: setting("kernel/bpf_stats_enabled"),
            map_bytes: switchback_xdp::map_bytes(&pipeline).ok(),
            available_bytes: available(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            interfaces: switchback_xdp::interfaces(),
            switches: config.switches.iter().map(|switch| switch.address.ip()).collect(),
            interface: iface
                .map(|name| switchback_xdp::inspect(name).map_err(|error| error.to_string())),
        }
    }

    /// Whether it is to be used.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Something without which it doesn't run.
    fn needed(&self, name: &str, found: impl Into<String>, mend: impl Into<String>) -> Check {
        let verdict = if self.wanted { Fitness::Missing } else { Fitness::Optional };
        Check { verdict, ..Check::optional(GROUP, name, found, mend) }
    }
}

/// What fits and what doesn't.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![release(facts)];
    match switchback_xdp::architecture(&facts.architecture) {
        Ok(()) => {
            checks.push(Check::fits(GROUP, "architecture", &facts.architecture));
            checks.extend([built_in(facts), clang(facts)]);
        }
        // No compiler helps.
        Err(why) => {
            let mend =
                "run switches in user space (without --datapath xdp), or on a machine with x86_64";
            checks.push(facts.needed("architecture", why.to_string(), mend));
        }
    }
    checks.push(privileges(facts));
    if let Some(loaded) = &facts.loaded {
        checks.push(match loaded {
            Ok(()) => Check::fits(GROUP, "load", "the kernel takes the datapath"),
            Err(why) => facts.needed(
                "load",
                why,
                "see what the kernel says; a container needs --privileged",
            ),
        });
    }
    checks.extend([btf(facts), bpftool(facts)]);
    checks.extend(jit(facts));
    if facts.run_statistics == Some(1) {
        let mend = "sysctl -w kernel.bpf_stats_enabled=0";
        checks.push(Check::optional(
            GROUP,
            "run statistics",
            "every run of a program is timed, which costs it 20 ns",
            mend,
        ));
    }
    checks.extend(memory(facts));
    match &facts.interface {
        None => {
            let found = format!(
                "none asked for; --iface IF looks at one of {}",
                facts.interfaces.join(", ")
            );
            checks.push(Check::fits(GROUP, "interface", found));
        }
        Some(Err(why)) => {
            checks.push(facts.needed("interface", why, "name another one with --iface"))
        }
        Some(Ok(interface)) => checks.extend(interface_checks(facts, interface)),
    }
    checks
}

fn release(facts: &Facts) -> Check {
    let found = format!("Linux {}", facts.release);
    let (major, minor) = LINUX_MIN;
    match version_in(&facts.release) {
        Some(version) if version >= LINUX_MIN => Check::fits(GROUP, "kernel", found),
        _ => facts.needed(
            "kernel",
            found,
            format!("it needs Linux {major}.{minor} or newer: update the system"),
        ),
    }
}

fn built_in(facts: &Facts) -> Check {
    match facts.built_in {
        true => Check::fits(GROUP, "built in", "this program has the datapath for the kernel"),
        false => facts.needed(
            "built in",
            "this program was built where there was no clang that compiles for BPF",
            "apt-get install clang-19, then build Switchback again",
        ),
    }
}

fn newest_clang() -> Option<(String, String)> {
    let names = (CLANG_MIN..=24)
        .rev()
        .map(|version| format!("clang-{version}"))
        .chain(["clang".to_owned()]);
    names.into_iter().find_map(|name| first_line(&name, &["--version"]).map(|line| (name, line)))
}

/// Only for building: never missing.
fn clang(facts: &Facts) -> Check {
    let mend = "apt-get install clang-19 (or the newest clang there is): it compiles the datapath for the kernel";
    match &facts.clang {
        Some((name, line)) if version_in(line).is_some_and(|(major, _)| major >= CLANG_MIN) => {
            Check::fits(GROUP, "clang", format!("{name}: {line}"))
        }
        Some((_, line)) => Check::optional(
            GROUP,
            "clang",
            format!("{line}; building needs {CLANG_MIN} or newer"),
            mend,
        ),
        None => Check::optional(GROUP, "clang", "not found; only building needs it", mend),
    }
}

fn capabilities() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn lacking(capabilities: u64) -> Vec<&'static str> {
    let lacks = |&&(_, bit): &&(&str, u32)| capabilities & (1 << bit) == 0;
    CAPABILITIES.iter().filter(lacks).map(|(name, _)| *name).collect()
}

fn privileges(facts: &Facts) -> Check {
    match lacking(facts.capabilities)[..] {
        [] => Check::fits(GROUP, "privileges", CAPABILITIES.map(|(name, _)| name).join(", ")),
        ref lacking => facts.needed(
            "privileges",
            format!("this process lacks {}", lacking.join(", ")),
            "run it with sudo, or with AmbientCapabilities= in its systemd unit; a container needs docker run --privileged",
        ),
    }
}

fn btf(facts: &Facts) -> Check {
    match facts.btf {
        true => Check::fits(GROUP, "BTF", "/sys/kernel/btf/vmlinux"),
        false => Check::optional(
            GROUP,
            "BTF",
            "the kernel doesn't describe its types",
            "a kernel with CONFIG_DEBUG_INFO_BTF; the datapath loads without, but bpftool and perf show less of it",
        ),
    }
}

fn bpftool(facts: &Facts) -> Check {
    match &facts.bpftool {
        Some(version) => Check::fits(GROUP, "bpftool", version),
        None => Check::optional(
            GROUP,
            "bpftool",
            "not found",
            "apt-get install bpftool (Ubuntu: linux-tools-generic), to look at programs and maps",
        ),
    }
}

fn jit(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    match facts.jit {
        // Only root may read it.
        None => {}
        Some(0) => checks.push(Check::optional(
            GROUP,
            "JIT",
            "off: the kernel interprets programs, many times slower",
            "sysctl -w net.core.bpf_jit_enable=1",
        )),
        Some(_) => checks.push(Check::fits(GROUP, "JIT", "on")),
    }
    if facts.jit_harden == Some(2) {
        let found = "every constant of a program is hidden, which makes it slower";
        checks.push(Check::optional(
            GROUP,
            "JIT hardening",
            found,
            "sysctl -w net.core.bpf_jit_harden=1 (or 0)",
        ));
    }
    checks
}

/// What is left to this process: of the machine, or of the control group that it is in.
fn available() -> Option<u64> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let machine = info.lines().find_map(|line| {
        let kb = line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?;
        kb.parse::<u64>().ok().map(|kb| kb << 10)
    })?;
    let group = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(|path| format!("/sys/fs/cgroup{path}"));
    let number = |file: &str| {
        read_to_string(format!("{}/{file}", group.as_ref()?)).ok()?.trim().parse::<u64>().ok()
    };
    let left = number("memory.max")
        .map(|limit| limit.saturating_sub(number("memory.current").unwrap_or(0)));
    Some(left.map_or(machine, |left| left.min(machine)))
}

fn memory(facts: &Facts) -> Option<Check> {
    let (maps, available) = (facts.map_bytes?, facts.available_bytes?);
    let found = format!(
        "maps take {} and some, {} are left; limits of locked memory don't count since Linux 5.11",
        bytes(maps),
        bytes(available)
    );
    let mend = "lower records or classes in [cache], lanes in [controller]; or raise memory.max of the control group";
    Some(match maps * OVERHEAD <= available {
        true => Check::fits(GROUP, "map memory", found),
        false => facts.needed("map memory", found, mend),
    })
}

fn interface_checks(facts: &Facts, interface: &Interface) -> Vec<Check> {
    let name = &interface.name;
    let mut checks = vec![match interface.is_up {
        true => Check::fits(GROUP, "interface", format!("{name} is up")),
        false => facts.needed(
            "interface",
            format!("{name} is down"),
            format!("ip link set dev {name} up"),
        ),
    }];
    checks.extend(address(facts, interface));
    let mend = format!("ip link set dev {name} mtu 1500");
    checks.push(match interface.mtu {
        mtu if mtu < MTU_MIN => {
            facts.needed("MTU", format!("{mtu}, and packets need up to {MTU_MIN}"), mend)
        }
        mtu if mtu > MTU_COMMON => {
            let found = format!("{mtu}; most drivers take programs only up to {MTU_COMMON} or so");
            Check::optional(GROUP, "MTU", found, format!("{mend}, if native mode is refused"))
        }
        mtu => Check::fits(GROUP, "MTU", mtu.to_string()),
    });
    checks.push(mode(facts, interface));
    checks.extend(interface.receive_queues.map(|queues| queues_check(facts, name, queues)));
    if let Some(merges) = interface.merges_frames {
        let found = "large receive offload is on; most drivers run no programs then";
        checks.push(match merges {
            true => {
                Check::optional(GROUP, "frames merged", found, format!("ethtool -K {name} lro off"))
            }
            false => Check::fits(GROUP, "frames merged", "no (large receive offload is off)"),
        });
    }
    if let Some(strips) = interface.strips_tags {
        checks.push(match strips {
            true => Check::optional(
                GROUP,
                "VLAN tags",
                "taken off before the program sees a frame: a tagged request for the switch's address looks untagged",
                format!("ethtool -K {name} rxvlan off, if there are VLANs on it"),
            ),
            false => Check::fits(GROUP, "VLAN tags", "left on frames"),
        });
    }
    checks
}

/// The datapath takes what is for the switch's address; on any other interface it sees nothing of
/// it.
fn address(facts: &Facts, interface: &Interface) -> Option<Check> {
    let shown = |addresses: &[IpAddr]| match addresses {
        [] => "no address".to_owned(),
        _ => addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
    };
    let found = facts.switches.iter().find(|address| interface.addresses.contains(address));
    match found {
        Some(address) => Some(Check::fits(GROUP, "address", address.to_string())),
        None if facts.switches.is_empty() => None,
        None => Some(facts.needed(
            "address",
            format!(
                "{} has {}; the rack's switches have {}",
                interface.name,
                shown(&interface.addresses),
                shown(&facts.switches)
            ),
            "name the interface with the address of a [[switch]] by --iface, or give it that address: ip address add",
        )),
    }
}

fn mode(facts: &Facts, interface: &Interface) -> Check {
    let name = &interface.name;
    let driver = interface.driver.as_deref().unwrap_or("a driver that doesn't tell its name");
    if let Some(attached) = interface.attached {
        let mend = format!(
            "stop what has put it there (`bpftool net show dev {name}`), or ip link set dev {name} xdp off"
        );
        return facts.needed(
            "XDP mode",
            format!("{driver}; another program is attached ({attached})"),
            mend,
        );
    }
    let tells = version_in(&facts.release).is_some_and(|version| version >= LINUX_THAT_TELLS);
    match interface.takes_native {
        Some(true) => Check::fits(GROUP, "XDP mode", format!("{driver}: native")),
        // A driver that can nothing says nothing.
        None if !tells => {
            let found = format!("{driver}; this kernel doesn't tell what it can");
            Check::fits(GROUP, "XDP mode", found)
        }
        Some(false) | None => facts.needed(
            "XDP mode",
            format!("{driver}: generic only"),
            "--xdp-mode generic, several times slower; or a card whose driver runs XDP (ena, i40e, ice, ixgbe, mlx5...)",
        ),
    }
}

fn queues_check(facts: &Facts, name: &str, queues: u32) -> Check {
    let found = format!("{queues} for {} cores", facts.cores);
    match queues < facts.cores && queues < 8 {
        true => Check::optional(
            GROUP,
            "receive queues",
            format!("{found}: only this many cores process packets"),
            format!("ethtool -L {name} combined {} (or rx), if the card has as many", facts.cores),
        ),
        false => Check::fits(GROUP, "receive queues", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which everything fits.
    fn good() -> Facts {
        Facts {
            wanted: true,
            architecture: "x86_64".into(),
            release: "6.12.4-amd64".into(),
            built_in: true,
            clang: Some(("clang-19".into(), "Debian clang version 19.1.7".into())),
            bpftool: Some("bpftool v7.5.0".into()),
            btf: true,
            capabilities: u64::MAX,
            loaded: Some(Ok(())),
            jit: Some(1),
            jit_harden: Some(0),
            run_statistics: Some(0),
            map_bytes: Some(100 << 20),
            available_bytes: Some(4 << 30),
            cores: 4,
            interfaces: vec!["eth0".into()],
            switches: vec!["10.0.0.1".parse().expect("an address")],
            interface: Some(Ok(Interface {
                name: "eth0".into(),
                mtu: 1500,
                is_up: true,
                addresses: vec!["10.0.0.1".parse().expect("an address")],
                driver: Some("mlx5_core".into()),
                receive_queues: Some(4),
                takes_native: Some(true),
                attached: None,
                merges_frames: Some(false),
                strips_tags: Some(false),
            })),
        }
    }

    /// The checks that a change of the good machine makes fail: name, verdict, remedy.
    fn broken(change: impl FnOnce(&mut Facts)) -> Vec<(String, Fitness, String)> {
        let mut facts = good();
        change(&mut facts);
        let failing = checks(&facts).into_iter().filter(|check| check.verdict != Fitness::Fits);
        failing
            .map(|check| {
                (check.name, check.verdict, check.mend.expect("a remedy for whatever fails"))
            })
            .collect()
    }

    /// It breaks this check only, which names this remedy.
    #[track_caller]
    fn breaks(change: impl FnOnce(&mut Facts), name: &str, verdict: Fitness, remedy: &str) {
        let broken = broken(change);
        let [(found, found_verdict, mend)] = &broken[..] else {
            panic!("one thing is wrong, not {broken:?}")
        };
        assert_eq!((&**found, *found_verdict), (name, verdict));
        assert!(mend.contains(remedy), "{mend}");
    }

    fn with_interface(change: impl FnOnce(&mut Interface)) -> impl FnOnce(&mut Facts) {
        move |facts| change(facts.interface.as_mut().expect("one").as_mut().expect("one"))
    }

    #[test]
    fn a_machine_on_which_all_is_well_has_nothing_to_mend() {
        assert_eq!(broken(|_| ()), []);
        assert_eq!(broken(|facts| facts.interface = None), []);
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        use Fitness::{Missing, Optional};
        breaks(|facts| facts.release = "5.15.0-91-generic".into(), "kernel", Missing, "6.1");
        breaks(|facts| facts.release = String::new(), "kernel", Missing, "6.1");
        breaks(|facts| facts.btf = false, "BTF", Optional, "CONFIG_DEBUG_INFO_BTF");
        breaks(|facts| facts.jit = Some(0), "JIT", Optional, "bpf_jit_enable=1");
        breaks(|facts| facts.jit_harden = Some(2), "JIT hardening", Optional, "bpf_jit_harden");
        breaks(
            |facts| facts.run_statistics = Some(1),
            "run statistics",
            Optional,
            "bpf_stats_enabled=0",
        );
        breaks(|facts| facts.loaded = Some(Err("EPERM".into())), "load", Missing, "--privileged");
        breaks(|facts| facts.available_bytes = Some(150 << 20), "map memory", Missing, "[cache]");
    }

    #[test]
    fn what_the_build_and_the_user_lack_is_named() {
        use Fitness::{Missing, Optional};
        breaks(|facts| facts.built_in = false, "built in", Missing, "clang-19");
        let arm = |facts: &mut Facts| {
            (facts.architecture, facts.built_in, facts.clang) = ("aarch64".into(), false, None)
        };
        breaks(arm, "architecture", Missing, "x86_64");
        breaks(|facts| facts.clang = None, "clang", Optional, "clang-19");
        let old = Some(("clang".to_owned(), "clang version 14.0.6".to_owned()));
        breaks(|facts| facts.clang = old, "clang", Optional, "clang-19");
        breaks(|facts| facts.bpftool = None, "bpftool", Optional, "bpftool");
        breaks(
            |facts| (facts.capabilities, facts.loaded) = (0, None),
            "privileges",
            Missing,
            "sudo",
        );
        // Rootless containers have this one, and no other.
        let checks = checks(&Facts { capabilities: 1 << 12, ..good() });
        let found =
            &checks.iter().find(|check| check.name == "privileges").expect("it is checked").found;
        assert!(found.contains("CAP_SYS_ADMIN") && !found.contains("CAP_NET_ADMIN"), "{found}");
    }

    #[test]
    fn what_the_interface_lacks_is_named() {
        use Fitness::{Missing, Optional};
        breaks(
            |facts| facts.interface = Some(Err("there is no interface".into())),
            "interface",
            Missing,
            "--iface",
        );
        breaks(
            with_interface(|it| it.is_up = false),
            "interface",
            Missing,
            "ip link set dev eth0 up",
        );
        breaks(with_interface(|it| it.mtu = 1400), "MTU", Missing, "mtu 1500");
        breaks(with_interface(|it| it.mtu = 9000), "MTU", Optional, "mtu 1500");
        breaks(with_interface(|it| it.addresses.clear()), "address", Missing, "--iface");
        breaks(
            with_interface(|it| it.takes_native = Some(false)),
            "XDP mode",
            Missing,
            "--xdp-mode generic",
        );
        let other = Some(switchback_xdp::Mode::Generic);
        breaks(with_interface(|it| it.attached = other), "XDP mode", Missing, "xdp off");
        breaks(
            with_interface(|it| it.receive_queues = Some(1)),
            "receive queues",
            Optional,
            "combined 4",
        );
        breaks(
            with_interface(|it| it.merges_frames = Some(true)),
            "frames merged",
            Optional,
            "lro off",
        );
        breaks(
            with_interface(|it| it.strips_tags = Some(true)),
            "VLAN tags",
            Optional,
            "rxvlan off",
        );
        breaks(
            with_interface(|it| it.takes_native = None),
            "XDP mode",
            Missing,
            "--xdp-mode generic",
        );
        // Where the driver says no more, there is nothing to mend.
        let silent =
            Interface { name: "eth0".into(), mtu: 1500, is_up: true, ..Interface::default() };
        let old = |facts: &mut Facts| {
            (facts.release, facts.interface) = ("6.1.0-13-amd64".into(), Some(Ok(silent)));
            // A rack in one process: it makes its own addresses.
            facts.switches.clear();
        };
        assert_eq!(broken(old), []);
    }

    #[test]
    fn who_does_not_want_it_misses_nothing() {
        let facts = Facts { wanted: false, ..Facts::default() };
        assert!(checks(&facts).iter().all(|check| check.verdict != Fitness::Missing));
    }
}
