//! Looking at all streams under a prefix at once: how large each is, and when it was last written to.
//!
//! A look goes through those streams of all shards, and through no others. It holds the lock of a shard's directory only
//! while it takes down some of them, and that of a stream while it reads its figures.

use std::sync::Arc;

use alluvium_protocol::{Incarnation, Offset, StreamPath};

use crate::engine::{Engine, Inner};
use crate::stream::{Shared, Stream};

/// How many streams of a shard are taken down at a time.
const SLICE_STREAMS: usize = 1024;

/// What a look says of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Surveyed {
    /// Where it is.
    pub path: StreamPath,
    /// Which one it is.
    pub incarnation: Incarnation,
    /// What it holds, in bytes: of its own data what can still be read, and its latest snapshot. What a fork has from its
    /// source is its source's; a snapshot that it has from there counts for both.
    pub bytes: u64,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// When it was last appended to or closed, in Unix milliseconds; when it was created, if never.
    pub last_write_ms: u64,
    /// The earliest offset that can be read.
    pub floor: Offset,
    /// Where it ends.
    pub tail: Offset,
    /// Whether it is closed.
    pub closed: bool,
}

impl Engine {
    /// Shows `visit` every stream whose URL path is [under](StreamPath::is_under) `prefix` (decoded), in no order. Streams whose time is over
    /// and deleted ones are left out, and what the server keeps for itself. Blocks for a while if there are many.
    pub fn survey(&self, prefix: &str, mut visit: impl FnMut(Surveyed)) {
        self.inner.walk(prefix, self.inner.now_ms(), |stream, shared| {
            let Some(path) = stream.path.clone() else { return };
            visit(Surveyed {
                path,
                incarnation: stream.incarnation,
                bytes: stream.bytes_of(shared),
                created_ms: stream.created_ms,
                last_write_ms: shared.last_write_ms,
                floor: shared.floor(),
                tail: shared.tail,
                closed: shared.closed,
            });
        });
    }
}

impl Inner {
    /// Goes through the streams under a prefix that can be reached.
    pub(crate) fn walk(&self, prefix: &str, now_ms: u64, mut visit: impl FnMut(&Arc<Stream>, &Shared)) {
        let spans = StreamPath::keys_under(prefix);
        for (shard, span) in self.shards.iter().flat_map(|shard| spans.iter().map(move |span| (shard, span)))
        {
            let mut after: Option<StreamPath> = None;
            loop {
                let streams = shard.directory.read().streams_in(span, after.as_ref(), SLICE_STREAMS);
                let is_last = streams.len() < SLICE_STREAMS;
                after = streams.last().and_then(|stream| stream.path.clone());
                for stream in streams.iter().filter(|stream| !stream.expired(now_ms)) {
                    // One that an earlier bucket of the same name has left is on its way out.
                    if stream.bucket.is_some() && self.buckets.of(stream).is_none() {
                        continue;
                    }
                    let shared = stream.shared.lock();
                    if !shared.deleted {
                        visit(stream, &shared);
                    }
                }
                if is_last || after.is_none() {
                    break;
                }
            }
        }
    }
}

impl Stream {
    /// See [`Surveyed::bytes`]. `shared` is this stream's.
    pub(crate) fn bytes_of(&self, shared: &Shared) -> u64 {
        let from = self.fork.as_ref().map_or(Offset::ZERO, |fork| fork.at).position;
        let own = shared.tail.position.saturating_sub(from.max(shared.floor().position));
        let snapshot = shared.snapshot().map_or(0, |snapshot| snapshot.body.shared.lock().tail.position);
        own.saturating_add(snapshot)
    }
}
