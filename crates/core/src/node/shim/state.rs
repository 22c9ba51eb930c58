//! What survives a node's restart beside records and marks, and its formats.

use crate::control::{NodeConfig, Refresh};
use crate::node::join::KnownJoins;
use crate::storage::EngineError;
use crate::topology::{ByChain, CHAINS_MAX, ChainMap};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use switchback_wire::{Address, EPOCH_MAX, HashKey, Map};

/// What a state begins with, before a byte for its format. Format 1 began with its epoch instead.
/// No epoch is encoded as five bytes of 0xff: so this version knows format 1 by its beginning, and
/// a program that only knows format 1 refuses this one.
const MAGIC: [u8; 7] = *b"\xff\xff\xff\xff\xffSN";
/// The newest format. It is written where joins are known, so that a node without any can go back
/// to a program that knows none.
const FORMAT: u8 = 4;
/// The format without joins.
const FORMAT_WITHOUT_JOINS: u8 = 3;
/// The format that knew one chain, and had no number of chains.
const FORMAT_OF_ONE: u8 = 2;

/// Which keys wait for the node's release. Encoded as the `bool` that its first two values were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub(super) enum Hold {
    /// None.
    #[default]
    Nothing,
    /// Those that are marked as offered.
    Offered,
    /// All: a view began with the epoch, or while the node waited. A replica that isn't in it may
    /// still answer in the epoch before, until that is recovered.
    All,
    /// All, and the node had nothing when it was told of the chain, of which partitions have
    /// several replicas: it isn't released unless it may begin so.
    Fresh,
}

impl From<bool> for Hold {
    fn from(held: bool) -> Hold {
        if held { Hold::Offered } else { Hold::Nothing }
    }
}

/// How a node served the partitions of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ServedState {
    pub(super) epoch: u32,
    pub(super) held: Hold,
    pub(super) config: Option<NodeConfig>,
    pub(super) joins: KnownJoins,
}

/// The same in format 3 and those before.
#[derive(Serialize, Deserialize)]
struct ServedState3 {
    epoch: u32,
    held: Hold,
    config: Option<NodeConfig>,
}

impl From<ServedState3> for ServedState {
    fn from(was: ServedState3) -> ServedState {
        let ServedState3 { epoch, held, config } = was;
        ServedState { epoch, held, config, joins: KnownJoins::default() }
    }
}

/// The state in format 1, which knew one chain.
#[derive(Serialize, Deserialize)]
struct ServedState1 {
    epoch: u32,
    held: bool,
    config: Option<NodeConfig1>,
}

/// The configuration in format 1, which knew as many equal ranges as there were lists of replicas.
#[derive(Serialize, Deserialize)]
struct NodeConfig1 {
    hash_key: HashKey,
    routes: Vec<Vec<u16>>,
    switch: Option<Address>,
    lanes: u32,
    refresh: Refresh,
}

/// The state of a node: how it serves each chain that it was told of.
pub(super) fn encode(states: &ByChain<&ServedState>) -> Vec<u8> {
    let has_joins = states.iter().any(|(_, state)| state.joins != KnownJoins::default());
    let (format, encoded) = if has_joins {
        (FORMAT, postcard::to_stdvec(states))
    } else {
        let without = |state: &ServedState| {
            let ServedState { epoch, held, config, .. } = state.clone();
            ServedState3 { epoch, held, config }
        };
        (FORMAT_WITHOUT_JOINS, postcard::to_stdvec(&states.map(|_, state| without(state))))
    };
    let mut bytes = [&MAGIC[..], &[format]].concat();
    bytes.extend(encoded.expect("plain data has an encoding"));
    bytes
}

/// The state in this format, or in an older one; the next one to be stored replaces it.
///
/// # Errors
/// A damaged state, and one of a later format.
pub(super) fn decode(bytes: &[u8]) -> Result<ByChain<ServedState>, EngineError> {
    let damaged = |why: &dyn Display| EngineError::Corrupt(format!("the node's own state: {why}"));
    let of_one = |state: ServedState| ByChain::new(1, |_| state.clone());
    let states = match bytes.strip_prefix(&MAGIC).and_then(<[u8]>::split_first) {
        Some((&FORMAT, state)) => postcard::from_bytes(state).map_err(|error| damaged(&error))?,
        Some((&FORMAT_WITHOUT_JOINS, state)) => {
            let states: ByChain<ServedState3> =
                postcard::from_bytes(state).map_err(|error| damaged(&error))?;
            states.map(|_, state| {
                let ServedState3 { epoch, held, config } = state;
                let (epoch, held, config) = (*epoch, *held, config.clone());
                ServedState3 { epoch, held, config }.into()
            })
        }
        Some((&FORMAT_OF_ONE, state)) => {
            let state: ServedState3 =
                postcard::from_bytes(state).map_err(|error| damaged(&error))?;
            of_one(state.into())
        }
        Some((format, _)) => {
            return Err(EngineError::Io(format!(
                "the node's own state is of format {format}, and this program reads formats 1 to \
                 {FORMAT}: use the version of Switchback that wrote it"
            )));
        }
        None => {
            let was: ServedState1 = postcard::from_bytes(bytes).map_err(|error| damaged(&error))?;
            of_one(was.upgrade().map_err(|error| damaged(&error))?)
        }
    };
    check(&states).map_err(|why| damaged(&why))?;
    Ok(states)
}

/// Whether a node can serve by what it decoded.
fn check(states: &ByChain<ServedState>) -> Result<(), &'static str> {
    let ensure = |holds, why| if holds { Ok(()) } else { Err(why) };
    ensure(states.chains() <= CHAINS_MAX, "no rack has as many chains")?;
    for (_, state) in states.iter() {
        ensure(state.epoch <= EPOCH_MAX, "no epoch is as high")?;
        let map = state.config.as_ref().map(|config| ChainMap::from(&config.map));
        ensure(map.is_none_or(|map| map.is_plausible()), "no rack has as many chains")?;
    }
    Ok(())
}

impl ServedState1 {
    fn upgrade(self) -> Result<ServedState, switchback_wire::MapError> {
        let ServedState1 { epoch, held, config } = self;
        let config = config.map(|was| {
            let NodeConfig1 { hash_key, routes, switch, lanes, refresh } = was;
            Map::try_equal(routes).map(|map| NodeConfig { hash_key, map, switch, lanes, refresh })
        });
        let (held, config) = (held.into(), config.transpose()?);
        Ok(ServedState { epoch, held, config, joins: KnownJoins::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Join;
    use crate::node::CopyAt;
    use crate::topology::ChainId;

    fn state() -> ByChain<ServedState> {
        let config = NodeConfig {
            hash_key: HashKey([6; 16]),
            map: Map::equal(vec![vec![0], vec![1]]),
            switch: None,
            lanes: 9,
            refresh: Refresh::Updates,
        };
        ByChain::new(1, |_| {
            let held = Hold::Offered;
            let (config, joins) = (Some(config.clone()), KnownJoins::default());
            ServedState { epoch: 300, held, config, joins }
        })
    }

    fn written(states: &ByChain<ServedState>) -> Vec<u8> {
        encode(&states.map(|_, state| state))
    }

    /// As format 2 was written.
    fn bytes_2() -> Vec<u8> {
        let map = [2, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1];
        let served = [&[0xac, 0x02, 1, 1][..], &[6; 16], &map, &[0, 9, 1]].concat();
        [&b"\xff\xff\xff\xff\xffSN\x02"[..], &served].concat()
    }

    /// As format 1 was written.
    fn bytes_1(routes: &[u8]) -> Vec<u8> {
        [&[0xac, 0x02, 1, 1][..], &[6; 16], routes, &[0, 9, 1]].concat()
    }

    /// Fails if a node that exists could not be opened any more.
    #[test]
    fn the_form_of_the_state_stays() {
        let map = [2, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1];
        let bytes =
            [b"\xff\xff\xff\xff\xffSN\x03", &[1, 0xac, 0x02, 1, 1][..], &[6; 16], &map, &[0, 9, 1]]
                .concat();
        assert_eq!(written(&state()), bytes);
        assert_eq!(decode(&bytes), Ok(state()));
        let join = Join { partition: 1, number: 7, node: 0, source: 1 };
        let of = |states: &mut ByChain<ServedState>| {
            let joins = &mut states[ChainId::default()].joins;
            joins.take(0, 9, vec![join]);
            joins.of_mut(1).expect("told").at = Some(CopyAt::Lanes(3));
        };
        let mut with_join = state();
        of(&mut with_join);
        // Version, one join: partition, number, node, source, place, whether it has ended.
        let joins = [9, 1, 1, 7, 0, 1, 1, 1, 3, 0];
        let bytes = [b"\xff\xff\xff\xff\xffSN\x04", &bytes[8..], &joins].concat();
        assert_eq!(written(&with_join), bytes);
        assert_eq!(decode(&bytes), Ok(with_join));
    }

    #[test]
    fn older_formats_are_read_and_the_first_doesnt_read_this_one() {
        assert_eq!(decode(&bytes_1(&[2, 1, 0, 1, 1])), Ok(state()));
        assert_eq!(decode(&bytes_2()), Ok(state()));
        assert_eq!(decode(&[0, 0, 0]), Ok(ByChain::new(1, |_| ServedState::default())));
        assert!(postcard::from_bytes::<ServedState1>(&written(&state())).is_err());
    }

    #[test]
    fn a_state_of_a_chain_that_no_rack_has_is_damaged() {
        let mut bytes = written(&state());
        // The chain of the first partition.
        assert_eq!(bytes[29..36], [2, 0, 0, 0, 0, 1, 0]);
        bytes[33] = CHAINS_MAX as u8 - 1;
        assert!(decode(&bytes).is_ok());
        bytes[33] = CHAINS_MAX as u8;
        assert!(matches!(decode(&bytes), Err(EngineError::Corrupt(_))));
        let many = ByChain::new(CHAINS_MAX + 1, |_| ServedState::default());
        assert!(matches!(decode(&written(&many)), Err(EngineError::Corrupt(_))));
    }

    #[test]
    fn what_is_damaged_or_newer_is_refused() {
        let (whole, whole_1) = (written(&state()), bytes_1(&[2, 1, 0, 1, 1]));
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err(), "{cut}");
        }
        for cut in 0..whole_1.len() {
            assert!(decode(&whole_1[..cut]).is_err(), "{cut}");
        }
        assert!(decode(&bytes_1(&[3, 1, 0, 1, 1, 1, 0])).is_err(), "three ranges");
        assert!(decode(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).is_err(), "the epoch of format 1");
        let mut newer = whole;
        newer[7] = 5;
        let error = decode(&newer).unwrap_err().to_string();
        assert!(error.contains("is of format 5, and this program reads formats 1 to 4"), "{error}");
    }
}
