//! Somebody else changes the stream between an operation's reads and its batch: the guard fails, nothing is written, and
//! the operation decides anew.

use alluvium_protocol::error::{Conflict, StreamError};
use alluvium_protocol::store::{AppendOptions, FoldCheckpoint, GetOptions, PutOptions, StoreError};
use alluvium_protocol::{ForkOrigin, Incarnation, Offset, ProducerId, StreamPath};
use alluvium_sqlstore::native::Connection;
use alluvium_sqlstore::ops::{self, run_now};
use alluvium_sqlstore::plan::Sql;
use alluvium_sqlstore::{Bounds, Scope};
use bytes::Bytes;

use crate::batch_runner::BatchRunner;

fn path(text: &str) -> StreamPath {
    StreamPath::parse_decoded(text).expect("a path")
}

fn with_scope<T>(run: impl FnOnce(&Scope<'_>) -> T) -> T {
    let bounds = Bounds::default();
    run(&Scope { bounds: &bounds, claims_required: false, now_ms: 1_000_000 })
}

fn create<S: Sql>(sql: &mut S, at: &str, number: u128) {
    let created = with_scope(|scope| {
        run_now(ops::put(sql, scope, &path(at), &PutOptions::default(), Incarnation(number)))
    });
    assert!(created.expect("creates").created);
}

fn append<S: Sql>(sql: &mut S, at: &str, data: &'static str) -> Result<Offset, StoreError> {
    let (data, options) = (Bytes::from(data), AppendOptions::default());
    with_scope(|scope| run_now(ops::append(sql, scope, &path(at), &data, &options)))
        .map(|appended| appended.next_offset)
}

fn delete<S: Sql>(sql: &mut S, at: &str) -> Result<(), StoreError> {
    with_scope(|scope| run_now(ops::delete(sql, scope, &path(at), None)))
}

fn fork<S: Sql>(sql: &mut S, at: &str, source: &str, number: u128) -> Result<bool, StoreError> {
    let origin = ForkOrigin { source: path(source), offset: None, sub_offset: 0 };
    let options = PutOptions { fork: Some(origin), ..PutOptions::default() };
    with_scope(|scope| run_now(ops::put(sql, scope, &path(at), &options, Incarnation(number))))
        .map(|answer| answer.created)
}

fn read<S: Sql>(sql: &mut S, at: &str) -> Vec<u8> {
    let got = with_scope(|scope| run_now(ops::get(sql, scope, &path(at), &GetOptions::default())));
    got.expect("reads").result.messages.iter().flat_map(|message| message.data.to_vec()).collect()
}

fn interlope(sql: &mut BatchRunner, what: impl FnOnce(&mut Connection) + 'static) {
    sql.interloper = Some(Box::new(what));
}

#[test]
fn an_append_that_loses_a_race_goes_behind_the_winner() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "s", 1);
    interlope(&mut sql, |other| {
        append(other, "s", "winner ").expect("appends");
    });
    assert_eq!(append(&mut sql, "s", "loser"), Ok(Offset::new(2, 12)));
    assert_eq!(read(&mut sql, "s"), b"winner loser");
    assert_eq!(sql.refused, 1);
}

#[test]
fn an_append_does_not_reach_a_stream_that_took_the_place_of_its_own() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "s", 1);
    interlope(&mut sql, |other| {
        delete(other, "s").expect("deletes");
        create(other, "s", 2);
    });
    let (data, expected) = (Bytes::from_static(b"x"), Some(Incarnation(1)));
    let options = AppendOptions { expected_incarnation: expected, ..AppendOptions::default() };
    let answer = with_scope(|scope| run_now(ops::append(&mut sql, scope, &path("s"), &data, &options)));
    assert_eq!(answer, Err(StreamError::from(Conflict::Incarnation).into()));
    assert_eq!(read(&mut sql, "s"), b"");
}

#[test]
fn an_append_to_a_stream_that_was_just_deleted_finds_none() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "s", 1);
    interlope(&mut sql, |other| delete(other, "s").expect("deletes"));
    assert_eq!(append(&mut sql, "s", "x"), Err(StreamError::NotFound { path: path("s") }.into()));
}

#[test]
fn a_create_that_loses_a_race_confirms_the_winner() {
    let mut sql = BatchRunner::new();
    interlope(&mut sql, |other| create(other, "s", 1));
    let options = PutOptions::default();
    let answer = with_scope(|scope| run_now(ops::put(&mut sql, scope, &path("s"), &options, Incarnation(2))));
    let answer = answer.expect("confirms");
    assert_eq!((answer.created, answer.incarnation), (false, Incarnation(1)));
}

#[test]
fn a_takeover_that_loses_a_race_comes_after_the_winner() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "s", 1);
    let acquire = |sql: &mut BatchRunner, name: &str| {
        let id = ProducerId::parse(name).expect("an id");
        with_scope(|scope| run_now(ops::acquire(sql, scope, &path("s"), &id, None))).expect("acquires").epoch
    };
    interlope(&mut sql, |other| {
        let id = ProducerId::parse("winner").expect("an id");
        let claim = with_scope(|scope| run_now(ops::acquire(other, scope, &path("s"), &id, None)));
        assert_eq!(claim.expect("acquires").epoch, 1);
    });
    assert_eq!(acquire(&mut sql, "loser"), 2);
}

#[test]
fn a_fork_does_not_outlive_the_deletion_of_its_source() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "source", 1);
    append(&mut sql, "source", "x").expect("appends");
    interlope(&mut sql, |other| delete(other, "source").expect("deletes"));
    let answer = fork(&mut sql, "fork", "source", 2);
    assert_eq!(answer, Err(StreamError::NotFound { path: path("source") }.into()));
}

#[test]
fn a_deletion_that_loses_against_a_fork_leaves_the_source_for_it() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "source", 1);
    append(&mut sql, "source", "x").expect("appends");
    interlope(&mut sql, |other| assert_eq!(fork(other, "fork", "source", 2), Ok(true)));
    delete(&mut sql, "source").expect("hides");
    assert_eq!(append(&mut sql, "source", "y"), Err(StreamError::Gone { path: path("source") }.into()));
    assert_eq!(read(&mut sql, "fork"), b"x");
}

#[test]
fn a_deletion_of_a_fork_that_loses_against_another_fork_of_its_source_counts_right() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "source", 1);
    append(&mut sql, "source", "x").expect("appends");
    assert_eq!(fork(&mut sql, "one", "source", 2), Ok(true));
    interlope(&mut sql, |other| assert_eq!(fork(other, "two", "source", 3), Ok(true)));
    delete(&mut sql, "one").expect("deletes");
    delete(&mut sql, "source").expect("hides");
    assert_eq!(read(&mut sql, "two"), b"x");
    delete(&mut sql, "two").expect("deletes both");
    let left: i64 =
        sql.inner.raw().query_row("SELECT count(*) FROM streams", [], |row| row.get(0)).expect("counts");
    assert_eq!(left, 0);
}

#[test]
fn a_checkpoint_that_loses_against_a_later_one_is_refused() {
    let mut sql = BatchRunner::new();
    create(&mut sql, "s", 1);
    let first = append(&mut sql, "s", "one").expect("appends");
    let second = append(&mut sql, "s", "two").expect("appends");
    let checkpoint = |offset, data: &str| FoldCheckpoint {
        offset,
        incarnation: Incarnation(1),
        format_version: 1,
        data: data.to_owned(),
    };
    let later = checkpoint(second, "later");
    interlope(&mut sql, move |other| {
        with_scope(|scope| run_now(ops::put_checkpoint(other, scope, &path("s"), &later))).expect("is kept");
    });
    let earlier = checkpoint(first, "earlier");
    let answer = with_scope(|scope| run_now(ops::put_checkpoint(&mut sql, scope, &path("s"), &earlier)));
    assert_eq!(answer, Err(StreamError::from(Conflict::CheckpointBehind).into()));
    let kept = with_scope(|scope| run_now(ops::get_checkpoint(&mut sql, scope, &path("s"), None)));
    assert_eq!(kept.expect("reads").map(|kept| kept.data).as_deref(), Some("later"));
}

#[test]
fn a_connection_whose_memory_of_a_stream_is_old_writes_nothing_and_reads_again() {
    let world = crate::world::World::new(1);
    let mut other = Connection::new(rusqlite::Connection::open(world.file()).expect("opens"), 0);
    for statement in alluvium_sqlstore::plan::schema::CREATE {
        other.raw().execute(statement, []).expect("a table");
    }
    let mut sql = Connection::new(rusqlite::Connection::open(world.file()).expect("opens"), 10);
    create(&mut sql, "s", 1);
    assert_eq!(append(&mut sql, "s", "a"), Ok(Offset::new(1, 1)));
    assert_eq!(append(&mut other, "s", "b"), Ok(Offset::new(2, 2)));
    assert_eq!(append(&mut sql, "s", "c"), Ok(Offset::new(3, 3)), "behind the one that it did not know of");
    assert_eq!(read(&mut other, "s"), b"abc");
    let rows: i64 = sql.raw().query_row("SELECT count(*) FROM chunks", [], |row| row.get(0)).expect("counts");
    assert_eq!(rows, 3);
}
