//! `switchback ctl top`: samples of a rack as they come.

use super::hot::{hot_table, rate};
use super::{OutputForm, Rack, number, percent};
use crate::output::Align::{Left, Right};
use crate::output::{self, Paint, Screen, Table, grouped, printable, seconds};
use anyhow::{Context, bail};
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use switchback_rack::observer::{LiveNode, LiveSample};

/// How often keys are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A rack that doesn't tell a sample for that long hangs, or is gone.
const SILENT: Duration = Duration::from_secs(10);

/// Shows frames until `q` or Ctrl-C; or one frame, or each sample as a line.
pub(super) fn run(rack: &Rack, form: OutputForm, once: bool) -> anyhow::Result<()> {
    let samples = samples(rack)?;
    if once || form == OutputForm::Json {
        return print(&samples, form, once);
    }
    let screen = Screen::open().context("the terminal can't be set")?;
    let Some(screen) = screen else {
        bail!("stdin and stdout are no terminal: --once prints one frame");
    };
    let mut waited = Duration::ZERO;
    while !screen.is_ended() {
        match samples.recv_timeout(LOOK_AGAIN) {
            Ok(sample) => {
                screen.draw(&top_text(&sample?)).context("writing to the terminal")?;
                waited = Duration::ZERO;
            }
            Err(RecvTimeoutError::Timeout) if waited < SILENT => waited += LOOK_AGAIN,
            Err(_) => bail!("{} tells nothing any more", rack.address),
        }
    }
    Ok(())
}

fn print(
    samples: &Receiver<anyhow::Result<LiveSample>>,
    form: OutputForm,
    once: bool,
) -> anyhow::Result<()> {
    loop {
        let sample = samples.recv_timeout(SILENT).context("the rack tells nothing")??;
        match form {
            OutputForm::Text => output::line(top_text(&sample).trim_end())?,
            OutputForm::Json => output::line(&serde_json::to_string(&sample)?)?,
        }
        if once {
            return Ok(());
        }
    }
}

/// Takes the rack's samples on a thread of its own, which ends with them.
fn samples(rack: &Rack) -> anyhow::Result<Receiver<anyhow::Result<LiveSample>>> {
    let lines = rack.stream("live")?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("samples".into()).spawn(move || {
        for line in lines.lines() {
            let sample = match line {
                Ok(line) => match line.strip_prefix("data: ") {
                    Some(json) => serde_json::from_str(json).context(
                        "what answers is no rack of this version; use the `switchback` that runs there",
                    ),
                    None => continue,
                },
                Err(error) => Err(error).context("the rack is gone"),
            };
            let is_last = sample.is_err();
            if sender.send(sample).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(receiver)
}

pub(super) fn top_text(sample: &LiveSample) -> String {
    let mut text = format!(
        "{}  {}{}  epoch {}  up {}\n",
        printable(&sample.name),
        printable(&sample.phase),
        if sample.draining == Some(true) { ", draining" } else { "" },
        number(sample.epoch),
        seconds(sample.uptime_seconds)
    );
    text += &asked_text(sample);
    text += &format!(
        "cached      {} of {} keys, {} wait; {} admitted/s, {} evicted/s\n",
        number(sample.cached),
        grouped(sample.cached_max),
        number(sample.waiting_offers),
        rate_or_dash(sample.admissions_per_s),
        rate_or_dash(sample.evictions_per_s)
    );
    text += &format!("\n{}", nodes(&sample.nodes).painted(Paint::none()));
    match sample.hot.as_deref() {
        Some(hot) => text += &format!("\n{}", hot_table(hot).painted(Paint::none())),
        None => text += "\nhot keys are known to a gateway: ask it with --metrics\n",
    }
    text
}

/// What the gateway's clients ask, or what the switch is asked.
fn asked_text(sample: &LiveSample) -> String {
    match (sample.reads_per_s, sample.writes_per_s, sample.nodes_per_s, &sample.switch) {
        (Some(reads), Some(writes), Some(nodes), _) => {
            let all = reads + writes;
            let by_cache = (all > 0.0).then(|| (all - nodes) / all);
            format!(
                "requests/s  {}: {} reads, {} writes; {} by the cache, {} reached nodes; {} connections\n",
                rate(all),
                rate(reads),
                rate(writes),
                percent(by_cache),
                rate(nodes),
                number(sample.connections)
            )
        }
        (.., Some(switch)) => format!(
            "requests/s  {} at the switch; {} answered by it, {} by nodes\n",
            rate(switch.requests_per_s),
            rate(switch.by_switch_per_s),
            rate(switch.by_nodes_per_s)
        ),
        _ => "requests/s  known to a gateway or a switch: ask it with --metrics\n".to_owned(),
    }
}

fn nodes(nodes: &[LiveNode]) -> Table {
    Table::of(
        nodes,
        &[
            ("node", Right, &|node| node.index.to_string()),
            ("state", Left, &|node| node.state.as_deref().map_or("-".into(), printable)),
            ("reads/s", Right, &|node| rate_or_dash(node.reads_per_s)),
            ("writes/s", Right, &|node| rate_or_dash(node.writes_per_s)),
            ("cached", Right, &|node| number(node.cached_keys)),
        ],
    )
}

fn rate_or_dash(per_s: Option<f64>) -> String {
    per_s.map_or("-".to_owned(), rate)
}
