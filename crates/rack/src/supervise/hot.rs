//! The hottest keys: what the gateway counted, with what the controller knows of them.

use super::{Supervisor, ended, shown};
use crate::admin::{AdminError, HotKeyStatus, HotStatus, KeyPlace};
use switchback_core::controller::KeyStanding;
use switchback_heat::{HotKey, SAMPLED_ONE_IN};
use switchback_wire::{CACHED_KEY_BYTES_MAX, KeyHash};

impl Supervisor {
    pub(super) fn hottest(&self, limit: usize, seconds: u64) -> Result<HotStatus, AdminError> {
        let hottest = self.heat()?.hottest(seconds);
        let keys: Vec<&HotKey> = hottest.keys().into_iter().take(limit).collect();
        let standings = self.standings(keys.iter().map(|key| key.hash()).collect())?;
        let window_seconds = hottest.window_us() as f64 / 1e6;
        let per_s =
            |samples: u64| samples as f64 * f64::from(SAMPLED_ONE_IN) / window_seconds.max(1e-6);
        let status = |(at, key): (usize, &&HotKey)| {
            let standing = standings.as_ref().map(|standings| standings[at]);
            let samples = f64::from(key.samples());
            let KeyHash([range, ..]) = key.hash();
            let mut status = HotKeyStatus {
                key: shown(key.key(), key.hash(), self.config.console.keys),
                hash: format!("{:032x}", u128::from_be_bytes(key.hash().0)),
                key_bytes: key.key_bytes(),
                range,
                reads_per_s: per_s(key.reads().into()),
                writes_per_s: per_s(key.writes().into()),
                share: samples / hottest.samples() as f64,
                cache_share: f64::from(key.cached()) / samples,
                value_bytes: key.value_bytes(),
                node: standing.map(|standing| standing.node),
                cache: None,
            };
            status.cache = self.place(&status, standing);
            status
        };
        Ok(HotStatus {
            window_seconds,
            sampled_one_in: SAMPLED_ONE_IN,
            samples: hottest.samples(),
            requests_per_s: per_s(hottest.samples()),
            uncounted_per_s_max: per_s(hottest.uncounted_max()),
            keys: keys.iter().enumerate().map(status).collect(),
        })
    }

    /// What the controller knows of keys, if it is here.
    fn standings(&self, hashes: Vec<KeyHash>) -> Result<Option<Vec<KeyStanding>>, AdminError> {
        let Some(controller) = &self.controller else { return Ok(None) };
        let call = controller.call(move |controller, _| controller.standings(&hashes));
        call.ok_or_else(ended).map(Some)
    }

    /// Adds to keys that another process counted where they belong, and whether they are cached.
    pub(super) fn place_all(&self, keys: &mut [HotKeyStatus]) {
        let hash = |key: &HotKeyStatus| {
            KeyHash(u128::from_str_radix(&key.hash, 16).unwrap_or_default().to_be_bytes())
        };
        // Without the controller there is nothing to add; why it can't be asked is told elsewhere.
        let Ok(Some(standings)) = self.standings(keys.iter().map(hash).collect()) else { return };
        for (key, standing) in keys.iter_mut().zip(standings) {
            key.node = Some(standing.node);
            key.cache = self.place(key, Some(standing));
        }
    }

    /// Whether a key is cached, or why not, as far as this process knows.
    fn place(&self, key: &HotKeyStatus, standing: Option<KeyStanding>) -> Option<KeyPlace> {
        let value_bytes_max = self.config.cache.classes.iter().map(|(bytes, _)| *bytes).max();
        let is_too_large = key.value_bytes > value_bytes_max;
        let has_slot = standing.and_then(|standing| standing.stage);
        Some(match (has_slot, standing) {
            (Some("cached"), _) => KeyPlace::Cached,
            (Some(_), _) => KeyPlace::Moving,
            _ if !self.config.rack.scheme.caches() => KeyPlace::NoCache,
            _ if usize::from(key.key_bytes) > CACHED_KEY_BYTES_MAX => KeyPlace::KeyTooLong,
            _ if is_too_large => KeyPlace::ValueTooLarge,
            (None, Some(standing)) if standing.waits => KeyPlace::Waiting,
            (None, Some(standing)) if standing.is_full => KeyPlace::CacheFull,
            (None, Some(_)) => KeyPlace::NotHotEnough,
            // Without the controller only its answers tell.
            (None, None) if key.cache_share > 0.5 => KeyPlace::Cached,
            (None, None) => return None,
        })
    }
}
