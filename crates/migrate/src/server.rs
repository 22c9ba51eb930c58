//! A Redis, or a gateway: connecting, and reading records of it.

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, Pipeline, RedisResult, TlsCertificates,
    Value, cmd, pipe,
};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to accept a connection, or to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A record: its value, and the milliseconds that it has left, if it expires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExpiringValue {
    pub(crate) value: Vec<u8>,
    pub(crate) expires_in_ms: Option<u64>,
}

/// What there is of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Record(ExpiringValue),
    Nothing,
    /// Something else than a string.
    OtherType,
}

/// Does work in a thread of its own: a signal comes to the process's first thread, where it would
/// end the wait for an answer.
pub(crate) fn undisturbed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What TLS needs to reach servers at `rediss://` addresses; as redis-cli names it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Certificates {
    /// Servers at rediss:// addresses have certificates of a CA in this file (PEM); else of one
    /// that the system trusts.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The certificate to show to servers at rediss:// addresses that ask for one (PEM).
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl Certificates {
    fn read(&self) -> anyhow::Result<TlsCertificates> {
        let file = |path: &Path| {
            read_file(path).with_context(|| format!("{} can't be read", path.display()))
        };
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: file(cert)?, client_key: file(key)? })
            }
            _ => None,
        };
        let root_cert = self.cacert.as_deref().map(file).transpose()?;
        if let (Some(path), Some(text)) = (&self.cacert, &root_cert) {
            // One without a certificate would trust nothing, which is told of the server then.
            let has_one = text.windows(BEGIN.len()).any(|at| at == BEGIN);
            ensure!(has_one, "{} has no certificate (PEM)", path.display());
        }
        Ok(TlsCertificates { client_tls, root_cert })
    }

    fn are_given(&self) -> bool {
        self.cacert.is_some() || self.cert.is_some()
    }
}

/// Of a file of certificates: those that a system trusts are some 200 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB")),
        false => Ok(bytes),
    }
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// What to do about an error of TLS that has this in its text.
const HINTS: [(&str, &str); 4] = [
    ("InvalidContentType", "it speaks no TLS there: its address begins with redis://, then"),
    ("no answer", "if it speaks no TLS there, its address begins with redis://"),
    ("UnknownIssuer", "--cacert names the CA that the server's certificate is of"),
    ("CertificateRequired", "it wants a certificate: --cert and --key"),
];

/// A Redis or a gateway, by its URL.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    client: Client,
}

impl Server {
    /// The servers of these URLs, `redis[s]://[[USER]:PASSWORD@]HOST:PORT[/DATABASE]`.
    ///
    /// # Errors
    /// What isn't a URL, certificates that can't be read, or that none of the servers needs.
    pub(crate) fn of<const N: usize>(
        urls: [&str; N],
        certificates: &Certificates,
    ) -> anyhow::Result<[Server; N]> {
        let servers = urls.map(|url| Server::open(url, certificates));
        let mut with_tls = servers.iter().flatten().filter(|server| server.has_tls());
        let is_any = with_tls.next().is_some();
        let mut opened = Vec::new();
        for server in servers {
            opened.push(server?);
        }
        ensure!(
            is_any || !certificates.are_given(),
            "--cacert, --cert and --key are for addresses that begin with rediss://: none does"
        );
        Ok(opened.try_into().expect("as many as URLs"))
    }

    fn open(url: &str, certificates: &Certificates) -> anyhow::Result<Server> {
        // Without the URL in the message: it may have a password.
        let client = Client::open(url).context(
            "no URL of a Redis; one is redis://:PASSWORD@HOST:PORT/DATABASE, or rediss:// with TLS",
        )?;
        match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                bail!("#insecure isn't taken: name the CA of the server's certificate by --cacert")
            }
            ConnectionAddr::TcpTls { .. } => {
                Ok(Server { client: Client::build_with_tls(url, certificates.read()?)? })
            }
            _ => Ok(Server { client }),
        }
    }

    fn has_tls(&self) -> bool {
        matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
    }

    /// `HOST:PORT`, without user and password.
    pub(crate) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(crate) fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        let connect = || {
            let connection = self.client.get_connection_with_timeout(PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            RedisResult::Ok(connection)
        };
        let how = if self.has_tls() { " with TLS" } else { "" };
        // The library's errors have their sources in their own texts.
        connect().map_err(|error| {
            let text = match error.to_string() {
                _ if error.is_timeout() => format!("no answer within {PATIENCE:?}"),
                text if text.contains("Parse error") => "what answers there is no Redis".into(),
                text => text,
            };
            let mend = HINTS.iter().find(|(part, _)| self.has_tls() && text.contains(part));
            let mend = mend.map_or(String::new(), |(_, mend)| format!("; {mend}"));
            anyhow!("no connection{how} to {}: {text}{mend}", self.address())
        })
    }
}

/// What a Redis is called from its start to its end; `None` if it doesn't say, as gateways.
pub(crate) fn run_id(server: &mut Connection) -> Option<String> {
    let info: String = cmd("INFO").arg("server").query(server).ok()?;
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned)
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
        [Ok(Value::BulkString(value)), Ok(Value::Int(left_ms))] => {
            Ok(Found::Record(ExpiringValue {
                value: value.clone(),
                expires_in_ms: u64::try_from(*left_ms).ok(),
            }))
        }
        [Err(error), _] if error.code() == Some("WRONGTYPE") => Ok(Found::OtherType),
        [Err(error), _] | [_, Err(error)] => bail!("a key can't be read: {error}"),
        other => bail!("GET and PTTL were answered with {other:?}"),
    };
    answers.chunks(2).map(found).collect()
}

/// Those of some keys that aren't strings: there is nothing of that name, or something else.
pub(crate) fn no_strings(
    server: &mut Connection,
    keys: &[Vec<u8>],
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut commands = pipe();
    for key in keys {
        commands.cmd("TYPE").arg(key);
    }
    let mut found = Vec::new();
    for (key, answer) in keys.iter().zip(run(server, &mut commands)?) {
        match answer {
            Ok(Value::SimpleString(kind)) if kind == "string" => {}
            Ok(Value::SimpleString(_)) => found.push(key.clone()),
            other => bail!("TYPE was answered with {other:?}"),
        }
    }
    Ok(found)
}

/// Whether a server has no keys.
pub(crate) fn is_empty(server: &mut Connection) -> RedisResult<bool> {
    let any: Option<Vec<u8>> = cmd("RANDOMKEY").query(server)?;
    Ok(any.is_none())
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
