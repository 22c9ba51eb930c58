//! The whole generator against a fake rack: its counters, and that `--verify` finds every kind of
//! cheating.

use super::{Measured, Plan, Progress, measure};
use crate::fake::{Cheat, FakeRack};
use crate::rack::BenchRack;
use crate::verify::Fault;
use crate::workload::{
    Change, KeySpace, Lengths, Pattern, Preload, ValueBytes, Workload, WorkloadSpec,
};
use std::time::Duration;
use switchback_wire::Scheme;

const RECORDS: u64 = 2000;

fn plan(workload: Workload) -> Plan {
    let value_bytes = ValueBytes::constant(64);
    let (theta, records) = (0.99, RECORDS);
    let spec = WorkloadSpec { workload, theta, records, value_bytes, change: None, seed: 1 };
    Plan {
        spec,
        keys: KeySpace::new(1, 16),
        clients: 2,
        outstanding: 16,
        ladder: Vec::new(),
        rate_ops: None,
        poisson: true,
        warmup: Duration::from_millis(20),
        measured: Duration::from_millis(200),
        change_every: None,
        verify: true,
        crash: None,
        learner_records: None,
        node_capacity_ops: None,
    }
}

fn run_on(rack: FakeRack, plan: &Plan) -> anyhow::Result<Measured> {
    let mut rack: Box<dyn BenchRack> = Box::new(rack);
    rack.load(Preload::new(plan.keys, plan.spec.lengths(), 0..plan.spec.preloaded()))?;
    rack.preload_cache(plan.spec.hottest(100).map(|index| plan.keys.key(index)).collect())?;
    let measured = measure(rack.as_mut(), plan, &mut |_| ());
    rack.stop()?;
    measured
}

fn run(plan: &Plan) -> Measured {
    run_on(FakeRack::new(Scheme::FarReach, 4, 97, None), plan).unwrap()
}

#[test]
fn honest_racks_pass_under_every_workload() {
    for name in ["load", "a", "b", "c", "d", "f", "mix:100", "twitter:22", "twitter:36"] {
        let plan = plan(name.parse().unwrap());
        let measured = run(&plan);
        let verification = measured.verification.unwrap();
        assert_eq!(verification.mismatches, 0, "{name}: {:?}", verification.examples);
        assert!(
            verification.verified > 0 && verification.unchecked == 0,
            "{name}: {verification:?}"
        );
        assert!(verification.swept > 0 && measured.unswept == 0, "{name}: {verification:?}");
        let recorder = &measured.recorder;
        assert!(
            recorder.operations > 0 && recorder.failed == 0,
            "{name}: lost answers are asked for again"
        );
        assert_eq!(recorder.steps.iter().sum::<u64>(), recorder.operations);
        let latencies: u64 =
            recorder.latencies.iter().flatten().map(|histogram| histogram.len()).sum();
        assert_eq!(
            latencies, recorder.operations,
            "{name}: a closed loop measures each operation once"
        );
        assert!(
            recorder.cached <= recorder.requests && (name != "load" || recorder.cached == 0),
            "{name}"
        );
        assert!(measured.rack.node_ops.iter().sum::<u64>() > 0, "{name}");
    }
}

#[test]
fn cheating_is_found() {
    for cheat in Cheat::ALL {
        let expected = match cheat {
            Cheat::StaleRead => Fault::Stale,
            Cheat::OldValueNewSeq => Fault::Different,
            Cheat::OtherRecord => Fault::Foreign,
            Cheat::Garbled => Fault::Corrupt,
            Cheat::LostWrite => Fault::Stale,
            Cheat::Vanished => Fault::Missing,
            Cheat::OldSeq => Fault::Unordered,
        };
        // It cheats once in a hundred requests: on a machine that is busy with other programs, a
        // run may have too few.
        let found = (0..20).any(|_| {
            let rack = FakeRack::new(Scheme::FarReach, 4, 97, Some(cheat));
            let verification = run_on(rack, &plan(Workload::A)).unwrap().verification.unwrap();
            assert!(
                verification.mismatches <= verification.verified / 10,
                "{cheat:?}: {verification:?}"
            );
            assert_eq!(verification.examples.is_empty(), verification.mismatches == 0);
            verification.faults.contains_key(&expected)
        });
        assert!(found, "{cheat:?}");
    }
}

#[test]
fn the_sweep_finds_what_the_run_did_not_read() {
    // Writes only: the reads at the end are the only ones that can find lost writes.
    let rack = FakeRack::new(Scheme::FarReach, 4, 0, Some(Cheat::LostWrite));
    let plan = Plan {
        spec: WorkloadSpec { theta: 0.0, ..plan(Workload::Load).spec },
        ..plan(Workload::Load)
    };
    let verification = run_on(rack, &plan).unwrap().verification.unwrap();
    assert!(verification.faults.contains_key(&Fault::Missing), "{verification:?}");
}

#[test]
fn without_verification_nothing_is_checked() {
    let rack = FakeRack::new(Scheme::FarReach, 4, 0, Some(Cheat::Garbled));
    assert!(
        run_on(rack, &Plan { verify: false, ..plan(Workload::A) }).unwrap().verification.is_none()
    );
}

#[test]
fn an_open_loop_sends_what_is_due_and_counts_from_then() {
    let measured = run(&Plan { rate_ops: Some(2000.0), ..plan(Workload::A) });
    let due: u64 =
        measured.recorder.latencies.iter().flatten().map(|histogram| histogram.len()).sum();
    assert_eq!(measured.recorder.lateness.len() + measured.unsent, due);
    // 0.2 s of 2000 a second, Poisson: 400 give or take five standard deviations.
    assert!((300..500).contains(&due), "{due}");
    assert_eq!(measured.verification.unwrap().mismatches, 0);
}

#[test]
fn an_open_loop_that_is_too_fast_shows_in_its_latencies() {
    // No rack reaches this rate; operations that aren't begun count with the time that they have
    // waited so far.
    let rate_ops = Some(50e6);
    let measured = run(&Plan {
        rate_ops,
        verify: false,
        measured: Duration::from_millis(50),
        ..plan(Workload::C)
    });
    let due: u64 =
        measured.recorder.latencies.iter().flatten().map(|histogram| histogram.len()).sum();
    assert!(measured.unsent > 0 && due > 2_000_000, "{} unsent of {due}", measured.unsent);
    let slowest = measured.recorder.latencies[0][1].max();
    assert!(slowest >= 1_000_000_000, "waited through the whole drain: {slowest} ns");
}

#[test]
fn a_closed_loop_never_has_more_outstanding_than_it_may() {
    // The fake panics in the session if lanes run out; one is the strictest.
    let measured = run(&Plan { outstanding: 1, clients: 1, ..plan(Workload::F) });
    assert!(measured.recorder.operations > 0);
    assert_eq!(measured.verification.unwrap().mismatches, 0);
}

#[test]
fn popularity_changes_while_it_runs() {
    let change = Some(Change { pattern: Pattern::HotIn, keys: 200 });
    let spec = WorkloadSpec { change, ..plan(Workload::C).spec };
    let every = Duration::from_millis(100);
    let measured = run(&Plan { spec, change_every: Some(every), ..plan(Workload::C) });
    assert_eq!(measured.phase, 1);
    assert_eq!(measured.verification.unwrap().mismatches, 0);
}

#[test]
fn progress_is_told() {
    let plan = Plan { verify: false, ..plan(Workload::A) };
    let mut rack: Box<dyn BenchRack> = Box::new(FakeRack::new(Scheme::NoCache, 2, 0, None));
    rack.load(Preload::new(plan.keys, plan.spec.lengths(), 0..RECORDS)).unwrap();
    let mut told = Vec::new();
    measure(rack.as_mut(), &plan, &mut |progress| told.push(progress)).unwrap();
    assert_eq!((told.first(), told.last()), (Some(&Progress::Warmup), Some(&Progress::Finishing)));
    rack.stop().unwrap();
}

#[test]
fn a_client_that_fails_ends_the_run_and_says_why() {
    let value_bytes = ValueBytes::constant(2 << 20);
    let plan = Plan {
        spec: WorkloadSpec { value_bytes, ..plan(Workload::A).spec },
        verify: false,
        measured: Duration::from_secs(600),
        ..plan(Workload::A)
    };
    let mut rack: Box<dyn BenchRack> = Box::new(FakeRack::new(Scheme::NoCache, 2, 0, None));
    rack.load(Preload::new(plan.keys, Lengths::constant(64), 0..RECORDS)).unwrap();
    let error = measure(rack.as_mut(), &plan, &mut |_| ()).err().unwrap();
    assert!(format!("{error:#}").contains("a value at most"), "{error:#}");
    rack.stop().unwrap();
}
