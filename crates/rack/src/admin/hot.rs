//! `GET /hot`: the hottest keys now.

use super::{AdminError, Elsewhere, ServerState, answer, blocking};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

impl HotStatus {
    /// What several processes were asked for together, of whose keys `limit` are kept. Each lists
    /// all that it has.
    pub(super) fn sum(
        told: impl IntoIterator<Item = HotStatus>,
        limit: usize,
    ) -> Option<HotStatus> {
        let (mut sum, mut keys) = (None::<HotStatus>, BTreeMap::<String, HotKeyStatus>::new());
        for mut more in told {
            for key in std::mem::take(&mut more.keys) {
                match keys.entry(key.hash.clone()) {
                    Entry::Vacant(place) => _ = place.insert(key),
                    Entry::Occupied(mut known) => known.get_mut().add(&key),
                }
            }
            sum = Some(sum.map_or(more.clone(), |sum| sum.and(&more)));
        }
        let sum = sum?;
        let mut keys: Vec<_> = keys.into_values().collect();
        keys.sort_by(|one, other| other.requests_per_s().total_cmp(&one.requests_per_s()));
        keys.truncate(limit);
        for key in &mut keys {
            key.share = key.requests_per_s() / sum.requests_per_s;
        }
        Some(HotStatus { keys, ..sum })
    }

    /// All but the keys of both. Each may have missed requests for the same key.
    fn and(self, more: &HotStatus) -> HotStatus {
        HotStatus {
            window_seconds: self.window_seconds.max(more.window_seconds),
            samples: self.samples + more.samples,
            requests_per_s: self.requests_per_s + more.requests_per_s,
            uncounted_per_s_max: self.uncounted_per_s_max + more.uncounted_per_s_max,
            ..self
        }
    }
}

impl HotKeyStatus {
    /// Reads, writes and deletes.
    pub fn requests_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// Adds requests for the same key that another process counted.
    fn add(&mut self, more: &HotKeyStatus) {
        let cached = |key: &HotKeyStatus| key.cache_share * key.requests_per_s();
        let cached = cached(self) + cached(more);
        self.reads_per_s += more.reads_per_s;
        self.writes_per_s += more.writes_per_s;
        self.cache_share = cached / self.requests_per_s();
        self.value_bytes = self.value_bytes.or(more.value_bytes);
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

/// The hottest keys, of this process or of those that have a gateway.
pub(super) async fn told(
    shared: &ServerState,
    limit: usize,
    seconds: u64,
) -> Result<Result<HotStatus, AdminError>, Response> {
    let admin = Arc::clone(&shared.admin);
    let here = blocking(move || admin.hot(limit, seconds)).await?;
    let Err(AdminError::Unsupported(_)) = here else { return Ok(here) };
    let elsewhere = Elsewhere::of(&*shared.admin);
    let Some(mut hot) = elsewhere.hot(limit, seconds).await else { return Ok(here) };
    let admin = Arc::clone(&shared.admin);
    let placed = move || {
        admin.place(&mut hot);
        hot
    };
    blocking(placed).await.map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(keys: &[(&str, f64, f64, f64)], requests_per_s: f64) -> HotStatus {
        let key = |(hash, reads_per_s, writes_per_s, cache_share): &(&str, f64, f64, f64)| {
            let hash = (*hash).to_owned();
            HotKeyStatus {
                hash,
                reads_per_s: *reads_per_s,
                writes_per_s: *writes_per_s,
                cache_share: *cache_share,
                ..HotKeyStatus::default()
            }
        };
        let keys = keys.iter().map(key).collect();
        HotStatus { requests_per_s, samples: 7, keys, ..HotStatus::default() }
    }

    #[test]
    fn a_key_that_is_hot_in_all_gateways_together_is_found() {
        let one = hot(&[("a", 40.0, 0.0, 1.0), ("c", 10.0, 20.0, 0.0)], 100.0);
        let other = hot(&[("b", 41.0, 0.0, 1.0), ("c", 10.0, 10.0, 1.0)], 60.0);
        let sum = HotStatus::sum([one.clone(), other], 2).unwrap();
        assert_eq!((sum.samples, sum.requests_per_s), (14, 160.0));
        let keys: Vec<_> =
            sum.keys.iter().map(|key| (&key.hash[..], key.requests_per_s())).collect();
        assert_eq!(keys, [("c", 50.0), ("b", 41.0)]);
        let hottest = &sum.keys[0];
        assert_eq!((hottest.reads_per_s, hottest.writes_per_s), (20.0, 30.0));
        assert_eq!((hottest.share, hottest.cache_share), (50.0 / 160.0, 0.4));
        let alone = HotStatus::sum([one], 9).unwrap();
        assert_eq!((alone.keys.len(), alone.keys[0].share), (2, 0.4));
        assert_eq!(HotStatus::sum([], 9), None);
    }
}
