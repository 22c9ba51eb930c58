//! A progress bar, drawn if the output is a terminal.

use super::number::grouped;
use crate::generator::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The bar of one run. If the output is no terminal, nothing is drawn.
pub(crate) struct Bar {
    bar: ProgressBar,
    last: (Duration, u64),
}

impl Bar {
    pub(crate) fn new(label: String, measured: Duration) -> Bar {
        let bar = ProgressBar::new(measured.as_millis() as u64);
        let style = ProgressStyle::with_template("{prefix:.bold} {bar:30} {elapsed:>4} {msg}");
        bar.set_style(style.expect("the template is valid").progress_chars("=> "));
        bar.set_prefix(label);
        Bar { bar, last: (Duration::ZERO, 0) }
    }

    /// Shows the step before or after the clients run.
    pub(crate) fn say(&self, what: &'static str) {
        self.bar.set_message(what);
        self.bar.tick();
    }

    pub(crate) fn update(&mut self, progress: Progress) {
        match progress {
            Progress::Warmup => self.say("warming up"),
            Progress::Finishing => self.say("finishing"),
            Progress::Measuring(since, operations) => {
                let (before, earlier) = self.last;
                let seconds = since.saturating_sub(before).as_secs_f64();
                if seconds >= 0.5 {
                    let ops = operations.saturating_sub(earlier) as f64 / seconds;
                    self.bar.set_message(format!("{} ops/s", grouped(ops)));
                    self.last = (since, operations);
                }
                self.bar.set_position(since.as_millis() as u64);
            }
        }
    }

    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}
