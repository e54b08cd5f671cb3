//! Reading the archive from a row on: sealed segments, then blocks of the active one, then the newest rows in memory,
//! and then what comes. Readers pull; the archive keeps nothing for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_jss::read::block_at;
use alluvium_jss::{BlockInfo, RowRef};
use bytes::Bytes;
use tokio::runtime::Handle;

use crate::archive::Archive;
use crate::cache::{CachedBlock, Key};
use crate::error::Error;
use crate::hot::Entry;
use crate::manifest::Descriptor;
use crate::memo::FORMS;
use crate::select::Selection;
use crate::view::Active;

/// Blocks that one read looks at, at most, before it tells how far it came.
const BLOCKS_PER_READ: usize = 512;

/// A row of the archive, shared with other readers.
#[derive(Clone, Debug)]
pub struct ArchivedRow(Place);

#[derive(Clone, Debug)]
enum Place {
    Hot(Arc<Entry>),
    Block(Arc<CachedBlock>, usize),
}

impl ArchivedRow {
    /// The row.
    pub fn row(&self) -> RowRef<'_> {
        match &self.0 {
            Place::Hot(entry) => entry.row.as_ref(),
            Place::Block(cached, row) => cached.block.row(*row),
        }
    }

    /// Its number.
    pub fn seq(&self) -> u64 {
        match &self.0 {
            Place::Hot(entry) => entry.row.seq,
            Place::Block(cached, row) => cached.block.seq(*row),
        }
    }

    /// Its payload, without a copy.
    pub fn payload(&self) -> Bytes {
        match &self.0 {
            Place::Hot(entry) => entry.row.event.payload.clone(),
            Place::Block(cached, row) => cached.block.payload(*row),
        }
    }

    /// What was made from this row in this form, by this reader or by another one: made once for all of them, and kept
    /// as long as the row is in memory. What it takes counts like the row. Panics if `form` is not below [`FORMS`].
    pub fn form(&self, form: usize, make: impl FnOnce(RowRef<'_>) -> Bytes) -> Bytes {
        assert!(form < FORMS, "form {form} of {FORMS}");
        let row = self.row();
        match &self.0 {
            Place::Hot(entry) => {
                let charge = |bytes| {
                    entry.forms.fetch_add(bytes, Ordering::Relaxed);
                };
                entry.memos.get(0, form, || make(row), charge)
            }
            Place::Block(cached, number) => {
                let charge = |bytes| {
                    cached.total.fetch_add(bytes, Ordering::Relaxed);
                };
                cached.memos.get(*number, form, || make(row), charge)
            }
        }
    }
}

/// What a read gave.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Rows, in order. There may be none although the reader came further: then what it passed had none that it wants.
    pub rows: Vec<ArchivedRow>,
    /// Where the next read begins: above every row here, and above the place where this read began.
    pub next: u64,
}

/// A place in the archive. Dropping it costs nothing; so does waiting.
#[derive(Clone, Debug)]
pub struct Reader {
    archive: Archive,
    next: u64,
    selection: Option<Arc<Selection>>,
}

/// Where the next rows are.
enum Source {
    Hot(Rows),
    Files,
    End,
}

impl Reader {
    pub(crate) fn new(archive: Archive, from: u64) -> Self {
        Self { archive, next: from.max(1), selection: None }
    }

    /// Lets it pass over blocks that have no row of this selection. Rows that are not selected still come: those of the
    /// same blocks and those in memory. See [`Selection::matches`].
    pub fn select(&mut self, selection: Option<Arc<Selection>>) {
        self.selection = selection.filter(|selection| !selection.is_everything());
    }

    /// The number of the first row that it has not given.
    pub const fn position(&self) -> u64 {
        self.next
    }

    /// Goes to another place.
    pub fn seek(&mut self, to: u64) {
        self.next = to.max(1);
    }

    /// At most `max` rows; none when it is at the end. Reads files, and waits for the disk with the thread.
    pub fn read(&mut self, max: usize) -> Result<Option<Rows>, Error> {
        let rows = match self.source(max) {
            Source::Hot(rows) => rows,
            Source::Files => files(&self.archive, self.next, max.max(1), self.selection.as_deref())?,
            Source::End => return Ok(None),
        };
        self.next = rows.next;
        Ok(Some(rows))
    }

    /// At most `max` rows, as soon as there is one. Files are read on a thread of the runtime for that. Ends with the
    /// error with which the archive ends, once all rows were given.
    pub async fn next_rows(&mut self, max: usize) -> Result<Rows, Error> {
        let rows = match self.source(max) {
            Source::Hot(rows) => rows,
            Source::Files => self.read_files(max).await?,
            Source::End => {
                self.wait().await?;
                match self.source(max) {
                    Source::Hot(rows) => rows,
                    // In the meantime it has fallen behind what is in memory, or there is nothing yet.
                    _ => self.read_files(max).await?,
                }
            }
        };
        self.next = rows.next;
        Ok(rows)
    }

    async fn read_files(&self, max: usize) -> Result<Rows, Error> {
        let (archive, next, selection) = (self.archive.clone(), self.next, self.selection.clone());
        off_reactor(move || files(&archive, next, max.max(1), selection.as_deref())).await
    }

    /// Waits until there is a row at its place, or the archive ends.
    pub async fn wait(&self) -> Result<(), Error> {
        let shared = &self.archive.0.shared;
        let ready = || {
            let view = shared.view.read();
            match &view.end {
                _ if view.hot.tip() > self.next => Some(Ok(())),
                Some(end) => Some(Err(end.clone())),
                None => None,
            }
        };
        shared.changed.wait_for(ready).await
    }

    fn source(&self, max: usize) -> Source {
        let view = self.archive.0.shared.view.read();
        if self.next >= view.hot.tip() {
            return Source::End;
        }
        if self.next < view.hot.floor() {
            return Source::Files;
        }
        let entries = view.hot.rows(self.next, max.max(1));
        let next = self.next + entries.len() as u64;
        let rows = entries.into_iter().map(|entry| ArchivedRow(Place::Hot(entry))).collect();
        Source::Hot(Rows { rows, next })
    }
}

/// Runs what may wait for the disk on one of the runtime's threads for that; without a runtime, here.
async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(runtime) = Handle::try_current() else { return work() };
    match runtime.spawn_blocking(work).await {
        Ok(done) => done,
        // The task is never aborted, so it panicked: carry the panic on to whoever waits for it.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Rows from files: of the first block that can have wanted ones.
fn files(archive: &Archive, from: u64, max: usize, selection: Option<&Selection>) -> Result<Rows, Error> {
    let (manifest, active, floor) = {
        let view = archive.0.shared.view.read();
        (view.manifest.clone(), view.active.clone(), view.hot.floor())
    };
    let (mut next, mut looked_at) = (from, 0);
    while let Some(segment) = manifest.first_at(next) {
        let metadata = &segment.metadata;
        if selection.is_none_or(|selection| selection.admits_segment(metadata)) {
            let numbers = selection.and_then(|selection| selection.numbers(&metadata.collections));
            let first = metadata.blocks.partition_point(|block| block.max_seq < next);
            for number in first..metadata.blocks.len() {
                if looked_at == BLOCKS_PER_READ {
                    return Ok(Rows { rows: Vec::new(), next });
                }
                looked_at += 1;
                let info = &metadata.blocks[number];
                let wanted = match selection {
                    Some(selection) => selection.admits_block(metadata, number, numbers.as_deref()),
                    None => info.event_count > 0,
                };
                if wanted {
                    let block = sealed_block(archive, segment, number)?;
                    return Ok(rows_of(&block, next, max, info));
                }
                next = next.max(info.max_seq + 1);
            }
        }
        next = next.max(metadata.header.max_seq + 1);
    }
    if let Some(active) = active {
        let first = active.blocks.partition_point(|block| block.max_seq < next);
        for (number, info) in active.blocks.iter().enumerate().skip(first) {
            if looked_at == BLOCKS_PER_READ {
                return Ok(Rows { rows: Vec::new(), next });
            }
            looked_at += 1;
            let wanted = active.filters.get(number).zip(selection);
            if wanted.is_none_or(|(filter, selection)| selection.admits_active(filter)) {
                let block = active_block(archive, &active, number)?;
                return Ok(rows_of(&block, next, max, info));
            }
            next = next.max(info.max_seq + 1);
        }
    }
    // Whatever was here was dropped; what follows is in memory.
    Ok(Rows { rows: Vec::new(), next: next.max(floor) })
}

fn rows_of(block: &Arc<CachedBlock>, from: u64, max: usize, info: &BlockInfo) -> Rows {
    let first = block.block.first_at(from);
    let end = block.block.len().min(first.saturating_add(max));
    let rows = (first..end).map(|row| ArchivedRow(Place::Block(Arc::clone(block), row))).collect();
    let next = if end < block.block.len() { block.block.seq(end) } else { info.max_seq + 1 };
    Rows { rows, next }
}

/// A block of a sealed segment, through the cache. If another version has taken the place of the segment, that one is
/// read: it has the same blocks, with fewer rows or other times.
pub(crate) fn sealed_block(
    archive: &Archive,
    segment: &Descriptor,
    number: usize,
) -> Result<Arc<CachedBlock>, Error> {
    let key = Key { segment: segment.index, checksum: segment.header().checksum, block: number };
    archive.0.cache.get(key, || {
        let disk = &*archive.0.env.disk;
        let file = segment.open(disk)?;
        let limits = archive.0.options.read;
        let at = Error::segment(segment.index);
        if segment.is_of(&*file)? {
            return block_at(&*file, &segment.metadata.blocks[number], limits).map_err(at);
        }
        let newer = archive.refresh(segment.index)?;
        let file = newer.open(disk)?;
        block_at(&*file, &newer.metadata.blocks[number], limits).map_err(at)
    })
}

/// A block of the active segment, through the cache.
pub(crate) fn active_block(
    archive: &Archive,
    active: &Active,
    number: usize,
) -> Result<Arc<CachedBlock>, Error> {
    let key = Key { segment: active.index, checksum: 0, block: number };
    archive.0.cache.get(key, || {
        block_at(&*active.file, &active.blocks[number], archive.0.options.read)
            .map_err(Error::segment(active.index))
    })
}

impl Archive {
    /// Reads anew what a sealed segment says of itself, after another version has taken its place.
    pub fn refresh(&self, index: alluvium_jss::SegmentIndex) -> Result<Arc<Descriptor>, Error> {
        let descriptor =
            crate::manifest::describe(&*self.0.env.disk, &self.0.options.dir, index, self.0.options.read)?;
        let mut view = self.0.shared.view.write();
        view.manifest = view.manifest.with(descriptor.clone())?;
        Ok(Arc::new(descriptor))
    }
}
