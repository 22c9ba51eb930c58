//! Joins: a node becomes the last replica of a partition of which it has nothing (rules R10 to
//! R12).
//!
//! A join has a number. The *joiner* first drops all that it has of the partition. Then it stands
//! behind the tail, its *source*: that passes on to it what it stores, as to any replica behind it,
//! but answers by itself and waits for nothing. The joiner meanwhile asks it for a copy, part by
//! part: records and marks, then completions, then floors. Once it has all, the controller puts it
//! last in a view. It opens, and answers reads, once FLUSH of that view has arrived: what the
//! source had when it was the tail came before. Only then is it a member, which may be left alone.
//!
//! Number and progress of a join are durable, and so is what is unconfirmed at the source: a node
//! that restarts goes on. If the source goes, the joiner begins anew, in a join with another
//! number.

use crate::control::Join;
use serde::{Deserialize, Serialize};
use switchback_wire::KeyHash;

/// How far the copy of a partition has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum CopyAt {
    /// Records and marks from this hash on are next.
    Keys(KeyHash),
    /// Completions from this lane on.
    Lanes(u32),
    /// Floors.
    Floors,
    /// All is copied.
    All,
}

/// What a node that joins, or is the source of one, remembers of that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KnownJoin {
    pub(super) join: Join,
    /// The joiner: it has emptied the partition, and has come as far.
    pub(super) at: Option<CopyAt>,
    /// The controller has ended it, or its source has given it up.
    pub(super) has_ended: bool,
}

impl KnownJoin {
    /// Whether this node joins, and has emptied the partition for it.
    pub(super) fn is_begun(&self, node: u16) -> bool {
        self.join.node == node && self.at.is_some()
    }

    /// Whether this node joins, and has the whole copy.
    pub(super) fn is_copied(&self, node: u16) -> bool {
        self.join.node == node && self.at == Some(CopyAt::All)
    }
}

/// The joins of a chain's partitions, of those that concern a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct KnownJoins {
    /// Of the list that was told last.
    pub(super) version: u32,
    joins: Vec<KnownJoin>,
}

impl KnownJoins {
    /// Of a partition, if it has one.
    pub(super) fn of(&self, partition: u16) -> Option<&KnownJoin> {
        self.joins.iter().find(|known| known.join.partition == partition)
    }

    pub(super) fn of_mut(&mut self, partition: u16) -> Option<&mut KnownJoin> {
        self.joins.iter_mut().find(|known| known.join.partition == partition)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KnownJoin> {
        self.joins.iter()
    }

    /// Those of which a node is the source.
    pub(super) fn given(&self, node: u16) -> impl Iterator<Item = Join> {
        let joins = self.joins.iter().filter(move |known| known.join.source == node);
        joins.map(|known| known.join)
    }

    pub(super) fn forget(&mut self, partition: u16) {
        self.joins.retain(|known| known.join.partition != partition);
    }

    /// Takes a newer list. What it lacks of the node's own joins has ended, one way or the other.
    pub(super) fn take(&mut self, node: u16, version: u32, joins: Vec<Join>) {
        self.version = version;
        let mut known = std::mem::take(&mut self.joins);
        for join in joins.into_iter().filter(|join| [join.node, join.source].contains(&node)) {
            let is_same = |it: &KnownJoin| {
                let KnownJoin { join: it, .. } = it;
                (it.partition, it.number, it.node) == (join.partition, join.number, join.node)
            };
            let was = known.iter().position(is_same).map(|at| known.swap_remove(at));
            let (at, has_ended) = was.map_or((None, false), |was| (was.at, was.has_ended));
            self.joins.push(KnownJoin { join, at, has_ended });
        }
        for known in known.into_iter().filter(|it| it.is_begun(node)) {
            if self.of(known.join.partition).is_none() {
                self.joins.push(KnownJoin { has_ended: true, ..known });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(partition: u16, number: u32, node: u16) -> Join {
        Join { partition, number, node, source: 1 }
    }

    #[test]
    fn a_join_goes_on_as_long_as_it_is_told_and_ends_where_it_is_not() {
        let mut known = KnownJoins::default();
        known.take(2, 1, vec![join(0, 5, 2), join(1, 6, 3), join(7, 7, 2)]);
        assert!(known.of(0).is_some() && known.of(1).is_none());
        known.of_mut(0).expect("told").at = Some(CopyAt::Floors);
        known.take(2, 2, vec![join(0, 5, 2)]);
        assert_eq!(known.of(0).and_then(|it| it.at), Some(CopyAt::Floors));
        assert!(known.of(7).is_none(), "it had not begun");
        known.take(2, 3, Vec::new());
        assert!(known.of(0).is_some_and(|it| it.has_ended));
        known.take(2, 4, vec![join(0, 9, 2)]);
        assert!(known.of(0).is_some_and(|it| it.at.is_none() && it.join.number == 9));
    }
}
