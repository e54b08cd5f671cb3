//! Appending to a stream, and closing it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, Mutation, Record};
use alluvium_protocol::{
    Admission, AppendIntent, AppendRejection, ContentType, InvalidJson, ProducerStamp, StreamPath,
    StreamView, admit::admit,
};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::command::{AppendCommand, AppendItem, Command};
use crate::committer::{Committer, Effect, Grown};
use crate::engine::{Engine, Inner};
use crate::error::{AppendError, LookupError, StorageError};
use crate::extent::JournalExtent;
use crate::reply::Reply;
use crate::request::{AppendRequest, Appended, Payload};
use crate::stream::{State, Stream, pair_of, producer_of};

impl Engine {
    /// Appends to a stream, closes it, or both in one step (`PROTOCOL §5.2`, `§5.3`).
    ///
    /// Returns once the outcome is durable. Dropping the future does not take the append back.
    pub async fn append(&self, path: &StreamPath, request: AppendRequest) -> Result<Appended, AppendError> {
        let now_ms = self.inner.now_ms();
        let shard = self.inner.shard_of(path);
        let stream = self.inner.find(shard, path, now_ms)?;
        let item = self.item(&stream, request)?;
        let (reply, answer) = oneshot::channel();
        let command = AppendCommand { stream, item, reply };
        self.inner.submit(shard, Command::Append(Box::new(command)))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    /// What is asked of the committer.
    pub(crate) fn item(&self, stream: &Stream, request: AppendRequest) -> Result<AppendItem, AppendError> {
        Ok(AppendItem {
            payload: self.payload(stream, request.content_type.as_ref(), request.body)?,
            content_type: request.content_type,
            seq: request.seq,
            producer: request.producer,
            close: request.close,
            expected_tail: request.expected_tail,
            in_batch: false,
        })
    }

    /// The body as messages. A body of another type than the stream's is passed on as it is: admission
    /// refuses it, after asking whether the stream is closed.
    fn payload(
        &self,
        stream: &Stream,
        content_type: Option<&ContentType>,
        body: Bytes,
    ) -> Result<Payload, AppendError> {
        let matches = content_type.is_some_and(|given| given.same_media_type(&stream.content_type));
        let has_body = !body.is_empty();
        let parsed =
            match Payload::new(if matches { &stream.content_type } else { &ContentType::DEFAULT }, body) {
                Ok(payload) if payload.is_empty() && has_body => Err(InvalidJson::EmptyArray),
                parsed => parsed,
            };
        let payload = match parsed {
            Ok(payload) => payload,
            // A closed stream says so before it says anything about the body (`PROTOCOL §5.2`).
            Err(error) => {
                let shared = stream.shared.lock();
                return Err(if shared.closed {
                    AppendRejection::Closed { tail: shared.tail }.into()
                } else {
                    error.into()
                });
            }
        };
        let (max, received) =
            (u64::from(self.inner.options.limits.append_bytes_max), payload.data.len() as u64);
        if received > max {
            return Err(AppendError::TooLarge { max, received });
        }
        Ok(payload)
    }
}

impl Committer {
    pub(crate) fn admit_append(&mut self, inner: &Inner, command: AppendCommand, now_ms: u64) {
        let AppendCommand { stream, item, reply } = command;
        match self.admit_item(inner, &stream, item, now_ms) {
            Ok((appended, effect, renews)) => {
                if renews {
                    self.admit_renewal(stream, now_ms);
                }
                self.conclude(effect, Reply::Append(reply, Ok(appended)));
            }
            Err(error) => self.answer(Reply::Append(reply, Err(error))),
        }
    }

    /// Admits one append: its answer, what is to be shown, and whether a renewal is to be recorded on its own.
    pub(crate) fn admit_item(
        &mut self,
        inner: &Inner,
        stream: &Arc<Stream>,
        item: AppendItem,
        now_ms: u64,
    ) -> Result<(Appended, Effect, bool), AppendError> {
        let mut state = stream.state.lock();
        let admission = decide(inner, stream, &state, &item, now_ms)?;
        let renewal = stream.renew(now_ms);
        let (duplicate, producer) = match admission {
            Admission::Append { producer } | Admission::Close { producer } => (false, producer),
            Admission::AlreadyClosed => (true, None),
            Admission::Duplicate { state, .. } => (true, Some(state)),
        };
        if duplicate {
            return Ok((answer_of(stream, &state, duplicate, producer), Effect::None, renewal));
        }
        let append = journal::Append {
            start: pair_of(state.tail),
            lengths: item.payload.lengths,
            data: item.payload.data,
            producer: item.producer.as_ref().map(producer_of),
            seq: item.seq,
            close: item.close,
            renew_deadline_ms: renewal.then(|| stream.deadline_to_record()).flatten(),
        };
        let grown = self.grow(stream, &mut state, append, now_ms);
        let appended = answer_of(stream, &state, duplicate, producer);
        Ok((appended, Effect::Appended(stream.clone(), grown), false))
    }

    /// Records an admitted append and takes it into the stream's admitted state.
    fn grow(
        &mut self,
        stream: &Arc<Stream>,
        state: &mut State,
        append: journal::Append,
        now_ms: u64,
    ) -> Grown {
        let start = state.tail;
        let renewed = append.renew_deadline_ms;
        let record = Record { stream: stream.id, time_ms: now_ms, mutation: Mutation::Append(append) };
        let place = self.record(&record);
        let Mutation::Append(append) = record.mutation else { unreachable!("built above") };
        state.apply(&append, now_ms);
        if let Some(deadline_ms) = renewed {
            // Ahead of the sync, but only ever used to decide whether another record is needed.
            stream.recorded_deadline(deadline_ms);
        }
        let bytes = (!append.lengths.is_empty()).then_some(JournalExtent { start, place });
        Grown { bytes, tail: state.tail, closed: state.closed, time_ms: now_ms }
    }
}

fn decide(
    inner: &Inner,
    stream: &Stream,
    state: &State,
    item: &AppendItem,
    now_ms: u64,
) -> Result<Admission, AppendError> {
    if state.deleted {
        let kept = stream.forks.load(Ordering::SeqCst) > 0;
        return Err(if kept { LookupError::Deleted } else { LookupError::NotFound }.into());
    }
    if stream.expired(now_ms) {
        return Err(LookupError::NotFound.into());
    }
    let producer = item.producer.as_ref();
    let known = producer.and_then(|stamp| state.producers.get(&stamp.id).copied());
    // The protocol lets a closed stream recognise the one append that closed it. Of a batch all frames are that append.
    let stored = |stamp: &ProducerStamp| {
        known.is_some_and(|known| known.epoch == stamp.epoch && stamp.seq <= known.seq)
    };
    let is_retried = item.in_batch && producer.is_some_and(stored);
    let view = StreamView {
        closed: state.closed && !is_retried,
        closed_by: state.closed_by.as_ref(),
        content_type: &stream.content_type,
        last_seq: state.last_seq.as_deref(),
        tail: state.tail,
        producer: known,
    };
    let intent = AppendIntent {
        content_type: item.content_type.as_ref(),
        has_data: !item.payload.is_empty(),
        close: item.close,
        seq: item.seq.as_deref(),
        producer,
        expected_tail: item.expected_tail,
    };
    let admission = admit(&view, &intent)?;
    let max = inner.options.limits.producers_per_stream_max;
    if producer.is_some() && known.is_none() && state.producers.len() >= max {
        return Err(AppendError::TooManyProducers { max });
    }
    Ok(admission)
}

fn answer_of(
    stream: &Stream,
    state: &State,
    duplicate: bool,
    producer: Option<alluvium_protocol::ProducerState>,
) -> Appended {
    Appended { tail: state.tail, closed: state.closed, duplicate, producer, incarnation: stream.incarnation }
}
