//! Subscribers of the relay's window, without sockets.

use alluvium_atproto::cbor::{Reader, Value};
use alluvium_jetstream_simulator::{Act, Config, Fault, Faults, Mix, Next, Subscription, World};
use bytes::Bytes;
use proptest::prelude::*;

fn world(frames: usize, history: usize) -> World {
    let config = Config { history_frames: history, mix: Mix::creates_only(), ..Config::small(1) };
    let mut world = World::new(config).expect("a valid configuration");
    world.run(frames);
    world
}

/// What a message is: a sequence number, or the name of an `#info` or error.
fn named(message: &Bytes) -> String {
    let mut reader = Reader::new(message);
    let header = reader.value().expect("a header");
    let body = reader.value().expect("a body");
    let field = |value: &Value, key: &str| value.as_map().and_then(|map| map.get(key).cloned());
    let op = field(&header, "op").and_then(|op| op.as_integer());
    let name = ["error", "name"].iter().find_map(|key| field(&body, key));
    match (op, name, field(&body, "seq")) {
        (Some(1), None, Some(Value::Integer(seq))) => seq.to_string(),
        (_, Some(Value::Text(name)), _) => name,
        other => panic!("{other:?}"),
    }
}

/// Everything up to where the subscriber has to wait, or its connection ends.
fn all(subscription: &mut Subscription, world: &World, faults: &mut Faults) -> (Vec<String>, bool) {
    let mut seen = Vec::new();
    loop {
        let Next { messages, is_end, .. } = subscription.next(world, faults);
        seen.extend(messages.iter().map(named));
        if is_end || messages.is_empty() {
            return (seen, is_end);
        }
    }
}

fn from(world: &World, cursor: Option<u64>, faults: &mut Faults) -> (Vec<String>, bool) {
    all(&mut Subscription::new(world, cursor), world, faults)
}

fn numbers(range: std::ops::RangeInclusive<u64>) -> Vec<String> {
    range.map(|seq| seq.to_string()).collect()
}

#[test]
fn a_cursor_gives_exactly_what_follows_it_and_none_gives_what_is_new() {
    let mut world = world(50, 1000);
    let mut faults = Faults::default();
    assert_eq!(from(&world, Some(0), &mut faults), (numbers(1..=50), false));
    assert_eq!(from(&world, Some(20), &mut faults), (numbers(21..=50), false));
    assert_eq!(from(&world, Some(50), &mut faults), (Vec::new(), false));
    let mut live = Subscription::new(&world, None);
    assert_eq!(all(&mut live, &world, &mut faults).0, Vec::<String>::new());
    world.run(3);
    assert_eq!(all(&mut live, &world, &mut faults), (numbers(51..=53), false));
}

#[test]
fn a_cursor_before_the_window_is_told_so_and_one_ahead_is_refused() {
    let world = world(50, 10);
    let mut faults = Faults::default();
    let outdated = [vec!["OutdatedCursor".to_owned()], numbers(41..=50)].concat();
    assert_eq!(from(&world, Some(0), &mut faults), (outdated.clone(), false));
    assert_eq!(from(&world, Some(39), &mut faults), (outdated, false));
    assert_eq!(from(&world, Some(40), &mut faults), (numbers(41..=50), false));
    assert_eq!(from(&world, Some(51), &mut faults), (vec!["FutureCursor".to_owned()], true));
}

#[test]
fn who_falls_behind_the_window_is_told_that_it_was_too_slow() {
    let mut world = world(10, 10);
    let mut faults = Faults::default();
    let mut slow = Subscription::new(&world, Some(5));
    world.run(30);
    assert_eq!(all(&mut slow, &world, &mut faults), (vec!["ConsumerTooSlow".to_owned()], true));
}

#[test]
fn a_relay_that_is_set_back_ends_its_connections_and_refuses_cursors_from_before() {
    let mut world = world(20, 1000);
    let mut faults = Faults::default();
    let mut subscription = Subscription::new(&world, Some(0));
    all(&mut subscription, &world, &mut faults);
    world.act(Act::RestoreRelay { frames: 5 }).expect("it can be done");
    let next = subscription.next(&world, &mut faults);
    assert_eq!((next.messages.len(), next.is_end, next.is_cut), (0, true, true));
    assert_eq!(from(&world, Some(20), &mut faults), (vec!["FutureCursor".to_owned()], true));
    assert_eq!(from(&world, Some(12), &mut faults), (numbers(13..=15), false));
}

#[test]
fn every_fault_of_a_connection_comes_once_where_it_was_armed() {
    let world = world(20, 1000);
    let cases = [
        (Fault::Close { after: 5 }, numbers(1..=5), true, vec![6]),
        (Fault::Resend { after: 5, frames: 3 }, [numbers(1..=5), numbers(3..=20)].concat(), false, vec![6]),
        (
            Fault::ResendSince { after: 20, seq: 17 },
            [numbers(1..=20), numbers(18..=20)].concat(),
            false,
            vec![21],
        ),
        (Fault::Swallow { after: 7 }, [numbers(1..=7), numbers(9..=20)].concat(), false, vec![8]),
    ];
    for (fault, expected, is_end, met) in cases {
        let mut faults = Faults::default();
        let id = faults.arm(fault.clone(), 1).expect("room");
        assert_eq!(from(&world, Some(0), &mut faults), (expected, is_end), "{fault:?}");
        assert_eq!((faults.fired(id), &faults.all()[0].met), (1, &met), "{fault:?}");
        assert_eq!(from(&world, Some(0), &mut faults), (numbers(1..=20), false), "it is over");
    }
    let mut faults = Faults::default();
    let injected = world.history().at(2).expect("in the window").expect("a frame").frame.to_vec();
    let id = faults.arm(Fault::Inject { after: 10, bytes: injected }, 2).expect("room");
    let expected = [numbers(1..=10), numbers(3..=3), numbers(3..=3), numbers(11..=20)].concat();
    assert_eq!(from(&world, Some(0), &mut faults), (expected, false));
    assert_eq!(faults.fired(id), 2);
}

#[test]
fn faults_of_one_connection_come_together() {
    let world = world(20, 1000);
    let mut faults = Faults::default();
    for fault in
        [Fault::Swallow { after: 2 }, Fault::Resend { after: 8, frames: 2 }, Fault::Close { after: 12 }]
    {
        faults.arm(fault, 1).expect("room");
    }
    let expected = [numbers(1..=2), numbers(4..=9), numbers(8..=11)].concat();
    assert_eq!(from(&world, Some(0), &mut faults), (expected, true));
    assert!(faults.all().iter().all(|armed| armed.fired == 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whoever_resumes_from_its_cursor_gets_each_frame_once(cuts in proptest::collection::vec(0..15_u64, 0..8)) {
        let mut world = world(40, 1000);
        let mut faults = Faults::default();
        for after in &cuts {
            faults.arm(Fault::Close { after: *after }, 1).expect("room");
        }
        let mut seen: Vec<String> = Vec::new();
        // One connection more than there are cuts, since one of no frames is cut by all that are due at once.
        for _ in 0..=cuts.len() {
            let cursor = seen.last().and_then(|last| last.parse().ok()).unwrap_or(0);
            let (more, _) = from(&world, Some(cursor), &mut faults);
            seen.extend(more);
            world.run(2);
        }
        let cursor = seen.last().and_then(|last| last.parse().ok()).unwrap_or(0);
        seen.extend(from(&world, Some(cursor), &mut faults).0);
        prop_assert_eq!(seen, numbers(1..=world.tip()));
        prop_assert!(faults.all().iter().all(|armed| armed.fired <= 1));
    }
}
