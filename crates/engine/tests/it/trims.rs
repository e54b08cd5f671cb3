//! Streams whose beginning is given up: what is left is whole, what went is refused, and its space comes back.

use alluvium_engine::{
    CreateError, CreateRequest, FoldError, Overlong, PublishError, ReadError, RetentionRule, TrimCause,
    TrimError, TrimHold, TrimTo, Trimmed,
};
use alluvium_env::{Disk as _, OpenMode};
use alluvium_protocol::{
    BucketId, ForkOrigin, Lifetime, Offset, OffsetQuery, ProducerStamp, PublishRejection, StreamPath,
};
use bytes::Bytes;

use crate::support::{append_request, create_request, path, publish_request};
use crate::world::World;

impl World {
    async fn grow(&self, stream: &StreamPath, content_type: &str, body: &[u8]) -> Offset {
        self.run(self.engine.append(stream, append_request(content_type, body))).await.unwrap().tail
    }

    /// Appends so many messages of so many bytes; where each ends.
    async fn grow_by(&self, stream: &StreamPath, number: usize, bytes: usize) -> Vec<Offset> {
        let mut ends = Vec::new();
        for _ in 0..number {
            ends.push(self.grow(stream, "text/plain", &vec![b'x'; bytes]).await);
        }
        ends
    }

    async fn trim_to(&self, stream: &StreamPath, to: TrimTo) -> Result<Trimmed, TrimError> {
        let overlong = self.engine.overlong_at(stream, to)?;
        let looked = self.run(self.engine.look_at_trim(&overlong)).await?;
        let trimmed = self.run(self.engine.trim(&overlong, true)).await?;
        assert_eq!(looked, trimmed, "a look says what will be");
        Ok(trimmed)
    }

    /// Has rules carried out, once; how many bytes they gave up.
    async fn enforce(&self, rules: &[RetentionRule]) -> u64 {
        let mut bytes = 0;
        for overlong in self.engine.overlong(rules) {
            bytes += self.run(self.engine.trim(&overlong, false)).await.unwrap().bytes;
        }
        bytes
    }

    fn floor(&self, stream: &StreamPath) -> Offset {
        self.engine.head(stream).unwrap().floor
    }

    fn start(&self, stream: &StreamPath) -> Result<Offset, ReadError> {
        self.engine.open_stream(stream).unwrap().resolve(OffsetQuery::Start)
    }

    async fn publish(
        &self,
        stream: &StreamPath,
        offset: Offset,
        retain_all: bool,
    ) -> Result<Offset, PublishError> {
        let request = alluvium_engine::PublishRequest { retain_all, ..publish_request(offset) };
        let mut upload = self.engine.begin_publish(stream, request).await?;
        upload.write(Bytes::from_static(b"folded")).await?;
        self.run(upload.publish()).await.map(|published| published.floor)
    }

    async fn fork(
        &self,
        fork: &StreamPath,
        source: &StreamPath,
        offset: Offset,
    ) -> Result<Offset, CreateError> {
        let origin = ForkOrigin { source: source.clone(), offset: Some(offset), sub_offset: 0 };
        let request =
            CreateRequest { fork: Some(origin), content_type: None, ..create_request("text/plain") };
        self.run(self.engine.create(fork, request)).await.map(|created| created.tail)
    }

    fn fold_all(&self) -> Result<(), FoldError> {
        (0..self.engine.shards()).try_for_each(|shard| {
            self.engine.step_fold(shard)?;
            self.engine.step_fold(shard).map(drop)
        })
    }
}

fn below(floor: Offset) -> ReadError {
    ReadError::Retained { floor, snapshot: None }
}

#[tokio::test]
async fn what_is_left_begins_at_a_message_and_what_went_is_refused_for_good() {
    let mut world = World::new();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    let ends = world.grow_by(&stream, 10, 100).await;
    let reader = world.engine.open_stream(&stream).unwrap();
    let trimmed = world.trim_to(&stream, TrimTo::Bytes(450)).await;
    assert_eq!(trimmed, Ok(Trimmed { floor: ends[5], bytes: 600, held: None }), "whole messages stay");
    assert_eq!(reader.read(ends[4], 1000).unwrap_err(), below(ends[5]), "an open reader is told");
    for round in 0..3 {
        assert_eq!((world.floor(&stream), world.start(&stream)), (ends[5], Ok(ends[5])), "round {round}");
        let reader = world.engine.open_stream(&stream).unwrap();
        for end in &ends[..5] {
            assert_eq!(reader.resolve(OffsetQuery::At(*end)), Err(below(ends[5])));
        }
        assert_eq!(reader.resolve(OffsetQuery::At(Offset::ZERO)), Err(below(ends[5])));
        for end in &ends[5..] {
            assert_eq!(reader.resolve(OffsetQuery::At(*end)), Ok(*end));
        }
        assert_eq!(world.content(&stream, ends[5]).len(), 400);
        if round == 0 {
            world.fold_all().unwrap();
        }
        world.restart();
    }
    let before = Trimmed { floor: ends[5], bytes: 0, held: None };
    assert_eq!(world.trim_to(&stream, TrimTo::Offset(ends[2])).await, Ok(before), "a floor never moves back");
    let inside = Offset::new(ends[6].append_index, ends[6].position + 1);
    assert_eq!(world.trim_to(&stream, TrimTo::Offset(inside)).await, Err(TrimError::Unaligned));
    let past = TrimTo::Offset(Offset::new(11, 1100));
    assert_eq!(world.trim_to(&stream, past).await, Err(TrimError::Beyond { tail: ends[9] }));
    // The last message stays, unless nothing is to stay.
    let last = world.trim_to(&stream, TrimTo::Bytes(7)).await;
    assert_eq!(last, Ok(Trimmed { floor: ends[8], bytes: 300, held: None }));
    let all = world.trim_to(&stream, TrimTo::Bytes(0)).await;
    assert_eq!(all, Ok(Trimmed { floor: ends[9], bytes: 100, held: None }));
    let grown = world.grow(&stream, "text/plain", b"more").await;
    world.restart();
    assert_eq!((world.start(&stream), world.content(&stream, ends[9])), (Ok(ends[9]), b"more".to_vec()));
    assert_eq!(world.engine.head(&stream).unwrap().tail, grown);
}

#[tokio::test]
async fn messages_of_json_are_not_cut_and_the_space_of_what_went_comes_back() {
    let mut world = World::new();
    let stream = path("json");
    world.run(world.engine.create(&stream, create_request("application/json"))).await.unwrap();
    let text = "x".repeat(900);
    for number in 0..300 {
        let body = format!("[{number}, \"{text}\", {{\"n\": {number}}}]");
        world.grow(&stream, "application/json", body.as_bytes()).await;
    }
    world.fold_all().unwrap();
    let used = world.disk.used_bytes();
    let trimmed = world.trim_to(&stream, TrimTo::Bytes(10_000)).await.unwrap();
    let left = world.content(&stream, trimmed.floor);
    assert!(left.len() <= 10_000 && left.len() > 9_000, "{} bytes are left", left.len());
    let element = |number| format!("{number},\"{text}\",{{\"n\": {number}}},");
    let whole = (0..300).map(element).collect::<Vec<_>>().concat();
    let gone = whole.strip_suffix(std::str::from_utf8(&left).unwrap()).unwrap();
    assert!(gone.ends_with(','), "no message is cut");
    for _ in 0..3 {
        world.fold_all().unwrap();
        assert_eq!(world.content(&stream, trimmed.floor), left);
        world.restart();
    }
    assert!(world.disk.used_bytes() + 200_000 < used, "{} of {used}", world.disk.used_bytes());
    assert_eq!(world.content(&stream, trimmed.floor), left);
}

#[tokio::test]
async fn a_fork_keeps_what_it_has_and_begins_where_its_source_began() {
    let mut world = World::new();
    let (source, early, late) = (path("source"), path("early"), path("late"));
    world.create("source", Lifetime::Forever).await;
    let ends = world.grow_by(&source, 20, 60_000).await;
    world.fork(&early, &source, ends[14]).await.unwrap();
    assert_eq!(world.trim_to(&source, TrimTo::Offset(ends[9])).await.unwrap().bytes, 600_000);
    let refused = CreateError::SourceRetained { floor: ends[9], snapshot: None };
    assert_eq!(world.fork(&path("none"), &source, ends[8]).await, Err(refused));
    assert_eq!(world.fork(&late, &source, ends[11]).await, Ok(ends[11]));
    for _ in 0..2 {
        assert_eq!((world.start(&early), world.start(&late)), (Ok(Offset::ZERO), Ok(ends[9])));
        assert_eq!(world.content(&early, Offset::ZERO).len(), 900_000);
        assert_eq!(world.content(&late, ends[9]).len(), 120_000);
        world.fold_all().unwrap();
        world.restart();
    }
    // The source goes on without the first fork, which is cut as well, within what it has inherited.
    let used = world.disk.used_bytes();
    assert_eq!(world.trim_to(&early, TrimTo::Bytes(1_000)).await.unwrap().floor, ends[13]);
    assert_eq!(world.trim_to(&source, TrimTo::Bytes(130_000)).await.unwrap().floor, ends[17]);
    world.fold_all().unwrap();
    world.restart();
    assert_eq!(world.content(&early, ends[13]).len(), 60_000);
    assert_eq!(world.content(&late, ends[9]).len(), 120_000, "what a fork reads stays");
    assert_eq!(world.content(&source, ends[17]).len(), 120_000);
    for stream in [&early, &late] {
        world.run(world.engine.delete(stream)).await.unwrap();
    }
    // What lies in a table is looked at again when something is folded.
    world.grow(&source, "text/plain", b"more").await;
    world.fold_all().unwrap();
    world.fold_all().unwrap();
    assert_eq!(world.content(&source, ends[17]).len(), 120_004);
    assert!(world.disk.used_bytes() + 300_000 < used, "{} of {used}", world.disk.used_bytes());
}

#[tokio::test]
async fn what_follows_a_snapshot_stays_and_a_reader_goes_on_from_it() {
    let mut world = World::new();
    let bucket = BucketId::parse("docs").unwrap();
    world.run(world.engine.create_bucket(&bucket)).await.unwrap();
    let stream = StreamPath::in_bucket(&bucket, "s").unwrap();
    world.run(world.engine.create(&stream, create_request("text/plain"))).await.unwrap();
    let ends = world.grow_by(&stream, 8, 100).await;
    world.publish(&stream, ends[1], false).await.unwrap();
    world.publish(&stream, ends[4], true).await.unwrap();
    let trimmed = world.trim_to(&stream, TrimTo::Bytes(500)).await;
    assert_eq!(trimmed, Ok(Trimmed { floor: ends[2], bytes: 100, held: None }), "below the snapshot");
    let held = world.trim_to(&stream, TrimTo::Bytes(1)).await;
    assert_eq!(held, Ok(Trimmed { floor: ends[4], bytes: 200, held: Some(TrimHold::Snapshot) }));
    let again = world.trim_to(&stream, TrimTo::Age(0)).await;
    assert_eq!(again, Ok(Trimmed { floor: ends[4], bytes: 0, held: Some(TrimHold::Snapshot) }));
    let rule =
        RetentionRule { prefix: "/".to_owned(), stream_bytes_max: Some(1), ..RetentionRule::default() };
    assert!(world.engine.overlong(&[rule]).is_empty(), "nothing is tried that cannot be");
    for _ in 0..2 {
        let covered = ReadError::Retained { floor: ends[4], snapshot: Some(ends[4]) };
        assert_eq!(world.start(&stream), Err(covered), "a snapshot stands for what went");
        let cut = world.engine.bootstrap(&stream, alluvium_engine::BootstrapLimits::NONE).unwrap();
        assert_eq!((cut.from, cut.snapshot.is_some(), cut.end), (ends[4], true, ends[7]));
        drop(cut);
        assert_eq!(world.content(&stream, ends[4]).len(), 300);
        world.fold_all().unwrap();
        world.restart();
    }
    // Without a snapshot nothing stands for what went, and no snapshot can be published there.
    let plain = StreamPath::in_bucket(&bucket, "plain").unwrap();
    world.run(world.engine.create(&plain, create_request("text/plain"))).await.unwrap();
    let ends = world.grow_by(&plain, 4, 100).await;
    world.trim_to(&plain, TrimTo::Bytes(200)).await.unwrap();
    let cut = world.engine.bootstrap(&plain, alluvium_engine::BootstrapLimits::NONE).unwrap();
    assert_eq!((cut.from, cut.snapshot.is_some(), cut.head.floor), (ends[1], false, ends[1]));
    drop(cut);
    let refused = PublishRejection::Retained { floor: ends[1], snapshot: None };
    assert_eq!(world.publish(&plain, ends[0], false).await, Err(refused.into()));
    assert_eq!(world.publish(&plain, ends[2], true).await, Ok(ends[1]));
}

#[tokio::test]
async fn of_each_stream_stays_what_a_rule_lets_it_hold_and_the_smallest_limit_counts() {
    let mut world = World::new();
    for name in ["logs/a", "logs/b", "other", "short"] {
        world.create(name, Lifetime::Forever).await;
        world.grow_by(&path(name), if name == "short" { 2 } else { 10 }, 100).await;
    }
    let rule = |prefix: &str, max| RetentionRule {
        prefix: prefix.to_owned(),
        stream_bytes_max: Some(max),
        ..RetentionRule::default()
    };
    let rules = [rule("/", 700), rule("/v1/stream/logs/", 300)];
    let named = |found: &[Overlong]| {
        let mut names: Vec<_> = found.iter().filter_map(|one| Some(one.path()?.to_string())).collect();
        names.sort();
        names
    };
    assert_eq!(named(&world.engine.overlong(&rules)), ["logs/a", "logs/b", "other"]);
    assert_eq!(world.enforce(&rules).await, 700 + 700 + 300);
    assert_eq!(world.enforce(&rules).await, 0, "once is enough");
    let counted = world.engine.counted().trimmed;
    assert_eq!(counted[0], (TrimCause::Size, 3, 1700));
    for _ in 0..2 {
        let left = |name| world.content(&path(name), world.floor(&path(name))).len();
        assert_eq!([left("logs/a"), left("other"), left("short")], [300, 700, 200]);
        let mut bytes = Vec::new();
        world.engine.survey("/v1/stream/logs/a", |stream| bytes.push((stream.bytes, stream.floor)));
        assert_eq!(bytes, [(300, Offset::new(7, 700))]);
        world.restart();
    }
}

#[tokio::test]
async fn what_is_too_old_goes_also_while_the_stream_is_written_to_and_after_restarts() {
    let mut world = World::new();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    let age_ms = 16_000;
    let rule =
        RetentionRule { prefix: "/".to_owned(), stream_age_ms_max: Some(age_ms), ..RetentionRule::default() };
    // When the message at each place was appended.
    let mut appended: Vec<(Offset, u64)> = Vec::new();
    for round in 0..200_u64 {
        let now_ms = round * 500;
        let end = world.grow(&stream, "text/plain", b"0123456789").await;
        appended.push((end, now_ms));
        world.enforce(std::slice::from_ref(&rule)).await;
        let floor = world.floor(&stream);
        let young = appended.iter().filter(|(end, at)| *end <= floor && now_ms - at < age_ms).count();
        assert_eq!(young, 0, "in round {round} something went before its time");
        // A sixteenth of the age between two marks, and what is written between two looks.
        let late = age_ms + age_ms / 16 + 500;
        let old = appended.iter().filter(|(end, at)| *end > floor && now_ms - at > late).count();
        assert_eq!(old, 0, "in round {round} something stays that is too old");
        if round % 30 == 29 {
            world.fold_all().unwrap();
            world.restart();
        }
        world.clock.advance_ms(500);
    }
    assert_eq!(world.content(&stream, world.floor(&stream)).len() % 10, 0);
    // What nobody writes to goes whole, and its producers and its tail stay.
    let tail = world.engine.head(&stream).unwrap().tail;
    world.clock.advance_ms(age_ms);
    world.enforce(&[rule]).await;
    world.restart();
    assert_eq!((world.floor(&stream), world.engine.head(&stream).unwrap().tail), (tail, tail));
    assert_eq!(world.grow(&stream, "text/plain", b"on").await.append_index, tail.append_index + 1);
    let (cause, trims, bytes) = world.engine.counted().trimmed[1];
    assert_eq!((cause, trims, bytes), (TrimCause::Age, 0, 0), "counted since the start");
}

#[tokio::test]
async fn producers_go_on_over_a_trim_as_if_nothing_had_been_given_up() {
    let mut world = World::new();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    let stamped = |seq| {
        let id = alluvium_protocol::ProducerId::parse("p").unwrap();
        let mut request = append_request("text/plain", b"0123456789");
        request.producer = Some(ProducerStamp { id, epoch: 0, seq });
        request
    };
    for seq in 0..5 {
        world.run(world.engine.append(&stream, stamped(seq))).await.unwrap();
    }
    world.trim_to(&stream, TrimTo::Bytes(0)).await.unwrap();
    world.fold_all().unwrap();
    world.restart();
    assert!(world.run(world.engine.append(&stream, stamped(4))).await.unwrap().duplicate);
    let next = world.run(world.engine.append(&stream, stamped(5))).await.unwrap();
    assert_eq!((next.duplicate, next.tail), (false, Offset::new(6, 60)));
}

#[tokio::test]
async fn a_stream_that_is_gone_is_not_trimmed() {
    let world = World::new();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    world.grow_by(&stream, 3, 10).await;
    let overlong = world.engine.overlong_at(&stream, TrimTo::Bytes(10)).unwrap();
    world.run(world.engine.delete(&stream)).await.unwrap();
    world.create("s", Lifetime::Forever).await;
    world.grow_by(&stream, 3, 10).await;
    let refused = world.run(world.engine.trim(&overlong, true)).await;
    assert!(matches!(refused, Err(TrimError::Lookup(_))), "{refused:?}");
    assert_eq!(world.floor(&stream), Offset::ZERO, "one that came after is another");
    assert!(world.engine.overlong_at(&path("none"), TrimTo::Bytes(1)).is_err());
}

impl World {
    /// Bytes of all tables.
    fn table_bytes(&self) -> u64 {
        let files = self.disk.files().into_iter().filter(|path| path.to_string_lossy().contains("/table-"));
        files.map(|path| self.disk.open(&path, OpenMode::Read).unwrap().len().unwrap()).sum()
    }

    /// What the maintenance threads do while nobody writes.
    fn idle(&self) {
        for _ in 0..3 {
            for shard in 0..self.engine.shards() {
                self.engine.step_maintenance(shard);
            }
            self.commit();
        }
    }
}

/// Two streams in different shards of two: the function that says which is part of the format.
const APART: (&str, &str) = ("a", "events/2024/x");

#[derive(Clone, Copy, Debug)]
enum LetGo {
    Delete,
    Trim,
    Publish,
}

#[tokio::test]
async fn space_that_a_fork_alone_held_comes_back_when_it_lets_go_though_nobody_writes() {
    for how in [LetGo::Delete, LetGo::Trim, LetGo::Publish] {
        for restarts in [false, true] {
            let mut world = World::new();
            let (source, fork) = (path(APART.0), path(APART.1));
            world.create(APART.0, Lifetime::Forever).await;
            let ends = world.grow_by(&source, 40, 50_000).await;
            world.fold_all().unwrap();
            world.fork(&fork, &source, *ends.last().unwrap()).await.unwrap();
            world.trim_to(&source, TrimTo::Bytes(50_000)).await.unwrap();
            world.fold_all().unwrap();
            world.idle();
            let held = world.table_bytes();
            assert!(held > 1_900_000, "{how:?}: the fork holds it: {held}");
            match how {
                LetGo::Delete => world.run(world.engine.delete(&fork)).await.unwrap(),
                LetGo::Trim => drop(world.trim_to(&fork, TrimTo::Bytes(50_000)).await.unwrap()),
                LetGo::Publish => {
                    let tail = *ends.last().unwrap();
                    world.publish(&fork, tail, false).await.map(drop).unwrap();
                }
            }
            if restarts {
                world.restart();
            }
            world.idle();
            let left = world.table_bytes();
            assert!(left < 400_000, "{how:?}, restarts {restarts}: {left} of {held}");
            let kept = world.content(&source, world.floor(&source));
            assert_eq!(kept.len(), 50_000, "{how:?}");
        }
    }
}

#[tokio::test]
async fn a_start_with_garbage_folds_it_and_one_without_folds_nothing() {
    let mut world = World::new();
    let (source, fork) = (path(APART.0), path(APART.1));
    world.create(APART.0, Lifetime::Forever).await;
    let ends = world.grow_by(&source, 40, 50_000).await;
    world.fork(&fork, &source, *ends.last().unwrap()).await.unwrap();
    world.trim_to(&source, TrimTo::Bytes(50_000)).await.unwrap();
    world.fold_all().unwrap();
    world.idle();
    let folds = |world: &World| world.engine.counted().folds;
    for _ in 0..2 {
        world.restart();
        world.idle();
        assert_eq!(folds(&world), 0, "a fork holds what its source has given up");
    }
    world.run(world.engine.delete(&fork)).await.unwrap();
    world.restart();
    world.idle();
    assert!(folds(&world) > 0);
    world.restart();
    world.idle();
    assert_eq!(folds(&world), 0, "all of it has gone");
}

#[tokio::test]
async fn a_chain_of_forks_that_goes_at_once_gives_back_what_any_of_them_held() {
    let world = World::new();
    let (source, last) = (path(APART.0), path(APART.1));
    world.create(APART.0, Lifetime::Forever).await;
    let ends = world.grow_by(&source, 40, 50_000).await;
    let middle = path("middle");
    world.fork(&middle, &source, *ends.last().unwrap()).await.unwrap();
    world.fork(&last, &middle, ends[1]).await.unwrap();
    world.trim_to(&source, TrimTo::Bytes(50_000)).await.unwrap();
    world.run(world.engine.delete(&middle)).await.unwrap();
    world.fold_all().unwrap();
    world.idle();
    let held = world.table_bytes();
    assert!(held > 1_900_000, "the deleted one is kept whole for its fork: {held}");
    world.run(world.engine.delete(&last)).await.unwrap();
    world.idle();
    let left = world.table_bytes();
    assert!(left < 400_000, "{left} of {held}");
}
