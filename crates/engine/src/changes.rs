//! Telling a watcher which streams have changed, off the path of appends.
//!
//! A stream that is appended to, made with content or deleted is noted once until the watcher takes note of it, however
//! much happens to it meanwhile. A batch costs its committer one lock, and nothing while nobody watches. What is noted can
//! be seen before the append is answered. Beyond [`NOTED_STREAMS_MAX`] the watcher is told to look at all streams instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_protocol::{Incarnation, Offset, StreamPath};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::engine::{Engine, Inner};
use crate::stream::Stream;

/// Changed streams that are kept for a watcher.
pub const NOTED_STREAMS_MAX: usize = 64 * 1024;

/// What has changed since the watcher last looked.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotes {
    is_watched: AtomicBool,
    noted: Mutex<Noted>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Noted {
    streams: Vec<Arc<Stream>>,
    missed: bool,
}

/// Which stream is at a path, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Which.
    pub incarnation: Incarnation,
    /// Its tail.
    pub tail: Offset,
}

/// Streams that have changed.
#[derive(Debug, Default)]
pub struct Changed {
    /// Their paths, in no order. A path may be there twice, after one stream was followed by another.
    pub paths: Vec<StreamPath>,
    /// There were more: only a look at all streams tells which.
    pub missed: bool,
}

/// Learns which streams change. There is one at a time: of two, each would learn a part.
#[derive(Debug)]
pub struct ChangeWatch {
    inner: Arc<Inner>,
}

impl ChangeNotes {
    /// Whether a stream is to be noted, now that its change can be seen. What the server keeps for itself is not: whoever
    /// watches writes there, and would wake itself.
    pub(crate) fn wants(&self, stream: &Stream) -> bool {
        self.is_watched.load(Ordering::SeqCst)
            && stream.path.as_ref().is_some_and(|path| !path.is_internal())
            && !stream.noted.swap(true, Ordering::SeqCst)
    }

    /// Takes in the streams of a batch.
    pub(crate) fn add(&self, streams: &mut Vec<Arc<Stream>>) {
        if streams.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        if noted.streams.len() + streams.len() > NOTED_STREAMS_MAX {
            noted.missed = true;
            streams.drain(..).for_each(|stream| stream.noted.store(false, Ordering::SeqCst));
        } else {
            noted.streams.append(streams);
        }
    }

    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }
}

impl Engine {
    /// Begins to note changes. What changed before is not told of.
    pub fn watch_changes(&self) -> ChangeWatch {
        self.inner.changes.is_watched.store(true, Ordering::SeqCst);
        ChangeWatch { inner: self.inner.clone() }
    }

    /// Which stream is at a path and where it ends; `None` if there is none. Does not count as a read.
    pub fn end_of(&self, path: &StreamPath) -> Option<StreamEnd> {
        let inner = &self.inner;
        let stream = inner.find(inner.shard_of(path), path, inner.now_ms()).ok()?;
        Some(StreamEnd { incarnation: stream.incarnation, tail: stream.end().0 })
    }

    /// Shows every stream that is neither deleted nor expired, those included that only the server can name. Takes time
    /// for all of them; streams that come or go meanwhile are shown or not.
    pub fn for_each_stream(&self, mut visit: impl FnMut(&StreamPath, StreamEnd)) {
        let now_ms = self.inner.now_ms();
        for shard in &self.inner.shards {
            let streams: Vec<Arc<Stream>> = shard.directory.read().streams().cloned().collect();
            for stream in streams.iter().filter(|stream| !stream.expired(now_ms)) {
                let shared = stream.shared.lock();
                let (tail, deleted) = (shared.tail, shared.deleted);
                drop(shared);
                if let (Some(path), false) = (&stream.path, deleted) {
                    visit(path, StreamEnd { incarnation: stream.incarnation, tail });
                }
            }
        }
    }
}

impl ChangeWatch {
    /// What has changed since the last look. Where the streams are now can be seen from here on.
    pub fn take(&self) -> Changed {
        let Noted { streams, missed } = std::mem::take(&mut *self.inner.changes.noted.lock());
        let path = |stream: Arc<Stream>| {
            // Before anyone looks at the stream: a change that comes after the look is noted again.
            stream.noted.store(false, Ordering::SeqCst);
            stream.path.clone()
        };
        Changed { paths: streams.into_iter().filter_map(path).collect(), missed }
    }

    /// Stops noting changes, or begins again: what changes between is not told of.
    pub fn set_watching(&self, is_watching: bool) {
        let was_watching = self.inner.changes.is_watched.swap(is_watching, Ordering::SeqCst);
        if was_watching && !is_watching {
            drop(self.take());
        }
    }

    /// Waits until there may be something to take.
    pub async fn changed(&self) {
        self.inner.changes.arrived.notified().await;
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        self.set_watching(false);
    }
}
