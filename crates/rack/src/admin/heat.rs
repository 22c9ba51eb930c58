//! `GET /heat`: requests by hash range over time.

use super::{AdminError, ServerState, answer, blocking};
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

/// Heat as this process saw it, or the one that has the gateway.
pub(super) async fn told(
    shared: &ServerState,
    seconds: u64,
    columns: u64,
) -> Result<Result<HeatStatus, AdminError>, Response> {
    let ServerState { admin, observer, elsewhere, .. } = shared.clone();
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
    rates.iter().map(|rate| (f64::from(*rate) * 10.0).round() / 10.0).collect()
}
