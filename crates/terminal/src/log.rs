//! Logs: to stderr, warnings only unless asked.

use clap::{ArgAction, Args, ValueEnum};
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How much is logged, and how.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Log more: once for what happens, twice for why, three times for every step. RUST_LOG chooses
    /// by module.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// Form of the log lines on stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORM")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

impl LogArgs {
    /// The same for another program's command line.
    pub fn arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec!["--verbose"; self.verbose.into()];
        if self.log_format == LogFormat::Json {
            arguments.push("--log-format=json");
        }
        arguments
    }
}

/// Sets the log up for the whole process.
pub fn start(args: &LogArgs) {
    start_at(LevelFilter::WARN, args);
}

/// The same for a program that makes its parts fail: their warnings say nothing that it wasn't
/// asked for.
pub fn start_without_warnings(args: &LogArgs) {
    start_at(LevelFilter::OFF, args);
}

/// `unasked` is the level without `--verbose`.
fn start_at(unasked: LevelFilter, args: &LogArgs) {
    let level = match args.verbose {
        0 => unasked,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut mistake = None;
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            directives.parse::<Targets>().unwrap_or_else(|error| {
                mistake = Some(error);
                Targets::new().with_default(level)
            })
        }
        _ => Targets::new().with_default(level),
    };
    // The subscriber would panic if stderr was closed.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let lines = match args.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(error) = mistake {
        tracing::warn!(%error, "RUST_LOG can't be understood and is not used");
    }
}
