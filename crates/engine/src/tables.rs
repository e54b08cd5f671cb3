//! The tables that one fold writes: one after the other, each up to a size.

use std::path::{Path, PathBuf};

use alluvium_env::Disk;
use alluvium_journal::{
    IoFault, Manifest, RawOffset, ShardFile, StreamId, Table, TableError, TableExtent, TableSummary,
    TableWriter, body_table, body_table_number, checkpoint_name, table_name,
};

use crate::shard::Shard;

/// Writes tables and remembers which blocks hold which stream.
pub(crate) struct TableSet<'a> {
    disk: &'a dyn Disk,
    shard: &'a Shard,
    next_number: u64,
    table_bytes_max: u64,
    current: Option<Current>,
    written: Vec<WrittenTable>,
}

struct Current {
    writer: TableWriter,
    path: PathBuf,
    bytes: u64,
    /// Gapless spans of one stream each, in the order of the file.
    spans: Vec<Span>,
}

struct Span {
    stream: StreamId,
    start: RawOffset,
    end: RawOffset,
}

/// A finished table, synced but not named by any manifest yet.
pub(crate) struct WrittenTable {
    pub(crate) path: PathBuf,
    pub(crate) runs: Vec<(StreamId, TableExtent)>,
}

impl<'a> TableSet<'a> {
    /// Tables of a shard, numbered from `next_number`.
    pub(crate) fn new(disk: &'a dyn Disk, shard: &'a Shard, next_number: u64, table_bytes_max: u64) -> Self {
        Self { disk, shard, next_number, table_bytes_max, current: None, written: Vec::new() }
    }

    /// Adds messages of a stream, in the order of streams and positions.
    pub(crate) fn push(
        &mut self,
        stream: StreamId,
        start: RawOffset,
        lengths: &[u32],
        append_ends: &[bool],
        data: &[u8],
    ) -> Result<(), TableError> {
        #[cfg(feature = "planted-bugs")]
        let (lengths, append_ends) = &crate::planted::lose_boundary(lengths, append_ends);
        if self.current.is_none() {
            let path = self.shard.dir.join(table_name(self.next_number));
            let directory = self.shard.segments.directory();
            let writer = TableWriter::create(self.disk, &path, self.next_number, directory)?;
            self.next_number += 1;
            self.current = Some(Current { writer, path, bytes: 0, spans: Vec::new() });
        }
        if let Some(current) = &mut self.current {
            current.writer.push_messages(stream, start, lengths, append_ends, data)?;
            current.bytes += data.len() as u64;
            let appends = append_ends.iter().filter(|ends| **ends).count() as u64;
            let end = (start.0 + appends, start.1 + data.len() as u64);
            match current.spans.last_mut() {
                Some(span) if span.stream == stream && span.end == start => span.end = end,
                _ => current.spans.push(Span { stream, start, end }),
            }
            if current.bytes >= self.table_bytes_max {
                self.finish_current()?;
            }
        }
        Ok(())
    }

    fn finish_current(&mut self) -> Result<(), TableError> {
        if let Some(current) = self.current.take() {
            let runs = runs_of(&current.spans, &current.writer.finish()?);
            self.written.push(WrittenTable { path: current.path, runs });
        }
        Ok(())
    }

    /// Syncs the last table; returns all of them and the next free number.
    pub(crate) fn finish(mut self) -> Result<(Vec<WrittenTable>, u64), TableError> {
        self.finish_current()?;
        Ok((self.written, self.next_number))
    }
}

/// Removes what a fold that did not end has left: tables and checkpoints that the manifest does not name.
///
/// The manifest must be the durable one.
pub(crate) fn remove_leftovers(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Result<(), IoFault> {
    let tables = manifest.tables.iter().map(|number| table_name(*number));
    let wanted: Vec<String> = tables.chain(manifest.checkpoint.map(checkpoint_name)).collect();
    let fault = |action, file: &Path| {
        let file = file.to_owned();
        move |source| IoFault { action, file, source }
    };
    for name in disk.list(dir).map_err(fault("list", dir))? {
        if ShardFile::of(&name) == Some(ShardFile::Folded) && !wanted.contains(&name) {
            let path = dir.join(&name);
            disk.remove(&path).map_err(fault("remove", &path))?;
        }
    }
    Ok(())
}

/// The blocks that hold each span.
fn runs_of(spans: &[Span], summary: &TableSummary) -> Vec<(StreamId, TableExtent)> {
    let mut runs = Vec::with_capacity(spans.len());
    let mut blocks = summary.blocks.iter().zip(0u32..).peekable();
    for span in spans {
        let Some((_, first_block)) = blocks.peek().copied() else { break };
        let mut block_count = 0;
        while blocks.next_if(|(block, _)| block.stream == span.stream && block.start.1 < span.end.1).is_some()
        {
            block_count += 1;
        }
        let extent =
            TableExtent { table: summary.number, first_block, block_count, start: span.start, end: span.end };
        runs.push((span.stream, extent));
    }
    runs
}

/// Removes what uploads have left that did not end: tables of bodies that neither the manifest nor a record names.
pub(crate) fn remove_unpublished(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    recorded: &dyn Fn(u64) -> bool,
) -> Result<(), IoFault> {
    let fault = |action, file: &Path| {
        let file = file.to_owned();
        move |source| IoFault { action, file, source }
    };
    for name in disk.list(dir).map_err(fault("list", dir))? {
        let unwanted = body_table_number(&name)
            .is_some_and(|number| manifest.tables.binary_search(&number).is_err() && !recorded(number));
        if unwanted {
            let path = dir.join(&name);
            disk.remove(&path).map_err(fault("remove", &path))?;
        }
    }
    Ok(())
}

/// The whole of a body's own table, if it holds that body up to `end` and nothing else.
pub(crate) fn whole_body(table: &Table, body: StreamId, end: RawOffset) -> Option<TableExtent> {
    let (mut position, blocks) = (0, table.blocks());
    for block in blocks {
        if block.stream != body || block.start.1 != position {
            return None;
        }
        position = block.end_position();
    }
    let block_count = u32::try_from(blocks.len()).ok()?;
    let extent = TableExtent { table: table.number(), first_block: 0, block_count, start: (0, 0), end };
    (position == end.1 && block_count > 0 && table.number() == body_table(body)).then_some(extent)
}
