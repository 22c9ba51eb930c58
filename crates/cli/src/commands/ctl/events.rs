//! `switchback ctl events`.

use super::asked_at;
use crate::output::Align::{Left, Right};
use crate::output::{Paint, Table, bytes, grouped, printable, seconds};
use switchback_rack::admin::RecoveryStatus;
use switchback_rack::observer::{Event, EventsStatus, What};

pub(super) fn events_text(status: &EventsStatus, paint: Paint) -> String {
    let events: Vec<&Event> = status.events.iter().chain(&status.under_way).collect();
    let age = |event: &&Event| seconds((status.now_unix_seconds - event.unix_seconds).max(0.0));
    let table = Table::of(
        &events,
        &[
            ("ago", Right, &age),
            ("event", Left, &|event| named(&event.what).0.to_owned()),
            ("", Left, &|event| named(&event.what).1),
        ],
    );
    let mut text = table.painted(paint);
    if !status.has_controller {
        let who = asked_at("the controller", "[rack]");
        text +=
            &format!("recoveries, snapshots and what becomes of nodes and switches are {who}\n");
    }
    text
}

/// The kind of an event, and what there is to say of it.
fn named(what: &What) -> (&'static str, String) {
    match what {
        What::Started { version } => ("start", format!("version {}", printable(version))),
        What::Phase { phase } => ("phase", printable(phase)),
        What::Epoch { epoch } => ("epoch", epoch.to_string()),
        What::Recovery(recovery) => ("recovery", recovery_text(recovery)),
        What::Snapshots {
            seconds: lasted,
            completed,
            failed,
            duration_seconds_max,
            records,
            bytes: size,
        } => {
            let text = format!(
                "{} durable, {} failed within {}; the longest {}; the last {} records, {}",
                grouped(*completed),
                grouped(*failed),
                seconds(*lasted),
                seconds(*duration_seconds_max),
                grouped(*records),
                bytes(*size)
            );
            ("snapshots", text)
        }
        What::Admissions { seconds: lasted, admitted, evicted } => {
            let text = format!(
                "{} admitted, {} evicted within {}",
                grouped(*admitted),
                grouped(*evicted),
                seconds(*lasted)
            );
            ("admissions", text)
        }
        What::Drain { drained, lacking_nodes, duration_seconds } => {
            let lacking = match lacking_nodes {
                0 => String::new(),
                nodes => format!("; {nodes} nodes lack some"),
            };
            let drained = grouped(*drained);
            ("drain", format!("{drained} records in {}{lacking}", seconds(*duration_seconds)))
        }
        What::Node { node, state } => ("node", format!("{node} {}", printable(state))),
        What::Switch { switch, state } => ("switch", format!("{switch} {}", printable(state))),
        What::Error { part, error: Some(error) } => {
            ("error", format!("{}: {}", printable(part), printable(error)))
        }
        What::Error { part, error: None } => ("mended", printable(part)),
    }
}

/// A recovery by its steps.
pub(super) fn recovery_text(recovery: &RecoveryStatus) -> String {
    let readmit = match recovery.complete {
        true => format!("re-admit {}", seconds(recovery.readmit_seconds)),
        false => "re-admission under way".to_owned(),
    };
    format!(
        "epoch {}: detect {}, collect {}, store {} ({} records), {readmit}",
        recovery.epoch,
        seconds(recovery.detect_seconds),
        seconds(recovery.collect_seconds),
        seconds(recovery.store_seconds),
        grouped(recovery.records)
    )
}
