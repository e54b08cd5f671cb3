//! What a loss of power leaves when syncs are left to the operating system: each journal ends somewhere, and what one
//! tells may rest on what another has lost.
//!
//! A stream rests on other shards when it is a fork: on the bytes that it has inherited, and on the snapshot that covers
//! them. One that has lost any of that cannot be what it was, so it ends, with a warning; all others stay. Its end is
//! durable before anything new is written: a source that grows again would give it bytes that it never had. And numbers
//! that somebody refers to are not given again.

use std::collections::HashSet;
use std::sync::Arc;

use alluvium_journal::{JournalError, StreamId};
use alluvium_protocol::Retention;

use crate::body::StoredBody;
use crate::engine::Inner;
use crate::rebuilt::Rebuilt;
use crate::recover::Recovered;
use crate::stream::Stream;

/// More than the record of an end takes, with the header of its batch.
const END_BYTES_MAX: u64 = 1024;

/// The streams that have lost something that they rest on. They are cut off from it.
pub(crate) fn cut_off(recovered: &mut [Recovered]) -> HashSet<StreamId> {
    let mut lost = HashSet::new();
    for shard in &*recovered {
        let streams = shard.streams.values().map(|(rebuilt, _)| rebuilt);
        lost.extend(streams.filter(|stream| has_lost(recovered, stream)).map(|stream| stream.id));
    }
    for id in &lost {
        let streams = recovered.get_mut(usize::from(id.shard())).map(|shard| &mut shard.streams);
        let Some((rebuilt, _)) = streams.and_then(|streams| streams.get_mut(id)) else { continue };
        tracing::warn!(
            stream = rebuilt.create.path,
            "a fork has lost what it inherited from another shard, and ends: durability is left to the system"
        );
        rebuilt.create.fork = None;
        rebuilt.state.retention = None;
    }
    lost
}

fn has_lost(recovered: &[Recovered], stream: &Rebuilt) -> bool {
    let find =
        |id: StreamId| recovered.get(usize::from(id.shard()))?.streams.get(&id).map(|(found, _)| found);
    let Some(fork) = &stream.create.fork else { return false };
    let lost_range = fork
        .ranges
        .iter()
        .any(|range| find(range.stream).is_none_or(|source| source.state.tail.position < range.end.1));
    let is_whole = |body: &StoredBody| {
        find(body.stream).is_some_and(|found| {
            !found.state.deleted && found.create.path.is_empty() && found.state.tail.position == body.length
        })
    };
    let lost_body = !stream.state.deleted
        && stream.state.retention.iter().flat_map(|held| kept(held)).any(|body| !is_whole(body));
    find(fork.source).is_none() || lost_range || lost_body
}

/// The bodies that a stream cannot be without.
fn kept(retention: &Retention<StoredBody>) -> impl Iterator<Item = &StoredBody> {
    retention.latest.iter().chain(&retention.base).map(|snapshot| &snapshot.body)
}

/// The numbers that a stream refers to.
pub(crate) fn referred(stream: &Rebuilt) -> impl Iterator<Item = StreamId> {
    let fork = stream.create.fork.iter();
    let sources = fork
        .flat_map(|fork| std::iter::once(fork.source).chain(fork.ranges.iter().map(|range| range.stream)));
    let bodies = stream.state.retention.iter().flat_map(|held| kept(held)).map(|body| body.stream);
    sources.chain(bodies).chain(stream.create.bucket)
}

impl Inner {
    /// Records the ends of streams that a start has cut off, durably.
    pub(crate) fn end_lost(&self, lost: &[Arc<Stream>]) -> Result<(), JournalError> {
        let now_ms = self.now_ms();
        for shard in &self.shards {
            let mut committer = shard.committer.lock();
            for stream in lost.iter().filter(|stream| stream.id.shard() == shard.index) {
                if committer.batch.len() + END_BYTES_MAX > committer.writer.remaining() {
                    committer.flush(self, shard)?;
                    committer.rotate(self)?;
                }
                committer.end(stream, true, now_ms);
            }
            committer.flush(self, shard)?;
            committer.writer.sync()?;
        }
        Ok(())
    }
}
