//! Forks: a stream that begins with another's bytes, by reference (`PROTOCOL §4.2`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal as journal;
use alluvium_protocol::{
    ContentType, ForkOrigin, MessageBoundary, Offset, Retention, fork::resolve_fork_cut,
};

use crate::body::BodyHold;
use crate::boundary::Boundaries;
use crate::delete::release;
use crate::engine::{Engine, Inner};
use crate::error::{CreateConflict, CreateError, LookupError, ReadError, ReadFault};
use crate::stream::{Fork, Inherited, Pin, Stream, pair_of};

/// A fork to be made.
pub(crate) struct Prepared {
    pub(crate) fork: Fork,
    /// What it takes over of what its source retains.
    pub(crate) retention: Option<Box<Retention<BodyHold>>>,
    /// Keeps what it will read of its source until folds see it.
    pub(crate) pin: Pin,
}

impl Engine {
    /// Works out what a fork inherits and takes hold of its source, so that it stays until the fork is
    /// made or given up.
    pub(crate) fn prepare_fork(
        &self,
        origin: &ForkOrigin,
        content_type: Option<&ContentType>,
        now_ms: u64,
    ) -> Result<Prepared, CreateError> {
        let shard = self.inner.shard_of(&origin.source);
        let source = self.inner.find(shard, &origin.source, now_ms).map_err(|error| match error {
            LookupError::NotFound | LookupError::BucketNotFound => CreateError::SourceNotFound,
            LookupError::Deleted => CreateConflict::SourceDeleted.into(),
        })?;
        if content_type.is_some_and(|given| !given.same_media_type(&source.content_type)) {
            return Err(CreateConflict::ForkContentType.into());
        }
        // Before anything is looked at, so that a fold does not take it away.
        let (tail, pin) = pinned(&source);
        let anchor = origin.offset.unwrap_or(tail);
        self.inner.check_boundary(&source, anchor, tail).map_err(|error| match error {
            ReadError::Lookup(_) => CreateError::SourceNotFound,
            ReadError::Retained { floor, snapshot } => CreateError::SourceRetained { floor, snapshot },
            ReadError::Beyond { tail } => CreateError::ForkBeyondTail { tail },
            ReadError::Unaligned => CreateError::ForkUnaligned,
            ReadError::Fault(fault) => fault.into(),
        })?;
        let at = self.cut(&source, anchor, origin.sub_offset)?;
        let retention = take_over(&source, at)?;
        hold(&source)?;
        let inherited = inherit(&source, at);
        let origin = ForkOrigin { offset: Some(anchor), ..origin.clone() };
        Ok(Prepared { fork: Fork { origin, source, at, inherited }, retention, pin })
    }

    /// Where the fork parts from its source.
    fn cut(&self, source: &Arc<Stream>, anchor: Offset, sub_offset: u64) -> Result<Offset, CreateError> {
        if sub_offset == 0 {
            return Ok(anchor);
        }
        let mut fault: Option<ReadFault> = None;
        let following = Boundaries::new(&self.inner, source.clone(), anchor).map_while(|next| match next {
            Ok(message) => Some(MessageBoundary { length: message.length, ends_append: message.ends_append }),
            Err(error) => {
                fault = Some(error);
                None
            }
        });
        let cut = resolve_fork_cut(anchor, sub_offset, source.content_type.sub_offset_unit(), following);
        match fault {
            Some(fault) => Err(fault.into()),
            None => cut.map_err(|_| CreateError::ForkSubOffset),
        }
    }
}

/// The tail of a stream, and a pin on all that it retains.
fn pinned(source: &Arc<Stream>) -> (Offset, Pin) {
    let mut shared = source.shared.lock();
    let floor = shared.floor().position;
    (shared.tail, Pin::new(source, &mut shared, floor))
}

/// What a fork takes over that parts from `source` at `at`.
fn take_over(source: &Stream, at: Offset) -> Result<Option<Box<Retention<BodyHold>>>, CreateError> {
    let shared = source.shared.lock();
    let Some(retention) = &shared.retention else { return Ok(None) };
    let snapshot = retention.latest.as_ref().map(|latest| latest.offset);
    let error = CreateError::SourceRetained { floor: retention.floor, snapshot };
    let inherited = retention.inherit(at).ok_or(error)?;
    Ok((!inherited.is_default()).then(|| Box::new(inherited)))
}

/// Counts one more fork of `source`, unless its end has been admitted already.
fn hold(source: &Stream) -> Result<(), CreateError> {
    let state = source.state.lock();
    if state.deleted {
        return Err(CreateConflict::SourceDeleted.into());
    }
    source.forks.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// The ranges before `at`: the source's own inheritance, then its own bytes, both cut at `at`.
fn inherit(source: &Arc<Stream>, at: Offset) -> Vec<Inherited> {
    let mut inherited = Vec::new();
    let mut own_start = Offset::ZERO;
    if let Some(fork) = &source.fork {
        own_start = fork.at;
        for range in &fork.inherited {
            if range.start.position < at.position {
                let end = if range.end.position <= at.position { range.end } else { at };
                inherited.push(Inherited { end, ..range.clone() });
            }
        }
    }
    if own_start.position < at.position {
        inherited.push(Inherited { stream: source.clone(), start: own_start, end: at });
    }
    inherited
}

impl Inner {
    /// Gives up a fork that was prepared and not made.
    pub(crate) fn abandon(&self, fork: Option<Box<Fork>>) {
        if let Some(fork) = fork {
            self.let_go(fork.source);
        }
    }

    /// Gives up one hold on `source`.
    pub(crate) fn let_go(&self, source: Arc<Stream>) {
        if release(&source) {
            self.purge(source);
        }
    }
}

impl Fork {
    /// What the journal keeps of it.
    pub(crate) fn to_record(&self) -> journal::Fork {
        journal::Fork {
            source: self.source.id,
            source_path: self.origin.source.as_str().to_owned(),
            source_offset: self.origin.offset.map(pair_of),
            sub_offset: self.origin.sub_offset,
            at: pair_of(self.at),
            ranges: self
                .inherited
                .iter()
                .map(|range| journal::ForkRange {
                    stream: range.stream.id,
                    start: pair_of(range.start),
                    end: pair_of(range.end),
                })
                .collect(),
        }
    }
}
