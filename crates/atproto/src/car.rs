//! CAR version 1: blocks with their CIDs, as repositories and commits are exchanged
//! (<https://ipld.io/specs/transport/car/carv1/>).
//!
//! A file is complete or refused: every section whole, every block what its CID says, nothing behind the last one.
//! A file that was cut between two blocks looks whole here; [`crate::repo`] sees that blocks are missing.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use thiserror::Error;

use crate::cbor::{CborError, Map, Reader, Value, Writer};
use crate::cid::Cid;

/// The longest header, in bytes: room for 64 roots.
const MAX_HEADER: u64 = 4096;

/// What a file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The whole file, in bytes.
    pub bytes: usize,
    /// One block, in bytes.
    pub block_bytes: usize,
    /// Blocks, repeated ones counted each time.
    pub blocks: usize,
}

impl Limits {
    /// The blocks of one commit on the network: 2,000,000 bytes (`com.atproto.sync.subscribeRepos`), blocks of 1 MiB.
    pub const COMMIT: Self = Self { bytes: 2_000_000, block_bytes: 1 << 20, blocks: 50_000 };
    /// A whole repository: 1 GiB, blocks of 1 MiB, ten million of them.
    pub const REPO: Self = Self { bytes: 1 << 30, block_bytes: 1 << 20, blocks: 10_000_000 };
}

/// Why a file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CarError {
    /// Longer than the limit, in whole or in one block, or too many blocks.
    #[error("the file is larger than allowed")]
    Limit,
    /// It ends within a length, a CID or a block.
    #[error("the file ends within a section")]
    End,
    /// A length is not an unsigned varint in its shortest form, or shorter than a CID.
    #[error("a section has an invalid length")]
    Length,
    /// The header is not DAG-CBOR.
    #[error("the header is no DAG-CBOR, {0}")]
    Header(#[from] CborError),
    /// The header is not that of version 1 with a list of roots.
    #[error("the header is not that of version 1")]
    Version,
    /// The CID of a block has another form than those of repositories.
    #[error("a block has an unknown kind of CID")]
    Cid,
    /// A block is not what its CID says.
    #[error("the block {0} has another content")]
    Content(Cid),
}

/// Where blocks come from.
pub trait Blocks {
    /// The block, if it is there. It is what the CID says.
    fn block(&self, cid: &Cid) -> Option<&[u8]>;
}

impl Blocks for BTreeMap<Cid, Vec<u8>> {
    fn block(&self, cid: &Cid) -> Option<&[u8]> {
        self.get(cid).map(Vec::as_slice)
    }
}

/// A file that was read.
#[derive(Debug, Clone)]
pub struct Car {
    roots: Vec<Cid>,
    file: Bytes,
    blocks: BTreeMap<Cid, Range<usize>>,
}

impl Car {
    /// Reads a whole file. The blocks stay where they are in `file`.
    pub fn read(file: Bytes, limits: &Limits) -> Result<Self, CarError> {
        let mut sections = Sections::new(&file, *limits)?;
        let roots = std::mem::take(&mut sections.roots);
        let mut blocks = BTreeMap::new();
        while let Some((cid, range)) = sections.next()? {
            blocks.insert(cid, range);
        }
        Ok(Self { roots, file, blocks })
    }

    /// The roots, in the order of the header. There may be none.
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// The block as bytes that share the file.
    pub fn bytes(&self, cid: &Cid) -> Option<Bytes> {
        self.blocks.get(cid).map(|range| self.file.slice(range.clone()))
    }

    /// How many different blocks there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// All blocks, sorted by CID.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Cid, &[u8])> {
        self.blocks.iter().map(|(cid, range)| (cid, &self.file[range.clone()]))
    }
}

impl Blocks for Car {
    fn block(&self, cid: &Cid) -> Option<&[u8]> {
        self.file.get(self.blocks.get(cid)?.clone())
    }
}

/// The sections behind the header, one after the other.
struct Sections<'a> {
    file: &'a [u8],
    at: usize,
    limits: Limits,
    roots: Vec<Cid>,
    seen: usize,
}

impl<'a> Sections<'a> {
    fn new(file: &'a [u8], limits: Limits) -> Result<Self, CarError> {
        if file.len() > limits.bytes {
            return Err(CarError::Limit);
        }
        let mut sections = Self { file, at: 0, limits, roots: Vec::new(), seen: 0 };
        let len = sections.varint()?;
        if len > MAX_HEADER {
            return Err(CarError::Limit);
        }
        let header = sections.take(len)?;
        sections.roots = roots(&file[header])?;
        Ok(sections)
    }

    fn next(&mut self) -> Result<Option<(Cid, Range<usize>)>, CarError> {
        if self.at == self.file.len() {
            return Ok(None);
        }
        let len = self.varint()?;
        let len = len.checked_sub(Cid::LEN as u64).ok_or(CarError::Length)?;
        if len > self.limits.block_bytes as u64 || self.seen == self.limits.blocks {
            return Err(CarError::Limit);
        }
        self.seen += 1;
        let cid = self.take(Cid::LEN as u64)?;
        let cid = Cid::from_bytes(&self.file[cid]).map_err(|_| CarError::Cid)?;
        let block = self.take(len)?;
        if !cid.names(&self.file[block.clone()]) {
            return Err(CarError::Content(cid));
        }
        Ok(Some((cid, block)))
    }

    fn take(&mut self, len: u64) -> Result<Range<usize>, CarError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let end = end.filter(|end| *end <= self.file.len()).ok_or(CarError::End)?;
        Ok(std::mem::replace(&mut self.at, end)..end)
    }

    fn varint(&mut self) -> Result<u64, CarError> {
        let mut number = 0_u64;
        // Nine bytes, as the specification of unsigned varints allows at most.
        for shift in (0..63).step_by(7) {
            let at = self.take(1)?.start;
            let byte = self.file[at];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(number) } else { Err(CarError::Length) };
            }
        }
        Err(CarError::Length)
    }
}

/// `{"roots": [link…], "version": 1}`.
fn roots(header: &[u8]) -> Result<Vec<Cid>, CarError> {
    let mut reader = Reader::new(header);
    let value = reader.value()?;
    reader.finish()?;
    let field = |key| value.as_map().and_then(|map| map.get(key));
    let (Some(Value::Integer(1)), Some(Value::List(roots))) = (field("version"), field("roots")) else {
        return Err(CarError::Version);
    };
    roots.iter().map(Value::as_link).collect::<Option<_>>().ok_or(CarError::Version)
}

/// Writes a file of `blocks`, in their order.
pub fn write<'a>(roots: &[Cid], blocks: impl IntoIterator<Item = (&'a Cid, &'a [u8])>) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("roots", Value::List(roots.iter().map(|root| Value::Link(*root)).collect()));
    header.insert("version", Value::Integer(1));
    let mut writer = Writer::default();
    writer.value(&Value::Map(header));
    let header = writer.into_bytes();
    let mut file = Vec::new();
    write_varint(header.len(), &mut file);
    file.extend_from_slice(&header);
    for (cid, block) in blocks {
        write_varint(Cid::LEN + block.len(), &mut file);
        file.extend_from_slice(cid.as_bytes());
        file.extend_from_slice(block);
    }
    file
}

fn write_varint(mut number: usize, file: &mut Vec<u8>) {
    while number >= 0x80 {
        file.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    file.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests;
