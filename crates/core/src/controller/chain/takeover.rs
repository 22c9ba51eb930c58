//! Which switches serve: the first hellos, a death, a return, and a restart of the controller.

use super::cache::{Cache, Stage};
use super::recovery::Recovery;
use super::resync::Resync;
use super::{Chain, Context, Phase};
use crate::control::SwitchCommand;
use crate::controller::directory::{Preserved, Round};
use crate::controller::membership::SwitchHello;
use crate::controller::{Known, Preserve};
use crate::topology::form;

impl Chain {
    /// A member of the chain's epoch, or of its last one, said hello. `needs_epoch`: the sequence
    /// numbers of its epoch will run out.
    pub(in crate::controller) fn switch_said_hello(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        needs_epoch: bool,
    ) {
        let hello = cx.members.switch(switch).expect("it said hello");
        let (boot, epoch) = (hello.boot, hello.epoch);
        let is_same_life = cx.directory.members(self.id).contains(&(switch, boot));
        if is_same_life {
            self.heard_us.insert(switch, cx.now.monotonic_us);
        }
        let is_member = cx.directory.switches(self.id).any(|member| member == switch);
        match self.phase {
            Phase::Waiting { .. } => _ = self.begin_if_formed(cx, switch),
            _ if is_same_life => {}
            _ if is_member || self.is_wanted_witness(cx, switch, boot) => {
                let members = self.formed(cx, Some(switch));
                self.start_recovery(cx, &members);
            }
            _ => _ = self.takes_spare(cx, switch),
        }
        // Not if the epoch has changed just now.
        if needs_epoch
            && epoch == cx.directory.epoch(self.id)
            && cx.directory.members(self.id).contains(&(switch, boot))
        {
            self.change(cx, None);
        }
    }

    /// A switch that serves no chain said hello. Whether this one begins an epoch because of it.
    pub(in crate::controller) fn takes_spare(&mut self, cx: &mut Context<'_>, switch: u16) -> bool {
        let takes = match self.phase {
            Phase::Waiting { .. } => return self.begin_if_formed(cx, switch),
            // A layer was left out when the epoch began: now there is a switch of it.
            Phase::Serving => cx.directory.members(self.id).len() < usize::from(cx.config.layers),
            _ => cx.directory.is_bypass(self.id),
        };
        let members = if takes { self.formed_anew(cx, Some(switch)) } else { Vec::new() };
        let is_longer = members.len() > cx.directory.members(self.id).len();
        if is_longer && cx.directory.is_bypass(self.id) {
            self.start_recovery(cx, &members);
        } else if is_longer {
            return self.change(cx, Some(switch));
        }
        is_longer
    }

    /// Who serves the chain's next epoch: every witness that lives, else its members, and spares in
    /// the places of others. A spare that says hello just now (`first`) comes before others. What a
    /// switch has that is being taken out may be needed, so it stays until it isn't.
    pub(super) fn formed(&self, cx: &Context<'_>, first: Option<u16>) -> Vec<u16> {
        let mut previous = self.living_witnesses(cx);
        if previous.is_empty() {
            previous = cx.directory.switches(self.id).collect();
        }
        let may = |switch| match cx.directory.home_of_switch(switch) {
            _ if self.does_without(cx, switch) => false,
            Some(chain) => chain == self.id,
            None => !cx.directory.is_drained(switch),
        };
        form(cx.config.layers, &previous, &cx.members.candidates(cx.now, first, may))
    }

    /// The same while nothing is to be recovered: without the switches that are taken out.
    pub(super) fn formed_anew(&self, cx: &Context<'_>, first: Option<u16>) -> Vec<u16> {
        self.formed_without(cx, first, None)
    }

    /// The same if one more was taken out.
    pub(in crate::controller) fn formed_without(
        &self,
        cx: &Context<'_>,
        first: Option<u16>,
        left_out: Option<u16>,
    ) -> Vec<u16> {
        let is_drained = |switch| {
            cx.directory.is_drained(switch)
                || Some(switch) == left_out
                || self.does_without(cx, switch)
        };
        let previous: Vec<_> =
            cx.directory.switches(self.id).filter(|switch| !is_drained(*switch)).collect();
        let may = |switch| {
            let home = cx.directory.home_of_switch(switch);
            home.is_none_or(|chain| chain == self.id) && !is_drained(switch)
        };
        form(cx.config.layers, &previous, &cx.members.candidates(cx.now, first, may))
    }

    /// The chain waits, and a switch said hello: goes on if it need wait no longer. The switches
    /// that served last are preferred for a while: they may hold the cache, and answer a moment
    /// later. A chain that none served yet begins with all its layers, if they come soon.
    fn begin_if_formed(&mut self, cx: &mut Context<'_>, switch: u16) -> bool {
        let Phase::Waiting { since_us } = self.phase else { return false };
        let members = self.formed(cx, Some(switch));
        let previous = || cx.directory.switches(self.id);
        let is_complete = match previous().next() {
            Some(_) => previous().all(|member| members.contains(&member)),
            None => members.len() == usize::from(cx.config.layers),
        };
        let is_late = cx.now.monotonic_us >= since_us + cx.config.switch_timeout_us;
        if members.is_empty() || !(is_complete || is_late) {
            return false;
        }
        if is_complete && self.is_still_served(cx) {
            self.resync(cx);
        } else {
            self.start_recovery(cx, &members);
        }
        true
    }

    /// Whether all members of a recovered epoch serve it still, in the lives in which they began
    /// to.
    fn is_still_served(&self, cx: &Context<'_>) -> bool {
        let serves = |&(switch, boot): &(u16, u64)| {
            let hello = cx.members.switch(switch);
            hello.is_some_and(|SwitchHello { boot: its, epoch, .. }| {
                *its == boot && *epoch == cx.directory.epoch(self.id)
            })
        };
        let members = cx.directory.members(self.id);
        // Which copies nodes know of, and which there are in spines, isn't asked.
        let is_known = !cx.config.scheme.has_copies() && cx.directory.is_recovered(self.id);
        is_known && !members.is_empty() && members.iter().all(serves)
    }

    /// A node asks for another epoch: it can't serve this one, in which no switch does.
    pub(super) fn node_needs_epoch(&mut self, cx: &mut Context<'_>) {
        if cx.directory.is_bypass(self.id) {
            self.start_recovery(cx, &[]);
        } else if cx.config.scheme.has_copies()
            && let members = self.formed(cx, None)
            && !members.is_empty()
        {
            self.start_recovery(cx, &members);
        }
    }

    /// When a switch that serves counts as dead, or nodes serve without one.
    pub(super) fn switch_deadline_us(&self, known: Known<'_>) -> Option<u64> {
        let Known { config, directory, members, .. } = known;
        match self.phase {
            Phase::Waiting { since_us } if directory.epoch(self.id) > 0 => {
                // Without a switch, nothing keeps clients from a replica that was left out.
                let bypass_us = config.bypass_us.filter(|_| !directory.is_replicated());
                bypass_us.map(|bypass_us| since_us.saturating_add(bypass_us))
            }
            Phase::Waiting { .. } => None,
            _ => {
                let switches = directory.switches(self.id);
                switches.filter_map(|switch| members.switch_dead_at_us(switch)).min()
            }
        }
    }

    /// A switch that served is dead: the others go on, with one that lives in its place if there is
    /// one. Without any, the first that says hello serves; if none did for a while, the nodes serve
    /// alone.
    pub(super) fn switch_is_dead(&mut self, cx: &mut Context<'_>) {
        if matches!(self.phase, Phase::Waiting { .. }) {
            self.start_recovery(cx, &[]);
            return;
        }
        if cx.directory.owner(self.id).is_none() {
            return;
        }
        match &self.formed(cx, None)[..] {
            [] => self.phase = Phase::Waiting { since_us: cx.now.monotonic_us },
            members => self.start_recovery(cx, members),
        }
    }

    /// Begins the next epoch with these members; without any it is a bypass epoch. Everything else
    /// follows once the epoch is durable.
    pub(super) fn start_recovery(&mut self, cx: &mut Context<'_>, members: &[u16]) {
        self.begin_epoch(cx, members, false);
    }

    /// The same; `is_drained`: every record is at its node.
    pub(super) fn begin_epoch(&mut self, cx: &mut Context<'_>, members: &[u16], is_drained: bool) {
        let round = cx.config.scheme.has_copies().then_some(Round::Next);
        self.begin_epoch_of(cx, members, is_drained, round);
    }

    /// Another chain has begun a round of epochs. This one's copies are gone with it, for spines
    /// hold copies of all chains' keys: it begins an epoch of that round.
    pub(in crate::controller) fn follow_round(&mut self, cx: &mut Context<'_>) {
        // Without switches there are no copies.
        let is_unserved =
            matches!(self.phase, Phase::Waiting { .. }) || cx.directory.is_bypass(self.id);
        if is_unserved || cx.directory.epoch(self.id) == 0 || !cx.directory.is_behind(self.id) {
            return;
        }
        match &self.formed(cx, None)[..] {
            [] => self.phase = Phase::Waiting { since_us: cx.now.monotonic_us },
            members => self.begin_epoch_of(cx, members, false, Some(Round::Last)),
        }
    }

    fn begin_epoch_of(
        &mut self,
        cx: &mut Context<'_>,
        members: &[u16],
        is_drained: bool,
        round: Option<Round>,
    ) {
        let now_us = cx.now.monotonic_us;
        if !cx.directory.has_next_epoch(round.is_some()) {
            // All epochs are used: the rack waits for the switches that served last.
            self.phase = Phase::Waiting { since_us: now_us };
            return;
        }
        let served = cx.directory.switches(self.id);
        let silent_since_us = served
            .map(|switch| self.heard_us.get(&switch).copied().unwrap_or(self.since_us))
            .min()
            .unwrap_or(now_us);
        let heard = |switch: &u16| Some((*switch, cx.members.switch_heard_us(*switch)?));
        self.heard_us = members.iter().filter_map(heard).collect();
        self.commands.clear();
        self.views.are_brought_by_epoch();
        self.links.forget();
        self.snapshots.abandon();
        self.waiting.clear();
        // A key whose offer is being cleared may be offered no more.
        let cached = self.cache.iter().filter(|key| key.stage != Stage::Clearing);
        self.missing.extend(cached.map(|key| key.entry.hash));
        let hello = |switch: &u16| cx.members.switch(*switch).expect("it said hello");
        // All members have the same.
        let classes = members.last().map_or(&[][..], |owner| &hello(owner).classes);
        self.cache = Cache::new(classes, cx.config.cache_records);
        let boots = members.iter().map(|switch| (*switch, hello(switch).boot)).collect();
        let preserves = self.preserves(cx, members);
        if preserves == Preserved::Nothing {
            self.snapshots.unschedule(cx.now);
        }
        let stored_by = cx.directory.begin_epoch(cx.outbox, self.id, boots, preserves, round);
        let recovery = Recovery::new(
            cx.now,
            cx.directory.epoch(self.id),
            stored_by,
            silent_since_us,
            members.iter().copied(),
            cx.directory.holders(self.id).iter().copied(),
            is_drained,
        );
        self.phase = Phase::Recovering(Box::new(recovery));
    }

    /// What clients preserve if these switches serve: nothing, if there are copies in two failure
    /// domains.
    fn preserves(&self, cx: &Context<'_>, members: &[u16]) -> Preserved {
        let copies = if cx.mechanisms.count_domains() {
            cx.members.domains(members.iter().copied())
        } else {
            members.len()
        };
        let is_enough = copies > 1 && cx.config.scheme.keeps_in_switches();
        match cx.config.preserve {
            Preserve::Auto if is_enough => Preserved::Nothing,
            _ => Preserved::All,
        }
    }

    /// After a restart of the controller: the switches serve on, and tell what they hold.
    fn resync(&mut self, cx: &mut Context<'_>) {
        let owner = cx.directory.owner(self.id).and_then(|owner| cx.members.switch(owner));
        let classes = &owner.expect("all members said hello").classes;
        self.cache = Cache::new(classes, cx.config.cache_records);
        self.commands.clear_but_offers();
        self.waiting.clear();
        self.tell_views_again(cx);
        self.phase = Phase::Resyncing(Resync::new(cx.directory.switches(self.id)));
        self.command_members(cx, SwitchCommand::ListEntries(None));
    }
}
