//! A copy of an archive that is open, of one moment, while its writer goes on.
//!
//! For that moment the writer holds still between two batches: what is pending goes into a block and into the metadata
//! store, as when an archive is closed, so that the pending log of the copy is empty. Then it is noted how far the active
//! segment goes, which segments are sealed, and the store as it is. All the rest is done while the writer goes on. A sealed
//! segment never changes: another one takes its name, whole, and either of them is one of the copy. The active one only
//! grows, but for its header, which sealing writes over; so the header is noted with the length.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use alluvium_env::{Disk, DiskFile, OpenMode};
use alluvium_jss::SegmentIndex;
use alluvium_jss::header::HEADER_BYTES;

use crate::archive::Archive;
use crate::committer::Committer;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::open::PENDING_LOG;
use crate::pending;
use crate::queue::Item;
use crate::store::{Changes, Snapshot, Store};

/// Keys of the metadata that are copied in one batch of the store.
const PAGE_KEYS: usize = 4096;
/// How many bytes of a segment are copied at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// What a copy took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Copied {
    /// The number of the row after the last one that the copy has.
    pub next_seq: u64,
    /// Its segments, the active one among them.
    pub segments: u64,
    /// Bytes of segments that got a second name and take no room of their own.
    pub linked_bytes: u64,
    /// Keys of the metadata.
    pub keys: u64,
}

/// An archive at one moment.
#[derive(Debug)]
pub(crate) struct Cut {
    manifest: Manifest,
    active: ActiveCut,
    metadata: Box<dyn Snapshot>,
    next_seq: u64,
}

/// The active segment at that moment.
#[derive(Debug)]
struct ActiveCut {
    index: SegmentIndex,
    file: Arc<dyn DiskFile>,
    header: [u8; HEADER_BYTES],
    /// Where its last durable block ends.
    end: u64,
}

/// Where the writer puts a cut. Nobody may be there any more.
pub(crate) type CutSender = SyncSender<Result<Cut, Error>>;

impl Archive {
    /// Copies the archive, as it is at a moment from now on, to the directory `dir`, and what it remembers to `store`, which
    /// is empty: an archive that is opened there has the rows before [`Copied::next_seq`], what was made durable with them,
    /// and nothing else. Every batch that was durable before is in it, none of them in part.
    ///
    /// Blocks; the writer ([`Archive::start`]) must run or be run. It is held up for as long as it takes to write a block.
    /// What is used of memory does not depend on the archive's size. Everything is durable when this returns, but the
    /// names of linked segments: syncing `dir` is up to the caller, who gives the whole its name.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] or why the archive has ended, and whatever a disk or a store refuses. What there is of the copy is
    /// then of no use. The archive itself goes on, unless its own writing has failed.
    pub fn backup(&self, dir: &Path, store: &dyn Store) -> Result<Copied, Error> {
        let (sender, receiver) = sync_channel(1);
        self.push(Item::Cut(sender))?;
        let cut = receiver.recv().map_err(|_| self.end().unwrap_or(Error::Closed))??;
        let disk = &*self.0.env.disk;
        disk.create_dir_all(dir).map_err(Error::io("creating the directory of a copy"))?;
        let mut copied = Copied { next_seq: cut.next_seq, segments: 1, ..Copied::default() };
        for segment in cut.manifest.segments.iter() {
            copied.segments += 1;
            copied.linked_bytes += link_or_copy(disk, &segment.path, &dir.join(segment.index.file_name()))?;
        }
        cut.active.copy(disk, dir)?;
        pending::begin(disk, &dir.join(PENDING_LOG), self.0.env.random.next_u64())?;
        copied.keys = copy_metadata(&*cut.metadata, store)?;
        Ok(copied)
    }
}

impl Committer {
    /// Flushes what is pending, and notes what there is.
    pub(crate) fn cut(&mut self) -> Result<Result<Cut, Error>, Error> {
        self.flush()?;
        Ok(self.note())
    }

    /// What is wrong with this is nothing that the writer has done.
    fn note(&self) -> Result<Cut, Error> {
        let writer = self.writer.as_deref().ok_or(Error::Closed)?;
        let mut header = [0; HEADER_BYTES];
        let file = Arc::clone(writer.file());
        file.read_exact_at(&mut header, 0).map_err(Error::io("reading the header of the active segment"))?;
        Ok(Cut {
            manifest: self.shared.view.read().manifest.clone(),
            active: ActiveCut { index: self.index, file, header, end: writer.end() },
            metadata: self.store.snapshot(),
            next_seq: self.next_seq,
        })
    }
}

impl ActiveCut {
    fn copy(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        let copy = disk
            .open(&dir.join(self.index.file_name()), OpenMode::CreateNew)
            .map_err(Error::io("creating the copy of a segment"))?;
        copy.write_all_at(&[&self.header], 0).map_err(Error::io("copying a segment"))?;
        copy_from(&*self.file, &*copy, HEADER_BYTES as u64, self.end)
    }
}

/// Gives a sealed segment a second name where the system can, and copies it where not; the bytes that are linked.
fn link_or_copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<u64, Error> {
    let is_linked = disk.link(from, to).is_ok();
    let file = disk.open(if is_linked { to } else { from }, OpenMode::Read);
    let file = file.map_err(Error::io("opening a segment to be copied"))?;
    let len = file.len().map_err(Error::io("asking for the length of a segment"))?;
    if is_linked {
        return Ok(len);
    }
    let copy = disk.open(to, OpenMode::CreateNew).map_err(Error::io("creating the copy of a segment"))?;
    copy_from(&*file, &*copy, 0, len)?;
    Ok(0)
}

/// Copies the bytes of a range to their place in another file, durably.
fn copy_from(file: &dyn DiskFile, copy: &dyn DiskFile, mut at: u64, end: u64) -> Result<(), Error> {
    let mut buffer = vec![0; PIECE_BYTES];
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let piece = &mut buffer[..length];
        file.read_exact_at(piece, at).map_err(Error::io("reading a segment to be copied"))?;
        copy.write_all_at(&[piece], at).map_err(Error::io("copying a segment"))?;
        at += length as u64;
    }
    copy.sync_all().map_err(Error::io("syncing the copy of a segment"))
}

/// Copies all keys, some at a time; how many there are.
fn copy_metadata(from: &dyn Snapshot, to: &dyn Store) -> Result<u64, Error> {
    let (mut keys, mut after) = (0, None);
    loop {
        let page = from.page(b"", after.as_deref(), PAGE_KEYS)?;
        let Some((last, _)) = page.last() else { return Ok(keys) };
        after = Some(last.clone());
        keys += page.len() as u64;
        to.commit(&page.into_iter().map(|(key, value)| (key, Some(value))).collect::<Changes>())?;
    }
}
