//! CONFIG: what the gateway was started with, under the names that Redis has for it, and what of it
//! can change while it runs.

use super::{Verb, no_subcommand, ok, wrong_arity};
use crate::command::glob;
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::ErrorKind;
use crate::resp::{Args, parse_i64, write};
use crate::running::Running;
use crate::shared::Shared;
use crate::slowlog::ENTRIES_MAX;
use crate::spool::Durability;

/// The largest number of seconds, as in Redis.
const SECONDS_MAX: i64 = i32::MAX as i64;

/// A parameter under the name that Redis has for it.
struct Parameter {
    name: &'static str,
    value: String,
    kind: Kind,
}

/// What CONFIG SET does to a parameter.
#[derive(Clone, Copy)]
enum Kind {
    /// It sets a number from the first to the second one, by a function.
    Number(i64, i64, fn(&Shared, i64)),
    /// It takes the value that is there. Another one is refused for this reason.
    Fixed(&'static str),
    /// It is refused, as by Redis.
    Immutable,
}

fn parameters(shared: &Shared) -> Vec<Parameter> {
    let config = &shared.config;
    let (append_only, sync) = match config.durability {
        Durability::Always => ("yes", "always"),
        Durability::EverySecond => ("yes", "everysec"),
        Durability::Memory => ("no", "no"),
    };
    let addresses: Vec<String> =
        shared.listening.iter().map(|at| at.address.ip().to_string()).collect();
    let number = |name, value: i64, range: (i64, i64), set| {
        let kind = Kind::Number(range.0, range.1, set);
        Parameter { name, value: value.to_string(), kind }
    };
    let fixed = |name, value: String, why| Parameter { name, value, kind: Kind::Fixed(why) };
    let durability = "durability in [gateway] of rack.toml says it";
    let addresses_of = "resp and tls_resp in [gateway] of rack.toml say it";
    let evicts_nothing = "nodes keep all records, and evict none";
    vec![
        fixed("appendfsync", sync.into(), durability),
        fixed("appendonly", append_only.into(), durability),
        fixed("bind", addresses.join(" "), addresses_of),
        fixed(
            "client-output-buffer-limit",
            format!("normal {} 0 0", config.output_bytes_hard),
            "unread_max_mb in [gateway] of rack.toml says it",
        ),
        fixed(
            "client-query-buffer-limit",
            config.command_bytes_max.to_string(),
            "it is the same for all gateways",
        ),
        Parameter { name: "databases", value: "1".into(), kind: Kind::Immutable },
        number(
            "latency-monitor-threshold",
            shared.latency.threshold_ms() as i64,
            (0, i64::MAX),
            |shared, ms| shared.latency.set_threshold_ms(ms as u64),
        ),
        number(
            "maxclients",
            shared.settings.clients() as i64,
            (1, u32::MAX.into()),
            |shared, most| {
                shared.settings.set_clients(most as usize);
            },
        ),
        fixed("maxmemory", "0".into(), evicts_nothing),
        fixed(
            "maxmemory-clients",
            config.client_bytes_max.to_string(),
            "buffers_max_mb in [gateway] of rack.toml says it",
        ),
        fixed("maxmemory-policy", "noeviction".into(), evicts_nothing),
        fixed("port", shared.port(false).to_string(), addresses_of),
        fixed(
            "proto-max-bulk-len",
            switchback_wire::VALUE_BYTES_MAX.to_string(),
            "it is the same for all parts of a rack",
        ),
        fixed("save", String::new(), "nodes persist by themselves"),
        number(
            "slowlog-log-slower-than",
            shared.slow_log.slower_than_us(),
            (-1, i64::MAX),
            |shared, us| shared.slow_log.set_slower_than_us(us),
        ),
        number(
            "slowlog-max-len",
            shared.slow_log.entries_max() as i64,
            (0, ENTRIES_MAX as i64),
            |shared, entries| shared.slow_log.set_entries_max(entries as usize),
        ),
        number(
            "tcp-keepalive",
            shared.settings.keep_alive_s() as i64,
            (0, SECONDS_MAX),
            |shared, s| {
                shared.settings.set_keep_alive_s(s as u64);
            },
        ),
        number("timeout", shared.settings.idle_s() as i64, (0, SECONDS_MAX), |shared, s| {
            shared.settings.set_idle_s(s as u64);
        }),
        fixed("tls-port", shared.port(true).to_string(), addresses_of),
    ]
}

pub(crate) fn config(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    match (args.get(1).to_ascii_lowercase().as_slice(), args.len()) {
        (b"set", words @ 4..) if words.is_multiple_of(2) => match set(shared, args) {
            Ok(()) => ok(running, id, Verb::Config),
            Err(text) => refuse(running, id, ErrorKind::Command, &text),
        },
        (b"set", _) => wrong_arity(running, id, "config|set"),
        (b"get", 3..) => get(running, shared, id, args),
        (b"get", _) => wrong_arity(running, id, "config|get"),
        _ => no_subcommand(running, shared, id, args),
    }
}

fn get(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let found: Vec<_> = parameters(shared)
        .into_iter()
        .filter_map(|Parameter { name, value, .. }| Some((asked_as(name.as_bytes(), args)?, value)))
        .collect();
    answer_here(running, id, Some(Verb::Config), |out, resp3| {
        write::map(out, found.len(), resp3);
        for (name, value) in &found {
            write::bulk(out, name);
            write::bulk(out, value.as_bytes());
        }
    });
}

/// The name that a parameter is answered under, if it is asked for: as the client wrote it, unless
/// that was a pattern.
fn asked_as<'a>(name: &'a [u8], args: Args<'a>) -> Option<&'a [u8]> {
    args.from(2).find_map(|asked| match asked.iter().any(|byte| b"*?[".contains(byte)) {
        true => glob::matches(&asked.to_ascii_lowercase(), name).then_some(name),
        false => asked.eq_ignore_ascii_case(name).then_some(asked),
    })
}

/// CONFIG SET: all parameters, or none. As in Redis, names are looked at before values.
fn set(shared: &Shared, args: Args<'_>) -> Result<(), String> {
    let current = parameters(shared);
    let mut wanted: Vec<(&Parameter, &[u8])> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let asked = String::from_utf8_lossy(args.get(at));
        let found = current.iter().find(|known| known.name.eq_ignore_ascii_case(&asked));
        let Some(parameter) = found else {
            let text = "ERR Unknown option or number of arguments for CONFIG SET";
            return Err(format!("{text} - '{asked}'"));
        };
        if matches!(parameter.kind, Kind::Immutable) {
            return Err(failed(&asked, "can't set immutable config"));
        }
        if wanted.iter().any(|(before, _)| before.name == parameter.name) {
            return Err(failed(&asked, "duplicate parameter"));
        }
        wanted.push((parameter, args.get(at + 1)));
    }
    let mut changes = Vec::new();
    for (Parameter { name, value, kind }, text) in wanted {
        match *kind {
            Kind::Number(least, most, apply) => {
                let number = number(text, least, most).map_err(|why| failed(name, &why))?;
                changes.push((*name, number, apply));
            }
            Kind::Fixed(_) if value.as_bytes() == text => {}
            Kind::Fixed(why) => return Err(failed(name, &format!("can't be set: {why}"))),
            Kind::Immutable => {}
        }
    }
    let clients_max = shared.config.max_clients;
    if changes.iter().any(|&(name, number, _)| name == "maxclients" && number > clients_max as i64)
    {
        let why = format!(
            "max_clients in [gateway] of rack.toml, and the files that the process may open, allow \
             {clients_max}"
        );
        return Err(failed("maxclients", &why));
    }
    changes.iter().for_each(|(_, number, apply)| apply(shared, *number));
    Ok(())
}

fn number(text: &[u8], least: i64, most: i64) -> Result<i64, String> {
    let number = parse_i64(text).ok_or("argument couldn't be parsed into an integer")?;
    let is_right = (least..=most).contains(&number);
    is_right
        .then_some(number)
        .ok_or(format!("argument must be between {least} and {most} inclusive"))
}

fn failed(name: &str, why: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
}
