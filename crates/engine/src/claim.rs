//! Making a producer the only writer of a stream.

use alluvium_journal::{self as journal, Mutation, Record};
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{ProducerClaim, StorageState, StoreError, StoreResult};
use alluvium_protocol::{Claim, Incarnation, ProducerId, StreamPath};
use tokio::sync::oneshot;

use crate::command::{AcquireCommand, Command, StateCommand};
use crate::committer::{Committer, Effect};
use crate::engine::{Engine, Inner};
use crate::error::{StorageError, lookup_refusal};
use crate::reply::Reply;
use crate::stream::Stream;

impl Engine {
    /// Makes `producer_id` the stream's only writer, with an epoch of its own, and fences whoever was.
    ///
    /// Returns once that is durable. Dropping the future does not take it back. Does not renew a lifetime.
    pub async fn acquire_producer(
        &self,
        path: &StreamPath,
        producer_id: ProducerId,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<ProducerClaim> {
        let stream = self.inner.find_expected(path, expected_incarnation, self.inner.now_ms())?;
        let shard = stream.id.shard().into();
        let (reply, answer) = oneshot::channel();
        let command = AcquireCommand { stream, producer_id, reply };
        self.inner.submit(shard, Command::Acquire(Box::new(command)))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    /// What is kept about a stream, as of a moment when all of it was durable; `None` if there is no such stream.
    pub async fn storage_state(&self, path: &StreamPath) -> StoreResult<Option<StorageState>> {
        let shard = self.inner.shard_of(path);
        let Ok(stream) = self.inner.find(shard, path, self.inner.now_ms()) else { return Ok(None) };
        let (reply, answer) = oneshot::channel();
        self.inner.submit(shard, Command::State(StateCommand { stream, reply }))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }
}

impl Committer {
    pub(crate) fn admit_claim(&mut self, command: AcquireCommand, now_ms: u64) {
        let AcquireCommand { stream, producer_id, reply } = command;
        match self.acquire(&stream, producer_id, now_ms) {
            // The record has an effect on no reader.
            Ok(claim) => self.conclude(Effect::None, Reply::Acquire(reply, Ok(claim))),
            Err(error) => self.answer(Reply::Acquire(reply, Err(error))),
        }
    }

    fn acquire(
        &mut self,
        stream: &Stream,
        producer_id: ProducerId,
        now_ms: u64,
    ) -> StoreResult<ProducerClaim> {
        let mut state = stream.state.lock();
        Inner::check_present(stream, &state, now_ms).map_err(|error| lookup_refusal(stream, error))?;
        let current = state.contract.as_ref().and_then(|contract| contract.claim.as_ref());
        let claim = Claim::acquire(current, producer_id)
            .ok_or_else(|| StoreError::Refused(Conflict::ClaimsExhausted.into()))?;
        let recorded = journal::Claim { id: claim.id.as_str().to_owned(), epoch: claim.epoch };
        let answer = ProducerClaim {
            id: claim.id.clone(),
            epoch: claim.epoch,
            next_seq: claim.next_seq,
            incarnation: stream.incarnation,
            next_offset: state.tail,
        };
        state.claim(claim);
        drop(state);
        let mutation = Mutation::Claim(recorded);
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation });
        Ok(answer)
    }

    /// Answered like a write, so that it tells nothing that a crash could take back.
    pub(crate) fn admit_state(&mut self, command: StateCommand, now_ms: u64) {
        let StateCommand { stream, reply } = command;
        let state = stream.state.lock();
        let told = Inner::check_present(&stream, &state, now_ms).is_ok().then(|| StorageState {
            incarnation: stream.incarnation,
            content_type: stream.content_type.clone(),
            next_offset: state.tail,
            closed: state.closed,
            claim: state.contract.as_ref().and_then(|contract| contract.claim.clone()),
            last_seq: state.last_seq.as_deref().map(str::to_owned),
            lifetime: stream.lifetime,
            created_ms: stream.created_ms,
        });
        drop(state);
        self.answer(Reply::State(reply, Ok(told)));
    }
}
