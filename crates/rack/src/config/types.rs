//! What a configuration says, as plain data.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use switchback_core::controller::{ControlBudget, OnLoss, Preserve};
use switchback_engine::{Kind, Options};
use switchback_gateway::{Cluster, TlsFiles, Transactions};
use switchback_wire::{CACHED_VALUE_BYTES_MAX, Scheme};

/// An enumeration whose members have one spelling in `rack.toml` and on the command line.
macro_rules! choice {
    (
        $(#[$doc:meta])* $name:ident, $what:literal {
            $($(#[$member_doc:meta])* $member:ident = $text:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum $name { $($(#[$member_doc])* $member),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$member),+];

            /// As files and the command line spell it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$member => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                let found = $name::ALL.iter().find(|choice| choice.name() == text);
                found.copied().ok_or_else(|| {
                    let names: Vec<_> =
                        $name::ALL.iter().map(|choice| format!("\"{choice}\"")).collect();
                    format!(
                        concat!("\"{}\" is no ", $what, ": it is one of {}"),
                        text.escape_debug(),
                        names.join(", ")
                    )
                })
            }
        }
    };
}

choice! {
    /// When the gateway's spool of absorbed writes is forced to the disk; Redis' `appendfsync`, in
    /// its words.
    Durability, "durability" {
        /// Before the answer: survives loss of power.
        Always = "always",
        /// Written before the answer, forced to the disk each second: survives `kill -9`, loses at
        /// most a second with the power.
        Everysec = "everysec",
        /// No spool: what the cache absorbed since the last snapshot dies with the process.
        Memory = "memory",
    }
}

choice! {
    /// When a node forces its log to the disk.
    SyncChoice, "sync policy" {
        /// Before it answers: survives loss of power.
        Always = "always",
        /// Once a second; what the cache lets go of before that is forgotten elsewhere.
        EverySec = "everysec",
        /// When the operating system likes: survives the end of the process, not of the machine.
        None = "none",
    }
}

choice! {
    /// How the parts of an embedded rack are connected.
    LinkKind, "kind of links" {
        /// Queues in memory that carry the same packets.
        Memory = "memory",
        /// Real loopback sockets.
        Udp = "udp",
    }
}

choice! {
    /// How a rack is deployed.
    Shape, "shape" {
        /// Everything in one process (`switchback up`).
        Embedded = "embedded",
        /// One process a part; described by a file that lists a `[[switch]]`.
        Distributed = "distributed",
    }
}

choice! {
    /// What web pages may do.
    ConsoleAccess, "access" {
        /// There is no console.
        Off = "off",
        /// Look.
        Read = "read",
        /// Command as well, with the console's token.
        Control = "control",
    }
}

choice! {
    /// What is told of keys over HTTP.
    KeyNames, "form of keys" {
        /// Their names.
        Names = "names",
        /// The beginning of their hashes, which are keyed.
        Hash = "hash",
    }
}

/// A whole rack, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct RackConfig {
    /// Distributed iff the file lists a `[[switch]]`.
    pub shape: Shape,
    /// `[rack]`
    pub rack: Rack,
    /// `[cache]`
    pub cache: Cache,
    /// `[controller]`
    pub controller: Controller,
    /// `[topology]`
    pub topology: Topology,
    /// `[[switch]]`: none in an embedded rack; one serves each chain, the others are spares.
    pub switches: Vec<Switch>,
    /// `[[node]]`, never empty.
    pub nodes: Vec<Node>,
    /// `[gateway]`
    pub gateway: Gateway,
    /// `[client]`
    pub client: Client,
    /// `[console]`
    pub console: Console,
    /// `[links]`
    pub links: Links,
}

/// `[rack]`: what all parts have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Rack {
    /// Names the rack in status and metrics.
    pub name: String,
    /// Which policy it runs.
    pub scheme: Scheme,
    /// Parts of the hash space, a power of two.
    pub partitions: u32,
    /// How many nodes have each of them.
    pub replication: u16,
    /// Where everything is kept that has no directory of its own.
    pub data: PathBuf,
    /// Metrics and administration over HTTP: of the whole embedded rack, or of the controller's
    /// process.
    pub metrics: SocketAddr,
    /// Host names by which HTTP requests may ask for them, besides IP addresses and `localhost`; of
    /// every process.
    pub metrics_hosts: Vec<String>,
    /// How long a client may accept answers after it was last heard.
    pub lease_ms: u64,
    /// Between two signs of life.
    pub heartbeat_ms: u64,
    /// A switch that is silent for longer is dead.
    pub switch_timeout_ms: u64,
    /// Between two snapshots of the cache; 0: none but those that are asked for.
    pub snapshot_period_ms: u64,
    /// Whether clients preserve what switches in several failure domains have.
    pub preserve: Preserve,
    /// What becomes of a chain when what it told may be lost.
    pub on_loss: OnLoss,
    /// How long a shutdown may take to bring every cached record to its node.
    pub drain_timeout_ms: u64,
}

/// `[topology]`: how switches share the keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Topology {
    /// Chains of switches, each of which serves its own keys: as many serve at a time.
    pub chains: u16,
    /// Switches that a request of a chain passes, one of each layer.
    pub layers: u8,
}

/// `[cache]`: what a switch caches.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// Records at a time, at most.
    pub records: u32,
    /// Slots: `(value bytes, slots)`, rising in size.
    pub classes: Vec<(u32, u32)>,
    /// Hot keys that nodes are told of in a second, at most.
    pub admissions_per_s: u32,
    /// What admissions and evictions may cost on the control channel.
    pub control_budget: ControlBudget,
    /// Packets that are counted in a second, at most.
    pub counted_per_s: u32,
    /// How many times a key was counted that is hot, at least.
    pub threshold: u32,
    /// Share of the packets that are counted, at most.
    pub sampling: f64,
    /// Cached records that are compared to find one that is to go.
    pub eviction_sample: u32,
    /// All counts are halved at least this often.
    pub ageing_period_ms: u64,
    /// Counters in each of the sketch's four rows, a power of two.
    pub sketch_width: u32,
    /// How long an absorbed write may stay in switches alone; 0: as long as its key is cached.
    pub dirty_max_ms: u64,
}

/// `[controller]`
#[derive(Clone, PartialEq, Debug)]
pub struct Controller {
    /// Where the control channel listens.
    pub listen: SocketAddr,
    /// Directory, snapshots.
    pub data: PathBuf,
    /// Lanes of all sessions together: what the switch keeps completions for.
    pub lanes: u32,
    /// How long a recovery waits for a client that keeps its records on disk.
    pub spool_wait_ms: u64,
    /// How long a recovery waits for a silent switch that has what was told, if clients don't
    /// preserve it.
    pub witness_wait_ms: u64,
    /// How long a rack without any switch waits for one before clients send to the nodes; 0: for
    /// ever.
    pub bypass_ms: u64,
}

/// One `[[switch]]` of a distributed rack.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// Where clients, nodes and its neighbours send packets.
    pub address: SocketAddr,
    /// Its layer of a chain, from 1 next to the clients.
    pub layer: u8,
    /// What it fails together with: the host of its address, unless another name is given.
    pub domain: String,
    /// Metrics of this process, if wanted.
    pub metrics: Option<SocketAddr>,
}

/// One `[[node]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Where the switch sends packets; always there in a distributed rack.
    pub address: Option<SocketAddr>,
    /// Its records.
    pub data: PathBuf,
    /// What keeps its records; the same in all nodes.
    pub engine: &'static Kind,
    /// When its log is forced to the disk.
    pub sync: SyncChoice,
    /// The engine's own settings.
    pub options: Options,
    /// Metrics of this process, if wanted.
    pub metrics: Option<SocketAddr>,
}

/// `[gateway]`: the Redis protocol.
#[derive(Clone, PartialEq, Debug)]
pub struct Gateway {
    /// Where it listens.
    pub resp: SocketAddr,
    /// TLS, if clients are to speak it.
    pub tls: Option<GatewayTls>,
    /// Metrics of its process in a distributed rack, if wanted.
    pub metrics: Option<SocketAddr>,
    /// Threads; 0: one for two cores, at most 8.
    pub workers: u32,
    /// When absorbed writes are on disk.
    pub durability: Durability,
    /// Where they are.
    pub spool: PathBuf,
    /// The spool of a worker is rewritten, with only the newest version of each key, once it is
    /// larger.
    pub spool_max_mb: u32,
    /// What AUTH asks for, if anything.
    pub password: Option<String>,
    /// Connections at a time.
    pub max_clients: u32,
    /// Commands of one connection that are under way at a time; further ones wait.
    pub pipeline_max: u32,
    /// What becomes of transactions of several keys.
    pub transactions: Transactions,
    /// Whether the gateway passes for a Redis Cluster.
    pub cluster: Cluster,
    /// How long a command may wait for a lane, a session or a snapshot before it fails.
    pub wait_ms: u64,
    /// Replies that a connection may leave unread before it is closed; also the longest reply.
    pub unread_max_mb: u32,
    /// Buffers of all connections of a worker, beyond which the connection that uses most is
    /// closed.
    pub buffers_max_mb: u32,
}

/// TLS of the gateway.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayTls {
    /// Where it listens beside `resp`, which is plain text then. `None`: `resp` speaks TLS.
    pub resp: Option<SocketAddr>,
    /// Certificates and key.
    pub files: TlsFiles,
}

/// `[client]`: sessions of the gateway and of the client library.
#[derive(Clone, PartialEq, Debug)]
pub struct Client {
    /// Requests outstanding at a time, a session.
    pub lanes: u32,
    /// After this a read fails and the outcome of a write is indeterminate.
    pub deadline_ms: u64,
    /// Shortest and longest wait before a request is sent again.
    pub retry_ms: (u64, u64),
    /// Absorbed records kept until they are durable elsewhere; beyond it writes wait for a
    /// snapshot.
    pub preserve_max_mb: u32,
    /// Large values under way; beyond it large operations wait.
    pub large_max_mb: u32,
}

/// `[console]`: what web pages are told and may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Console {
    /// What they may do.
    pub access: ConsoleAccess,
    /// What every answer over HTTP says of keys.
    pub keys: KeyNames,
}

/// `[links]`: between the parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Links {
    /// Of an embedded rack; a distributed one always has sockets.
    pub kind: LinkKind,
    /// What is asked of the kernel for each socket.
    pub receive_buffer_kb: u32,
    /// What is asked of the kernel for each socket.
    pub send_buffer_kb: u32,
}

/// What the command line says; it wins over the file.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)] // Each is the field of the same name above.
pub struct Overrides {
    pub scheme: Option<Scheme>,
    pub nodes: Option<u16>,
    pub data: Option<PathBuf>,
    pub resp: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub durability: Option<Durability>,
    pub password: Option<String>,
    pub links: Option<LinkKind>,
    pub cache_records: Option<u32>,
    pub sync: Option<SyncChoice>,
    pub workers: Option<u32>,
    pub chains: Option<u16>,
    pub layers: Option<u8>,
    pub replication: Option<u16>,
}

impl Cache {
    /// The classes of a cache of `records`, when nothing is said about its values. Half of
    /// Twitter's values have up to 224 bytes, a quarter more than 1 KB; small records may use
    /// larger slots, so any mix of values up to 128 bytes finds `records` slots.
    pub fn classes_for(records: u32) -> Vec<(u32, u32)> {
        let share = |part: u32| (records / part).max(1);
        vec![
            (128, share(1)),
            (256, share(2)),
            (512, share(4)),
            (CACHED_VALUE_BYTES_MAX as u32, share(4)),
        ]
    }

    /// Classes that hold `records` values of exactly `value_bytes` each, for benchmarks.
    pub fn classes_of_one_size(records: u32, value_bytes: u32) -> Vec<(u32, u32)> {
        vec![(value_bytes.clamp(1, CACHED_VALUE_BYTES_MAX as u32).next_multiple_of(8), records)]
    }
}
