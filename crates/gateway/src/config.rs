//! What an operator decides.

use crate::spool::Durability;
use crate::tls::TlsFiles;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use switchback_core::client::ClientConfig;

/// What becomes of transactions of several keys, which no write spans. Those of one key are
/// executed exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transactions {
    /// They are refused.
    #[default]
    Refuse,
    /// Their commands are executed one after the other: others may come between, and what went
    /// before a failure stays.
    Batch,
}

impl Transactions {
    /// All of them.
    pub const ALL: [Transactions; 2] = [Transactions::Refuse, Transactions::Batch];

    /// As `rack.toml` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Transactions::Refuse => "refuse",
            Transactions::Batch => "batch",
        }
    }
}

impl FromStr for Transactions {
    type Err = String;

    fn from_str(text: &str) -> Result<Transactions, String> {
        let named = Transactions::ALL.into_iter().find(|choice| choice.name() == text);
        named.ok_or_else(|| format!("{text:?} is none of \"refuse\", \"batch\""))
    }
}

/// Whether the gateway passes for a Redis Cluster of which it owns every slot, so that clients that
/// are made for clusters work with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cluster {
    /// It says that it isn't one, as redis-server does without `cluster-enabled`.
    #[default]
    Off,
    /// It does.
    Emulated,
}

impl Cluster {
    /// All of them.
    pub const ALL: [Cluster; 2] = [Cluster::Off, Cluster::Emulated];

    /// As `rack.toml` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Cluster::Off => "off",
            Cluster::Emulated => "emulated",
        }
    }

    /// What HELLO and INFO call it.
    pub(crate) const fn redis_mode(self) -> &'static str {
        match self {
            Cluster::Off => "standalone",
            Cluster::Emulated => "cluster",
        }
    }
}

impl FromStr for Cluster {
    type Err = String;

    fn from_str(text: &str) -> Result<Cluster, String> {
        let named = Cluster::ALL.into_iter().find(|choice| choice.name() == text);
        named.ok_or_else(|| format!("{text:?} is none of \"off\", \"emulated\""))
    }
}

/// The longest that a reply or command may be: places in them have 32 bits.
pub const REPLY_BYTES_MAX: usize = 4095 << 20;

/// Configuration of a gateway. The defaults suit an embedded rack on one machine.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Where to listen. Port 0: any free one.
    pub listen: Vec<SocketAddr>,
    /// Where to listen for TLS, and with what certificates.
    pub tls: Option<(SocketAddr, TlsFiles)>,
    /// The password that AUTH and HELLO must show; `None`: none is needed.
    pub password: Option<String>,
    /// What "OK" means.
    pub durability: Durability,
    /// Where absorbed writes are spooled; needed unless durability is [`Durability::Memory`].
    pub spool_dir: Option<PathBuf>,
    /// Bytes of spool, per worker, beyond which it is rewritten with only the newest version of
    /// each key.
    pub spool_bytes_max: u64,
    /// Client id of worker 0; worker n is that plus n. The same at every start.
    pub client_id_base: u64,
    /// The session of each worker.
    pub session: ClientConfig,
    /// What becomes of transactions of several keys.
    pub transactions: Transactions,
    /// Whether it passes for a Redis Cluster.
    pub cluster: Cluster,
    /// How long a command may wait for a lane, a session or a snapshot before it fails.
    pub wait_max: Duration,
    /// Connections.
    pub max_clients: usize,
    /// Commands of one connection that are under way at a time.
    pub pipeline_max: usize,
    /// Bytes of one command. At most [`REPLY_BYTES_MAX`].
    pub command_bytes_max: usize,
    /// Bytes of replies that a connection may leave unread before its further commands wait.
    pub output_bytes_soft: usize,
    /// Bytes of replies that a connection may leave unread before it is closed; also the longest
    /// reply. At most [`REPLY_BYTES_MAX`].
    pub output_bytes_hard: usize,
    /// Bytes of all connections' buffers, per worker, beyond which the one that uses most is
    /// closed.
    pub client_bytes_max: usize,
    /// How long [`crate::Gateway::stop`] waits for outstanding replies.
    pub stop_wait_max: Duration,
}

impl Default for GatewayConfig {
    fn default() -> GatewayConfig {
        GatewayConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            tls: None,
            password: None,
            durability: Durability::EverySecond,
            spool_dir: None,
            spool_bytes_max: 512 << 20,
            client_id_base: 1,
            session: ClientConfig::default(),
            transactions: Transactions::default(),
            cluster: Cluster::default(),
            wait_max: Duration::from_secs(5),
            max_clients: 10_000,
            pipeline_max: 128,
            command_bytes_max: 64 << 20,
            output_bytes_soft: 1 << 20,
            output_bytes_hard: 256 << 20,
            client_bytes_max: 512 << 20,
            stop_wait_max: Duration::from_secs(2),
        }
    }
}
