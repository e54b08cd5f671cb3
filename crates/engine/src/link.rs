//! Turning recovered streams into live ones: forks find their sources, snapshots their bodies, streams their buckets,
//! and what nobody needs is dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, StreamId};
use alluvium_protocol::{
    Attributes, BucketId, ContentType, ForkOrigin, Incarnation, Lifetime, Retention, Snapshot, StreamPath,
    Superseded,
};

use crate::body::{BodyHold, Released, StoredBody};
use crate::bucket::{Bucket, Buckets, bucket_of_key};
use crate::contract::Checkpoint;
use crate::extent::Extents;
use crate::lost::cut_off;
use crate::options::Durability;
use crate::publish::body_birth;
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::recover::{OpenError, Recovered};
use crate::stream::{Birth, Fork, Inherited, State, Stream, offset_of};

/// What a start has put together.
#[derive(Default)]
pub(crate) struct Linked {
    /// Every stream and body by number.
    pub(crate) streams: HashMap<StreamId, Arc<Stream>>,
    /// Live streams whose bucket is gone: their end is to be recorded.
    pub(crate) stray: HashSet<StreamId>,
    /// Live streams that have lost something that they rest on: their end is to be recorded before anything else.
    pub(crate) lost: HashSet<StreamId>,
    pub(crate) buckets: Buckets,
}

/// All live streams of all shards, the bodies of their snapshots, and the deleted streams that they need. `released`
/// has one list per shard, for the bodies that turn out to be held by nobody.
///
/// A deleted stream that no fork needs any more is left behind: the last deletion that freed it was
/// durable, and the next fold drops its bytes.
///
/// If syncs are left to the system, one shard may have lost what another rests on; otherwise that is damage.
pub(crate) fn link(
    recovered: &mut [Recovered],
    released: &[Arc<Released>],
    durability: Durability,
) -> Result<Linked, OpenError> {
    let mut linked = Linked::default();
    if durability == Durability::Os {
        linked.lost = cut_off(recovered);
    }
    for shard in recovered.iter_mut() {
        let dir = shard.dir.clone();
        let opened = open_buckets(shard, &linked.buckets).and_then(|()| open_bodies(shard, &mut linked));
        opened.map_err(|source| OpenError::Inconsistent { dir, source })?;
    }
    for index in 0..recovered.len() {
        let mut live: Vec<StreamId> = recovered[index]
            .streams
            .iter()
            .filter(|(_, (rebuilt, _))| !rebuilt.state.deleted)
            .map(|(id, _)| *id)
            .collect();
        live.sort_unstable();
        for id in live {
            let dir = recovered[index].dir.clone();
            link_with_sources(recovered, &mut linked, released, id)
                .map_err(|source| OpenError::Inconsistent { dir, source })?;
        }
    }
    for body in linked.streams.values().filter(|stream| stream.path.is_none()) {
        // An upload that a crash has cut off, or one whose stream was deleted.
        if body.forks.load(Ordering::Relaxed) == 0 {
            released[usize::from(body.id.shard())].push(body.clone());
        }
    }
    Ok(linked)
}

/// Takes the buckets out of a recovered shard.
fn open_buckets(shard: &mut Recovered, buckets: &Buckets) -> Result<(), Inconsistent> {
    let is_bucket =
        |rebuilt: &Rebuilt| !rebuilt.state.deleted && bucket_of_key(&rebuilt.create.path).is_some();
    for (id, (rebuilt, _)) in shard.streams.extract_if(|_, (rebuilt, _)| is_bucket(rebuilt)) {
        let name = bucket_of_key(&rebuilt.create.path).unwrap_or_default();
        let name = BucketId::parse(name).map_err(|_| Inconsistent::Invalid(id.0))?;
        buckets.insert(Arc::new(Bucket::new(name, id, rebuilt.created_ms)));
    }
    Ok(())
}

/// Takes the bodies of snapshots out of a recovered shard. They refer to nothing, so they can go first.
fn open_bodies(shard: &mut Recovered, linked: &mut Linked) -> Result<(), Inconsistent> {
    let is_body = |rebuilt: &Rebuilt| !rebuilt.state.deleted && rebuilt.create.path.is_empty();
    for (id, (rebuilt, extents)) in shard.streams.extract_if(|_, (rebuilt, _)| is_body(rebuilt)) {
        let content_type =
            ContentType::parse(&rebuilt.create.content_type).map_err(|_| Inconsistent::Invalid(id.0))?;
        let stream = Stream::new(body_birth(id, content_type, rebuilt.created_ms));
        restore(&stream, rebuilt.state, extents);
        linked.streams.insert(id, Arc::new(stream));
    }
    Ok(())
}

/// Puts a stream in the state that was recovered.
fn restore(stream: &Stream, state: State, extents: Extents) {
    let mut shared = stream.shared.lock();
    shared.tail = state.tail;
    shared.closed = state.closed;
    shared.deleted = state.deleted;
    shared.last_write_ms = state.last_write_ms;
    shared.extents = extents;
    drop(shared);
    let mut held = stream.state.lock();
    let (retention, attributes) = (held.retention.take(), std::mem::take(&mut held.attributes));
    *held = State { retention, attributes, ..state };
}

/// Links a stream after its sources. Chains of forks can be long, so the way back is a stack of our own.
fn link_with_sources(
    recovered: &mut [Recovered],
    linked: &mut Linked,
    released: &[Arc<Released>],
    id: StreamId,
) -> Result<(), Inconsistent> {
    let mut stack = vec![id];
    let mut expanded = HashSet::new();
    while let Some(id) = stack.last().copied() {
        if linked.streams.contains_key(&id) {
            stack.pop();
            continue;
        }
        let streams = recovered.get_mut(usize::from(id.shard())).map(|shard| &mut shard.streams);
        let missing = || {
            let stream = stack.iter().rev().nth(1).map_or(id.0, |fork| fork.0);
            Inconsistent::SourceMissing { stream, source_stream: id.0 }
        };
        let streams = streams.ok_or_else(missing)?;
        let (rebuilt, _) = streams.get(&id).ok_or_else(missing)?;
        let sources = rebuilt.create.fork.iter().flat_map(|fork| {
            std::iter::once(fork.source).chain(fork.ranges.iter().map(|range| range.stream))
        });
        let unlinked: Vec<StreamId> = sources.filter(|source| !linked.streams.contains_key(source)).collect();
        if !unlinked.is_empty() {
            if !expanded.insert(id) {
                return Err(Inconsistent::ForkCycle(id.0));
            }
            stack.extend(unlinked);
            continue;
        }
        if let Some((rebuilt, extents)) = streams.remove(&id) {
            let stream = revive(rebuilt, extents, linked, released)?;
            if stream.path.as_ref().is_some_and(|path| path.bucket().is_some())
                && linked.buckets.of(&stream).is_none()
                && !stream.shared.lock().deleted
            {
                linked.stray.insert(id);
            }
            linked.streams.insert(id, Arc::new(stream));
        }
        stack.pop();
    }
    Ok(())
}

/// A live stream from its durable facts. Its sources are linked.
fn revive(
    rebuilt: Rebuilt,
    extents: Extents,
    linked: &Linked,
    released: &[Arc<Released>],
) -> Result<Stream, Inconsistent> {
    let Rebuilt { id, create, created_ms, deadline_ms, state } = rebuilt;
    let invalid = || Inconsistent::Invalid(id.0);
    let fork = match create.fork {
        Some(fork) => Some(Box::new(revive_fork(id, &fork, &linked.streams)?)),
        None => None,
    };
    let retention = match &state.retention {
        Some(retention) if !state.deleted => {
            Some(Box::new(revive_retention(id, retention, linked, released)?))
        }
        Some(retention) => Some(Box::new(Retention { floor: retention.floor, ..Retention::default() })),
        None => None,
    };
    let attributes = match &create.attributes {
        Some(text) => Attributes::parse(text.as_bytes()).map_err(|_| invalid())?,
        None => Attributes::default(),
    };
    let lifetime = match (create.ttl_s, create.expires_at_ms) {
        (Some(seconds), _) => Lifetime::Ttl { seconds },
        (None, Some(unix_ms)) => Lifetime::Until { unix_ms },
        (None, None) => Lifetime::Forever,
    };
    let stream = Stream::new(Birth {
        id,
        path: Some(StreamPath::from_key(&create.path).ok_or_else(invalid)?),
        bucket: create.bucket,
        incarnation: Incarnation(create.incarnation),
        content_type: ContentType::parse(&create.content_type).map_err(|_| invalid())?,
        lifetime,
        created_ms,
        deadline_ms,
        fork,
        retention,
        attributes,
    });
    let checkpoint =
        state.contract.as_ref().and_then(|contract| contract.checkpoint).filter(|_| !state.deleted);
    let checkpoint = match checkpoint {
        Some(kept) => Some(Box::new(Checkpoint {
            offset: kept.offset,
            format_version: kept.format_version,
            body: find_body(kept.body, linked, released).ok_or(Inconsistent::Contract(id.0))?,
        })),
        None => None,
    };
    restore(&stream, state, extents);
    stream.shared.lock().checkpoint = checkpoint;
    Ok(stream)
}

/// The body that records refer to, if it is there and whole.
fn find_body(stored: StoredBody, linked: &Linked, released: &[Arc<Released>]) -> Option<BodyHold> {
    let body = linked.streams.get(&stored.stream).filter(|body| body.path.is_none())?;
    let is_whole = body.shared.lock().tail.position == stored.length;
    let released = &released[usize::from(body.id.shard())];
    is_whole.then(|| BodyHold::new(body.clone(), released.clone()))
}

/// Finds the bodies of a stream's snapshots. What is kept must be there and whole; what was superseded may have been
/// collected.
fn revive_retention(
    id: StreamId,
    stored: &Retention<StoredBody>,
    linked: &Linked,
    released: &[Arc<Released>],
) -> Result<Retention<BodyHold>, Inconsistent> {
    let find = |snapshot: &Snapshot<StoredBody>| {
        let body = find_body(snapshot.body, linked, released)?;
        Some(Snapshot { offset: snapshot.offset, body })
    };
    let kept = |snapshot: &Option<Snapshot<StoredBody>>| match snapshot {
        Some(snapshot) => {
            let missing = Inconsistent::SnapshotMissing { stream: id.0, offset: snapshot.offset };
            find(snapshot).ok_or(missing).map(Some)
        }
        None => Ok(None),
    };
    let superseded = stored.superseded.iter().filter_map(|superseded| {
        Some(Superseded { snapshot: find(&superseded.snapshot)?, until_ms: superseded.until_ms })
    });
    Ok(Retention {
        floor: stored.floor,
        latest: kept(&stored.latest)?,
        base: kept(&stored.base)?,
        superseded: superseded.collect(),
        marks: stored.marks.clone(),
    })
}

fn revive_fork(
    id: StreamId,
    fork: &journal::Fork,
    linked: &HashMap<StreamId, Arc<Stream>>,
) -> Result<Fork, Inconsistent> {
    let find = |source: StreamId| {
        let missing = Inconsistent::SourceMissing { stream: id.0, source_stream: source.0 };
        linked.get(&source).cloned().ok_or(missing)
    };
    let source = find(fork.source)?;
    source.forks.fetch_add(1, Ordering::Relaxed);
    let mut inherited = Vec::with_capacity(fork.ranges.len());
    for range in &fork.ranges {
        let (start, end) = (offset_of(range.start), offset_of(range.end));
        inherited.push(Inherited { stream: find(range.stream)?, start, end });
    }
    let origin = ForkOrigin {
        source: StreamPath::from_key(&fork.source_path).ok_or(Inconsistent::Invalid(id.0))?,
        offset: fork.source_offset.map(offset_of),
        sub_offset: fork.sub_offset,
    };
    Ok(Fork { origin, source, at: offset_of(fork.at), inherited })
}
