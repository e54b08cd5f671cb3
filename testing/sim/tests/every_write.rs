//! A short script that touches everything, interrupted at each single operation of the disk.

use alluvium_engine::TrimTo;
use alluvium_env::sim::{FaultRule, Operation as DiskOperation, SimDisk};
use alluvium_protocol::Offset;
use alluvium_sim::Outcome;
use alluvium_sim::operation::{
    AppendAsk, Body, CreateAsk, ForkAsk, Kind, Life, Operation, PublishAsk, Stamp, TrimAsk,
};
use alluvium_sim::report::Violation;
use alluvium_sim::world::{Setup, World};

/// What each interrupted run may leave is drawn from the seed of its disk; several seeds show several losses.
const SEEDS: u64 = 3;

fn create(path: &str, kind: Kind, body: Body) -> Operation {
    let ask = CreateAsk {
        path: path.to_owned(),
        kind: Some(kind),
        life: Life::Forever,
        closed: false,
        body,
        fork: None,
    };
    Operation::Create(ask)
}

fn fork(path: &str, source: &str, offset: Option<Offset>, sub_offset: u64) -> Operation {
    let ask = CreateAsk {
        path: path.to_owned(),
        kind: None,
        life: Life::Forever,
        closed: false,
        body: Body::EMPTY,
        fork: Some(ForkAsk { source: source.to_owned(), offset, sub_offset }),
    };
    Operation::Create(ask)
}

fn append(path: &str, body: Body, stamp: Option<(u64, u64)>, close: bool) -> Operation {
    let kind = if matches!(body, Body::Json(_)) { Kind::Json } else { Kind::Binary };
    let stamp = stamp.map(|(epoch, seq)| Stamp { id: "p1".to_owned(), epoch, seq });
    Operation::Append(AppendAsk { path: path.to_owned(), kind, body, stamp, seq: None, close })
}

fn publish(path: &str, offset: Offset, len: usize, retain_all: bool) -> Operation {
    Operation::Publish(PublishAsk { path: path.to_owned(), offset, body: vec![b's'; len], retain_all })
}

fn json(texts: &[&str]) -> Body {
    Body::Json(texts.iter().map(|text| (*text).to_owned()).collect())
}

fn bytes(byte: u8, len: usize) -> Body {
    Body::Bytes(vec![byte; len])
}

fn trim(path: &str, to: TrimTo) -> Operation {
    Operation::Trim(TrimAsk::One { path: path.to_owned(), to })
}

/// A rule that gives up what is old, and notes how old the rest is.
fn notes() -> Operation {
    Operation::Trim(TrimAsk::Rule { prefix: String::new(), bytes_max: None, age_ms_max: Some(1_000_000) })
}

fn script() -> Vec<Operation> {
    let commit = || [Operation::Commit(0), Operation::Commit(1)];
    let mut script =
        vec![create("a", Kind::Json, json(&["1", "[2]"])), create("b", Kind::Binary, Body::EMPTY)];
    script.extend(commit());
    for seq in 0..4 {
        script.push(append("a", json(&["{\"n\":1}", "\"two\"", "3"]), Some((0, seq)), false));
        script.push(append("b", bytes(b'0' + u8::try_from(seq).unwrap_or(0), 1300), Some((0, seq)), false));
        script.extend(commit());
    }
    script.push(append("b", bytes(b'x', 1300), Some((0, 4)), false));
    script.push(append("b", bytes(b'y', 1300), Some((0, 5)), false));
    script.push(append("b", bytes(b'z', 1300), Some((0, 6)), false));
    script.extend(commit());
    script.push(fork("chat/1", "b", Some(Offset::new(1, 1300)), 200));
    script.push(fork("chat/2", "a", None, 0));
    script.extend(commit());
    script.push(Operation::CreateBucket("red1".to_owned()));
    script.push(create("/ds/red1/x", Kind::Binary, bytes(b'0', 900)));
    script.push(publish("a", Offset::new(2, 24), 1000, false));
    script.extend(commit());
    script.push(append("/ds/red1/x", bytes(b'1', 900), None, false));
    script.push(publish("chat/1", Offset::new(1, 1300), 6000, true));
    script.extend(commit());
    script.extend(commit());
    script.push(publish("/ds/red1/x", Offset::new(2, 1800), 10, false));
    script.push(Operation::Cut("/ds/red1/x".to_owned()));
    script.extend(commit());
    script.push(Operation::Delete("/ds/red1/x".to_owned()));
    script.extend([
        trim("b", TrimTo::Offset(Offset::new(4, 5200))),
        trim("chat/2", TrimTo::Bytes(30)),
        notes(),
    ]);
    script.extend(commit());
    script.push(Operation::Delete("b".to_owned()));
    script.push(append("chat/1", bytes(b'f', 500), None, false));
    script.push(append("chat/2", json(&["4"]), None, true));
    script.extend(commit());
    script.extend([Operation::Fold(0), Operation::Fold(1)]);
    script.push(append("a", json(&["5"]), Some((1, 0)), false));
    script.push(append("chat/1", bytes(b'g', 700), None, false));
    script.extend(commit());
    script.extend([notes(), trim("chat/1", TrimTo::Age(0)), trim("a", TrimTo::Bytes(1))]);
    script.extend(commit());
    script.push(Operation::Delete("chat/1".to_owned()));
    script.extend(commit());
    script.push(publish("a", Offset::new(4, 80), 20, false));
    script.push(Operation::DeleteBucket("red1".to_owned()));
    script.extend(commit());
    script.extend([Operation::Advance(6000), Operation::Expire]);
    script.extend(commit());
    script.extend([
        Operation::Fold(0),
        Operation::Fold(1),
        Operation::Retry,
        Operation::Retry,
        Operation::Restart,
    ]);
    script
}

fn run(seed: u64, prepare: impl FnOnce(&SimDisk)) -> (Outcome, u64) {
    let disk = SimDisk::new(seed);
    prepare(&disk);
    let mut world =
        World::on_disk(Setup::quiet(seed), disk.clone(), false).expect("the first start succeeds at last");
    let steps = script().into_iter().try_for_each(|operation| world.step(operation));
    let ended: Result<(), Violation> = steps.and_then(|()| world.finish());
    (world.outcome(ended.err()), disk.operations())
}

fn assert_holds(outcome: &Outcome, seed: u64, what: &str) {
    if let Some(violation) = &outcome.violation {
        panic!("seed {seed}, {what}: {violation}");
    }
}

#[test]
fn a_crash_at_any_operation_of_the_disk_loses_nothing_that_was_answered() {
    let (undisturbed, operations) = run(0, |_| {});
    assert_holds(&undisturbed, 0, "undisturbed");
    assert!(undisturbed.counts.folds >= 2 && operations > 50, "{:?} {operations}", undisturbed.counts);
    for at in 0..operations {
        for seed in 0..SEEDS {
            let (outcome, _) = run(seed, |disk| disk.crash_at(at));
            assert_holds(&outcome, seed, &format!("crash at operation {at}"));
            assert_eq!(outcome.counts.faults.crashes, 1, "operation {at}");
        }
    }
}

#[test]
fn a_failure_of_any_write_or_sync_loses_nothing_that_was_answered() {
    for operation in
        [DiskOperation::Write, DiskOperation::SyncFile, DiskOperation::SyncDir, DiskOperation::Rename]
    {
        let mut fired = 0;
        for skip in 0.. {
            let rule = FaultRule { operation, path_contains: String::new(), skip };
            let (outcome, _) = run(skip, |disk| disk.plan(rule));
            assert_holds(&outcome, skip, &format!("{operation:?} {skip} fails"));
            let faults = outcome.counts.faults;
            if faults.syncs_failed + faults.writes_failed == 0 {
                break;
            }
            fired += 1;
        }
        assert!(fired > 0, "{operation:?} never failed");
    }
}
