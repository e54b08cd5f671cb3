//! Setting what describes a stream.

use std::sync::atomic::Ordering;

use alluvium_journal::{Mutation, Record, SetAttributes};
use alluvium_protocol::{Attributes, Incarnation, StreamPath};
use tokio::sync::oneshot;

use crate::command::{AttributesCommand, Command};
use crate::committer::{Committer, Effect};
use crate::engine::Engine;
use crate::error::{AttributesError, LookupError, StorageError};
use crate::reply::Reply;

impl Engine {
    /// Replaces the attributes of a stream, which may be closed, and tells which it is. Counts as a write: it renews a sliding lifetime.
    ///
    /// Returns once the outcome is durable. Dropping the future does not take it back.
    pub async fn set_attributes(
        &self,
        path: &StreamPath,
        attributes: Attributes,
    ) -> Result<Incarnation, AttributesError> {
        let shard = self.inner.shard_of(path);
        let stream = self.inner.find(shard, path, self.inner.now_ms())?;
        let (reply, answer) = oneshot::channel();
        let command = AttributesCommand { stream, attributes, reply };
        self.inner.submit(shard, Command::Attributes(Box::new(command)))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }
}

impl Committer {
    pub(crate) fn admit_attributes(&mut self, command: AttributesCommand, now_ms: u64) {
        let AttributesCommand { stream, attributes, reply } = command;
        let mut state = stream.state.lock();
        let refusal = if state.deleted && stream.forks.load(Ordering::SeqCst) > 0 {
            Some(LookupError::Deleted)
        } else if state.deleted || stream.expired(now_ms) {
            Some(LookupError::NotFound)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            return self.answer(Reply::Attributes(reply, Err(refusal.into())));
        }
        let renew_deadline_ms = stream.renew(now_ms).then(|| stream.deadline_to_record()).flatten();
        let text = if attributes.is_empty() { String::new() } else { attributes.as_json().to_owned() };
        let mutation = Mutation::Attributes(SetAttributes { text, renew_deadline_ms });
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation });
        if let Some(deadline_ms) = renew_deadline_ms {
            stream.recorded_deadline(deadline_ms);
        }
        state.attributes = attributes.clone();
        drop(state);
        let incarnation = stream.incarnation;
        self.conclude(Effect::Described(stream, attributes), Reply::Attributes(reply, Ok(incarnation)));
    }
}
