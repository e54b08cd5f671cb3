//! Collecting rows into the body of a block.

use bytes::{BufMut, Bytes};

use crate::block::{COUNT_BYTES, FIXED_BYTES, ROWS_MAX, RowRef};
use crate::error::{Field, Refused};
use crate::event::Kind;

/// Rows on their way into a block, column by column.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    seqs: Vec<u64>,
    witnessed_at: Vec<i64>,
    indexed_at: Vec<i64>,
    kinds: Vec<u8>,
    collection_lens: Vec<u8>,
    did_lens: Vec<u16>,
    rkey_lens: Vec<u8>,
    rev_lens: Vec<u8>,
    payload_lens: Vec<u32>,
    collections: Vec<u8>,
    dids: Vec<u8>,
    rkeys: Vec<u8>,
    revs: Vec<u8>,
    payloads: Vec<u8>,
}

impl BlockBuilder {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of rows.
    pub const fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Whether there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// The length that the body has with these rows, in bytes.
    pub const fn body_bytes(&self) -> usize {
        COUNT_BYTES
            + self.seqs.len() * FIXED_BYTES
            + self.collections.len()
            + self.dids.len()
            + self.rkeys.len()
            + self.revs.len()
            + self.payloads.len()
    }

    /// Adds a row. One that does not fit changes nothing; so does one more than [`ROWS_MAX`].
    pub fn push(&mut self, row: RowRef<'_>) -> Result<(), Refused> {
        if let Kind::Unknown(number) = row.kind {
            return Err(Refused::Kind(number));
        }
        self.push_any(row)
    }

    /// Adds a row of any kind: a block that is rewritten keeps what a later version wrote.
    pub(crate) fn push_any(&mut self, row: RowRef<'_>) -> Result<(), Refused> {
        if self.len() >= ROWS_MAX as usize {
            return Err(Refused::Full);
        }
        let collection_len = length(Field::Collection, row.collection.len())?;
        let did_len = length(Field::Did, row.did.len())?;
        let rkey_len = length(Field::Rkey, row.rkey.len())?;
        let rev_len = length(Field::Rev, row.rev.len())?;
        let payload_len = length(Field::Payload, row.payload.len())?;
        self.seqs.push(row.seq);
        self.witnessed_at.push(row.witnessed_at);
        self.indexed_at.push(row.indexed_at);
        self.kinds.push(row.kind.number());
        self.collection_lens.push(collection_len);
        self.did_lens.push(did_len);
        self.rkey_lens.push(rkey_len);
        self.rev_lens.push(rev_len);
        self.payload_lens.push(payload_len);
        self.collections.extend_from_slice(row.collection.as_bytes());
        self.dids.extend_from_slice(row.did.as_bytes());
        self.rkeys.extend_from_slice(row.rkey.as_bytes());
        self.revs.extend_from_slice(row.rev.as_bytes());
        self.payloads.extend_from_slice(row.payload);
        Ok(())
    }

    /// The body with these rows.
    pub fn body(&self) -> Bytes {
        let mut body = Vec::with_capacity(self.body_bytes());
        body.put_u32_le(u32::try_from(self.len()).unwrap_or(u32::MAX));
        self.seqs.iter().for_each(|value| body.put_u64_le(*value));
        self.witnessed_at.iter().for_each(|value| body.put_i64_le(*value));
        self.indexed_at.iter().for_each(|value| body.put_i64_le(*value));
        body.put_slice(&self.kinds);
        body.put_slice(&self.collection_lens);
        self.did_lens.iter().for_each(|value| body.put_u16_le(*value));
        body.put_slice(&self.rkey_lens);
        body.put_slice(&self.rev_lens);
        self.payload_lens.iter().for_each(|value| body.put_u32_le(*value));
        for column in [&self.collections, &self.dids, &self.rkeys, &self.revs, &self.payloads] {
            body.put_slice(column);
        }
        body.into()
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.seqs.clear();
        self.witnessed_at.clear();
        self.indexed_at.clear();
        self.kinds.clear();
        self.collection_lens.clear();
        self.did_lens.clear();
        self.rkey_lens.clear();
        self.rev_lens.clear();
        self.payload_lens.clear();
        for column in
            [&mut self.collections, &mut self.dids, &mut self.rkeys, &mut self.revs, &mut self.payloads]
        {
            column.clear();
        }
    }
}

fn length<T: TryFrom<usize>>(field: Field, len: usize) -> Result<T, Refused> {
    T::try_from(len).map_err(|_| Refused::TooLong { field, len })
}
