//! The body of a block: a number of rows in columns.
//!
//! First come the columns of fixed width, lengths included, then the values of each variable column one after another.

mod build;

use std::ops::Range;

use bytes::Bytes;

pub use self::build::BlockBuilder;
use crate::error::{Damage, Field};
use crate::event::{Event, Kind, Row};

/// The most rows that a reader takes in one block.
pub const ROWS_MAX: u32 = 1 << 18;

const COUNT_BYTES: usize = 4;
/// What a row has in the columns of fixed width.
const FIXED_BYTES: usize = 8 + 8 + 8 + 1 + 1 + 2 + 1 + 1 + 4;

/// The columns of variable width, in their order, with the width of their length.
const VARIABLE: [(Field, usize); 5] =
    [(Field::Collection, 1), (Field::Did, 2), (Field::Rkey, 1), (Field::Rev, 1), (Field::Payload, 4)];
const COLLECTION: usize = 0;
const DID: usize = 1;
const RKEY: usize = 2;
const REV: usize = 3;
const PAYLOAD: usize = 4;

/// A row within a block, borrowed from it. The fields are those of [`Row`] and [`Event`].
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[expect(missing_docs, reason = "each is the field of `Row` or `Event` with this name")]
pub struct RowRef<'a> {
    pub seq: u64,
    pub witnessed_at: i64,
    pub indexed_at: i64,
    pub kind: Kind,
    pub did: &'a str,
    pub collection: &'a str,
    pub rkey: &'a str,
    pub rev: &'a str,
    pub payload: &'a [u8],
}

impl RowRef<'_> {
    /// What the row takes in the body of a block.
    pub const fn bytes(&self) -> usize {
        FIXED_BYTES
            + self.did.len()
            + self.collection.len()
            + self.rkey.len()
            + self.rev.len()
            + self.payload.len()
    }

    /// The time to show: the imported one, else when it was seen. Microseconds since the Unix epoch.
    pub const fn display_time(&self) -> i64 {
        if self.indexed_at == 0 { self.witnessed_at } else { self.indexed_at }
    }

    /// A row of its own.
    pub fn to_row(&self) -> Row {
        self.with_payload(Bytes::copy_from_slice(self.payload))
    }

    fn with_payload(&self, payload: Bytes) -> Row {
        let event = Event {
            witnessed_at: self.witnessed_at,
            indexed_at: self.indexed_at,
            kind: self.kind,
            did: self.did.to_owned(),
            collection: self.collection.to_owned(),
            rkey: self.rkey.to_owned(),
            rev: self.rev.to_owned(),
            payload,
        };
        Row { seq: self.seq, event }
    }
}

impl Event {
    /// This event as a row with this number.
    pub fn at(&self, seq: u64) -> RowRef<'_> {
        RowRef {
            seq,
            witnessed_at: self.witnessed_at,
            indexed_at: self.indexed_at,
            kind: self.kind,
            did: &self.did,
            collection: &self.collection,
            rkey: &self.rkey,
            rev: &self.rev,
            payload: &self.payload,
        }
    }
}

impl Row {
    /// The row, borrowed.
    pub fn as_ref(&self) -> RowRef<'_> {
        self.event.at(self.seq)
    }
}

/// A decoded block. Its rows are read where they lie.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Block {
    body: Bytes,
    rows: usize,
    /// Where the values of each row start in `body`, column by column; the last entry is where the columns end.
    starts: Vec<[u32; 5]>,
}

impl Block {
    /// Decodes the body of a block. The count is checked against the length before anything is allocated.
    pub fn decode(body: Bytes) -> Result<Self, Damage> {
        const WHAT: &str = "a block";
        let count = body.first_chunk().ok_or(Damage::Short { what: WHAT })?;
        let count = u32::from_le_bytes(*count);
        if count > ROWS_MAX {
            return Err(Damage::TooMany {
                what: "rows of a block",
                found: count.into(),
                limit: ROWS_MAX.into(),
            });
        }
        let rows = count as usize;
        if body.len() < COUNT_BYTES + rows * FIXED_BYTES {
            return Err(Damage::Short { what: WHAT });
        }
        if u32::try_from(body.len()).is_err() {
            return Err(Damage::TooMany {
                what: "bytes of a block",
                found: body.len() as u64,
                limit: u32::MAX.into(),
            });
        }
        let starts = starts(&body, rows)?;
        let block = Self { body, rows, starts };
        block.check_text()?;
        Ok(block)
    }

    /// The number of rows.
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows, as a block has all of whose rows were dropped.
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The length of its body in bytes.
    pub const fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// What it takes in memory, about, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.body.len() + self.starts.len() * size_of::<[u32; 5]>()
    }

    /// A row. Panics when there is none.
    pub fn row(&self, row: usize) -> RowRef<'_> {
        RowRef {
            seq: self.seq(row),
            witnessed_at: self.witnessed_at(row),
            indexed_at: i64::from_le_bytes(self.fixed(16, row)),
            kind: self.kind(row),
            did: self.text(DID, row),
            collection: self.text(COLLECTION, row),
            rkey: self.text(RKEY, row),
            rev: self.text(REV, row),
            payload: &self.body[self.range(PAYLOAD, row)],
        }
    }

    /// All rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowRef<'_>> + DoubleEndedIterator {
        (0..self.rows).map(|row| self.row(row))
    }

    /// A row's sequence number.
    pub fn seq(&self, row: usize) -> u64 {
        u64::from_le_bytes(self.fixed(0, row))
    }

    /// When a row was seen, in microseconds since the Unix epoch.
    pub fn witnessed_at(&self, row: usize) -> i64 {
        i64::from_le_bytes(self.fixed(8, row))
    }

    /// What a row is.
    pub fn kind(&self, row: usize) -> Kind {
        let [number] = self.fixed(24, row);
        Kind::from_number(number)
    }

    /// A row of its own, whose payload is a part of this block's memory and keeps it.
    pub fn shared_row(&self, row: usize) -> Row {
        self.row(row).with_payload(self.payload(row))
    }

    /// A row's payload, as a part of this block's memory.
    pub fn payload(&self, row: usize) -> Bytes {
        self.body.slice(self.range(PAYLOAD, row))
    }

    /// The first row whose number is at least `seq`; the number of rows when there is none.
    pub fn first_at(&self, seq: u64) -> usize {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.seq(middle) < seq {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether the numbers of its rows ascend.
    pub(crate) fn check_order(&self) -> Result<(), Damage> {
        for row in 1..self.rows {
            let (last, seq) = (self.seq(row - 1), self.seq(row));
            if seq <= last {
                return Err(Damage::Order { seq, last });
            }
        }
        Ok(())
    }

    /// The value of a fixed column that starts `offset` bytes per row into them and is `N` bytes wide.
    fn fixed<const N: usize>(&self, offset: usize, row: usize) -> [u8; N] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let at = COUNT_BYTES + offset * self.rows + row * N;
        let mut value = [0; N];
        value.copy_from_slice(&self.body[at..at + N]);
        value
    }

    fn range(&self, column: usize, row: usize) -> Range<usize> {
        self.starts[row][column] as usize..self.starts[row + 1][column] as usize
    }

    fn text(&self, column: usize, row: usize) -> &str {
        // Checked when the block was decoded, so this never gives the empty text for another one.
        std::str::from_utf8(&self.body[self.range(column, row)]).unwrap_or_default()
    }

    fn check_text(&self) -> Result<(), Damage> {
        for (column, (field, _)) in VARIABLE.into_iter().enumerate().take(PAYLOAD) {
            let all = self.starts[0][column] as usize..self.starts[self.rows][column] as usize;
            if self.body[all].is_ascii() {
                continue;
            }
            let is_text = |row| std::str::from_utf8(&self.body[self.range(column, row)]).is_ok();
            if !(0..self.rows).all(is_text) {
                return Err(Damage::Text(field));
            }
        }
        Ok(())
    }
}

/// Where the values of each row start. The columns must fill the body exactly.
fn starts(body: &[u8], rows: usize) -> Result<Vec<[u32; 5]>, Damage> {
    // Behind the kinds: the lengths.
    let mut lengths_at = COUNT_BYTES + rows * (8 + 8 + 8 + 1);
    let mut starts = vec![[0; 5]; rows + 1];
    let mut at = (COUNT_BYTES + rows * FIXED_BYTES) as u64;
    for (column, (_, width)) in VARIABLE.into_iter().enumerate() {
        for row in 0..=rows {
            // Beyond the end is refused below, before any of these numbers is used.
            starts[row][column] = u32::try_from(at).map_err(|_| Damage::Short { what: "a block" })?;
            if row < rows {
                let length = &body[lengths_at + row * width..][..width];
                at += length.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            }
        }
        lengths_at += rows * width;
    }
    match at.cmp(&(body.len() as u64)) {
        std::cmp::Ordering::Less => Err(Damage::Trailing { what: "a block" }),
        std::cmp::Ordering::Equal => Ok(starts),
        std::cmp::Ordering::Greater => Err(Damage::Short { what: "a block" }),
    }
}

#[cfg(test)]
mod tests;
