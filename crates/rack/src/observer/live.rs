//! A sample of a rack: its rates of the last second.

use crate::admin::{HeatStatus, HotKeyStatus, NodeStatus, RackStatus, SwitchStatus};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use switchback_heat::{Counts, Plane};

/// Hot keys in a sample.
pub(super) const KEYS: usize = 10;

/// The data of an event of `GET /live`. What the process that is asked can't know is `None`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveSample {
    /// When it was taken.
    pub unix_seconds: f64,
    /// The time that rates are of: since the sample before.
    pub window_seconds: f64,
    /// As in [`RackStatus`].
    pub name: String,
    /// As in [`RackStatus`].
    pub phase: String,
    /// As in [`RackStatus`].
    pub epoch: Option<u32>,
    /// As in [`RackStatus`].
    pub draining: Option<bool>,
    /// Of the process that answers.
    pub uptime_seconds: f64,
    /// Reads that were answered to the gateway.
    pub reads_per_s: Option<f64>,
    /// Writes and deletes that were answered to the gateway.
    pub writes_per_s: Option<f64>,
    /// Of both, what nodes answered; the cache answered the rest.
    pub nodes_per_s: Option<f64>,
    /// Connections of the gateway.
    pub connections: Option<u64>,
    /// Cached keys.
    pub cached: Option<u64>,
    /// Their limit.
    pub cached_max: u64,
    /// Hot keys that wait for admission.
    pub waiting_offers: Option<u64>,
    /// Keys admitted.
    pub admissions_per_s: Option<f64>,
    /// Keys evicted.
    pub evictions_per_s: Option<f64>,
    /// What the switch of this process was asked and answered.
    pub switch: Option<LiveSwitch>,
    /// Every switch.
    #[serde(default)]
    pub switches: Vec<LiveLoad>,
    /// Every node.
    pub nodes: Vec<LiveNode>,
    /// The hottest keys of the last seconds, as in [`HotStatus`](crate::admin::HotStatus).
    pub hot: Option<Vec<HotKeyStatus>>,
    /// The number that the next event of `GET /events` will have.
    pub next_event: u64,
}

/// Part of a [`LiveSample`]. Retries of clients count here.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveSwitch {
    /// Requests that came.
    pub requests_per_s: f64,
    /// Requests that the switch answered from its cache.
    pub by_switch_per_s: f64,
    /// Requests that nodes answered.
    pub by_nodes_per_s: f64,
    /// Writes that the cache took.
    pub absorbed_per_s: f64,
}

/// Part of a [`LiveSample`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveLoad {
    /// The switch's number.
    pub index: u16,
    /// Requests that came to it.
    pub requests_per_s: Option<f64>,
}

/// Part of a [`LiveSample`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveNode {
    /// Its number.
    pub index: u16,
    /// `up`, `down` or `holds`.
    pub state: Option<String>,
    /// Reads that it served.
    pub reads_per_s: Option<f64>,
    /// Writes that it served.
    pub writes_per_s: Option<f64>,
    /// Cached keys that belong to it.
    pub cached_keys: Option<u64>,
}

impl LiveSample {
    /// Takes what gateways of other processes were asked for from their heat, each of its last
    /// second.
    pub(super) fn ask(&mut self, heats: &[HeatStatus]) {
        let sum = |plane: fn(&HeatStatus) -> &[Vec<f64>]| {
            let columns = heats.iter().filter_map(|heat| plane(heat).last());
            columns.map(|column| column.iter().sum::<f64>()).reduce(|sum, more| sum + more)
        };
        self.reads_per_s = sum(|heat| &heat.reads_per_s);
        self.writes_per_s = sum(|heat| &heat.writes_per_s);
        self.nodes_per_s = sum(|heat| &heat.nodes_per_s);
    }
}

/// Makes rates of what counters said at two looks.
#[derive(Debug, Default)]
pub(super) struct Meter {
    elapsed: Duration,
    status: RackStatus,
    counts: Counts,
}

impl Meter {
    /// The sample of a look; hot keys and events are for the caller to add.
    pub(super) fn sample(
        &mut self,
        elapsed: Duration,
        unix_seconds: f64,
        status: &RackStatus,
        counts: Option<&Counts>,
    ) -> LiveSample {
        let before = std::mem::replace(&mut self.status, status.clone());
        let window_seconds = elapsed.saturating_sub(self.elapsed).as_secs_f64().max(1e-6);
        self.elapsed = elapsed;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / window_seconds;
        // What was not known before has counted for an unknown time.
        let rate_of = |of: fn(&RackStatus) -> Option<u64>| Some(rate(of(status)?, of(&before)?));
        let node = |node: &NodeStatus| {
            let known = before.nodes.iter().find(|known| known.index == node.index);
            let rate_of =
                |of: fn(&NodeStatus) -> Option<u64>| Some(rate(of(node)?, known.and_then(of)?));
            LiveNode {
                index: node.index,
                state: node.state().map(str::to_owned),
                reads_per_s: rate_of(|node| node.reads),
                writes_per_s: rate_of(|node| node.writes),
                cached_keys: node.cached_keys,
            }
        };
        let load = |switch: &SwitchStatus| {
            let known = before.switches.iter().find(|known| known.index == switch.index);
            let requests_per_s = switch.requests.zip(known.and_then(|known| known.requests));
            LiveLoad {
                index: switch.index,
                requests_per_s: requests_per_s.map(|(now, before)| rate(now, before)),
            }
        };
        let operations = status.operations.as_ref().zip(before.operations.as_ref());
        let switch = operations.map(|(now, before)| LiveSwitch {
            requests_per_s: rate(now.reads + now.writes, before.reads + before.writes),
            by_switch_per_s: rate(now.answered_by_switch, before.answered_by_switch),
            by_nodes_per_s: rate(now.answered_by_nodes, before.answered_by_nodes),
            absorbed_per_s: rate(now.absorbed_writes, before.absorbed_writes),
        });
        let asked = counts.map(|counts| {
            let before = std::mem::replace(&mut self.counts, counts.clone());
            Plane::ALL.map(|plane| counts.since(&before, plane) as f64 / window_seconds)
        });
        LiveSample {
            unix_seconds,
            window_seconds,
            name: status.name.clone(),
            phase: status.phase.clone(),
            epoch: status.epoch,
            draining: status.draining,
            uptime_seconds: status.uptime_seconds,
            reads_per_s: asked.map(|[reads, ..]| reads),
            writes_per_s: asked.map(|[_, writes, _]| writes),
            nodes_per_s: asked.map(|[.., nodes]| nodes),
            connections: status.clients.connections,
            cached: status.cache.records,
            cached_max: status.cache.records_max,
            waiting_offers: status.cache.waiting_offers,
            admissions_per_s: rate_of(|status| status.cache.admissions),
            evictions_per_s: rate_of(|status| status.cache.evictions),
            switch,
            switches: status.switches.iter().map(load).collect(),
            nodes: status.nodes.iter().map(node).collect(),
            hot: None,
            next_event: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::OperationsStatus;
    use switchback_heat::{Access, Heat, Recorder, Subject};
    use switchback_wire::KeyHash;

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let heat = Heat::new(1);
        let mut recorder = Recorder::new(&heat, 0, 1);
        let mut ask = |times, is_write, is_cached| {
            for at in 0..times {
                let access = Access { hash: KeyHash([at; 16]), is_write, is_cached };
                recorder.record(access, || Subject { key: b"k", value_bytes: None });
            }
        };
        let mut meter = Meter::default();
        let node = NodeStatus { index: 3, alive: Some(false), ..NodeStatus::default() };
        let switch = |index| SwitchStatus { index, requests: Some(5), ..SwitchStatus::default() };
        let switches = vec![switch(0), switch(1)];
        let mut status = RackStatus { nodes: vec![node], switches, ..RackStatus::default() };
        status.operations = Some(OperationsStatus::default());
        status.cache.admissions = Some(0);
        ask(100, false, true);
        let counts = heat.counts();
        let first = meter.sample(Duration::from_secs(1), 1e9, &status, Some(&counts));
        assert_eq!((first.reads_per_s, first.writes_per_s), (Some(100.0), Some(0.0)));
        assert_eq!((first.nodes[0].reads_per_s, &first.switch), (None, &None));
        let loads = |sample: &LiveSample| -> Vec<_> {
            sample.switches.iter().map(|load| load.requests_per_s).collect()
        };
        assert_eq!(loads(&first), [None, None]);
        status.nodes[0].reads = Some(1000);
        meter.sample(Duration::from_secs(1), 1e9, &status, Some(&counts));
        ask(50, true, false);
        ask(20, true, true);
        status.nodes[0].reads = Some(1007);
        status.cache.admissions = Some(10);
        (status.switches[0].requests, status.switches[1].requests) = (None, Some(75));
        status.operations = Some(OperationsStatus { writes: 70, ..OperationsStatus::default() });
        let counts = heat.counts();
        let second = meter.sample(Duration::from_millis(3000), 1e9, &status, Some(&counts));
        assert_eq!(second.window_seconds, 2.0);
        let asked = [second.reads_per_s, second.writes_per_s, second.nodes_per_s];
        assert_eq!(asked, [Some(0.0), Some(35.0), Some(25.0)]);
        assert_eq!((second.nodes[0].reads_per_s, second.admissions_per_s), (Some(3.5), Some(5.0)));
        assert_eq!(loads(&second), [None, Some(35.0)]);
        assert_eq!(second.nodes[0].state.as_deref(), Some("down"));
        assert_eq!(second.switch.map(|switch| switch.requests_per_s), Some(35.0));
        let unknown = meter.sample(Duration::from_secs(4), 1e9, &status, None);
        assert_eq!(unknown.reads_per_s, None, "no gateway is here");
    }
}
