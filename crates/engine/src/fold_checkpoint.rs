//! Fold checkpoints: what a reader has made of a stream, kept beside it.
//!
//! The text is a body like that of a snapshot: a stream without a path, written in the same batch as the record that
//! makes it the stream's checkpoint, and collected once nobody holds it.

use std::sync::Arc;

use alluvium_journal::{Mutation, Record};
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{FoldCheckpoint, StoreError, StoreFault, StoreResult};
use alluvium_protocol::{ContentType, Offset, StreamError, StreamPath};
use tokio::sync::oneshot;

use crate::blocking::off_reactor;
use crate::body::StoredBody;
use crate::command::{CheckpointCommand, Command};
use crate::committer::{Committer, Effect};
use crate::contract::{Checkpoint, checkpoint_record};
use crate::engine::{Engine, Inner};
use crate::error::{StorageError, lookup_refusal};
use crate::reply::Reply;
use crate::shard::Shard;
use crate::stream::Stream;
use crate::upload::Uploaded;

/// Most bytes of a fold checkpoint's text; fewer if an append may not have that many.
pub const FOLD_CHECKPOINT_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Engine {
    /// Bytes that the text of a fold checkpoint may have.
    pub fn fold_checkpoint_bytes_max(&self) -> u64 {
        FOLD_CHECKPOINT_BYTES_MAX.min(self.inner.options.limits.append_bytes_max.into())
    }

    /// Keeps what a reader has made of a stream up to the end of an append, in place of what was kept before.
    ///
    /// Returns once it is durable. Dropping the future does not take it back. Does not renew a lifetime.
    pub async fn put_fold_checkpoint(
        &self,
        path: &StreamPath,
        checkpoint: FoldCheckpoint,
    ) -> StoreResult<()> {
        let FoldCheckpoint { offset, incarnation, format_version, data } = checkpoint;
        let stream = self.inner.find_expected(path, Some(incarnation), self.inner.now_ms())?;
        let (inner, looking) = (self.inner.clone(), stream.clone());
        let end = off_reactor(move || inner.append_end(&looking, offset.append_index)).await;
        if end? != Some(offset) {
            return Err(StreamError::InvalidOffset { offset }.into());
        }
        let (max, received) = (self.fold_checkpoint_bytes_max(), data.len() as u64);
        if received > max {
            return Err(StreamError::PayloadTooLarge { max, received }.into());
        }
        let shard = stream.id.shard().into();
        let (reply, answer) = oneshot::channel();
        let command = CheckpointCommand { stream, offset, format_version, data: data.into(), reply };
        self.inner.submit(shard, Command::Checkpoint(Box::new(command)))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    /// What is kept of a stream, unless it is of a place after `at_or_before`; `None` as well if there is no stream.
    pub async fn fold_checkpoint(
        &self,
        path: &StreamPath,
        at_or_before: Option<Offset>,
    ) -> StoreResult<Option<FoldCheckpoint>> {
        let inner = &self.inner;
        let Ok(stream) = inner.find(inner.shard_of(path), path, inner.now_ms()) else { return Ok(None) };
        let kept = stream.shared.lock().checkpoint.as_deref().cloned();
        let Some(kept) = kept.filter(|kept| at_or_before.is_none_or(|bound| kept.offset <= bound)) else {
            return Ok(None);
        };
        let (inner, Checkpoint { offset, format_version, body }) = (inner.clone(), kept);
        let text = off_reactor(move || {
            let length = body.shared.lock().tail.position;
            inner.bytes_of(body.stream(), Offset::ZERO, length)
        });
        let data = String::from_utf8(text.await?.into())
            .map_err(|_| StoreError::Fault(StoreFault::Corrupt("a fold checkpoint is no text".to_owned())))?;
        Ok(Some(FoldCheckpoint { offset, incarnation: stream.incarnation, format_version, data }))
    }
}

impl Committer {
    pub(crate) fn admit_checkpoint(&mut self, shard: &Shard, command: CheckpointCommand, now_ms: u64) {
        let CheckpointCommand { stream, offset, format_version, data, reply } = command;
        if let Err(error) = check(&stream, offset, now_ms) {
            return self.answer(Reply::Checkpoint(reply, Err(error)));
        }
        let length = data.len() as u64;
        let (hold, grown) =
            self.record_body(shard, Uploaded::Whole(data), shard.next_id(), ContentType::DEFAULT, now_ms);
        let body = StoredBody { stream: hold.id, length };
        let kept = Checkpoint { offset, format_version, body };
        stream.state.lock().contract.get_or_insert_default().checkpoint = Some(kept);
        let mutation = Mutation::FoldCheckpoint(checkpoint_record(kept));
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation });
        self.conclude(grown, Reply::None);
        let effect = Effect::Checkpointed(stream, Checkpoint { offset, format_version, body: hold });
        self.conclude(effect, Reply::Checkpoint(reply, Ok(())));
    }
}

/// The checks against what has been admitted.
fn check(stream: &Arc<Stream>, offset: Offset, now_ms: u64) -> StoreResult<()> {
    let state = stream.state.lock();
    Inner::check_present(stream, &state, now_ms).map_err(|error| lookup_refusal(stream, error))?;
    let kept = state.contract.as_ref().and_then(|contract| contract.checkpoint);
    if kept.is_some_and(|kept| offset < kept.offset) {
        return Err(StoreError::Refused(Conflict::CheckpointBehind.into()));
    }
    Ok(())
}
