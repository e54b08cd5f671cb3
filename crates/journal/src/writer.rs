//! The one writer of a journal.
//!
//! It stops for good at the first write or sync that fails: after that nobody knows what the file holds, and a later
//! sync that succeeds would prove nothing. Being out of space for another segment is different: nothing was written
//! then, and the writer goes on when there is space again.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::batch::BatchBuilder;
use crate::error::{JournalError, io_fault};
use crate::replay::Replayed;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile};
use crate::segments::Segments;

/// How much memory batches are carved from at a time.
const ARENA_BYTES: usize = 256 * 1024;

/// Below this much spare capacity a batch starts in fresh memory instead.
const ARENA_REST_BYTES_MIN: usize = 4 * 1024;

/// How many bytes of zeros are put behind the last valid batch when a journal is resumed: enough to cover a batch's
/// header, in whole sectors for the disk's sake.
const CUT_BYTES: u32 = 4096;

/// How many bytes are copied at a time when a journal is resumed.
const COPY_BYTES: usize = 1024 * 1024;

/// Appends batches to the current segment.
#[derive(Debug)]
pub struct JournalWriter {
    segments: Arc<Segments>,
    current: Arc<SegmentFile>,
    /// Where the next batch goes.
    at: u32,
    last_seq: u64,
    synced_seq: u64,
    poisoned: bool,
    arena: BytesMut,
}

/// A batch that was written and not yet synced.
#[derive(Debug)]
pub struct Written {
    /// The sequence number that it got.
    pub seq: u64,
    /// The number of the segment.
    pub segment: u64,
    /// Where it starts in the file, for [`RecordPlace::resolve`](crate::RecordPlace::resolve).
    pub base: u32,
    /// Its bytes, contiguous in the file: (segment, position in the file, bytes).
    pub pieces: Vec<(u64, u32, Bytes)>,
}

/// A change of segments.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Rotated {
    /// The segment that takes no more batches.
    pub sealed: u64,
    /// The segment that does now.
    pub current: u64,
}

impl JournalWriter {
    /// The writer of a journal that was just replayed to its end; a new journal is replayed too.
    ///
    /// Before it returns, everything that the replay believed is durable, and what lies behind it can't be believed
    /// by a later one:
    ///
    /// * Batches whose sync nobody saw succeed are written again, the same bytes to the same place, and synced. A
    ///   process that died between write and sync leaves them in the page cache only, and after a sync that failed
    ///   the cache may even call them clean, so that syncing without writing would do nothing.
    /// * The name of the segment is synced, for a process that died between making it and syncing the directory. A
    ///   sync of the directory that failed may have forgotten the name for good; then the segment has no batch yet, so
    ///   one without batches gets its name anew.
    /// * The place of the next batch's header is zeroed, and so is the rest of the segment if valid headers were
    ///   found there. What else is left of a torn batch has no header, hence can't be taken for a batch.
    pub fn resume(segments: Arc<Segments>, replayed: &Replayed) -> Result<Self, JournalError> {
        let mut current = segments.current();
        assert_eq!(current.number(), replayed.segment, "the replay is of another journal");
        if replayed.end == SEGMENT_HEADER_BYTES && !segments.sealed().is_empty() {
            current = segments.begin_again(&current)?;
        }
        write_again(&current, replayed.doubtful_from, replayed.end)?;
        let cut_to =
            if replayed.headers_behind { current.size() } else { replayed.end.saturating_add(CUT_BYTES) };
        write_zeros(&current, replayed.end, cut_to.min(current.size()))?;
        current.file().sync_data().map_err(io_fault("sync", current.path()))?;
        segments.disk().sync_dir(segments.dir()).map_err(io_fault("sync", segments.dir()))?;
        Ok(Self {
            current,
            at: replayed.end,
            last_seq: replayed.last_seq,
            synced_seq: replayed.last_seq,
            poisoned: false,
            arena: BytesMut::new(),
            segments,
        })
    }

    /// An empty batch in this writer's memory: batches share allocations, and a small one keeps no large one alive
    /// for long.
    pub fn batch(&mut self) -> BatchBuilder {
        let mut arena = std::mem::take(&mut self.arena);
        if arena.capacity() < ARENA_REST_BYTES_MIN {
            arena = BytesMut::with_capacity(ARENA_BYTES);
        }
        BatchBuilder::with_buffer(arena)
    }

    /// The bytes left for a batch in the current segment.
    pub fn remaining(&self) -> u64 {
        u64::from(self.current.size() - self.at)
    }

    /// The most bytes that a batch can have, in a fresh segment.
    pub fn batch_bytes_max(&self) -> u64 {
        self.segments.batch_bytes_max()
    }

    /// The sequence number of the last batch written; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The number of the current segment.
    pub fn segment(&self) -> u64 {
        self.current.number()
    }

    /// Syncs and seals the current segment and goes on with a spare, or with a new file when there is none.
    pub fn rotate(&mut self) -> Result<Rotated, JournalError> {
        self.sync()?;
        let sealed = self.current.number();
        match self.segments.begin(sealed + 1, self.last_seq + 1) {
            Ok(segment) => self.current = segment,
            Err(JournalError::Full) => return Err(JournalError::Full),
            Err(error) => {
                self.poisoned = true;
                return Err(error);
            }
        }
        self.at = SEGMENT_HEADER_BYTES;
        Ok(Rotated { sealed, current: sealed + 1 })
    }

    /// Writes the batch with the next sequence number, without syncing. The batch must not be empty.
    pub fn write(&mut self, batch: BatchBuilder) -> Result<Written, JournalError> {
        assert!(!batch.is_empty(), "an empty batch has no place in a journal");
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        let len = batch.len();
        if len > self.remaining() {
            return Err(JournalError::BatchTooLarge { len, remaining: self.remaining() });
        }
        let (seq, base) = (self.last_seq + 1, self.at);
        let (bytes, rest) = batch.seal(seq, self.synced_seq, self.current.number(), self.current.key());
        self.arena = rest;
        let slices: Vec<&[u8]> = bytes.iter().map(|piece| &piece[..]).collect();
        if let Err(error) = self.current.file().write_all_at(&slices, u64::from(base)) {
            self.poisoned = true;
            return Err(io_fault("write", self.current.path())(error).into());
        }
        self.last_seq = seq;
        let segment = self.current.number();
        let mut pieces = Vec::with_capacity(bytes.len());
        for piece in bytes {
            let at = self.at;
            // It fits: the whole batch was compared with what remains of the segment.
            self.at += crate::codec::len_u32(piece.len());
            pieces.push((segment, at, piece));
        }
        Ok(Written { seq, segment, base, pieces })
    }

    /// Makes everything written so far durable.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        if self.synced_seq == self.last_seq {
            return Ok(());
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::SkippedSync) {
            self.synced_seq = self.last_seq;
            return Ok(());
        }
        if let Err(error) = self.current.file().sync_data() {
            self.poisoned = true;
            return Err(io_fault("sync", self.current.path())(error).into());
        }
        self.synced_seq = self.last_seq;
        Ok(())
    }
}

/// Reads a span of the segment and writes the same bytes to the same place.
fn write_again(segment: &SegmentFile, from: u32, to: u32) -> Result<(), JournalError> {
    let mut buffer = vec![0; COPY_BYTES.min((to - from) as usize)];
    for at in (from..to).step_by(COPY_BYTES) {
        let chunk = &mut buffer[..COPY_BYTES.min((to - at) as usize)];
        segment.file().read_exact_at(chunk, u64::from(at)).map_err(io_fault("read", segment.path()))?;
        segment.file().write_all_at(&[chunk], u64::from(at)).map_err(io_fault("write", segment.path()))?;
    }
    Ok(())
}

fn write_zeros(segment: &SegmentFile, from: u32, to: u32) -> Result<(), JournalError> {
    let zeros = vec![0; COPY_BYTES.min((to - from) as usize)];
    for at in (from..to).step_by(COPY_BYTES) {
        let chunk = &zeros[..COPY_BYTES.min((to - at) as usize)];
        segment.file().write_all_at(&[chunk], u64::from(at)).map_err(io_fault("write", segment.path()))?;
    }
    Ok(())
}
