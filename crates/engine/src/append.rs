//! Appending to a stream, and closing it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, Mutation, Record};
use alluvium_protocol::{
    Admission, AppendIntent, AppendRejection, ContentType, InvalidJson, Offset, ProducerStamp, ProducerState,
    StreamError, StreamPath, StreamView, admit::admit, error::Conflict,
};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::command::{AppendCommand, AppendItem, Command};
use crate::committer::{Committer, Effect, Grown};
use crate::engine::{Engine, Inner};
use crate::error::{AppendError, LookupError, StorageError};
use crate::extent::JournalExtent;
use crate::repeat::{self, Answered};
use crate::reply::Reply;
use crate::request::{AppendRequest, Appended, Payload, Terms};
use crate::stream::{State, Stream, pair_of, producer_of};

impl Engine {
    /// Appends to a stream, closes it, or both in one step (`PROTOCOL §5.2`, `§5.3`).
    ///
    /// Returns once the outcome is durable. Dropping the future does not take the append back. A repetition that a
    /// receipt is kept of is compared with what is stored.
    pub async fn append(&self, path: &StreamPath, request: AppendRequest) -> Result<Appended, AppendError> {
        let now_ms = self.inner.now_ms();
        let shard = self.inner.shard_of(path);
        let stream = self.inner.find(shard, path, now_ms)?;
        let item = self.item(&stream, request)?;
        let data = item.payload.data.clone();
        let (reply, answer) = oneshot::channel();
        let command = AppendCommand { stream: stream.clone(), item, reply };
        self.inner.submit(shard, Command::Append(Box::new(command)))?;
        let answered = answer.await.unwrap_or(Err(StorageError::Stopped.into()))?;
        self.inner.compared(&stream, answered, &data).await
    }

    /// What is asked of the committer.
    pub(crate) fn item(&self, stream: &Stream, request: AppendRequest) -> Result<AppendItem, AppendError> {
        if request.expected_incarnation.is_some_and(|expected| expected != stream.incarnation) {
            return Err(StreamError::from(Conflict::Incarnation).into());
        }
        let has_data = !request.body.is_empty();
        let by_contract = request.terms != Terms::Protocol;
        // Under the contract, data without a type is of the stream's.
        let given = request.content_type.as_ref().or(by_contract.then_some(&stream.content_type));
        let parsed = self.payload(stream, given, request.body);
        let (payload, refused) = match parsed {
            Ok(payload) => (payload, None),
            Err(PayloadError::Json(error)) if by_contract => {
                (Payload::default(), Some(Box::new(StreamError::InvalidJson(error))))
            }
            Err(PayloadError::TooLarge { max, received }) if by_contract => {
                (Payload::default(), Some(Box::new(StreamError::PayloadTooLarge { max, received })))
            }
            Err(error) => return Err(unless_closed(stream, error)),
        };
        Ok(AppendItem {
            payload,
            content_type: request.content_type,
            seq: request.seq,
            producer: request.producer,
            close: request.close,
            expected_tail: request.expected_tail,
            retry_metadata: request.retry_metadata,
            terms: request.terms,
            has_data,
            refused,
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
    ) -> Result<Payload, PayloadError> {
        let matches = content_type.is_some_and(|given| given.same_media_type(&stream.content_type));
        let has_body = !body.is_empty();
        let payload = Payload::new(if matches { &stream.content_type } else { &ContentType::DEFAULT }, body)?;
        if payload.is_empty() && has_body {
            return Err(InvalidJson::EmptyArray.into());
        }
        let (max, received) =
            (u64::from(self.inner.options.limits.append_bytes_max), payload.data.len() as u64);
        if received > max {
            return Err(PayloadError::TooLarge { max, received });
        }
        Ok(payload)
    }
}

/// Why a body cannot be stored.
#[derive(Clone, Copy)]
enum PayloadError {
    Json(InvalidJson),
    TooLarge { max: u64, received: u64 },
}

impl From<InvalidJson> for PayloadError {
    fn from(error: InvalidJson) -> Self {
        Self::Json(error)
    }
}

/// A closed stream says so before it says anything about a body that is no JSON (`PROTOCOL §5.2`).
fn unless_closed(stream: &Stream, error: PayloadError) -> AppendError {
    match error {
        PayloadError::Json(error) => {
            let shared = stream.shared.lock();
            if shared.closed { AppendRejection::Closed { tail: shared.tail }.into() } else { error.into() }
        }
        PayloadError::TooLarge { max, received } => AppendError::TooLarge { max, received },
    }
}

/// What becomes of an append that is not refused.
pub(crate) enum Verdict {
    /// Write it.
    Write {
        /// The state to answer for the request's producer.
        producer: Option<ProducerState>,
        /// The metadata of the receipt to be kept, if one is.
        receipt: Option<String>,
    },
    /// Nothing was or is to be written.
    Same {
        /// Where the append ends.
        tail: Offset,
        /// As above.
        producer: Option<ProducerState>,
        /// Whether its bytes are still to be compared with what is stored before `tail`.
        compares: bool,
    },
}

impl Committer {
    pub(crate) fn admit_append(&mut self, inner: &Inner, command: AppendCommand, now_ms: u64) {
        let AppendCommand { stream, item, reply } = command;
        match self.admit_item(inner, &stream, item, now_ms) {
            Ok((answered, effect, renews)) => {
                if renews {
                    self.admit_renewal(stream, now_ms);
                }
                self.conclude(effect, Reply::Append(reply, Ok(answered)));
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
    ) -> Result<(Answered, Effect, bool), AppendError> {
        let mut state = stream.state.lock();
        Inner::check_present(stream, &state, now_ms)?;
        let verdict = if item.by_contract(&state) {
            repeat::decide(inner, stream, &state, &item)?
        } else {
            decide(inner, stream, &state, &item)?
        };
        let renewal = stream.renew(now_ms);
        let answer = |tail, closed, duplicate, producer| {
            let incarnation = stream.incarnation;
            Appended { tail, closed, duplicate, producer, incarnation }
        };
        let (producer, receipt) = match verdict {
            Verdict::Write { producer, receipt } => (producer, receipt),
            Verdict::Same { tail, producer, compares } => {
                let appended = answer(tail, state.closed, true, producer);
                return Ok((Answered { appended, compares }, Effect::None, renewal));
            }
        };
        let append = journal::Append {
            start: pair_of(state.tail),
            lengths: item.payload.lengths,
            data: item.payload.data,
            producer: item.producer.as_ref().map(producer_of),
            seq: item.seq,
            close: item.close,
            renew_deadline_ms: renewal.then(|| stream.deadline_to_record()).flatten(),
            receipt,
        };
        let grown = self.grow(stream, &mut state, append, now_ms);
        let appended = answer(state.tail, state.closed, false, producer);
        Ok((Answered { appended, compares: false }, Effect::Appended(stream.clone(), grown), false))
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
        let bytes = JournalExtent::new(start, place, &append.lengths);
        Grown { bytes, tail: state.tail, closed: state.closed, time_ms: now_ms }
    }
}

impl Inner {
    /// Whether a stream that was found is still there, as far as has been admitted.
    pub(crate) fn check_present(stream: &Stream, state: &State, now_ms: u64) -> Result<(), LookupError> {
        if state.deleted {
            let kept = stream.forks.load(Ordering::SeqCst) > 0;
            return Err(if kept { LookupError::Deleted } else { LookupError::NotFound });
        }
        if stream.expired(now_ms) { Err(LookupError::NotFound) } else { Ok(()) }
    }
}

/// Decides over an append by the base protocol.
fn decide(inner: &Inner, stream: &Stream, state: &State, item: &AppendItem) -> Result<Verdict, AppendError> {
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
    Ok(match admission {
        Admission::Append { producer } | Admission::Close { producer } => {
            Verdict::Write { producer, receipt: None }
        }
        Admission::AlreadyClosed => Verdict::Same { tail: state.tail, producer: None, compares: false },
        Admission::Duplicate { state: producer, .. } => {
            Verdict::Same { tail: state.tail, producer: Some(producer), compares: false }
        }
    })
}
