//! What one scrape gathers, and how it is written.

use super::histogram::{BOUNDS_US, HistogramSnapshot};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises, until a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

#[derive(Clone, PartialEq, Debug)]
enum Value {
    Number(f64),
    Histogram(Box<HistogramSnapshot>),
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: Kind,
    samples: Vec<(String, Value)>,
}

/// Samples by metric. Several sources may add to the same metric, with different labels.
#[derive(Debug, Default)]
pub struct Samples {
    families: BTreeMap<&'static str, Family>,
}

/// A metric's name, or its help.
type Text = &'static str;

/// Labels of a sample: names and values.
type Labels<'l> = &'l [(&'l str, &'l str)];

impl Samples {
    /// A counter; its name ends in `_total`.
    pub fn counter(&mut self, name: Text, help: Text, labels: Labels<'_>, value: u64) {
        self.add(name, help, Kind::Counter, labels, Value::Number(value as f64));
    }

    /// A counter of time; its name ends in `_seconds_total`.
    pub fn counter_us(&mut self, name: Text, help: Text, labels: Labels<'_>, us: u64) {
        debug_assert!(name.ends_with("_seconds_total"), "{name} counts seconds");
        self.add(name, help, Kind::Counter, labels, Value::Number(us as f64 / 1e6));
    }

    /// A gauge, in base units (seconds, bytes, ratios from 0 to 1).
    pub fn gauge(&mut self, name: Text, help: Text, labels: Labels<'_>, value: f64) {
        self.add(name, help, Kind::Gauge, labels, Value::Number(value));
    }

    /// Several counters with the same labels: name, help and value of each.
    pub fn counters<const N: usize>(
        &mut self,
        labels: Labels<'_>,
        counters: [(Text, Text, u64); N],
    ) {
        for (name, help, value) in counters {
            self.counter(name, help, labels, value);
        }
    }

    /// Several gauges with the same labels: name, help and value of each.
    pub fn gauges<const N: usize>(&mut self, labels: Labels<'_>, gauges: [(Text, Text, f64); N]) {
        for (name, help, value) in gauges {
            self.gauge(name, help, labels, value);
        }
    }

    /// A counter for each value of one more label, `by`.
    pub fn counter_by<const N: usize>(
        &mut self,
        name: Text,
        help: Text,
        labels: Labels<'_>,
        by: &str,
        counts: [(&str, u64); N],
    ) {
        for (which, count) in counts {
            let labels: Vec<_> = labels.iter().copied().chain([(by, which)]).collect();
            self.counter(name, help, &labels, count);
        }
    }

    /// A histogram of latencies; its name ends in `_seconds`.
    pub fn histogram(
        &mut self,
        name: Text,
        help: Text,
        labels: Labels<'_>,
        value: &HistogramSnapshot,
    ) {
        self.add(name, help, Kind::Histogram, labels, Value::Histogram(Box::new(*value)));
    }

    fn add(&mut self, name: Text, help: Text, kind: Kind, labels: Labels<'_>, value: Value) {
        debug_assert_eq!(mistake(name, help, kind), None, "{name}");
        let family =
            self.families.entry(name).or_insert_with(|| Family { help, kind, samples: Vec::new() });
        debug_assert_eq!((family.kind, family.help), (kind, help), "{name} is one metric");
        let labels = written(labels);
        // The same sample twice would make the whole scrape invalid; two sources that share one
        // mean their sum.
        match family.samples.iter_mut().find(|(known, _)| *known == labels) {
            None => family.samples.push((labels, value)),
            Some((_, Value::Number(sum))) => {
                if let Value::Number(more) = value {
                    *sum += more;
                }
            }
            Some((_, Value::Histogram(sum))) => {
                if let Value::Histogram(more) = value {
                    sum.add(&more);
                }
            }
        }
    }

    /// The number of a sample, for tests and status: `labels` as `name="value",...`.
    pub fn number(&self, name: &str, labels: &str) -> Option<f64> {
        let samples = &self.families.get(name)?.samples;
        match samples.iter().find(|(known, _)| known == labels)?.1 {
            Value::Number(number) => Some(number),
            Value::Histogram(_) => None,
        }
    }

    /// Names of all metrics.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.families.keys().copied()
    }

    /// Prometheus' text format, version 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in &family.samples {
                match value {
                    Value::Number(number) => line(&mut text, name, "", labels, "", *number),
                    Value::Histogram(histogram) => {
                        write_histogram(&mut text, name, labels, histogram)
                    }
                }
            }
        }
        text
    }
}

fn write_histogram(text: &mut String, name: &str, labels: &str, histogram: &HistogramSnapshot) {
    let mut below = 0;
    for (bound_us, count) in BOUNDS_US.iter().zip(&histogram.buckets) {
        below += count;
        line(
            text,
            name,
            "_bucket",
            labels,
            &format!("le=\"{}\"", *bound_us as f64 / 1e6),
            below as f64,
        );
    }
    let count = histogram.count() as f64;
    line(text, name, "_bucket", labels, "le=\"+Inf\"", count);
    line(text, name, "_sum", labels, "", histogram.sum_us as f64 / 1e6);
    line(text, name, "_count", labels, "", count);
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &str, bound: &str, value: f64) {
    let comma = if labels.is_empty() || bound.is_empty() { "" } else { "," };
    let _ = match labels.is_empty() && bound.is_empty() {
        true => writeln!(text, "{name}{suffix} {value}"),
        false => writeln!(text, "{name}{suffix}{{{labels}{comma}{bound}}} {value}"),
    };
}

fn written(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (index, (name, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

/// What `promtool check metrics` would complain about.
fn mistake(name: &str, help: &str, kind: Kind) -> Option<&'static str> {
    let unit = |unit: &str| name.contains(unit);
    match kind {
        _ if !name.starts_with("switchback_") && !name.starts_with("process_") => {
            Some("the prefix is missing")
        }
        _ if !name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') =>
        {
            Some("names are snake_case")
        }
        _ if unit("_ms")
            || unit("_us")
            || unit("millis")
            || unit("micros")
            || unit("_mb")
            || unit("_kb") =>
        {
            Some("use base units: seconds, bytes")
        }
        _ if help.is_empty() => Some("the help is missing"),
        Kind::Counter if !name.ends_with("_total") => Some("counters end in _total"),
        Kind::Gauge | Kind::Histogram if name.ends_with("_total") => {
            Some("only counters end in _total")
        }
        Kind::Histogram if !name.ends_with("_seconds") => Some("latencies end in _seconds"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus_own() {
        let mut samples = Samples::default();
        samples.gauge("switchback_cached_records", "Cached records.", &[], 3.0);
        samples.counter(
            "switchback_operations_total",
            "Operations.",
            &[("verb", "read"), ("by", "switch")],
            5,
        );
        samples.counter(
            "switchback_operations_total",
            "Operations.",
            &[("verb", "a\"b\\c\nd"), ("by", "node")],
            1 << 50,
        );
        samples.counter(
            "switchback_operations_total",
            "Operations.",
            &[("verb", "read"), ("by", "switch")],
            2,
        );
        let text = samples.text();
        let expected = "\
# HELP switchback_cached_records Cached records.
# TYPE switchback_cached_records gauge
switchback_cached_records 3
# HELP switchback_operations_total Operations.
# TYPE switchback_operations_total counter
switchback_operations_total{verb=\"read\",by=\"switch\"} 7
switchback_operations_total{verb=\"a\\\"b\\\\c\\nd\",by=\"node\"} 1125899906842624
";
        assert_eq!(text, expected);
        assert_eq!(
            samples.number("switchback_operations_total", "verb=\"read\",by=\"switch\""),
            Some(7.0)
        );
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut histogram = HistogramSnapshot { sum_us: 9_001_501, ..HistogramSnapshot::default() };
        histogram.buckets[0] = 1;
        histogram.buckets[11] = 1;
        histogram.buckets[24] = 1;
        let mut samples = Samples::default();
        samples.histogram("switchback_latency_seconds", "Latency.", &[("verb", "get")], &histogram);
        let text = samples.text();
        for expected in [
            "switchback_latency_seconds_bucket{verb=\"get\",le=\"0.000001\"} 1\n",
            "switchback_latency_seconds_bucket{verb=\"get\",le=\"0.001024\"} 1\n",
            "switchback_latency_seconds_bucket{verb=\"get\",le=\"0.002048\"} 2\n",
            "switchback_latency_seconds_bucket{verb=\"get\",le=\"8.388608\"} 2\n",
            "switchback_latency_seconds_bucket{verb=\"get\",le=\"+Inf\"} 3\n",
            "switchback_latency_seconds_sum{verb=\"get\"} 9.001501\n",
            "switchback_latency_seconds_count{verb=\"get\"} 3\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn names_follow_the_rules() {
        assert_eq!(mistake("switchback_x_total", "X.", Kind::Counter), None);
        for (name, kind) in [
            ("switchback_x", Kind::Counter),
            ("switchback_x_total", Kind::Gauge),
            ("x_total", Kind::Counter),
            ("switchback_wait_ms", Kind::Gauge),
            ("switchback_X", Kind::Gauge),
            ("switchback_latency", Kind::Histogram),
        ] {
            assert!(mistake(name, "Help.", kind).is_some(), "{name}");
        }
    }
}
