//! Reading, and what is refused.

use std::borrow::Cow;
use std::cmp::Ordering;

use thiserror::Error;

use super::value::{Finite, Map, Value, key_order};
use super::{MAX_DEPTH, MAX_VALUES};
use crate::cid::Cid;

/// Why a document was refused, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("at byte {at}: {problem}")]
pub struct CborError {
    /// The byte of the input at which the refused value begins.
    pub at: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Problem {
    /// The input ends within a value, or a length exceeds what is left.
    #[error("the input ends within a value")]
    End,
    /// Something follows the document.
    #[error("something follows the document")]
    Trailing,
    /// A length or integer takes more bytes than it needs.
    #[error("a head is longer than it needs to be")]
    NotShortest,
    /// A length is left open, or the head is of a reserved kind.
    #[error("an indefinite length or a reserved head")]
    Head,
    /// A tag other than 42, or 42 around something that is no link.
    #[error("a tag that is not a link")]
    Tag,
    /// A simple value other than false, true and null.
    #[error("an unknown simple value")]
    Simple,
    /// A float that is not of 64 bits, or not finite.
    #[error("a float that is not of 64 bits, or not finite")]
    Float,
    /// An integer beyond signed 64 bits.
    #[error("an integer beyond 64 bits")]
    Range,
    /// Text that is not UTF-8.
    #[error("text that is not UTF-8")]
    Utf8,
    /// A map key that is not text.
    #[error("a map key that is not text")]
    Key,
    /// A map key that is not after the one before it.
    #[error("map keys out of order, or one twice")]
    KeyOrder,
    /// Deeper than [`MAX_DEPTH`].
    #[error("nested too deeply")]
    Depth,
    /// More values than [`MAX_VALUES`].
    #[error("too many values")]
    Values,
    /// A value of another kind was needed here.
    #[error("expected {0}")]
    Expected(&'static str),
}

/// Reads one document, strictly.
pub fn decode(input: &[u8]) -> Result<Value, CborError> {
    whole(Reader::new(input))
}

/// Reads one document for showing it: heads may be longer than needed, map keys in any order, and what is not UTF-8
/// becomes U+FFFD, as some servers on the network write such records. The document may encode to other bytes than it
/// came from.
pub fn decode_lenient(input: &[u8]) -> Result<Value, CborError> {
    whole(Reader::lenient(input))
}

fn whole(mut reader: Reader<'_>) -> Result<Value, CborError> {
    let value = reader.value()?;
    reader.finish()?;
    Ok(value)
}

/// Reads values one after the other, and borrows bytes and text from the input.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    lenient: bool,
    /// How many more values may be read.
    values: usize,
}

/// The kind of the next value with the argument of its head.
type Head = (u8, u64);

/// A value, or the beginning of one that holds others.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(Finite),
    Bytes(&'a [u8]),
    Text(Cow<'a, str>),
    Link(Cid),
    /// That many values follow.
    List(usize),
    /// That many keys with values follow.
    Map(usize),
}

impl<'a> Reader<'a> {
    /// A strict reader at the beginning of `input`.
    pub const fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0, lenient: false, values: MAX_VALUES }
    }

    /// A reader that takes what [`decode_lenient`] takes.
    pub(crate) const fn lenient(input: &'a [u8]) -> Self {
        Self { lenient: true, ..Self::new(input) }
    }

    /// How many bytes were read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// Refuses anything that follows.
    pub fn finish(&self) -> Result<(), CborError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.problem(Problem::Trailing)) }
    }

    /// Whatever comes next, whole.
    pub fn value(&mut self) -> Result<Value, CborError> {
        self.value_at(0)
    }

    /// The length of a list.
    pub fn list(&mut self) -> Result<usize, CborError> {
        self.expect(4, "a list").and_then(|len| self.count(len, 1))
    }

    /// The number of entries of a map.
    pub fn map(&mut self) -> Result<usize, CborError> {
        self.expect(5, "a map").and_then(|len| self.count(len, 2))
    }

    /// Text.
    pub fn text(&mut self) -> Result<&'a str, CborError> {
        let start = self.at;
        let len = self.expect(3, "text")?;
        std::str::from_utf8(self.take(len)?).map_err(|_| CborError { at: start, problem: Problem::Utf8 })
    }

    /// The key `key`, as the next one of a map whose keys are known.
    pub fn key(&mut self, key: &'static str) -> Result<(), CborError> {
        let start = self.clone();
        if self.text()? == key { Ok(()) } else { Err(start.problem(Problem::Expected(key))) }
    }

    /// Bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], CborError> {
        let len = self.expect(2, "bytes")?;
        self.take(len)
    }

    /// An integer that is not negative.
    pub fn unsigned(&mut self) -> Result<u64, CborError> {
        self.expect(0, "an integer that is not negative")
    }

    /// A link.
    pub fn link(&mut self) -> Result<Cid, CborError> {
        let start = self.at;
        let tag = self.expect(6, "a link")?;
        self.link_of(tag, start)
    }

    /// A link or null.
    pub fn optional_link(&mut self) -> Result<Option<Cid>, CborError> {
        if self.rest().first() == Some(&0xf6) {
            self.at += 1;
            return Ok(None);
        }
        self.link().map(Some)
    }

    fn problem(&self, problem: Problem) -> CborError {
        CborError { at: self.at, problem }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], CborError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let taken = end.and_then(|end| self.input.get(self.at..end)).ok_or(self.problem(Problem::End))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, CborError> {
        let start = self.at;
        let problem = |problem| Err(CborError { at: start, problem });
        let first = self.take(1)?[0];
        let (major, info) = (first >> 5, first & 31);
        let len = match info {
            0..=23 => return Ok((major, info.into())),
            24..=27 => 1_usize << (info - 24),
            _ => return problem(Problem::Head),
        };
        let argument = self.take(len as u64)?.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        let least = [24, 1 << 8, 1 << 16, 1 << 32][usize::from(info - 24)];
        // The argument of a float is the number itself.
        if major != 7 && argument < least && !self.lenient {
            return problem(Problem::NotShortest);
        }
        Ok((major, argument))
    }

    fn expect(&mut self, major: u8, what: &'static str) -> Result<u64, CborError> {
        let start = self.at;
        match self.head()? {
            (found, argument) if found == major => Ok(argument),
            _ => Err(CborError { at: start, problem: Problem::Expected(what) }),
        }
    }

    /// A count of values of at least `least` bytes each, which must fit into the rest.
    fn count(&self, count: u64, least: usize) -> Result<usize, CborError> {
        usize::try_from(count)
            .ok()
            .filter(|count| count.checked_mul(least).is_some_and(|bytes| bytes <= self.rest().len()))
            .ok_or(self.problem(Problem::End))
    }

    fn link_of(&mut self, tag: u64, start: usize) -> Result<Cid, CborError> {
        let not_a_link = CborError { at: start, problem: Problem::Tag };
        if tag != 42 {
            return Err(not_a_link);
        }
        let bytes = self.bytes().map_err(|error| match error.problem {
            Problem::Expected(_) => not_a_link,
            _ => error,
        })?;
        let cid = bytes.strip_prefix(&[0]).ok_or(not_a_link)?;
        Cid::from_bytes(cid).map_err(|_| not_a_link)
    }

    /// What comes next, within `depth` lists and maps.
    pub(crate) fn item(&mut self, depth: usize) -> Result<Item<'a>, CborError> {
        let start = self.at;
        let problem = |problem| Err(CborError { at: start, problem });
        let Some(values) = self.values.checked_sub(1) else {
            return problem(Problem::Values);
        };
        self.values = values;
        let first = self.rest().first().copied().unwrap_or_default();
        let (major, argument) = self.head()?;
        if matches!(major, 4 | 5) && depth == MAX_DEPTH {
            return problem(Problem::Depth);
        }
        Ok(match (major, i64::try_from(argument)) {
            (0, Ok(integer)) => Item::Integer(integer),
            (1, Ok(complement)) => Item::Integer(!complement),
            (0 | 1, Err(_)) => return problem(Problem::Range),
            (2, _) => Item::Bytes(self.take(argument)?),
            (3, _) => Item::Text(self.text_of(argument, start)?),
            (4, _) => Item::List(self.count(argument, 1)?),
            (5, _) => Item::Map(self.count(argument, 2)?),
            (6, _) => Item::Link(self.link_of(argument, start)?),
            _ => simple(first, argument).or_else(problem)?,
        })
    }

    fn value_at(&mut self, depth: usize) -> Result<Value, CborError> {
        Ok(match self.item(depth)? {
            Item::Null => Value::Null,
            Item::Bool(bool) => Value::Bool(bool),
            Item::Integer(integer) => Value::Integer(integer),
            Item::Float(float) => Value::Float(float),
            Item::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Item::Text(text) => Value::Text(text.into_owned()),
            Item::Link(cid) => Value::Link(cid),
            Item::List(len) => {
                // Not reserved: a length may be announced and not come.
                let mut list = Vec::with_capacity(len.min(1024));
                for _ in 0..len {
                    list.push(self.value_at(depth + 1)?);
                }
                Value::List(list)
            }
            Item::Map(len) => Value::Map(self.entries(len, depth + 1)?),
        })
    }

    /// The next key of a map, whatever its place among the others.
    pub(crate) fn map_key(&mut self) -> Result<Cow<'a, str>, CborError> {
        let start = self.at;
        let (major, argument) = self.head()?;
        if major != 3 {
            return Err(CborError { at: start, problem: Problem::Key });
        }
        self.text_of(argument, start)
    }

    fn text_of(&mut self, len: u64, start: usize) -> Result<Cow<'a, str>, CborError> {
        let bytes = self.take(len)?;
        if self.lenient {
            return Ok(String::from_utf8_lossy(bytes));
        }
        std::str::from_utf8(bytes)
            .map(Cow::Borrowed)
            .map_err(|_| CborError { at: start, problem: Problem::Utf8 })
    }

    fn entries(&mut self, len: usize, depth: usize) -> Result<Map, CborError> {
        let mut entries: Vec<(String, Value)> = Vec::with_capacity(len.min(1024));
        for _ in 0..len {
            let start = self.at;
            let key = self.map_key()?.into_owned();
            let before = entries.last().map(|(before, _)| key_order(before.as_bytes(), key.as_bytes()));
            if !self.lenient && before.is_some_and(|order| order != Ordering::Less) {
                return Err(CborError { at: start, problem: Problem::KeyOrder });
            }
            entries.push((key, self.value_at(depth)?));
        }
        if self.lenient {
            return Map::from_entries(entries).ok_or(self.problem(Problem::KeyOrder));
        }
        Ok(Map::from_sorted(entries))
    }
}

/// False, true, null or a float, by the first byte.
fn simple(first: u8, argument: u64) -> Result<Item<'static>, Problem> {
    match first {
        0xf4 => Ok(Item::Bool(false)),
        0xf5 => Ok(Item::Bool(true)),
        0xf6 => Ok(Item::Null),
        0xfb => Finite::new(f64::from_bits(argument)).map(Item::Float).ok_or(Problem::Float),
        0xf9 | 0xfa => Err(Problem::Float),
        _ => Err(Problem::Simple),
    }
}
