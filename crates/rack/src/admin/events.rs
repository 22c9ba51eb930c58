//! `GET /events`: what has happened.

use super::ServerState;
use crate::observer::{EVENTS_MAX, EventsStatus};
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;

/// Events without a limit.
const EVENTS_DEFAULT: usize = 100;

#[derive(Deserialize)]
pub(super) struct Wanted {
    since: Option<u64>,
    limit: Option<usize>,
}

pub(super) async fn events(
    State(shared): State<ServerState>,
    Query(wanted): Query<Wanted>,
) -> Json<EventsStatus> {
    let limit = wanted.limit.unwrap_or(EVENTS_DEFAULT).min(EVENTS_MAX);
    Json(shared.observer.events(wanted.since.unwrap_or(0), limit))
}
