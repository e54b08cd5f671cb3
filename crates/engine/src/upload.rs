//! The body of a snapshot on its way to the disk.
//!
//! A short one waits in memory and is committed with the record that publishes it. A longer one goes to a table of its
//! own, outside of the journal, so that no append waits for more of it than the device has in hand: a part at a time,
//! one part of all uploads together, and while appends are being committed with a pause after each. The table is
//! durable before the record that makes the body known is committed, and counts from that record on. The next fold
//! names it in the manifest. A file that no record came to name is removed, by a sweep or by the next start.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_journal::{
    self as journal, JournalError, Mutation, Record, StreamId, Table, TableError, TableExtent, TableWriter,
    body_table, table_name,
};
use alluvium_protocol::{ContentType, Offset};
use bytes::Bytes;

use crate::blocking::off_reactor;
use crate::body::{BodyHold, Released};
use crate::committer::{Committer, Effect, Grown};
use crate::create::birth_record;
use crate::engine::Inner;
use crate::error::StorageError;
use crate::extent::{JournalExtent, TableRun};
use crate::options::Threads;
use crate::publish::body_birth;
use crate::shard::Shard;
use crate::stream::{Stream, pair_of};
use crate::tables::whole_body;

/// How long nothing must have been committed for uploads to have the device to themselves, in milliseconds.
const ALONE_AFTER_MS: u64 = 100;

/// How long the device is left to appends after a part. With parts of 256 KiB that is at most 64 MiB a second, of all
/// uploads together.
const PAUSE: Duration = Duration::from_millis(4);

/// A body that is all there, and not yet known.
#[derive(Debug)]
pub(crate) enum Uploaded {
    /// In memory.
    Whole(Bytes),
    /// In a table that is durable.
    Stored(StoredTable),
}

impl Uploaded {
    /// What of it goes through the journal, in bytes.
    pub(crate) fn journal_bytes(&self) -> u64 {
        match self {
            Self::Whole(data) => data.len() as u64,
            Self::Stored(_) => 0,
        }
    }
}

/// The finished table of a body.
#[derive(Debug)]
pub(crate) struct StoredTable {
    id: StreamId,
    table: Arc<Table>,
    extent: TableExtent,
    end: Offset,
    file: UnknownFile,
}

/// A file that no record names. Dropped as such, it is removed by the next sweep.
#[derive(Debug)]
struct UnknownFile {
    path: PathBuf,
    released: Arc<Released>,
    is_known: bool,
}

impl Drop for UnknownFile {
    fn drop(&mut self) {
        if !self.is_known {
            self.released.push_file(std::mem::take(&mut self.path));
        }
    }
}

/// Writes the table of a body, part by part.
#[derive(Debug)]
pub(crate) struct BodyWriter {
    id: StreamId,
    table: TableWriter,
    end: Offset,
    // After the writer, so that the file is closed when it is removed.
    file: UnknownFile,
}

impl BodyWriter {
    fn create(inner: &Inner, shard: &Shard) -> Result<Self, TableError> {
        let id = shard.next_id();
        let path = shard.dir.join(table_name(body_table(id)));
        let directory = shard.segments.directory();
        let table = TableWriter::create(inner.env.disk.as_ref(), &path, body_table(id), directory)?;
        let file = UnknownFile { path, released: shard.released.clone(), is_known: false };
        Ok(Self { id, table, end: Offset::ZERO, file })
    }

    /// Adds a part, which is like an append of one message.
    fn push(&mut self, part: &[u8]) -> Result<(), TableError> {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        self.table.push_messages(self.id, pair_of(self.end), &[length], &[true], part)?;
        self.end = Offset::new(self.end.append_index + 1, self.end.position + u64::from(length));
        self.table.flush()
    }

    /// Makes file and name durable.
    fn finish(self, inner: &Inner, shard: &Shard) -> Result<StoredTable, JournalError> {
        let disk = inner.env.disk.as_ref();
        let Self { id, table, end, file } = self;
        table.finish().map_err(as_journal_error)?;
        disk.sync_dir(&shard.dir).map_err(|source| journal::IoFault {
            action: "sync",
            file: shard.dir.clone(),
            source,
        })?;
        let table = Table::open(disk, &file.path).map_err(as_journal_error)?;
        table.mark_written();
        let extent = whole_body(&table, id, pair_of(end)).ok_or_else(|| journal::Damage {
            file: file.path.clone(),
            at: 0,
            reason: "the table is not what was written to it",
        })?;
        Ok(StoredTable { id, table: Arc::new(table), extent, end, file })
    }
}

fn as_journal_error(error: TableError) -> JournalError {
    match error {
        TableError::Damage(damage) => damage.into(),
        TableError::Io(fault) if fault.is_full() => JournalError::Full,
        TableError::Io(fault) => fault.into(),
        TableError::Refused(reason) => journal::Damage { file: PathBuf::new(), at: 0, reason }.into(),
    }
}

impl Inner {
    /// Writes a part of a body, to a new table if `writer` is none. Waits for its turn among the uploads.
    pub(crate) async fn write_part(
        self: &Arc<Self>,
        shard: usize,
        writer: Option<BodyWriter>,
        part: Bytes,
    ) -> Result<BodyWriter, StorageError> {
        let _turn = self.upload_turn.lock().await;
        let inner = self.clone();
        let written = self.beside_appends(move || {
            let mut writer = match writer {
                Some(writer) => writer,
                None => BodyWriter::create(&inner, &inner.shards[shard])?,
            };
            writer.push(&part)?;
            inner.leave_to_appends();
            Ok(writer)
        });
        written.await.map_err(|error: TableError| self.upload_failed(shard, as_journal_error(error)))
    }

    /// Ends a body with what is left of it.
    pub(crate) async fn finish_body(
        self: &Arc<Self>,
        shard: usize,
        mut writer: BodyWriter,
        rest: Bytes,
    ) -> Result<StoredTable, StorageError> {
        let _turn = self.upload_turn.lock().await;
        let inner = self.clone();
        let finished = self.beside_appends(move || {
            if !rest.is_empty() {
                writer.push(&rest).map_err(as_journal_error)?;
            }
            writer.finish(&inner, &inner.shards[shard])
        });
        finished.await.map_err(|error| self.upload_failed(shard, error))
    }

    /// A full disk refuses an upload. Anything else that goes wrong stops the engine, as it does anywhere.
    fn upload_failed(&self, shard: usize, error: JournalError) -> StorageError {
        if matches!(error, JournalError::Full) {
            return StorageError::Full;
        }
        self.fail(self.shards[shard].index, error);
        StorageError::Stopped
    }

    /// Does what waits for the disk where that holds up nobody; at once if somebody steps the engine by hand.
    async fn beside_appends<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self.options.threads {
            Threads::Spawned => off_reactor(work).await,
            Threads::Manual => work(),
        }
    }

    /// Pauses if appends are being committed; for whoever writes much beside them.
    pub(crate) fn leave_to_appends(&self) {
        if self.options.threads == Threads::Manual {
            return;
        }
        let idle_ms = self.now_ms().saturating_sub(self.last_commit_ms.load(Ordering::Relaxed));
        if idle_ms < ALONE_AFTER_MS {
            std::thread::park_timeout(PAUSE);
        }
    }
}

impl Committer {
    /// Records a body; `number` is that of its stream.
    pub(crate) fn record_body(
        &mut self,
        shard: &Shard,
        body: Uploaded,
        number: StreamId,
        content_type: ContentType,
        now_ms: u64,
    ) -> (BodyHold, Effect) {
        let stream = Arc::new(Stream::new(body_birth(number, content_type, now_ms)));
        let hold = BodyHold::new(stream.clone(), shard.released.clone());
        let grown = match body {
            Uploaded::Whole(data) => self.record_whole(&stream, data, now_ms),
            Uploaded::Stored(stored) => {
                self.record_stored(shard, &stream, stored, now_ms);
                None
            }
        };
        (hold, Effect::Created { stream, grown, reservation: None, pin: None })
    }

    /// With its bytes.
    fn record_whole(&mut self, stream: &Stream, data: Bytes, now_ms: u64) -> Option<Grown> {
        let mut state = stream.state.lock();
        let start = state.tail;
        let append = (!data.is_empty()).then(|| journal::Append {
            start: pair_of(start),
            lengths: vec![u32::try_from(data.len()).unwrap_or(u32::MAX)],
            data,
            producer: None,
            seq: None,
            close: false,
            renew_deadline_ms: None,
            receipt: None,
        });
        if let Some(append) = &append {
            state.apply(append, now_ms);
        }
        let (tail, has_data) = (state.tail, append.is_some());
        let mutation = Mutation::Create(birth_record(stream, &state, append));
        drop(state);
        let place = self.record(&Record { stream: stream.id, time_ms: now_ms, mutation });
        has_data.then(|| {
            self.cold.push(place.data_at);
            Grown {
                bytes: Some(JournalExtent { start, place, messages: 1 }),
                tail,
                closed: false,
                time_ms: now_ms,
            }
        })
    }

    /// With the table that has its bytes, of which folds know from here on.
    fn record_stored(&mut self, shard: &Shard, stream: &Stream, stored: StoredTable, now_ms: u64) {
        let StoredTable { id, table, extent, end, mut file } = stored;
        stream.state.lock().tail = end;
        // Nobody sees the stream before its record is synced.
        let mut visible = stream.shared.lock();
        visible.tail = end;
        visible.extents.tables.push(TableRun::new(table.clone(), &extent));
        drop(visible);
        shard.unfolded_bodies.lock().insert(id, table);
        file.is_known = true;
        let body = journal::Body { content_type: stream.content_type.as_str().to_owned(), end: pair_of(end) };
        self.record(&Record { stream: id, time_ms: now_ms, mutation: Mutation::Body(body) });
    }
}

impl StoredTable {
    /// The number of the body's stream.
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }
}
