//! Blocks that are never taken, by any message or by this server: they hold up nothing, it is remembered why, and they are
//! tried again only when somebody asks for it.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Clock, Env, RealDisk};
use alluvium_feed_protocol::limits::{DATA_BYTES_HARD_MAX, NUMBER_MAX};
use alluvium_feed_protocol::{ErrorCode, ErrorResponse, From, Limits, Request, Response, Selector};
use alluvium_feed_replica::{Keep, Options, Replica, ReplicaError, SyncStatus};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{Cypher, Durability};
use alluvium_feeds::Options as AuthorityOptions;
use tempfile::TempDir;

use crate::support::{Authority, NOW_MS, append, block, id};

fn options() -> Options {
    Options { durability: Durability::Process, ..Options::default() }
}

struct World {
    authority: Authority,
    replica: Option<Replica>,
    clock: Arc<ManualClock>,
    folder: TempDir,
}

impl World {
    fn new(limits: Limits) -> Self {
        let options =
            AuthorityOptions { durability: Durability::Process, limits, ..AuthorityOptions::default() };
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self { authority: Authority::with(options), replica: None, clock, folder };
        world.restart();
        world
    }

    fn restart(&mut self) {
        self.replica = None;
        self.replica = Some(opened(&self.folder.path().join("r.sqlite"), &self.clock, options()).unwrap());
    }

    fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().unwrap()
    }

    fn write(&mut self, feed: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        self.replica().append_all(&id("space"), &id(feed), None, texts).unwrap();
    }

    /// Changes rows behind the replica's back, as an older version or a program of somebody else may have written them.
    fn spoil(&self, sql: &str) {
        let changed = Connection::open(self.folder.path().join("r.sqlite")).unwrap().execute(sql, []);
        assert!(changed.unwrap() > 0, "{sql}");
    }

    /// Synchronises for a minute, with a server that may refuse in its own way. How many appends it was asked for.
    fn sync(&mut self, refuse: impl Fn(&Request) -> Option<ErrorCode>) -> usize {
        let (space, end_ms) = (id("space"), self.clock.now_ms() + 60_000);
        let mut appends = 0;
        self.replica().connected(&space);
        while self.clock.now_ms() < end_ms {
            while let Some(request) = self.replica().next_request(&space).unwrap() {
                appends += usize::from(matches!(request, Request::Append(_)));
                let request_id = request.request_id().clone();
                let answer = match refuse(&request) {
                    Some(code) => Response::Error(ErrorResponse::new(request_id, code, "not this one")),
                    None => self.authority.handle(request),
                };
                self.replica().answered(&space, answer).unwrap();
            }
            let now_ms = self.clock.now_ms();
            let wake_ms = self.replica().wake_ms(&space).unwrap_or(end_ms).clamp(now_ms + 1, end_ms);
            self.clock.advance_ms(wake_ms - now_ms);
        }
        self.replica().disconnected(&space);
        appends
    }

    /// Synchronises as far as that goes without any wait. How many appends the server was asked for.
    fn sync_at_once(&mut self) -> usize {
        let space = id("space");
        let mut appends = 0;
        self.replica().connected(&space);
        while let Some(request) = self.replica().next_request(&space).unwrap() {
            appends += usize::from(matches!(request, Request::Append(_)));
            let answer = self.authority.handle(request);
            self.replica().answered(&space, answer).unwrap();
        }
        self.replica().disconnected(&space);
        appends
    }

    fn replicate(&mut self, feed: &str) {
        self.replica().replicate(&id("space"), &id(feed), From::Beginning).unwrap();
    }

    fn status(&mut self) -> SyncStatus {
        self.replica().status(&id("space")).unwrap()
    }

    /// What is refused: feed, how many blocks, and why.
    fn refused(&mut self) -> Vec<(String, u64, String)> {
        let status = self.status();
        assert_eq!(status.blocks_refused, status.refused.iter().map(|refused| refused.blocks).sum::<u64>());
        let told = status.refused.into_iter();
        told.map(|refused| (refused.feed_id.to_string(), refused.blocks, refused.reason)).collect()
    }
}

fn opened(path: &Path, clock: &Arc<ManualClock>, options: Options) -> Result<Replica, ReplicaError> {
    let env = Env {
        clock: Arc::clone(clock) as _,
        random: Arc::new(SeededRandom::new(5)),
        disk: Arc::new(RealDisk),
    };
    Replica::open(path, None, env, options)
}

fn is_of(request: &Request, feed: &str) -> bool {
    let Request::Append(append) = request else { return false };
    append.blocks.iter().any(|block| block.feed_id == Some(id(feed)))
}

#[test]
fn what_no_message_can_carry_is_refused_where_it_is_appended() {
    let folder = tempfile::tempdir().unwrap();
    let append = |name: &str, now_ms: u64, options: Options, bytes: usize| {
        let clock = Arc::new(ManualClock::new(now_ms));
        let mut replica = opened(&folder.path().join(name), &clock, options).unwrap();
        let appended = replica.append_all(&id("s"), &id("f"), None, vec![vec![1], vec![0; bytes]]);
        let kept = replica.status(&id("s")).unwrap().total_blocks;
        assert_eq!(kept, if appended.is_ok() { 2 } else { 0 }, "all or nothing");
        appended.map(drop)
    };
    let clock = append("clock", NUMBER_MAX + 1, options(), 1).unwrap_err();
    assert!(clock.to_string().contains("its timestamp is 9007199254740992"), "{clock}");
    append("clock-that-just-fits", NUMBER_MAX - 1_000_000, options(), 1).unwrap();
    let large = Options { data_bytes_max: usize::MAX, ..options() };
    let data = append("data", NOW_MS, large.clone(), DATA_BYTES_HARD_MAX + 1).unwrap_err();
    assert!(data.to_string().contains("1572864"), "{data}");
    append("data-that-just-fits", NOW_MS, large, DATA_BYTES_HARD_MAX).unwrap();
    // Sealing makes it longer, and a server counts what it gets.
    let most = options().data_bytes_max;
    let sealing = Options { cypher: Some(Cypher::new(&[9; 32], |_| true)), ..options() };
    assert!(matches!(append("sealed", NOW_MS, sealing.clone(), most), Err(ReplicaError::TooLarge { .. })));
    append("sealed-that-just-fits", NOW_MS, sealing, most - 16).unwrap();
}

#[test]
fn what_is_in_the_file_and_cannot_be_sent_is_set_aside_and_everything_else_goes() {
    for (what, sql) in [
        ("timestamp", "UPDATE blocks SET timestamp = 9007199254740992 WHERE sequence = 1"),
        ("sequence", "UPDATE blocks SET sequence = 9007199254740993 WHERE sequence = 1"),
        ("previous sequence", "UPDATE blocks SET prevSequence = 9007199254740994 WHERE sequence = 1"),
        ("key or nonce", "UPDATE blocks SET encryptionKeyId = 'k' WHERE sequence = 1"),
        ("author", "UPDATE blocks SET actorId = '' WHERE sequence = 1"),
        ("timestamp before all", "UPDATE blocks SET timestamp = -1 WHERE sequence = 1"),
    ] {
        let mut world = World::new(Limits::default());
        world.write("bad", &["a", "b", "c"]);
        world.write("good", &["d"]);
        world.spoil(sql);
        world.sync(|_| None);
        let refused = world.refused();
        assert_eq!((refused.len(), &refused[0].0[..], refused[0].1), (1, "bad", 1), "{what}");
        let reason = &refused[0].2;
        assert!(!reason.contains("Value(") && !reason.contains('{'), "a sentence: {reason}");
        assert!(world.status().is_done(), "{what}");
        assert_eq!(world.authority.after(0).max_position, 3, "{what}");
        // Also after a restart, and however often it is tried.
        world.restart();
        assert_eq!((world.sync(|_| None), world.refused()), (0, refused), "{what}");
    }
}

#[test]
fn a_block_that_the_server_refuses_is_set_aside_for_good_and_tried_again_when_asked() {
    let mut world = World::new(Limits::default());
    world.write("bad", &["a", "b", "c"]);
    world.write("good", &["d", "e"]);
    let refuse = |request: &Request| {
        let Request::Append(append) = request else { return None };
        let is_bad = append.blocks.iter().any(|block| &block.data.0[..] == b"b");
        is_bad.then_some(ErrorCode::BadRequest)
    };
    world.sync(refuse);
    let refused = vec![("bad".to_owned(), 1, "bad_request: not this one".to_owned())];
    assert_eq!(world.refused(), refused);
    assert_eq!(world.authority.after(0).max_position, 4);
    world.restart();
    assert_eq!((world.sync(refuse), world.refused()), (0, refused.clone()));
    // What comes later goes.
    world.write("bad", &["f"]);
    assert_eq!((world.sync(refuse), world.refused()), (1, refused));
    for (feed, count) in [(Some("good"), 0), (Some("bad"), 1), (None, 0)] {
        let feed = feed.map(id);
        assert_eq!(world.replica().retry_refused(&id("space"), feed.as_ref()).unwrap(), count);
    }
    assert_eq!((world.sync(|_| None), world.refused()), (1, vec![]));
    assert_eq!((world.status().blocks_to_push, world.authority.after(0).max_position), (0, 6));
}

#[test]
fn a_feed_that_the_server_takes_no_more_of_is_set_aside_as_a_whole() {
    let mut world = World::new(Limits { feed_blocks_max: 2, ..Limits::default() });
    let texts: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    world.write("full", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    world.write("good", &["a", "b"]);
    let appends = world.sync(|_| None);
    let refused = world.refused();
    assert_eq!((refused.len(), &refused[0].0[..], refused[0].1), (1, "full", 38));
    assert!(refused[0].2.contains("at most 2 blocks"), "{refused:?}");
    assert!(appends < 20, "{appends} appends for what is one refusal");
    assert!(world.status().is_done());
    assert_eq!(world.authority.after(0).max_position, 4);
    world.restart();
    assert_eq!(world.sync(|_| None), 0);
}

#[test]
fn a_feed_that_this_client_may_not_write_to_is_left_out_until_the_next_connection() {
    let mut world = World::new(Limits::default());
    world.write("theirs", &["a", "b", "c"]);
    world.write("mine", &["d", "e"]);
    world.sync(|request| is_of(request, "theirs").then_some(ErrorCode::Forbidden));
    assert_eq!(world.refused(), [("theirs".to_owned(), 3, "forbidden: not this one".to_owned())]);
    assert!(world.status().is_done());
    assert_eq!(world.authority.after(0).max_position, 2);
    // With other rights it goes by itself.
    world.sync(|_| None);
    assert_eq!((world.refused(), world.authority.after(0).max_position), (vec![], 5));
}

#[test]
fn a_block_that_is_refused_and_comes_back_from_the_server_is_no_refused_one_any_more() {
    let mut world = World::new(Limits::default());
    world.write("f", &["a"]);
    world.sync(|request| is_of(request, "f").then_some(ErrorCode::BadRequest));
    assert_eq!(world.status().blocks_refused, 1);
    let pushed =
        world.replica().read(&id("space"), &id("f"), &alluvium_feed_replica::After::Start, 9).unwrap();
    world.authority.append(append(pushed));
    world.replica().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    world.sync(|_| None);
    let status = world.status();
    assert_eq!((status.blocks_refused, status.blocks_to_push, status.total_blocks), (0, 0, 1));
}

#[test]
fn what_is_no_file_is_no_replica() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    for name in [":memory:", "", ":memory:?cache=shared"] {
        let error = opened(Path::new(name), &clock, options()).unwrap_err();
        assert!(error.to_string().contains("not the name of a file"), "{name}: {error}");
    }
    // What only looks like a URI is a name like any other.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file:x?mode=memory");
    let mut replica = opened(&path, &clock, options()).unwrap();
    replica.append(&id("s"), &id("f"), None, vec![1]).unwrap();
    drop(replica);
    assert_eq!(opened(&path, &clock, options()).unwrap().status(&id("s")).unwrap().total_blocks, 1);
}

fn is_subscribe(request: &Request) -> bool {
    matches!(request, Request::Subscribe(_))
}

#[test]
fn where_a_subscription_is_refused_everything_is_pushed_and_pulled_all_the_same() {
    let mut world = World::new(Limits { feeds_max: 5, ..Limits::default() });
    world.authority.append(append(vec![block("q1", "a", 0, "x"), block("q7", "a", 0, "y")]));
    for feed in ["q1", "q2", "q3", "q4", "q5", "q6", "q7"] {
        world.replicate(feed);
    }
    world.write("mine", &["important"]);
    let subscribes = Cell::new(0);
    let count = |request: &Request| {
        subscribes.set(subscribes.get() + u32::from(is_subscribe(request)));
        None
    };
    world.sync(count);
    let status = world.status();
    assert_eq!(
        (status.blocks_to_push, status.total_blocks, world.authority.after(0).max_position),
        (0, 3, 3)
    );
    assert!(status.is_done() && status.stopped.is_none(), "{status:?}");
    assert!(status.last_error.as_ref().is_some_and(|why| why.contains("too many feeds")), "{status:?}");
    assert_eq!(subscribes.get(), 1, "once in a minute");
    // What comes later comes, too, and the file says why it has to ask.
    world.authority.append(append(vec![block("q2", "a", 0, "z")]));
    world.sync(count);
    world.restart();
    let status = world.status();
    assert_eq!(status.total_blocks, 4);
    assert!(status.last_error.is_some_and(|why| why.contains("limit_reached")));
    // With few enough of them it is subscribed to, and there is nothing to be told.
    for feed in ["q4", "q5", "q6"] {
        world.replica().stop_replicating(&id("space"), &id(feed), Keep::All).unwrap();
    }
    world.sync(|_| None);
    assert_eq!((world.status().last_error, world.status().total_blocks), (None, 4));
}

#[test]
fn without_any_subscription_rules_pick_feeds_and_more_feeds_than_a_message_names_are_pulled() {
    let refuse = |request: &Request| is_subscribe(request).then_some(ErrorCode::LimitReached);
    let mut world = World::new(Limits::default());
    world.replica().select(&id("space"), &Selector::All, From::Beginning).unwrap();
    for round in 0..3 {
        world
            .authority
            .append(append(vec![block(&format!("f{round}"), "a", 0, "x"), block("g", "a", round, "y")]));
        world.sync(refuse);
        assert_eq!(world.status().total_blocks, (round + 1) * 2);
    }
    let mut world = World::new(Limits::default());
    for number in 0..2100 {
        world.replicate(&format!("q{number}"));
    }
    for round in 0..3 {
        let blocks = ["q0", "q999", "q1000", "q1500", "q2099"].map(|feed| block(feed, "a", round, "x"));
        world.authority.append(append(blocks.to_vec()));
        world.write("mine", &["important"]);
        world.sync(refuse);
        let status = world.status();
        assert_eq!((status.total_blocks, status.blocks_to_push), ((round + 1) * 6, 0));
        assert!(status.is_done(), "{status:?}");
    }
}

#[test]
fn that_a_feed_may_not_be_written_to_is_remembered_in_the_file_until_it_may() {
    let mut world = World::new(Limits::default());
    world.write("theirs", &["a", "b", "c"]);
    for _ in 0..2 {
        world.sync(|request| is_of(request, "theirs").then_some(ErrorCode::Forbidden));
        world.restart();
        assert_eq!(world.refused(), [("theirs".to_owned(), 3, "forbidden: not this one".to_owned())]);
        assert!(world.status().last_ok_at.is_some(), "it has answered");
    }
    // One more that waits is not counted as refused before it was tried.
    world.write("theirs", &["d"]);
    assert_eq!((world.refused()[0].1, world.status().is_done()), (3, false));
    // Another reason takes the place of the first.
    world.sync(|request| is_of(request, "theirs").then_some(ErrorCode::LimitReached));
    world.restart();
    assert_eq!(world.refused(), [("theirs".to_owned(), 4, "limit_reached: not this one".to_owned())]);
    assert_eq!(world.sync(|_| None), 0);
    world.replica().retry_refused(&id("space"), None).unwrap();
    world.sync(|request| is_of(request, "theirs").then_some(ErrorCode::Forbidden));
    world.sync(|_| None);
    world.restart();
    assert_eq!((world.refused(), world.authority.after(0).max_position), (vec![], 4));
}

/// Blocks that are too large for a server that takes 4 KiB, and small ones between them.
fn mixed(world: &mut World) {
    let large = "l".repeat(5000);
    let texts: Vec<&str> = (0..48).map(|n| if n % 2 == 0 { &large[..] } else { "small" }).collect();
    world.write("f", &texts);
}

#[test]
fn refused_blocks_that_are_named_hold_up_nothing() {
    let mut world = World::new(Limits { data_bytes_max: 4096, ..Limits::default() });
    mixed(&mut world);
    let appends = world.sync_at_once();
    assert!(appends <= 60, "{appends} appends for 48 blocks");
    let refused = world.refused();
    assert_eq!((refused.len(), refused[0].1, world.authority.after(0).max_position), (1, 24, 24));
    assert!(world.status().is_done());
}

#[test]
fn blocks_that_are_too_large_for_the_server_are_set_aside_without_being_sent() {
    let limits = Limits { data_bytes_max: 4096, ..Limits::default() };
    let mut world = World::new(limits.clone());
    mixed(&mut world);
    world.replica().set_limits(&id("space"), limits);
    assert_eq!(world.sync_at_once(), 1);
    let refused = world.refused();
    assert_eq!((refused.len(), refused[0].1, world.authority.after(0).max_position), (1, 24, 24));
    assert!(refused[0].2.contains("5000 bytes") && refused[0].2.contains("4096"), "{refused:?}");
}
