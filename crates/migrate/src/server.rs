//! A Redis, or a gateway: connecting, and reading records of it.

use anyhow::{Context, bail};
use redis::{Client, Connection, Pipeline, RedisResult, Value, cmd, pipe};
use std::time::Duration;

/// How long a server may take to accept a connection, or to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A record: its value, and the milliseconds that it has left, if it expires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) value: Vec<u8>,
    pub(crate) expires_in_ms: Option<u64>,
}

/// What there is of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Record(Record),
    Nothing,
    /// Something else than a string.
    OtherType,
}

/// Does work in a thread of its own: a signal comes to the process's first thread, where it would end
/// the wait for an answer.
pub(crate) fn undisturbed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Connects to `redis://[:PASSWORD@]HOST:PORT[/DATABASE]`.
pub(crate) fn connect(url: &str) -> anyhow::Result<Connection> {
    // Without the URL in the message: it may have a password.
    let client = Client::open(url)
        .context("no URL of a Redis; one is redis://:PASSWORD@HOST:PORT/DATABASE")?;
    let address = client.get_connection_info().addr().to_string();
    let connect = || {
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        RedisResult::Ok(connection)
    };
    connect().with_context(|| format!("no connection to {address}"))
}

/// Keys from `cursor` on, and where the next ones begin; 0: there are none.
pub(crate) fn scan(
    server: &mut Connection,
    cursor: u64,
    pattern: Option<&str>,
    count: usize,
) -> RedisResult<(u64, Vec<Vec<u8>>)> {
    let mut command = cmd("SCAN");
    command.arg(cursor).arg("COUNT").arg(count);
    if let Some(pattern) = pattern {
        command.arg("MATCH").arg(pattern);
    }
    command.query(server)
}

/// Looks keys up, all in one go.
pub(crate) fn read(server: &mut Connection, keys: &[Vec<u8>]) -> anyhow::Result<Vec<Found>> {
    let mut commands = pipe();
    for key in keys {
        commands.cmd("GET").arg(key).cmd("PTTL").arg(key);
    }
    let answers = run(server, &mut commands)?;
    let found = |answer: &[RedisResult<Value>]| match answer {
        [Ok(Value::Nil), _] | [_, Ok(Value::Int(-2))] => Ok(Found::Nothing),
        [Ok(Value::BulkString(value)), Ok(Value::Int(left_ms))] => Ok(Found::Record(Record {
            value: value.clone(),
            expires_in_ms: u64::try_from(*left_ms).ok(),
        })),
        [Err(error), _] if error.code() == Some("WRONGTYPE") => Ok(Found::OtherType),
        [Err(error), _] | [_, Err(error)] => bail!("a key can't be read: {error}"),
        other => bail!("GET and PTTL were answered with {other:?}"),
    };
    answers.chunks(2).map(found).collect()
}

/// Sends commands, if there are any; their answers, errors of single ones among them.
pub(crate) fn run(
    server: &mut Connection,
    commands: &mut Pipeline,
) -> anyhow::Result<Vec<RedisResult<Value>>> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    Ok(commands.ignore_errors().query::<Vec<RedisResult<Value>>>(server)?)
}
