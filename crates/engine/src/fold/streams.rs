//! The streams that a fold goes through: those of the last checkpoint and of the segments, in one order.

use alluvium_journal::{
    CheckpointEnd, CheckpointReader, Mutation, Record, StreamId, TableExtent, checkpoint_name,
};

use super::{Fold, FoldError};
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::tables::whole_body;

/// One stream on its way through a fold.
pub(super) struct FoldedStream<'a> {
    pub(super) rebuilt: Rebuilt,
    /// Where its bytes were before.
    pub(super) old_extents: Vec<TableExtent>,
    /// Its records in the segments.
    pub(super) records: &'a [Record],
    /// Whether any of its bytes change place.
    pub(super) moved: bool,
}

impl Fold<'_> {
    /// Hands every stream of the checkpoint and the segments to `visit`, in ascending order of id. Returns what the
    /// checkpoint ends with.
    pub(super) fn each_stream(
        &self,
        visit: &mut dyn FnMut(FoldedStream<'_>) -> Result<(), FoldError>,
    ) -> Result<Option<CheckpointEnd>, FoldError> {
        let mut groups = self.records.chunk_by(|a, b| a.stream == b.stream).peekable();
        let mut old = self.checkpoint()?;
        let mut entry = old.as_mut().and_then(Iterator::next).transpose()?;
        loop {
            let group_id = groups.peek().map(|group| group[0].stream);
            let entry_id = entry.as_ref().map(|entry| entry.stream);
            let (rebuilt, old_extents, records) = match (entry_id, group_id) {
                (None, None) => return Ok(old.and_then(|old| old.end())),
                (Some(held), new) if new.is_none_or(|new| held <= new) => {
                    let Some(held_entry) = entry.take() else { return Ok(None) };
                    entry = old.as_mut().and_then(Iterator::next).transpose()?;
                    let (rebuilt, extents) = Rebuilt::from_entry(held_entry)?;
                    let records = if new == Some(held) { groups.next().unwrap_or_default() } else { &[] };
                    (rebuilt, extents, records)
                }
                _ => {
                    let records = groups.next().unwrap_or_default();
                    let (rebuilt, extents) = self.born(records)?;
                    (rebuilt, extents, &records[1..])
                }
            };
            let whole =
                if entry_id == Some(rebuilt.id) { records } else { group_of(&self.records, rebuilt.id) };
            visit(self.grown(rebuilt, old_extents, records, whole)?)?;
        }
    }

    /// The stream that a group of records begins, and what of it is in a table already.
    fn born(&self, records: &[Record]) -> Result<(Rebuilt, Vec<TableExtent>), Inconsistent> {
        match records.first() {
            Some(Record { stream, time_ms, mutation: Mutation::Create(create) }) => {
                Ok((Rebuilt::born(*stream, create.clone(), *time_ms).0, Vec::new()))
            }
            Some(Record { stream, time_ms, mutation: Mutation::Body(body) }) => {
                let rebuilt = Rebuilt::born_body(*stream, body.clone(), *time_ms);
                let extents = match self.bodies.get(stream) {
                    Some(table) => {
                        vec![whole_body(table, *stream, body.end).ok_or(Inconsistent::Extent(stream.0))?]
                    }
                    // After a start the table of a body that has ended is not open.
                    None if self.gone.contains(stream) || self.retained.contains(stream) => Vec::new(),
                    None => return Err(Inconsistent::Extent(stream.0)),
                };
                Ok((rebuilt, extents))
            }
            Some(record) => Err(Inconsistent::UnknownStream(record.stream.0)),
            None => Err(Inconsistent::UnknownStream(0)),
        }
    }

    /// Applies the records that follow the birth or the checkpoint.
    fn grown<'r>(
        &self,
        mut rebuilt: Rebuilt,
        old_extents: Vec<TableExtent>,
        records: &[Record],
        whole: &'r [Record],
    ) -> Result<FoldedStream<'r>, FoldError> {
        for record in records {
            rebuilt.apply(&record.mutation, record.time_ms)?;
        }
        let moved =
            !whole.is_empty() || old_extents.iter().any(|extent| self.rewritten.contains_key(&extent.table));
        Ok(FoldedStream { rebuilt, old_extents, records: whole, moved })
    }

    fn checkpoint(&self) -> Result<Option<CheckpointReader>, FoldError> {
        let Some(number) = self.manifest.checkpoint else { return Ok(None) };
        let path = self.shard.dir.join(checkpoint_name(number));
        Ok(Some(CheckpointReader::open(self.inner.env.disk.as_ref(), &path)?))
    }
}

fn group_of(records: &[Record], id: StreamId) -> &[Record] {
    let start = records.partition_point(|record| record.stream < id);
    let end = records.partition_point(|record| record.stream <= id);
    &records[start..end]
}
