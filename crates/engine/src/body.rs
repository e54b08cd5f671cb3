//! Bodies of snapshots: streams without a path that live for as long as somebody holds them.
//!
//! A body is stored like any other stream, so its bytes are checked, folded and read by the same code. Nothing leads to
//! it but a hold: of the stream that it is a snapshot of, of a fork that has inherited it, of a reader, of an upload
//! under way. When the last one goes, the next sweep has its end recorded.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::StreamId;
use parking_lot::Mutex;

use crate::command::Command;
use crate::engine::Inner;
use crate::stream::Stream;

/// Streams that nobody holds any more and whose end is to be recorded, and files of uploads that came to nothing.
#[derive(Debug, Default)]
pub(crate) struct Released {
    streams: Mutex<Vec<Arc<Stream>>>,
    files: Mutex<Vec<PathBuf>>,
}

impl Released {
    pub(crate) fn push(&self, stream: Arc<Stream>) {
        self.streams.lock().push(stream);
    }

    /// Has a file removed that nothing refers to.
    pub(crate) fn push_file(&self, path: PathBuf) {
        self.files.lock().push(path);
    }
}

/// One hold on a body; clones are further ones.
#[derive(Debug)]
pub(crate) struct BodyHold {
    body: Arc<Stream>,
    released: Arc<Released>,
}

/// A body as records refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredBody {
    pub(crate) stream: StreamId,
    pub(crate) length: u64,
}

impl BodyHold {
    /// Takes hold of a body that is not on `released`: a new one, or one that somebody holds.
    pub(crate) fn new(body: Arc<Stream>, released: Arc<Released>) -> Self {
        body.forks.fetch_add(1, Ordering::SeqCst);
        Self { body, released }
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.body
    }
}

impl Clone for BodyHold {
    fn clone(&self) -> Self {
        Self::new(self.body.clone(), self.released.clone())
    }
}

impl Drop for BodyHold {
    fn drop(&mut self) {
        if self.body.forks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.released.push(self.body.clone());
        }
    }
}

impl Deref for BodyHold {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.body
    }
}

impl Inner {
    /// Gives up superseded snapshots whose grace is over, then has the ends of all bodies recorded that nobody holds.
    pub(crate) fn collect_bodies(&self, index: usize, now_ms: u64) {
        let shard = &self.shards[index];
        loop {
            let mut graces = shard.graces.lock();
            let Some(stream) = graces.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) else { break };
            drop(graces);
            let Some(stream) = stream.1.upgrade() else { continue };
            // Dropped after the lock.
            let _given_up = stream.shared.lock().give_up_superseded(now_ms);
        }
        for path in std::mem::take(&mut *shard.released.files.lock()) {
            if let Err(error) = self.env.disk.remove(&path) {
                // The next start finds that nothing refers to it.
                tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "not removed");
            }
        }
        let released = std::mem::take(&mut *shard.released.streams.lock());
        for stream in released {
            if self.submit(index, Command::Collect(stream.clone())).is_err() {
                shard.released.push(stream);
            }
        }
    }
}
