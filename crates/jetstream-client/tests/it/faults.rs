//! What a server, its archive and the network in between can do to a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use alluvium_env::Env;
use alluvium_jetstream_client::{Client, Config, Cursor, Error, Events, Form, Limits, Mode, Notice};
use alluvium_jetstream_wire::{Wire, dictionary};

use crate::front::{Fate, Front, cut, edit_body, refusal};
use crate::world::{World, config, drain, take, until};

const HOURS_40_MS: u64 = 40 * 3_600_000;

fn events(config: Config, mode: Mode) -> Events {
    Client::new(config, Env::real())
        .expect("a good configuration")
        .events(Cursor::After(0), mode)
        .expect("a reader")
}

fn impatient(config: Config) -> Config {
    let limits = Limits { give_up_after: Some(Duration::ZERO), ..config.limits.clone() };
    Config { limits, ..config }
}

/// Broken connections and another server on the same archive, again and again, in the archive and live.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_restart_at_any_time() {
    for form in [Form::V2, Form::Events] {
        let mut world = World::full();
        let front = Front::new(world.address(), |_| Fate::Pass).await;
        let mut reader = events(Config { form, ..config(&front.url()) }, Mode::Whole);
        let mut got = Vec::new();
        for step in [1, 30, 60, 30, 20, 3, 4] {
            got.extend(take(&mut reader, step).await);
            world.restart();
            front.turn_to(world.address());
            world.add(3);
        }
        let expected = world.model(form, |_| true);
        let missing = expected.len() - got.len();
        got.extend(take(&mut reader, missing).await);
        assert_eq!(got, expected);
    }
}

/// While the client is away, more happens than the live feed keeps: it gets that from the archive, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_became_too_old_is_gone_on_from_in_the_archive() {
    for form in [Form::V2, Form::Events] {
        let mut world = World::new();
        world.add(10);
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let front = Front::new(world.address(), move |_| {
            if away.load(Ordering::Relaxed) { refusal("503 x", "") } else { Fate::Pass }
        })
        .await;
        let mut reader = events(Config { form, ..config(&front.url()) }, Mode::Live);
        let mut got = take(&mut reader, 5).await;
        is_away.store(true, Ordering::Relaxed);
        front.turn_to(world.address());
        got.extend(until(&mut reader, |notice| matches!(notice, Notice::Again { .. })).await);
        for _ in 0..2 {
            world.add(40);
            world.seal();
        }
        world.clock.advance_ms(HOURS_40_MS);
        world.add(4);
        is_away.store(false, Ordering::Relaxed);
        got.extend(until(&mut reader, |notice| matches!(notice, Notice::Archive { tip: 90 })).await);
        let expected = world.model(form, |_| true);
        let missing = expected.len() - got.len();
        got.extend(take(&mut reader, missing).await);
        assert_eq!(got, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_between_archive_and_live_feed_is_an_error_and_never_passed_over() {
    let world = World::full();
    let front = Front::new(world.address(), |line| {
        if line.contains("/subscribe-v2") {
            refusal("400 x", "cursor too old: cursor 121")
        } else {
            Fate::Pass
        }
    })
    .await;
    let (got, ended) = drain(&mut events(impatient(config(&front.url())), Mode::Whole)).await;
    assert_eq!(got, world.model(Form::V2, |_| true)[..120]);
    assert!(matches!(ended, Err(Error::CursorTooOld { after: 120 })), "{ended:?}");
}

/// Changes a digit of every checksum in a plan: then what is downloaded is another version.
fn replaced_since(body: &mut [u8]) {
    const NAME: &[u8] = b"\"checksum\":\"";
    for at in 0..body.len() {
        if body[at..].starts_with(NAME) {
            let digit = &mut body[at + NAME.len()];
            *digit = if *digit == b'0' { b'1' } else { b'0' };
        }
    }
}

/// In mode `segment` and in mode `blocks`.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_was_replaced_is_planned_again() {
    let world = World::full();
    for collections in [vec![], vec!["app.none.note".to_owned()]] {
        let plans = AtomicU32::new(0);
        let front = Front::new(world.address(), move |line| {
            let is_old =
                line.contains("planSnapshot") && plans.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            if is_old { edit_body(replaced_since) } else { Fate::Pass }
        })
        .await;
        let is_all = collections.is_empty();
        let mut reader = events(Config { collections, ..config(&front.url()) }, Mode::Archive);
        until(&mut reader, |notice| {
            matches!(notice, Notice::Again { reason, pause } if pause.is_zero() && reason.contains("was replaced"))
        })
        .await;
        let (got, ended) = drain(&mut reader).await;
        ended.expect("no fault");
        let mut expected = world.model(Form::V2, |event| is_all || !event.kind.is_commit());
        expected.retain(|(seq, _)| *seq <= 120);
        assert_eq!(got, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_block_is_an_error_that_names_it() {
    let world = World::full();
    // Blocks of 8 events, and parts with several of them: the last byte of a part is the checksum of its last block.
    let seen = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&seen);
    let front = Front::new(world.address(), move |line| {
        let is_second = line.contains("getSegment") && line.contains("seg_0000000001");
        // Header and footer come first.
        if is_second && asked.fetch_add(1, Ordering::Relaxed) == 2 {
            edit_body(|body| *body.last_mut().expect("a block") ^= 1)
        } else {
            Fate::Pass
        }
    })
    .await;
    let mut reader = events(config(&front.url()), Mode::Whole);
    let (got, ended) = drain(&mut reader).await;
    let Err(Error::Block { segment, block, .. }) = &ended else { panic!("{ended:?}") };
    assert_eq!(segment, "seg_0000000001.jss");
    let before = 40 + 8 * usize::try_from(*block).expect("few");
    assert_eq!(got, world.model(Form::V2, |_| true)[..before]);
    assert_eq!(reader.cursor(), Cursor::After(before as u64));
    let told = ended.as_ref().expect_err("damage").to_string();
    assert!(told.starts_with(&format!("seg_0000000001.jss, block {block}: ")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_footer_is_an_error_that_names_its_segment() {
    let world = World::full();
    let asked = AtomicU32::new(0);
    let front = Front::new(world.address(), move |line| {
        if line.contains("getSegment") && asked.fetch_add(1, Ordering::Relaxed) == 1 {
            edit_body(|body| body[0] ^= 1)
        } else {
            Fate::Pass
        }
    })
    .await;
    let (got, ended) = drain(&mut events(config(&front.url()), Mode::Archive)).await;
    assert_eq!(got, []);
    assert!(
        matches!(&ended, Err(Error::Segment { segment, .. }) if segment == "seg_0000000000.jss"),
        "{ended:?}"
    );
}

/// Every other answer breaks off in the middle: what came of it is kept, or it is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn downloads_that_break_off_are_gone_on_with() {
    let world = World::full();
    for kinds in [vec![], vec![alluvium_jetstream_client::Topic::Sync]] {
        let asked = AtomicU32::new(0);
        let front = Front::new(world.address(), move |_| {
            if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { cut() } else { Fate::Pass }
        })
        .await;
        let all = kinds.is_empty();
        let (got, ended) = drain(&mut events(Config { kinds, ..config(&front.url()) }, Mode::Archive)).await;
        ended.expect("no fault");
        let mut expected = world.model(Form::V2, |event| all || event.kind == alluvium_jss::Kind::Sync);
        expected.retain(|(seq, _)| *seq <= 120);
        assert_eq!(got, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_server_plans_too_and_one_without_plans_is_told() {
    let world = World::full();
    let front = Front::new(world.address(), |line| {
        if line.contains("planSnapshot") { refusal("501 x", "{}") } else { Fate::Pass }
    })
    .await;
    let (got, ended) = drain(&mut events(config(&front.url()), Mode::Archive)).await;
    ended.expect("no fault");
    assert_eq!(got, world.model(Form::V2, |_| true)[..120]);
    let front =
        Front::new(
            world.address(),
            |line| {
                if line.contains(".plan") { refusal("501 x", "{}") } else { Fate::Pass }
            },
        )
        .await;
    let (_, ended) = drain(&mut events(config(&front.url()), Mode::Archive)).await;
    assert!(matches!(ended, Err(Error::NoArchive)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_that_is_not_known_is_fetched() {
    let world = World::full();
    for (form, body) in [
        (
            Form::V2,
            format!(
                "unknown zstd dictionary id 1; current dictionary id is {}; fetch it",
                dictionary::known(Wire::V2).current
            ),
        ),
        (Form::Events, r#"{"error":"UnknownZstdDictionary","message":"x"}"#.to_owned()),
    ] {
        let (sockets, fetched) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&fetched);
        let front = Front::new(world.address(), move |line| {
            if line.contains("getZstdDictionary") {
                seen.store(true, Ordering::Relaxed);
            }
            let is_first = line.contains("/subscribe") || line.contains("subscribeEvents");
            if is_first && sockets.fetch_add(1, Ordering::Relaxed) == 0 {
                return refusal("400 x", &body);
            }
            Fate::Pass
        })
        .await;
        let mut reader = events(Config { form, ..config(&front.url()) }, Mode::Live);
        assert_eq!(take(&mut reader, 140).await, world.model(form, |_| true));
        assert!(fetched.load(Ordering::Relaxed));
    }
}

/// The cursor is of a server that had more: what this one sends has been there, as far as numbers go.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_went_back_are_an_error() {
    let mut world = World::full();
    let config = world.config();
    let limits = Limits { duplicates_max: 3, ..config.limits.clone() };
    let mut reader = world.events(Config { limits, ..config }, Cursor::After(1000), Mode::Live);
    until(&mut reader, |notice| *notice == Notice::Live).await;
    world.add(4);
    let (got, ended) = drain(&mut reader).await;
    assert_eq!(got, []);
    assert!(matches!(ended, Err(Error::WentBack { after: 1000, found: 144 })), "{ended:?}");
}

/// However few of them come: nothing but events from before is no progress.
#[tokio::test(flavor = "multi_thread")]
async fn events_from_before_are_given_up_like_silence_of_a_server() {
    for form in [Form::V2, Form::Events] {
        let mut world = World::full();
        let config = world.config();
        let limits = Limits { give_up_after: Some(Duration::ZERO), ..config.limits.clone() };
        let mut reader = world.events(Config { form, limits, ..config }, Cursor::After(1000), Mode::Live);
        until(&mut reader, |notice| *notice == Notice::Live).await;
        world.add(1);
        let (got, ended) = drain(&mut reader).await;
        assert_eq!(got, []);
        assert!(matches!(ended, Err(Error::WentBack { after: 1000, found: 141 })), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_waited_for_or_given_up() {
    let world = World::full();
    let turns = AtomicU32::new(0);
    let front = Front::new(world.address(), move |_| {
        if turns.fetch_add(1, Ordering::Relaxed) < 5 { refusal("503 x", "{}") } else { Fate::Pass }
    })
    .await;
    let mut reader = events(config(&front.url()), Mode::Archive);
    assert_eq!(drain(&mut reader).await.0.len(), 120);
    let down = Front::new(world.address(), |_| refusal("503 x", r#"{"error":"ServiceUnavailable"}"#)).await;
    for mode in [Mode::Archive, Mode::Live] {
        let (_, ended) = drain(&mut events(impatient(config(&down.url())), mode)).await;
        assert!(ended.expect_err("it is down").is_passing());
    }
    let denied = Front::new(world.address(), |_| refusal("403 x", "{}")).await;
    for mode in [Mode::Archive, Mode::Live] {
        let (_, ended) = drain(&mut events(config(&denied.url()), mode)).await;
        assert!(!ended.expect_err("it says no").is_passing());
    }
}

/// The newer feed takes no messages, so a long filter is a long query. What a proxy makes of that is found out once.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_too_long_for_a_proxy_is_applied_here_from_then_on() {
    let mut world = World::full();
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let front = Front::new(world.address(), move |line| {
        seen.lock().expect("no panic").push(line.len());
        if line.len() > 8192 { refusal("414 URI Too Long", "") } else { Fate::Pass }
    })
    .await;
    let mut dids: Vec<String> = (0..9_999).map(|number| format!("did:web:n{number}.example")).collect();
    dids.push("did:web:b.example".to_owned());
    let wanted = Config { form: Form::Events, dids, ..config(&front.url()) };
    let mut reader = events(wanted, Mode::Live);
    let expected = world.model(Form::Events, |event| event.did == "did:web:b.example");
    assert_eq!(take(&mut reader, expected.len()).await, expected);
    world.restart();
    front.turn_to(world.address());
    world.add(6);
    let more = world.model(Form::Events, |event| event.did == "did:web:b.example");
    assert_eq!(take(&mut reader, more.len() - expected.len()).await, more[expected.len()..]);
    let lines = lines.lock().expect("no panic").clone();
    let long = lines.iter().filter(|len| **len > 200_000).count();
    assert_eq!((long, lines[0] > 200_000, lines.len() > 2), (1, true, true), "{lines:?}");
}
