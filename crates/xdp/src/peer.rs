//! A veth's other end, wherever it is.

use crate::{Error, Link, netlink, sys};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The other end of a veth, in this namespace, in the one named, or in one that has a name or a process; none if it can't be found, or
/// the interface is no veth.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    interface: &Link,
    namespace: Option<&File>,
) -> Result<Option<OwnedFd>, Error> {
    let Some(peer) = interface.peer.filter(|peer| *peer != 0) else { return Ok(None) };
    let Some(wanted) = interface.peer_namespace else {
        let links = netlink::links().map_err(|error| Error::System("listing interfaces", error))?;
        // A VLAN's lower interface knows nothing of it; a veth's other end does.
        let is_mutual = links.iter().any(|link| link.index == peer && link.peer == Some(interface.index));
        return if is_mutual { link(program, peer).map(Some) } else { Ok(None) };
    };
    let is_wanted = |it: &File| netlink::namespace_id(it.as_fd()).ok().flatten() == Some(wanted);
    let known =
        namespace.map(File::try_clone).transpose().map_err(|error| Error::System("a network namespace", error))?;
    match known.into_iter().chain(namespaces()).find(is_wanted) {
        Some(namespace) => within(&namespace, || link(program, peer)).map(Some),
        None => Ok(None),
    }
}

fn link(program: BorrowedFd<'_>, index: u32) -> Result<OwnedFd, Error> {
    sys::link(program, index, XDP_FLAGS_DRV_MODE).map_err(|error| {
        Error::Interface(format!("the veth's other end can't take the program that it needs: {error}"))
    })
}

/// Network namespaces that have a name or a process, each once.
fn namespaces() -> Vec<File> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("ns/net"));
    let mut seen = HashSet::new();
    let mut open = |path: PathBuf| {
        let file = File::open(path).ok()?;
        seen.insert(file.metadata().ok()?.ino()).then_some(file)
    };
    named.chain(processes).filter_map(&mut open).collect()
}

/// Runs something in another network namespace, on a thread of its own, since a thread can't always go back.
pub fn within<T: Send, E: Send + From<Error>>(
    namespace: &File,
    body: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    std::thread::scope(|scope| {
        let run = || {
            sys::enter(namespace.as_fd()).map_err(|error| Error::System("entering a network namespace", error))?;
            body()
        };
        match scope.spawn(run).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
