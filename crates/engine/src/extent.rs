//! Where a stream's own bytes are: first runs of table blocks, then journal records.

use std::collections::VecDeque;
use std::sync::Arc;

use alluvium_journal::{BlockEntry, RecordPlace, Table, TableExtent};
use alluvium_protocol::Offset;

use crate::stream::offset_of;

/// The places of a stream's own bytes, in order. There are gaps where a snapshot stands for what was there.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    pub(crate) tables: Vec<TableRun>,
    pub(crate) journal: VecDeque<JournalExtent>,
}

/// Consecutive blocks of one table that hold consecutive bytes of one stream.
#[derive(Clone, Debug)]
pub(crate) struct TableRun {
    pub(crate) table: Arc<Table>,
    pub(crate) first_block: u32,
    pub(crate) block_count: u32,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
}

impl TableRun {
    /// The run that a checkpoint describes.
    pub(crate) fn new(table: Arc<Table>, extent: &TableExtent) -> Self {
        Self {
            table,
            first_block: extent.first_block,
            block_count: extent.block_count,
            start: offset_of(extent.start),
            end: offset_of(extent.end),
        }
    }

    pub(crate) fn blocks(&self) -> &[BlockEntry] {
        let first = self.first_block as usize;
        &self.table.blocks()[first..first + self.block_count as usize]
    }
}

/// The bytes of one append, in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalExtent {
    pub(crate) start: Offset,
    pub(crate) place: RecordPlace,
    /// How many messages it has.
    pub(crate) messages: u32,
}

impl JournalExtent {
    /// An append that begins at `start` and was recorded at `place`; `None` if it has no messages.
    pub(crate) fn new(start: Offset, place: RecordPlace, lengths: &[u32]) -> Option<Self> {
        let messages = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
        (messages > 0).then_some(Self { start, place, messages })
    }

    pub(crate) fn end_position(&self) -> u64 {
        self.start.position + u64::from(self.place.data_len)
    }
}

/// One extent as a reader meets it.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// A block of a table.
    Block { table: Arc<Table>, index: u32 },
    /// A record of the journal.
    Record(JournalExtent),
}

impl Extent {
    pub(crate) fn start(&self) -> Offset {
        match self {
            Self::Block { table, index } => offset_of(table.blocks()[*index as usize].start),
            Self::Record(record) => record.start,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Block { table, index } => table.blocks()[*index as usize].data_len,
            Self::Record(record) => record.place.data_len,
        }
    }

    pub(crate) fn end_position(&self) -> u64 {
        self.start().position + u64::from(self.len())
    }

    pub(crate) fn message_count(&self) -> u32 {
        match self {
            Self::Block { table, index } => table.blocks()[*index as usize].message_count,
            Self::Record(record) => record.messages,
        }
    }
}

impl Extents {
    /// The extent that holds the byte at `position`, if it is one of this stream's own.
    pub(crate) fn at(&self, position: u64) -> Option<Extent> {
        if self.tables.last().is_some_and(|last| position < last.end.position) {
            let run = &self.tables[self.tables.partition_point(|run| run.end.position <= position)];
            let block = run.blocks().partition_point(|block| block.start.1 <= position).checked_sub(1)?;
            let index = run.first_block + u32::try_from(block).ok()?;
            return Some(Extent::Block { table: run.table.clone(), index });
        }
        let index = self.journal.partition_point(|record| record.end_position() <= position);
        let record = self.journal.get(index)?;
        (record.start.position <= position).then_some(Extent::Record(*record))
    }

    /// Where the last extent starts that starts before append number `index` is complete.
    pub(crate) fn start_before(&self, index: u64) -> Option<u64> {
        let records = self.journal.partition_point(|record| record.start.append_index < index);
        if let Some(record) = records.checked_sub(1).and_then(|last| self.journal.get(last)) {
            return Some(record.start.position);
        }
        let runs = self.tables.partition_point(|run| run.start.append_index < index);
        let run = &self.tables[runs.checked_sub(1)?];
        let blocks = run.blocks().partition_point(|block| block.start.0 < index);
        run.blocks().get(blocks.checked_sub(1)?).map(|block| block.start.1)
    }

    /// Puts the result of a fold in place of what it was made from: all table runs, and the journal
    /// records up to and including `segment`.
    pub(crate) fn install(&mut self, runs: Vec<TableRun>, segment: u64) {
        self.tables = runs;
        while self.journal.front().is_some_and(|record| record.place.segment <= segment) {
            self.journal.pop_front();
        }
        self.journal.shrink_to(8);
        debug_assert!(match (self.tables.last(), self.journal.front()) {
            (Some(run), Some(record)) => run.end <= record.start,
            _ => true,
        });
    }

    /// Own bytes held, in tables and journal together.
    pub(crate) fn bytes(&self) -> u64 {
        let start = self
            .tables
            .first()
            .map(|run| run.start.position)
            .or_else(|| self.journal.front().map(|record| record.start.position));
        let end = self
            .journal
            .back()
            .map(JournalExtent::end_position)
            .or_else(|| self.tables.last().map(|run| run.end.position));
        match (start, end) {
            (Some(start), Some(end)) => end - start,
            _ => 0,
        }
    }
}
