//! A server that does nothing wrong: whatever is asked for comes once and in order, from wherever it is.

use alluvium_jetstream::Options;
use alluvium_jetstream_archive::PlanLimits;
use alluvium_jetstream_client::{Config, Cursor, Form, Mode, Notice, Topic};
use alluvium_jss::{Event as Archived, Kind};

use crate::world::{BEGIN, World, drain, take, until};

const FORMS: [Form; 2] = [Form::V2, Form::Events];

type Has = fn(&Archived) -> bool;

/// Filters, and what they are in words of their own.
fn filters() -> Vec<(Config, Has)> {
    let config = |kinds: &[Topic], dids: &[&str], collections: &[&str]| Config {
        kinds: kinds.to_vec(),
        dids: dids.iter().map(|did| (*did).to_owned()).collect(),
        collections: collections.iter().map(|collection| (*collection).to_owned()).collect(),
        ..Config::new("")
    };
    vec![
        (config(&[], &[], &[]), |_| true),
        (config(&[], &["did:web:b.example"], &[]), |event| event.did == "did:web:b.example"),
        (config(&[], &[], &["app.example.*"]), |event| {
            !event.kind.is_commit() || event.collection.starts_with("app.example.")
        }),
        (config(&[Topic::Commit], &["did:web:a.example"], &["app.other.note"]), |event| {
            event.did == "did:web:a.example" && event.collection == "app.other.note"
        }),
        (config(&[Topic::Sync, Topic::Identity], &[], &[]), |event| {
            matches!(event.kind, Kind::Sync | Kind::Identity)
        }),
        (config(&[], &["did:web:nobody.example"], &[]), |_| false),
    ]
}

fn with(world: &World, form: Form, filter: &Config) -> Config {
    let Config { kinds, dids, collections, .. } = filter.clone();
    Config { form, kinds, dids, collections, ..world.config() }
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_then_live_is_everything_that_passes_once_and_in_order() {
    for plan in [PlanLimits::default(), PlanLimits { entries: 1, ..PlanLimits::default() }] {
        let mut world = World::full_with(Options { plan, ..Options::default() });
        for form in FORMS {
            for (filter, has) in filters() {
                let config = with(&world, form, &filter);
                let mut events = world.events(config, Cursor::After(0), Mode::Whole);
                let mut got = until(&mut events, |notice| *notice == Notice::Live).await;
                world.add(8);
                let expected = world.model(form, has);
                let missing = expected.len() - got.len();
                got.extend(take(&mut events, missing).await);
                assert_eq!(got, expected, "{filter:?}");
                assert_eq!(events.progress().tip, 120);
            }
        }
    }
}

/// The archive as it is: what is not in a finished segment is not part of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_archive_alone_has_an_end() {
    let world = World::full();
    for (filter, has) in filters() {
        let config = with(&world, Form::V2, &filter);
        let mut events = world.events(config, Cursor::After(0), Mode::Archive);
        let (got, ended) = drain(&mut events).await;
        ended.expect("no fault");
        let expected: Vec<_> =
            world.model(Form::V2, has).into_iter().filter(|(seq, _)| *seq <= 120).collect();
        assert_eq!(got, expected);
        // Also what did not pass is done with.
        assert_eq!(events.cursor(), Cursor::After(120));
        assert_eq!(events.next().await.expect("it stays ended"), None);
    }
    let empty = World::new();
    let mut events = empty.events(empty.config(), Cursor::After(0), Mode::Archive);
    assert_eq!(drain(&mut events).await.0, []);
    assert_eq!(events.cursor(), Cursor::After(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_from_the_cursor_of_another() {
    let world = World::full();
    for (filter, has) in filters().into_iter().take(3) {
        let expected = world.model(Form::V2, has);
        for mode in [Mode::Whole, Mode::Live] {
            let mut got = Vec::new();
            let mut cursor = Cursor::After(0);
            // In steps that end within blocks, on their borders, in each segment, and in the live feed.
            while got.len() < expected.len() {
                let step = (got.len() % 7 * 4 + 1).min(expected.len() - got.len());
                let mut events = world.events(with(&world, Form::V2, &filter), cursor, mode);
                got.extend(take(&mut events, step).await);
                cursor = events.cursor();
                let last = got.last().expect("some").0;
                assert_eq!(cursor, Cursor::After(last));
            }
            assert_eq!(got, expected);
        }
    }
}

/// A time is no number of an event: the server finds where it is, or the list of segments does.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_begins_exactly_where_it_says() {
    let mut world = World::full();
    let all = world.model(Form::V2, |_| true);
    for seq in [1_usize, 2, 40, 41, 77, 120, 121, 140] {
        let time = BEGIN + (i64::try_from(seq).expect("few") - 1) * 1_000_000;
        world.clock.advance_ms(60_000);
        for (time, mode) in [(time, Mode::Whole), (time - 1, Mode::Whole), (time, Mode::Live)] {
            let mut events = world.events(world.config(), Cursor::Time(time), mode);
            assert_eq!(take(&mut events, all.len() + 1 - seq).await, all[seq - 1..], "{seq}");
        }
        let mut events = world.events(world.config(), Cursor::Time(time), Mode::Archive);
        let (got, _) = drain(&mut events).await;
        assert_eq!(got, all[(seq - 1).min(120)..120], "{seq}");
        let reached = if seq > 120 { Cursor::Time(time) } else { Cursor::After(120) };
        assert_eq!(events.cursor(), reached);
    }
    let mut events = world.events(world.config(), Cursor::Now, Mode::Live);
    until(&mut events, |notice| *notice == Notice::Live).await;
    world.add(2);
    assert_eq!(take(&mut events, 2).await, world.model(Form::V2, |_| true)[140..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_the_same_with_and_without_compression() {
    let world = World::full();
    for form in FORMS {
        for compress in [true, false] {
            let config = Config { form, compress, ..world.config() };
            let mut events = world.events(config, Cursor::After(0), Mode::Live);
            assert_eq!(take(&mut events, 140).await, world.model(form, |_| true));
        }
    }
}

/// The runtime has one thread: whoever waits beside others must not lose what was on its way.
#[tokio::test]
async fn nothing_is_lost_when_a_wait_is_given_up() {
    let world = World::full();
    let mut events = world.events(world.config(), Cursor::After(0), Mode::Whole);
    let mut got = Vec::new();
    while got.len() < 140 {
        tokio::select! {
            biased;
            next = events.next() => got.push(next.expect("no fault").expect("an event").seq),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(got, (1..=140).collect::<Vec<_>>());
}

/// More accounts than a request has room for are said in a message; the feed is exact, from the past and live.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_accounts_pass_and_no_other() {
    let mut world = World::full();
    for form in FORMS {
        let mut dids: Vec<String> = (0..9_999).map(|n| format!("did:web:n{n}.example")).collect();
        dids.push("did:web:b.example".to_owned());
        let config = Config { form, dids, ..world.config() };
        let has: Has = |event| event.did == "did:web:b.example";
        for (from, mode) in [(Cursor::After(100), Mode::Live), (Cursor::After(0), Mode::Whole)] {
            let after = if mode == Mode::Live { 100 } else { 0 };
            let mut events = world.events(config.clone(), from, mode);
            let mut got = until(&mut events, |notice| *notice == Notice::Live).await;
            world.add(9);
            let expected: Vec<_> =
                world.model(form, has).into_iter().filter(|(seq, _)| *seq > after).collect();
            let missing = expected.len() - got.len();
            got.extend(take(&mut events, missing).await);
            assert_eq!(got, expected);
        }
    }
}
