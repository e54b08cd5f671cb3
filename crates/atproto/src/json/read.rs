//! Reading JSON, strictly.

use std::cell::Cell;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

use super::{BYTES, LINK};
use crate::cbor::{MAX_VALUES, Map, Value};

/// With padding or without, as the specification asks of readers.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Up to here every integer is a float of its own, so that `1.0` is surely 1.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why JSON was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JsonError {
    /// Not JSON, or nested deeper than 127 levels.
    #[error("not JSON at line {line}, column {column}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
    },
    /// A number with a fraction.
    #[error("a number that is not an integer")]
    Float,
    /// An integer beyond signed 64 bits.
    #[error("an integer beyond 64 bits")]
    Range,
    /// `$link` that is not the only key, or not with the text of a CID.
    #[error("`$link` that is no link")]
    Link,
    /// `$bytes` that is not the only key, or not with base64.
    #[error("`$bytes` that is no base64")]
    Bytes,
    /// A key twice in one object.
    #[error("a key twice in one object")]
    DuplicateKey,
    /// More values than [`MAX_VALUES`].
    #[error("too many values")]
    Values,
}

/// Reads one JSON text.
pub fn from_json(input: &[u8]) -> Result<Value, JsonError> {
    let state = State { refused: Cell::new(None), values: Cell::new(MAX_VALUES) };
    let mut deserializer = serde_json::Deserializer::from_slice(input);
    let value = Seed(&state).deserialize(&mut deserializer);
    value.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| {
        let syntax = JsonError::Syntax { line: error.line(), column: error.column() };
        state.refused.get().unwrap_or(syntax)
    })
}

struct State {
    /// Why reading stopped; serde's errors hold only text.
    refused: Cell<Option<JsonError>>,
    /// How many more values may be read.
    values: Cell<usize>,
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a State);

impl Seed<'_> {
    fn refuse<T, E: serde::de::Error>(self, why: JsonError) -> Result<T, E> {
        self.0.refused.set(Some(why));
        Err(E::custom(why))
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0.values.get().checked_sub(1) {
            Some(values) => self.0.values.set(values),
            None => return self.refuse(JsonError::Values),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the data model")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Value, E> {
        Ok(Value::Integer(integer))
    }

    fn visit_u64<E: serde::de::Error>(self, integer: u64) -> Result<Value, E> {
        i64::try_from(integer).map(Value::Integer).or_else(|_| self.refuse(JsonError::Range))
    }

    #[expect(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
    fn visit_f64<E: serde::de::Error>(self, float: f64) -> Result<Value, E> {
        if float.fract() != 0.0 {
            return self.refuse(JsonError::Float);
        }
        if float.abs() > EXACT {
            return self.refuse(JsonError::Range);
        }
        Ok(Value::Integer(float as i64))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            entries.push((key, map.next_value_seed(self)?));
        }
        let Some(map) = Map::from_entries(entries) else {
            return self.refuse(JsonError::DuplicateKey);
        };
        special(map).map_err(|why| {
            self.0.refused.set(Some(why));
            A::Error::custom(why)
        })
    }
}

/// A link, bytes, or the map as it is.
fn special(map: Map) -> Result<Value, JsonError> {
    let only = |value: &Value| (map.len() == 1).then(|| value.as_text().map(str::to_owned)).flatten();
    if let Some(value) = map.get(LINK) {
        let link = only(value).and_then(|text| text.parse().ok());
        return link.map(Value::Link).ok_or(JsonError::Link);
    }
    if let Some(value) = map.get(BYTES) {
        let bytes = only(value).and_then(|text| BASE64.decode(text).ok());
        return bytes.map(Value::Bytes).ok_or(JsonError::Bytes);
    }
    Ok(Value::Map(map))
}
