//! A prediction as text.

use super::analysis::{Advice, Prediction, Rack, Way};
use crate::report::{grouped, percent};
use std::fmt::Write as _;
use switchback_terminal::Table;
use switchback_wire::Scheme;

/// Number of nodes with a bar; if there are more, the busiest have one.
const BARS: usize = 16;
const BAR_CHARS: f64 = 40.0;

/// Above this gain nodes serve few requests: the switch and the clients are the limit then.
const GAIN_SHOWN_MAX: f64 = 100.0;

/// A gain, which is infinite if nodes serve no request.
pub(super) fn gain(gain: Option<f64>) -> String {
    match gain {
        Some(gain) if gain <= GAIN_SHOWN_MAX => format!("{gain:.2}"),
        Some(_) => format!("> {GAIN_SHOWN_MAX}"),
        None => "all".to_owned(),
    }
}

/// A prediction as text.
pub(super) fn text(prediction: &Prediction) -> String {
    let mut text = source(prediction);
    for note in &prediction.notes {
        let _ = writeln!(text, "  {note}");
    }
    text += &now(prediction);
    text += &schemes(prediction);
    text += &sizes(prediction);
    let _ = write!(text, "\n{}\n", verdict(prediction));
    text
}

fn source(prediction: &Prediction) -> String {
    let mut text = format!("{}: ", prediction.source);
    if let Some(operations) = prediction.operations {
        let _ = write!(text, "{} operations on ", grouped(operations as f64));
    }
    let at_least = if prediction.all_keys_counted { "" } else { "more than " };
    let _ = write!(text, "{at_least}{} keys", grouped(prediction.distinct_keys as f64));
    if let Some(rate) = prediction.operations_per_second {
        let _ = write!(text, ", {} a second", grouped(rate));
    }
    let reads = percent(prediction.read_share);
    let fitting = percent(prediction.cacheable_share);
    let slot_bytes = prediction.rack.slot_bytes;
    text + &format!(
        "; {reads} of the requests read; {fitting} are for records that fit the cache ({slot_bytes} B)\n"
    )
}

/// The load of each node now.
fn now(prediction: &Prediction) -> String {
    let none = prediction.outcome(Way::ideal(Scheme::NoCache));
    let back = prediction.outcome(Way::ideal(Scheme::FarReach));
    let mut nodes: Vec<_> = none.node_load.iter().zip(&back.node_load).enumerate().collect();
    let busiest = none.node_load.iter().copied().fold(0.0, f64::max);
    let Rack { nodes: count, partitions, .. } = prediction.rack;
    let mut text = format!(
        "\nNow, on {count} nodes with {partitions} partitions: the busiest node serves {} of the requests, {:.2} times the mean.\n",
        percent(busiest),
        none.imbalance
    );
    if nodes.len() > BARS {
        nodes.sort_by(|(_, a), (_, b)| b.0.total_cmp(a.0));
        nodes.truncate(BARS);
        let _ = writeln!(text, "  (the {BARS} busiest)");
    }
    for (node, (&load, &left)) in nodes {
        // The load that write-back leaves to the node, and the rest.
        let chars =
            |load: f64| (load / busiest.max(f64::MIN_POSITIVE) * BAR_CHARS).round() as usize;
        let (all, left) = (chars(load), chars(left).min(chars(load)));
        let bar = format!("{}{}", "#".repeat(left), "-".repeat(all - left));
        let _ = writeln!(text, "  node {node:<4} {:>7}  {bar}", percent(load));
    }
    text += "  (#: what nodes would still serve under write-back; -: what the cache would)\n";
    let mut partitions: Vec<_> = prediction.partition_load.iter().copied().enumerate().collect();
    partitions.sort_by(|a, b| b.1.total_cmp(&a.1));
    let hottest: Vec<_> =
        partitions.iter().take(5).map(|(at, load)| format!("{at} {:.2} %", 100.0 * load)).collect();
    let even = 100.0 / f64::from(prediction.rack.partitions);
    let _ =
        writeln!(text, "  hottest partitions: {} (an even share: {even:.2} %)", hottest.join(", "));
    text
}

fn schemes(prediction: &Prediction) -> String {
    let records = grouped(f64::from(prediction.rack.cache_records));
    let mut text = format!("\nWith the hottest {records} records cached, as far as they fit:\n");
    let mut table =
        Table::of_numbers(["", "hits", "limit", "ops/s", "gain", "on other maps", "imbalance"]);
    for outcome in &prediction.outcomes {
        let maps = outcome.gains.filter(|gains| gains.max <= GAIN_SHOWN_MAX);
        let maps = maps.map(|gains| format!("{:.2} to {:.2}", gains.min, gains.max));
        table.row([
            outcome.way.title(),
            percent(outcome.hit_ratio),
            outcome.limit.map_or("none".to_owned(), |limit| format!("{} nodes", figure(limit))),
            outcome.limit_ops.map_or("-".to_owned(), grouped),
            gain(outcome.gain),
            maps.unwrap_or_default(),
            format!("{:.2}", outcome.imbalance),
        ]);
    }
    let _ = write!(text, "{table}");
    text += "  limit: what nodes allow, in operations over what one node can serve; gain: over no cache (all: nodes would serve\n";
    text +=
        "  nothing; far beyond the number of nodes, the switch and the clients are the limit)\n";
    let outstanding = prediction.rack.outstanding;
    let _ = writeln!(
        text,
        "  nodes full: {outstanding} requests outstanding, so a write keeps its record invalid while {outstanding} are served"
    );
    text
}

/// A number with its significant digits.
fn figure(number: f64) -> String {
    if number < 1000.0 { format!("{number:.2}") } else { grouped(number) }
}

fn sizes(prediction: &Prediction) -> String {
    let mut text = match prediction.sufficient_records {
        Some(0) => "\nNo cache is needed to even the load out.\n".to_owned(),
        Some(records) => {
            let records = grouped(records as f64);
            format!(
                "\n{records} cached records suffice: with them the rack does 95 % of what evenly busy nodes would do.\n"
            )
        }
        None => "\nNo number of cached records evens the load out, of those that were counted and fit.\n".to_owned(),
    };
    if !prediction.steps.is_empty() {
        let caching = || Scheme::OF_ONE_LAYER.into_iter().filter(|scheme| scheme.caches());
        let mut table =
            Table::of_numbers(["records"].into_iter().chain(caching().map(Scheme::policy)));
        for step in &prediction.steps {
            let gains = caching().map(|scheme| gain(step.gains[scheme]));
            table.row([grouped(step.records as f64)].into_iter().chain(gains));
        }
        let _ = write!(text, "{table}");
    }
    text
}

fn verdict(prediction: &Prediction) -> String {
    let of = |way| gain(prediction.outcome(way).gain);
    let (back, through) = (of(Way::ideal(Scheme::FarReach)), of(Way::ideal(Scheme::NetCache)));
    let full = of(Way::closed_loop(Scheme::NetCache));
    let records = grouped(f64::from(prediction.rack.cache_records));
    match prediction.verdict {
        Advice::WriteBack => {
            format!(
                "It will help: write-back can gain {back}, and the best write-through cache {through} (gains as above)."
            )
        }
        Advice::UnderLoad => format!(
            "It will help: write-back can gain {back}. An ideal write-through cache would do as well ({through}), but while nodes are full one gains {full}."
        ),
        Advice::WriteThrough => format!(
            "A cache will help (gain {back}), but write-back not much more than write-through ({full}): few writes go to what is hot."
        ),
        Advice::Even => {
            "It will not help you: the load is even already, and spread over many keys.".to_owned()
        }
        Advice::TooLarge => format!(
            "It will not help you: what is hot doesn't fit. Values of more than {} B, and keys of more than 128 B, aren't cached.",
            prediction.rack.slot_bytes
        ),
        Advice::TooMany => format!(
            "It will not help you: the busiest node's load is spread over many keys, of which {records} cached ones take too little off."
        ),
    }
}
