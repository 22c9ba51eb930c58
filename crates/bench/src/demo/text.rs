//! What the demo says.

use super::load::Done;
use super::rack::{DemoRack, Part};
use super::script::Event;
use super::{CACHE_RECORDS, NODE_CAPACITY_OPS, NODES, RECORDS, ZIPF};
use crate::report::{grouped, percent};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;
use switchback_rack::admin::{RackStatus, RecoveryStatus};
use switchback_terminal::{Paint, Style};

/// Time between two points of the curve of operations, and how many points it has.
const POINT: Duration = Duration::from_secs(1);
const POINTS: usize = 60;
/// Heights of a point.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn whole(number: u64) -> String {
    grouped(number as f64)
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", whole(number), if number == 1 { "" } else { "s" })
}

/// What there is, and where.
pub(super) fn introduction(rack: &DemoRack, program: &str) -> anyhow::Result<String> {
    let (resp, metrics) = (rack.resp(), rack.metrics());
    let mut text = format!(
        "A rack of {} processes: a switch that serves, a spare, {NODES} nodes that \
         serve {} requests/s each,\n\
         a controller and a gateway. Its files are in {} until the demo ends.\n\
         The load, through the gateway: half reads, half writes of {} records, Zipf {ZIPF}; the switch has room for {}.\n\
         Every answer is verified.\n\n",
        rack.parts().count(),
        whole(NODE_CAPACITY_OPS.into()),
        rack.directory().display(),
        whole(RECORDS),
        whole(CACHE_RECORDS.into()),
    );
    let commands = [
        (
            format!("redis-cli -h {} -p {}", resp.ip(), resp.port()),
            "any Redis client, beside the load",
        ),
        (format!("{program} ctl status --metrics {metrics}"), "who answers, what is cached"),
        (format!("curl http://{metrics}/metrics"), "for Prometheus"),
        (rack.console()?, "the console, in a browser: see the rack, and kill its switch"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, what) in commands {
        let _infallible = writeln!(text, "  {command:<width$}   {what}");
    }
    Ok(text)
}

/// An event, in a line or two.
pub(super) fn event(now: Duration, event: &Event, paint: Paint) -> String {
    let text = match event {
        Event::Killed { switch, kill, of } => {
            let of = of.map_or(String::new(), |of| format!(" ({kill} of {of})"));
            paint.text(Style::Bold, &format!("kill -9 of switch {switch}, which served{of}"))
        }
        Event::NotNow(why) => format!("not now: {why}"),
        Event::Recovered { by, times } => recovered(*by, times),
        Event::Audited { records, lost, unknown } => audited(*records, *lost, *unknown, paint),
    };
    format!("{:7.2} s  {text}", now.as_secs_f64())
}

fn recovered(by: u16, times: &RecoveryStatus) -> String {
    let abandoned = match times.abandoned_clients {
        0 => String::new(),
        clients => format!("; {} did not answer", counted(clients, "client")),
    };
    format!(
        "switch {by} took over, all is served again after {}: detect {}, collect {}, store {} \
         ({});\n\
         {:12}re-admit {}: what was cached is cached again{abandoned}",
        ms(outage(times)),
        ms(times.detect_seconds),
        ms(times.collect_seconds),
        ms(times.store_seconds),
        counted(times.records, "record"),
        "",
        ms(times.readmit_seconds)
    )
}

fn audited(records: u64, lost: u64, unknown: u64, paint: Paint) -> String {
    let read = format!("{} read once more: ", counted(records, "record"));
    let result = match lost {
        0 => paint.text(Style::Green, "nothing lost"),
        lost => paint.text(Style::Red, &counted(lost, "WRONG ANSWER")),
    };
    let told = match unknown {
        0 => String::new(),
        requests => format!(
            " ({} under way ended without a known outcome, as the client was told)",
            counted(requests, "request")
        ),
    };
    read + &result + &told
}

/// From the last sign of life of the old switch until every node was released.
fn outage(times: &RecoveryStatus) -> f64 {
    times.detect_seconds + times.collect_seconds + times.store_seconds
}

fn ms(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// What came of it all.
pub(super) fn summary(done: &Done, recoveries: &[RecoveryStatus], paint: Paint) -> String {
    let verification = &done.verification;
    let mut text = format!(
        "\n{} answers verified, {} wrong; {} of the {} that were written read once more at the end\n",
        whole(verification.verified),
        whole(verification.mismatches),
        whole(verification.swept),
        counted(verification.swept + done.unswept, "record")
    );
    for mismatch in &verification.examples {
        let _infallible = writeln!(text, "  {mismatch}");
    }
    let mut outages: Vec<f64> = recoveries.iter().map(outage).collect();
    outages.sort_by(f64::total_cmp);
    if let (Some(median), Some(longest)) = (outages.get(outages.len() / 2), outages.last()) {
        let _infallible = writeln!(
            text,
            "{}; all was served again after {} in the median, {} at most",
            counted(outages.len() as u64, "kill"),
            ms(*median),
            ms(*longest)
        );
    }
    text + &match super::is_all_there(done) {
        true => paint.text(Style::Green, "nothing lost"),
        false => paint.text(Style::Red, "SOMETHING WAS LOST"),
    }
}

/// Loads over the last seconds.
#[derive(Default)]
pub(super) struct Loads {
    /// Operations a second.
    curve: VecDeque<f64>,
    /// Share of the operations that no node served.
    hits: Option<f64>,
    /// Requests a second of each node.
    nodes: Vec<f64>,
    last: (Duration, Done, Vec<u64>),
}

impl Loads {
    /// Takes another point if it is time; `nodes` says what each node has served.
    pub(super) fn take(&mut self, now: Duration, done: &Done, nodes: impl FnOnce() -> Vec<u64>) {
        let (then, before, served_before) = &self.last;
        let since = now.saturating_sub(*then);
        if since < POINT {
            return;
        }
        let a_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / since.as_secs_f64();
        let served = nodes();
        let zero = std::iter::repeat(&0);
        self.nodes = served
            .iter()
            .zip(served_before.iter().chain(zero))
            .map(|(now, then)| a_second(*now, *then))
            .collect();
        let asked = a_second(done.operations, before.operations);
        let by_nodes: f64 = self.nodes.iter().sum();
        self.hits = (asked > 0.0).then(|| (1.0 - by_nodes / asked).max(0.0));
        if self.curve.len() == POINTS {
            self.curve.pop_front();
        }
        self.curve.push_back(asked);
        self.last = (now, done.clone(), served);
    }

    fn drawn(&self) -> String {
        let most = self.curve.iter().copied().fold(1.0, f64::max);
        let height = |ops: &f64| BARS[((ops / most * 8.0) as usize).min(BARS.len() - 1)];
        self.curve.iter().map(height).collect()
    }
}

/// What is shown below the events.
pub(super) struct Board<'a> {
    pub(super) rack: &'a DemoRack,
    pub(super) status: &'a RackStatus,
    pub(super) done: &'a Done,
    pub(super) loads: &'a Loads,
}

impl Board<'_> {
    pub(super) fn text(&self, paint: Paint) -> String {
        let ops = self.loads.curve.back().copied().unwrap_or(0.0);
        let hits = self.loads.hits.map_or("-".to_owned(), percent);
        let verification = &self.done.verification;
        let wrong = match verification.mismatches {
            0 => paint.text(Style::Green, "none wrong"),
            wrong => paint.text(Style::Red, &format!("{} WRONG", whole(wrong))),
        };
        let mut text = format!(
            "\n  {} operations/s   {hits} by the cache   {} answers verified, {wrong}\n  {}\n\n",
            paint.text(Style::Bold, &grouped(ops)),
            whole(verification.verified),
            self.loads.drawn()
        );
        for (part, id) in self.rack.parts() {
            let id = id.map_or("-".to_owned(), |id| id.to_string());
            let (state, more) = self.state(part);
            let state = match state {
                "serves" | "up" => paint.text(Style::Green, &format!("{state:<12}")),
                "spare" => format!("{state:<12}"),
                _ => paint.text(Style::Yellow, &format!("{state:<12}")),
            };
            let _infallible = writeln!(text, "  {part:<11} {state} pid {id:<8} {more}");
        }
        let (kill, end) = (paint.text(Style::Bold, "k"), paint.text(Style::Bold, "q"));
        let _infallible =
            write!(text, "\n  {kill} kills the switch that serves (kill -9)   {end} ends the demo");
        text
    }

    /// The state of a part, and what it does.
    fn state(&self, part: Part) -> (&'static str, String) {
        match part {
            Part::Controller => {
                let epoch = self.status.epoch.map_or(String::new(), |epoch| epoch.to_string());
                ("up", format!("rack {}, epoch {epoch}", self.status.phase))
            }
            Part::Gateway => ("up", format!("Redis' protocol at {}", self.rack.resp())),
            Part::Node(node) => {
                let heard = self.status.nodes.iter().find(|it| it.index == node);
                let is_up = heard.is_some_and(|it| it.alive == Some(true));
                let load = self.loads.nodes.get(usize::from(node)).copied().unwrap_or(0.0);
                let share = load / f64::from(NODE_CAPACITY_OPS);
                let bar = "#".repeat((share * 20.0).round().clamp(0.0, 20.0) as usize);
                (
                    if is_up { "up" } else { "silent" },
                    format!("{:>5} requests/s {bar}", grouped(load)),
                )
            }
            Part::Switch(switch) => {
                let heard = self.status.switches.iter().find(|it| it.index == switch);
                match heard {
                    Some(it) if it.alive && it.active => {
                        let cached = self.status.cache.records.unwrap_or(0);
                        (
                            "serves",
                            format!(
                                "{} of {} records cached",
                                whole(cached),
                                whole(self.status.cache.records_max)
                            ),
                        )
                    }
                    Some(it) if it.alive => ("spare", String::new()),
                    _ => ("silent", String::new()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Verification;

    fn times(detect_seconds: f64) -> RecoveryStatus {
        RecoveryStatus {
            detect_seconds,
            collect_seconds: 0.015,
            store_seconds: 0.03,
            readmit_seconds: 0.022,
            records: 812,
            ..RecoveryStatus::default()
        }
    }

    #[test]
    fn events_say_what_happened_and_what_was_lost() {
        let say = |what: Event| event(Duration::from_millis(12_345), &what, Paint::none());
        assert_eq!(
            say(Event::Killed { switch: 1, kill: 2, of: Some(20) }),
            "  12.35 s  kill -9 of switch 1, which served (2 of 20)"
        );
        let text = say(Event::Recovered { by: 0, times: times(0.152) });
        assert!(text.contains("switch 0 took over, all is served again after 197 ms"), "{text}");
        assert!(text.contains("detect 152 ms, collect 15 ms, store 30 ms (812 records)"), "{text}");
        let text = say(Event::Audited { records: 9123, lost: 0, unknown: 1 });
        assert!(
            text.contains("9,123 records read once more: nothing lost (1 request under"),
            "{text}"
        );
        let text = say(Event::Audited { records: 1, lost: 2, unknown: 0 });
        assert!(text.ends_with("1 record read once more: 2 WRONG ANSWERs"), "{text}");
    }

    #[test]
    fn the_summary_says_what_was_lost_and_how_long_it_took() {
        let verification =
            Verification { verified: 1_234_567, swept: 9000, ..Verification::default() };
        let done = Done { verification, ..Done::default() };
        let recoveries: Vec<_> = [0.2, 0.1, 0.3].map(times).into();
        let text = summary(&done, &recoveries, Paint::none());
        assert!(text.contains("1,234,567 answers verified, 0 wrong"), "{text}");
        assert!(text.contains("3 kills; all was"), "{text}");
        assert!(text.contains("245 ms in the median, 345 ms at most"), "{text}");
        assert!(text.ends_with("nothing lost"), "{text}");
        let text = summary(&Done { unswept: 1, ..done }, &[], Paint::none());
        assert!(text.contains("9,000 of the 9,001 records"), "{text}");
        assert!(text.ends_with("SOMETHING WAS LOST") && !text.contains("median"), "{text}");
    }

    #[test]
    fn loads_are_differences_over_a_second() {
        let mut loads = Loads::default();
        let done = |operations| Done { operations, ..Done::default() };
        loads.take(Duration::from_secs(1), &done(1000), || vec![300, 200]);
        loads.take(Duration::from_millis(1500), &done(1), || panic!("it is too early"));
        loads.take(Duration::from_secs(3), &done(5000), || vec![700, 200]);
        assert_eq!((loads.curve.back(), loads.hits), (Some(&2000.0), Some(0.9)));
        assert_eq!((loads.nodes.as_slice(), loads.drawn().as_str()), (&[200.0, 0.0][..], "▅█"));
        (4..1000).for_each(|at| loads.take(Duration::from_secs(at), &done(5000), Vec::new));
        assert_eq!((loads.curve.len(), loads.hits), (POINTS, None));
    }
}
