//! What a rack is made of, and its times.

use std::str::FromStr;
use switchback_wire::{Address, Map, Scheme};

/// What admissions and evictions may cost on the control channel in a second on average, answers
/// included. 0: nothing is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct ControlBudget {
    pub messages_per_s: u64,
    pub bytes_per_s: u64,
}

/// Enough for 20,000 admissions a second and as many evictions, if none shared a message with
/// another one and all keys and values were as long as can be: 8 messages and 4,000 bytes each.
impl Default for ControlBudget {
    fn default() -> ControlBudget {
        ControlBudget { messages_per_s: 200_000, bytes_per_s: 100_000_000 }
    }
}

/// Whether clients preserve what switches in several failure domains have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preserve {
    /// They don't: any switch that is left has everything that was told.
    #[default]
    Auto,
    /// They do, so that it outlives all switches.
    Always,
}

impl Preserve {
    /// As rack.toml spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Preserve::Auto => "auto",
            Preserve::Always => "always",
        }
    }
}

impl FromStr for Preserve {
    type Err = String;
    fn from_str(word: &str) -> Result<Preserve, String> {
        match word {
            "auto" => Ok(Preserve::Auto),
            "always" => Ok(Preserve::Always),
            _ => Err(format!("\"{word}\" is neither \"auto\" nor \"always\"")),
        }
    }
}

/// What becomes of a chain when what it told may be lost: no switch that had it comes back, and
/// clients don't preserve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLoss {
    /// The loss is declared after a while, and the keys are served by what their nodes have.
    #[default]
    Declare,
    /// The keys are held until such a switch comes back.
    Hold,
}

impl OnLoss {
    /// As rack.toml spells it.
    pub const fn name(self) -> &'static str {
        match self {
            OnLoss::Declare => "declare",
            OnLoss::Hold => "hold",
        }
    }
}

impl FromStr for OnLoss {
    type Err = String;
    fn from_str(word: &str) -> Result<OnLoss, String> {
        match word {
            "declare" => Ok(OnLoss::Declare),
            "hold" => Ok(OnLoss::Hold),
            _ => Err(format!("\"{word}\" is neither \"declare\" nor \"hold\"")),
        }
    }
}

/// What a rack is made of, and its times.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Address of each node.
    pub nodes: Vec<Address>,
    /// How many chains of switches there are.
    pub chains: u16,
    /// How many layers there are: switches of a chain, if none is missing.
    pub layers: u8,
    /// Partitions, their replicas and chains, for a rack that is made now; an existing one keeps
    /// its own.
    pub map: Map,
    /// What the cache does.
    pub scheme: Scheme,
    /// Keys that the cache of each chain may hold.
    pub cache_records: usize,
    /// Cached keys that an eviction compares.
    pub eviction_sample: usize,
    /// Shortest time from one eviction to the next: those wanted meanwhile begin together.
    pub eviction_pause_us: u64,
    /// What admissions and evictions of all chains may cost on the control channel.
    pub control_budget: ControlBudget,
    /// Lanes in all, and for one session at most.
    pub lanes: (u32, u32),
    /// Lease of a session.
    pub lease_us: u64,
    /// How far the clocks of client and controller may drift apart during a lease.
    pub drift_us: u64,
    /// How long a recovery waits for a client that keeps its records on disk.
    pub spool_wait_us: u64,
    /// Bytes of preserved records that a recovery holds of one client. A client that sends more is
    /// given up, like one that doesn't answer, and what it alone preserves is lost: so this must be
    /// more than a client preserves. That is at most twice its `preserve_bytes_max`, beyond which
    /// it begins neither reads nor writes, and a record for each of its lanes.
    ///
    /// All clients together have no other limit: one client could use that up, and others would be
    /// given up for it. A recovery holds at most this for each session.
    pub gather_bytes_max: usize,
    /// Silence after which a switch counts as dead.
    pub switch_timeout_us: u64,
    /// The same, once its connection is lost.
    pub switch_lost_us: u64,
    /// Silence after which a node counts as dead: partitions that have another replica go on
    /// without it, for good.
    pub node_timeout_us: u64,
    /// How long a rack without any switch waits for one before its clients send to the nodes;
    /// `None`: they never do.
    pub bypass_us: Option<u64>,
    /// Time between two snapshots; `None`: only those that are asked for.
    pub snapshot_us: Option<u64>,
    /// First pause before a command is repeated.
    pub retry_us: u64,
    /// Whether clients preserve what switches in several failure domains have.
    pub preserve: Preserve,
    /// What becomes of a chain when what it told may be lost.
    pub on_loss: OnLoss,
    /// How long a recovery waits for a switch that has what was told, if clients don't preserve it
    /// and each that has it is silent.
    pub witness_wait_us: u64,
    /// For how long a chain goes on without a switch that lives, but that a neighbour doesn't hear
    /// or that doesn't hear a neighbour; each time for twice as long.
    pub link_pause_us: u64,
    /// How long nodes have to write out what only their logs have, before a backup is cut.
    pub backup_flush_us: u64,
}

impl Default for ControllerConfig {
    fn default() -> ControllerConfig {
        ControllerConfig {
            nodes: Vec::new(),
            chains: 1,
            layers: 1,
            map: Map::equal(vec![vec![0]]),
            scheme: Scheme::FarReach,
            cache_records: 65_536,
            eviction_sample: 8,
            eviction_pause_us: 5_000,
            control_budget: ControlBudget::default(),
            lanes: (65_536, 4_096),
            lease_us: 5_000_000,
            drift_us: 100_000,
            spool_wait_us: 60_000_000,
            gather_bytes_max: 2 << 30,
            switch_timeout_us: 500_000,
            switch_lost_us: 50_000,
            node_timeout_us: 500_000,
            bypass_us: Some(2_000_000),
            snapshot_us: Some(10_000_000),
            retry_us: 50_000,
            preserve: Preserve::default(),
            on_loss: OnLoss::default(),
            witness_wait_us: 30_000_000,
            link_pause_us: 60_000_000,
            backup_flush_us: 2_000_000,
        }
    }
}
