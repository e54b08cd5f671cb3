//! A copy of a running engine's data directory, of one moment.
//!
//! For that moment the committers of all shards are held, so that none is between writing a batch and answering for it:
//! what the files hold then is what a crash would leave that loses nothing, in all shards at once. So no fork of the copy
//! lacks its source, and no stream its bucket. Only what counts is noted meanwhile; folds wait until the tables have
//! their second names. The segments of the journal, which are used again and again, are copied as far as they were
//! written; whoever holds a segment keeps its content from being recycled.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};
use alluvium_journal::{
    Format, IoFault, JournalError, ManifestError, SegmentFile, Table, checkpoint_name, segment_name,
    table_name,
};
use parking_lot::MutexGuard;
use thiserror::Error;

use crate::engine::{Engine, Inner};
use crate::shard::{Folded, Shard};

/// How many bytes are copied at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Why a copy was not made. What there is of it can go.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// What was written could not be made durable. The engine has stopped because of it.
    #[error(transparent)]
    Journal(JournalError),
    /// A manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// What a copy took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backup {
    /// Files that got a second name.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// What counts of a shard at the moment of the cut, besides what its manifest names.
struct ShardCut {
    /// Each segment, and how much of it.
    segments: Vec<(Arc<SegmentFile>, u64)>,
    /// The tables of bodies that no manifest names yet.
    bodies: Vec<Arc<Table>>,
}

impl Engine {
    /// Makes `target`, an empty folder, a data directory with everything that is acknowledged now. Blocks until that is
    /// durable, for about as long as it takes to write the journal once more; appends are held up for a moment.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; `target` is then no data directory, as its mark is written last.
    pub fn backup(&self, target: &Path) -> Result<Backup, BackupError> {
        let inner = &*self.inner;
        let disk = inner.env.disk.as_ref();
        let format = inner.directory.lock().as_ref().and_then(|directory| directory.format().copied());
        let format = format.ok_or(BackupError::Stopped)?;
        let mut backup = Backup::default();
        // Before the committers, as folds do.
        let folded: Vec<MutexGuard<'_, Folded>> =
            inner.shards.iter().map(|shard| shard.folded.lock()).collect();
        let cuts = inner.cut()?;
        for ((shard, folded), cut) in inner.shards.iter().zip(&folded).zip(&cuts) {
            backup.keep_tables(disk, shard, folded, cut, &Format::shard_dir(target, shard.index))?;
        }
        drop(folded);
        for (shard, cut) in inner.shards.iter().zip(cuts) {
            let dir = Format::shard_dir(target, shard.index);
            for (segment, used) in cut.segments {
                let to = dir.join(segment_name(segment.number()));
                let from = Original {
                    file: segment.file().as_ref(),
                    path: segment.path(),
                    used,
                    len: u64::from(segment.size()),
                };
                backup.copied_bytes += from.copy(disk, &to, &|| inner.leave_to_appends())?;
            }
            disk.sync_dir(&dir).map_err(fault("sync", &dir))?;
        }
        format.write(disk, target)?;
        Ok(backup)
    }
}

impl Inner {
    /// Notes what counts, in all shards at one moment.
    fn cut(&self) -> Result<Vec<ShardCut>, BackupError> {
        let mut committers: Vec<_> = self.shards.iter().map(|shard| shard.committer.lock()).collect();
        if self.stopped.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(BackupError::Stopped);
        }
        let mut failed = None;
        for (shard, committer) in self.shards.iter().zip(&mut committers) {
            // Already so, unless syncs are left to the system.
            if let Err(error) = committer.writer.sync() {
                failed = Some((shard.index, error));
                break;
            }
        }
        if let Some((shard, error)) = failed {
            drop(committers);
            let told = JournalError::Poisoned;
            self.fail(shard, error);
            return Err(BackupError::Journal(told));
        }
        let cut = |(shard, remaining): (&Shard, u64)| {
            let current = shard.segments.current();
            let sealed = shard.segments.sealed().into_iter().filter_map(|number| shard.segments.get(number));
            let mut segments: Vec<_> =
                sealed.map(|segment| (Arc::clone(&segment), u64::from(segment.size()))).collect();
            let used = u64::from(current.size()) - remaining;
            segments.push((current, used));
            ShardCut { segments, bodies: shard.unfolded_bodies.lock().values().cloned().collect() }
        };
        let remaining = committers.iter().map(|committer| committer.writer.remaining());
        Ok(self.shards.iter().zip(remaining).map(cut).collect())
    }
}

impl Backup {
    /// Gives second names to what never changes, and writes the manifest.
    fn keep_tables(
        &mut self,
        disk: &dyn Disk,
        shard: &Shard,
        folded: &Folded,
        cut: &ShardCut,
        dir: &Path,
    ) -> Result<(), BackupError> {
        disk.create_dir_all(dir).map_err(fault("create", dir))?;
        let named = folded.manifest.tables.iter().map(|number| table_name(*number));
        let bodies = cut.bodies.iter().map(|table| table_name(table.number()));
        let checkpoint = folded.manifest.checkpoint.map(checkpoint_name);
        for name in named.chain(bodies).chain(checkpoint) {
            self.keep(disk, &shard.dir.join(&name), &dir.join(&name))?;
        }
        Ok(folded.manifest.write(disk, dir)?)
    }

    /// A second name, or a copy where there can be none.
    fn keep(&mut self, disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), IoFault> {
        let file = disk.open(from, OpenMode::Read).map_err(fault("open", from))?;
        let len = file.len().map_err(fault("measure", from))?;
        if disk.link(from, to).is_ok() {
            self.linked_files += 1;
            self.linked_bytes += len;
        } else {
            let from = Original { file: file.as_ref(), path: from, used: len, len };
            self.copied_bytes += from.copy(disk, to, &|| ())?;
        }
        Ok(())
    }
}

/// A file that is copied.
struct Original<'a> {
    file: &'a dyn DiskFile,
    path: &'a Path,
    /// How many of its first bytes count.
    used: u64,
    len: u64,
}

impl Original<'_> {
    /// Makes a copy of the same length with what counts, durably; how many bytes were not zeros, in pieces. The zeros behind
    /// them take no space.
    fn copy(&self, disk: &dyn Disk, to: &Path, pause: &dyn Fn()) -> Result<u64, IoFault> {
        let copy = disk.open(to, OpenMode::CreateNew).map_err(fault("create", to))?;
        let mut piece = vec![0; PIECE_BYTES];
        let (mut at, mut copied) = (0, 0);
        while at < self.used {
            let length = (self.used - at).min(PIECE_BYTES as u64);
            let piece = &mut piece[..usize::try_from(length).unwrap_or(PIECE_BYTES)];
            self.file.read_exact_at(piece, at).map_err(fault("read", self.path))?;
            if piece.iter().any(|byte| *byte != 0) {
                copy.write_all_at(&[piece], at).map_err(fault("write", to))?;
                copy.write_back(at, length).map_err(fault("write", to))?;
                copied += length;
                pause();
            }
            at += length;
        }
        if copy.len().map_err(fault("measure", to))? < self.len {
            copy.write_all_at(&[&[0]], self.len - 1).map_err(fault("write", to))?;
        }
        copy.sync_all().map_err(fault("sync", to))?;
        Ok(copied)
    }
}

fn fault(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> IoFault {
    let file = file.to_owned();
    move |source| IoFault { action, file, source }
}
