//! What a process notices of its rack as time goes by. It looks once a second, whatever the number
//! of those who ask: heat by hash range, events, and a sample for those who watch.

mod events;
mod live;

pub use events::{EVENTS_MAX, Event, EventsStatus, What};
pub use live::{LiveLoad, LiveNode, LiveSample, LiveSwitch};

use crate::admin::{Admin, DrainResult, PartsStatus};
use events::EventLog;
use live::Meter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use switchback_heat::{History, View};
use tokio::sync::watch;

/// Between two looks.
pub const PERIOD: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Observer {
    started: Instant,
    noticed: Mutex<Noticed>,
    /// The newest sample, as JSON; empty before the first.
    live: watch::Sender<Arc<str>>,
}

#[derive(Debug, Default)]
struct Noticed {
    /// Without a gateway there is none.
    heat: Option<Box<History>>,
    events: EventLog,
    meter: Meter,
}

/// Part of the history of heat, and when it was.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) view: View,
    /// When its first column begins.
    pub(crate) first_unix_s: f64,
}

impl Observer {
    pub(crate) fn new() -> Observer {
        let live = watch::Sender::new(Arc::from(""));
        Observer { started: Instant::now(), noticed: Mutex::default(), live }
    }

    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any program watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.live.receiver_count() > 0
    }

    /// Looks at everything, and tells those who watch, with what other processes have `told`.
    pub(crate) fn look(&self, admin: &dyn Admin, told: PartsStatus) {
        let elapsed = self.started.elapsed();
        let (mut status, counts) = (admin.status(), admin.asked());
        let unix_s = unix_s();
        let mut noticed = self.noticed();
        if let Some(counts) = &counts {
            let heat = noticed.heat.get_or_insert_default();
            heat.push(elapsed.as_secs(), counts.clone());
        }
        noticed.events.notice(unix_s, &status);
        let next_event = noticed.events.next();
        told.statuses.iter().for_each(|(peer, part)| status.complete(*peer, part));
        let mut sample = noticed.meter.sample(elapsed, unix_s, &status, counts.as_ref());
        drop(noticed);
        if !self.is_watched() {
            return;
        }
        if counts.is_none() {
            sample.ask(&told.heats);
        }
        let elsewhere = told.hot.map(|mut hot| {
            admin.place(&mut hot);
            hot
        });
        let hot = admin.hot(live::KEYS, crate::admin::SECONDS_DEFAULT).ok().or(elsewhere);
        let sample = LiveSample { hot: hot.map(|hot| hot.keys), next_event, ..sample };
        match serde_json::to_string(&sample) {
            Ok(json) => _ = self.live.send_replace(json.into()),
            Err(error) => tracing::error!(%error, "a sample can't be told"),
        }
    }

    /// The heat of the last `seconds`, in at most `columns` columns; `None` without a gateway.
    pub(crate) fn heat(&self, seconds: u64, columns: u64) -> Option<Seen> {
        let view = self.noticed().heat.as_ref()?.view(seconds, columns);
        let first_unix_s = unix_s() - self.started.elapsed().as_secs_f64() + view.first_s as f64;
        Some(Seen { view, first_unix_s })
    }

    /// Events from number `since` on, the last `limit` of them.
    pub(crate) fn events(&self, since: u64, limit: usize) -> EventsStatus {
        self.noticed().events.status(unix_s(), since, limit)
    }

    /// A drain has ended.
    pub(crate) fn drained(&self, result: &DrainResult) {
        self.noticed().events.drained(unix_s(), result);
    }

    /// The samples from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<str>> {
        self.live.subscribe()
    }
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
