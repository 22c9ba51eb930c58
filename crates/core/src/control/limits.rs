//! What a message that arrived may hold. A peer is another process: its bytes are checked once,
//! here, so that the state machines can rely on it.

use super::*;
use crate::topology::{CHAINS_MAX, ChainId, ChainMap};
use switchback_wire::{
    CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX, EPOCH_MAX, KEY_BYTES_MAX, LAYERS_MAX,
    PARTITIONS_MAX, REPLICAS_MAX, VALUE_BYTES_MAX,
};
use thiserror::Error;

/// Candidates of one eviction.
const CANDIDATES_MAX: usize = 1 << 13;
/// Slot classes of a switch.
const CLASSES_MAX: usize = 16;
/// Slots of one class, as many as a place in the datapath's table can name.
const SLOTS_MAX: u32 = (1 << 30) - 2;
/// Nodes of a rack: each has a partition.
const NODES_MAX: usize = PARTITIONS_MAX;
/// Lanes of a rack.
pub(crate) const LANES_MAX: u32 = 1 << 24;
/// Bytes of the name of a switch's domain.
pub const DOMAIN_BYTES_MAX: usize = 64;
/// Bytes of a text that says what went wrong.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Why a message that arrived is refused.
#[derive(Debug, Error)]
pub enum Malformed {
    /// It is no message.
    #[error("not a message of Switchback: {0}")]
    Encoding(#[from] postcard::Error),
    /// It is one that no part of this version sends.
    #[error("a message whose {0} is outside its limits")]
    Limit(&'static str),
}

pub(crate) type Checked = Result<(), Malformed>;

pub(crate) fn check(holds: bool, what: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(Malformed::Limit(what)) }
}

/// A list that is short enough, each item of which is in order.
pub(crate) fn list<T>(
    items: &[T],
    limit: usize,
    what: &'static str,
    each: impl Fn(&T) -> Checked,
) -> Checked {
    check(items.len() <= limit, what)?;
    items.iter().try_for_each(each)
}

fn batch<T>(items: &[T], each: impl Fn(&T) -> Checked) -> Checked {
    list(items, BATCH_MAX, "number of items", each)
}

pub(crate) fn any<T>(_: &T) -> Checked {
    Ok(())
}

pub(crate) fn key(key: &[u8]) -> Checked {
    check((1..=KEY_BYTES_MAX).contains(&key.len()), "length of a key")
}

pub(crate) fn record(record: &Record) -> Checked {
    check(record.value.len() <= VALUE_BYTES_MAX, "length of a value")
}

fn keyed(keyed: &KeyedRecord) -> Checked {
    key(&keyed.key).and_then(|()| record(&keyed.record))
}

/// A record that was in the cache.
fn cached(keyed: &KeyedRecord) -> Checked {
    key(&keyed.key)?;
    check(keyed.key.len() <= CACHED_KEY_BYTES_MAX, "length of a cached key")?;
    check(keyed.record.value.len() <= CACHED_VALUE_BYTES_MAX, "length of a cached value")
}

fn evicted((_, stored): &(EntryId, Option<Record>)) -> Checked {
    stored.as_ref().map_or(Ok(()), record)
}

/// What the switch holds of an entry.
fn held((_, held): &(EntryId, Record)) -> Checked {
    check(held.value.len() <= CACHED_VALUE_BYTES_MAX, "length of a cached value")
}

fn entry(entry: &Entry) -> Checked {
    // The next one has a number, too.
    check(entry.id <= EntryId::MAX >> 1, "incarnation")?;
    key(&entry.key)
}

fn inspected(inspected: &Inspected) -> Checked {
    let bytes_max = CACHED_KEY_BYTES_MAX + CACHED_VALUE_BYTES_MAX;
    check(inspected.bytes as usize <= bytes_max, "length of a cached record")
}

fn epoch(epoch: u32) -> Checked {
    check(epoch <= EPOCH_MAX, "epoch")
}

fn text(text: &Option<String>) -> Checked {
    check(text.as_ref().is_none_or(|text| text.len() <= TEXT_BYTES_MAX), "text")
}

fn lanes(lanes: u32) -> Checked {
    check(lanes <= LANES_MAX, "number of lanes")
}

fn chain(chain: ChainId) -> Checked {
    check(chain.is_possible(), "chain")
}

fn layer(layer: u8) -> Checked {
    check((1..=LAYERS_MAX).contains(&layer), "layer")
}

/// A map of chains that there may be.
fn chains_of(map: &Map) -> Checked {
    check(ChainMap::from(map).is_plausible(), "chain of a partition")
}

/// Something of each chain.
fn each_chain<T>(chains: &ByChain<T>, each: impl Fn(&T) -> Checked) -> Checked {
    check(chains.chains() <= CHAINS_MAX, "number of chains")?;
    chains.iter().try_for_each(|(_, it)| each(it))
}

/// Views of partitions that there may be.
fn views(views: &[View]) -> Checked {
    list(views, PARTITIONS_MAX, "number of views", |view| {
        check((1..=REPLICAS_MAX).contains(&view.replicas.len()), "replicas of a partition")
    })
}

/// Nodes, among which are all that the map names.
fn nodes_of(map: &Map, nodes: &[Address]) -> Checked {
    chains_of(map)?;
    check(nodes.len() <= NODES_MAX, "number of nodes")?;
    check(map.nodes() <= nodes.len(), "replica of a partition")
}

fn classes(classes: &[(u32, u32)]) -> Checked {
    let rises = classes.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let fits = |&(value_bytes, slots): &(u32, u32)| {
        (1..=CACHED_VALUE_BYTES_MAX).contains(&(value_bytes as usize)) && slots <= SLOTS_MAX
    };
    check(classes.len() <= CLASSES_MAX && rises && classes.iter().all(fits), "list of slot classes")
}

fn destination(destination: &Destination) -> Checked {
    match destination {
        Destination::Switch(_) => Ok(()),
        Destination::Nodes { map, nodes } => nodes_of(map, nodes),
    }
}

impl Message {
    /// Takes over the bytes of a message that arrived.
    ///
    /// # Errors
    /// Bytes that are no message, and messages that no part of this version would send.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let message: Message = postcard::from_bytes(bytes)?;
        message.check()?;
        Ok(message)
    }

    /// The version of the control channel that brought it. A part that speaks an older one can't
    /// read it.
    pub fn since(&self) -> u16 {
        let with_views = |map: &Map| if map.is_first() { *VERSIONS.start() } else { VIEWS_VERSION };
        match self {
            Message::ToSwitch(command) => match &command.body {
                SwitchCommand::Configure(config) | SwitchCommand::Freeze(config) => {
                    with_views(&config.map)
                }
                SwitchCommand::Views(_) => VIEWS_VERSION,
                _ => *VERSIONS.start(),
            },
            Message::ToNode(command) => match &command.body {
                NodeCommand::Epoch(config) => with_views(&config.map),
                NodeCommand::Views(_) | NodeCommand::Joins { .. } | NodeCommand::Begin => {
                    VIEWS_VERSION
                }
                NodeCommand::FlushSoon | NodeCommand::Checkpoint(_) => BACKUPS_VERSION,
                _ => *VERSIONS.start(),
            },
            Message::FromNode(NodeReport::Join { .. }) => VIEWS_VERSION,
            Message::ToClient(
                ClientNotice::Hold { .. }
                | ClientNotice::Resume { .. }
                | ClientNotice::Released { .. },
            )
            | Message::FromClient(ClientReport::Holding { .. }) => BACKUPS_VERSION,
            _ => *VERSIONS.start(),
        }
    }

    /// Whether a part of this version would send it.
    ///
    /// # Errors
    /// What is outside its limits.
    pub fn check(&self) -> Result<(), Malformed> {
        match self {
            Message::ToSwitch(command) => command.check(SwitchCommand::check),
            Message::ToNode(command) => command.check(NodeCommand::check),
            Message::ToClient(notice) => notice.check(),
            Message::FromSwitch(report) => report.check(),
            Message::FromNode(report) => report.check(),
            Message::FromClient(report) => report.check(),
        }
    }
}

impl<T> Command<T> {
    fn check(&self, body: impl Fn(&T) -> Checked) -> Checked {
        chain(self.chain)?;
        epoch(self.epoch)?;
        body(&self.body)
    }
}

impl SwitchCommand {
    fn check(&self) -> Checked {
        match self {
            SwitchCommand::Configure(config) | SwitchCommand::Freeze(config) => {
                check(config.place.is_sound(), "place in the chain")?;
                lanes(config.lanes)?;
                nodes_of(&config.map, &config.nodes)
            }
            SwitchCommand::Lanes(count) => lanes(*count),
            SwitchCommand::Admit(entries) => batch(entries, entry),
            SwitchCommand::EvictBegin { candidates, counts, .. } => {
                list(candidates, CANDIDATES_MAX, "number of candidates", any)?;
                list(counts, CANDIDATES_MAX, "number of counts", any)
            }
            SwitchCommand::Remove(entries) | SwitchCommand::Inspect(entries) => batch(entries, any),
            SwitchCommand::Clean(versions) => batch(versions, any),
            SwitchCommand::Views(its) => views(its),
            SwitchCommand::NodeAddress(..)
            | SwitchCommand::Snapshot { .. }
            | SwitchCommand::DurableGeneration(_)
            | SwitchCommand::LoadFrozen(_)
            | SwitchCommand::ListEntries(_) => Ok(()),
        }
    }
}

impl SwitchReport {
    fn check(&self) -> Checked {
        match self {
            SwitchReport::Hello {
                epoch: its,
                layer: its_layer,
                domain,
                classes: its_classes,
                address,
                ..
            } => {
                // Its neighbours and clients are told where it is.
                check(address.port != 0, "a switch's address")?;
                layer(*its_layer)?;
                check(domain.len() <= DOMAIN_BYTES_MAX, "a switch's domain")?;
                epoch(*its).and_then(|()| classes(its_classes))
            }
            SwitchReport::Done { result, .. } => match result {
                SwitchResult::Admitted { refused } => batch(refused, any),
                SwitchResult::Evicting(evicting) => batch(evicting, evicted),
                SwitchResult::Entries(entries, _) => batch(entries, entry),
                SwitchResult::Frozen(records, _) => batch(records, cached),
                SwitchResult::Inspected(entries) => batch(entries, inspected),
                SwitchResult::Ok | SwitchResult::Busy => Ok(()),
            },
            SwitchReport::EvictMe { entries, .. } => batch(entries, evicted),
            SwitchReport::Dirty { records, .. } => batch(records, held),
            SwitchReport::SnapshotChunk { records, .. } => batch(records, cached),
            SwitchReport::SnapshotEnd { .. } | SwitchReport::Heard { .. } => Ok(()),
        }
    }
}

impl NodeCommand {
    fn check(&self) -> Checked {
        match self {
            NodeCommand::Epoch(config) => lanes(config.lanes).and_then(|()| chains_of(&config.map)),
            NodeCommand::Views(its) => views(its),
            NodeCommand::Joins { joins, .. } => list(joins, PARTITIONS_MAX, "number of joins", any),
            NodeCommand::Store(records) => batch(records, keyed),
            NodeCommand::OfferKeys(keys) => batch(keys, |(_, named)| key(named)),
            NodeCommand::RegisterCopies(copies) => batch(copies, |copy| {
                check(copy.switch.port != 0, "a switch's address").and_then(|()| key(&copy.key))
            }),
            NodeCommand::ClearOffers(offers) | NodeCommand::OffersHeld(offers) => {
                batch(offers, any)
            }
            NodeCommand::Release { .. }
            | NodeCommand::OfferAgain
            | NodeCommand::Begin
            | NodeCommand::FlushSoon
            | NodeCommand::Checkpoint(_) => Ok(()),
        }
    }
}

impl NodeReport {
    fn check(&self) -> Checked {
        match self {
            NodeReport::Hello { chains, failure, .. } => {
                each_chain(chains, |standing| epoch(standing.epoch))?;
                text(failure)
            }
            NodeReport::Done { chain: its, error, .. } => chain(*its).and_then(|()| text(error)),
            NodeReport::Offers { offers, .. } => batch(offers, |offer| key(&offer.key)),
            NodeReport::Join { epoch: its, .. } => epoch(*its),
        }
    }
}

impl ClientNotice {
    fn check(&self) -> Checked {
        match self {
            ClientNotice::Granted(grant) => grant.check(),
            ClientNotice::Move { chain: its, to, served } => {
                chain(*its)?;
                check(served.is_plausible(), "map of the chains")?;
                to.check()
            }
            ClientNotice::Quiesce { chain: its, epoch: of }
            | ClientNotice::Released { chain: its, epoch: of }
            | ClientNotice::Hold { chain: its, epoch: of, .. } => {
                chain(*its).and_then(|()| epoch(*of))
            }
            ClientNotice::Spine { chain: its, epoch: of, switch } => {
                check(switch.port != 0, "a switch's address")?;
                chain(*its).and_then(|()| epoch(*of))
            }
            ClientNotice::Gathered { .. } | ClientNotice::Resume { .. } => Ok(()),
        }
    }
}

impl ChainGrant {
    fn check(&self) -> Checked {
        epoch(self.epoch)?;
        destination(&self.destination)
    }
}

impl Grant {
    fn check(&self) -> Checked {
        each_chain(&self.chains, |granted| granted.as_ref().map_or(Ok(()), ChainGrant::check))?;
        let is_granted = |chain: ChainId| self.chains.get(chain).is_some();
        check(
            self.served.is_plausible() && self.served.chains().all(is_granted),
            "map of the chains",
        )?;
        lanes(self.lanes)?;
        check(self.lane_first <= LANES_MAX, "first lane")?;
        // A lane counts its requests from here on.
        check(self.request_base <= u64::MAX >> 1, "first request")
    }
}

impl ClientReport {
    fn check(&self) -> Checked {
        match self {
            ClientReport::Preserved { records, .. } => batch(records, keyed),
            ClientReport::Hello { epochs, .. } => each_chain(epochs, any),
            ClientReport::Quiet { epoch: of } | ClientReport::Holding { epoch: of, .. } => {
                epoch(*of)
            }
            ClientReport::Close { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::Partition;

    fn refused(message: &Message) -> bool {
        let bytes = postcard::to_stdvec(message).expect("plain data has an encoding");
        match Message::decode(&bytes) {
            Ok(decoded) => {
                assert_eq!(decoded, *message);
                false
            }
            Err(error) => matches!(error, Malformed::Limit(_)),
        }
    }

    fn preserved(records: usize, key_bytes: usize) -> Message {
        let record = Record { value: vec![0; 8], ..Record::default() };
        let keyed = KeyedRecord { hash: KeyHash::default(), key: vec![0; key_bytes], record };
        let records = vec![keyed; records];
        Message::FromClient(ClientReport::Preserved { epoch: 1, chunk: 0, last: true, records })
    }

    #[test]
    fn parts_that_know_no_views_get_no_map_that_has_some() {
        let epoch = |map: Map| {
            let config = NodeConfig {
                hash_key: HashKey([0; 16]),
                map,
                switch: None,
                lanes: 1,
                refresh: Refresh::None,
            };
            let body = NodeCommand::Epoch(config);
            Message::ToNode(Command { id: 1, chain: ChainId::new(0), epoch: 1, body }).since()
        };
        assert_eq!(epoch(Map::equal(vec![vec![0], vec![1]])), *VERSIONS.start());
        assert_eq!(epoch(Map::equal(vec![vec![0, 1], vec![1]])), VIEWS_VERSION);
        let view = View { partition: 1, number: 1, replicas: vec![0] };
        let changed = Map::equal(vec![vec![0], vec![1]]).with_views([&view]).expect("a map");
        assert_eq!(epoch(changed), VIEWS_VERSION);
    }

    #[test]
    fn a_batch_and_its_keys_have_limits() {
        assert!(!refused(&preserved(BATCH_MAX, KEY_BYTES_MAX)));
        assert!(refused(&preserved(BATCH_MAX + 1, 1)));
        assert!(refused(&preserved(1, KEY_BYTES_MAX + 1)) && refused(&preserved(1, 0)));
    }

    #[test]
    fn a_snapshot_has_records_that_were_cached() {
        let chunk = |key_bytes, value_bytes| {
            let record = Record { value: vec![0; value_bytes], ..Record::default() };
            let records =
                vec![KeyedRecord { hash: KeyHash::default(), key: vec![0; key_bytes], record }];
            Message::FromSwitch(SwitchReport::SnapshotChunk {
                epoch: 1,
                generation: 1,
                index: 0,
                records,
            })
        };
        assert!(!refused(&chunk(CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX)));
        assert!(
            refused(&chunk(CACHED_KEY_BYTES_MAX + 1, 0))
                && refused(&chunk(1, CACHED_VALUE_BYTES_MAX + 1))
        );
    }

    #[test]
    fn an_inspection_has_records_that_a_switch_can_hold() {
        let told = |entries, bytes| {
            let inspected = Inspected { id: 1, count: u32::MAX, dirty: true, bytes };
            let result = SwitchResult::Inspected(vec![inspected; entries]);
            Message::FromSwitch(SwitchReport::Done { id: 1, epoch: 1, result })
        };
        let asked = |entries| {
            let body = SwitchCommand::Inspect(vec![1; entries]);
            Message::ToSwitch(Command { id: 1, chain: ChainId::new(0), epoch: 1, body })
        };
        let bytes_max = (CACHED_KEY_BYTES_MAX + CACHED_VALUE_BYTES_MAX) as u32;
        assert!(!refused(&told(BATCH_MAX, bytes_max)) && !refused(&asked(BATCH_MAX)));
        assert!(refused(&told(BATCH_MAX + 1, 0)) && refused(&asked(BATCH_MAX + 1)));
        assert!(refused(&told(1, bytes_max + 1)));
    }

    #[test]
    fn a_place_in_a_chain_has_the_neighbours_that_it_needs() {
        let configure = |position, before| {
            let place = Place { position, length: 2, before, after: None, protects: false };
            let map = Map::equal(vec![vec![0]]);
            let nodes = vec![Address::default()];
            let config = SwitchConfig { boot: 1, place, generation: 1, lanes: 1, map, nodes };
            let body = SwitchCommand::Configure(config);
            refused(&Message::ToSwitch(Command { id: 1, chain: ChainId::new(0), epoch: 1, body }))
        };
        let before = Some(Address::in_memory(2, 0));
        assert!(!configure(2, before) && configure(2, None) && configure(3, before));
    }

    #[test]
    fn a_switch_is_somewhere_and_its_classes_rise() {
        let hello_at = |address, classes: &[(u32, u32)]| {
            let classes = classes.to_vec();
            Message::FromSwitch(SwitchReport::Hello {
                boot: 1,
                address,
                layer: 1,
                domain: String::new(),
                epoch: 0,
                classes,
                needs_epoch: false,
            })
        };
        let hello = |classes: &[(u32, u32)]| hello_at(Address::in_memory(2, 0), classes);
        assert!(refused(&hello_at(Address::default(), &[])), "its neighbours couldn't be told");
        assert!(!refused(&hello(&[])) && !refused(&hello(&[(128, 16), (1024, 16)])));
        assert!(
            refused(&hello(&[(1024, 16), (128, 16)])) && refused(&hello(&[(128, 16), (128, 16)]))
        );
        assert!(refused(&hello(&[(0, 16)])) && refused(&hello(&[(128, u32::MAX)])));
    }

    #[test]
    fn a_grant_has_an_address_for_each_node() {
        let granted = |epoch, node| {
            let map = Map::equal(vec![vec![0], vec![node]]);
            let nodes = vec![Address::default(); 2];
            Message::ToClient(ClientNotice::Granted(Grant {
                boot: 1,
                hello_us: 0,
                lease_us: 1,
                chains: ByChain::new(1, |_| {
                    Some(ChainGrant {
                        epoch,
                        destination: Destination::Nodes { map: map.clone(), nodes: nodes.clone() },
                        durable_generation: 0,
                        recovered_epoch: 0,
                        preserves: true,
                        gathers: true,
                    })
                }),
                served: ChainMap::from(&map),
                hash_key: HashKey([0; 16]),
                lane_first: 0,
                lanes: 1,
                request_base: 0,
            }))
        };
        assert!(!refused(&granted(EPOCH_MAX, 1)));
        assert!(refused(&granted(EPOCH_MAX + 1, 1)));
        assert!(refused(&granted(1, 2)), "a node without an address");
    }

    #[test]
    fn a_map_names_chains_that_there_may_be() {
        let message = |chain| {
            let config = NodeConfig {
                hash_key: HashKey([0; 16]),
                map: map_of_chain(chain),
                switch: None,
                lanes: 1,
                refresh: Refresh::None,
            };
            Message::ToNode(Command {
                id: 1,
                chain: ChainId::new(0),
                epoch: 1,
                body: NodeCommand::Epoch(config),
            })
        };
        assert!(!refused(&message(0)) && !refused(&message(CHAINS_MAX - 1)));
        assert!(refused(&message(CHAINS_MAX)));
        let gather = |chain| {
            let (map, nodes) = (map_of_chain(chain), vec![Address::default()]);
            destination(&Destination::Nodes { map, nodes })
        };
        assert!(gather(0).is_ok());
        let error = gather(CHAINS_MAX).unwrap_err().to_string();
        assert_eq!(error, "a message whose chain of a partition is outside its limits");
    }

    /// One partition, of this chain.
    fn map_of_chain(chain: u16) -> Map {
        let partition = Map::equal(vec![vec![0]]).partitions()[0].clone();
        Map::new(vec![Partition { chain, ..partition }]).expect("one partition is a map")
    }

    #[test]
    fn a_message_is_about_a_chain_that_there_may_be() {
        let about = |chain| {
            let body = NodeCommand::OfferAgain;
            refused(&Message::ToNode(Command { id: 1, chain: ChainId::new(chain), epoch: 1, body }))
        };
        assert!(!about(CHAINS_MAX - 1) && about(CHAINS_MAX));
        let hello = |chains| {
            let standing = ByChain::new(chains, |_| NodeStanding::default());
            let (address, failure) = (Address::default(), None);
            refused(&Message::FromNode(NodeReport::Hello {
                boot: 1,
                address,
                chains: standing,
                failure,
            }))
        };
        assert!(!hello(CHAINS_MAX) && hello(CHAINS_MAX + 1));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(matches!(Message::decode(b""), Err(Malformed::Encoding(_))));
        assert!(matches!(Message::decode(&[0xff; 20]), Err(Malformed::Encoding(_))));
    }
}
