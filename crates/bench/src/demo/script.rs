//! What happens in the demo, and when. Pure: what is seen comes in, what is to be done goes out.

use super::load::Done;
use anyhow::bail;
use std::time::Duration;
use switchback_rack::admin::{RackStatus, RecoveryStatus};

/// Without a terminal, how long the load goes on before the next kill.
const PAUSE: Duration = Duration::from_secs(1);
/// Nothing takes longer: a takeover, a recovery, an audit, the return of the spare.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a user asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Kill,
    End,
}

/// What is seen.
pub(super) struct Sight<'a> {
    /// Since the start of the load.
    pub(super) now: Duration,
    pub(super) status: &'a RackStatus,
    pub(super) done: &'a Done,
    pub(super) wish: Option<Wish>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Act {
    Kill(u16),
    Restart(u16),
    Audit,
    End,
    Tell(Event),
}

/// What is told.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Event {
    /// A switch was killed; with the number of this kill and how many there are to be.
    Killed { switch: u16, kill: u32, of: Option<u32> },
    /// Why none is killed now.
    NotNow(&'static str),
    /// Another switch serves, and has all keys again.
    Recovered { by: u16, times: RecoveryStatus },
    /// Every record that was written was read once more.
    Audited {
        records: u64,
        /// Wrong answers since the kill.
        lost: u64,
        /// Requests since then whose outcome isn't known.
        unknown: u64,
    },
}

/// What is under way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    /// The next kill may come.
    Calm,
    /// A switch was killed in this epoch; another is to serve.
    TakingOver { killed: u16, epoch: u32 },
    /// It serves, and its cache is to be as it was.
    Readmitting { by: u16, epoch: u32 },
    /// This audit reads everything once more.
    Auditing { audit: u32 },
}

/// The script.
pub(super) struct Script {
    /// Kills that are to come by themselves; `None`: a key asks for each.
    wanted: Option<u32>,
    stage: Stage,
    /// When the stage began.
    since: Duration,
    kills: u32,
    audits: u32,
    /// Wrong answers, and operations without an outcome, before the last kill.
    before: (u64, u64),
    recoveries: Vec<RecoveryStatus>,
}

impl Script {
    pub(super) fn new(wanted: Option<u32>) -> Script {
        Script {
            wanted,
            stage: Stage::Calm,
            since: Duration::ZERO,
            kills: 0,
            audits: 0,
            before: (0, 0),
            recoveries: Vec::new(),
        }
    }

    /// The recoveries so far.
    pub(super) fn recoveries(&self) -> &[RecoveryStatus] {
        &self.recoveries
    }

    /// What is to be done now.
    ///
    /// # Errors
    /// Something that was to happen didn't, for long.
    pub(super) fn step(&mut self, sight: &Sight<'_>) -> anyhow::Result<Vec<Act>> {
        if sight.wish == Some(Wish::End) {
            return Ok(vec![Act::End]);
        }
        let mut acts = match self.stage {
            Stage::Calm => self.calm(sight),
            Stage::TakingOver { killed, epoch } => self.taking_over(sight, killed, epoch),
            Stage::Readmitting { by, epoch } => self.readmitting(sight, by, epoch),
            Stage::Auditing { audit } => self.auditing(sight, audit),
        };
        if sight.wish == Some(Wish::Kill) && acts.is_empty() {
            let why = match self.stage {
                Stage::Calm if self.wanted.is_some() => "kills come by themselves",
                Stage::Calm if serving(sight.status).is_none() => "no switch serves",
                Stage::Calm => "no spare switch yet",
                _ => "the last kill isn't dealt with yet",
            };
            acts.push(Act::Tell(Event::NotNow(why)));
        }
        let is_waiting = self.stage != Stage::Calm || self.wanted.is_some();
        if is_waiting && sight.now.saturating_sub(self.since) > PATIENCE {
            let what = match self.stage {
                Stage::Calm => "no spare switch",
                Stage::TakingOver { .. } => "no switch has taken over",
                Stage::Readmitting { .. } => "the cache isn't what it was",
                Stage::Auditing { .. } => "not every record could be read",
            };
            bail!("{what} after {} s", PATIENCE.as_secs());
        }
        Ok(acts)
    }

    fn enter(&mut self, stage: Stage, now: Duration) {
        (self.stage, self.since) = (stage, now);
    }

    fn calm(&mut self, sight: &Sight<'_>) -> Vec<Act> {
        let is_wanted = match self.wanted {
            None => sight.wish == Some(Wish::Kill),
            Some(wanted) if self.kills >= wanted => return vec![Act::End],
            Some(_) => sight.now.saturating_sub(self.since) >= PAUSE,
        };
        let has_spare = sight.status.switches.iter().any(|it| it.alive && !it.active);
        let (Some(killed), Some(epoch)) = (serving(sight.status), sight.status.epoch) else {
            return Vec::new();
        };
        if !is_wanted || !has_spare {
            return Vec::new();
        }
        self.kills += 1;
        self.before = (sight.done.verification.mismatches, sight.done.failed);
        self.enter(Stage::TakingOver { killed, epoch }, sight.now);
        let event = Event::Killed { switch: killed, kill: self.kills, of: self.wanted };
        vec![Act::Kill(killed), Act::Tell(event)]
    }

    fn taking_over(&mut self, sight: &Sight<'_>, killed: u16, epoch: u32) -> Vec<Act> {
        let Some(by) = serving(sight.status).filter(|by| *by != killed) else {
            return Vec::new();
        };
        if sight.status.epoch.is_none_or(|now| now <= epoch) {
            return Vec::new();
        }
        self.enter(Stage::Readmitting { by, epoch }, sight.now);
        vec![Act::Restart(killed)]
    }

    fn readmitting(&mut self, sight: &Sight<'_>, by: u16, epoch: u32) -> Vec<Act> {
        let times = sight.status.recovery.as_ref();
        let Some(times) = times.filter(|times| times.complete && times.epoch > epoch) else {
            return Vec::new();
        };
        self.recoveries.push(times.clone());
        self.audits += 1;
        self.enter(Stage::Auditing { audit: self.audits }, sight.now);
        vec![Act::Tell(Event::Recovered { by, times: times.clone() }), Act::Audit]
    }

    fn auditing(&mut self, sight: &Sight<'_>, audit: u32) -> Vec<Act> {
        let done = sight.done;
        if done.audits < audit {
            return Vec::new();
        }
        let (mismatches, failed) = self.before;
        self.enter(Stage::Calm, sight.now);
        vec![Act::Tell(Event::Audited {
            records: done.audited,
            lost: done.verification.mismatches - mismatches,
            unknown: done.failed - failed,
        })]
    }
}

/// The switch that serves, if the rack does.
fn serving(status: &RackStatus) -> Option<u16> {
    let active = status.switches.iter().find(|switch| switch.active && switch.alive);
    active.filter(|_| status.phase == "serving").map(|switch| switch.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_rack::admin::SwitchStatus;

    /// A rack in which this switch serves, and which others are alive.
    fn status(epoch: u32, active: u16, alive: [bool; 2], recovery: Option<u32>) -> RackStatus {
        let switch = |index: u16| SwitchStatus {
            index,
            active: index == active,
            alive: alive[usize::from(index)],
            ..SwitchStatus::default()
        };
        RackStatus {
            phase: "serving".to_owned(),
            epoch: Some(epoch),
            switches: vec![switch(0), switch(1)],
            recovery: recovery.map(|epoch| RecoveryStatus {
                epoch,
                complete: true,
                ..Default::default()
            }),
            ..RackStatus::default()
        }
    }

    fn step(script: &mut Script, at: u64, status: &RackStatus, wish: Option<Wish>) -> Vec<Act> {
        let done = Done { audits: u32::from(at >= 9), audited: 77, ..Done::default() };
        let now = Duration::from_secs(at);
        script.step(&Sight { now, status, done: &done, wish }).unwrap()
    }

    #[test]
    fn a_kill_is_followed_by_takeover_recovery_and_audit() {
        let mut script = Script::new(None);
        let kill = Some(Wish::Kill);
        assert_eq!(step(&mut script, 0, &status(4, 1, [true, true], None), None), []);
        let killed = Event::Killed { switch: 1, kill: 1, of: None };
        assert_eq!(
            step(&mut script, 1, &status(4, 1, [true, true], None), kill),
            [Act::Kill(1), Act::Tell(killed)]
        );
        assert_eq!(step(&mut script, 2, &status(4, 1, [true, true], None), None), []);
        let recovering = RackStatus { phase: "recovering".into(), ..status(5, 0, [true; 2], None) };
        assert_eq!(step(&mut script, 3, &recovering, None), []);
        let serving = status(5, 0, [true, false], Some(4));
        assert_eq!(step(&mut script, 4, &serving, None), [Act::Restart(1)]);
        assert_eq!(step(&mut script, 5, &serving, None), [], "the recovery is an older one");
        let acts = step(&mut script, 6, &status(5, 0, [true, true], Some(5)), None);
        assert!(matches!(acts[..], [Act::Tell(Event::Recovered { by: 0, .. }), Act::Audit]));
        assert_eq!(step(&mut script, 7, &status(5, 0, [true, true], Some(5)), None), []);
        assert_eq!(
            step(&mut script, 9, &status(5, 0, [true, true], Some(5)), None),
            [Act::Tell(Event::Audited { records: 77, lost: 0, unknown: 0 })]
        );
        assert_eq!(script.recoveries().len(), 1);
    }

    #[test]
    fn no_switch_is_killed_without_a_spare() {
        let mut script = Script::new(None);
        let acts = step(&mut script, 1, &status(4, 0, [true, false], None), Some(Wish::Kill));
        assert!(matches!(acts[..], [Act::Tell(Event::NotNow(_))]), "{acts:?}");
        // Nor does it happen later.
        assert_eq!(step(&mut script, 2, &status(4, 0, [true, true], None), None), []);
    }

    #[test]
    fn without_a_terminal_it_kills_by_itself_and_ends() {
        let mut script = Script::new(Some(1));
        let calm = status(4, 0, [true, true], None);
        assert_eq!(step(&mut script, 0, &calm, None), []);
        assert_eq!(step(&mut script, 1, &calm, None)[0], Act::Kill(0));
        let recovered = status(5, 1, [true, true], Some(5));
        assert_eq!(step(&mut script, 2, &recovered, None), [Act::Restart(0)]);
        assert_eq!(step(&mut script, 3, &recovered, None)[1], Act::Audit);
        assert!(matches!(step(&mut script, 9, &recovered, None)[..], [Act::Tell(_)]));
        assert_eq!(step(&mut script, 10, &recovered, None), [Act::End]);
    }

    #[test]
    fn what_never_comes_is_an_error() {
        let mut script = Script::new(None);
        let calm = status(4, 0, [true, true], None);
        step(&mut script, 1, &calm, Some(Wish::Kill));
        let sight = Sight {
            now: Duration::from_secs(62),
            status: &calm,
            done: &Done::default(),
            wish: None,
        };
        let error = script.step(&sight).unwrap_err().to_string();
        assert!(error.contains("no switch has taken over"), "{error}");
    }

    #[test]
    fn a_load_may_run_for_long_between_two_kills() {
        let mut script = Script::new(None);
        assert_eq!(step(&mut script, 3000, &status(4, 0, [true, true], None), None), []);
        assert_eq!(
            step(&mut script, 3001, &status(4, 0, [true, true], None), Some(Wish::End)),
            [Act::End]
        );
    }
}
