//! A planned read, and how its bytes are fetched a piece at a time.
//!
//! However large a stored unit is, and however slow the reader: what a plan holds in memory is one piece. A unit of
//! several pieces is read once in passing to check it, and then piece by piece.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use alluvium_env::{DiskFile, FileMap};
use alluvium_journal::{SegmentFile, Table};
use alluvium_protocol::Offset;
use bytes::Bytes;

use super::READ_BYTES_MAX;
use crate::engine::Inner;
use crate::error::ReadFault;

/// Bytes of a table handed out at a time as they lie in memory, give or take a block.
const MAPPED_BYTES_MAX: u64 = 1024 * 1024;
/// Below this, reading costs less than asking what is in memory.
const MAPPED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes between two wanted parts that are read along rather than skipped.
const GAP_BYTES_MAX: u64 = 4096;
/// Units up to this many pieces are read whole.
const WHOLE_PIECES_MAX: usize = 2;

/// What one read will give: where it starts and ends, and the bytes between, still to be fetched.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct ReadPlan {
    /// Where it starts.
    pub start: Offset,
    /// Where it ends: the offset to go on from.
    pub end: Offset,
    /// Whether it ended at the tail when it was planned.
    pub at_tail: bool,
    /// Whether that tail is final.
    pub closed: bool,
    /// Bytes in all.
    pub len: u64,
    inner: Arc<Inner>,
    parts: VecDeque<Part>,
    piece_bytes: usize,
    is_patient: bool,
    gives_mapped: bool,
}

/// Consecutive bytes of a read that come from one stored unit.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) unit: Unit,
    /// The unit, if it was in memory when the read was planned.
    pub(super) memory: Option<Bytes>,
    /// Bytes at the front and the back of the unit that are not wanted.
    pub(super) trim: (u32, u32),
    /// It was found whole on the way to an earlier piece of it.
    pub(super) is_verified: bool,
}

/// Bytes that were stored with one checksum.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: Held,
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) crc: u32,
    pub(super) kind: UnitKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum UnitKind {
    /// A block of the table, by index.
    Block(usize),
    /// The data of a record in a segment, and the shard it belongs to.
    Record { shard: u16, segment: u64, data_at: u32 },
}

/// Fills a buffer from a position of a file; `false` if it did not because it would have had to wait.
type ReadAt = fn(&dyn DiskFile, &mut [u8], u64) -> io::Result<bool>;

/// A file that stays readable while a plan needs it.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Table(Arc<Table>),
    Segment(Arc<SegmentFile>),
}

impl ReadPlan {
    pub(super) fn new(inner: Arc<Inner>, from: Offset) -> Self {
        Self {
            start: from,
            end: from,
            at_tail: false,
            closed: false,
            len: 0,
            inner,
            parts: VecDeque::new(),
            piece_bytes: READ_BYTES_MAX,
            is_patient: false,
            gives_mapped: true,
        }
    }

    pub(super) fn push(&mut self, part: Part) {
        self.parts.push_back(part);
    }

    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// For a reader that may take its time: bytes in memory are looked for and copied when it is their turn, so that
    /// nothing is kept there for its sake.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        for part in &mut self.parts {
            part.memory = None;
        }
        self
    }

    /// With `is_taken` false, [`fetch_mapped`](Self::fetch_mapped) and its like give nothing: for a way to the reader on
    /// which this process looks at the bytes.
    #[must_use]
    pub fn mapped(mut self, is_taken: bool) -> Self {
        self.gives_mapped = is_taken;
        self
    }

    /// Asks for about this many bytes at a time from now on, instead of [`READ_BYTES_MAX`].
    pub fn set_piece_bytes(&mut self, bytes: usize) {
        self.piece_bytes = bytes.clamp(1, READ_BYTES_MAX);
    }

    /// Whether all bytes are held in memory, so that [`fetch`](Self::fetch) never blocks on the disk.
    pub fn in_memory(&self) -> bool {
        self.parts.iter().all(|part| part.memory.is_some())
    }

    /// The next bytes, about as many as was asked for; `None` at the end. Blocks on the disk unless
    /// [`in_memory`](Self::in_memory). Checksums are verified; after a fault the plan is over.
    pub fn fetch(&mut self) -> Option<Result<Vec<Bytes>, ReadFault>> {
        self.fetch_by(|file, buffer, at| file.read_exact_at(buffer, at).map(|()| true), usize::MAX)
    }

    /// As [`fetch`](Self::fetch), but never waits for the disk, nor reads much more than it gives: where it would
    /// have to, it returns an empty list and the plan is as before.
    pub fn fetch_cached(&mut self) -> Option<Result<Vec<Bytes>, ReadFault>> {
        self.fetch_by(|file, buffer, at| file.read_cached_at(buffer, at), WHOLE_PIECES_MAX * READ_BYTES_MAX)
    }

    /// The next blocks of a table as they lie in memory, if they are large and were checked before. They must not be
    /// looked at but only handed to a socket: see [`FileMap`]. Blocks on the disk if need be.
    pub fn fetch_mapped(&mut self) -> Option<Result<Bytes, ReadFault>> {
        self.fetch_mapped_by(|map, range| map.populate(range).map(|()| true))
    }

    /// As [`fetch_mapped`](Self::fetch_mapped), but gives nothing that is not in memory.
    pub fn fetch_mapped_cached(&mut self) -> Option<Result<Bytes, ReadFault>> {
        self.fetch_mapped_by(|map, range| Ok(map.is_resident(range)))
    }

    /// `ready` brings a range into memory, or says that this would take waiting.
    fn fetch_mapped_by(
        &mut self,
        ready: impl FnOnce(&FileMap, Range<usize>) -> io::Result<bool>,
    ) -> Option<Result<Bytes, ReadFault>> {
        let Part { unit, trim: (front, _), .. } = self.parts.front()?;
        let (file, start, front) = (unit.file.clone(), unit.at, *front);
        let Held::Table(table) = &file else { return None };
        if !self.gives_mapped {
            return None;
        }
        let (mut end, mut count, mut back) = (start, 0, 0);
        while let Some(Part { unit: Unit { file: next, at, len, kind, .. }, trim, .. }) =
            self.parts.get(count)
            && let UnitKind::Block(block) = kind
            && next.is(&file)
            && *at == end
            && table.is_verified(*block)
            && (count == 0 || trim.0 == 0 && back == 0 && *at - start < MAPPED_BYTES_MAX)
        {
            (end, back) = (end + u64::from(*len), trim.1);
            count += 1;
        }
        if end - start < MAPPED_BYTES_MIN {
            return None;
        }
        let map = table.map()?;
        let range =
            usize::try_from(start + u64::from(front)).ok()?..usize::try_from(end - u64::from(back)).ok()?;
        match ready(map, range.clone()) {
            Ok(true) => {
                self.parts.drain(..count);
                Some(Ok(map.slice(range)))
            }
            Ok(false) => None,
            Err(error) => {
                self.parts.clear();
                Some(Err(file.fault(start, &error.to_string())))
            }
        }
    }

    /// `unit_bytes_max` is the largest unit that is read through to be checked.
    fn fetch_by(&mut self, read: ReadAt, unit_bytes_max: usize) -> Option<Result<Vec<Bytes>, ReadFault>> {
        let first = self.parts.front()?;
        let is_held = first.memory.is_some();
        let (unit_bytes, is_verified) = (first.unit.len as usize, first.is_verified());
        let is_in_pieces = unit_bytes > self.piece_bytes * WHOLE_PIECES_MAX;
        let fetched = if is_held {
            Ok(self.fetch_memory())
        } else if let Some(copied) = self.copy_memory() {
            Ok(vec![copied])
        } else if !is_in_pieces {
            self.fetch_units(read)
        } else if is_verified || unit_bytes <= unit_bytes_max {
            self.fetch_piece(read)
        } else {
            Ok(Vec::new())
        };
        if fetched.is_err() {
            self.parts.clear();
        }
        Some(fetched)
    }

    fn fetch_memory(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut room = self.piece_bytes;
        while room > 0
            && let Some(part) = self.parts.front_mut()
            && let Some(memory) = &part.memory
        {
            let mut piece = trimmed(memory, part.trim);
            piece.truncate(room);
            room -= piece.len();
            if part.take(piece.len()) {
                self.parts.pop_front();
            }
            pieces.push(piece);
        }
        pieces
    }

    /// A copy of the next bytes that are in memory by now, if they are.
    fn copy_memory(&mut self) -> Option<Bytes> {
        if !self.is_patient {
            return None;
        }
        let mut buffer = None;
        let mut used = 0;
        while used < self.piece_bytes
            && let Some(part) = self.parts.front_mut()
            && let Some(memory) = part.unit.recent(&self.inner)
        {
            let buffer = buffer.get_or_insert_with(|| self.inner.buffers.take(self.piece_bytes));
            let mut piece = trimmed(&memory, part.trim);
            piece.truncate(self.piece_bytes - used);
            buffer.as_mut()[used..used + piece.len()].copy_from_slice(&piece);
            used += piece.len();
            if part.take(piece.len()) {
                self.parts.pop_front();
            }
        }
        buffer.map(|buffer| buffer.freeze().slice(..used))
    }

    /// Reads neighbouring units of one file in one go.
    fn fetch_units(&mut self, read: ReadAt) -> Result<Vec<Bytes>, ReadFault> {
        let Some(Part { unit, .. }) = self.parts.front() else { return Ok(Vec::new()) };
        let (file, start) = (unit.file.clone(), unit.at);
        let mut end = start + u64::from(unit.len);
        let mut count = 1;
        while let Some(Part { unit: Unit { file: next, at, len, .. }, memory: None, .. }) =
            self.parts.get(count)
            && next.is(&file)
            && *at >= end
            && *at - end <= GAP_BYTES_MAX
            && *at + u64::from(*len) - start <= self.piece_bytes as u64
        {
            end = *at + u64::from(*len);
            count += 1;
        }
        let mut buffer = self.inner.buffers.take(usize::try_from(end - start).unwrap_or(usize::MAX));
        if !file.read(read, buffer.as_mut(), start)? {
            return Ok(Vec::new());
        }
        let buffer = buffer.freeze();
        let mut pieces = Vec::with_capacity(count);
        for mut part in self.parts.drain(..count) {
            let from = usize::try_from(part.unit.at - start).unwrap_or(usize::MAX);
            let stored = buffer.slice(from..from + part.unit.len as usize);
            part.believe(alluvium_journal::checksum(&stored))?;
            pieces.push(trimmed(&stored, part.trim));
        }
        Ok(pieces)
    }

    /// Reads a piece of a unit that has several.
    fn fetch_piece(&mut self, read: ReadAt) -> Result<Vec<Bytes>, ReadFault> {
        let Some(part) = self.parts.front_mut() else { return Ok(Vec::new()) };
        if !part.is_verified() {
            let mut scratch = self.inner.buffers.take(READ_BYTES_MAX);
            let Some(crc) = part.unit.checksum(read, scratch.as_mut())? else { return Ok(Vec::new()) };
            part.believe(crc)?;
        }
        let wanted = part.unit.len - part.trim.0 - part.trim.1;
        let mut buffer = self.inner.buffers.take(self.piece_bytes.min(wanted as usize));
        let at = part.unit.at + u64::from(part.trim.0);
        if !part.unit.file.read(read, buffer.as_mut(), at)? {
            return Ok(Vec::new());
        }
        let piece = buffer.freeze();
        if part.take(piece.len()) {
            self.parts.pop_front();
        }
        Ok(vec![piece])
    }
}

impl Part {
    /// Moves past bytes that were handed out. Returns whether none are left.
    fn take(&mut self, bytes: usize) -> bool {
        self.trim.0 += u32::try_from(bytes).unwrap_or(u32::MAX);
        self.trim.0 + self.trim.1 == self.unit.len
    }

    fn is_verified(&self) -> bool {
        match (&self.unit.file, self.unit.kind) {
            (Held::Table(table), UnitKind::Block(block)) => table.is_verified(block),
            _ => self.is_verified,
        }
    }

    /// Compares the checksum of the unit as it was read with the one that it was stored with.
    fn believe(&mut self, crc: u32) -> Result<(), ReadFault> {
        if crc != self.unit.crc {
            return Err(self.unit.file.fault(self.unit.at, "the checksum does not match the bytes"));
        }
        if let (Held::Table(table), UnitKind::Block(block)) = (&self.unit.file, self.unit.kind) {
            table.mark_verified(block);
        }
        self.is_verified = true;
        Ok(())
    }
}

impl Unit {
    /// The unit, if it is among the bytes written last.
    fn recent(&self, inner: &Inner) -> Option<Bytes> {
        let UnitKind::Record { shard, segment, data_at } = self.kind else { return None };
        inner.shards[usize::from(shard)].recent.get(segment, data_at, self.len)
    }

    /// The checksum of the unit as it is stored, read by way of `scratch`; `None` if that would take waiting.
    fn checksum(&self, read: ReadAt, scratch: &mut [u8]) -> Result<Option<u32>, ReadFault> {
        let (mut crc, mut at, end) = (0, self.at, self.at + u64::from(self.len));
        while at < end {
            let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(scratch.len());
            let scratch = &mut scratch[..bytes];
            if !self.file.read(read, scratch, at)? {
                return Ok(None);
            }
            crc = alluvium_journal::checksum_append(crc, scratch);
            at += bytes as u64;
        }
        Ok(Some(crc))
    }
}

fn trimmed(bytes: &Bytes, (front, back): (u32, u32)) -> Bytes {
    bytes.slice(front as usize..bytes.len() - back as usize)
}

impl Held {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(a), Self::Table(b)) => Arc::ptr_eq(a, b),
            (Self::Segment(a), Self::Segment(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn read(&self, read: ReadAt, buffer: &mut [u8], at: u64) -> Result<bool, ReadFault> {
        let file = match self {
            Self::Table(table) => table.file(),
            Self::Segment(segment) => segment.file(),
        };
        read(file.as_ref(), buffer, at).map_err(|error| self.fault(at, &error.to_string()))
    }

    fn fault(&self, at: u64, what: &str) -> ReadFault {
        let path = match self {
            Self::Table(table) => table.path(),
            Self::Segment(segment) => segment.path(),
        };
        ReadFault::of(format!("`{}` at byte {at}: {what}", path.display()))
    }
}
