//! `switchback doctor`: what of this machine fits, what is missing, and how to mend it.

mod build;
mod disk;
mod kernel;
mod network;

use super::config::load;
use super::ctl::OutputForm;
use crate::output::{self, Paint, Style};
use clap::Args;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use switchback_rack::config::{Overrides, RackConfig};
use switchback_rack::machine::{self, Check, Fitness, MACHINE, version_in};

const EXAMPLES: &str = "\
Examples:
  switchback doctor
  switchback doctor --config rack.toml -o json
  What a switch in the kernel needs, on one machine and on an interface:
      sudo switchback doctor --datapath xdp
      sudo switchback doctor --iface eth1

Exits with 1 if something is missing that a rack needs. What is only good to have is marked and
doesn't count; what the kernel datapath needs counts with --datapath xdp or --iface.";

/// Check this machine: what fits, what is missing, how to mend it.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Check for this rack instead of the default one.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check this directory for data.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Where packets are to be processed: user (a process) or xdp (the kernel).
    #[arg(long, value_name = "WHERE", default_value = "user", value_parser = ["user", "xdp"])]
    datapath: String,

    /// Check this interface, for a switch in the kernel.
    #[arg(long, value_name = "IF")]
    iface: Option<String>,

    /// How to answer.
    #[arg(short, long, value_enum, default_value_t = OutputForm::Text, value_name = "FORM")]
    output: OutputForm,
}

/// Of a program that tells its version, and fits in any.
fn tool(group: &str, name: &str, program: &str, without: Fitness, mend: &str) -> Check {
    match first_line(program, &["--version"]) {
        Some(line) => Check::fits(group, name, line),
        None => Check { verdict: without, ..Check::optional(group, name, "not found", mend) },
    }
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let overrides = Overrides { data: args.data.clone(), ..Overrides::default() };
    let Some(config) = load(args.config.as_deref(), &overrides) else {
        return Ok(ExitCode::FAILURE);
    };
    let wanted = args.iface.is_some() || args.datapath == "xdp";
    let checks = checks(&config, &kernel::Facts::look(&config, args.iface.as_deref(), wanted));
    match args.output {
        OutputForm::Json => output::line(&serde_json::to_string_pretty(&checks)?)?,
        OutputForm::Text => output::line(text(&checks, Paint::stdout()).trim_end())?,
    }
    let missing = checks.iter().any(|check| check.verdict == Fitness::Missing);
    Ok(if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn checks(config: &RackConfig, kernel: &kernel::Facts) -> Vec<Check> {
    let mut checks = machine::checks(config, kernel.is_wanted());
    checks.extend(disk::flush(config));
    checks.extend(network::ports(config));
    checks.push(redis_cli());
    // Those of one group together, in the order in which groups come first.
    checks.sort_by_key(|check| check.group != MACHINE);
    checks.extend(kernel::checks(kernel));
    if build::in_a_checkout() {
        checks.extend(build::checkout());
    }
    checks
}

fn redis_cli() -> Check {
    let mend = "apt-get install redis-tools, to talk to the gateway by hand";
    tool(MACHINE, "redis-cli", "redis-cli", Fitness::Optional, mend)
}

fn text(checks: &[Check], paint: Paint) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = &check.group;
            text += &format!(
                "{}{}\n",
                if text.is_empty() { "" } else { "\n" },
                paint.text(Style::Bold, group)
            );
        }
        let mark = match check.verdict {
            Fitness::Fits => paint.text(Style::Green, "fits    "),
            Fitness::Optional => paint.text(Style::Yellow, "optional"),
            Fitness::Missing => paint.text(Style::Red, "MISSING "),
        };
        text += &format!("  {mark}  {:<14} {}\n", check.name, check.found);
        if let Some(mend) = &check.mend {
            text += &format!(
                "  {:8}  {:<14} {}\n",
                "",
                "",
                paint.text(Style::Dim, &format!("-> {mend}"))
            );
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let summary = match (count(Fitness::Missing), count(Fitness::Optional)) {
        (0, 0) => paint.text(Style::Green, "Everything fits."),
        (0, optional) => {
            format!("A rack can run here; {optional} optional {} not there.", are(optional))
        }
        (missing, _) => paint
            .text(Style::Red, &format!("{missing} {} missing that a rack needs.", are(missing))),
    };
    text + "\n" + &summary + "\n"
}

fn are(count: usize) -> &'static str {
    if count == 1 { "thing is" } else { "things are" }
}

/// The first line that a program prints, if it is there and succeeds.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_to_do() {
        let checks = [
            Check::fits("machine", "cores", "2"),
            Check::optional("machine", "redis-cli", "not found", "apt-get install redis-tools"),
            Check::missing("build", "rustc", "1.60", "rustup update"),
        ];
        let expected = "\
machine
  fits      cores          2
  optional  redis-cli      not found
                           -> apt-get install redis-tools

build
  MISSING   rustc          1.60
                           -> rustup update

1 thing is missing that a rack needs.
";
        assert_eq!(text(&checks, Paint::none()), expected);
        assert!(
            text(&checks[..2], Paint::none())
                .ends_with("A rack can run here; 1 optional thing is not there.\n")
        );
    }

    #[test]
    fn a_rack_that_can_not_run_here_is_told_why() {
        let directory = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let overrides = Overrides {
            data: Some(directory.path().join("new/data")),
            resp: Some(taken.local_addr().unwrap()),
            metrics: Some("127.0.0.1:0".parse().unwrap()),
            ..Overrides::default()
        };
        let checks =
            checks(&RackConfig::load(None, &overrides).unwrap(), &kernel::Facts::default());
        let check = |name: &str| checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(check("gateway port").verdict, Fitness::Missing);
        assert!(check("gateway port").mend.as_ref().unwrap().contains("--resp"));
        assert_eq!(check("metrics port").verdict, Fitness::Fits);
        assert_ne!(check("data").verdict, Fitness::Missing, "{:?}", check("data"));
        assert!(
            check("fsync").found.contains("ms") || check("fsync").found.contains("us"),
            "{:?}",
            check("fsync")
        );
        assert!(!directory.path().join("new").exists(), "the doctor leaves nothing behind");
    }

    #[test]
    fn ports_of_other_machines_are_none_of_this_ones() {
        let text = "[rack]\nmetrics = '198.51.100.7:9464'\n\
                    [controller]\nlisten = '198.51.100.7:7000'\n\
                    [[switch]]\naddress = '127.0.0.1:5357'\n\
                    [[node]]\naddress = '198.51.100.8:5400'";
        let config =
            RackConfig::parse(text, "rack.toml", std::path::Path::new(""), &Overrides::default())
                .unwrap();
        let checks = network::ports(&config);
        let ports: Vec<_> =
            checks.iter().map(|check| &*check.name).filter(|name| name.ends_with("port")).collect();
        assert_eq!(ports, ["gateway port", "packet port"]);
    }
}
