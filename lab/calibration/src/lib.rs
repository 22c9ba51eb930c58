//! What the parts of a rack cost on a machine, as a file: `switchback lab calibrate` writes it, and
//! experiments read it (`--profile FILE`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

use anyhow::{Context, anyhow, ensure};
use serde::Deserialize;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The commit that this was built from.
pub const COMMIT: &str = env!("SWITCHBACK_COMMIT");
/// A profile is some hundred lines; what is longer is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// No figure of a machine is larger, in whatever unit: a second for a read, a terabyte a second.
const FIGURE_MAX: f64 = 1e6;

/// A measured figure: the median of many short rounds, and the bounds of the middle eight tenths of
/// them.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct Sample {
    /// The middle one.
    pub median: f64,
    /// A tenth of the rounds were below.
    pub low: f64,
    /// A tenth were above.
    pub high: f64,
    /// The median of what the thread had of a CPU meanwhile, where that was measured.
    pub cpu: Option<f64>,
}

/// A sample as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    median: f64,
    low: f64,
    high: f64,
    cpu: Option<f64>,
}

impl TryFrom<Written> for Sample {
    type Error = String;

    fn try_from(written: Written) -> Result<Sample, String> {
        let Written { median, low, high, cpu } = written;
        let is_right = |figure: f64| figure > 0.0 && figure <= FIGURE_MAX;
        if let Some(wrong) = [Some(low), Some(median), Some(high), cpu]
            .into_iter()
            .flatten()
            .find(|it| !is_right(*it))
        {
            return Err(format!(
                "{wrong} is no time and no rate of a machine; it is more than 0 and at most {FIGURE_MAX}"
            ));
        }
        if !(low <= median && median <= high) {
            return Err(format!("median {median} is not between low {low} and high {high}"));
        }
        Ok(Sample { median, low, high, cpu })
    }
}

impl Sample {
    /// Of the figures of rounds; none of them if there are none.
    pub fn of(mut rounds: Vec<f64>) -> Option<Sample> {
        rounds.sort_by(f64::total_cmp);
        let at = |share: f64| rounds[((rounds.len() - 1) as f64 * share).round() as usize];
        (!rounds.is_empty()).then(|| Sample {
            median: at(0.5),
            low: at(0.1),
            high: at(0.9),
            cpu: None,
        })
    }

    fn text(&self) -> String {
        let cpu = self.cpu.map_or(String::new(), |cpu| format!(", cpu = {cpu:?}"));
        format!(
            "{{ median = {:?}, low = {:?}, high = {:?}{cpu} }}",
            self.median, self.low, self.high
        )
    }
}

/// A table's figures: name, meaning, sample.
pub type Rows = Vec<(&'static str, &'static str, Sample)>;

/// Declares a table of the file: names and meanings of its samples.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $meaning:literal])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[doc = $meaning])* pub $field: Sample,)* }

        impl $name {
            /// Names, meanings and figures.
            fn rows(&self) -> Rows {
                vec![$((stringify!($field), concat!($($meaning),*).trim_ascii(), self.$field),)*]
            }
        }
    };
}

/// Where and when it was measured, and how.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Processor, CPUs, kernel.
    pub machine: String,
    /// When, in UTC.
    pub date: String,
    /// The commit of the program.
    pub commit: String,
    /// Processes that ran or wanted to (`/proc/loadavg`), before and after.
    pub load: [f64; 2],
    /// What else has to be said about it.
    pub method: String,
}

table! {
    /// A node: production shim, RocksDB and a socket on loopback, in groups. Microseconds an
    /// operation.
    Node {
        /// a read
        read_us,
        /// an unconditional write
        write_us,
        /// a conditional write: its record is read first
        conditional_us,
        /// a read, when nothing else waits
        read_alone_us,
        /// a write, when nothing else waits: it is synced for itself
        write_alone_us,
        /// a durable mark: an offer
        mark_us,
        /// a cached key's new value sent to the switch, and its acknowledgement taken (NetCache)
        cache_update_us,
        /// each byte of a read's value beyond 128, engine and socket, nanoseconds of CPU time
        read_byte_ns,
        /// each byte of a write's value beyond 128, nanoseconds of CPU time
        write_byte_ns,
    }
}

table! {
    /// The native pipeline, in batches. Nanoseconds a packet.
    Pipeline {
        /// a read that hits
        read_hit_ns,
        /// a write that hits
        write_hit_ns,
        /// a read that misses
        miss_ns,
    }
}

table! {
    /// Links between two threads that sleep until something comes: half of a round trip.
    /// Microseconds.
    Link {
        /// loopback UDP, as between processes
        udp_us,
        /// each byte of a packet beyond a value of 128 B, nanoseconds
        byte_ns,
    }
}

table! {
    /// The control channel over loopback TCP, with its encoding.
    Control {
        /// half of a round trip of short messages, microseconds
        delay_us,
        /// chunks of a snapshot, MB/s
        mb_per_s,
    }
}

table! {
    /// The switch's agent over the native tables. Microseconds.
    Agent {
        /// the admission of an entry
        entry_us,
        /// a record of a snapshot
        snapshot_record_us,
    }
}

table! {
    /// The controller's files: written aside, synced, renamed, the directory synced.
    Controller {
        /// a file without content, milliseconds
        file_ms,
        /// the content of a large one, MB/s
        mb_per_s,
    }
}

table! {
    /// A switch's start.
    Switch {
        /// its tables allocated, milliseconds; not the start of a process
        start_ms,
    }
}

/// Everything that was measured of a machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The types say it.
pub struct Calibration {
    pub origin: Origin,
    pub node: Node,
    pub pipeline: Pipeline,
    pub link: Link,
    pub control: Control,
    pub agent: Agent,
    pub controller: Controller,
    pub switch: Switch,
}

impl Calibration {
    /// Reads a file.
    ///
    /// # Errors
    /// One line: file, line and column, what is wrong and what would be right.
    pub fn read(path: &Path) -> anyhow::Result<Calibration> {
        let name = path.display().to_string();
        let mut text = String::new();
        let file = File::open(path).with_context(|| name.clone())?;
        let bytes = file
            .take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .with_context(|| name.clone())?;
        ensure!(
            bytes as u64 <= FILE_BYTES_MAX,
            "{name}: more than {FILE_BYTES_MAX} bytes are no profile; switchback lab calibrate writes one"
        );
        Calibration::parse(&text, &name)
    }

    /// The same of the file's text.
    fn parse(text: &str, name: &str) -> anyhow::Result<Calibration> {
        toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(String::new(), |span| {
                let before = text.get(..span.start).unwrap_or_default();
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                let line = before.matches('\n').count() + 1;
                let column = before[line_start..].chars().count() + 1;
                format!(":{line}:{column}")
            });
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            anyhow!("{name}{place}: {message}; switchback lab calibrate --out FILE writes a whole profile")
        })
    }

    /// Every table, with its figures.
    pub fn tables(&self) -> [(&'static str, Rows); 7] {
        [
            ("node", self.node.rows()),
            ("pipeline", self.pipeline.rows()),
            ("link", self.link.rows()),
            ("control", self.control.rows()),
            ("agent", self.agent.rows()),
            ("controller", self.controller.rows()),
            ("switch", self.switch.rows()),
        ]
    }

    /// The file.
    pub fn text(&self) -> String {
        let Origin { machine, date, commit, load, method } = &self.origin;
        let mut text = "# Written by `switchback lab calibrate`, for \
                        `switchback lab experiment --profile FILE`.\n\
                        # Medians of short rounds; a tenth of them were below low, a tenth above \
                        high. cpu: of the thread's CPU time.\n\
                        \n[origin]\n"
            .to_owned();
        for (name, value) in
            [("machine", machine), ("date", date), ("commit", commit), ("method", method)]
        {
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            let _ =
                writeln!(text, "{name} = \"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
        }
        let _ = writeln!(text, "load = [{:?}, {:?}]", load[0], load[1]);
        for (table, rows) in self.tables() {
            let _ = writeln!(text, "\n[{table}]");
            for (name, meaning, sample) in rows {
                let _ = writeln!(text, "{name} = {} # {meaning}", sample.text());
            }
        }
        text
    }

    /// Every figure as a line, for people.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (table, rows) in self.tables() {
            for (name, meaning, sample) in rows {
                let spread = format!("{} .. {}", short(sample.low), short(sample.high));
                let named = format!("{table}.{name}");
                let _ = writeln!(
                    text,
                    "  {named:<27}{:>10}  {spread:<20} {meaning}",
                    short(sample.median)
                );
            }
        }
        text
    }
}

/// Three significant digits.
pub fn short(figure: f64) -> String {
    let digits = (2.0 - figure.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{figure:.digits$}")
}

#[cfg(test)]
mod tests;
