use proptest::prelude::*;

use super::*;

fn offset(appends: u64) -> Offset {
    Offset::new(appends, appends * 10)
}

/// Publishes as a committer would; the body is the number of the attempt.
fn publish(retention: &mut Retention<u64>, at: u64, tail: u64, retain_all: bool, body: u64) -> bool {
    let accepted = retention.check(offset(at), offset(tail)).is_ok();
    if accepted {
        retention.publish(Snapshot { offset: offset(at), body }, retain_all, 1000 + body);
    }
    accepted
}

#[test]
fn publishing_moves_the_floor_unless_all_is_retained() {
    let mut retention = Retention::default();
    assert!(publish(&mut retention, 2, 5, true, 1));
    assert_eq!((retention.floor, retention.base.is_some()), (Offset::ZERO, false));
    assert!(publish(&mut retention, 2, 5, false, 2));
    assert_eq!(retention.floor, offset(2));
    assert_eq!(retention.at(offset(2)).map(|snapshot| snapshot.body), Some(2));
    assert!(retention.superseded.is_empty(), "the same offset replaces at once");
    assert!(publish(&mut retention, 4, 5, true, 3));
    assert_eq!((retention.floor, retention.base.as_ref().map(|base| base.body)), (offset(2), Some(2)));
    assert!(publish(&mut retention, 5, 5, false, 4));
    assert_eq!((retention.floor, retention.base.is_some()), (offset(5), false));
    assert_eq!(retention.at(offset(2)).map(|snapshot| snapshot.body), Some(2), "readable for a while");
}

#[test]
fn the_first_check_that_fails_answers() {
    let mut retention = Retention::default();
    assert_eq!(retention.check(offset(6), offset(5)), Err(PublishRejection::BeyondTail { tail: offset(5) }));
    publish(&mut retention, 2, 5, false, 1);
    publish(&mut retention, 4, 5, true, 2);
    let retained = PublishRejection::Retained { floor: offset(2), snapshot: Some(offset(4)) };
    assert_eq!(retention.check(offset(1), offset(5)), Err(retained));
    let made_up = Offset { append_index: 6, position: 0 };
    assert_eq!(retention.check(made_up, offset(5)), Err(PublishRejection::BeyondTail { tail: offset(5) }));
    assert_eq!(retention.check(offset(3), offset(5)), Err(PublishRejection::Older { snapshot: offset(4) }));
    assert_eq!(retention.check(offset(4), offset(5)), Ok(()));
}

#[test]
fn a_snapshot_at_zero_drops_nothing() {
    let mut retention = Retention::default();
    assert!(publish(&mut retention, 0, 5, false, 1));
    assert_eq!(retention.floor, Offset::ZERO);
    assert!(retention.is_sound(offset(5)));
    assert!(publish(&mut retention, 3, 5, true, 2));
    assert_eq!(retention.base, None, "a floor of zero needs no cover");
}

#[test]
fn trimming_moves_the_floor_up_to_the_latest_snapshot_and_never_back() {
    let mut retention = Retention::<u64>::default();
    assert_eq!((retention.trim_max(offset(5)), retention.trim(offset(2))), (offset(5), None));
    assert_eq!(retention.floor, offset(2));
    assert_eq!(retention.trim(offset(1)), None);
    assert_eq!(retention.floor, offset(2), "a floor never moves back");
    let below = PublishRejection::Retained { floor: offset(2), snapshot: None };
    assert_eq!(retention.check(offset(1), offset(5)), Err(below));
    assert!(publish(&mut retention, 3, 5, false, 1) && publish(&mut retention, 5, 6, true, 2));
    assert_eq!(
        (retention.trim_max(offset(6)), retention.base.as_ref().map(|base| base.body)),
        (offset(5), Some(1))
    );
    let given_up = retention.trim(offset(4));
    assert_eq!(given_up.map(|base| base.body), Some(1), "it no longer stands at the floor");
    let inherited = retention.inherit(offset(4)).expect("at the floor");
    assert_eq!((inherited.floor, inherited.latest), (offset(4), None), "nothing covers it");
    assert_eq!(retention.inherit(offset(3)), None);
    assert!(publish(&mut retention, 6, 6, true, 3));
    assert_eq!(retention.base, None, "what is replaced lay above the floor");
}

#[test]
fn marks_tell_how_old_data_is_and_never_make_it_older() {
    let mut retention = Retention::<u64>::default();
    assert_eq!(retention.appended_by(u64::MAX), None);
    let mark = |time_ms, at| Mark { time_ms, offset: offset(at) };
    for one in [mark(10, 1), mark(10, 1), mark(30, 4), mark(20, 6), mark(40, 7)] {
        retention.mark(one);
    }
    let found: Vec<_> = [9, 10, 29, 30, 39, 40].map(|time_ms| retention.appended_by(time_ms)).into();
    let expected = [None, Some(1), Some(1), Some(6), Some(6), Some(7)].map(|at: Option<u64>| at.map(offset));
    assert_eq!(found, expected, "a clock that was set back makes nothing younger");
    assert!(!retention.is_default() && retention.is_sound(offset(7)));
    retention.trim(offset(4));
    assert_eq!(retention.marks, [mark(30, 6), mark(40, 7)]);
    assert_eq!(retention.inherit(offset(6)).map(|fork| fork.marks), Some(vec![mark(30, 6)]));
}

proptest! {
    #[test]
    fn however_many_marks_there_are_they_stay_few_and_true(gaps in prop::collection::vec((0_u64..5, 0_u64..3), 0..400)) {
        let mut retention = Retention::<u64>::default();
        // When each append was made.
        let mut appended = Vec::new();
        let mut now_ms = 0;
        for (elapsed, appends) in gaps {
            now_ms += elapsed;
            appended.extend((0..appends).map(|_| now_ms));
            retention.mark(Mark { time_ms: now_ms, offset: offset(appended.len() as u64) });
            prop_assert!(retention.marks.len() <= MARKS_MAX);
        }
        for time_ms in 0..=now_ms {
            if let Some(by) = retention.appended_by(time_ms) {
                let known = &appended[..usize::try_from(by.append_index).unwrap()];
                prop_assert!(known.iter().all(|appended_ms| *appended_ms <= time_ms));
            }
        }
        prop_assert_eq!(retention.appended_by(now_ms), appended.last().map(|_| offset(appended.len() as u64)));
    }

    #[test]
    fn what_always_holds_survives_any_publishes_trims_and_forks(
        steps in prop::collection::vec((0_u64..12, any::<bool>(), 0_u64..12, any::<bool>()), 1..40),
    ) {
        let mut retention = Retention::default();
        let mut tail = 0;
        for (body, (at, retain_all, grown, trims)) in steps.into_iter().enumerate() {
            tail += grown / 4;
            let before = retention.clone();
            if trims {
                let to = offset(at).min(retention.trim_max(offset(tail)));
                retention.trim(to);
                prop_assert_eq!(retention.floor, before.floor.max(to));
                prop_assert_eq!(&retention.latest, &before.latest);
            } else {
                let accepted = publish(&mut retention, at, tail, retain_all, body as u64);
                let first = before.latest.as_ref().map_or(before.floor, |latest| latest.offset);
                prop_assert_eq!(accepted, at <= tail && first <= offset(at));
            }
            prop_assert!(retention.floor >= before.floor);
            prop_assert!(retention.superseded.len() <= SUPERSEDED_SNAPSHOTS_MAX);
            prop_assert!(retention.is_sound(offset(tail)), "{:?}", retention);
            for fork_at in 0..=tail {
                match retention.inherit(offset(fork_at)) {
                    None => prop_assert!(offset(fork_at) < retention.floor),
                    Some(inherited) => {
                        prop_assert!(inherited.is_sound(offset(fork_at)), "at {}: {:?}", fork_at, inherited);
                        prop_assert_eq!(inherited.floor, retention.floor);
                    }
                }
            }
        }
    }
}
