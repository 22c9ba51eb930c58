//! A veth's other end, wherever it is.

use crate::attach::XDP_FLAGS_DRV_MODE;
use crate::{Error, Link, netlink, sys};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Gives the other end of a veth a program: in this namespace, in the one named, or in one that has
/// a name or a process. None if it can't be found or has a program, or the interface is no veth.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    interface: &Link,
    namespace: Option<&File>,
) -> Result<Option<OwnedFd>, Error> {
    let Some(peer) = interface.peer.filter(|peer| *peer != 0) else { return Ok(None) };
    let Some(wanted) = interface.peer_namespace else {
        let links = netlink::links().map_err(Error::system("listing interfaces"))?;
        // A VLAN's lower interface knows nothing of it; a veth's other end does.
        let is_mutual =
            links.iter().any(|link| link.index == peer && link.peer == Some(interface.index));
        return if is_mutual { link(program, peer) } else { Ok(None) };
    };
    let is_wanted = |it: &File| netlink::namespace_id(it.as_fd()).ok().flatten() == Some(wanted);
    let known = namespace
        .map(File::try_clone)
        .transpose()
        .map_err(Error::system("opening a network namespace"))?;
    match known.into_iter().chain(namespaces()).find(is_wanted) {
        Some(namespace) => within(&namespace, || link(program, peer)),
        None => {
            let name = &interface.name;
            tracing::warn!(
                "{name}'s other end isn't found, since its namespace has neither a name nor a \
                 process: unless it has an XDP program, the driver loses every answer"
            );
            Ok(None)
        }
    }
}

fn link(program: BorrowedFd<'_>, index: u32) -> Result<Option<OwnedFd>, Error> {
    match sys::link(program, index, XDP_FLAGS_DRV_MODE) {
        // Any program in its driver will do.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            tracing::warn!("the veth's other end has another process's program: the driver loses every answer if that goes");
            Ok(None)
        }
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Err(Error::Interface(
            "the veth's other end has a program in generic mode, and needs one in its driver: ip link set dev IF xdpgeneric off there"
                .to_owned(),
        )),
        result => result.map(Some).map_err(|error| {
            Error::Interface(format!("the veth's other end can't take the program that it needs: {error}"))
        }),
    }
}

/// Network namespaces that have a name or a process, each once.
fn namespaces() -> Vec<File> {
    let named =
        fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("ns/net"));
    let mut seen = HashSet::new();
    let mut open = |path: PathBuf| {
        let file = File::open(path).ok()?;
        seen.insert(file.metadata().ok()?.ino()).then_some(file)
    };
    named.chain(processes).filter_map(&mut open).collect()
}

/// Runs something in another network namespace, on a thread of its own, since a thread can't always
/// go back.
pub fn within<T: Send, E: Send + From<Error>>(
    namespace: &File,
    body: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    std::thread::scope(|scope| {
        let run = || {
            sys::enter(namespace.as_fd()).map_err(Error::system("entering a network namespace"))?;
            body()
        };
        match scope.spawn(run).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
