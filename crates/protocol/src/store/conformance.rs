//! The behaviour suite of the store contract: what every keeper of streams must do, as functions that fail by a panic.
//!
//! A backend's tests give a [`Harness`] with an empty store for each behaviour:
//!
//! ```text
//! for behaviour in conformance::behaviours::<MyHarness>(claims_required) {
//!     let harness = MyHarness::new();
//!     runtime.block_on((behaviour.run)(&harness));
//! }
//! ```
//!
//! The suite needs no runtime of its own. Concurrency is made by polling several operations of one task in turn, so a
//! backend that does its work on other threads really has them at once.

mod batches;
mod checkpoints;
mod claims;
mod create;
mod expiry;
mod forks;
mod incarnations;
mod lanes;
mod races;
mod reads;
mod retries;
mod strict;
mod waiting;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;

use super::{
    AppendOptions, AppendResult, GetOptions, GetResult, ProducerClaim, PutOptions, PutResult, StoreError,
    StoreResult, StreamStore,
};
use crate::content_type::ContentType;
use crate::error::StreamError;
use crate::offset::{Offset, OffsetQuery};
use crate::path::StreamPath;
use crate::producer::{ProducerId, ProducerStamp};

/// What the suite needs of a backend: an empty store, and its clock.
pub trait Harness: Send + Sync {
    /// The store's type.
    type Store: StreamStore;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Moves the store's clock forward.
    fn advance_ms(&self, by_ms: u64);

    /// What it was made with.
    fn limits(&self) -> Limits;
}

/// The ceilings of a store under test, all in bytes; small ones make the suite quick.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Stored bytes of an append. At least four times the read window.
    pub append_bytes_max: usize,
    /// A read window. At least 64.
    pub read_bytes_max: usize,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes_max: usize,
}

/// A behaviour.
#[derive(Debug)]
pub struct Behaviour<H> {
    /// What it shows.
    pub name: &'static str,
    /// Shows it, on an empty store, or panics.
    pub run: for<'h> fn(&'h H) -> Pin<Box<dyn Future<Output = ()> + 'h>>,
}

macro_rules! behaviours {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        vec![$($(
            Behaviour { name: stringify!($name), run: |harness| Box::pin($module::$name(harness)) },
        )+)+]
    };
}

/// All behaviours of a store that requires claims, or of one that does not.
pub fn behaviours<H: Harness>(claims_required: bool) -> Vec<Behaviour<H>> {
    let mut all = behaviours! {
        create: a_stream_is_created_once, a_repeated_create_confirms_or_conflicts, a_stream_may_be_created_closed,
            a_missing_stream_is_missing_everywhere, a_deleted_path_is_free_again;
        reads: windows_are_bounded_and_resume, a_json_append_larger_than_a_window_is_read_whole,
            closed_is_told_only_at_the_end, an_offset_of_no_stream_is_refused, an_append_larger_than_a_chunk_reads_back,
            many_appends_read_back_in_order, entity_tags_tell_incarnation_range_and_end, now_is_the_tail,
            an_append_over_the_limit_is_refused;
        claims: acquiring_fences_whoever_was, a_claimed_stream_takes_only_its_producer,
            a_takeover_finds_the_tail_and_goes_on, a_claim_ends_with_its_incarnation;
        retries: a_repetition_gets_the_first_answer, a_repetition_that_differs_is_refused,
            a_large_repetition_is_compared_to_the_last_byte, a_closing_repetition_is_compared,
            a_repetition_to_a_claimed_stream_is_always_compared,
            a_repetition_is_recognised_after_the_stream_was_closed, retry_metadata_must_be_the_same,
            a_thousand_repetitions_leave_one_copy, the_last_appends_of_a_claim_can_be_repeated;
        incarnations: every_operation_refuses_another_incarnation, a_recreated_stream_shows_nothing_of_the_old_one;
        forks: a_fork_begins_as_its_source, a_fork_stands_on_its_own, a_fork_of_a_fork_reads_through,
            a_fork_may_part_within_an_append, a_json_fork_may_part_between_messages,
            a_source_lives_as_long_as_its_forks, forks_are_refused_where_they_cannot_be, a_long_prefix_can_be_forked;
        batches: appends_are_numbered_from_one, batches_are_whole_and_bounded, batches_of_a_fork_begin_in_its_source;
        checkpoints: a_checkpoint_round_trips_and_is_superseded, a_checkpoint_after_the_bound_is_withheld,
            a_checkpoint_must_fit_the_stream, a_checkpoint_dies_with_its_stream;
        expiry: a_sliding_lifetime_begins_anew_when_read_or_written, a_fixed_lifetime_ends_whatever_happens,
            an_expired_path_is_free_for_another_stream;
        waiting: what_is_there_is_given_at_once, a_wait_ends_with_an_append, a_wait_ends_with_a_close,
            a_wait_ends_with_a_deletion, a_wait_is_told_of_a_new_incarnation, a_wait_ends_when_the_time_is_up;
        races: racing_creates_make_one_stream, racing_takeovers_leave_one_owner, racing_deletes_of_the_last_forks_free_the_source;
    };
    if claims_required {
        all.extend(behaviours! {
            strict: data_needs_a_claim, a_stream_is_created_empty;
        });
    } else {
        all.extend(behaviours! {
            lanes: lanes_judge_each_producer_by_itself, a_repetition_may_be_recognised_by_its_stamp_alone,
                the_last_appends_of_each_producer_can_be_repeated, writer_sequences_must_grow,
                a_closed_stream_takes_nothing,
                content_types_must_agree, json_is_flattened_and_checked;
            races: racing_appends_all_find_a_place;
        });
    }
    all
}

/// The suite's way of appending that works on both kinds of store: with a claim where one is required.
struct Writer<'a, S> {
    store: &'a S,
    path: StreamPath,
    claim: Option<ProducerClaim>,
}

impl<'a, S: StreamStore> Writer<'a, S> {
    /// Creates a stream and prepares to write it.
    async fn create(store: &'a S, at: &str, content_type: ContentType) -> Writer<'a, S> {
        let options = PutOptions { content_type: Some(content_type), ..PutOptions::default() };
        Self::create_with(store, at, options).await.0
    }

    async fn create_with(store: &'a S, at: &str, options: PutOptions) -> (Writer<'a, S>, PutResult) {
        let path = path(at);
        let created = ok(store.put(&path, options).await);
        assert!(created.created, "`{at}` is new");
        (Self::of(store, path).await, created)
    }

    /// Prepares to write a stream that is there.
    async fn of(store: &'a S, path: StreamPath) -> Writer<'a, S> {
        let claim = if store.producer_claims_required() {
            Some(ok(store.acquire_producer(&path, id("writer"), None).await))
        } else {
            None
        };
        Writer { store, path, claim }
    }

    fn options(&mut self) -> AppendOptions {
        let producer = self.claim.as_mut().map(|claim| {
            let stamp = ProducerStamp { id: claim.id.clone(), epoch: claim.epoch, seq: claim.next_seq };
            claim.next_seq += 1;
            stamp
        });
        AppendOptions { producer, ..AppendOptions::default() }
    }

    async fn try_append(&mut self, data: impl AsRef<[u8]>) -> StoreResult<AppendResult> {
        let options = self.options();
        self.store.append(&self.path, Bytes::copy_from_slice(data.as_ref()), options).await
    }

    async fn append(&mut self, data: impl AsRef<[u8]>) -> Offset {
        let appended = ok(self.try_append(data).await);
        assert!(appended.appended);
        appended.next_offset
    }

    async fn close(&mut self) -> Offset {
        let options = AppendOptions { close: true, ..self.options() };
        let closed = ok(self.store.append(&self.path, Bytes::new(), options).await);
        assert!(closed.closed);
        closed.next_offset
    }

    async fn all(&self) -> Vec<u8> {
        read_all(self.store, &self.path).await
    }
}

fn path(text: &str) -> StreamPath {
    match StreamPath::parse_decoded(text) {
        Ok(path) => path,
        Err(error) => panic!("`{text}`: {error}"),
    }
}

fn id(text: &str) -> ProducerId {
    match ProducerId::parse(text) {
        Ok(id) => id,
        Err(error) => panic!("`{text}`: {error}"),
    }
}

fn stamp(claim: &ProducerClaim, seq: u64) -> AppendOptions {
    let stamp = ProducerStamp { id: claim.id.clone(), epoch: claim.epoch, seq };
    AppendOptions { producer: Some(stamp), ..AppendOptions::default() }
}

fn of_type(content_type: ContentType) -> PutOptions {
    PutOptions { content_type: Some(content_type), ..PutOptions::default() }
}

fn text() -> ContentType {
    match ContentType::parse("text/plain") {
        Ok(content_type) => content_type,
        Err(error) => panic!("{error}"),
    }
}

fn from(offset: Offset) -> GetOptions {
    GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() }
}

#[track_caller]
fn ok<T>(result: StoreResult<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn some<T>(value: Option<T>) -> T {
    match value {
        Some(value) => value,
        None => panic!("there is nothing"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: StoreResult<T>) -> StreamError {
    match result {
        Err(StoreError::Refused(error)) => error,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Bytes of a window.
fn bytes(got: &GetResult) -> Vec<u8> {
    got.messages.iter().flat_map(|message| message.data.iter().copied()).collect()
}

/// Reads window after window until the tail, and checks what must hold of each.
async fn read_all<S: StreamStore>(store: &S, path: &StreamPath) -> Vec<u8> {
    let mut all = Vec::new();
    let mut offset = Offset::ZERO;
    loop {
        let got = ok(store.get(path, from(offset)).await);
        let read = bytes(&got);
        all.extend_from_slice(&read);
        let end = got.messages.last().map_or(offset, |message| message.offset);
        assert_eq!(got.next_offset, end, "a window ends where its last message does");
        assert_eq!(end.position - offset.position, read.len() as u64, "positions count bytes");
        assert!(got.up_to_date || end > offset, "a window that is not the last moves on");
        offset = end;
        if got.up_to_date {
            return all;
        }
    }
}

/// Bytes that tell their own place, so that a mixed-up read shows.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 31 + seed * 17 + at / 251) % 251).unwrap_or_default()).collect()
}

/// Runs operations at once and gives their answers in order.
async fn join_all<F: Future>(operations: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = operations.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (operation, answer) in running.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match operation.as_mut().poll(context) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Starts `first`, runs `second` to its end once `first` waits, and gives both answers.
async fn meanwhile<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut a, mut b) = (None, None);
    poll_fn(|context| {
        if a.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(context)
        {
            a = Some(value);
        }
        if b.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(context)
        {
            b = Some(value);
        }
        if a.is_some() && b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (some(a), some(b))
}
