//! Folding: what sealed journal segments hold becomes tables and a new checkpoint, off the path of
//! writers and readers.
//!
//! A fold reads the last checkpoint and some sealed segments and writes what recovery would make of the
//! two: a new checkpoint, and tables in which each stream's new bytes are contiguous. Tables that have
//! grown many, or that are mostly garbage, are rewritten along. Streams that are deleted and needed by no
//! fork are left out, and so are bytes that a snapshot stands for: that is how space comes back. Nothing counts before the manifest names it; then
//! the live streams are pointed at the tables and the segments are given up.

mod install;
mod needed;
mod streams;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{
    self as journal, CheckpointEnd, CheckpointError, CheckpointWriter, JournalError, Manifest, ManifestError,
    Mutation, Record, ReplayError, StreamId, Table, TableError, TableExtent, checkpoint_name, scan_segment,
};
use thiserror::Error;

use crate::engine::Inner;
use crate::fold::install::{install, remove_replaced};
use crate::fold::needed::Needed;
use crate::fold::streams::FoldedStream;
use crate::merge;
use crate::options::Durability;
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::shard::{Folded, HeldTable, Shard};
use crate::tables::{TableSet, remove_leftovers};

/// Sealed segments folded at a time: they are held in memory meanwhile.
const SEGMENTS_AT_ONCE_MAX: usize = 4;

/// About what a stream takes in a checkpoint. A fold writes the whole checkpoint anew, so it should fold at least as
/// much.
pub(crate) const CHECKPOINT_BYTES_PER_STREAM: u64 = 256;

/// Tables of bodies at which a fold looks whether some are to become one: each is a file.
const UNFOLDED_BODIES_MAX: usize = 64;

/// How many bytes of a checkpoint are written anew for the sake of one such table.
const UNFOLDED_BODY_WEIGHT: u64 = 256 * 1024;

/// Why a fold gave up. The store is as it was, but for files that the next start or fold removes.
#[derive(Debug, Error)]
pub enum FoldError {
    /// A segment could not be read, or the journal could not be sealed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A table could not be read or written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The records contradict each other.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// What a fold works on.
struct Fold<'a> {
    inner: &'a Inner,
    shard: &'a Shard,
    manifest: &'a Manifest,
    /// Records of the segments, by stream and then in order.
    records: Vec<Record>,
    /// Tables to be rewritten.
    rewritten: HashMap<u64, Arc<Table>>,
    /// Deleted streams that forks need.
    retained: HashSet<StreamId>,
    /// Streams that are durably deleted and needed by nobody, perhaps by a record that this fold does not reach.
    gone: HashSet<StreamId>,
    /// The tables of the bodies that have a record in the segments and are not known to have ended.
    bodies: HashMap<StreamId, Arc<Table>>,
    /// What of the others nobody needs, perhaps by a snapshot that this fold does not reach.
    needed: Needed,
}

impl Inner {
    /// Whether a fold of the shard is worth its while.
    pub(crate) fn fold_wanted(&self, index: usize) -> bool {
        let shard = &self.shards[index];
        let sealed = shard.segments.sealed().len();
        let segment_bytes = u64::from(shard.segments.segment_bytes());
        let streams = shard.directory.read().len() + shard.bodies.lock().len();
        let checkpoint_bytes = streams as u64 * CHECKPOINT_BYTES_PER_STREAM;
        if sealed >= self.options.fold_segments as usize && sealed as u64 * segment_bytes >= checkpoint_bytes
        {
            return true;
        }
        if !merge::choose(&shard.folded.lock().tables, self.options.table_bytes_max).is_empty() {
            return true;
        }
        let bodies = shard.unfolded_bodies.lock().len();
        if bodies >= UNFOLDED_BODIES_MAX && bodies as u64 * UNFOLDED_BODY_WEIGHT >= checkpoint_bytes {
            return sealed > 0 || self.seal(index).is_ok();
        }
        // Garbage in the current segment can only be folded once that is sealed.
        shard.has_garbage() && (sealed > 0 || self.seal(index).is_ok())
    }

    /// Seals the current segment of a shard if it holds anything.
    pub(crate) fn seal(&self, index: usize) -> Result<(), FoldError> {
        let shard = &self.shards[index];
        let mut committer = shard.committer.lock();
        if self.stopped.load(Ordering::SeqCst) {
            return Err(FoldError::Stopped);
        }
        if committer.writer.last_seq() < shard.segments.current().first_seq() {
            return Ok(());
        }
        match committer.writer.rotate() {
            Ok(_) => Ok(()),
            Err(JournalError::Full) => Err(JournalError::Full.into()),
            Err(error) => {
                drop(committer);
                self.fail(shard.index, error);
                Err(FoldError::Stopped)
            }
        }
    }

    /// Folds the oldest sealed segments of a shard, and counts it. Returns `false` if there was nothing to do.
    pub(crate) fn fold(&self, index: usize) -> Result<bool, FoldError> {
        let began_us = self.env.clock.now_us();
        let outcome = self.fold_oldest(index);
        match &outcome {
            Ok(false) => return outcome,
            Ok(true) => self.counters.folds.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.counters.folds_failed.fetch_add(1, Ordering::Relaxed),
        };
        self.counters.fold_us.observe(self.env.clock.now_us().saturating_sub(began_us));
        outcome
    }

    fn fold_oldest(&self, index: usize) -> Result<bool, FoldError> {
        let shard = &self.shards[index];
        let mut folded = shard.folded.lock();
        let mut sealed = shard.segments.sealed();
        sealed.truncate(SEGMENTS_AT_ONCE_MAX);
        let rewritten = merge::choose(&folded.tables, self.options.table_bytes_max);
        // What lies in tables alone is found out by writing the checkpoint anew: tables of much garbage go with the next fold.
        let is_worth_it = folded.manifest.checkpoint.is_some() && shard.has_garbage();
        if sealed.is_empty() && rewritten.is_empty() && !is_worth_it {
            return Ok(false);
        }
        let last = sealed.last().map_or(folded.manifest.first_segment - 1, |last| *last);
        let gone = shard.gone.lock().clone();
        let needed = self.needed(shard);
        self.sync_all_for_fold()?;
        // Looked at before the segments are read: a fork that lets go of its source meanwhile only makes
        // the next fold drop more.
        let retained = shard.retained.lock().keys().copied().collect();
        let (records, last_seq) = read_segments(shard, &sealed)?;
        let last_seq = last_seq.unwrap_or(folded.manifest.last_seq);
        self.clear_unfinished(shard, &mut folded)?;
        folded.unfinished = true;
        let born = bodies_born(&records);
        let bodies = shard.unfolded_bodies.lock().clone();
        let fold = Fold {
            inner: self,
            shard,
            manifest: &folded.manifest,
            records,
            rewritten,
            retained,
            gone,
            bodies: bodies.into_iter().filter(|(id, _)| born.contains(id)).collect(),
            needed,
        };
        let next = match fold.run(&folded.tables, last, last_seq) {
            Ok(next) => next,
            Err(error) => return Err(self.fold_failed(shard, &mut folded, error)),
        };
        shard.garbage_bytes.store(0, Ordering::Relaxed);
        install(shard, &next.changed, &next.folded.tables, last);
        shard.gone.lock().retain(|id| !fold.gone.contains(id) || next.emptied.contains(id));
        self.counters.folded_segments.fetch_add(sealed.len() as u64, Ordering::Relaxed);
        let previous = std::mem::replace(&mut *folded, next.folded);
        *shard.tables.lock() = folded.sizes();
        shard.segments.retire(last)?;
        shard.unfolded_bodies.lock().retain(|id, _| !born.contains(id));
        remove_replaced(self, shard, &previous, &folded, &born);
        Ok(true)
    }

    /// Removes the files of a fold that gave up: this one would give its own the same names.
    fn clear_unfinished(&self, shard: &Shard, folded: &mut Folded) -> Result<(), FoldError> {
        if folded.unfinished {
            remove_leftovers(self.env.disk.as_ref(), &shard.dir, &folded.manifest)
                .map_err(JournalError::from)?;
            folded.unfinished = false;
        }
        Ok(())
    }

    /// What a fold that gave up means. Before the manifest was touched it means nothing but files to be removed,
    /// at once, since the disk may be full. Otherwise nobody knows which manifest the disk has: the engine stops.
    fn fold_failed(&self, shard: &Shard, folded: &mut Folded, error: FoldError) -> FoldError {
        match error {
            FoldError::Manifest(ManifestError::Io(fault))
                if !(fault.is_full() && fault.action == "write") =>
            {
                self.fail(shard.index, fault.into());
                FoldError::Stopped
            }
            error => {
                if let Err(leftover) = self.clear_unfinished(shard, folded) {
                    tracing::warn!(error = &leftover as &dyn std::error::Error, "a failed fold left files");
                }
                error
            }
        }
    }

    /// With `Durability::Os` the journals may be behind: a fork that was deleted elsewhere, or a snapshot that was
    /// published, must be durably so before the bytes that it makes superfluous are dropped here.
    fn sync_all_for_fold(&self) -> Result<(), FoldError> {
        if self.options.durability == Durability::Fsync {
            return Ok(());
        }
        for shard in &self.shards {
            let mut committer = shard.committer.lock();
            if let Err(error) = committer.writer.sync() {
                drop(committer);
                self.fail(shard.index, error);
                return Err(FoldError::Stopped);
            }
        }
        Ok(())
    }
}

/// The bodies that the records tell of which are in tables of their own.
fn bodies_born(records: &[Record]) -> HashSet<StreamId> {
    let bodies = records.iter().filter(|record| matches!(record.mutation, Mutation::Body(_)));
    bodies.map(|record| record.stream).collect()
}

/// All records of the segments, sorted by stream; within a stream they keep their order.
fn read_segments(shard: &Shard, numbers: &[u64]) -> Result<(Vec<Record>, Option<u64>), FoldError> {
    let mut records = Vec::new();
    let mut last_seq = None;
    for number in numbers {
        // Only a fold retires segments, and there is one at a time.
        let Some(segment) = shard.segments.get(*number) else { continue };
        scan_segment(&segment, &mut |record, _| {
            records.push(record);
            Ok::<(), Inconsistent>(())
        })
        .map_err(|error| match error {
            ReplayError::Journal(error) => FoldError::Journal(error),
            ReplayError::Sink(error) => FoldError::Inconsistent(error),
        })?;
        last_seq = segment.last_seq();
    }
    // A stable sort by keys beside the records: those are large, and would each be moved many times.
    records.sort_by_cached_key(|record| record.stream);
    Ok((records, last_seq))
}

/// A fold that has been made durable.
struct Next {
    folded: Folded,
    /// Where the bytes of each stream that moved are now.
    changed: HashMap<StreamId, Vec<TableExtent>>,
    /// Streams that are gone and kept an entry without bytes, since the record of their end comes later.
    emptied: HashSet<StreamId>,
}

impl Fold<'_> {
    fn run(&self, tables: &[HeldTable], last: u64, last_seq: u64) -> Result<Next, FoldError> {
        let disk = self.inner.env.disk.as_ref();
        let mut set =
            TableSet::new(disk, self.shard, self.manifest.next_file, self.inner.options.table_bytes_max);
        self.each_stream(&mut |stream| self.copy(&stream, &mut set))?;
        let (written, next_file) = set.finish()?;
        let mut tables: Vec<HeldTable> = tables
            .iter()
            .filter(|held| !self.rewritten.contains_key(&held.table.number()))
            .map(|held| HeldTable { live_bytes: 0, ..held.clone() })
            .collect();
        let mut new_runs: HashMap<StreamId, Vec<TableExtent>> = HashMap::new();
        for table in written {
            for extent in table.runs {
                new_runs.entry(extent.0).or_default().push(extent.1);
            }
            let opened = Table::open(disk, &table.path)?;
            self.inner.counters.fold_bytes.fetch_add(opened.file_bytes(), Ordering::Relaxed);
            opened.mark_written();
            tables.push(HeldTable { table: Arc::new(opened), live_bytes: 0 });
        }
        tables.extend(self.bodies.values().map(|table| HeldTable { table: table.clone(), live_bytes: 0 }));
        tables.sort_by_key(|held| held.table.number());
        let mut changed = HashMap::new();
        let emptied = self.write_checkpoint(next_file, last_seq, &mut tables, &mut new_runs, &mut changed)?;
        // A table that nothing refers to any more needs no rewriting to be dropped.
        tables.retain(|held| held.live_bytes > 0);
        let manifest = Manifest {
            shard: self.shard.index,
            checkpoint: Some(next_file),
            tables: tables.iter().map(|held| held.table.number()).collect(),
            first_segment: last + 1,
            last_seq,
            next_file: next_file + 1,
        };
        manifest.write(disk, &self.shard.dir)?;
        Ok(Next { folded: Folded::new(manifest, tables), changed, emptied })
    }

    fn write_checkpoint(
        &self,
        number: u64,
        last_seq: u64,
        tables: &mut [HeldTable],
        new_runs: &mut HashMap<StreamId, Vec<TableExtent>>,
        changed: &mut HashMap<StreamId, Vec<TableExtent>>,
    ) -> Result<HashSet<StreamId>, FoldError> {
        let disk = self.inner.env.disk.as_ref();
        let path = self.shard.dir.join(checkpoint_name(number));
        let mut writer = CheckpointWriter::create(disk, &path, number, self.shard.segments.directory())?;
        let mut next_stream = 0;
        let mut emptied = HashSet::new();
        let now_ms = self.inner.now_ms();
        let end = self.each_stream(&mut |stream| {
            let FoldedStream { mut rebuilt, old_extents, mut moved, .. } = stream;
            next_stream = next_stream.max(rebuilt.id.counter() + 1);
            if self.is_dropped(&rebuilt) {
                return Ok(());
            }
            let mut extents: Vec<TableExtent> = old_extents
                .into_iter()
                .filter(|extent| !self.rewritten.contains_key(&extent.table))
                .collect();
            extents.extend(new_runs.remove(&rebuilt.id).unwrap_or_default());
            extents.sort_by_key(|extent| extent.start);
            let trimmed: Vec<TableExtent> =
                extents.iter().flat_map(|extent| self.needed.trimmed(rebuilt.id, *extent, tables)).collect();
            moved |= trimmed != extents;
            extents = trimmed;
            rebuilt.forget_superseded(now_ms);
            if self.gone.contains(&rebuilt.id) {
                extents.clear();
                emptied.insert(rebuilt.id);
            }
            for extent in &extents {
                if let Ok(index) = tables.binary_search_by_key(&extent.table, |held| held.table.number()) {
                    tables[index].live_bytes += extent.end.1 - extent.start.1;
                }
            }
            if moved {
                changed.insert(rebuilt.id, extents.clone());
            }
            writer.push(&rebuilt.into_entry(extents))?;
            Ok(())
        })?;
        // Ids of streams that came and went must not be given again either.
        let next_stream = next_stream.max(end.map_or(0, |end| end.next_stream));
        writer.finish(CheckpointEnd { next_stream, last_seq })?;
        Ok(emptied)
    }

    /// Whether the stream leaves nothing behind.
    fn is_dropped(&self, rebuilt: &Rebuilt) -> bool {
        rebuilt.state.deleted && !self.retained.contains(&rebuilt.id)
    }

    /// Writes a stream's moving bytes to the new tables.
    fn copy(&self, stream: &FoldedStream<'_>, set: &mut TableSet<'_>) -> Result<(), FoldError> {
        let id = stream.rebuilt.id;
        if self.is_dropped(&stream.rebuilt) || self.gone.contains(&id) {
            return Ok(());
        }
        for extent in &stream.old_extents {
            let Some(table) = self.rewritten.get(&extent.table) else { continue };
            for block in extent.first_block..extent.first_block + extent.block_count {
                let index = block as usize;
                let stored = &table.blocks()[index];
                if self.needed.is_over(id, stored.start.1, stored.end_position()) {
                    continue;
                }
                let (lengths, ends): (Vec<u32>, Vec<bool>) = table.boundaries(index)?.into_iter().unzip();
                let data = table.read_block(index)?;
                let start = table.blocks()[index].start;
                set.push(id, start, &lengths, &ends, &data)?;
            }
        }
        for record in stream.records {
            let (Mutation::Append(append) | Mutation::Create(journal::Create { body: Some(append), .. })) =
                &record.mutation
            else {
                continue;
            };
            if append.lengths.is_empty() || self.needed.is_over(id, append.start.1, append.end().1) {
                continue;
            }
            let mut ends = vec![false; append.lengths.len()];
            if let Some(last) = ends.last_mut() {
                *last = true;
            }
            set.push(id, append.start, &append.lengths, &ends, &append.data)?;
        }
        Ok(())
    }
}
