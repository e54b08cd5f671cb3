//! The archive as the ingest sees it.

use std::collections::VecDeque;

use alluvium_env::Room;
use alluvium_jetstream_archive::{Archive, Batch as ArchiveBatch};
use alluvium_jetstream_ingest::sink::{Batch, Sink, SinkError, Store};
use alluvium_jetstream_ingest::state::{CURSOR, encode_cursor};
use bytes::Bytes;
use parking_lot::Mutex;

/// Keys of one page of a scan.
const PAGE: usize = 1000;

/// An archive that takes batches of an ingest.
#[derive(Debug)]
pub struct Archived {
    archive: Archive,
    /// While its disk has no room, whoever submits waits, and the relay with it.
    room: Room,
    submitted: Mutex<Submitted>,
}

#[derive(Debug, Default)]
struct Submitted {
    /// The archive's own numbers of batches that are not known to be durable: others may submit to it as well.
    waiting: VecDeque<u64>,
    durable: u64,
}

impl Archived {
    /// Batches go to `archive`, while its disk has room.
    pub fn new(archive: Archive, room: Room) -> Self {
        Self { archive, room, submitted: Mutex::default() }
    }
}

fn failed(error: &alluvium_jetstream_archive::Error) -> SinkError {
    SinkError(error.to_string())
}

impl Sink for Archived {
    fn submit(&self, batch: Batch) -> Result<(), SinkError> {
        self.room.wait();
        let entry = |key: String, value: Option<Vec<u8>>| (Bytes::from(key), value.map(Bytes::from));
        let changes = batch.changes.iter().map(|change| entry(change.key(), change.value()));
        let cursor = batch.cursor.map(|cursor| entry(CURSOR.to_owned(), Some(encode_cursor(cursor))));
        let changes = changes.chain(cursor).collect();
        let number = self
            .archive
            .submit(ArchiveBatch { events: batch.rows, changes })
            .map_err(|error| failed(&error))?;
        self.submitted.lock().waiting.push_back(number);
        Ok(())
    }

    fn durable(&self) -> u64 {
        let durable = self.archive.durable();
        let mut submitted = self.submitted.lock();
        while submitted.waiting.front().is_some_and(|number| *number <= durable) {
            submitted.waiting.pop_front();
            submitted.durable += 1;
        }
        submitted.durable
    }
}

impl Store for Archived {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SinkError> {
        Ok(self.archive.get(key.as_bytes()).map_err(|error| failed(&error))?.map(|value| value.to_vec()))
    }

    fn scan(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8]) -> bool) -> Result<(), SinkError> {
        let mut after: Option<Bytes> = None;
        loop {
            let page = self
                .archive
                .page(prefix.as_bytes(), after.as_deref(), PAGE)
                .map_err(|error| failed(&error))?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (key, value) in &page {
                let name = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(prefix));
                let name = name.ok_or_else(|| SinkError("a stored key is no text".to_owned()))?;
                if !visit(name, value) {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
