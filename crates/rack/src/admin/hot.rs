//! `GET /hot`: the hottest keys now.

use super::{AdminError, ServerState, answer, blocking};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use switchback_heat::{KEYS, SECONDS_MAX};

/// Keys that are listed without a limit.
const KEYS_DEFAULT: usize = 20;
/// Whole seconds of the window, if a request doesn't say how many.
pub const SECONDS_DEFAULT: u64 = 2;

/// `GET /hot?limit=N&seconds=S`. Rates are estimates from samples.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HotStatus {
    /// The time that everything here is of, up to now.
    pub window_seconds: f64,
    /// One of this many requests is sampled.
    pub sampled_one_in: u32,
    /// Samples in the window.
    pub samples: u64,
    /// Requests for all keys.
    pub requests_per_s: f64,
    /// Requests that a key may have had beyond those listed here, at most; 0 while few keys are
    /// asked for.
    pub uncounted_per_s_max: f64,
    /// The most asked for first.
    pub keys: Vec<HotKeyStatus>,
}

/// An entry of [`HotStatus`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HotKeyStatus {
    /// As in [`CachedRecord`](super::CachedRecord); of a key beyond 128 B the beginning.
    pub key: String,
    /// Its hash, keyed: 32 hexadecimal digits.
    #[serde(default)]
    pub hash: String,
    /// Its length.
    pub key_bytes: u16,
    /// Its hash range, a row of `GET /heat`.
    pub range: u8,
    /// Reads.
    pub reads_per_s: f64,
    /// Writes and deletes.
    pub writes_per_s: f64,
    /// Of all requests, from 0 to 1.
    pub share: f64,
    /// The share of its requests that the cache answered, from 0 to 1.
    pub cache_share: f64,
    /// Length of a value that was read or written lately.
    pub value_bytes: Option<u32>,
    /// The node that it belongs to; known to the controller.
    pub node: Option<u16>,
    /// Whether it is cached, or why not; `None` if only the controller knows.
    pub cache: Option<KeyPlace>,
}

impl HotKeyStatus {
    /// Reads, writes and deletes.
    pub fn requests_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }
}

/// Whether a key is cached, or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// It is.
    Cached,
    /// It has a slot, and is on its way into it or out of it.
    Moving,
    /// It was offered, and waits for a slot or for the budget of admissions.
    Waiting,
    /// The scheme caches nothing.
    NoCache,
    /// No slot takes a key of its length.
    KeyTooLong,
    /// Its value is too large for the largest slot.
    ValueTooLarge,
    /// The cache is full of keys that were counted as often.
    CacheFull,
    /// It wasn't counted often enough yet.
    NotHotEnough,
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    limit: Option<usize>,
    seconds: Option<u64>,
}

pub(super) async fn hot(
    State(shared): State<ServerState>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Response> {
    let limit = wanted.limit.unwrap_or(KEYS_DEFAULT).min(KEYS);
    let seconds = wanted.seconds.unwrap_or(SECONDS_DEFAULT).min(SECONDS_MAX);
    Ok(answer(told(&shared, limit, seconds).await?))
}

/// The hottest keys, of this process or of the one that has the gateway.
pub(super) async fn told(
    shared: &ServerState,
    limit: usize,
    seconds: u64,
) -> Result<Result<HotStatus, AdminError>, Response> {
    let admin = Arc::clone(&shared.admin);
    let here = blocking(move || admin.hot(limit, seconds)).await?;
    let Err(AdminError::Unsupported(_)) = here else { return Ok(here) };
    let Some(mut hot) = shared.elsewhere.hot(limit, seconds).await else { return Ok(here) };
    let admin = Arc::clone(&shared.admin);
    let placed = move || {
        admin.place(&mut hot);
        hot
    };
    blocking(placed).await.map(Ok)
}
