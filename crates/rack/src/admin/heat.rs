//! `GET /heat`: requests by hash range over time.

use super::{AdminError, Elsewhere, ServerState, answer, blocking};
use crate::observer::Seen;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use switchback_heat::{COARSE_SECONDS, FINE_SECONDS, Plane, RANGES};

/// Columns without a limit, and at most.
const COLUMNS_DEFAULT: u64 = 225;
const COLUMNS_MAX: u64 = 900;

/// `GET /heat?seconds=S&columns=N`. Every plane has a list for each column, and in that the rate
/// of each hash range.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HeatStatus {
    /// Hash ranges: as many as each list has rates.
    pub ranges: usize,
    /// Seconds of a column; the last one may be shorter, since it goes on.
    pub step_seconds: u64,
    /// When the first column begins.
    pub first_unix_seconds: f64,
    /// Reads.
    pub reads_per_s: Vec<Vec<f64>>,
    /// Writes and deletes.
    pub writes_per_s: Vec<Vec<f64>>,
    /// Of both, what a node answered.
    pub nodes_per_s: Vec<Vec<f64>>,
}

impl HeatStatus {
    /// What several processes were asked for together. Their columns begin at different times;
    /// those of the sum at multiples of their length, whichever processes there are.
    pub(super) fn sum(mut told: Vec<HeatStatus>) -> Option<HeatStatus> {
        // Those that have looked, of which there is none at first.
        let none = told.first().map(|_| HeatStatus::default());
        told.retain(HeatStatus::is_whole);
        if told.len() < 2 {
            return told.pop().or(none);
        }
        let step_seconds = told[0].step_seconds;
        told.retain(|it| it.step_seconds == step_seconds);
        let step = step_seconds as f64;
        let begins = told.iter().map(|it| (it.first_unix_seconds / step).ceil() * step);
        let columns = told.iter().map(|it| it.reads_per_s.len()).max().unwrap_or_default();
        let empty = vec![vec![0.0; RANGES]; columns];
        let mut sum = HeatStatus {
            ranges: RANGES,
            step_seconds,
            first_unix_seconds: begins.fold(f64::INFINITY, f64::min),
            reads_per_s: empty.clone(),
            writes_per_s: empty.clone(),
            nodes_per_s: empty,
        };
        told.iter().for_each(|more| sum.add(more));
        for plane in [&mut sum.reads_per_s, &mut sum.writes_per_s, &mut sum.nodes_per_s] {
            plane.iter_mut().flatten().for_each(|rate| *rate = tenths(*rate));
        }
        Some(sum)
    }

    /// Whether there is something of it, and no more than any process tells.
    fn is_whole(&self) -> bool {
        let planes = [&self.reads_per_s, &self.writes_per_s, &self.nodes_per_s];
        let columns = self.reads_per_s.len();
        self.step_seconds > 0
            && self.first_unix_seconds.is_finite()
            && (1..=COLUMNS_MAX as usize).contains(&columns)
            && planes.iter().all(|plane| {
                plane.len() == columns && plane.iter().all(|rates| rates.len() == RANGES)
            })
    }

    fn add(&mut self, more: &HeatStatus) {
        let begin = self.first_unix_seconds - more.first_unix_seconds;
        let begin = begin / self.step_seconds as f64;
        add(&mut self.reads_per_s, &more.reads_per_s, begin);
        add(&mut self.writes_per_s, &more.writes_per_s, begin);
        add(&mut self.nodes_per_s, &more.nodes_per_s, begin);
    }
}

/// Adds rates to a plane that begins `begin` columns after them. A column of the sum lies in two of
/// theirs, and takes of both by its share in them. Their last one goes on; there is nothing before
/// the first.
fn add(sum: &mut [Vec<f64>], rates: &[Vec<f64>], begin: f64) {
    for (at, column) in sum.iter_mut().enumerate() {
        let place = begin + at as f64;
        if place <= -1.0 {
            continue;
        }
        let in_column = |number: f64| &rates[(number.max(0.0) as usize).min(rates.len() - 1)];
        let (one, other) = (in_column(place.floor()), in_column(place.floor() + 1.0));
        let share = place - place.floor();
        for (sum, (one, other)) in column.iter_mut().zip(one.iter().zip(other)) {
            *sum += (1.0 - share) * one + share * other;
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    seconds: Option<u64>,
    columns: Option<u64>,
}

pub(super) async fn heat(
    State(shared): State<ServerState>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Response> {
    let seconds = wanted.seconds.unwrap_or(FINE_SECONDS).clamp(1, COARSE_SECONDS);
    let columns = wanted.columns.unwrap_or(COLUMNS_DEFAULT).clamp(1, COLUMNS_MAX);
    Ok(answer(told(&shared, seconds, columns).await?))
}

/// Heat as this process saw it, or those that have a gateway.
pub(super) async fn told(
    shared: &ServerState,
    seconds: u64,
    columns: u64,
) -> Result<Result<HeatStatus, AdminError>, Response> {
    let ServerState { admin, observer, .. } = shared.clone();
    let elsewhere = Elsewhere::of(&*admin);
    let seen = move || match observer.heat(seconds, columns) {
        Some(seen) => Ok(status(&seen)),
        // As of a process without a gateway, or until the first look.
        None => admin.hot(0, 0).map(|_| HeatStatus::default()),
    };
    let here = blocking(seen).await?;
    let Err(AdminError::Unsupported(_)) = here else { return Ok(here) };
    Ok(elsewhere.heat(seconds, columns).await.map_or(here, Ok))
}

fn status(seen: &Seen) -> HeatStatus {
    let plane = |plane| seen.view.columns(plane).map(rounded).collect();
    HeatStatus {
        ranges: RANGES,
        step_seconds: seen.view.step_s,
        first_unix_seconds: seen.first_unix_s,
        reads_per_s: plane(Plane::Reads),
        writes_per_s: plane(Plane::Writes),
        nodes_per_s: plane(Plane::Nodes),
    }
}

/// To tenths, which are short.
fn rounded(rates: &[f32]) -> Vec<f64> {
    rates.iter().map(|rate| tenths(f64::from(*rate))).collect()
}

fn tenths(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of `step` seconds, each with the same rates in all ranges: reads, of which nodes
    /// answer half, and twice as much writes.
    fn heat(first_unix_seconds: f64, step: u64, rates: &[f64]) -> HeatStatus {
        let plane = |part: f64| rates.iter().map(|rate| vec![part * rate; RANGES]).collect();
        HeatStatus {
            ranges: RANGES,
            step_seconds: step,
            first_unix_seconds,
            reads_per_s: plane(1.0),
            writes_per_s: plane(2.0),
            nodes_per_s: plane(0.5),
        }
    }

    fn reads(heat: &HeatStatus) -> Vec<f64> {
        heat.reads_per_s.iter().map(|column| column[RANGES - 1]).collect()
    }

    #[test]
    fn what_no_process_tells_is_left_out() {
        let good = || heat(1000.0, 1, &[10.0, 20.0]);
        let mut short = good();
        short.nodes_per_s.clear();
        let mut narrow = good();
        narrow.writes_per_s[1] = Vec::new();
        let late = HeatStatus { first_unix_seconds: f64::NAN, ..good() };
        let mut long = good();
        long.reads_per_s.resize(COLUMNS_MAX as usize + 1, Vec::new());
        let told = vec![short, narrow, late, long, good(), good()];
        assert_eq!(reads(&HeatStatus::sum(told).unwrap()), [20.0, 40.0]);
    }

    #[test]
    fn columns_are_added_where_they_are_of_the_same_time() {
        let one = heat(1000.25, 1, &[10.0, 20.0, 30.0]);
        let sum = HeatStatus::sum(vec![heat(1001.25, 1, &[100.0, 200.0]), one.clone()]).unwrap();
        assert_eq!((sum.ranges, sum.step_seconds, sum.first_unix_seconds), (256, 1, 1001.0));
        // From 1001 to 1002 three quarters are of the second column, and a quarter of the first.
        assert_eq!(reads(&sum), [17.5 + 100.0, 27.5 + 175.0, 30.0 + 200.0]);
        assert_eq!(sum.writes_per_s[0][0], 2.0 * 117.5);
        assert_eq!(sum.nodes_per_s[0][0], 58.8, "half of it, in tenths");
        // One that began later adds nothing before.
        let late = HeatStatus::sum(vec![one.clone(), heat(1003.0, 1, &[5.0])]).unwrap();
        assert_eq!(reads(&late), [17.5, 27.5, 35.0]);
        // Columns stay where they are when only the last ones are asked for.
        let last = heat(1001.25, 1, &[20.0, 30.0]);
        let sum = HeatStatus::sum(vec![last, heat(1002.25, 1, &[200.0])]).unwrap();
        assert_eq!(
            (sum.first_unix_seconds, &reads(&sum)[..]),
            (1002.0, &[27.5 + 200.0, 230.0][..])
        );
    }

    #[test]
    fn what_can_not_be_added_is_left_out() {
        let one = heat(1000.25, 4, &[10.0]);
        let of =
            |told: &[&HeatStatus]| HeatStatus::sum(told.iter().map(|it| (*it).clone()).collect());
        assert_eq!(of(&[&one]), Some(one.clone()), "as it was told");
        assert_eq!(of(&[&HeatStatus::default(), &one]), Some(one.clone()), "before the first look");
        let none = HeatStatus::default();
        assert_eq!(of(&[&none, &none]), Some(none), "none has looked");
        assert_eq!(of(&[]), None);
        assert_eq!(reads(&of(&[&one, &heat(1000.25, 8, &[10.0])]).unwrap()), [10.0]);
    }
}
