//! Chunk rows: how an append is cut into them, and what must be true of one before its bytes are believed.
//!
//! ```text
//! append 7, 1300 KiB:   chunk 0 of 3, 512 KiB | chunk 1 of 3, 512 KiB | chunk 2 of 3, 276 KiB
//! ```
//!
//! Each row carries a CRC-32C over its stream's incarnation, its numbers and its bytes, so a row that was changed, or that
//! turned up at another place, is noticed when it is read, and no other row is affected. In a JSON stream a row also
//! tells where in it the first message begins: a window may end there.

use alluvium_protocol::{Incarnation, Offset, json::MessageEnds};

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

impl Chunk {
    /// Reads a row and checks it against itself and its checksum.
    pub(crate) fn read<'a>(
        incarnation: Incarnation,
        fields: &mut Fields<'a>,
    ) -> Result<(Chunk, &'a [u8]), Damage> {
        let (start, append_index) = (fields.number()?, fields.number()?);
        let (index, count) = (fields.number()?, fields.number()?);
        let first_message = fields.optional_number()?;
        let checksum = fields.number()?;
        let data = fields.blob()?;
        let length = data.len() as u64;
        let end = start.checked_add(length).ok_or("has a position out of range")?;
        let chunk = Chunk { start, end, append_index, index, count, first_message };
        if append_index == 0 || index >= count || length == 0 {
            return Err("contradicts itself");
        }
        if first_message.is_some_and(|at| at >= length) {
            return Err("has a message that begins elsewhere");
        }
        if u64::from(chunk.checksum(incarnation, data)) != checksum {
            return Err("does not match its checksum");
        }
        Ok((chunk, data))
    }

    /// Whether it is the last of its append.
    pub(crate) fn ends_append(&self) -> bool {
        self.index + 1 == self.count
    }

    /// CRC-32C over everything that the row says.
    pub(crate) fn checksum(&self, incarnation: Incarnation, data: &[u8]) -> u32 {
        let mut head = [0_u8; 64];
        let (identity, places) = head.split_at_mut(16);
        identity.copy_from_slice(&incarnation.0.to_le_bytes());
        let numbers = [
            self.start,
            self.end,
            self.append_index,
            self.index,
            self.count,
            self.first_message.unwrap_or(u64::MAX),
        ];
        for (place, number) in places.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        crc32c::crc32c_append(crc32c::crc32c(&head), data)
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

    fn fields(chunk: &Chunk, data: &'static [u8], checksum: u32) -> [Field<'static>; 7] {
        let integer = |value: u64| Field::Integer(i64::try_from(value).unwrap());
        [
            integer(chunk.start),
            integer(chunk.append_index),
            integer(chunk.index),
            integer(chunk.count),
            chunk.first_message.map_or(Field::Null, integer),
            integer(checksum.into()),
            Field::Blob(data),
        ]
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
        assert_eq!(Chunk::read(Incarnation(9), &mut Fields::new(&good)), Ok((chunk, &data[..])));
        assert!(Chunk::read(Incarnation(8), &mut Fields::new(&good)).is_err(), "a row of another stream");
        for column in 0..6 {
            for bit in 0..40 {
                let mut damaged = good;
                let Field::Integer(value) = damaged[column] else { panic!("column {column} is a number") };
                damaged[column] = Field::Integer(value ^ (1 << bit));
                assert!(
                    Chunk::read(Incarnation(9), &mut Fields::new(&damaged)).is_err(),
                    "column {column}, bit {bit}"
                );
            }
            let mut damaged = good;
            damaged[column] = Field::Null;
            assert!(Chunk::read(Incarnation(9), &mut Fields::new(&damaged)).is_err(), "column {column}");
        }
        let mut damaged = good;
        damaged[6] = Field::Blob(b"bytez");
        assert!(Chunk::read(Incarnation(9), &mut Fields::new(&damaged)).is_err());
    }
}
