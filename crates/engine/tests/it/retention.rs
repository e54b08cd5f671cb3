//! Streams that rules say are to go: those and no others, for good, and their space comes back.

use alluvium_engine::{Overdue, RetentionCause, RetentionRule};
use alluvium_protocol::{BucketId, ForkOrigin, Lifetime, Offset, StreamPath};

use crate::support::{append_request, create_request, path};
use crate::world::World;

fn rule(prefix: &str) -> RetentionRule {
    RetentionRule { prefix: prefix.to_owned(), ..RetentionRule::default() }
}

/// What was found, by path.
fn named(overdue: &[Overdue]) -> Vec<(String, RetentionCause, u64)> {
    let name = |one: &Overdue| one.path().map(ToString::to_string).unwrap_or_default();
    let mut named: Vec<_> = overdue.iter().map(|one| (name(one), one.cause, one.bytes)).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

fn names(overdue: &[Overdue]) -> Vec<String> {
    named(overdue).into_iter().map(|(name, ..)| name).collect()
}

impl World {
    async fn write(&self, stream: &StreamPath, bytes: usize, close: bool) -> Offset {
        let mut request = append_request("text/plain", &vec![b'x'; bytes]);
        request.close = close;
        self.run(self.engine.append(stream, request)).await.unwrap().tail
    }

    /// Has a rule carried out; how many streams it has ended.
    async fn retain(&self, rules: &[RetentionRule]) -> usize {
        let mut ended = 0;
        for overdue in self.engine.overdue(rules) {
            ended += usize::from(self.run(self.engine.retire(&overdue)).await.unwrap());
        }
        ended
    }
}

#[tokio::test]
async fn age_is_that_of_the_last_write_and_closed_streams_have_one_of_their_own() {
    let world = World::new();
    for name in ["logs/old", "logs/closed", "logs/read", "other"] {
        world.create(name, Lifetime::Forever).await;
        world.write(&path(name), 10, name == "logs/closed").await;
    }
    world.clock.advance_ms(5000);
    world.create("logs/new", Lifetime::Forever).await;
    world.engine.open_stream(&path("logs/read")).unwrap();
    let idle = RetentionRule { idle_ms_max: Some(5000), ..rule("/v1/stream/logs/") };
    let closed = RetentionRule { closed_ms_max: Some(5000), ..rule("/v1/stream/") };
    let due = |name: &str, cause| (name.to_owned(), cause, 10);
    let found = named(&world.engine.overdue(&[closed.clone(), idle.clone()]));
    assert_eq!(
        found,
        [
            due("logs/closed", RetentionCause::Closed),
            due("logs/old", RetentionCause::Idle),
            due("logs/read", RetentionCause::Idle),
        ]
    );
    let a_moment_less = RetentionRule { idle_ms_max: Some(5001), ..rule("/") };
    assert!(world.engine.overdue(&[a_moment_less, rule("/")]).is_empty());
    assert_eq!(world.retain(&[closed, idle]).await, 3);
    assert!(world.exists(&path("other")) && world.exists(&path("logs/new")));
    let counted = world.engine.counted().retired;
    assert_eq!(
        counted,
        [(RetentionCause::Idle, 2, 20), (RetentionCause::Closed, 1, 10), (RetentionCause::Bytes, 0, 0)]
    );
}

#[tokio::test]
async fn of_too_many_bytes_the_longest_idle_go_until_it_is_no_more_than_may_be() {
    let mut world = World::new();
    let bucket = BucketId::parse("docs").unwrap();
    world.run(world.engine.create_bucket(&bucket)).await.unwrap();
    let streams: Vec<StreamPath> =
        (0..6).map(|number| StreamPath::in_bucket(&bucket, &format!("s{number}")).unwrap()).collect();
    for stream in &streams {
        world.run(world.engine.create(stream, create_request("text/plain"))).await.unwrap();
        world.write(stream, 100, false).await;
        world.clock.advance_ms(10);
    }
    // The first is the youngest now, and the second is empty but for what a snapshot stands for.
    world.write(&streams[0], 100, false).await;
    let limit = |bytes| RetentionRule { bytes_max: Some(bytes), ..rule("/ds/docs/") };
    assert!(world.engine.overdue(&[limit(700)]).is_empty());
    assert_eq!(names(&world.engine.overdue(&[limit(699)])), ["/ds/docs/s1"]);
    assert_eq!(names(&world.engine.overdue(&[limit(500)])), ["/ds/docs/s1", "/ds/docs/s2"]);
    assert_eq!(names(&world.engine.overdue(&[limit(1)])).len(), 6);
    // What goes for its age does not count, and nothing goes twice.
    let aged = RetentionRule { idle_ms_max: Some(50), ..rule("/") };
    let found = named(&world.engine.overdue(&[aged, limit(500), limit(500)]));
    let causes: Vec<_> = found.iter().map(|(name, cause, _)| (name.as_str(), cause.name())).collect();
    assert_eq!(causes, [("/ds/docs/s1", "idle"), ("/ds/docs/s2", "bytes")]);
    // The sizes and times are the same after a restart.
    let before = named(&world.engine.overdue(&[limit(300)]));
    world.restart();
    assert_eq!(named(&world.engine.overdue(&[limit(300)])), before);
    assert_eq!(world.retain(&[limit(500)]).await, 2);
    assert!(world.engine.overdue(&[limit(500)]).is_empty());
    world.restart();
    assert!(!world.exists(&streams[1]) && world.exists(&streams[3]));
    let taken: u64 = world.engine.counted().retired.iter().map(|(_, streams, _)| streams).sum();
    assert_eq!(taken, 0, "counted since the start");
}

#[tokio::test]
async fn a_stream_that_is_written_to_after_the_look_stays() {
    let world = World::new();
    for name in ["written", "replaced", "kept"] {
        world.create(name, Lifetime::Forever).await;
        world.write(&path(name), 10, false).await;
    }
    world.clock.advance_ms(1000);
    let due = world.engine.overdue(&[RetentionRule { idle_ms_max: Some(1000), ..rule("/") }]);
    assert_eq!(due.len(), 3);
    world.write(&path("written"), 10, false).await;
    world.run(world.engine.delete(&path("replaced"))).await.unwrap();
    world.create("replaced", Lifetime::Forever).await;
    let mut ended = Vec::new();
    for overdue in &due {
        if world.run(world.engine.retire(overdue)).await.unwrap() {
            ended.push(overdue.path().unwrap().to_string());
        }
    }
    assert_eq!(ended, ["kept"]);
    assert!(world.exists(&path("written")) && world.exists(&path("replaced")));
}

#[tokio::test]
async fn a_fork_keeps_what_it_has_of_a_stream_that_went_and_all_space_comes_back_with_the_last() {
    let mut world = World::new();
    let (source, fork) = (path("source"), path("fork"));
    world.create("source", Lifetime::Forever).await;
    for _ in 0..20 {
        world.write(&source, 10_000, false).await;
    }
    let origin = ForkOrigin { source: source.clone(), offset: None, sub_offset: 0 };
    let request = alluvium_engine::CreateRequest { fork: Some(origin), ..create_request("text/plain") };
    world.run(world.engine.create(&fork, request)).await.unwrap();
    world.clock.advance_ms(10);
    world.write(&fork, 10, false).await;
    let found = named(&world.engine.overdue(&[RetentionRule { bytes_max: Some(100), ..rule("/") }]));
    assert_eq!(
        found,
        [("source".to_owned(), RetentionCause::Bytes, 200_000)],
        "a fork holds what is its own"
    );
    assert_eq!(world.retain(&[RetentionRule { bytes_max: Some(100), ..rule("/") }]).await, 1);
    for _ in 0..2 {
        assert!(!world.exists(&source));
        assert_eq!(world.content(&fork, Offset::ZERO).len(), 200_010);
        world.fold();
        world.restart();
    }
    let used = world.disk.used_bytes();
    world.clock.advance_ms(10);
    assert_eq!(world.retain(&[RetentionRule { idle_ms_max: Some(10), ..rule("/") }]).await, 1);
    world.fold();
    world.fold();
    assert!(world.disk.used_bytes() + 150_000 < used, "{} of {used}", world.disk.used_bytes());
}

#[tokio::test]
async fn a_look_at_all_streams_says_what_each_holds() {
    let world = World::new();
    world.create("a/one", Lifetime::Forever).await;
    world.create("a/mortal", Lifetime::Ttl { seconds: 1 }).await;
    world.create("b", Lifetime::Forever).await;
    let tail = world.write(&path("a/one"), 70, true).await;
    let look = |prefix: &str| {
        let mut found = Vec::new();
        world
            .engine
            .survey(prefix, |stream| found.push((stream.path.to_string(), stream.bytes, stream.closed)));
        found.sort();
        found
    };
    let one = ("a/one".to_owned(), 70, true);
    assert_eq!(look("/v1/stream/a/"), [("a/mortal".to_owned(), 0, false), one.clone()]);
    assert_eq!(look("").len(), 3);
    assert!(look("/ds/").is_empty());
    world.clock.advance_ms(1000);
    assert_eq!(look("/v1/stream/a/"), [one], "one whose time is over is as good as gone");
    let mut tails = Vec::new();
    world.engine.survey("/v1/stream/a/one", |stream| tails.push(stream.tail));
    assert_eq!(tails, [tail]);
}
