//! Numbers on the wire: whole, from 0 to 2^53 - 1, the same in both encodings as JavaScript writes them.
//!
//! In CBOR, JavaScript's encoders write whole numbers above 32 bits as floats, and read 64-bit integers as `BigInt`. So
//! whole floats are accepted, and numbers above 32 bits are written as floats.
#![expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "serde gives references to fields"
)]

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::NUMBER_MAX;

/// A number within the bounds of the wire.
struct Number(u64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 > NUMBER_MAX {
            return Err(serde::ser::Error::custom("a number is above 2^53 - 1"));
        }
        if serializer.is_human_readable() || u32::try_from(self.0).is_ok() {
            serializer.serialize_u64(self.0)
        } else {
            #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
            serializer.serialize_f64(self.0 as f64)
        }
    }
}

/// A signed reading, for cursors: everything before the start means the start.
struct Signed(i64);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SignedVisitor)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let signed = deserializer.deserialize_any(SignedVisitor)?;
        u64::try_from(signed.0).map(Self).map_err(|_| de::Error::custom("a number is negative"))
    }
}

struct SignedVisitor;

impl Visitor<'_> for SignedVisitor {
    type Value = Signed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of at most 2^53 - 1")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Signed, E> {
        match i64::try_from(number) {
            Ok(signed) if number <= NUMBER_MAX => Ok(Signed(signed)),
            _ => Err(E::custom("a number is above 2^53 - 1")),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Signed, E> {
        u64::try_from(number).map_or(Ok(Signed(number.max(-1))), |number| self.visit_u64(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Signed, E> {
        // 2^53 itself is left out: it is where floats stop to tell neighbours apart.
        if number.fract() != 0.0 || number.abs() >= 9_007_199_254_740_992.0 {
            return Err(E::custom("a number is not whole, or above 2^53 - 1"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits, as just checked")]
        self.visit_i64(number as i64)
    }

    fn visit_none<E: de::Error>(self) -> Result<Signed, E> {
        Err(E::invalid_type(de::Unexpected::Other("null"), &self))
    }

    fn visit_str<E: de::Error>(self, _text: &str) -> Result<Signed, E> {
        Err(E::custom("a number is written as text"))
    }
}

/// Writes a number.
pub(crate) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Number(*number).serialize(serializer)
}

/// Reads a number.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Number::deserialize(deserializer).map(|number| number.0)
}

/// Numbers that may be missing.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer};

    /// Writes a number or nothing.
    pub(crate) fn serialize<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(Number).serialize(serializer)
    }

    /// Reads a number or nothing.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Number>::deserialize(deserializer)?.map(|number| number.0))
    }
}

/// Lists of numbers.
pub(crate) mod list {
    use super::{Deserializer, Number, Serialize, Serializer};
    use crate::bounded;
    use crate::limits::BLOCKS_HARD_MAX;

    /// Writes a list.
    pub(crate) fn serialize<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        numbers.iter().map(|number| Number(*number)).collect::<Vec<_>>().serialize(serializer)
    }

    /// Reads a list.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let numbers: Vec<Number> = bounded::list::<_, _, BLOCKS_HARD_MAX>(deserializer)?;
        Ok(numbers.into_iter().map(|number| number.0).collect())
    }
}

/// Cursors: a number, or anything below zero for the start.
pub(crate) mod cursor {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer, Signed};

    /// Writes a cursor.
    pub(crate) fn serialize<S: Serializer>(cursor: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        cursor.map(Number).serialize(serializer)
    }

    /// Reads a cursor.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let signed = Option::<Signed>::deserialize(deserializer)?;
        Ok(signed.map(|signed| u64::try_from(signed.0).unwrap_or(0)))
    }
}
