//! An archive that is open: where batches are submitted and readers begin.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use alluvium_env::{DiskLock, Env};
use alluvium_jss::Event;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::batch::Batch;
use crate::cache::Cache;
use crate::committer::Committer;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::options::Options;
use crate::queue::{Item, Queue, Work};
use crate::reader::Reader;
use crate::store::{Changes, Page, Store};
use crate::view::Shared;

/// An archive. Clones are the same archive; the last one closes it without flushing.
#[derive(Clone, Debug)]
pub struct Archive(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) options: Arc<Options>,
    pub(crate) store: Arc<dyn Store>,
    /// Changes that are durable and not yet in the store.
    pub(crate) overlay: Arc<RwLock<Changes>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Queue,
    pub(crate) committer: Mutex<Committer>,
    pub(crate) cache: Cache,
    pub(crate) _lock: Box<dyn DiskLock>,
}

/// How an archive stands.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Status {
    /// The number of the next row; one more than the last that readers see.
    pub next_seq: u64,
    /// Rows before this one are in blocks.
    pub flushed_seq: u64,
    /// The first row that is in memory.
    pub hot_floor: u64,
    /// What rows in memory take, with what was made from them, in bytes.
    pub hot_bytes: usize,
    /// What cached blocks take, with what was made from them, in bytes.
    pub cache_bytes: usize,
    /// Sealed segments.
    pub segments: usize,
    /// What their files take, in bytes.
    pub segments_bytes: u64,
    /// Rows that they have.
    pub segments_rows: u64,
    /// Blocks of the active segment.
    pub active_blocks: usize,
    /// The length of its frames in bytes.
    pub active_bytes: u64,
    /// Rows behind those of sealed segments: of the active one, and not in a block yet.
    pub active_rows: u64,
    /// Batches that were submitted.
    pub submitted: u64,
    /// Of these, those that are durable.
    pub durable: u64,
}

impl Archive {
    /// Starts the thread that makes durable what is submitted. Without it nothing is, except by [`Archive::commit_waiting`].
    pub fn start(&self) -> io::Result<JoinHandle<Result<(), Error>>> {
        let archive = self.clone();
        thread::Builder::new().name("jetstream-archive".into()).spawn(move || {
            while archive.step(true)? {}
            Ok(())
        })
    }

    /// Makes durable what waits now, in this thread; for tests and tools. False when the archive is closed.
    pub fn commit_waiting(&self) -> Result<bool, Error> {
        self.step(false)
    }

    fn step(&self, wait: bool) -> Result<bool, Error> {
        let mut committer = self.0.committer.lock();
        if let Some(end) = self.end() {
            return if matches!(end, Error::Closed) { Ok(false) } else { Err(end) };
        }
        let done = match self.0.queue.take(wait) {
            Work::Commit(items) => committer.commit(items).map(|()| true),
            Work::Close => committer.flush().map(|()| false),
        };
        let end = match &done {
            Ok(true) => return done,
            Ok(false) => Error::Closed,
            Err(error) => error.clone(),
        };
        self.0.queue.close(true);
        self.0.shared.update(|view| view.end = Some(end));
        done
    }

    /// Submits a batch; waits while others take all the room ([`Options::queue_bytes`]). Returns its number, counted from 1
    /// since the archive was opened. Batches become durable in this order. A batch with a row that no segment can store is
    /// refused as a whole.
    pub fn submit(&self, batch: Batch) -> Result<u64, Error> {
        batch.events.iter().try_for_each(Event::check)?;
        self.push(Item::Batch(batch))
    }

    /// Asks that what is pending goes into a block, whatever its size. Returns the number of the request, which counts like
    /// a batch.
    pub fn request_flush(&self) -> Result<u64, Error> {
        self.push(Item::Flush)
    }

    /// Asks that the active segment is sealed, whatever its size, if it has a row. Returns the number of the request, which
    /// counts like a batch.
    pub fn request_rotation(&self) -> Result<u64, Error> {
        self.push(Item::Rotate)
    }

    pub(crate) fn push(&self, item: Item) -> Result<u64, Error> {
        self.0.queue.push(item).map_err(|closed| self.end().unwrap_or(closed))
    }

    /// The number of the last batch that is durable, and whose rows readers see.
    pub fn durable(&self) -> u64 {
        self.0.shared.view.read().durable
    }

    /// Waits until a batch is durable.
    pub async fn wait_durable(&self, number: u64) -> Result<(), Error> {
        let done = || {
            let view = self.0.shared.view.read();
            match &view.end {
                _ if view.durable >= number => Some(Ok(())),
                Some(end) => Some(Err(end.clone())),
                None => None,
            }
        };
        self.0.shared.changed.wait_for(done).await
    }

    /// Waits until the archive has failed or was closed. After a failure the process must end: what the disk has is not
    /// known, and opening the archive again finds out.
    pub async fn ended(&self) -> Error {
        self.0.shared.changed.wait_for(|| self.end()).await
    }

    pub(crate) fn end(&self) -> Option<Error> {
        self.0.shared.view.read().end.clone()
    }

    /// Takes no more batches. The thread makes durable what waits, flushes it into a block, and ends.
    pub fn close(&self) {
        self.0.queue.close(false);
    }

    /// The value that was last made durable at a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        if let Some(value) = self.0.overlay.read().get(key) {
            return Ok(value.clone());
        }
        Ok(self.0.store.get(key)?)
    }

    /// At most `limit` keys that begin with `prefix` and lie after `after`, in order, with the values that were last made
    /// durable.
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, Error> {
        let from = Bytes::copy_from_slice(after.filter(|after| *after >= prefix).unwrap_or(prefix));
        let newer: Vec<(Bytes, Option<Bytes>)> = {
            let overlay = self.0.overlay.read();
            let found = overlay.range(from..).filter(|(key, _)| after.is_none_or(|after| *key != after));
            let found = found.take_while(|(key, _)| key.starts_with(prefix));
            found.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        // Enough that the page is full even if all of `newer` are removals.
        let stored = self.0.store.page(prefix, after, limit.saturating_add(newer.len()))?;
        let mut page: BTreeMap<Bytes, Bytes> = stored.into_iter().collect();
        for (key, value) in newer {
            match value {
                Some(value) => page.insert(key, value),
                None => page.remove(&key),
            };
        }
        Ok(page.into_iter().take(limit).collect())
    }

    /// The sealed segments as they are now.
    pub fn manifest(&self) -> Manifest {
        self.0.shared.view.read().manifest.clone()
    }

    /// The number of the next row; one more than the last that readers see.
    pub fn next_seq(&self) -> u64 {
        self.0.shared.view.read().hot.tip()
    }

    /// The first row that is in memory: readers behind it read files.
    pub fn hot_floor(&self) -> u64 {
        self.0.shared.view.read().hot.floor()
    }

    /// A reader that begins at this row, or at the first one after it that is there.
    pub fn reader(&self, from: u64) -> Reader {
        Reader::new(self.clone(), from)
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let submitted = self.0.queue.submitted();
        let view = self.0.shared.view.read();
        let blocks = view.active.iter().flat_map(|active| active.blocks.iter());
        Status {
            next_seq: view.hot.tip(),
            flushed_seq: view.flushed,
            hot_floor: view.hot.floor(),
            hot_bytes: view.hot.bytes(),
            cache_bytes: self.0.cache.bytes(),
            segments: view.manifest.segments.len(),
            segments_bytes: view.manifest.segments.iter().map(|segment| segment.size_bytes).sum(),
            segments_rows: view.manifest.segments.iter().map(|segment| segment.rows()).sum(),
            active_rows: view.hot.tip().saturating_sub(1).saturating_sub(view.manifest.last_seq()),
            active_blocks: blocks.clone().count(),
            active_bytes: blocks.map(|block| block.end() - block.offset).sum(),
            submitted,
            durable: view.durable,
        }
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The outside world that it was opened with.
    pub fn env(&self) -> &Env {
        &self.0.env
    }
}
