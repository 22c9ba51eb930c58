//! What an interface, its driver and the kernel's settings are like: for those who are to mend
//! them.

use crate::{Error, Mode, attach, netlink, sys};
use std::net::IpAddr;

/// An interface as its driver describes it. `None`: the driver doesn't say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The longest packet that it sends.
    pub mtu: u32,
    /// Whether it is set up.
    pub is_up: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The driver's name.
    pub driver: Option<String>,
    /// Queues that frames come in by.
    pub receive_queues: Option<u32>,
    /// Whether the driver can run XDP programs. Since Linux 6.3 the kernel tells, unless it can
    /// nothing of the kind.
    pub takes_native: Option<bool>,
    /// The mode in which a program is attached already.
    pub attached: Option<Mode>,
    /// Large receive offload: frames are merged, which most drivers that have it don't do with XDP.
    pub merges_frames: Option<bool>,
    /// Whether the driver takes VLAN tags off before a program sees the frame.
    pub strips_tags: Option<bool>,
}

const XDP_BASIC: u64 = 1;
const ETHTOOL_DRIVER: u32 = 0x3;
const ETHTOOL_FLAGS: u32 = 0x25;
const ETHTOOL_CHANNELS: u32 = 0x3c;
const FLAG_RECEIVE_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// Looks at an interface of this thread's network namespace.
pub fn inspect(name: &str) -> Result<Interface, Error> {
    let link = attach::link_named(name)?;
    let xdp = sys::query(link.index).map_err(Error::system("asking for the interface's XDP"))?;
    let flags = ethtool::<2>(name, ETHTOOL_FLAGS).map(|words| words[1]);
    Ok(Interface {
        name: link.name,
        mtu: link.mtu,
        is_up: link.is_up,
        addresses: netlink::addresses(link.index).map_err(Error::system("listing addresses"))?,
        driver: ethtool::<49>(name, ETHTOOL_DRIVER).map(|words| text(&words[1..9])),
        receive_queues: ethtool::<9>(name, ETHTOOL_CHANNELS).map(|words| words[5] + words[8]),
        takes_native: (xdp.features != 0).then_some(xdp.features & XDP_BASIC != 0),
        attached: Mode::of_kernel(xdp.mode),
        merges_frames: flags.map(|flags| flags & FLAG_LRO != 0),
        strips_tags: flags.map(|flags| flags & FLAG_RECEIVE_VLAN != 0),
    })
}

/// Interfaces of this thread's network namespace, the loopback one excepted.
pub fn interfaces() -> Vec<String> {
    let links = netlink::links().unwrap_or_default();
    links.into_iter().map(|link| link.name).filter(|name| name != "lo").collect()
}

fn ethtool<const WORDS: usize>(name: &str, command: u32) -> Option<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = command;
    sys::ethtool(name, &mut words).ok().map(|()| words)
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed unwrap is a failed test.
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_looked_at_without_privileges() {
        let loopback = inspect("lo").unwrap();
        assert!(
            loopback.is_up && loopback.mtu >= 1500 && loopback.attached.is_none(),
            "{loopback:?}"
        );
        assert_eq!(loopback.driver, None, "{loopback:?}");
        let error = inspect("no-such-if").unwrap_err().to_string();
        assert!(error.contains("no interface no-such-if"), "{error}");
        assert!(!interfaces().contains(&"lo".to_owned()));
    }
}
