//! The protocol from end to end: all parts over virtual networks, without sleeps.

use switchback_core::mechanisms::Mechanisms;
use switchback_sim::check::Check;
use switchback_sim::plan::{FaultKind, Faults, Plan};
use switchback_sim::run::run;
use switchback_wire::Scheme;

fn all_is_well(plans: impl Iterator<Item = Plan>) {
    let (mut cached, mut snapshots, mut drained) = (0, 0, 0);
    for plan in plans {
        let outcome = run(plan, false);
        let (seed, scheme) = (outcome.plan.seed, outcome.plan.scheme.name());
        assert!(outcome.violation.is_none(), "seed {seed} {scheme}\n{}", outcome.report);
        cached += outcome.statistics.cached;
        snapshots += outcome.statistics.snapshots;
        drained += outcome.statistics.drained;
    }
    assert!(cached > 1000 && drained > 0, "{cached} {snapshots} {drained}");
}

/// Sessions, reads, writes, deletes, conditional writes, scans, large values, admission, eviction,
/// snapshots, drain.
#[test]
fn a_rack_without_faults_serves() {
    all_is_well((0..25).flat_map(|seed| Scheme::ALL.map(|scheme| Plan::calm(seed, scheme))));
}

/// Backups end, also where nodes store keys of some chains only.
#[test]
fn a_rack_without_faults_has_backups() {
    for (seed, scheme) in (0..6).flat_map(|seed| Scheme::ALL.map(|scheme| (seed, scheme))) {
        let mut plan = Plan::calm(seed, scheme);
        plan.topology.nodes = 9;
        plan.topology.chains = 4;
        plan.topology.switches = 4 * u16::from(plan.topology.layers) + 1;
        plan.backup_every_us = 20_000;
        plan.times.backup_flush_us = 1_000;
        plan.safety_us = plan.safety_us.max(2_000_000);
        let outcome = run(plan, false);
        assert!(outcome.violation.is_none(), "seed {seed} {scheme:?}\n{}", outcome.report);
        assert!(outcome.statistics.backups > 0, "seed {seed} {scheme:?}: no backup was made");
    }
}

/// All is well, too, while packets are lost, duplicated and reordered.
#[test]
fn a_lossy_network_changes_nothing() {
    all_is_well((0..25).flat_map(|seed| Scheme::ALL.map(|scheme| Plan::lossy(seed, scheme))));
}

/// The same seed and binary make the same trace, byte for byte.
#[test]
fn a_seed_is_a_run() {
    for seed in 0..6 {
        let plan =
            || Plan::draw(seed, Scheme::FarReach, switchback_sim::ablation::Ablation::NOTHING);
        let (one, other) = (run(plan(), true), run(plan(), true));
        assert_eq!(one.trace, other.trace);
        assert!(one.text == other.text && !one.text.is_empty());
        assert_eq!(run(plan(), false).trace, one.trace);
    }
}

/// No rack answers while no packet arrives. If its parts are always faulty, too, that is no
/// violation, but the run counts as idle.
#[test]
fn nothing_is_asked_of_a_rack_that_is_broken_all_the_time() {
    for scheme in Scheme::ALL {
        let weights = vec![(FaultKind::PartitionData, 1)];
        let faults = Faults { every_us: 5_000, weights, lasts_us: 500_000 };
        let mut plan = Plan { faults, ..Plan::calm(1, scheme) };
        plan.data.loss = 1.0;
        let outcome = run(plan, false);
        assert!(outcome.violation.is_none(), "{}", outcome.report);
        assert_eq!(
            outcome.statistics.idle, 1,
            "{} operations were answered",
            outcome.statistics.completed
        );
    }
}

/// A rack that answers nothing although no part is faulty breaks its promise.
#[test]
fn a_rack_without_faults_that_answers_nothing_is_noticed() {
    for scheme in Scheme::ALL {
        let mut plan = Plan::calm(1, scheme);
        plan.data.loss = 1.0;
        let violation = run(plan, false).violation.expect("no packet arrives");
        assert_eq!(violation.check, Check::Progress);
    }
}

/// Without other faults an operator who takes switches out of service, and back, makes no write
/// fail, nor its outcome unknown, since clients end their writes first.
#[test]
fn switches_are_exchanged_and_no_write_is_indeterminate() {
    let indeterminate = |quiet_before_change| {
        let (mut indeterminate, mut drained) = (0, 0);
        for seed in 0..30 {
            for scheme in [Scheme::FarReach, Scheme::DistReach] {
                let weights = vec![(FaultKind::DrainSwitch, 1)];
                let faults = Faults { every_us: 60_000, weights, lasts_us: 30_000 };
                let mut plan = Plan { faults, ..Plan::calm(seed, scheme) };
                plan.topology.switches = plan.topology.switches.max(2);
                // Writes end in the time in which clients are waited for: there are numbers for
                // them, what is lost is soon sent again, and none is given up.
                plan.topology.sequence_start = 0;
                plan.times.client_retry_us = (2_000, 20_000);
                plan.times.deadline_us = 10_000_000;
                plan.ablation.mechanisms =
                    Mechanisms { quiet_before_change, ..plan.ablation.mechanisms };
                let outcome = run(plan, false);
                assert!(outcome.violation.is_none(), "{seed} {scheme}\n{}", outcome.report);
                indeterminate += outcome.statistics.indeterminate;
                drained += outcome.faults.get("drain_switch").copied().unwrap_or(0);
            }
        }
        assert!(drained > 100, "{drained} switches were drained");
        indeterminate
    };
    assert_eq!(indeterminate(true), 0);
    assert!(indeterminate(false) > 0);
}
