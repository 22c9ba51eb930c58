//! MONITOR, and which commands monitors are shown.

use super::{Verb, ok};
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::ErrorKind;
use crate::monitors::MONITORS_MAX;
use crate::resp::Args;
use crate::running::Running;
use crate::shared::Shared;
use std::sync::Arc;

pub(crate) fn monitor(running: &mut Running, shared: &Shared, id: ConnectionId, _: Args<'_>) {
    let replies = &mut running.outbox.replies;
    let worker = replies.worker();
    let Some(connection) = replies.connections.get_mut(id) else { return };
    // As in Redis, a monitor that asks again gets no reply.
    if connection.is_monitor {
        return answer_here(running, id, Some(Verb::Monitor), |_, _| ());
    }
    let waker = Arc::clone(&shared.inboxes[worker].waker);
    if !shared.monitors.enter(connection.number, id, worker, waker) {
        let text = format!("ERR there are {MONITORS_MAX} monitors already, which is the most");
        return refuse(running, id, ErrorKind::Command, &text);
    }
    connection.is_monitor = true;
    ok(running, id, Verb::Monitor);
}

/// Makes a connection a monitor no more. What waited for it comes before its next reply.
pub(super) fn end_monitor(running: &mut Running, shared: &Shared, id: ConnectionId) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    if std::mem::take(&mut connection.is_monitor) {
        shared.monitors.leave(connection.number, &mut connection.out);
    }
}

/// Shows monitors a command of a connection, unless Redis wouldn't.
#[cold]
pub(crate) fn show(
    running: &Running,
    shared: &Shared,
    id: ConnectionId,
    verb: Verb,
    args: Args<'_>,
) {
    if let Some(connection) = running.outbox.replies.connections.get(id)
        && !is_administrative(verb, args)
    {
        shared.monitors.show(connection.peer, args, |at| is_secret(verb, args, at));
    }
}

fn is_administrative(verb: Verb, args: Args<'_>) -> bool {
    match verb {
        Verb::Client => {
            let sub = args.get(1).to_ascii_lowercase();
            let subs = ["kill", "list", "no-evict", "pause", "unblock", "unpause"];
            subs.iter().any(|known| known.as_bytes() == sub)
        }
        _ => verb.spec().flags.contains(&"admin"),
    }
}

/// Whether the argument at this position may be a user or a password.
fn is_secret(verb: Verb, args: Args<'_>, at: usize) -> bool {
    match verb {
        Verb::Auth => at > 0,
        // The two words behind the option AUTH, wherever that is.
        Verb::Hello => (at.saturating_sub(2).max(2)..at)
            .any(|before| args.get(before).eq_ignore_ascii_case(b"auth")),
        _ => false,
    }
}
