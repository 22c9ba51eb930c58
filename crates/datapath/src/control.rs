use crate::{Config, Neighbour, TableError, Verdict};
use switchback_wire::{Address, Heard, KeyHash, Map, Packet, Place};

/// What a switch's agent does to a datapath, wherever it runs: in this process or in the kernel.
///
/// Packets may be processed meanwhile.
pub trait Control {
    /// What it was made with.
    fn config(&self) -> &Config;

    /// Runs one of the agent's control packets; the answer (verdict [`Verdict::Reply`]) is in the
    /// same packet.
    fn inject(&self, packet: &mut Packet) -> Verdict;

    /// Makes packets of this key find the slot. Between ADMIT and SET_VALID.
    ///
    /// # Errors
    /// The key is there already, there is no room, or there is no such slot.
    fn lookup_insert(&self, hash: &KeyHash, class: u8, slot: u32) -> Result<(), TableError>;

    /// Takes the entry out again; false if the key isn't there, or at another slot. Before REMOVE.
    fn lookup_remove(&self, hash: &KeyHash, class: u8, slot: u32) -> bool;

    /// Says which partition has which keys, and its replicas. The epoch is 0 meanwhile, so that no
    /// packet is routed by parts of two maps.
    ///
    /// # Errors
    /// A map for which there is no room, or with other nodes; the one before stays.
    fn set_map(&self, map: &Map) -> Result<(), TableError>;

    /// Says where a node is; answers are taken only from nodes' addresses.
    ///
    /// # Panics
    /// If the node's index isn't below [`Config::nodes`].
    fn set_node(&self, node: u16, address: Address);

    /// Says which place the switch has in its chain; the only one's until then. The epoch is 0
    /// meanwhile, so that no packet meets parts of two places.
    ///
    /// # Errors
    /// A place that no switch of this scheme can have; the one before stays.
    fn set_place(&self, place: &Place) -> Result<(), TableError>;

    /// Where a neighbour in the chain is; `None` if the switch has none there.
    fn neighbour(&self, neighbour: Neighbour) -> Option<Address>;

    /// Grants the lanes below this, as far as there is room for them ([`Config::lanes`]); packets
    /// of others are dropped.
    fn set_lanes(&self, granted: u32);

    /// Says how keys are counted from now on: a share of the packets (0 to 1), from which estimate
    /// on a key is hot, and how many hot keys nodes are told of. How many were left of those
    /// before. Any thread.
    fn set_counting(&self, sampling: f64, threshold: u32, offers: u32) -> u32;

    /// Takes the next report; false if there is none. Any thread.
    fn next_report(&self, packet: &mut Packet) -> bool;

    /// Requests that missed the cache, since the datapath was made.
    fn misses(&self) -> u64;

    /// Reads, writes and deletes that came, since the datapath was made.
    fn requests(&self) -> u64;

    /// How much of the epoch's sequence numbers the fullest bucket has used, in 256ths; 0 below
    /// half.
    fn sequence_used(&self) -> u32;

    /// How many probes its neighbours in the chain have sent that arrived, since the datapath was
    /// made.
    fn heard(&self) -> Heard;

    /// Why it can't be driven any more, if so: a system call failed that should have changed or
    /// read its state, which is not what the agent knows since. It serves nothing then, and takes
    /// no changes. One in this process makes no such calls.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// Forgets everything cached: lookup table, records, sketch, counters, completions, sequence
    /// counters, reports, generations. The map, nodes, granted lanes and statistics stay.
    ///
    /// First the epoch becomes 0, which refuses every packet. A packet that was let in before looks
    /// at the epoch again once it has locked its lane or record. This takes each of these locks
    /// once, so it waits for packets that are being processed, and no change of the old epoch comes
    /// after it. Serving begins again with SET_EPOCH, which must name a later epoch, since sequence
    /// counters begin anew.
    fn clear(&self);
}
