//! Checks of rows: what a row says, hashed, stands in the row, and is compared whenever the row is read.
//!
//! SQLite notices a page that makes no sense, and not one in which a bit of a value has turned. The hash is quick and guards
//! against faults of disks and memory, not against anybody who means harm: XXH3, of which 62 bits are kept. The two highest
//! bits are always the same, so that SQLite stores every check in eight bytes, and no single bit of its file makes one that
//! is missing out of one that is there.

use std::ops::Range;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use xxhash_rust::xxh3::xxh3_64;

/// How many bytes most rows come to.
const BYTES_USUAL: usize = 256;
/// Set in every check.
const MARK: u64 = 1 << 62;

/// The check of some values.
pub(crate) fn of<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> i64 {
    let mut bytes = Vec::with_capacity(BYTES_USUAL);
    for value in values {
        put(&mut bytes, value);
    }
    end(&bytes)
}

/// The check of some columns of a row, as they are.
pub(crate) fn of_columns(row: &Row<'_>, columns: Range<usize>) -> rusqlite::Result<i64> {
    let mut bytes = Vec::with_capacity(BYTES_USUAL);
    for column in columns {
        put(&mut bytes, row.get_ref(column)?);
    }
    Ok(end(&bytes))
}

/// The check of the first of some columns of a row, and of all of them.
pub(crate) fn of_first_and_all(
    row: &Row<'_>,
    first: Range<usize>,
    rest: Range<usize>,
) -> rusqlite::Result<(i64, i64)> {
    let mut bytes = Vec::with_capacity(BYTES_USUAL);
    for column in first {
        put(&mut bytes, row.get_ref(column)?);
    }
    let of_first = end(&bytes);
    for column in rest {
        put(&mut bytes, row.get_ref(column)?);
    }
    Ok((of_first, end(&bytes)))
}

/// Whether a column has this check.
pub(crate) fn is_at(row: &Row<'_>, column: usize, check: i64) -> rusqlite::Result<bool> {
    Ok(row.get_ref(column)? == ValueRef::Integer(check))
}

/// A text, or none.
pub(crate) fn text(text: Option<&str>) -> ValueRef<'_> {
    text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes()))
}

/// A number, or none. Those above what SQLite can hold don't get into a row.
pub(crate) fn number<'a>(number: Option<u64>) -> ValueRef<'a> {
    number.map_or(ValueRef::Null, |number| ValueRef::Integer(number.cast_signed()))
}

/// Bytes, or none.
pub(crate) fn blob(bytes: Option<&[u8]>) -> ValueRef<'_> {
    bytes.map_or(ValueRef::Null, ValueRef::Blob)
}

fn put(bytes: &mut Vec<u8>, value: ValueRef<'_>) {
    let mut long = |kind: u8, part: &[u8]| {
        bytes.push(kind);
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    match value {
        ValueRef::Null => bytes.push(0),
        ValueRef::Integer(number) => {
            bytes.push(1);
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        ValueRef::Real(number) => {
            bytes.push(2);
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        ValueRef::Text(text) => long(3, text),
        ValueRef::Blob(blob) => long(4, blob),
    }
}

fn end(bytes: &[u8]) -> i64 {
    ((xxh3_64(bytes) & (MARK - 1)) | MARK).cast_signed()
}
