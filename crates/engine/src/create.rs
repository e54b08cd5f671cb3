//! Creating a stream, or finding that it exists as asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, Mutation, Record, StreamId};
use alluvium_protocol::{
    Attributes, ContentType, Incarnation, Lifetime, Offset, RequestedConfig, StreamPath, create::reconfirm,
};
use tokio::sync::oneshot;

use crate::command::{Command, CreateCommand, Draft};
use crate::committer::{Committer, Effect, Grown};
use crate::engine::{Engine, Inner};
use crate::error::{CreateConflict, CreateError, StorageError};
use crate::extent::JournalExtent;
use crate::fork::Prepared;
use crate::rebuilt::retention_record;
use crate::reply::Reply;
use crate::request::{CreateRequest, Created, Payload};
use crate::shard::Shard;
use crate::stream::{Birth, Fork, Pin, State, Stream, pair_of};

impl Engine {
    /// Creates a stream, or confirms that one with the same configuration exists (`PROTOCOL §5.1`).
    ///
    /// Returns once the outcome is durable. Dropping the future does not take the stream back.
    pub async fn create(&self, path: &StreamPath, request: CreateRequest) -> Result<Created, CreateError> {
        let now_ms = self.inner.now_ms();
        let shard = self.inner.shard_of(path);
        let reservation = match path.bucket() {
            Some(bucket) => Some(self.reserve(bucket).await.map_err(|_| CreateError::BucketNotFound)?),
            None => None,
        };
        // A repeated fork is confirmed even when its source is gone by now.
        if let Ok(existing) = self.inner.find(shard, path, now_ms)
            && request.fork.is_some()
        {
            if request.expected_incarnation.is_some_and(|expected| expected != existing.incarnation) {
                return Err(CreateConflict::Incarnation.into());
            }
            let (tail, closed) = existing.end();
            let attributes = existing.shared.lock().attributes.clone();
            return confirm(&existing, tail, closed, attributes, &request_of(&request)).map_err(Into::into);
        }
        let prepared = match &request.fork {
            Some(origin) => Some(self.prepare_fork(origin, request.content_type.as_ref(), now_ms)?),
            None => None,
        };
        let source = prepared.as_ref().map(|prepared| prepared.fork.source.clone());
        let (reply, answer) = oneshot::channel();
        let bucket = reservation.as_ref().map(|reservation| reservation.bucket().number);
        let drafted = self.draft(path, bucket, &request, prepared, now_ms);
        let submitted = drafted.and_then(|(draft, payload, pin)| {
            let (closed, expected_incarnation) = (request.closed, request.expected_incarnation);
            let command =
                CreateCommand { draft, closed, expected_incarnation, payload, reservation, pin, reply };
            Ok(self.inner.submit(shard, Command::Create(Box::new(command)))?)
        });
        if let Err(error) = submitted {
            if let Some(source) = source {
                self.inner.let_go(source);
            }
            return Err(error);
        }
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    fn draft(
        &self,
        path: &StreamPath,
        bucket: Option<StreamId>,
        request: &CreateRequest,
        prepared: Option<Prepared>,
        now_ms: u64,
    ) -> Result<(Draft, Payload, Option<Pin>), CreateError> {
        let (fork, retention, pin) = match prepared {
            Some(Prepared { fork, retention, pin }) => (Some(Box::new(fork)), retention, Some(pin)),
            None => (None, None, None),
        };
        let content_type = match (&request.content_type, &fork) {
            (_, Some(fork)) => fork.source.content_type.clone(),
            (Some(given), None) => given.clone(),
            (None, None) => ContentType::DEFAULT,
        };
        let payload = Payload::new(&content_type, request.body.clone())?;
        let (max, received) =
            (u64::from(self.inner.options.limits.append_bytes_max), payload.data.len() as u64);
        if received > max {
            return Err(CreateError::TooLarge { max, received });
        }
        let lifetime = match &fork {
            Some(fork) => Lifetime::inherit(fork.source.lifetime, request.lifetime),
            None => request.lifetime,
        };
        let birth = Birth {
            id: StreamId(0),
            path: Some(path.clone()),
            bucket,
            incarnation: Incarnation(self.inner.env.random.next_u128()),
            content_type,
            lifetime,
            created_ms: now_ms,
            deadline_ms: lifetime.deadline_ms(now_ms),
            fork,
            retention,
            attributes: request.attributes.clone().unwrap_or_default(),
        };
        let draft = Draft {
            birth,
            content_type_given: request.content_type.is_some(),
            lifetime_requested: request.lifetime,
            fork_requested: request.fork.clone(),
            attributes_requested: request.attributes.clone(),
        };
        Ok((draft, payload, pin))
    }
}

/// The request as the rules of a repeated create see it.
fn request_of(request: &CreateRequest) -> RequestedConfig<'_> {
    RequestedConfig {
        content_type: request.content_type.as_ref(),
        lifetime: request.lifetime,
        closed: request.closed,
        fork: request.fork.as_ref(),
        attributes: request.attributes.as_ref(),
    }
}

impl Draft {
    fn requested(&self, closed: bool) -> RequestedConfig<'_> {
        RequestedConfig {
            content_type: self.content_type_given.then_some(&self.birth.content_type),
            lifetime: self.lifetime_requested,
            closed,
            fork: self.fork_requested.as_ref(),
            attributes: self.attributes_requested.as_ref(),
        }
    }
}

/// Whether `existing` is what was asked for.
fn confirm(
    existing: &Stream,
    tail: Offset,
    closed: bool,
    attributes: Attributes,
    requested: &RequestedConfig<'_>,
) -> Result<Created, CreateConflict> {
    reconfirm(&existing.config(closed, attributes), requested)?;
    Ok(Created {
        fresh: false,
        tail,
        closed,
        content_type: existing.content_type.clone(),
        incarnation: existing.incarnation,
    })
}

impl Committer {
    pub(crate) fn admit_create(&mut self, inner: &Inner, shard: &Shard, command: CreateCommand, now_ms: u64) {
        let CreateCommand { draft, closed, expected_incarnation, payload, reservation, pin, reply } = command;
        match self.existing(inner, shard, &draft, (closed, expected_incarnation), now_ms) {
            Ok(None) => {}
            Ok(Some(created)) => {
                inner.abandon(draft.birth.fork);
                return self.answer(Reply::Create(reply, Ok(created)));
            }
            Err(error) => {
                inner.abandon(draft.birth.fork);
                return self.answer(Reply::Create(reply, Err(error)));
            }
        }
        let id = shard.next_id();
        // Created when its record says, so that a restart does not tell another time.
        let stream = Arc::new(Stream::new(Birth { id, created_ms: now_ms, ..draft.birth }));
        let mut state = stream.state.lock();
        let body = (closed || !payload.is_empty()).then(|| journal::Append {
            start: pair_of(state.tail),
            lengths: payload.lengths,
            data: payload.data,
            producer: None,
            seq: None,
            close: closed,
            renew_deadline_ms: None,
            receipt: None,
        });
        let start = state.tail;
        let mutation = Mutation::Create(birth_record(&stream, &state, body));
        let record = Record { stream: id, time_ms: now_ms, mutation };
        let place = self.record(&record);
        let Mutation::Create(journal::Create { body, .. }) = record.mutation else {
            unreachable!("built above")
        };
        let grown = body.map(|body| {
            state.apply(&body, now_ms);
            let bytes = JournalExtent::new(start, place, &body.lengths);
            Grown { bytes, tail: state.tail, closed: state.closed, time_ms: now_ms }
        });
        let created = Created {
            fresh: true,
            tail: state.tail,
            closed: state.closed,
            content_type: stream.content_type.clone(),
            incarnation: stream.incarnation,
        };
        drop(state);
        if let Some(path) = &stream.path {
            self.created.insert(path.clone(), stream.clone());
        }
        inner.streams.fetch_add(1, Ordering::Relaxed);
        let effect = Effect::Created { stream, grown, reservation, pin };
        self.conclude(effect, Reply::Create(reply, Ok(created)));
    }

    /// What is at the path already: `Ok(None)` if it is free (an expired stream is cleared away).
    fn existing(
        &mut self,
        inner: &Inner,
        shard: &Shard,
        draft: &Draft,
        (closed, expected_incarnation): (bool, Option<Incarnation>),
        now_ms: u64,
    ) -> Result<Option<Created>, CreateError> {
        let found = draft.birth.path.as_ref().and_then(|path| {
            self.created.get(path).cloned().or_else(|| shard.directory.read().get(path).cloned())
        });
        if let Some(existing) = found {
            // What an earlier bucket of the same name has left is deleted, or has expired.
            let is_left_over = existing.bucket != draft.birth.bucket;
            if existing.expired(now_ms) || is_left_over {
                self.end(&existing, true, now_ms);
            }
            let state = existing.state.lock();
            let is_another = |expected: Incarnation| expected != existing.incarnation;
            if !state.deleted && expected_incarnation.is_some_and(is_another) {
                return Err(CreateConflict::Incarnation.into());
            }
            if !state.deleted {
                let requested = draft.requested(closed);
                return confirm(&existing, state.tail, state.closed, state.attributes.clone(), &requested)
                    .map(Some)
                    .map_err(Into::into);
            }
            drop(state);
            if existing.forks.load(Ordering::SeqCst) > 0 && !is_left_over {
                return Err(CreateConflict::Deleted.into());
            }
        }
        if expected_incarnation.is_some() {
            return Err(CreateConflict::Incarnation.into());
        }
        let max = inner.options.limits.streams_max;
        if inner.streams.load(Ordering::Relaxed) >= max {
            return Err(CreateError::TooManyStreams { max });
        }
        Ok(None)
    }
}

/// What the journal keeps of a stream's birth.
pub(crate) fn birth_record(stream: &Stream, state: &State, body: Option<journal::Append>) -> journal::Create {
    let (retention, attributes) = (&state.retention, &state.attributes);
    let (ttl_s, expires_at_ms) = match stream.lifetime {
        Lifetime::Forever => (None, None),
        Lifetime::Ttl { seconds } => (Some(seconds), None),
        Lifetime::Until { unix_ms } => (None, Some(unix_ms)),
    };
    journal::Create {
        path: stream.path.as_ref().map_or_else(String::new, |path| path.as_str().to_owned()),
        incarnation: stream.incarnation.0,
        content_type: stream.content_type.as_str().to_owned(),
        ttl_s,
        expires_at_ms,
        deadline_ms: stream.durable_deadline_ms(),
        fork: stream.fork.as_deref().map(Fork::to_record),
        body,
        bucket: stream.bucket,
        retention: retention.as_deref().and_then(retention_record),
        attributes: (!attributes.is_empty()).then(|| attributes.as_json().to_owned()),
    }
}
