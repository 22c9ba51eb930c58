//! What is explored: what each client does, and how many faults there are.

use crate::ablation::Mechanism;
use crate::state::{CHAINS_MAX, CLIENTS_MAX, LAYERS_MAX, OPERATIONS_MAX};

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `R`
    Read,
    /// `W`
    Write,
    /// `D`: a write of a tombstone.
    Delete,
    /// `E`: a write that expires at the one moment at which anything does.
    Expiring,
    /// `C`: a write upon the version that the client saw last; none: upon an absent key.
    Conditional,
}

/// Who can give back what an epoch told if its owner dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Its clients, which preserve it; other switches, as long as one lives.
    Clients,
    /// Its other switches alone.
    Switches,
}

/// A configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The operations of each client, one after another.
    pub clients: Vec<Vec<Kind>>,
    /// Switches of a chain: an owner, and a keeper in each layer before it.
    pub layers: usize,
    /// How often the node may offer the key.
    pub admissions: u8,
    /// How often the controller may evict it.
    pub evictions: u8,
    /// How often switches may die, and run on as zombies.
    pub crashes: u8,
    /// How often all switches may be exchanged while they live.
    pub changes: u8,
    /// How often the chain may be drained and then exchanged for one of other switches.
    pub hand_overs: u8,
    /// How often the key's partition may move to another chain: at most once.
    pub moves: u8,
    /// How often another chain, which serves other keys, may be recovered.
    pub other_recoveries: u8,
    /// Who protects each epoch, one after another; the last one stands for all later ones. Empty:
    /// clients protect a chain of one switch, and switches a longer one.
    pub protection: Vec<Protection>,
    /// All switches of an epoch may die though they alone protect it: then the loss is declared.
    pub declares: bool,
    /// How often a dirty record may be stored and marked as clean.
    pub cleanings: u8,
    /// How many snapshots may be taken.
    pub snapshots: u8,
    /// How often the node may restart.
    pub node_restarts: u8,
    /// How often the controller may restart.
    pub controller_restarts: u8,
    /// How often the node's floor may rise within an epoch; clients may give up then.
    pub floor_rises: u8,
    /// Clients may give operations up.
    pub gives_up: bool,
    /// Numbers that a switch gives out at most.
    pub counter_max: u8,
    /// A write looks the record up some time after it took its number.
    pub two_cores: bool,
    /// What is left out.
    pub without: Vec<Mechanism>,
    /// Only what clients see counts, not yet that it could be lost.
    pub only_seen: bool,
    /// Keep packets that can't matter any more: the same states, only more of them.
    pub keeps_dead_packets: bool,
}

impl Config {
    /// One switch, one admission and one eviction, and these operations: `WR,R` is a client that
    /// writes and reads, and one that reads.
    pub fn of(operations: &str) -> Result<Config, String> {
        let clients = operations.split(',').map(client).collect::<Result<Vec<_>, _>>()?;
        if clients.len() > CLIENTS_MAX {
            return Err(format!(
                "{operations}: {} clients, and {CLIENTS_MAX} are possible",
                clients.len()
            ));
        }
        let (layers, counter_max) = (1, 8);
        Ok(Config {
            clients,
            layers,
            admissions: 1,
            evictions: 1,
            counter_max,
            ..Config::default()
        })
    }

    /// Whether the rules include a mechanism.
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        !self.without.contains(&mechanism)
    }

    /// The owner's place in its chain, counted from the clients: those before it are keepers.
    pub(crate) fn owner(&self) -> usize {
        assert!((1..=LAYERS_MAX).contains(&self.layers), "a chain of {} layers", self.layers);
        self.layers - 1
    }

    /// Whether what the owner tells is kept by other switches.
    pub(crate) fn has_keepers(&self) -> bool {
        self.owner() > 0
    }

    /// Whether clients preserve what the chain at this place in time tells them.
    pub(crate) fn is_preserved(&self, chain: usize) -> bool {
        match self.protection.get(chain).or(self.protection.last()) {
            Some(protection) => *protection == Protection::Clients,
            None => !self.has_keepers(),
        }
    }

    /// Whether clients preserve anything in any epoch.
    pub(crate) fn has_preserved(&self) -> bool {
        (0..CHAINS_MAX).any(|chain| self.is_preserved(chain))
    }

    /// Whether there is a second chain.
    pub(crate) fn has_other_chain(&self) -> bool {
        self.moves > 0 || self.other_recoveries > 0
    }

    /// All switches of a chain, a bit each.
    pub(crate) fn members(&self) -> u8 {
        (1 << self.layers) - 1
    }

    /// What a client's request is; the one after its last counts as a read.
    pub(crate) fn kind(&self, client: u8, request: u8) -> Kind {
        let operations = &self.clients[usize::from(client)];
        operations.get(usize::from(request) - 1).copied().unwrap_or(Kind::Read)
    }

    /// Whether a later operation of the client needs the version that it saw.
    pub(crate) fn next_is_conditional(&self, client: u8, request: u8) -> bool {
        let later = &self.clients[usize::from(client)][usize::from(request)..];
        later.contains(&Kind::Conditional)
    }

    /// Whether a value is that of a delete.
    pub(crate) fn is_tombstone(&self, value: u8) -> bool {
        self.wrote(value) == Some(Kind::Delete)
    }

    /// Whether a value expires.
    pub(crate) fn expires(&self, value: u8) -> bool {
        self.wrote(value) == Some(Kind::Expiring)
    }

    /// Whether anything does.
    pub(crate) fn has_expiring(&self) -> bool {
        self.clients.iter().flatten().any(|kind| *kind == Kind::Expiring)
    }

    fn wrote(&self, value: u8) -> Option<Kind> {
        let at = usize::from(value).checked_sub(1)?;
        Some(self.clients[at / OPERATIONS_MAX][at % OPERATIONS_MAX])
    }
}

fn client(operations: &str) -> Result<Vec<Kind>, String> {
    let kind = |letter| match letter {
        'R' => Ok(Kind::Read),
        'W' => Ok(Kind::Write),
        'D' => Ok(Kind::Delete),
        'E' => Ok(Kind::Expiring),
        'C' => Ok(Kind::Conditional),
        _ => Err(format!(
            "{operations}: '{letter}' is none of R (read), W (write), D (delete), E (write that expires), C (conditional write)"
        )),
    };
    let kinds = operations.chars().map(kind).collect::<Result<Vec<_>, _>>()?;
    if kinds.is_empty() || kinds.len() > OPERATIONS_MAX {
        return Err(format!("'{operations}': a client has 1 to {OPERATIONS_MAX} operations"));
    }
    Ok(kinds)
}
