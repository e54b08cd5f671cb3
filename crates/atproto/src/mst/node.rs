//! One node as a block.

use thiserror::Error;

use super::{MAX_KEY_LEN, common_prefix, height};
use crate::cbor::{CborError, Reader, Writer};
use crate::cid::Cid;

/// Why a block is not a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NodeError {
    /// Not DAG-CBOR of this shape.
    #[error("{0}")]
    Cbor(#[from] CborError),
    /// A key is stored with less or more in common with the one before it than it has.
    #[error("a key is not compressed as it must be")]
    Prefix,
    /// Keys are not in order, or one twice.
    #[error("keys out of order")]
    Order,
    /// Keys of several layers.
    #[error("keys of different layers")]
    Height,
    /// A key without bytes, or of more than [`MAX_KEY_LEN`].
    #[error("a key of an invalid length")]
    Key,
}

/// A node: entries in order, and the subtrees between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The subtree before the first entry.
    pub left: Option<Cid>,
    /// The entries, all of one layer.
    pub entries: Vec<NodeEntry>,
}

/// An entry of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The record.
    pub value: Cid,
    /// The subtree between this entry and the next.
    pub right: Option<Cid>,
}

impl Node {
    /// Reads a node. It encodes to the same block again.
    pub fn decode(block: &[u8]) -> Result<Self, NodeError> {
        let mut reader = Reader::new(block);
        let fields = reader.map()?;
        reader.key("e")?;
        let len = reader.list()?;
        // An entry with two links takes some 50 bytes, so a length that was only announced reserves little.
        let mut entries: Vec<NodeEntry> = Vec::with_capacity(len.min(block.len() / 50 + 1));
        for _ in 0..len {
            let before = entries.last().map_or(&[][..], |entry| &entry.key);
            let entry = entry(&mut reader, before)?;
            entries.push(entry);
        }
        reader.key("l")?;
        let left = reader.optional_link()?;
        // A count that is wrong shows as something missing or something that follows.
        if fields != 2 {
            return Err(NodeError::Cbor(CborError {
                at: 0,
                problem: crate::cbor::Problem::Expected("two fields"),
            }));
        }
        reader.finish()?;
        let node = Self { left, entries };
        match node.height() {
            Some(layer) if node.entries.iter().any(|entry| height(&entry.key) != layer) => {
                Err(NodeError::Height)
            }
            _ => Ok(node),
        }
    }

    /// The block.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.map(2);
        writer.text("e");
        writer.list(self.entries.len());
        let mut before: &[u8] = &[];
        for entry in &self.entries {
            let shared = common_prefix(before, &entry.key);
            writer.map(4);
            writer.text("k");
            writer.bytes(&entry.key[shared..]);
            writer.text("p");
            writer.unsigned(shared as u64);
            writer.text("t");
            writer.optional_link(entry.right.as_ref());
            writer.text("v");
            writer.link(&entry.value);
            before = &entry.key;
        }
        writer.text("l");
        writer.optional_link(self.left.as_ref());
        writer.into_bytes()
    }

    /// The layer, if there is an entry to tell it.
    pub fn height(&self) -> Option<u32> {
        self.entries.first().map(|entry| height(&entry.key))
    }
}

fn entry(reader: &mut Reader<'_>, before: &[u8]) -> Result<NodeEntry, NodeError> {
    let start = reader.position();
    if reader.map()? != 4 {
        let problem = crate::cbor::Problem::Expected("four fields");
        return Err(NodeError::Cbor(CborError { at: start, problem }));
    }
    reader.key("k")?;
    let suffix = reader.bytes()?;
    reader.key("p")?;
    let shared = usize::try_from(reader.unsigned()?).map_err(|_| NodeError::Prefix)?;
    reader.key("t")?;
    let right = reader.optional_link()?;
    reader.key("v")?;
    let value = reader.link()?;
    let prefix = before.get(..shared).ok_or(NodeError::Prefix)?;
    let key = [prefix, suffix].concat();
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(NodeError::Key);
    }
    if common_prefix(before, &key) != shared {
        return Err(NodeError::Prefix);
    }
    if key.as_slice() <= before {
        return Err(NodeError::Order);
    }
    Ok(NodeEntry { key, value, right })
}
