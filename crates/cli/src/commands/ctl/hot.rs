//! `switchback ctl hot`.

use super::{asked_at, number, percent};
use crate::output::Align::{Left, Right};
use crate::output::{Paint, Table, grouped, printable, seconds};
use switchback_rack::admin::{HotKeyStatus, HotStatus, KeyPlace};

pub(super) fn hot_text(hot: &HotStatus, paint: Paint) -> String {
    if hot.keys.is_empty() {
        return format!("nothing was asked for in the last {}", seconds(hot.window_seconds));
    }
    let mut text = format!(
        "{} requests/s in the last {}; rates are from {} samples, one in {}\n\n",
        rate(hot.requests_per_s),
        seconds(hot.window_seconds),
        grouped(hot.samples),
        hot.sampled_one_in
    );
    text += &hot_table(&hot.keys).painted(paint);
    if hot.keys.iter().any(|key| key.cache.is_none()) {
        let who = asked_at("the controller", "[rack]");
        text += &format!("nodes, and why a key isn't cached, are {who} (`ctl cached`)\n");
    }
    text
}

pub(super) fn hot_table(keys: &[HotKeyStatus]) -> Table {
    Table::of(
        keys,
        &[
            ("key", Left, &shown_key),
            ("requests/s", Right, &|key| rate(key.requests_per_s())),
            ("share", Right, &|key| percent(Some(key.share))),
            ("reads/s", Right, &|key| rate(key.reads_per_s)),
            ("writes/s", Right, &|key| rate(key.writes_per_s)),
            ("bytes", Right, &|key| number(key.value_bytes)),
            ("node", Right, &|key| number(key.node)),
            ("by cache", Right, &|key| percent(Some(key.cache_share))),
            ("cached", Left, &|key| key.cache.map_or("-", place).to_owned()),
        ],
    )
}

/// The rest of a key beyond what is kept of it isn't known.
fn shown_key(key: &HotKeyStatus) -> String {
    let is_whole = key.cache != Some(KeyPlace::KeyTooLong);
    let shown = printable(&key.key);
    if is_whole { shown } else { format!("{shown} ({} B)", key.key_bytes) }
}

pub(super) fn rate(per_s: f64) -> String {
    grouped(per_s.round() as u64)
}

fn place(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::Cached => "yes",
        KeyPlace::Moving => "on its way in or out",
        KeyPlace::Waiting => "no: waits for a slot",
        KeyPlace::NoCache => "no: the scheme caches nothing",
        KeyPlace::KeyTooLong => "no: key too long",
        KeyPlace::ValueTooLarge => "no: value fits no slot",
        KeyPlace::CacheFull => "no: full of keys as hot",
        KeyPlace::NotHotEnough => "no: not hot enough",
    }
}
