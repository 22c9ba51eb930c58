//! Which switch serves: the first hello, a death, a takeover, and a restart of the controller.

use super::cache::{Cache, Stage};
use super::recovery::Recovery;
use super::{Chain, Context, Phase};
use crate::control::{Entry, Location, NodeCommand, SwitchCommand};
use crate::controller::Known;
use crate::storage::OfferId;
use switchback_wire::EPOCH_MAX;

impl Chain {
    /// The switch that serves the chain, or served it last, said hello. `needs_epoch`: the sequence numbers of its epoch will run
    /// out.
    pub(in crate::controller) fn switch_said_hello(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        needs_epoch: bool,
    ) {
        let hello = cx.members.switch(switch).expect("it said hello");
        let (boot, epoch) = (hello.boot, hello.epoch);
        let is_same_life = cx.directory.active(self.id) == Some((switch, boot));
        if is_same_life {
            self.active_heard_us = cx.now.monotonic_us;
        }
        match self.phase {
            Phase::Waiting { .. }
                if is_same_life
                    && epoch == cx.directory.epoch(self.id)
                    && cx.directory.is_recovered(self.id) =>
            {
                self.resync(cx, switch);
            }
            Phase::Waiting { .. } => self.start_recovery(cx, Some(switch)),
            _ if !is_same_life => self.start_recovery(cx, Some(switch)),
            _ => {}
        }
        // Not if the epoch has changed just now.
        if needs_epoch
            && epoch == cx.directory.epoch(self.id)
            && cx.directory.active(self.id) == Some((switch, boot))
        {
            self.renew(cx);
        }
    }

    /// A switch that serves no chain said hello. Whether this one takes it.
    pub(in crate::controller) fn takes_spare(&mut self, cx: &mut Context<'_>, switch: u16) -> bool {
        let takes = match self.phase {
            // The switch that served last is preferred for a while: it may hold the cache, and
            // answer a moment later.
            Phase::Waiting { since_us } => {
                cx.directory.active(self.id).is_none()
                    || cx.now.monotonic_us >= since_us + cx.config.switch_timeout_us
            }
            _ => cx.directory.is_bypass(self.id),
        };
        if takes {
            self.start_recovery(cx, Some(switch));
        }
        takes
    }

    /// A node asks for another epoch: it can't serve this one, in which no switch does.
    pub(super) fn node_needs_epoch(&mut self, cx: &mut Context<'_>) {
        if cx.directory.is_bypass(self.id) {
            self.start_recovery(cx, None);
        }
    }

    /// When the switch that serves counts as dead, or nodes serve without one.
    pub(super) fn switch_deadline_us(&self, known: Known<'_>) -> Option<u64> {
        let Known { config, directory, members, .. } = known;
        match self.phase {
            Phase::Waiting { since_us } if directory.epoch(self.id) > 0 => {
                config.bypass_us.map(|bypass_us| since_us.saturating_add(bypass_us))
            }
            Phase::Waiting { .. } => None,
            _ => directory
                .active_switch(self.id)
                .and_then(|active| members.switch_dead_at_us(active)),
        }
    }

    /// The switch that served is dead: another one that lives takes over, or the first that says
    /// hello; if none did for a while, the nodes serve alone.
    pub(super) fn switch_is_dead(&mut self, cx: &mut Context<'_>) {
        if matches!(self.phase, Phase::Waiting { .. }) {
            self.start_recovery(cx, None);
            return;
        }
        if cx.directory.active_switch(self.id).is_none() {
            return;
        }
        let is_taken = |switch| cx.directory.chain_of_switch(switch).is_some();
        match cx.members.spare(cx.now, is_taken) {
            Some(spare) => self.start_recovery(cx, Some(spare)),
            None => self.phase = Phase::Waiting { since_us: cx.now.monotonic_us },
        }
    }

    /// Begins the next epoch with this switch; without one it is a bypass epoch. Everything else
    /// follows once the epoch is durable.
    pub(super) fn start_recovery(&mut self, cx: &mut Context<'_>, switch: Option<u16>) {
        let now_us = cx.now.monotonic_us;
        if cx.directory.last_epoch() >= EPOCH_MAX {
            // All epochs are used: the rack waits for the switch that served last.
            self.phase = Phase::Waiting { since_us: now_us };
            return;
        }
        let silent_since_us = cx.directory.active(self.id).map_or(now_us, |_| self.active_heard_us);
        let hello =
            switch.map(|switch| (switch, cx.members.switch(switch).expect("it said hello")));
        self.active_heard_us =
            switch.and_then(|switch| cx.members.switch_heard_us(switch)).unwrap_or(now_us);
        self.commands.clear();
        self.snapshots.abandon();
        self.waiting.clear();
        // A key whose offer is being cleared may be offered no more.
        let cached = self.cache.iter().filter(|key| key.stage != Stage::Clearing);
        self.missing.extend(cached.map(|key| key.entry.hash));
        let classes = hello.map_or(&[][..], |(_, hello)| &hello.classes);
        self.cache = Cache::new(classes, cx.config.cache_records);
        let active = hello.map(|(switch, hello)| (switch, hello.boot));
        let stored_by = cx.directory.begin_epoch(cx.outbox, self.id, active);
        let recovery = Recovery::new(
            cx.now,
            cx.directory.epoch(self.id),
            stored_by,
            silent_since_us,
            cx.directory.holders(self.id).iter().copied(),
        );
        self.phase = Phase::Recovering(Box::new(recovery));
    }

    /// After a restart of the controller: the switch serves on, and tells what it holds.
    fn resync(&mut self, cx: &mut Context<'_>, switch: u16) {
        let hello = cx.members.switch(switch).expect("it said hello");
        self.cache = Cache::new(&hello.classes, cx.config.cache_records);
        self.commands.clear_but_offers();
        self.waiting.clear();
        self.phase = Phase::Resyncing;
        self.command_switch(cx, SwitchCommand::ListEntries(None));
    }

    /// The switch listed some of its entries, and says where to go on.
    pub(super) fn resynced(
        &mut self,
        cx: &mut Context<'_>,
        entries: Vec<Entry>,
        next: Option<Location>,
    ) {
        for entry in entries {
            self.next_entry = self.next_entry.max(entry.id + 1);
            let partition = cx.directory.partition_of(&entry.hash);
            // Under which offer it is cached its node will say, when it is asked to offer again.
            self.cache.adopt(entry, partition, OfferId::NONE);
        }
        if let Some(next) = next {
            self.command_switch(cx, SwitchCommand::ListEntries(Some(next)));
            return;
        }
        self.phase = Phase::Serving;
        for node in cx.directory.holders(self.id) {
            self.command_node(cx, *node, NodeCommand::OfferAgain);
        }
    }
}
