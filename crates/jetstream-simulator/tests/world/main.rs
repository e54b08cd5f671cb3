//! Worlds of many seeds against a consumer by the book.

mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_jetstream_simulator::{
    Act, Action, Config, Effect, Emitted, Event, FRAME_BYTES_MAX, Flaw, Gate, Mix, Operation, Oracle,
    Outcome, Row, Status, World, WorldError,
};
use proptest::prelude::*;
use reference::{Reference, Verdict, fetch, read};

fn world(seed: u64) -> World {
    World::new(Config::small(seed)).expect("a valid configuration")
}

/// A consumer and the oracle beside it.
#[derive(Default)]
struct Pair {
    reference: Reference,
    oracle: Oracle,
}

impl Pair {
    fn take(&mut self, world: &World, frames: &[Arc<Emitted>]) -> Vec<Outcome> {
        let outcomes = self.oracle.observe_all(frames);
        for (emitted, outcome) in frames.iter().zip(&outcomes) {
            let verdict = self.reference.take(world, emitted);
            assert!(
                agree(outcome, &verdict),
                "at {}: {outcome:?} and {verdict:?}\n{:?}",
                emitted.seq,
                emitted.event
            );
        }
        outcomes
    }

    fn act(&mut self, world: &mut World, act: Act) -> Vec<Outcome> {
        let frames = world.act(act).expect("it can be done");
        self.take(world, &frames)
    }

    fn run(&mut self, world: &mut World, steps: usize) {
        for _ in 0..steps {
            let frames = world.step();
            self.take(world, &frames);
        }
    }

    /// Compares everything that both have in the end.
    fn check(&self, world: &World) {
        for (did, expected) in self.oracle.fold(world) {
            let folded = self.reference.fold.get(&did).cloned().unwrap_or_default();
            assert_eq!(folded, expected, "{did}");
        }
    }
}

fn agree(outcome: &Outcome, verdict: &Verdict) -> bool {
    match (outcome, verdict) {
        (Outcome::Rows(rows), Verdict::Records(records)) => {
            let rows = rows.iter().map(|row| match row {
                Row::Record { action, collection, rkey, rev, cid, .. } => {
                    Some((*action, format!("{collection}/{rkey}"), rev.clone(), *cid))
                }
                _ => None,
            });
            rows.eq(records.iter().cloned().map(Some))
        }
        (Outcome::Rows(rows), Verdict::Identity(handle)) => {
            *rows == [Row::Identity { handle: handle.clone() }]
        }
        (Outcome::Rows(rows), Verdict::Account(name)) => {
            matches!(rows.as_slice(), [Row::Account { status }] if status.name() == name.as_deref())
        }
        (Outcome::Repairing, _)
        | (Outcome::Replay, Verdict::Replay)
        | (Outcome::Rejected(_), Verdict::Rejected)
        | (Outcome::Resync, Verdict::Resync)
        | (Outcome::Unknown, Verdict::Unknown)
        | (Outcome::Undecodable, Verdict::Undecodable) => true,
        _ => false,
    }
}

fn put(path: &str) -> Operation {
    Operation::Put { path: path.to_owned(), record: None }
}

fn write(account: u32, operations: Vec<Operation>) -> Act {
    Act::Write { account, operations, silent: false, missing_block: None }
}

fn silent(account: u32, operations: Vec<Operation>) -> Act {
    Act::Write { account, operations, silent: true, missing_block: None }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let frames = |seed| world(seed).run(150).iter().map(|emitted| emitted.frame.clone()).collect::<Vec<_>>();
    assert_eq!(frames(3), frames(3));
    assert_ne!(frames(3), frames(4));
    // When a repository is first looked at does not matter.
    let (mut early, mut late) = (world(5), world(5));
    for account in early.accounts() {
        let _: alluvium_atproto::Cid = early.repo(account).head();
    }
    early.run(100);
    late.run(100);
    for (a, b) in early.accounts().iter().zip(late.accounts()) {
        assert_eq!(early.repo(a).car(), late.repo(b).car());
        assert_eq!(early.document(a), late.document(b));
    }
}

#[test]
fn live_events_do_not_move_the_first_records() {
    let other = Config { mix: Mix::creates_only(), rate: 1000, ..Config::small(9) };
    let (a, b) = (world(9), World::new(other).expect("a valid configuration"));
    for (a_account, b_account) in a.accounts().iter().zip(b.accounts()) {
        assert_eq!(a.repo(a_account).car(), b.repo(b_account).car());
    }
}

#[test]
fn every_event_of_many_worlds_verifies_and_folds_to_the_truth() {
    for seed in 0..8 {
        let mut world = world(seed);
        let mut pair = Pair::default();
        pair.run(&mut world, 200);
        pair.check(&world);
    }
}

#[test]
fn a_long_run_has_every_kind_of_event_and_operation() {
    let frames = world(1).run(1200);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for emitted in &frames {
        let (kind, _) = read(&emitted.frame).expect("a frame");
        *seen.entry(kind).or_default() += 1;
        if let Event::Commit { ops, .. } = &emitted.event {
            for op in ops {
                *seen.entry(op.action().as_str().to_owned()).or_default() += 1;
                let collection = op.path.split_once('/').expect("a path").0;
                *seen.entry(collection.to_owned()).or_default() += 1;
            }
        }
    }
    for kind in [
        "#commit",
        "#sync",
        "#identity",
        "#account",
        "create",
        "update",
        "delete",
        "app.bsky.feed.post",
        "app.bsky.feed.like",
        "app.bsky.graph.follow",
        "app.bsky.feed.repost",
        "app.bsky.actor.profile",
        "app.bsky.graph.list",
        "app.bsky.graph.block",
        "com.example.notes.entry",
    ] {
        assert!(seen.contains_key(kind), "{kind} is not among {seen:?}");
    }
    assert!(frames.iter().enumerate().all(|(at, emitted)| emitted.seq == at as u64 + 1));
}

#[test]
fn whole_repositories_are_complete_and_hold_what_the_model_says() {
    let mut world = world(11);
    world.run(300);
    let mut records = 0;
    for account in world.accounts() {
        let repo = fetch(&world, account.did().as_str());
        let mut found = BTreeMap::new();
        let all = repo.records(1_000_000, |path, cid, block| {
            found.insert(String::from_utf8(path.to_vec()).expect("text"), cid);
            let value = alluvium_atproto::cbor::decode(block).expect("DAG-CBOR");
            alluvium_atproto::model::check(&value).expect("of the data model");
        });
        assert_eq!(all, Ok(found.len()));
        assert_eq!(found, world.truth(account));
        assert_eq!(repo.commit.rev, world.repo(account).rev().to_string());
        records += found.len();
    }
    assert!(records > 200, "{records} records");
}

#[test]
fn documents_name_the_key_the_host_and_the_handle_of_both_methods_and_curves() {
    let world = world(2);
    let mut curves = BTreeSet::new();
    let mut methods = BTreeSet::new();
    for account in world.accounts() {
        let document = world.document(account).expect("a document");
        let read = alluvium_atproto::DidDocument::read(account.did(), document.as_bytes()).expect("readable");
        let host = &world.hosts()[account.host() as usize];
        assert_eq!(read.pds.as_deref(), Some(host.endpoint.as_str()));
        assert_eq!(read.handle.expect("a handle").as_str(), account.handle());
        curves.insert(read.signing_key.expect("a key").curve());
        methods.insert(account.did().as_str().split(':').nth(1).expect("a method").to_owned());
    }
    assert_eq!((curves.len(), methods.len()), (2, 2));
}

#[test]
fn every_flaw_has_its_effect_on_a_consumer_that_knows_the_account() {
    for (number, flaw) in Flaw::OF_COMMITS.into_iter().chain([Flaw::TooLong]).enumerate() {
        let mut world = world(number as u64);
        let mut pair = Pair::default();
        pair.act(&mut world, write(1, vec![put("app.bsky.feed.post/first")]));
        let outcomes = pair.act(&mut world, Act::Lie { account: 1, flaw });
        let last = outcomes.last().expect("a frame");
        let is_right = match flaw.effect() {
            Effect::Accept => matches!(last, Outcome::Rows(rows) if rows.len() == 1),
            Effect::Reject => *last == Outcome::Rejected(flaw),
            Effect::Resync => *last == Outcome::Resync,
            Effect::Replay => *last == Outcome::Replay,
        };
        assert!(is_right, "{flaw:?}: {last:?}");
        assert!(world.ledger().iter().any(|lie| lie.flaw == Some(flaw)), "{flaw:?} is in the ledger");
        pair.act(&mut world, write(1, vec![put("app.bsky.feed.post/last")]));
        pair.run(&mut world, 20);
        pair.check(&world);
        let account = world.account(1).expect("an account");
        let folded = pair.reference.fold.get(account.did().as_str()).expect("known");
        assert!(folded.contains_key("app.bsky.feed.post/last"), "{flaw:?}");
    }
}

#[test]
fn a_sync_that_lies_is_rejected_or_answered_by_a_fetch() {
    let flaws = [
        (Flaw::BadSignature, false),
        (Flaw::HighS, false),
        (Flaw::OtherDid, false),
        (Flaw::OtherVersion, false),
        (Flaw::OtherRev, false),
        (Flaw::InvalidRev, false),
        (Flaw::FutureRev, false),
        (Flaw::NoCommit, true),
    ];
    for (flaw, is_fetched) in flaws {
        let mut world = world(20);
        let mut pair = Pair::default();
        pair.act(&mut world, write(2, vec![put("app.bsky.feed.post/first")]));
        let outcomes = pair.act(&mut world, Act::LyingSync { account: 2, flaw });
        let expected = if is_fetched { Outcome::Resync } else { Outcome::Rejected(flaw) };
        assert_eq!(outcomes, [expected]);
        pair.act(&mut world, Act::Sync { account: 2 });
        pair.check(&world);
    }
    let refused = world(20).act(Act::LyingSync { account: 2, flaw: Flaw::Legacy });
    assert!(matches!(refused, Err(WorldError::Limit(_))));
}

#[test]
fn what_was_changed_in_silence_is_found_by_the_next_commit_or_sync() {
    for (seed, next) in [(1, write(3, vec![put("app.bsky.feed.post/c")])), (2, Act::Sync { account: 3 })] {
        let mut world = world(seed);
        let mut pair = Pair::default();
        pair.act(&mut world, write(3, vec![put("app.bsky.feed.post/a")]));
        assert!(pair.act(&mut world, silent(3, vec![put("app.bsky.feed.post/b")])).is_empty());
        assert_eq!(pair.act(&mut world, next), [Outcome::Resync]);
        pair.check(&world);
        let did = world.account(3).expect("an account").did().as_str();
        assert!(pair.reference.fold[did].contains_key("app.bsky.feed.post/b"));
    }
}

#[test]
fn a_break_is_found_although_the_next_commit_is_not_signed_well() {
    for flaw in [Flaw::BadSignature, Flaw::OtherDid, Flaw::OtherRev, Flaw::OtherVersion] {
        let mut world = world(17);
        let mut pair = Pair::default();
        pair.act(&mut world, write(3, vec![put("app.bsky.feed.post/a")]));
        pair.act(&mut world, silent(3, vec![put("app.bsky.feed.post/b")]));
        assert_eq!(pair.act(&mut world, Act::Lie { account: 3, flaw }), [Outcome::Resync]);
        pair.check(&world);
    }
}

#[test]
fn a_gap_of_one_frame_breaks_the_chain_of_its_account_alone() {
    let mut world = world(6);
    let mut pair = Pair::default();
    for account in [1, 2] {
        pair.act(&mut world, write(account, vec![put("app.bsky.feed.post/a")]));
    }
    // Nobody sees this one.
    world.act(write(1, vec![put("app.bsky.feed.post/b")])).expect("it can be done");
    assert!(matches!(
        pair.act(&mut world, write(2, vec![put("app.bsky.feed.post/c")])).as_slice(),
        [Outcome::Rows(_)]
    ));
    assert_eq!(pair.act(&mut world, write(1, vec![put("app.bsky.feed.post/c")])), [Outcome::Resync]);
    pair.check(&world);
    assert_eq!(pair.oracle.repairs().len(), 1);
}

#[test]
fn an_account_goes_through_every_status_and_comes_back() {
    let mut world = world(7);
    let mut pair = Pair::default();
    pair.act(&mut world, write(4, vec![put("app.bsky.feed.post/a")]));
    for status in [Status::Deactivated, Status::Suspended, Status::Takendown] {
        let rows = pair.act(&mut world, Act::Account { account: 4, status });
        assert_eq!(rows, [Outcome::Rows(vec![Row::Account { status }])]);
        assert_eq!(
            world.act(write(4, vec![put("app.bsky.feed.post/b")])).err(),
            Some(WorldError::Status(status))
        );
        pair.act(&mut world, Act::Account { account: 4, status: Status::Active });
    }
    assert!(!world.truth(world.account(4).expect("an account")).is_empty());
    pair.act(&mut world, Act::Tombstone { account: 4 });
    let account = world.account(4).expect("an account");
    assert!(world.truth(account).is_empty() && world.document(account).is_none());
    // Who comes back from a deletion begins with an empty repository, and says so.
    let back = pair.act(&mut world, Act::Account { account: 4, status: Status::Active });
    assert!(matches!(back.as_slice(), [Outcome::Rows(_), Outcome::Resync]));
    pair.act(&mut world, write(4, vec![put("app.bsky.feed.post/a")]));
    pair.check(&world);
    assert_eq!(world.truth(world.account(4).expect("an account")).len(), 1);
}

#[test]
fn keys_rotate_and_accounts_move_with_and_without_notice() {
    for announce in [true, false] {
        let mut world = world(8);
        let mut pair = Pair::default();
        let before = world.document(world.account(0).expect("an account"));
        pair.act(&mut world, write(0, vec![put("app.bsky.feed.post/a")]));
        let told = pair.act(&mut world, Act::Rotate { account: 0, announce });
        assert_eq!(told.len(), usize::from(announce));
        let host = (world.account(0).expect("an account").host() + 1) % 3;
        let told = pair.act(&mut world, Act::Migrate { account: 0, host, announce });
        assert_eq!(told.len(), if announce { 2 } else { 0 });
        assert_ne!(world.document(world.account(0).expect("an account")), before);
        let rows = pair.act(&mut world, write(0, vec![put("app.bsky.feed.post/b")]));
        assert!(matches!(rows.as_slice(), [Outcome::Rows(rows)] if rows.len() == 1), "{rows:?}");
        pair.check(&world);
    }
    assert_eq!(
        world(8).act(Act::Migrate { account: 0, host: 3, announce: true }).err(),
        Some(WorldError::Host(3))
    );
}

#[test]
fn operations_that_an_archive_must_drop_spare_their_siblings() {
    let long = format!("app.bsky.feed.post/{}", "k".repeat(300));
    let bad = [
        ("not an nsid/key", Gate::Collection),
        ("app.bsky.feed.post/a b", Gate::RecordKey),
        ("app.bsky.feed.post/..", Gate::RecordKey),
        ("app.bsky.feed.post/a/b", Gate::RecordKey),
        ("nothing", Gate::Collection),
        (&long, Gate::TooLong),
    ];
    let mut world = world(9);
    let mut pair = Pair::default();
    for (number, (path, gate)) in bad.iter().enumerate() {
        let good = format!("app.bsky.feed.post/good-{number}");
        let outcomes = pair.act(&mut world, write(5, vec![put(path), put(&good)]));
        assert!(
            matches!(outcomes.as_slice(), [Outcome::Rows(rows)] if rows.len() == 1),
            "{path}: {outcomes:?}"
        );
        let operation = Some(((*path).to_owned(), gate.label()));
        assert!(world.ledger().iter().any(|lie| lie.operation == operation), "{path}");
    }
    let paths = [put("app.bsky.feed.post/missing"), put("app.bsky.feed.post/there")];
    let act = Act::Write { account: 5, operations: paths.into(), silent: false, missing_block: Some(0) };
    let outcomes = pair.act(&mut world, act);
    assert!(matches!(outcomes.as_slice(), [Outcome::Rows(rows)] if rows.len() == 1), "{outcomes:?}");
    pair.check(&world);
    // The repository has them all; an archive of the whole has none of the bad ones.
    let account = world.account(5).expect("an account");
    let kept = world.truth(account);
    assert!(bad.iter().all(|(path, _)| !kept.contains_key(*path)));
    assert!(bad.iter().all(|(path, _)| world.repo(account).records().contains_key(path.as_bytes())));
}

#[test]
fn a_key_that_is_not_text_is_only_in_the_repository() {
    let mut world = world(10);
    let mut pair = Pair::default();
    pair.act(&mut world, write(1, vec![put("app.bsky.feed.post/a")]));
    assert!(pair.act(&mut world, Act::HiddenRecord { account: 1 }).is_empty());
    pair.act(&mut world, Act::Sync { account: 1 });
    pair.check(&world);
    let account = world.account(1).expect("an account");
    assert!(world.repo(account).records().keys().any(|path| std::str::from_utf8(path).is_err()));
}

#[test]
fn frames_have_the_length_that_was_asked_for() {
    let mut world = world(12);
    let mut pair = Pair::default();
    for bytes in [FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 1000] {
        let frames = world.act(Act::SizedFrame { account: 0, bytes }).expect("it can be done");
        assert_eq!(frames[0].frame.len(), bytes);
        let outcomes = pair.take(&world, &frames);
        assert_eq!(matches!(outcomes[0], Outcome::Rejected(_)), bytes > FRAME_BYTES_MAX);
    }
    assert_eq!(pair.act(&mut world, Act::UnknownFrame), [Outcome::Unknown]);
    assert_eq!(pair.act(&mut world, Act::Garbage { bytes: 40 }), [Outcome::Undecodable]);
    for bytes in [0, 10, 100 << 20] {
        assert!(world.act(Act::SizedFrame { account: 0, bytes }).is_err());
    }
}

#[test]
fn a_relay_that_was_set_back_gives_numbers_twice_and_a_consumer_drops_what_it_saw() {
    let mut world = world(13);
    world.run(50);
    let (tip, epoch) = (world.tip(), world.epoch());
    world.act(Act::RestoreRelay { frames: 10 }).expect("it can be done");
    assert_eq!((world.tip(), world.epoch()), (tip - 10, epoch + 1));
    assert_eq!(world.step()[0].seq, tip - 9);
    let mut world = self::world(14);
    let mut pair = Pair::default();
    let frames = world.run(60);
    pair.take(&world, &frames);
    let again = pair.oracle.observe_all(&frames);
    assert!(again.iter().all(|outcome| matches!(outcome, Outcome::Replay | Outcome::Repairing)), "{again:?}");
}

#[test]
fn a_burst_of_one_account_is_one_chain() {
    let mut world = world(15);
    let mut pair = Pair::default();
    let outcomes = pair.act(&mut world, Act::Burst { account: 2, commits: 300 });
    assert_eq!(outcomes.len(), 300);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Rows(rows)
        if matches!(rows.as_slice(), [Row::Record { action: Action::Create, .. }]))));
    pair.check(&world);
    assert!(world.act(Act::Burst { account: 2, commits: 1_000_000 }).is_err());
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut world = world(16);
    let before = world.repo(world.account(0).expect("an account")).car();
    let delete = |path: &str| Operation::Delete { path: path.to_owned() };
    for operations in [
        vec![delete("app.bsky.feed.post/none")],
        vec![put("a.b.c/1"), put("a.b.c/1")],
        vec![put("")],
        vec![put(&"x".repeat(2000))],
    ] {
        assert!(matches!(world.act(write(0, operations)), Err(WorldError::Operation(_))));
    }
    let record = Some(serde_json::json!({"a": 1.5}));
    let operation = Operation::Put { path: "a.b.c/1".to_owned(), record };
    assert!(matches!(world.act(write(0, vec![operation])), Err(WorldError::Record(_))));
    assert_eq!(world.act(Act::Sync { account: 99 }).err(), Some(WorldError::Account(99)));
    assert_eq!((world.repo(world.account(0).expect("an account")).car(), world.tip()), (before, 0));
}

#[test]
fn numbers_that_no_world_can_have_are_refused_by_name() {
    let refused = |config: Config| World::new(config).expect_err("not a world").to_string();
    assert!(refused(Config { accounts: 0, ..Config::default() }).contains("accounts"));
    assert!(refused(Config { hosts: 65, ..Config::default() }).contains("hosts"));
    assert!(refused(Config { rate: 0, ..Config::default() }).contains("rate"));
    assert!(refused(Config { p256_percent: 101, ..Config::default() }).contains("P-256"));
    assert!(refused(Config { history_frames: 0, ..Config::default() }).contains("history"));
    assert!(refused(Config { start_micros: 7, ..Config::default() }).contains("start"));
    let mix = Mix { commit: 0, identity: 0, account: 0, sync: 0, rotate: 0, migrate: 0, ..Mix::default() };
    assert!(refused(Config { mix, ..Config::default() }).contains("events"));
}

/// Acts on a few accounts, of all kinds.
fn acts() -> impl Strategy<Value = Act> {
    let account = 0..6_u32;
    let flaw = proptest::sample::select(Flaw::OF_COMMITS.to_vec());
    let statuses =
        vec![Status::Active, Status::Deactivated, Status::Suspended, Status::Takendown, Status::Deleted];
    let status = proptest::sample::select(statuses);
    let paths =
        proptest::sample::select(vec!["a.b.c/1", "a.b.c/2", "a.b.d/1", "a.b/1", "a.b.c/x y", "a.b.e/self"]);
    prop_oneof![
        4 => (1..8_u32).prop_map(|count| Act::Step { count }),
        4 => (account.clone(), proptest::collection::vec((paths, any::<bool>()), 1..4), 0..10_u32).prop_map(
            |(account, paths, odd)| Act::Write {
                account,
                operations: paths
                    .into_iter()
                    .map(|(path, is_put)| if is_put { put(path) } else { Operation::Delete { path: path.to_owned() } })
                    .collect(),
                silent: odd == 0,
                missing_block: (odd == 1).then_some(0),
            }
        ),
        3 => (account.clone(), flaw).prop_map(|(account, flaw)| Act::Lie { account, flaw }),
        2 => (account.clone(), status).prop_map(|(account, status)| Act::Account { account, status }),
        1 => account.clone().prop_map(|account| Act::Sync { account }),
        1 => account.clone().prop_map(|account| Act::HiddenRecord { account }),
        1 => (account.clone(), any::<bool>()).prop_map(|(account, announce)| Act::Rotate { account, announce }),
        1 => (account, 0..3_u32, any::<bool>())
            .prop_map(|(account, host, announce)| Act::Migrate { account, host, announce }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_consumer_and_oracle_agree(seed in any::<u64>(), acts in proptest::collection::vec(acts(), 1..30)) {
        let mut world = world(seed);
        let mut pair = Pair::default();
        for act in acts {
            match act {
                // One by one, as a key may be replaced between two of them.
                Act::Step { count } => pair.run(&mut world, count as usize),
                // What does not fit is refused, and nothing happens.
                act => {
                    if let Ok(frames) = world.act(act) {
                        pair.take(&world, &frames);
                    }
                }
            }
        }
        for account in 0..24 {
            if world.account(account).expect("an account").status().is_active() {
                pair.act(&mut world, Act::Sync { account });
            }
        }
        pair.check(&world);
        for account in world.accounts() {
            fetch(&world, account.did().as_str());
        }
    }
}
