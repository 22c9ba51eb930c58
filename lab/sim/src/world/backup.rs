//! Backups are cut while the load and the faults go on. Each that is complete is compared with the
//! history: it is what nodes and caches held at one moment.

use super::World;
use crate::check::{Check, Violation};
use crate::event::Event;
use crate::history::{Answered, OpIndex};
use serde::Deserialize;
use std::collections::BTreeMap;
use switchback_assembly::Part;
use switchback_core::control::KeyedRecord;
use switchback_core::controller::{BackupFile, BackupPart, BackupStage};
use switchback_core::storage::Record;
use switchback_wire::{KeyHash, Seq};

/// What is known of the backup under way.
#[derive(Default)]
pub(super) struct BackupSlot {
    /// The last try to cut that came so far that all clients hold their writes back.
    cut: Option<Cut>,
    /// The records of the snapshots that it has stored, and its number.
    snapshots: (u64, BTreeMap<KeyHash, Record>),
}

/// A try to cut.
struct Cut {
    round: u64,
    /// The newest version of each key that a client knew of when the cut began.
    known: Vec<Seq>,
    /// The moment when it was made.
    made: Option<u64>,
}

/// A snapshot's file, as its reader sees it.
#[derive(Deserialize)]
struct SnapshotFile {
    _epoch: u32,
    _generation: u32,
    records: Vec<KeyedRecord>,
}

impl World {
    /// An operator asks for a backup, now and then, until the faults are over.
    pub(super) fn back_up(&mut self) {
        if self.is_healed() {
            return;
        }
        self.queue.push(self.now_us + self.plan.backup_every_us, Event::BackUp);
        let now = self.now(Part::Controller);
        let Some(controller) = &mut self.controller.controller else { return };
        controller.back_up(now);
        self.pump_controller();
    }

    /// Notes when a cut begins and when it is made.
    pub(super) fn watch_backup(&mut self) {
        let Some(controller) = &self.controller.controller else { return };
        let (stage, round) = controller.backup_stage();
        let is_known = self.backup.cut.as_ref().is_some_and(|cut| cut.round == round);
        match stage {
            BackupStage::Cutting if !is_known => {
                let known = |key| self.witness.known(&self.history, key);
                let known = (0..self.workload.keys()).map(known).collect();
                self.backup.cut = Some(Cut { round, known, made: None });
            }
            BackupStage::Collecting if is_known => {
                let cut = self.backup.cut.as_mut().expect("just seen");
                cut.made.get_or_insert_with(|| self.history.tick());
            }
            _ => {}
        }
    }

    /// A file of a backup is on the disk.
    pub(super) fn keep_of_backup(&mut self, file: BackupFile, bytes: &[u8]) {
        match file.part {
            BackupPart::Snapshot(_) => {
                let read: SnapshotFile =
                    postcard::from_bytes(bytes).expect("the controller wrote it");
                let (number, records) = &mut self.backup.snapshots;
                if *number != file.number {
                    (*number, *records) = (file.number, BTreeMap::new());
                }
                records.extend(read.records.into_iter().map(|keyed| (keyed.hash, keyed.record)));
            }
            BackupPart::Directory => {
                self.statistics.backups += 1;
                if let Err(text) = self.check_backup(file.number) {
                    let text = format!("backup {} {text}", file.number);
                    self.fail(Violation::general(Check::BackupCut, text));
                }
            }
        }
    }

    /// Compares a complete backup with the history.
    fn check_backup(&mut self, number: u64) -> Result<(), String> {
        let cut = self.backup.cut.take().filter(|cut| cut.round == number);
        let cut = cut.ok_or("was never cut")?;
        let made = cut.made.ok_or("is complete before it is cut")?;
        let snapshots = match &self.backup.snapshots {
            (of, records) if *of == number => records.clone(),
            _ => BTreeMap::new(),
        };
        let mut nodes = Vec::new();
        for (node, slot) in self.nodes.iter().enumerate() {
            let restored = slot.engine.restored(number);
            nodes.push(restored.ok_or_else(|| format!("lacks the checkpoint of node{node}"))?);
        }
        let Some(controller) = &self.controller.controller else { return Ok(()) };
        let (hash_key, map) = (controller.hash_key(), &self.map);
        let mut versions = Vec::new();
        for key in 0..self.workload.keys() {
            let hash = hash_key.hash(self.workload.key(key));
            let engine = &nodes[usize::from(map.of(hash).head())];
            let of_node = engine.record(&hash).map_or(engine.floors().of(&hash), |it| it.seq);
            let of_cache = snapshots.get(&hash).map_or(Seq::NONE, |record| record.seq);
            let version = of_node.max(of_cache);
            let known = cut.known[key as usize];
            if version < known {
                return Err(format!("has key {key} as {version}, though {known} was known before"));
            }
            versions.push(version);
        }
        self.check_versions(&versions, made)
    }

    /// Nothing in the backup began after it was cut, or after something was acknowledged that it
    /// lacks.
    fn check_versions(&self, versions: &[Seq], made: u64) -> Result<(), String> {
        let mut first_lacking: Option<(u64, OpIndex)> = None;
        let mut last_begun: Option<(u64, OpIndex)> = None;
        for (index, op) in (0..).zip(&self.history.ops) {
            if !op.changes() || op.answered != Answered::Written || op.weak {
                continue;
            }
            if Seq(op.seq) > versions[op.key as usize] {
                if first_lacking.is_none_or(|(moment, _)| op.responded < moment) {
                    first_lacking = Some((op.responded, index));
                }
            } else if last_begun.is_none_or(|(moment, _)| op.invoked > moment) {
                last_begun = Some((op.invoked, index));
            }
        }
        let text = |index: OpIndex| format!("#{index}: {}", self.history.ops[index as usize]);
        if let Some((moment, index)) = last_begun
            && moment > made
        {
            return Err(format!("has what began after it was cut: {}", text(index)));
        }
        if let (Some((ended, lacking)), Some((began, has))) = (first_lacking, last_begun)
            && ended < began
        {
            return Err(format!("lacks {}, but has {}", text(lacking), text(has)));
        }
        Ok(())
    }
}
