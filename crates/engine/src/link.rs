//! Turning recovered streams into live ones: forks find their sources, and what nobody needs is dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, StreamId};
use alluvium_protocol::{ContentType, ForkOrigin, Incarnation, Lifetime, StreamPath};

use crate::extent::Extents;
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::recover::{OpenError, Recovered};
use crate::stream::{Birth, Fork, Inherited, Stream, offset_of};

/// All live streams of all shards, and the deleted ones that they need.
///
/// A deleted stream that no fork needs any more is left behind: the last deletion that freed it was
/// durable, and the next fold drops its bytes.
pub(crate) fn link(recovered: &mut [Recovered]) -> Result<Vec<Arc<Stream>>, OpenError> {
    let mut linked = HashMap::new();
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
            link_with_sources(recovered, &mut linked, id)
                .map_err(|source| OpenError::Inconsistent { dir, source })?;
        }
    }
    let mut streams: Vec<Arc<Stream>> = linked.into_values().collect();
    streams.sort_unstable_by_key(|stream| stream.id);
    Ok(streams)
}

/// Links a stream after its sources. Chains of forks can be long, so the way back is a stack of our own.
fn link_with_sources(
    recovered: &mut [Recovered],
    linked: &mut HashMap<StreamId, Arc<Stream>>,
    id: StreamId,
) -> Result<(), Inconsistent> {
    let mut stack = vec![id];
    let mut expanded = HashSet::new();
    while let Some(id) = stack.last().copied() {
        if linked.contains_key(&id) {
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
        let unlinked: Vec<StreamId> = sources.filter(|source| !linked.contains_key(source)).collect();
        if !unlinked.is_empty() {
            if !expanded.insert(id) {
                return Err(Inconsistent::ForkCycle(id.0));
            }
            stack.extend(unlinked);
            continue;
        }
        if let Some((rebuilt, extents)) = streams.remove(&id) {
            let stream = revive(rebuilt, extents, linked)?;
            linked.insert(id, Arc::new(stream));
        }
        stack.pop();
    }
    Ok(())
}

/// A live stream from its durable facts. Its sources are linked.
fn revive(
    rebuilt: Rebuilt,
    extents: Extents,
    linked: &HashMap<StreamId, Arc<Stream>>,
) -> Result<Stream, Inconsistent> {
    let Rebuilt { id, create, created_ms, deadline_ms, state } = rebuilt;
    let invalid = || Inconsistent::Invalid(id.0);
    let fork = match create.fork {
        Some(fork) => Some(Box::new(revive_fork(id, &fork, linked)?)),
        None => None,
    };
    let lifetime = match (create.ttl_s, create.expires_at_ms) {
        (Some(seconds), _) => Lifetime::Ttl { seconds },
        (None, Some(unix_ms)) => Lifetime::Until { unix_ms },
        (None, None) => Lifetime::Forever,
    };
    let stream = Stream::new(Birth {
        id,
        path: StreamPath::parse_decoded(&create.path).map_err(|_| invalid())?,
        incarnation: Incarnation(create.incarnation),
        content_type: ContentType::parse(&create.content_type).map_err(|_| invalid())?,
        lifetime,
        created_ms,
        deadline_ms,
        fork,
    });
    let mut shared = stream.shared.lock();
    shared.tail = state.tail;
    shared.closed = state.closed;
    shared.deleted = state.deleted;
    shared.last_write_ms = state.last_write_ms;
    shared.extents = extents;
    drop(shared);
    *stream.state.lock() = state;
    Ok(stream)
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
        source: StreamPath::parse_decoded(&fork.source_path).map_err(|_| Inconsistent::Invalid(id.0))?,
        offset: fork.source_offset.map(offset_of),
        sub_offset: fork.sub_offset,
    };
    Ok(Fork { origin, source, at: offset_of(fork.at), inherited })
}
