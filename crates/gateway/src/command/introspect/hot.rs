//! HOTKEYS and OBJECT FREQ: how often keys are asked for, of late, by the clients of this gateway.

use super::{Verb, no_subcommand, wrong_arity};
use crate::connection::ConnectionId;
use crate::execute::{Flow, answer_here, refuse};
use crate::failure::ErrorKind;
use crate::operation::Action;
use crate::resp::{Args, write};
use crate::running::{Link, Running};
use crate::shared::Shared;
use crate::strings::View;
use switchback_heat::{Hottest, SAMPLED_ONE_IN, SECONDS_MAX};

/// Keys that GET lists, which is the most that Redis does.
const KEYS_MAX: usize = 64;
/// The slots of a cluster. There is none, so all of them are meant.
const LAST_SLOT: i64 = 16_383;

pub(crate) fn hot_keys(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let sub = args.get(1).to_ascii_lowercase();
    let text = match (&sub[..], args.len()) {
        (b"get", 2) => {
            let hottest = shared.heat.hottest(SECONDS_MAX);
            let now_ms = running.now.unix_ms;
            return answer_here(running, id, Some(Verb::HotKeys), |out, resp3| {
                list(out, &hottest, now_ms, resp3);
            });
        }
        // As Redis while it counts.
        (b"start", _) => "ERR hotkey tracking session already in progress",
        (b"reset", 2) => "ERR hotkey tracking session in progress, stop tracking first",
        (b"stop", 2) => "ERR HOTKEYS STOP isn't supported: hot keys are always counted",
        (b"get" | b"reset" | b"stop", _) => {
            let name = format!("hotkeys|{}", String::from_utf8_lossy(&sub));
            return wrong_arity(running, id, &name);
        }
        _ => return no_subcommand(running, shared, id, args),
    };
    refuse(running, id, ErrorKind::Command, text);
}

/// In the form of Redis 8.6, with requests where that has time and bytes.
fn list(out: &mut Vec<u8>, hottest: &Hottest, now_ms: u64, resp3: bool) {
    let requests = |samples: u64| (samples * u64::from(SAMPLED_ONE_IN)) as i64;
    let window_ms = hottest.window_us() / 1000;
    let mut keys = hottest.keys();
    keys.truncate(KEYS_MAX);
    write::array(out, 1);
    write::map(out, 7, resp3);
    let number = |out: &mut Vec<u8>, name: &str, number: i64| {
        write::bulk(out, name.as_bytes());
        write::integer(out, number);
    };
    number(out, "tracking-active", 1);
    number(out, "sample-ratio", i64::from(SAMPLED_ONE_IN));
    write::bulk(out, b"selected-slots");
    write::array(out, 1);
    write::array(out, 2);
    write::integer(out, 0);
    write::integer(out, LAST_SLOT);
    number(out, "collection-start-time-unix-ms", now_ms.saturating_sub(window_ms) as i64);
    number(out, "collection-duration-ms", window_ms as i64);
    number(out, "total-requests", requests(hottest.samples()));
    write::bulk(out, b"by-requests");
    write::array(out, 2 * keys.len());
    for key in keys {
        write::bulk(out, key.key());
        write::integer(out, requests(key.samples().into()));
    }
}

/// OBJECT FREQ, of a key that can be one.
pub(crate) fn frequency(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    args: Args<'_>,
) -> Flow {
    let key = args.get(2);
    let requests = shared.heat.requests(&link.session.hash(key), SECONDS_MAX);
    let view = View::Frequency(counter(requests));
    running.start(link, id, Verb::Object, Action::View(view), key, &[]);
    Flow::Done
}

/// The counter of Redis' LFU policy after this number of requests. With `lfu-log-factor` 10 a
/// counter that is `n` above its first value, 5, rises after another `10 n + 1` requests on
/// average, so it takes about `5 n²` requests to get there.
fn counter(requests: u64) -> u8 {
    match requests {
        0 => 0,
        _ => (5.0 + (requests as f64 / 5.0).sqrt()).min(255.0) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What redis.conf says of its counter, which is counted at random.
    #[test]
    fn the_counter_is_about_that_of_redis() {
        for (requests, redis, off) in
            [(0, 0, 0), (100, 10, 1), (1000, 18, 2), (100_000, 142, 6), (1_000_000, 255, 0)]
        {
            assert!(counter(requests).abs_diff(redis) <= off, "{requests}: {}", counter(requests));
        }
        assert_eq!(counter(u64::MAX), 255);
    }
}
