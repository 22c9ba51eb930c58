//! What has happened: the last events of a rack, as far as one process knows.
//!
//! They follow from looks at its status, one a second. So what changes and changes back within a
//! second is not told, and of several recoveries within one second the last; what is frequent,
//! admissions and snapshots, is summed over some minutes.

use super::PERIOD;
use crate::admin::{DrainResult, RackStatus, RecoveryStatus};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Events that are kept.
pub const EVENTS_MAX: usize = 1000;
/// What a look tells is of the time since the one before.
const LOOK_SECONDS: f64 = PERIOD.as_secs() as f64;
/// For how long what is frequent is summed.
const SUM_SECONDS: f64 = 300.0;
/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 300;

/// `GET /events?since=N&limit=M`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct EventsStatus {
    /// When this was told.
    pub now_unix_seconds: f64,
    /// The controller, which knows of most events, is in this process.
    pub has_controller: bool,
    /// The number that the next event will have.
    pub next: u64,
    /// The oldest first.
    pub events: Vec<Event>,
    /// Sums that aren't finished; they get their numbers then.
    pub under_way: Vec<Event>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Counts all events of the process, from 0; `None`: it isn't finished.
    pub number: Option<u64>,
    /// When it was noticed, up to a second after it happened; of a sum: when it began.
    pub unix_seconds: f64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// The process began.
    Started {
        /// The program's version.
        version: String,
    },
    /// The rack is in another phase.
    Phase {
        /// As in [`RackStatus`].
        phase: String,
    },
    /// A new epoch began.
    Epoch {
        /// Its number.
        epoch: u32,
    },
    /// Nodes were released after a recovery; once more, in place of that, when every key that was
    /// cached is admitted again.
    Recovery(RecoveryStatus),
    /// Snapshots that ended.
    Snapshots {
        /// Of this many seconds.
        seconds: f64,
        /// Became durable.
        completed: u64,
        /// Had to be taken again.
        failed: u64,
        /// The longest that was seen.
        duration_seconds_max: f64,
        /// Records of the last one.
        records: u64,
        /// Bytes of the last one.
        bytes: u64,
    },
    /// Keys in and out.
    Admissions {
        /// Of this many seconds.
        seconds: f64,
        /// Keys admitted.
        admitted: u64,
        /// Keys evicted.
        evicted: u64,
    },
    /// A drain ended that was asked for.
    Drain {
        /// Records that were brought to their nodes.
        drained: u64,
        /// Nodes that lack records.
        lacking_nodes: u64,
        /// How long it took.
        duration_seconds: f64,
    },
    /// A node is in another state.
    Node {
        /// Its number.
        node: u16,
        /// `up`, `down` or `holds`.
        state: String,
    },
    /// A switch is in another state.
    Switch {
        /// Its number.
        switch: u16,
        /// `serves`, `spare` or `down`.
        state: String,
    },
    /// Something can't be done, or can be done again.
    Error {
        /// `controller`, or `node` or `switch` with its number.
        part: String,
        /// Why; `None`: it is mended.
        error: Option<String>,
    },
}

/// The last events, and what the last look saw.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<Event>,
    next: u64,
    seen: Option<Box<RackStatus>>,
    /// Sums under way.
    sums: Vec<Event>,
}

impl EventLog {
    /// The number that the next event will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Takes a look.
    pub(super) fn notice(&mut self, unix_s: f64, status: &RackStatus) {
        let seen = self.seen.replace(Box::new(status.clone())).unwrap_or_else(|| {
            self.push(unix_s, What::Started { version: status.version.clone() });
            Box::default()
        });
        let sums = [snapshots(&seen, status), admissions(&seen, status)];
        sums.into_iter().flatten().for_each(|more| self.sum(unix_s, more));
        self.finish_sums(unix_s);
        if status.phase != seen.phase {
            self.push(unix_s, What::Phase { phase: status.phase.clone() });
        }
        if let Some(epoch) = status.epoch.filter(|_| status.epoch != seen.epoch) {
            self.push(unix_s, What::Epoch { epoch });
        }
        self.notice_recovery(unix_s, &seen, status);
        changed_parts(&seen, status).for_each(|what| self.push(unix_s, what));
        changed_errors(&seen, status).for_each(|what| self.push(unix_s, what));
    }

    /// A drain that was asked for has ended.
    pub(super) fn drained(&mut self, unix_s: f64, result: &DrainResult) {
        // The lines name keys, which events don't.
        let lacking_nodes = result.remaining.len() as u64;
        let DrainResult { drained, duration_seconds, .. } = *result;
        self.push(unix_s, What::Drain { drained, lacking_nodes, duration_seconds });
    }

    /// Events from number `since` on, the last `limit` of them.
    pub(super) fn status(&self, now_unix_s: f64, since: u64, limit: usize) -> EventsStatus {
        let is_wanted = |event: &&Event| event.number.is_some_and(|number| number >= since);
        let mut events: Vec<_> =
            self.events.iter().rev().take_while(is_wanted).take(limit).cloned().collect();
        events.reverse();
        EventsStatus {
            now_unix_seconds: now_unix_s,
            has_controller: self.seen.as_ref().is_some_and(|seen| seen.epoch.is_some()),
            next: self.next,
            events,
            under_way: self.sums.clone(),
        }
    }

    fn push(&mut self, unix_seconds: f64, what: What) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { number: Some(self.next), unix_seconds, what });
        self.next += 1;
    }

    fn notice_recovery(&mut self, unix_s: f64, seen: &RackStatus, status: &RackStatus) {
        let Some(recovery) = status.recovery.as_ref().filter(|_| status.recovery != seen.recovery)
        else {
            return;
        };
        // What was told of it while keys were still missing is told anew.
        let is_older = |event: &Event| match &event.what {
            What::Recovery(told) => told.epoch != recovery.epoch || told.complete,
            _ => true,
        };
        let is_told = self.events.iter().any(|event| !is_older(event));
        if recovery.lost_keys > 0 && !is_told {
            tracing::error!(
                epoch = recovery.epoch,
                keys = recovery.lost_keys,
                "no switch that had them came back: what was acknowledged last of some of these keys may be lost"
            );
        }
        self.events.retain(is_older);
        self.push(unix_s, What::Recovery(recovery.clone()));
    }

    fn sum(&mut self, unix_s: f64, more: What) {
        let is_alike =
            |sum: &&mut Event| std::mem::discriminant(&sum.what) == std::mem::discriminant(&more);
        match self.sums.iter_mut().find(is_alike) {
            Some(sum) => add(&mut sum.what, &more, unix_s - sum.unix_seconds + LOOK_SECONDS),
            None => self.sums.push(Event { number: None, unix_seconds: unix_s, what: more }),
        }
    }

    fn finish_sums(&mut self, unix_s: f64) {
        let is_over = |sum: &mut Event| unix_s - sum.unix_seconds >= SUM_SECONDS;
        let over: Vec<_> = self.sums.extract_if(.., is_over).collect();
        over.into_iter().for_each(|sum| self.push(sum.unix_seconds, sum.what));
    }
}

/// Adds to a sum that is now over `lasted` seconds.
fn add(sum: &mut What, more: &What, lasted: f64) {
    match (sum, more) {
        (
            What::Snapshots { seconds, completed, failed, duration_seconds_max, records, bytes },
            What::Snapshots {
                completed: more_completed,
                failed: more_failed,
                duration_seconds_max: duration,
                records: last_records,
                bytes: last_bytes,
                ..
            },
        ) => {
            *seconds = lasted;
            *completed += more_completed;
            *failed += more_failed;
            *duration_seconds_max = duration_seconds_max.max(*duration);
            (*records, *bytes) = (*last_records, *last_bytes);
        }
        (
            What::Admissions { seconds, admitted, evicted },
            What::Admissions { admitted: more_admitted, evicted: more_evicted, .. },
        ) => {
            *seconds = lasted;
            *admitted += more_admitted;
            *evicted += more_evicted;
        }
        _ => unreachable!("only these two are summed, each with its like"),
    }
}

/// Snapshots since the last look, if there were any.
fn snapshots(seen: &RackStatus, status: &RackStatus) -> Option<What> {
    let (before, now) = (seen.snapshots.as_ref()?, status.snapshots.as_ref()?);
    let completed = now.completed.saturating_sub(before.completed);
    let failed = now.failed.saturating_sub(before.failed);
    (completed + failed > 0).then_some(What::Snapshots {
        seconds: LOOK_SECONDS,
        completed,
        failed,
        duration_seconds_max: now.duration_seconds,
        records: now.records,
        bytes: now.bytes,
    })
}

/// Admissions and evictions since the last look, if there were any.
fn admissions(seen: &RackStatus, status: &RackStatus) -> Option<What> {
    let since = |of: fn(&RackStatus) -> Option<u64>| Some(of(status)?.saturating_sub(of(seen)?));
    let admitted = since(|status| status.cache.admissions)?;
    let evicted = since(|status| status.cache.evictions)?;
    (admitted + evicted > 0).then_some(What::Admissions {
        seconds: LOOK_SECONDS,
        admitted,
        evicted,
    })
}

/// Nodes and switches that were known before and are in another state.
fn changed_parts(seen: &RackStatus, status: &RackStatus) -> impl Iterator<Item = What> {
    let nodes = status.nodes.iter().filter_map(|node| {
        let before = seen.nodes.iter().find(|known| known.index == node.index)?;
        let state = node.state()?;
        let what = What::Node { node: node.index, state: state.into() };
        (before.state()? != state).then_some(what)
    });
    let switches = status.switches.iter().filter_map(|switch| {
        let before = seen.switches.iter().find(|known| known.index == switch.index)?;
        let state = switch.state();
        let what = What::Switch { switch: switch.index, state: state.into() };
        (before.state() != state).then_some(what)
    });
    nodes.chain(switches).collect::<Vec<_>>().into_iter()
}

/// What can't be done any more, or can be done again.
fn changed_errors(seen: &RackStatus, status: &RackStatus) -> impl Iterator<Item = What> {
    let (before, now) = (errors(seen), errors(status));
    let ended = before.keys().filter(|part| !now.contains_key(*part));
    let ended: Vec<_> = ended.map(|part| What::Error { part: part.clone(), error: None }).collect();
    let is_new = move |(part, error): &(String, String)| before.get(part) != Some(error);
    let began = now.into_iter().filter(is_new);
    ended.into_iter().chain(began.map(|(part, error)| What::Error { part, error: Some(error) }))
}

/// What can't be done now, by the part that can't.
fn errors(status: &RackStatus) -> BTreeMap<String, String> {
    let controller = status.snapshots.as_ref().and_then(|snapshots| snapshots.error.as_ref());
    let controller = controller.map(|error| ("controller".to_owned(), error));
    let nodes = status
        .nodes
        .iter()
        .filter_map(|node| Some((format!("node {}", node.index), node.error.as_ref()?)));
    let switches = status
        .switches
        .iter()
        .filter_map(|switch| Some((format!("switch {}", switch.index), switch.error.as_ref()?)));
    let short = |error: &String| error.chars().take(ERROR_CHARS_MAX).collect();
    let all = controller.into_iter().chain(nodes).chain(switches);
    all.map(|(part, error)| (part, short(error))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{CacheStatus, NodeStatus, SnapshotStatus, SwitchStatus};

    fn status() -> RackStatus {
        let node = |index| NodeStatus { index, alive: Some(true), ..NodeStatus::default() };
        RackStatus {
            version: "0.1.0".into(),
            phase: "serving".into(),
            epoch: Some(1),
            cache: CacheStatus {
                admissions: Some(0),
                evictions: Some(0),
                ..CacheStatus::default()
            },
            snapshots: Some(SnapshotStatus::default()),
            switches: vec![SwitchStatus { alive: true, active: true, ..SwitchStatus::default() }],
            nodes: vec![node(0), node(1)],
            ..RackStatus::default()
        }
    }

    fn told(log: &EventLog, since: u64) -> Vec<What> {
        log.status(0.0, since, EVENTS_MAX).events.into_iter().map(|event| event.what).collect()
    }

    #[test]
    fn each_change_is_an_event() {
        let mut log = EventLog::default();
        let mut status = status();
        log.notice(1.0, &status);
        let phase = |phase: &str| What::Phase { phase: phase.into() };
        let started = What::Started { version: "0.1.0".into() };
        assert_eq!(told(&log, 0), [started, phase("serving"), What::Epoch { epoch: 1 }]);
        log.notice(2.0, &status);
        assert_eq!(told(&log, 3), [], "nothing has changed");
        let recovery =
            RecoveryStatus { epoch: 2, detect_seconds: 0.1, ..RecoveryStatus::default() };
        status.epoch = Some(2);
        status.recovery = Some(recovery.clone());
        status.nodes[1].alive = Some(false);
        status.nodes[0].error = Some("no space".into());
        status.switches[0].active = false;
        log.notice(3.0, &status);
        let node = |node, state: &str| What::Node { node, state: state.into() };
        let error = |error: Option<&str>| What::Error {
            part: "node 0".into(),
            error: error.map(str::to_owned),
        };
        let expected = [
            What::Epoch { epoch: 2 },
            What::Recovery(recovery.clone()),
            node(1, "down"),
            What::Switch { switch: 0, state: "spare".into() },
            error(Some("no space")),
        ];
        assert_eq!(told(&log, 3), expected);
        // The keys are back: the recovery is told once, with all its steps.
        let complete = RecoveryStatus { complete: true, readmit_seconds: 0.2, ..recovery };
        status.recovery = Some(complete.clone());
        status.nodes[1].alive = Some(true);
        status.nodes[0].error = None;
        log.notice(4.0, &status);
        assert_eq!(told(&log, 8), [What::Recovery(complete), node(1, "up"), error(None)]);
        let recoveries = |what: &What| matches!(what, What::Recovery(_));
        assert_eq!(told(&log, 0).iter().filter(|what| recoveries(what)).count(), 1);
    }

    #[test]
    fn what_is_frequent_is_summed_over_minutes() {
        let mut log = EventLog::default();
        let mut status = status();
        log.notice(0.0, &status);
        for second in 1..=300u64 {
            status.cache.admissions = Some(10 * second);
            let snapshots = status.snapshots.as_mut().unwrap();
            snapshots.completed = second / 2;
            snapshots.duration_seconds = 0.5 / second as f64;
            log.notice(second as f64, &status);
        }
        let under_way = log.status(0.0, 0, 9).under_way;
        let admissions = What::Admissions { seconds: 300.0, admitted: 3000, evicted: 0 };
        assert_eq!((under_way[0].number, &under_way[0].what), (None, &admissions));
        log.notice(303.0, &status);
        let events = log.status(0.0, 3, 9).events;
        assert_eq!((events[0].number, events[0].unix_seconds), (Some(3), 1.0));
        assert_eq!(events[0].what, admissions);
        let What::Snapshots { completed, duration_seconds_max, .. } = events[1].what else {
            panic!("{events:?}")
        };
        assert_eq!((completed, duration_seconds_max), (150, 0.25));
        assert_eq!(log.status(0.0, 0, 9).under_way, []);
    }

    #[test]
    fn the_oldest_of_too_many_events_are_forgotten() {
        let mut log = EventLog::default();
        let mut status = status();
        for second in 0..3000 {
            status.epoch = Some(second);
            status.nodes[0].error = Some("x".repeat(100_000));
            log.notice(second.into(), &status);
        }
        let all = log.status(0.0, 0, usize::MAX);
        assert_eq!((all.events.len(), all.next), (EVENTS_MAX, 3003));
        assert_eq!(all.events[0].number, Some(2003));
        let some = log.status(0.0, 3001, 1);
        assert_eq!(some.events.len(), 1);
        assert_eq!(some.events[0].number, Some(3002), "the last of them");
        assert!(log.status(0.0, u64::MAX, 9).events.is_empty());
    }

    #[test]
    fn events_name_no_keys() {
        let mut log = EventLog::default();
        let remaining = vec!["node 2: 17 cached records are not stored there (user:1)".to_owned()];
        log.drained(5.0, &DrainResult { drained: 3, remaining, duration_seconds: 0.5 });
        let json = serde_json::to_value(log.status(9.0, 0, 9)).unwrap();
        let expected = serde_json::json!({
            "number": 0, "unix_seconds": 5.0, "kind": "drain", "drained": 3, "lacking_nodes": 1,
            "duration_seconds": 0.5,
        });
        assert_eq!(json["events"][0], expected);
    }
}
