//! Looking through a whole database: every checksum, and everything that rows say of each other.

use alluvium_protocol::Incarnation;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::chunk::Row;
use crate::ops::checkpoint_sum;
use crate::plan::{Field, schema};
use crate::row::Fields;

/// How much a check has looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checked {
    /// Streams, those that are kept for their forks included.
    pub streams: u64,
    /// Chunk rows.
    pub chunks: u64,
    /// Bytes in them.
    pub data_bytes: u64,
    /// Fold checkpoints.
    pub checkpoints: u64,
}

/// A stream, as far as others and its chunks depend on it.
struct Stream {
    id: i64,
    path: String,
    incarnation: Incarnation,
    tail: (u64, u64),
    cut: (u64, u64),
    children: u64,
}

/// Checks the rows of a database that nobody writes to, and tells `report` of each thing that is wrong. That SQLite finds
/// the file's structure whole is not part of it.
///
/// # Errors
///
/// What SQLite says of what it can't read.
pub fn check(connection: &Connection, report: &mut dyn FnMut(String)) -> Result<Checked, rusqlite::Error> {
    let mut checked = Checked::default();
    let format: String = connection.query_row(schema::READ_FORMAT, [], |row| row.get(0))?;
    if format != schema::FORMAT_VERSION {
        report(format!("the format is {format}, and this program knows {}", schema::FORMAT_VERSION));
        return Ok(checked);
    }
    let mut statement = connection.prepare(
        "SELECT id, path, incarnation, tail_append, tail_position, cut_append, cut_position, children, \
         (SELECT count(*) FROM streams c WHERE c.source_id = s.id), \
         source_id IS NULL OR EXISTS (SELECT 1 FROM streams p WHERE p.id = s.source_id) FROM streams s",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        checked.streams += 1;
        let (path, incarnation): (String, String) = (row.get(1)?, row.get(2)?);
        let Ok(incarnation) = incarnation.parse() else {
            report(format!("stream `{path}` has an incarnation that is none"));
            continue;
        };
        let (tail, cut) = ((row.get(3)?, row.get(4)?), (row.get(5)?, row.get(6)?));
        let stream = Stream { id: row.get(0)?, path, incarnation, tail, cut, children: row.get(7)? };
        let (forks, has_source): (u64, bool) = (row.get(8)?, row.get(9)?);
        if stream.children != forks {
            let Stream { path, children, .. } = &stream;
            report(format!("stream `{path}` counts {children} forks, and there are {forks}"));
        }
        if !has_source {
            report(format!("the source of the fork `{}` is not there", stream.path));
        }
        check_chunks(connection, &stream, &mut checked, report)?;
        check_checkpoint(connection, &stream, &mut checked, report)?;
    }
    let sql = "SELECT count(*) FROM chunks WHERE stream_id NOT IN (SELECT id FROM streams) \
               AND stream_id NOT IN (SELECT stream_id FROM garbage)";
    let strays: u64 = connection.query_row(sql, [], |row| row.get(0))?;
    if strays > 0 {
        report(format!("{strays} rows of bytes belong to no stream"));
    }
    Ok(checked)
}

fn check_chunks(
    connection: &Connection,
    stream: &Stream,
    checked: &mut Checked,
    report: &mut dyn FnMut(String),
) -> Result<(), rusqlite::Error> {
    let Stream { path, tail, cut, .. } = stream;
    let mut statement = connection.prepare_cached(
        "SELECT start_position, append_index, shape, checksum, data FROM chunks WHERE stream_id = ?1 \
         ORDER BY start_position",
    )?;
    let mut rows = statement.query([stream.id])?;
    let (mut append, mut position) = *cut;
    while let Some(row) = rows.next()? {
        let mut fields = [Field::Null; 5];
        for (at, field) in fields.iter_mut().enumerate() {
            *field = match row.get_ref(at)? {
                ValueRef::Integer(value) => Field::Integer(value),
                ValueRef::Blob(bytes) => Field::Blob(bytes),
                ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) => Field::Null,
            };
        }
        checked.chunks += 1;
        let chunk = match Row::read(&mut Fields::new(&fields)).and_then(|row| row.check(stream.incarnation)) {
            Ok(chunk) => chunk,
            Err(what) => {
                report(format!("stream `{path}`, the row of bytes at position {position}: {what}"));
                // It says itself where it ends, if anything does.
                let Field::Blob(bytes) = fields[4] else { continue };
                position += bytes.len() as u64;
                continue;
            }
        };
        checked.data_bytes += chunk.end - chunk.start;
        if chunk.start != position {
            report(format!("stream `{path}`: its bytes {position} to {} are missing", chunk.start));
        }
        if chunk.append_index < append || chunk.append_index > tail.0 {
            report(format!("stream `{path}`: append {} is out of order", chunk.append_index));
        }
        (append, position) = (chunk.append_index, chunk.end);
    }
    if position != tail.1 {
        report(format!("stream `{path}`: its rows end at {position}, and it ends at {}", tail.1));
    }
    Ok(())
}

fn check_checkpoint(
    connection: &Connection,
    stream: &Stream,
    checked: &mut Checked,
    report: &mut dyn FnMut(String),
) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT append_index, position, format_version, chunk_count, checksum FROM checkpoints WHERE stream_id = ?1",
    )?;
    let mut rows = statement.query([stream.id])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    let numbers: [u64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
    let checksum: u64 = row.get(4)?;
    let mut statement = connection
        .prepare_cached("SELECT data FROM checkpoint_chunks WHERE stream_id = ?1 ORDER BY chunk_index")?;
    let parts: Vec<String> = statement.query_map([stream.id], |row| row.get(0))?.collect::<Result<_, _>>()?;
    checked.checkpoints += 1;
    let is_whole = parts.len() as u64 == numbers[3]
        && checkpoint_sum(stream.incarnation, numbers, &parts.concat()) == checksum;
    if !is_whole {
        report(format!("stream `{}`: its checkpoint does not match its checksum", stream.path));
    }
    Ok(())
}
