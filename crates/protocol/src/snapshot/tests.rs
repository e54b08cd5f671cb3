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
    let retained = PublishRejection::Retained { floor: offset(2), snapshot: offset(4) };
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

proptest! {
    #[test]
    fn what_always_holds_survives_any_publishes_and_forks(
        steps in prop::collection::vec((0_u64..12, any::<bool>(), 0_u64..12), 1..40),
    ) {
        let mut retention = Retention::default();
        let mut tail = 0;
        for (body, (at, retain_all, grown)) in steps.into_iter().enumerate() {
            tail += grown / 4;
            let before = retention.clone();
            let accepted = publish(&mut retention, at, tail, retain_all, body as u64);
            prop_assert_eq!(accepted, at <= tail && before.latest.as_ref().is_none_or(|latest| latest.offset <= offset(at)));
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
