//! How a peer and the controller's hub agree on a version of the messages before the first one.
//!
//! The peer says who it is, which versions it speaks, and where it tells over HTTP what it knows,
//! if it does: programs that don't know of the last read no further. The hub answers with the
//! newest version that both speak, or with the reason why it refuses. While a rack is upgraded part
//! by part, programs of two builds work together if their ranges overlap.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use switchback_core::control::{self, Peer};

/// What this program speaks.
pub(super) const VERSIONS: Versions =
    Versions { oldest: *control::VERSIONS.start(), newest: *control::VERSIONS.end() };
/// Longest introduction.
pub(super) const INTRODUCTION_BYTES_MAX: u32 = 64;
/// Longest answer to it.
pub(super) const ANSWER_BYTES_MAX: u32 = 64;

/// "SW", in the upper half of an introduction's first number. The lower half is the newest version.
const MAGIC: u32 = 0x5357;
/// The last version whose introductions had no oldest version: it was the newest.
const LAST_WITHOUT_OLDEST: u16 = 7;

/// A range of versions, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Versions {
    pub(super) oldest: u16,
    pub(super) newest: u16,
}

impl Versions {
    /// The newest version in both ranges.
    pub(super) fn common(self, other: Versions) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

/// What a peer says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    pub(super) peer: Peer,
    pub(super) versions: Versions,
    /// Its metrics, if it has some and says so.
    pub(super) metrics: Option<SocketAddr>,
}

impl Introduction {
    /// Of this program's `peer`.
    pub(super) fn of(peer: Peer, metrics: Option<SocketAddr>) -> Introduction {
        Introduction { peer, versions: VERSIONS, metrics }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let Versions { oldest, newest } = self.versions;
        let mut frame = super::encode(&(MAGIC << 16 | u32::from(newest), self.peer, oldest));
        frame.extend(self.metrics.map(|metrics| super::encode(&metrics)).unwrap_or_default());
        frame
    }

    /// `None` if it isn't one.
    pub(super) fn decode(frame: &[u8]) -> Option<Introduction> {
        let ((first, peer), rest): ((u32, Peer), _) = postcard::take_from_bytes(frame).ok()?;
        if first >> 16 != MAGIC {
            return None;
        }
        let newest = first as u16;
        let (oldest, rest) = match newest {
            ..=LAST_WITHOUT_OLDEST => (newest, &[][..]),
            _ => postcard::take_from_bytes(rest).ok()?,
        };
        let metrics = match rest {
            [] => None,
            _ => Some(postcard::from_bytes(rest).ok()?),
        };
        Some(Introduction { peer, versions: Versions { oldest, newest }, metrics })
    }

    /// Where its metrics are, seen from this machine's address `own`, to which it has connected
    /// from its own `from`.
    pub(super) fn metrics_seen(self, from: IpAddr, own: IpAddr) -> Option<SocketAddr> {
        let mut metrics = self.metrics.filter(|metrics| metrics.port() != 0)?;
        if metrics.ip().is_unspecified() {
            metrics.set_ip(from.to_canonical());
        }
        // A loopback address leads to the machine itself that says so.
        let is_far = !from.to_canonical().is_loopback() && from != own;
        Some(metrics).filter(|metrics| !(is_far && metrics.ip().is_loopback()))
    }

    /// The version in which to speak with it.
    pub(super) fn version(self) -> Result<u16, Refusal> {
        let (controller, part) = (VERSIONS, self.versions);
        controller.common(part).ok_or(Refusal::Version { controller, part })
    }
}

/// What the hub answers. These encodings stay as they are, in all versions.
pub(super) type Answer = Result<u16, Refusal>;

/// Why a peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Refusal {
    /// No version is common to both.
    #[error(
        "no common version of the control channel: the controller speaks {controller}, this part \
         {part}; upgrade the older one"
    )]
    Version {
        /// Those of the hub.
        controller: Versions,
        /// Those of the peer.
        part: Versions,
    },
    /// The controller, or a switch or node that the hub's rack doesn't have.
    #[error("the controller's rack has no such part: compare the two configurations")]
    Unknown,
    /// There are as many as there may be.
    #[error("the controller has as many clients as it may have, in all or from this address")]
    Crowded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_says_who_it_is_and_what_it_speaks() {
        let metrics = [None, Some("10.0.0.1:9464"), Some("[fd00::ffff:7]:65535")];
        let metrics = metrics.map(|address| address.map(|it| it.parse().expect("an address")));
        let peers = [Peer::Node(2), Peer::Switch(0), Peer::Client(u64::MAX)];
        for (peer, metrics) in peers.into_iter().zip(metrics) {
            let introduction = Introduction::of(peer, metrics);
            let bytes = introduction.encode();
            assert_eq!(Introduction::decode(&bytes), Some(introduction));
            assert_eq!(introduction.version(), Ok(VERSIONS.newest));
            assert!(bytes.len() <= INTRODUCTION_BYTES_MAX as usize);
            assert_eq!(Introduction::decode(&bytes[..bytes.len() - 1]), None);
            let without_version = super::super::encode(&peer);
            assert_eq!(Introduction::decode(&without_version), None, "before there was a version");
        }
        assert_eq!(Introduction::decode(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(Introduction::decode(b""), None);
    }

    /// Programs that don't know of metrics say nothing behind the oldest version, and read no
    /// further.
    #[test]
    fn programs_that_know_of_no_metrics_are_understood_and_understand() {
        let first = MAGIC << 16 | u32::from(VERSIONS.newest);
        let old = super::super::encode(&(first, Peer::Node(1), VERSIONS.oldest));
        assert_eq!(Introduction::decode(&old), Some(Introduction::of(Peer::Node(1), None)));
        let metrics = Some(([10, 0, 0, 1], 9464).into());
        let new = Introduction::of(Peer::Node(1), metrics).encode();
        let read: (u32, Peer, u16) = postcard::from_bytes(&new).expect("as it was");
        assert_eq!(read, (first, Peer::Node(1), VERSIONS.oldest));
    }

    #[test]
    fn metrics_are_where_they_are_reached_from_here() {
        for (from, told, seen) in [
            ("10.0.0.9", "10.1.0.9:9465", Some("10.1.0.9:9465")),
            ("::ffff:10.0.0.9", "0.0.0.0:9465", Some("10.0.0.9:9465")),
            ("fd00::9", "[::]:9465", Some("[fd00::9]:9465")),
            ("127.0.0.1", "127.0.0.2:9465", Some("127.0.0.2:9465")),
            ("10.0.0.1", "127.0.0.1:9465", Some("127.0.0.1:9465")),
            ("10.0.0.9", "127.0.0.1:9465", None),
            ("10.0.0.9", "10.0.0.9:0", None),
        ] {
            let metrics = Some(told.parse().expect("an address"));
            let introduction = Introduction::of(Peer::Node(0), metrics);
            let (from, own) = (from.parse().expect("one"), "10.0.0.1".parse().expect("one"));
            let seen = seen.map(|seen| seen.parse().expect("an address"));
            assert_eq!(introduction.metrics_seen(from, own), seen, "{told} of {from}");
        }
    }

    /// Programs of version 7 compared the first number and read no further.
    #[test]
    fn programs_of_version_7_are_named_and_find_their_number_where_it_was() {
        let old = super::super::encode(&(0x5357_0007_u32, Peer::Node(1)));
        let introduction = Introduction::decode(&old).expect("an introduction");
        let part = Versions { oldest: 7, newest: 7 };
        let refusal = Refusal::Version { controller: VERSIONS, part };
        let expected = Introduction { peer: Peer::Node(1), versions: part, metrics: None };
        assert_eq!(introduction, expected);
        assert_eq!(introduction.version(), Err(refusal));
        let text = format!("the controller speaks {VERSIONS}, this part version 7;");
        assert!(refusal.to_string().contains(&text), "{refusal}");
        let new = Introduction::of(Peer::Node(1), None).encode();
        let (first, peer): (u32, Peer) = postcard::from_bytes(&new).expect("as it was");
        assert_eq!((first, peer), (0x5357_0000 | u32::from(VERSIONS.newest), Peer::Node(1)));
    }

    #[test]
    fn the_newest_version_that_both_speak_is_spoken() {
        let versions = |oldest, newest| Versions { oldest, newest };
        let ours = versions(8, 10);
        for (theirs, common) in [
            (versions(8, 8), Some(8)),
            (versions(9, 12), Some(10)),
            (versions(3, 9), Some(9)),
            (versions(1, 7), None),
            (versions(11, 12), None),
            (versions(9, 8), None),
        ] {
            assert_eq!((ours.common(theirs), theirs.common(ours)), (common, common), "{theirs}");
        }
        assert_eq!(ours.to_string(), "versions 8 to 10");
    }

    #[test]
    fn answers_are_short_and_are_read_as_they_were_written() {
        let longest = Versions { oldest: u16::MAX, newest: u16::MAX };
        for answer in [
            Ok(u16::MAX),
            Err(Refusal::Version { controller: longest, part: longest }),
            Err(Refusal::Unknown),
            Err(Refusal::Crowded),
        ] {
            let bytes = super::super::encode(&answer);
            assert!(bytes.len() <= ANSWER_BYTES_MAX as usize);
            assert_eq!(postcard::from_bytes::<Answer>(&bytes), Ok(answer));
        }
    }
}
