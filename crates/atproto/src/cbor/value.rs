//! A document in memory.

use std::cmp::Ordering;

use crate::cid::Cid;

/// A float that is neither infinite nor NaN. Equal when the bits are, so that `-0.0` is not `0.0`.
#[derive(Debug, Clone, Copy)]
pub struct Finite(f64);

impl Finite {
    /// The number, if it is finite.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Finite {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Finite {}

/// A value of the data model. Whoever builds one by hand keeps it less deep than [`super::MAX_DEPTH`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// An integer. CBOR could hold 65 bits; the data model has signed 64 (<https://atproto.com/specs/data-model>).
    Integer(i64),
    /// Known to DAG-CBOR and not to the data model; a few records on the network hold one nevertheless.
    Float(Finite),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A map.
    Map(Map),
    /// A link to a block.
    Link(Cid),
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(*integer) } else { None }
    }

    /// The bytes, if it is bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// The link, if it is one.
    pub fn as_link(&self) -> Option<Cid> {
        if let Self::Link(cid) = self { Some(*cid) } else { None }
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }
}

/// The order of keys in a map: shorter ones first, then by bytes.
pub(super) fn key_order(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// A map: each key once, in the order of the encoding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map(Vec<(String, Value)>);

impl Map {
    /// An empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// From entries in any order; `None` if a key comes twice.
    pub fn from_entries(mut entries: Vec<(String, Value)>) -> Option<Self> {
        let in_order = |a: &(String, Value), b: &(String, Value)| key_order(a.0.as_bytes(), b.0.as_bytes());
        entries.sort_by(in_order);
        entries.is_sorted_by(|a, b| in_order(a, b) == Ordering::Less).then_some(Self(entries))
    }

    /// From entries that a reader found in order.
    pub(super) const fn from_sorted(entries: Vec<(String, Value)>) -> Self {
        Self(entries)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// Sets the value of `key` and returns the earlier one.
    pub fn insert(&mut self, key: &str, value: Value) -> Option<Value> {
        match self.find(key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key.to_owned(), value));
                None
            }
        }
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// All entries, in the order of the encoding.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| key_order(known.as_bytes(), key.as_bytes()))
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Cid> for Value {
    fn from(cid: Cid) -> Self {
        Self::Link(cid)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}
