//! Many appends to one stream in one commit.

use std::sync::Arc;

use alluvium_protocol::{AppendRejection, Offset, StreamPath};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::command::{AppendItem, BatchCommand, Command, SEGMENT_BYTES_RESERVED};
use crate::committer::{Committer, Effect, KEPT_FOR_DELETIONS};
use crate::engine::{Engine, Inner};
use crate::error::{AppendError, BatchError, StorageError};
use crate::options::BATCH_FRAMES_MAX;
use crate::repeat::Answered;
use crate::reply::Reply;
use crate::request::{AppendRequest, Appended};
use crate::stream::Stream;

impl Engine {
    /// Appends each of `frames` in order, as if they came one after the other with nothing in between, in one commit:
    /// after a crash either all of those that were accepted are there or none. One that is refused does not keep the
    /// others back. A frame of a JSON stream is one body, and so may be several messages.
    ///
    /// With `expected_tail` nothing is appended unless the stream ends there. As with a single append that is asked
    /// last, so frames that were appended before are told that they are duplicates, wherever the stream ends now; and
    /// they are told so as well if the stream was closed since, by this batch or a later append.
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
            frames.into_iter().map(|frame| self.batch_item(&stream, frame, expected_tail)).collect();
        // What a repetition is compared with.
        let bodies: Vec<Bytes> = items
            .iter()
            .map(|item| item.as_ref().map_or_else(|_| Bytes::new(), |item| item.payload.data.clone()))
            .collect();
        let received = items.iter().flatten().map(|item| item.payload.data.len() as u64).sum();
        let (reply, answer) = oneshot::channel();
        let command = BatchCommand { stream: stream.clone(), items, reply };
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

    fn batch_item(
        &self,
        stream: &Stream,
        frame: AppendRequest,
        expected_tail: Option<Offset>,
    ) -> Result<AppendItem, AppendError> {
        Ok(AppendItem { in_batch: true, expected_tail, ..self.item(stream, frame)? })
    }
}

/// What the frames of a batch have done until now.
#[derive(Default)]
struct Frames {
    /// One has grown the stream.
    has_grown: bool,
    /// One renews the stream's lifetime.
    renews: bool,
}

impl Committer {
    pub(crate) fn admit_batch(&mut self, inner: &Inner, command: BatchCommand, now_ms: u64) {
        let BatchCommand { stream, items, reply } = command;
        let mut so_far = Frames::default();
        // A batch is compared as a whole: once no frame was taken for its tail, none after it can be.
        let mut mismatch: Option<AppendRejection> = None;
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let answer = match (item, &mismatch) {
                (Ok(_), Some(mismatch)) => Err(mismatch.clone().into()),
                (Ok(item), None) => self.admit_frame(inner, &stream, item, &mut so_far, now_ms),
                (Err(error), _) => Err(error),
            };
            if let Err(AppendError::Rejected(rejection @ AppendRejection::TailMismatch { .. })) = &answer {
                mismatch = Some(rejection.clone());
            }
            answers.push(answer);
        }
        if so_far.renews {
            self.admit_renewal(stream, now_ms);
        }
        let answer = match mismatch {
            Some(mismatch) if answers.iter().all(Result::is_err) => Err(mismatch.into()),
            _ => Ok(answers),
        };
        self.answer(Reply::Batch(reply, answer));
    }

    /// Admits one frame. Once a frame has grown the stream, no tail is the expected one any more, and none is asked for.
    fn admit_frame(
        &mut self,
        inner: &Inner,
        stream: &Arc<Stream>,
        mut item: AppendItem,
        so_far: &mut Frames,
        now_ms: u64,
    ) -> Result<Answered, AppendError> {
        if so_far.has_grown {
            item.expected_tail = None;
        }
        let (answered, effect, renews) = self.admit_item(inner, stream, item, now_ms)?;
        so_far.renews |= renews;
        if !matches!(effect, Effect::None) {
            so_far.has_grown = true;
            self.conclude(effect, Reply::None);
        }
        Ok(answered)
    }
}
