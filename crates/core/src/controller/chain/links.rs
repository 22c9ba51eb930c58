//! Links between the switches of a chain: which are dead though both ends live, and which end the
//! chain goes on without because of it (rule 28; DistReach assumes that links don't fail).
//!
//! Switches probe their neighbours through the data path, and tell how many probes arrived. One
//! that hears nothing new of a neighbour for as long as a silent switch takes to count as dead has
//! lost the link to it, in this direction. The chain then goes on without one end of that link.

use super::{Chain, Context, Phase};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::{Heard, PACKET_BYTES_MAX, Probes};

/// Exponential backoff: the pause doubles each time that a switch is left out, to at most this many
/// times the first one.
const PAUSES_MAX: u64 = 64;

/// A switch next to another one in the chain, as that one hears it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Side {
    Before,
    After,
}

/// The probes of a neighbour that a switch has heard in this epoch, and when each count rose last.
#[derive(Clone, Copy, Debug)]
struct Reception {
    probes: Probes,
    short_us: u64,
    full_us: u64,
}

impl Reception {
    fn hear(&mut self, now: Now, probes: Probes) {
        if probes.short != self.probes.short {
            self.short_us = now.monotonic_us;
        }
        if probes.full != self.probes.full {
            self.full_us = now.monotonic_us;
        }
        self.probes = probes;
    }
}

/// How a link is dead, as the end tells that doesn't hear the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing arrives.
    Silent,
    /// Short packets arrive, and long ones don't.
    ShortOnly,
}

/// One direction of a link that is dead.
#[derive(Clone, Copy, Debug)]
struct DeadLink {
    from: u16,
    /// It doesn't hear `from`.
    to: u16,
    fault: Fault,
}

/// A switch that the chain goes on without.
#[derive(Clone, Copy, Debug)]
struct LeftOut {
    link: DeadLink,
    /// It may serve again from then on.
    until_us: u64,
    pause_us: u64,
}

/// What the switches of a chain hear of each other, and which are left out.
#[derive(Debug, Default)]
pub(super) struct Links {
    receptions: BTreeMap<(u16, Side), Reception>,
    /// The last time of each switch.
    left_out: BTreeMap<u16, LeftOut>,
}

impl Links {
    /// Another epoch begins, with neighbours that may be others.
    pub(super) fn forget(&mut self) {
        self.receptions.clear();
    }

    /// Whether the chain goes on without a switch for now.
    pub(super) fn is_left_out(&self, now: Now, switch: u16) -> bool {
        self.left_out.get(&switch).is_some_and(|left_out| now.monotonic_us < left_out.until_us)
    }

    /// A switch may serve again.
    pub(super) fn forgive(&mut self, switch: u16) {
        self.left_out.remove(&switch);
    }

    fn hear(&mut self, now: Now, switch: u16, heard: Heard) {
        let now_us = now.monotonic_us;
        for (side, probes) in [(Side::Before, heard.before), (Side::After, heard.after)] {
            // Its time begins when the switch first tells of it in an epoch.
            let reception = self.receptions.entry((switch, side));
            let first = Reception { probes, short_us: now_us, full_us: now_us };
            reception.or_insert(first).hear(now, probes);
        }
    }

    /// What a switch doesn't hear of a neighbour, by now; `None`: it hears it, or hasn't told.
    fn fault(&self, now: Now, timeout_us: u64, switch: u16, side: Side) -> Option<Fault> {
        let reception = self.receptions.get(&(switch, side))?;
        let is_late = |since_us: u64| now.monotonic_us.saturating_sub(since_us) >= timeout_us;
        match (is_late(reception.short_us), is_late(reception.full_us)) {
            (true, _) => Some(Fault::Silent),
            (false, true) => Some(Fault::ShortOnly),
            (false, false) => None,
        }
    }

    fn leave_out(&mut self, now: Now, switch: u16, link: DeadLink, pause_us: u64) {
        let before = self.left_out.get(&switch);
        let pause_us = before.map_or(pause_us, |before| {
            (2 * before.pause_us).min(PAUSES_MAX.saturating_mul(pause_us))
        });
        let until_us = now.in_us(pause_us);
        self.left_out.insert(switch, LeftOut { link, until_us, pause_us });
    }

    /// Why the chain goes on without a switch; `None`: it doesn't.
    fn reason(&self, now: Now, switch: u16) -> Option<String> {
        let LeftOut { link: DeadLink { from, to, fault }, until_us, .. } =
            *self.left_out.get(&switch).filter(|_| self.is_left_out(now, switch))?;
        let what = match fault {
            Fault::Silent => "nothing".to_owned(),
            Fault::ShortOnly => format!(
                "no packet of {PACKET_BYTES_MAX} bytes (but short ones: an MTU is too small)"
            ),
        };
        let left_s = until_us.saturating_sub(now.monotonic_us).div_ceil(1_000_000);
        Some(format!(
            "{what} gets from switch {from} to switch {to}: it is tried again in {left_s} s, or by \
             `switchback ctl switches add {switch}`"
        ))
    }
}

impl Chain {
    /// A member tells what it hears of its neighbours. If a link to it is dead, the chain goes on
    /// without one end of it.
    pub(super) fn switch_heard(&mut self, cx: &mut Context<'_>, switch: u16, heard: Heard) {
        if !matches!(self.phase, Phase::Serving) || !cx.mechanisms.route_around() {
            return;
        }
        self.links.hear(cx.now, switch, heard);
        let members: Vec<_> = cx.directory.switches(self.id).collect();
        let Some(at) = members.iter().position(|member| *member == switch) else { return };
        let link_before = at.checked_sub(1).map(|before| (before, Side::Before));
        let link_after = Some((at + 1, Side::After)).filter(|(after, _)| *after < members.len());
        for (other, side) in [link_before, link_after].into_iter().flatten() {
            let timeout_us = cx.config.switch_timeout_us;
            let Some(fault) = self.links.fault(cx.now, timeout_us, switch, side) else { continue };
            if cx.members.is_switch_alive(cx.now, members[other]) {
                let out = self.less_heard(cx, &members, at.min(other));
                let link = DeadLink { from: members[other], to: switch, fault };
                self.go_on_without(cx, out, link);
                return;
            }
        }
    }

    /// Of the two ends of the link behind the member at this place, the one that fewer others hear;
    /// if there are as many, the one nearer to the clients, which is a keeper.
    fn less_heard(&self, cx: &Context<'_>, members: &[u16], at: usize) -> u16 {
        let hears = |member: Option<&u16>, side: Side| {
            let timeout_us = cx.config.switch_timeout_us;
            let fault = |member: &u16| self.links.fault(cx.now, timeout_us, *member, side);
            member.is_some_and(|member| fault(member).is_none())
        };
        let before = at.checked_sub(1).and_then(|before| members.get(before));
        let is_first_heard = hears(before, Side::After);
        let is_second_heard = hears(members.get(at + 2), Side::Before);
        if is_first_heard && !is_second_heard { members[at + 1] } else { members[at] }
    }

    fn go_on_without(&mut self, cx: &mut Context<'_>, out: u16, link: DeadLink) {
        self.links.leave_out(cx.now, out, link, cx.config.link_pause_us);
        let members = self.formed(cx, None);
        if !members.contains(&out) {
            self.start_recovery(cx, &members);
        }
    }

    /// Whether the chain's next epoch may do without a switch that was left out: another one that
    /// lives has what was told.
    pub(super) fn does_without(&self, cx: &Context<'_>, switch: u16) -> bool {
        let is_needed = || {
            let living = self.living_witnesses(cx);
            let is_other = |other: &u16| !self.links.is_left_out(cx.now, *other);
            living.contains(&switch) && !living.iter().any(is_other)
        };
        self.links.is_left_out(cx.now, switch) && !is_needed()
    }

    /// A switch may serve again though the link to it was dead.
    pub(in crate::controller) fn forgive(&mut self, switch: u16) {
        self.links.forgive(switch);
    }

    /// Whether the chain goes on without a switch for now.
    pub(in crate::controller) fn is_left_out(&self, now: Now, switch: u16) -> bool {
        self.links.is_left_out(now, switch)
    }

    /// Why the chain goes on without a switch that lives; `None`: it doesn't.
    pub(in crate::controller) fn reason_left_out(&self, now: Now, switch: u16) -> Option<String> {
        self.links.reason(now, switch)
    }
}
