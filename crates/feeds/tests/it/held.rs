//! A block that the authority can't read holds up its own feed from there on, and nothing else. Time is virtual.

use alluvium_feed_protocol::{ErrorCode, From, Id, QueryRequest, Request, Selector};
use alluvium_feed_replica::After;

use crate::damage::damage;
use crate::hostile::{FEW, Fate, WHILE_MS, World};
use crate::support::{append, block, id};

/// Feeds of three blocks each, in turns: `f0` has positions 21, 27 and 33 and so on, as others are there before.
const FEEDS: u64 = 6;

fn world() -> World {
    let world = World::new();
    for sequence in 0..3 {
        let of = |feed: u64| block(&format!("f{feed}"), "b", sequence, "whole");
        world.authority.append(append((0..FEEDS).map(of).collect()));
    }
    world
}

impl World {
    fn pulls(&mut self) -> u64 {
        self.run(WHILE_MS, &mut |_, response| Fate::Answer(response))
    }

    /// How many blocks of each of the feeds are here.
    fn here(&self) -> Vec<usize> {
        let count =
            |feed| self.replica.read(&id("space"), &id(&format!("f{feed}")), &After::Start, 9).unwrap().len();
        (0..FEEDS).map(count).collect()
    }

    fn damage(&mut self, positions: &str, data: &str) {
        damage(
            &mut self.authority,
            &format!("UPDATE blocks SET data = {data} WHERE position IN ({positions})"),
        );
        self.authority.start();
    }
}

#[test]
fn what_is_damaged_holds_up_its_feed_alone_and_goes_on_once_it_is_mended() {
    // One, of which something is in front of it; three, two of them first in their feeds; the last one of the space.
    for (positions, here, names) in [
        ("28", [3, 1, 3, 3, 3, 3], &["f1"][..]),
        ("28, 23, 24", [3, 1, 0, 0, 3, 3], &["f1", "f2", "f3"]),
        ("38", [3, 3, 3, 3, 3, 2], &["f5"]),
        ("1", [3; 6], &["theirs"]),
    ] {
        let mut world = world();
        world.damage(positions, "x'00'");
        let asked = world.pulls();
        assert!(asked < FEW, "{positions}: {asked} requests");
        assert_eq!(world.here(), here, "{positions}");
        let status = world.replica.status(&id("space")).unwrap();
        let reason = status.last_error.clone().unwrap_or_default();
        assert!(
            reason.contains("held up: read_failed") && names.iter().any(|name| reason.contains(name)),
            "{reason}"
        );
        let held: Vec<&str> = status.backfilling.iter().map(Id::as_str).collect();
        assert!(!status.is_done() && held == names, "{positions}: {status:?}");
        assert_eq!(status.blocks_to_push, 0, "what is written here goes on");
        // And so does what comes to the others.
        world.authority.append(append(vec![block("f4", "b", 3, "new"), block("new", "b", 0, "new")]));
        world.pulls();
        assert_eq!(
            (world.here()[4], world.replica.read(&id("space"), &id("new"), &After::Start, 9).unwrap().len()),
            (4, 1)
        );
        // Another process that begins with the file has to find out, and does.
        world.replica.connected(&id("space"));
        world.pulls();
        assert!(!world.replica.status(&id("space")).unwrap().is_done(), "{positions}");
        let whole = if positions == "1" { "x'78'" } else { "CAST('whole' AS BLOB)" };
        world.damage(positions, whole);
        world.pulls();
        let status = world.replica.status(&id("space")).unwrap();
        assert!(status.is_done() && status.last_error.is_none(), "{positions}: {status:?}");
        assert_eq!(world.here(), [3, 3, 3, 3, 4, 3], "{positions}");
    }
}

#[test]
fn a_feed_that_is_pruned_beyond_the_damage_goes_on_from_there() {
    let mut world = world();
    world.damage("28", "x'00'");
    world.pulls();
    world.authority.service().prune(&id("space"), &id("f1"), 29).unwrap();
    world.pulls();
    assert!(world.replica.status(&id("space")).unwrap().is_done());
    // What was here before stays.
    assert_eq!(world.here(), [3, 2, 3, 3, 3, 3]);
}

#[test]
fn a_feed_of_which_the_server_knows_something_wrong_is_held_up_alone() {
    for wrong in ["headPosition = 22", "prunedBelow = 30", "feedNamespace = 'other'"] {
        let mut world = world();
        world.pulls();
        assert_eq!(world.here(), [3; 6]);
        let more = |feed: u64| block(&format!("f{feed}"), "b", 3, "more");
        world.authority.append(append((0..FEEDS).map(more).collect()));
        let sql = format!("UPDATE feeds SET {wrong} WHERE feedId = 'f1'");
        damage(&mut world.authority, &sql);
        world.authority.start();
        let asked = world.pulls();
        assert!(asked < FEW, "{wrong}: {asked} requests");
        assert_eq!(world.here(), [4, 3, 4, 4, 4, 4], "{wrong}");
        let status = world.replica.status(&id("space")).unwrap();
        let held: Vec<&str> = status.backfilling.iter().map(Id::as_str).collect();
        assert!(!status.is_done() && held == ["f1"], "{wrong}: {status:?}");
    }
}

#[test]
fn the_only_feed_that_is_replicated_waits_and_what_is_written_goes_on() {
    let mut world = world();
    let space = id("space");
    world.replica.unselect(&space, &Selector::All).unwrap();
    world.replica.replicate(&space, &id("theirs"), From::Beginning).unwrap();
    world.damage("7", "x'00'");
    let asked = world.pulls();
    let status = world.replica.status(&space).unwrap();
    assert!(asked < FEW && !status.is_done() && status.blocks_to_push == 0, "{asked}: {status:?}");
    assert!(status.last_error.is_some_and(|error| error.contains("`theirs`")));
    assert_eq!(world.replica.read(&space, &id("theirs"), &After::Start, 99).unwrap().len(), 6);
}

#[test]
fn the_refusal_names_the_feed_and_comes_only_at_the_block() {
    let mut world = world();
    world.damage("28", "x'00'");
    let by = |feeds: Option<&[&str]>, cursor| QueryRequest {
        feed_ids: feeds.map(|feeds| feeds.iter().map(|feed| id(feed)).collect()),
        cursor: Some(cursor),
        limit: Some(500),
        ..QueryRequest::default()
    };
    for (feeds, end) in [(None, 27), (Some(&["f1"][..]), 22), (Some(&["f0", "f1"][..]), 27)] {
        let page = world.authority.query(by(feeds, 0));
        assert_eq!((page.next_cursor, page.has_more), (end, true), "{feeds:?}");
        let error = world.authority.refused(Request::Query(by(feeds, end)), ErrorCode::ReadFailed);
        assert_eq!(error.feed_id, Some(id("f1")), "{feeds:?}");
        assert!(error.retryable && error.message.contains("position 28"), "{}", error.message);
    }
    assert!(!world.authority.query(by(Some(&["f0"]), 0)).has_more);
}
