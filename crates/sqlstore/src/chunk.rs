//! Chunk rows: how an append is cut into them, and what must be true of one before its bytes are believed.
//!
//! ```text
//! append 7, 1300 KiB:   chunk 0 of 3, 512 KiB | chunk 1 of 3, 512 KiB | chunk 2 of 3, 276 KiB
//! ```
//!
//! Each row carries a checksum over its stream's incarnation, its numbers and its bytes, so a row that was changed, or that
//! turned up at another place, is noticed when it is read, and no other row is affected. In a JSON stream a row also
//! tells where in it the first message begins: a window may end there. These numbers are one column, `shape`, since
//! reading a column costs as much as reading a hundred bytes.

use std::ops::Range;

use alluvium_protocol::{Incarnation, Offset, json::MessageEnds};

use crate::checksum::{Checksum, PIECE_BYTES};
use crate::row::{Damage, Fields};

/// The numbers of a chunk row.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of its append, from 1.
    pub(crate) append_index: u64,
    /// Its place in the append, from 0.
    pub(crate) index: u64,
    /// Chunks of the append.
    pub(crate) count: u64,
    /// JSON: where in the row the first message begins, if one does.
    pub(crate) first_message: Option<u64>,
}

/// Bits of a `shape` for the chunk's place in its append, and as many for the number of chunks.
const COUNT_BITS: u32 = 12;

/// A chunk row as it was read, of which nothing is believed yet.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row<'a> {
    chunk: Chunk,
    checksum: u64,
    data: &'a [u8],
}

impl<'a> Row<'a> {
    /// Reads a row and checks it against itself.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Row<'a>, Damage> {
        let (start, append_index) = (fields.number()?, fields.number()?);
        let shape = fields.number()?;
        let checksum = fields.number()?;
        let data = fields.blob()?;
        let length = data.len() as u64;
        let end = start.checked_add(length).ok_or("has a position out of range")?;
        let (index, count) = (shape & ((1 << COUNT_BITS) - 1), shape >> COUNT_BITS & ((1 << COUNT_BITS) - 1));
        let first_message = (shape >> (2 * COUNT_BITS)).checked_sub(1);
        let chunk = Chunk { start, end, append_index, index, count, first_message };
        if append_index == 0 || index >= count || length == 0 {
            return Err("contradicts itself");
        }
        if first_message.is_some_and(|at| at >= length) {
            return Err("has a message that begins elsewhere");
        }
        Ok(Row { chunk, checksum, data })
    }

    /// What the row says of itself.
    pub(crate) fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Checks the row against its checksum.
    pub(crate) fn check(&self, incarnation: Incarnation) -> Result<Chunk, Damage> {
        self.copy(incarnation, 0..0, &mut Vec::new())
    }

    /// Checks the row against its checksum, and appends a range of its bytes to `into`: garbage if it does not match.
    pub(crate) fn copy(
        &self,
        incarnation: Incarnation,
        range: Range<usize>,
        into: &mut Vec<u8>,
    ) -> Result<Chunk, Damage> {
        let mut checksum = self.chunk.head(incarnation);
        let mut from = 0;
        for piece in self.data.chunks(PIECE_BYTES) {
            checksum = checksum.with_piece(piece);
            let wanted = range.start.max(from)..range.end.min(from + piece.len());
            if wanted.start < wanted.end {
                into.extend_from_slice(&piece[wanted.start - from..wanted.end - from]);
            }
            from += piece.len();
        }
        if checksum.value() == self.checksum { Ok(self.chunk) } else { Err("does not match its checksum") }
    }
}

impl Chunk {
    /// Whether it is the last of its append.
    pub(crate) fn ends_append(&self) -> bool {
        self.index + 1 == self.count
    }

    /// The numbers that one column has: its place, how many chunks there are, where the first message begins.
    pub(crate) fn shape(&self) -> u64 {
        debug_assert!(self.count < 1 << COUNT_BITS, "an append has few chunks");
        self.index | self.count << COUNT_BITS | self.first_message.map_or(0, |at| at + 1) << (2 * COUNT_BITS)
    }

    /// A checksum of everything that the row says.
    pub(crate) fn checksum(&self, incarnation: Incarnation, data: &[u8]) -> u64 {
        self.head(incarnation).with(data).value()
    }

    fn head(&self, incarnation: Incarnation) -> Checksum {
        let mut head = [0_u8; 40];
        let (identity, places) = head.split_at_mut(16);
        identity.copy_from_slice(&incarnation.0.to_le_bytes());
        for (place, number) in places.chunks_exact_mut(8).zip([self.start, self.append_index, self.shape()]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        Checksum::of(&head)
    }
}

/// An append as chunk rows.
#[derive(Clone, Debug)]
pub(crate) struct Cut<'d> {
    data: &'d [u8],
    chunk_bytes_max: usize,
    start: Offset,
    /// JSON: positions in `data` where messages begin, first of each chunk only.
    first_messages: Option<Vec<Option<u64>>>,
}

impl<'d> Cut<'d> {
    /// Cuts `data`, which begins at `start`.
    pub(crate) fn new(data: &'d [u8], chunk_bytes_max: u64, start: Offset, is_json: bool) -> Self {
        let chunk_bytes_max = usize::try_from(chunk_bytes_max).unwrap_or(usize::MAX).max(1);
        let first_messages = is_json.then(|| first_messages(data, chunk_bytes_max));
        Self { data, chunk_bytes_max, start, first_messages }
    }

    /// The rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Chunk, &'d [u8])> + '_ {
        let count = self.data.len().div_ceil(self.chunk_bytes_max) as u64;
        let mut start = self.start.position;
        self.data.chunks(self.chunk_bytes_max).enumerate().map(move |(index, bytes)| {
            let end = start + bytes.len() as u64;
            let chunk = Chunk {
                start,
                end,
                append_index: self.start.append_index + 1,
                index: index as u64,
                count,
                first_message: self.first_messages.as_ref().and_then(|found| found[index]),
            };
            start = end;
            (chunk, bytes)
        })
    }
}

/// For each chunk, where in it the first message begins.
fn first_messages(data: &[u8], chunk_bytes_max: usize) -> Vec<Option<u64>> {
    let mut found = vec![None; data.len().div_ceil(chunk_bytes_max)];
    if let Some(first) = found.first_mut() {
        *first = Some(0);
    }
    if found.len() > 1 {
        let mut ends = MessageEnds::default();
        for (at, &byte) in data.iter().enumerate() {
            let next = at + 1;
            if ends.push(byte) && next < data.len() {
                let place = &mut found[next / chunk_bytes_max];
                place.get_or_insert((next % chunk_bytes_max) as u64);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use alluvium_protocol::json::flatten;

    use super::*;
    use crate::plan::Field;

    fn fields(chunk: &Chunk, data: &'static [u8], checksum: u64) -> [Field<'static>; 5] {
        let integer = |value: u64| Field::Integer(i64::try_from(value).unwrap());
        [
            integer(chunk.start),
            integer(chunk.append_index),
            integer(chunk.shape()),
            integer(checksum),
            Field::Blob(data),
        ]
    }

    fn read(incarnation: Incarnation, fields: &[Field<'_>]) -> Result<Chunk, Damage> {
        Row::read(&mut Fields::new(fields))?.check(incarnation)
    }

    #[test]
    fn an_append_becomes_full_chunks_and_a_rest() {
        let data = [7_u8; 10];
        let cut = Cut::new(&data, 4, Offset::new(2, 100), false);
        let rows: Vec<_> =
            cut.rows().map(|(chunk, bytes)| (chunk.start, chunk.end, chunk.index, bytes.len())).collect();
        assert_eq!(rows, [(100, 104, 0, 4), (104, 108, 1, 4), (108, 110, 2, 2)]);
        assert!(cut.rows().all(|(chunk, _)| chunk.append_index == 3 && chunk.count == 3));
    }

    #[test]
    fn chunks_of_json_tell_where_a_message_begins() {
        // Stored: `"aa,a",1,22,[3,3],` — messages begin at 0, 7, 9 and 12.
        let stored = flatten(br#"["aa,a",1,22,[3,3]]"#).unwrap().bytes;
        let cut = Cut::new(&stored, 4, Offset::ZERO, true);
        let found: Vec<_> = cut.rows().map(|(chunk, _)| chunk.first_message).collect();
        assert_eq!(found, [Some(0), Some(3), Some(1), Some(0), None]);
    }

    #[test]
    fn every_number_and_every_byte_of_a_row_is_checked() {
        let data = b"bytes";
        let chunk = Chunk { start: 40, end: 45, append_index: 3, index: 1, count: 2, first_message: Some(2) };
        let good = fields(&chunk, data, chunk.checksum(Incarnation(9), data));
        assert_eq!(read(Incarnation(9), &good), Ok(chunk));
        assert!(read(Incarnation(8), &good).is_err(), "a row of another stream");
        for column in 0..4 {
            for bit in 0..64 {
                let mut damaged = good;
                let Field::Integer(value) = damaged[column] else { panic!("column {column} is a number") };
                damaged[column] = Field::Integer(value ^ (1 << bit));
                assert!(read(Incarnation(9), &damaged).is_err(), "column {column}, bit {bit}");
            }
            let mut damaged = good;
            damaged[column] = Field::Null;
            assert!(read(Incarnation(9), &damaged).is_err(), "column {column}");
        }
        for damage in [&b"bytez"[..], b"byte", b"bytes!", b""] {
            let mut damaged = good;
            damaged[4] = Field::Blob(damage);
            assert!(read(Incarnation(9), &damaged).is_err(), "{damage:?}");
        }
    }

    #[test]
    fn any_range_of_a_row_is_copied_and_all_of_it_is_checked() {
        let data: &'static [u8] =
            b"0123456789abc".iter().copied().cycle().take(PIECE_BYTES * 2 + 5).collect::<Vec<_>>().leak();
        let end = data.len() as u64;
        let chunk = Chunk { start: 0, end, append_index: 1, index: 0, count: 1, first_message: None };
        let good = fields(&chunk, data, chunk.checksum(Incarnation(9), data));
        let row = Row::read(&mut Fields::new(&good)).unwrap();
        let places = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, data.len()];
        for from in places {
            for to in places.into_iter().filter(|to| *to >= from) {
                let mut into = b"before".to_vec();
                assert_eq!(row.copy(Incarnation(9), from..to, &mut into), Ok(chunk));
                assert_eq!(into, [b"before", &data[from..to]].concat());
                assert!(row.copy(Incarnation(8), from..to, &mut into).is_err());
            }
        }
    }
}
