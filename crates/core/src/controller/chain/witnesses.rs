//! What the members of a chain's last recovered epoch hold, as a recovery loads it (rule 23).

use super::{Chain, Context, Phase};
use crate::control::{KeyedRecord, Location, SwitchCommand};
use crate::controller::directory::Preserved;
use crate::controller::{Loss, OnLoss};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::KeyHash;

/// The witnesses that a recovery has, and the records that it took from them. Each has everything
/// that was told, so one is enough.
#[derive(Debug)]
pub(super) struct Witnesses {
    /// Those that live in the life in which they served.
    living: BTreeMap<u16, Progress>,
    /// The epoch that they served: in it the records were told that a node may lack.
    epoch: u32,
    best: BTreeMap<KeyHash, KeyedRecord>,
    /// As many keys as a cache has.
    keys_max: usize,
    /// When waiting for a witness ends, while none lives. `None`: never.
    until_us: Option<u64>,
    /// Records that arrived.
    arrived: u64,
    is_over: bool,
}

/// How far a witness is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// It may serve the epoch still.
    Serves,
    /// It refuses it, and is being loaded.
    Frozen,
    /// It was loaded.
    Loaded,
}

impl Witnesses {
    /// Of this epoch, in which a cache had at most `keys_max` keys. Nothing was heard of the
    /// `living` ones yet; without any, one is waited for until `until_us`.
    pub(super) fn new(
        epoch: u32,
        keys_max: usize,
        living: impl Iterator<Item = u16>,
        until_us: Option<u64>,
    ) -> Witnesses {
        Witnesses {
            living: living.map(|switch| (switch, Progress::Serves)).collect(),
            epoch,
            best: BTreeMap::new(),
            keys_max,
            until_us,
            arrived: 0,
            is_over: false,
        }
    }

    /// Whether none lives.
    pub(super) fn is_empty(&self) -> bool {
        self.living.is_empty()
    }

    /// When no witness is waited for any more; `None` if there is one, or there is no end to it.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.until_us.filter(|_| self.is_empty())
    }

    /// Whether no witness is waited for any more.
    fn is_given_up(&self, now: Now) -> bool {
        self.deadline_us().is_some_and(|until_us| now.monotonic_us >= until_us)
    }

    /// A switch refuses the epoch from now on. Whether it is to be loaded.
    pub(super) fn frozen(&mut self, switch: u16) -> bool {
        let progress = self.living.get_mut(&switch);
        let freezes = progress.filter(|progress| **progress == Progress::Serves);
        freezes.is_some_and(|progress| {
            *progress = Progress::Frozen;
            !self.is_over
        })
    }

    /// Takes records that a witness has told of; after the `last` ones it has no more.
    pub(super) fn take(&mut self, switch: u16, records: Vec<KeyedRecord>, last: bool) {
        let Some(progress) = self.living.get_mut(&switch).filter(|_| !self.is_over) else { return };
        if last && *progress == Progress::Frozen {
            *progress = Progress::Loaded;
        }
        self.arrived += records.len() as u64;
        // What is older was recovered before.
        for record in records.into_iter().filter(|it| it.record.seq.epoch() == self.epoch) {
            let is_newer = match self.best.get(&record.hash) {
                Some(known) => known.record.seq < record.record.seq,
                None => self.best.len() < self.keys_max,
            };
            if is_newer {
                self.best.insert(record.hash, record);
            }
        }
    }

    /// Whether one refuses the epoch, and was loaded.
    pub(super) fn are_enough(&self) -> bool {
        self.living.values().any(|progress| *progress == Progress::Loaded)
    }

    /// Whether their records were taken.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Records that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Ends it: the newest record of each key.
    pub(super) fn end(&mut self) -> BTreeMap<KeyHash, KeyedRecord> {
        self.is_over = true;
        std::mem::take(&mut self.best)
    }
}

impl Chain {
    /// The witnesses that live, as far as is known, in the life in which they served: each is to be
    /// a member of the next epoch.
    pub(super) fn living_witnesses(&self, cx: &Context<'_>) -> Vec<u16> {
        let witnesses = cx.directory.witnesses(self.id).iter();
        let lives = |(switch, boot): &&(u16, u64)| {
            cx.members.is_switch_alive(cx.now, *switch)
                && cx.members.switch(*switch).is_some_and(|hello| hello.boot == *boot)
        };
        witnesses.filter(lives).map(|(switch, _)| *switch).collect()
    }

    /// Whether a switch is a witness in the life in which it served, and a recovery that has none
    /// could go on with it.
    pub(super) fn is_wanted_witness(&self, cx: &Context<'_>, switch: u16, boot: u64) -> bool {
        let is_witness = cx.directory.witnesses(self.id).contains(&(switch, boot));
        match &self.phase {
            Phase::Recovering(recovery) => is_witness && recovery.lacks_witness(),
            _ => false,
        }
    }

    /// Where a recovery takes what was told in the last recovered epoch from: witnesses, if there
    /// are any; clients, if they preserved it. Else one of the witnesses may come back.
    pub(super) fn takes_from_witnesses(&self, cx: &Context<'_>, has_witnesses: bool) -> bool {
        if !cx.config.scheme.keeps_in_switches() {
            return false;
        }
        let is_preserved = if cx.mechanisms.protection_of_last() {
            !has_witnesses && cx.directory.preserved(self.id) == Preserved::All
        } else {
            cx.directory.preserves(self.id) == Preserved::All
        };
        !is_preserved
    }

    /// Until when a recovery waits for a witness.
    pub(super) fn witnesses_until_us(&self, cx: &Context<'_>) -> Option<u64> {
        let is_gone = |(switch, boot): &(u16, u64)| {
            cx.members.switch(*switch).is_some_and(|hello| hello.boot != *boot)
        };
        let are_gone = cx.directory.witnesses(self.id).iter().all(is_gone);
        let wait_us = if are_gone { 0 } else { cx.config.witness_wait_us };
        (cx.config.on_loss == OnLoss::Declare).then(|| cx.now.in_us(wait_us))
    }

    /// Asks a frozen witness for the records of its entries, from a location on.
    pub(super) fn load_witness(&mut self, cx: &Context<'_>, switch: u16, from: Option<Location>) {
        self.command_switch(cx, switch, SwitchCommand::LoadFrozen(from));
    }

    /// A witness told of records, and says where to go on.
    pub(super) fn frozen_loaded(
        &mut self,
        cx: &Context<'_>,
        switch: u16,
        records: Vec<KeyedRecord>,
        next: Option<Location>,
    ) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let Some(witnesses) = recovery.witnesses_mut() else { return };
        witnesses.take(switch, records, next.is_none());
        if next.is_some() && !witnesses.is_over() {
            self.load_witness(cx, switch, next);
        }
    }

    /// No witness came: what is left is what clients preserve, and a snapshot that was asked for.
    pub(super) fn give_up_witnesses(&mut self, cx: &mut Context<'_>) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if recovery.witnesses_mut().is_some_and(|witnesses| witnesses.is_given_up(cx.now)) {
            self.gather(cx);
        }
    }

    /// What the recovery that gathers from clients can't find: every key that the cache may have
    /// held, if neither switches nor clients have what it told of them. `None` until it is known.
    pub(super) fn loss(&self, cx: &Context<'_>) -> Option<Loss> {
        let (epoch, lost_epoch) =
            (cx.directory.epoch(self.id), cx.directory.recovered_epoch(self.id));
        let none = Loss { epoch: lost_epoch, keys: 0 };
        if cx.directory.preserved(self.id) == Preserved::All {
            return Some(none);
        }
        let mut keys = 0;
        for node in cx.directory.holders(self.id) {
            let standing = cx.members.standing(*node, self.id);
            if standing.epoch != epoch {
                return None;
            }
            keys += u64::from(standing.held_keys);
        }
        Some(Loss { keys, ..none })
    }
}
