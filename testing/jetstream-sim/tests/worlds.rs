//! Worlds of several seeds through the whole ingest, with everything that can go wrong on the way.

use alluvium_atproto::cbor;
use alluvium_jetstream_ingest::account::{Broken, FetchFailure, Reject};
use alluvium_jetstream_ingest::convert::Gate;
use alluvium_jetstream_ingest::counters::Counter;
use alluvium_jetstream_ingest::ingest::{IngestConfig, IngestError, PipelineConfig};
use alluvium_jetstream_ingest::rules::Rules;
use alluvium_jetstream_ingest::state::{CURSOR, decode_cursor};
use alluvium_jetstream_sim::{Fault, Setting, compare};
use alluvium_jetstream_simulator::{Act, Config, Flaw, Mix, Operation, Outcome, Status};
use alluvium_jss::Kind;

/// Everything that can be untrue of a commit.
const FLAWS: [Flaw; 20] = [
    Flaw::BadSignature,
    Flaw::HighS,
    Flaw::OldKey,
    Flaw::OtherDid,
    Flaw::OtherVersion,
    Flaw::OtherRev,
    Flaw::InvalidRev,
    Flaw::FutureRev,
    Flaw::InvalidDid,
    Flaw::TooManyOps,
    Flaw::TooManyBytes,
    Flaw::OtherRoot,
    Flaw::RepeatedPath,
    Flaw::NotACar,
    Flaw::NoCommit,
    Flaw::OtherCid,
    Flaw::MissingNode,
    Flaw::OtherPrevData,
    Flaw::OtherPrev,
    Flaw::Legacy,
];

fn config(workers: usize) -> IngestConfig {
    IngestConfig {
        pipeline: PipelineConfig { workers, fetchers: 2, lossless: true, ..PipelineConfig::default() },
        start_cursor: None,
    }
}

/// Keys as they are now are all that a directory knows, so nobody changes one while commits wait.
fn steady(seed: u64) -> Config {
    let small = Config::small(seed);
    Config { mix: Mix { rotate: 0, ..small.mix }, ..small }
}

fn setting(seed: u64) -> Setting {
    Setting::new(steady(seed), config(8), 3).expect("a setting")
}

/// The rows of each account that was never fetched are those that its frames told.
fn check_log(setting: &Setting) -> usize {
    compare::log(setting.archive.rows(), &setting.told, &setting.oracle.repairs()).expect("the truth")
}

/// Only accounts that are away are still waited for.
fn check_repairs(setting: &Setting) {
    let world = setting.world.lock();
    for key in setting.archive.values("sync/repair/").keys() {
        let did = key.strip_prefix("sync/repair/").expect("the prefix");
        let active = world.find(did).is_some_and(|account| account.status().is_active());
        assert!(!active, "{did} is waited for");
    }
}

fn check_times(setting: &Setting) {
    let rows = setting.archive.rows();
    assert!(rows.iter().all(|row| row.witnessed_at > 0));
    assert!(rows.is_sorted_by_key(|row| row.witnessed_at));
}

#[test]
fn every_event_of_many_worlds_is_archived_once_and_folds_to_the_truth() {
    for seed in 0..6 {
        let mut setting = setting(seed);
        setting.run(400);
        setting.settle().expect("it comes to rest");
        assert_eq!(setting.count(Counter::DecodeErrors) + setting.count(Counter::Gaps), 0);
        setting.stop().expect("it was well");
        setting.check_fold().expect("the truth");
        assert!(check_log(&setting) > 300);
        check_times(&setting);
    }
}

#[test]
fn keys_that_are_rotated_in_mid_stream_are_found() {
    for seed in 0..3 {
        let mut setting = Setting::new(Config::small(seed), config(4), 3).expect("a setting");
        for _ in 0..250 {
            setting.run(1);
            setting.settle().expect("it comes to rest");
        }
        assert_eq!(setting.count(Counter::Rejected(Reject::Signature)), 0);
        setting.stop().expect("it was well");
        setting.check_fold().expect("the truth");
        assert!(check_log(&setting) > 150);
    }
}

/// What an account signed with a key that it has changed before anybody here knew it is as true as the rest, and comes with
/// its repository: whether it writes again or not, and wherever the process dies meanwhile.
#[test]
fn keys_that_were_rotated_before_the_beginning_lose_nothing() {
    for (seed, dies_at) in [(31, None), (32, Some(1)), (33, Some(2)), (34, Some(5)), (35, Some(11))] {
        let mut setting = Setting::new(Config::small(seed), config(4), 2).expect("a setting");
        setting.stop().expect("nothing has happened");
        setting.run(100);
        let mut rotated = 0;
        for account in 0..12 {
            // An account that is away does nothing.
            if setting.act(Act::Burst { account, commits: 3 }).is_err() {
                continue;
            }
            setting.act(Act::Rotate { account, announce: account % 2 == 0 }).expect("it can be done");
            rotated += 1;
            if account % 3 != 0 {
                setting.act(Act::Burst { account, commits: 2 }).expect("it can be done");
            }
        }
        assert!(rotated > 3, "{rotated}");
        if let Some(at) = dies_at {
            setting.archive.fail_at(at);
        }
        setting.start().expect("it starts");
        if dies_at.is_some() {
            setting.wait_for_failure().expect("it runs");
            drop(setting.crash());
            setting.start().expect("it starts again");
        }
        setting.settle().expect("it comes to rest");
        assert!(dies_at.is_some() || setting.count(Counter::Rejected(Reject::Signature)) > 0);
        setting.stop().expect("it was well");
        assert!(setting.tell_repairs() >= rotated);
        setting.check_fold().expect("the truth");
        check_repairs(&setting);
    }
}

/// Whoever is behind fetches repositories that are newer than the deletion of their account which it reads next. A reader drops
/// them there, and has them all in the end.
#[test]
fn a_repository_of_today_comes_again_behind_a_deletion_of_the_past() {
    for seed in 41..44 {
        let mut setting = Setting::new(Config::small(seed), config(4), 2).expect("a setting");
        setting.run(60);
        setting.settle().expect("it comes to rest");
        setting.stop().expect("it was well");
        let mut back = 0;
        for account in 0..12 {
            // What is signed with the key of before is refused of an account that nobody knows; a commit that is missing is
            // one that does not follow.
            let put = Operation::Put { path: "app.bsky.feed.like/unseen".to_owned(), record: None };
            let silent = Act::Write { account, operations: vec![put], silent: true, missing_block: None };
            if setting.act(Act::Burst { account, commits: 2 }).is_err() {
                continue;
            }
            let cause = if account % 2 == 0 { Act::Rotate { account, announce: true } } else { silent };
            setting.act(cause).expect("it can be done");
            setting.act(Act::Burst { account, commits: 1 }).expect("it can be done");
            for _ in 0..=account % 2 {
                setting.act(Act::Account { account, status: Status::Deleted }).expect("it can be done");
                setting.act(Act::Account { account, status: Status::Active }).expect("it can be done");
                setting.act(Act::Burst { account, commits: 2 }).expect("it can be done");
            }
            back += 1;
        }
        assert!(back > 3, "{back}");
        setting.start().expect("it starts");
        setting.conclude().expect("it comes to rest");
        setting.stop().expect("it was well");
        setting.tell_repairs();
        setting.check_fold().expect("the truth");
        check_repairs(&setting);
    }
}

#[test]
fn connections_that_end_repeat_and_babble_lose_and_double_nothing() {
    for seed in 0..4 {
        let mut setting = setting(seed);
        setting.wire.arm([
            Fault::Close(7),
            Fault::Refuse,
            Fault::Repeat(5),
            Fault::Close(0),
            Fault::Garbage(3),
        ]);
        // The first connection was made before anything was armed.
        setting.run(40);
        setting.settle().expect("it comes to rest");
        setting.crash().expect("it was well");
        setting.start().expect("it starts");
        for _ in 0..5 {
            setting.run(60);
            setting.settle().expect("it comes to rest");
            setting.stop().expect("it was well");
            setting.archive.sync();
            setting.start().expect("it starts");
        }
        setting.stop().expect("it was well");
        assert_eq!(setting.wire.unfired(), 0, "every fault has fired");
        setting.check_fold().expect("the truth");
        check_log(&setting);
    }
}

#[test]
fn a_swallowed_message_is_counted_as_a_gap_and_repaired() {
    let (mut repaired, mut found) = (0, 0);
    for seed in 0..6 {
        let mut setting = setting(seed);
        setting.stop().expect("it was well");
        setting.wire.arm([Fault::Swallow(25)]);
        setting.start().expect("it starts");
        setting.run(200);
        setting.conclude().expect("it comes to rest");
        assert_eq!((setting.count(Counter::Gaps), setting.count(Counter::GapMissed)), (1, 1));
        setting.stop().expect("it was well");
        // Whose it was that was missed shows with their next commit or sync, if they were known before.
        repaired += setting.tell_repairs();
        let lost = setting.world.lock().history().iter().nth(25).expect("a frame").clone();
        let known_before =
            setting.archive.values("sync/chain/").contains_key(&format!("sync/chain/{}", lost.did));
        if !known_before || !setting.oracle.repairs().contains(lost.did.as_str()) {
            continue;
        }
        found += 1;
        setting.check_fold().expect("the truth");
    }
    assert!(repaired > 0 && found > 0, "{repaired} {found}");
}

#[test]
fn directories_and_servers_that_fail_are_asked_again_and_every_fault_fires() {
    for seed in 0..3 {
        let mut setting = setting(seed);
        setting.internet.fail_lookups(6);
        setting.internet.fail_repos(3);
        setting.internet.cut_repos(3);
        setting.run(150);
        for account in 0..6 {
            if setting.world.lock().account(account).expect("one").status().is_active() {
                let put =
                    |key: &str| Operation::Put { path: format!("app.bsky.feed.like/{key}"), record: None };
                let write =
                    |operations, silent| Act::Write { account, operations, silent, missing_block: None };
                setting.act(write(vec![put("unseen")], true)).expect("it can be done");
                setting.act(write(vec![put("seen")], false)).expect("it can be done");
            }
        }
        setting.conclude().expect("it comes to rest");
        assert!(setting.count(Counter::Unresolved) > 0);
        assert!(setting.count(Counter::Broken(Broken::PrevData)) >= 1);
        assert!(setting.count(Counter::FetchFailures(FetchFailure::Transient)) >= 1);
        assert!(setting.count(Counter::FetchFailures(FetchFailure::Refused)) >= 3);
        assert_eq!(setting.internet.unfired(), 0, "every fault has fired");
        setting.stop().expect("it was well");
        // An account whose key was not to be had was fetched as well.
        setting.tell_repairs();
        setting.check_fold().expect("the truth");
        check_repairs(&setting);
    }
}

#[test]
fn everything_untrue_is_dropped_in_the_smallest_part_and_counted() {
    let mut setting = setting(11);
    setting.run(150);
    setting.settle().expect("it comes to rest");
    let (mut rejected, mut resynced) = (0, 0);
    for (at, flaw) in FLAWS.into_iter().enumerate() {
        let account = u32::try_from(at % 8).expect("a small number");
        let put = Operation::Put { path: format!("app.bsky.feed.post/lie{at}"), record: None };
        let before = Act::Write { account, operations: vec![put], silent: false, missing_block: None };
        if setting.act(before).is_err() {
            continue;
        }
        setting.settle().expect("it comes to rest");
        let Ok(outcomes) = setting.act(Act::Lie { account, flaw }) else {
            continue;
        };
        setting.settle().expect("it comes to rest");
        for outcome in outcomes {
            rejected += u64::from(matches!(outcome, Outcome::Rejected(flaw) if flaw != Flaw::TooLong));
            resynced += u64::from(matches!(outcome, Outcome::Resync | Outcome::Repairing));
        }
    }
    let counted: u64 = Reject::ALL.iter().map(|reject| setting.count(Counter::Rejected(*reject))).sum();
    assert!(rejected > 5 && resynced > 5, "{rejected} {resynced}");
    assert_eq!(counted, rejected);
    setting.conclude().expect("it comes to rest");
    setting.stop().expect("it was well");
    setting.check_fold().expect("the truth");
}

#[test]
fn paths_that_are_none_and_records_that_did_not_come_are_dropped_alone() {
    let mut setting = setting(12);
    let put = |path: &str| Operation::Put { path: path.to_owned(), record: None };
    let operations = vec![
        put("app.bsky.feed.post/good"),
        put("nothing/bad"),
        put("app.bsky.feed.post/a b"),
        put("app.bsky.feed.post/gone"),
    ];
    let act = Act::Write { account: 1, operations, silent: false, missing_block: Some(3) };
    setting.act(act).expect("it can be done");
    setting.settle().expect("it comes to rest");
    let counts = [Gate::InvalidCollection, Gate::InvalidRkey, Gate::MissingBlock]
        .map(|gate| setting.count(Counter::Gate(gate)));
    assert_eq!(counts, [1, 1, 1]);
    setting.stop().expect("it was well");
    setting.archive.sync();
    let keys: Vec<String> = setting.archive.rows().into_iter().map(|row| row.rkey).collect();
    assert_eq!(keys, ["good"]);
    check_log(&setting);
}

#[test]
fn frames_of_unknown_kinds_and_of_any_length_do_not_stop_it() {
    let mut setting = setting(13);
    let limit = Rules::default().limits.frame_bytes;
    for bytes in [limit - 1, limit, limit + 1] {
        setting.act(Act::SizedFrame { account: 0, bytes }).expect("it can be done");
    }
    setting.act(Act::UnknownFrame).expect("it can be done");
    setting.act(Act::Garbage { bytes: 100 }).expect("it can be done");
    setting.act(Act::MalformedIdentity { did: "not a DID".to_owned() }).expect("it can be done");
    setting.run(10);
    setting.settle().expect("it comes to rest");
    assert_eq!(setting.count(Counter::Unknown), 1);
    assert_eq!(setting.count(Counter::DecodeErrors), 2, "the long one and the garbage");
    setting.stop().expect("it was well");
    setting.archive.sync();
    check_log(&setting);
    assert!(setting.archive.rows().iter().any(|row| row.did == "not a DID"));
}

/// A relay restored from a backup tells old events again under numbers that were used.
#[test]
fn a_relay_that_is_set_back_deletes_nothing_twice() {
    for seed in 0..3 {
        let mut setting = setting(seed);
        setting.run(80);
        setting.act(Act::Account { account: 2, status: Status::Deactivated }).expect("it can be done");
        setting.settle().expect("it comes to rest");
        setting.act(Act::RestoreRelay { frames: 30 }).expect("it can be done");
        setting.wire.tell();
        // The relay does not know the cursor any more; what it says from the next connection on is taken as it comes. What
        // happens before there is one comes to nobody.
        while setting.wire.live() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(setting.count(Counter::RelayFutureCursor), 1);
        setting.run(60);
        setting.conclude().expect("it comes to rest");
        let replayed = Counter::ReplayedAccounts;
        let before = setting.count(replayed);
        // Numbers that were used come again: what is told under them of an account is what was told before.
        setting.act(Act::RestoreRelay { frames: 1000 }).expect("it can be done");
        setting.wire.tell();
        while setting.wire.live() == 1 {
            std::thread::yield_now();
        }
        for (account, status) in [(2, Status::Deleted), (3, Status::Deactivated)] {
            drop(setting.act(Act::Account { account, status }));
        }
        setting.settle().expect("it comes to rest");
        assert!(setting.count(replayed) > before);
        setting.stop().expect("it was well");
    }
}

/// Whatever batch is the last that the archive takes: after the restart nothing is lost and nothing doubled.
#[test]
fn a_crash_at_any_batch_loses_and_doubles_nothing() {
    for sync_every in [1, 2, 7] {
        for at in (1..60).step_by(4) {
            let mut setting = Setting::new(steady(21), config(4), sync_every).expect("a setting");
            setting.archive.fail_at(at);
            setting.run(120);
            let failure = setting.wait_for_failure().expect("it runs");
            assert!(matches!(failure, IngestError::Sink(_)));
            assert!(setting.crash().is_err());
            setting.start().expect("it starts");
            setting.run(40);
            setting.settle().expect("it comes to rest");
            setting.stop().expect("it was well");
            setting.check_fold().expect("the truth");
            assert!(check_log(&setting) > 100);
        }
    }
}

#[test]
fn a_crash_while_repositories_are_fetched_repairs_them_after_the_restart() {
    for at in 1..12 {
        let mut setting = Setting::new(steady(22), config(4), 2).expect("a setting");
        setting.run(60);
        setting.settle().expect("it comes to rest");
        setting.archive.sync();
        setting.internet.fail_repos(2);
        setting.archive.fail_at(at);
        for account in 0..4 {
            let put = |key: &str| Operation::Put { path: format!("app.bsky.feed.like/{key}"), record: None };
            for (key, silent) in [("unseen", true), ("seen", false), ("behind", false)] {
                let operations = vec![put(key)];
                let act = Act::Write { account, operations, silent, missing_block: None };
                drop(setting.act(act));
            }
        }
        let started = setting.counters().expect("it runs");
        setting.run(20);
        while setting.settle().is_ok() && started.get(Counter::Resyncs) == 0 {}
        drop(setting.crash());
        setting.internet.fail_repos(0);
        setting.start().expect("it starts");
        setting.conclude().expect("it comes to rest");
        setting.stop().expect("it was well");
        assert!(setting.tell_repairs() >= 4);
        setting.check_fold().expect("the truth");
        check_repairs(&setting);
    }
}

#[test]
fn a_server_that_shows_an_older_state_is_asked_until_it_has_what_is_missing() {
    let mut setting = setting(23);
    setting.run(50);
    let put = |key: &str| Operation::Put { path: format!("app.bsky.feed.like/{key}"), record: None };
    let write = |key: &str, silent| Act::Write {
        account: 0,
        operations: vec![put(key)],
        silent,
        missing_block: None,
    };
    setting.act(write("first", false)).expect("it can be done");
    setting.settle().expect("it comes to rest");
    let did = setting.world.lock().account(0).expect("one").did().to_string();
    setting.internet.keep_stale(&did, 3);
    setting.act(write("unseen", true)).expect("it can be done");
    setting.act(write("seen", false)).expect("it can be done");
    setting.settle().expect("it comes to rest");
    assert_eq!(setting.internet.unfired(), 0);
    assert_eq!(setting.count(Counter::Repairs), 1);
    setting.stop().expect("it was well");
    setting.check_fold().expect("the truth");
}

/// Drops are repaired; without loss there are none.
#[test]
fn one_account_that_floods_is_dropped_from_and_repaired_or_waited_for() {
    for lossless in [false, true] {
        let mut ingest = config(2);
        ingest.pipeline.lossless = lossless;
        ingest.pipeline.rules.limits.queue_events = 8;
        let mut setting = Setting::new(steady(24), ingest, 5).expect("a setting");
        // The first commit waits for the key of the account, and the others behind it.
        setting.internet.hold_lookups(true);
        setting.act(Act::Burst { account: 0, commits: 400 }).expect("it can be done");
        let waits = |setting: &Setting| {
            if lossless {
                setting.count(Counter::BackPressure) == 0
            } else {
                setting.count(Counter::Received) < 400
            }
        };
        while waits(&setting) {
            std::thread::yield_now();
        }
        setting.internet.hold_lookups(false);
        setting.run(60);
        let did = setting.world.lock().account(0).expect("one").did().to_string();
        if !lossless {
            setting.oracle.repaired(&did);
        }
        setting.settle().expect("it comes to rest");
        let dropped = setting.count(Counter::QueueDropped);
        let repairs = setting.count(Counter::Repairs);
        assert_eq!(dropped == 0, lossless, "{dropped} were dropped");
        assert!(lossless || (repairs > 0 && setting.count(Counter::RepairsQueued) >= repairs));
        assert!(!lossless || setting.count(Counter::BackPressure) > 0);
        setting.stop().expect("it was well");
        setting.check_fold().expect("the truth");
        assert!(check_log(&setting) > 40);
        check_repairs(&setting);
        let folded = alluvium_jetstream_sim::fold(&setting.archive.rows());
        let world = setting.world.lock();
        let truth = world.truth(world.account(0).expect("one"));
        let missing = truth.iter().filter(|(path, cid)| folded[&did].get(*path) != Some(cid)).count();
        assert!(lossless || missing == 0, "{missing} records are missing");
    }
}

/// Whoever sees an event counted as received and then finds the ingest idle takes it for done.
#[test]
fn what_waits_for_room_is_not_counted_as_received() {
    let mut ingest = config(2);
    ingest.pipeline.lossless = true;
    ingest.pipeline.rules.limits.queue_events = 8;
    let mut setting = Setting::new(steady(24), ingest, 5).expect("a setting");
    setting.internet.hold_lookups(true);
    setting.act(Act::Burst { account: 0, commits: 30 }).expect("it can be done");
    // One is being worked on and eight wait behind it.
    while setting.snapshot().expect("it runs").in_flight < 9 {
        std::thread::yield_now();
    }
    let waits = setting.count(Counter::BackPressure);
    while setting.count(Counter::BackPressure) == waits {
        std::thread::yield_now();
    }
    assert_eq!(setting.count(Counter::Received), 9);
    setting.internet.hold_lookups(false);
    setting.settle().expect("it comes to rest");
    assert_eq!(setting.count(Counter::Received), 30);
    setting.stop().expect("it was well");
    setting.check_fold().expect("the truth");
}

/// Nobody has looked at an account yet when its queue is full: the oldest commit that is left is not its first.
#[test]
fn the_first_commits_of_an_account_that_found_no_room_are_made_up_for() {
    let mut ingest = config(2);
    ingest.pipeline.lossless = false;
    ingest.pipeline.rules.limits.queue_events = 8;
    let mut setting = Setting::new(steady(29), ingest, 5).expect("a setting");
    // Everybody who could look at it waits for the keys of others.
    setting.internet.hold_lookups(true);
    for account in 1..3 {
        setting.act(Act::Burst { account, commits: 1 }).expect("it can be done");
    }
    while setting.count(Counter::Lookups) < 2 {
        std::thread::yield_now();
    }
    // Fewer are dropped than are left: some came before the first that found no room.
    setting.act(Act::Burst { account: 0, commits: 12 }).expect("it can be done");
    while setting.count(Counter::Received) < 14 {
        std::thread::yield_now();
    }
    setting.internet.hold_lookups(false);
    setting.settle().expect("it comes to rest");
    assert_eq!(setting.count(Counter::QueueDropped), 4);
    setting.stop().expect("it was well");
    assert_eq!(setting.tell_repairs(), 1);
    setting.check_fold().expect("the truth");
    check_repairs(&setting);
    let did = setting.world.lock().account(0).expect("one").did().to_string();
    let folded = alluvium_jetstream_sim::fold(&setting.archive.rows());
    let world = setting.world.lock();
    let truth = world.truth(world.account(0).expect("one"));
    assert_eq!(folded[&did].len(), truth.len(), "all records, whatever the model says of repairs");
}

/// The bodies of an account's rows of a kind, and which of them no relay sent.
fn markers(setting: &Setting, did: &str, kind: Kind) -> Vec<(Option<String>, bool)> {
    let rows = setting.archive.rows();
    let rows = rows.iter().filter(|row| row.did == did && row.kind == kind);
    rows.map(|row| {
        let body = cbor::decode(&row.payload).expect("a body").as_map().expect("a map").clone();
        let status = body.get("status").and_then(cbor::Value::as_text).map(str::to_owned);
        (status, body.get("seq").and_then(cbor::Value::as_integer) == Some(0))
    })
    .collect()
}

/// What is lost of an account as such is asked of its server, or of the relay when that has none any more, and survives a
/// crash at any batch.
#[test]
fn dropped_events_about_an_account_are_made_up_for() {
    for at in [None, Some(1), Some(2), Some(3), Some(4)] {
        for lost in [Some(Status::Deactivated), Some(Status::Deleted), None] {
            let mut ingest = config(2);
            ingest.pipeline.lossless = false;
            ingest.pipeline.rules.limits.queue_events = 1;
            let mut setting = Setting::new(steady(26), ingest, 2).expect("a setting");
            let did = setting.world.lock().account(0).expect("one").did().to_string();
            // The first commit waits for the key, and what follows has room for one.
            setting.internet.hold_lookups(true);
            let put = Operation::Put { path: "app.bsky.feed.like/first".to_owned(), record: None };
            let operations = vec![put];
            let write = Act::Write { account: 0, operations, silent: false, missing_block: None };
            setting.act(write).expect("it can be done");
            while setting.count(Counter::Lookups) == 0 {
                std::thread::yield_now();
            }
            let identity = Act::Identity { account: 0, rename: false, says_handle: true };
            // The earlier of the two has no room.
            let status = lost.unwrap_or(Status::Deactivated);
            let account = Act::Account { account: 0, status };
            let acts = if lost.is_some() { [account, identity] } else { [identity, account] };
            for act in acts {
                setting.act(act).expect("it can be done");
            }
            while setting.count(Counter::QueueDropped) == 0 {
                std::thread::yield_now();
            }
            if let Some(at) = at {
                setting.archive.fail_at(at);
            }
            setting.internet.hold_lookups(false);
            if at.is_some() {
                drop(setting.settle());
                drop(setting.crash());
                setting.start().expect("it starts");
            }
            setting.settle().expect("it comes to rest");
            setting.stop().expect("it was well");
            setting.archive.sync();
            let name = lost.and_then(Status::name).unwrap_or("deactivated");
            let told = markers(&setting, &did, Kind::Account);
            assert!(
                told.iter().any(|(status, _)| status.as_deref() == Some(name)),
                "{at:?} {lost:?} {told:?}"
            );
            let identities = markers(&setting, &did, Kind::Identity);
            assert!(!identities.is_empty(), "{at:?} {lost:?}");
            if at.is_none() {
                let made_up = if lost.is_some() { &told } else { &identities };
                assert_eq!(made_up.iter().map(|(_, made_up)| *made_up).collect::<Vec<_>>(), [true]);
                assert_eq!(setting.internet.asked(), u64::from(lost.is_some()));
            }
        }
    }
}

#[test]
fn a_network_in_which_nothing_happens_is_no_error() {
    let mut setting = setting(25);
    setting.time.advance(48 * 3_600_000_000);
    setting.settle().expect("it comes to rest");
    assert_eq!(setting.count(Counter::Reconnects), 0);
    setting.run(3);
    setting.settle().expect("it comes to rest");
    setting.stop().expect("it was well");
    setting.check_fold().expect("the truth");
}

#[test]
fn a_snapshot_tells_how_far_it_is_and_what_came() {
    let mut setting = setting(27);
    let before = setting.snapshot().expect("it runs");
    assert_eq!((before.last_seq, before.lag_ms, before.count(Counter::Received)), (None, None, 0));
    setting.run(200);
    setting.settle().expect("it comes to rest");
    let tip = setting.world.lock().tip();
    let after = setting.snapshot().expect("it runs");
    assert_eq!((after.connected, after.last_seq, after.handled_seq), (true, Some(tip), Some(tip)));
    assert_eq!((after.in_flight, after.queue_bytes, after.repairs_running, after.repos_bytes), (0, 0, 0, 0));
    // Of three batches one at the end may not be durable yet: the cursor is what a restart goes on from.
    setting.archive.sync();
    let stored = setting.archive.values(CURSOR)[CURSOR].clone();
    assert_eq!(decode_cursor(&stored), Ok(tip));
    while setting.snapshot().expect("it runs").cursor != Some(tip) {
        std::thread::yield_now();
    }
    assert_eq!(setting.snapshot().expect("it runs").write_queue_bytes, 0);
    assert!(after.last_event_ms.is_some() && after.lag_ms.is_some());
    let kinds = after.counts.iter().filter(|(counter, _)| matches!(counter, Counter::Kind(_)));
    assert_eq!(kinds.map(|(_, count)| count).sum::<u64>(), after.count(Counter::Received));
    assert!((200..=tip).contains(&after.count(Counter::Received)));
    setting.stop().expect("it was well");
}
