//! Many appends to one stream in one commit.

use alluvium_protocol::{AppendRejection, Offset, StreamPath};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::command::{AppendItem, BatchCommand, Command, SEGMENT_BYTES_RESERVED};
use crate::committer::{Committer, Effect, KEPT_FOR_DELETIONS};
use crate::engine::{Engine, Inner};
use crate::error::{AppendError, BatchError, StorageError};
use crate::options::BATCH_FRAMES_MAX;
use crate::reply::Reply;
use crate::request::{AppendRequest, Appended};
use crate::stream::Stream;

impl Engine {
    /// Appends each of `frames` in order, as if they came one after the other with nothing in between, in one commit:
    /// after a crash either all of those that were accepted are there or none. One that is refused does not keep the
    /// others back. A frame of a JSON stream is one body, and so may be several messages.
    ///
    /// With `expected_tail` nothing is appended unless the stream ends there.
    ///
    /// At most [`BATCH_FRAMES_MAX`] frames, with together as many stored bytes as one append
    /// may have. Returns once the outcome is durable.
    pub async fn append_batch(
        &self,
        path: &StreamPath,
        frames: Vec<AppendRequest>,
        expected_tail: Option<Offset>,
    ) -> Result<Vec<Result<Appended, AppendError>>, BatchError> {
        let shard = self.inner.shard_of(path);
        let stream = self.inner.find(shard, path, self.inner.now_ms())?;
        if frames.is_empty() {
            return Err(BatchError::Empty);
        }
        let (max, received) = (BATCH_FRAMES_MAX, frames.len());
        if received > max {
            return Err(BatchError::TooManyFrames { max, received });
        }
        let items: Vec<Result<AppendItem, AppendError>> =
            frames.into_iter().map(|frame| self.item(&stream, frame)).collect();
        // What a repetition is compared with.
        let bodies: Vec<Bytes> = items
            .iter()
            .map(|item| item.as_ref().map_or_else(|_| Bytes::new(), |item| item.payload.data.clone()))
            .collect();
        let received = items.iter().flatten().map(|item| item.payload.data.len() as u64).sum();
        let (reply, answer) = oneshot::channel();
        let command = BatchCommand { stream: stream.clone(), items, expected_tail, reply };
        let command = Command::Batch(Box::new(command));
        let max = u64::from(self.inner.options.limits.append_bytes_max);
        let segment_bytes = u64::from(self.inner.shards[shard].segments.segment_bytes());
        let room = segment_bytes - segment_bytes / KEPT_FOR_DELETIONS - SEGMENT_BYTES_RESERVED;
        if received > max || command.journal_bytes_max() > room {
            return Err(BatchError::TooLarge { max, received });
        }
        self.inner.submit(shard, command)?;
        let answers = answer.await.unwrap_or(Err(StorageError::Stopped.into()))?;
        let mut compared = Vec::with_capacity(answers.len());
        for (answer, body) in answers.into_iter().zip(&bodies) {
            compared.push(match answer {
                Ok(answered) => self.inner.compared(&stream, answered, body).await,
                Err(error) => Err(error),
            });
        }
        Ok(compared)
    }
}

/// A batch is compared as a whole: once a frame of it is appended, no tail is the expected one any more.
fn mismatch(stream: &Stream, expected_tail: Option<Offset>) -> Option<AppendRejection> {
    let expected = expected_tail?;
    let state = stream.state.lock();
    // A stream that is closed or gone says so, frame by frame.
    let is_compared = !state.closed && !state.deleted && state.tail != expected;
    is_compared.then_some(AppendRejection::TailMismatch { tail: state.tail })
}

impl Committer {
    pub(crate) fn admit_batch(&mut self, inner: &Inner, command: BatchCommand, now_ms: u64) {
        let BatchCommand { stream, items, expected_tail, reply } = command;
        if let Some(refusal) = mismatch(&stream, expected_tail) {
            return self.answer(Reply::Batch(reply, Err(refusal.into())));
        }
        let mut renewal = false;
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            answers.push(item.and_then(|item| {
                let (answered, effect, renews) = self.admit_item(inner, &stream, item, now_ms)?;
                renewal |= renews;
                if !matches!(effect, Effect::None) {
                    self.conclude(effect, Reply::None);
                }
                Ok(answered)
            }));
        }
        if renewal {
            self.admit_renewal(stream, now_ms);
        }
        self.answer(Reply::Batch(reply, Ok(answers)));
    }
}
