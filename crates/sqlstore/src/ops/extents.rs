//! Which streams' rows hold the bytes of a stream: its own, and in a fork, up to the cut, those of its sources.

use std::ops::ControlFlow;

use alluvium_protocol::store::StoreFault;
use alluvium_protocol::{Incarnation, Offset, StreamPath};

use crate::bounds::FORK_LEVELS_MAX;
use crate::chunk::Row;
use crate::ops::corrupt;
use crate::plan::{Param, Sql, Statement, reads};
use crate::row::{Damage, Fields, StreamRow};

/// Bytes of the stream that are rows of one stream.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    /// Whose rows they are.
    pub(crate) stream_id: i64,
    /// That stream's identity, which its rows' checksums cover.
    pub(crate) incarnation: Incarnation,
    /// Where that stream's own rows begin.
    pub(crate) from: Offset,
    /// Where the extent ends, which may be within a row.
    pub(crate) to: u64,
    /// Where that stream ends.
    pub(crate) tail: Offset,
}

/// A stream in a chain of forks.
struct Level {
    incarnation: Incarnation,
    source_id: Option<i64>,
    cut: Offset,
    tail: Offset,
}

impl Level {
    fn read(fields: &mut Fields<'_>) -> Result<Level, Damage> {
        let incarnation = fields.text()?.parse().map_err(|_| "incarnation does not parse")?;
        let source_id = fields.optional_integer()?;
        Ok(Level { incarnation, source_id, cut: fields.offset()?, tail: fields.offset()? })
    }
}

/// The extents from the one that `wanted` says yes to up to the stream's end, in order. Asked of each extent from the
/// last backwards; the first one counts as wanted in any case.
pub(crate) async fn extents<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
    wanted: impl Fn(&Extent) -> bool,
) -> Result<Vec<Extent>, StoreFault> {
    let own = Extent {
        stream_id: row.id,
        incarnation: row.incarnation,
        from: row.cut(),
        to: row.tail.position,
        tail: row.tail,
    };
    let mut found = vec![own];
    let mut source = row.fork.as_ref().map(|fork| fork.source_id);
    let mut last = own;
    let mut levels = 0;
    while let Some(stream_id) = source
        && !wanted(&last)
    {
        levels += 1;
        if levels > FORK_LEVELS_MAX {
            return Err(corrupt(path, "forks nest too deep"));
        }
        let level = load_level(sql, stream_id).await?.map_err(|what| corrupt(path, what))?;
        if level.tail.position < last.from.position {
            return Err(corrupt(path, "a fork's source does not reach to the cut"));
        }
        // A fork may part from its source before that parted from its own: then none of its bytes are in between.
        if level.cut.position < last.from.position {
            last = Extent {
                stream_id,
                incarnation: level.incarnation,
                from: level.cut,
                to: last.from.position,
                tail: level.tail,
            };
            found.push(last);
        }
        source = level.source_id;
    }
    found.reverse();
    Ok(found)
}

/// The extents from the one that holds `position`.
pub(crate) async fn from_position<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
    position: u64,
) -> Result<Vec<Extent>, StoreFault> {
    extents(sql, path, row, |extent| position >= extent.from.position).await
}

async fn load_level<S: Sql>(sql: &mut S, stream_id: i64) -> Result<Result<Level, Damage>, StoreFault> {
    let mut level = Err("the source of a fork is missing");
    let statement = Statement::new(reads::LEVEL, [Param::Integer(stream_id)]);
    sql.query(&statement, &mut |fields| {
        level = Level::read(&mut Fields::new(fields));
        ControlFlow::Break(())
    })
    .await?;
    Ok(level)
}

/// Where append `append_index` ends; `None` past the last one.
pub(crate) async fn append_end<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
    append_index: u64,
) -> Result<Option<Offset>, StoreFault> {
    if append_index == 0 {
        return Ok(Some(Offset::ZERO));
    }
    if append_index > row.tail.append_index {
        return Ok(None);
    }
    let extents = extents(sql, path, row, |extent| append_index > extent.from.append_index).await?;
    let extent = extents[0];
    let end = |position| Offset { append_index, position };
    if append_index == extent.tail.append_index {
        return Ok(Some(end(extent.tail.position)));
    }
    // It ends where the next one begins.
    let mut position = None;
    let statement = Statement::new(
        reads::APPEND_START,
        [
            Param::Integer(extent.stream_id),
            Param::from(append_index + 1),
            Param::from(extent.from.position),
            Param::from(extent.tail.position),
        ],
    );
    sql.query(&statement, &mut |fields| {
        position = Fields::new(fields).number().ok();
        ControlFlow::Break(())
    })
    .await?;
    match position {
        Some(position) if begins_append(sql, &extent, position, append_index + 1).await? => {
            Ok(Some(end(position)))
        }
        _ => Err(corrupt(path, "an append cannot be found")),
    }
}

/// Whether an append really begins there: the search believes rows without checking them.
async fn begins_append<S: Sql>(
    sql: &mut S,
    extent: &Extent,
    position: u64,
    append_index: u64,
) -> Result<bool, StoreFault> {
    let mut begins = false;
    let params = [Param::Integer(extent.stream_id), Param::from(position), Param::from(position + 1)];
    sql.query(&Statement::new(reads::CHUNKS, params), &mut |fields| {
        let chunk = Row::read(&mut Fields::new(fields)).and_then(|row| row.check(extent.incarnation));
        begins = chunk
            .is_ok_and(|chunk| (chunk.start, chunk.append_index, chunk.index) == (position, append_index, 0));
        ControlFlow::Break(())
    })
    .await?;
    Ok(begins)
}
