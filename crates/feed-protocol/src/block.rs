//! Blocks as they travel.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{BLOCK_OVERHEAD_BYTES, DATA_BYTES_HARD_MAX, NUMBER_MAX};
use crate::number;
use crate::{Id, Namespace};

/// Written with padding; read with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes: base64 in JSON (standard alphabet with padding; the URL-safe one and no padding are understood), a byte
/// string in CBOR.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Data(pub Bytes);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&BASE64.encode(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(TextVisitor)
        } else {
            deserializer.deserialize_byte_buf(BytesVisitor)
        }
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes in base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Data, E> {
        if text.len() > DATA_BYTES_HARD_MAX.div_ceil(3) * 4 {
            return Err(E::custom("data is too large"));
        }
        let standard;
        let text = if text.contains(['-', '_']) {
            standard = text.replace('-', "+").replace('_', "/");
            &standard
        } else {
            text
        };
        BASE64.decode(text).map(Data::from).map_err(|_| E::custom("data is not base64"))
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Data, E> {
        self.visit_byte_buf(bytes.to_vec())
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Data, E> {
        if bytes.len() > DATA_BYTES_HARD_MAX { Err(E::custom("data is too large")) } else { Ok(bytes.into()) }
    }
}

/// A block. In an append it has no position; in a page it has everything but what its author left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// The feed; when missing in an append, the request's, else the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_id: Option<Id>,
    /// The feed's namespace, in a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Given by the authority alone; one in an append is ignored.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// One more than the highest that the author knew in this feed.
    #[serde(with = "number")]
    pub sequence: u64,
    /// Who wrote it.
    pub actor_id: Id,
    /// The sequence of the block that the author saw as the last.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub prev_sequence: Option<u64>,
    /// The author of that block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_actor_id: Option<Id>,
    /// The author's clock, milliseconds since the Unix epoch.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// The content. Never changes.
    pub data: Data,
    /// Whose key sealed `data`, if it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key_id: Option<Id>,
    /// The nonce that `data` was sealed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iv: Option<Data>,
    /// The author's Ed25519 signature; the actor is then the public key in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Data>,
}

/// What names a block within its space.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockKey {
    /// The feed.
    pub feed_id: Id,
    /// The author's sequence.
    #[serde(with = "number")]
    pub sequence: u64,
    /// The author.
    pub actor_id: Id,
}

/// Why no message can carry a block, whoever it is for.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unsendable {
    /// A number is too large.
    #[error("its {field} is {number}, and the largest number in a message is 2^53 - 1")]
    Number {
        /// Which one.
        field: &'static str,
        /// What it is.
        number: u64,
    },
    /// There is too much in it.
    #[error("its {field} has {bytes} bytes, and the most in a message are {DATA_BYTES_HARD_MAX}")]
    Bytes {
        /// Where.
        field: &'static str,
        /// How much.
        bytes: usize,
    },
    /// It is sealed by half.
    #[error("it is sealed, and says only one of the key and the nonce")]
    Sealing,
}

impl Block {
    /// Whether a message can carry it at all. What a server then says of it is another matter: its limits may be lower.
    pub fn sendable(&self) -> Result<(), Unsendable> {
        let numbers = [
            ("sequence", Some(self.sequence)),
            ("previous sequence", self.prev_sequence),
            ("timestamp", self.timestamp),
        ];
        for (field, number) in numbers {
            if let Some(number) = number.filter(|number| *number > NUMBER_MAX) {
                return Err(Unsendable::Number { field, number });
            }
        }
        let parts =
            [("data", Some(&self.data)), ("nonce", self.iv.as_ref()), ("signature", self.signature.as_ref())];
        for (field, part) in parts {
            let bytes = part.map_or(0, |part| part.0.len());
            if bytes > DATA_BYTES_HARD_MAX {
                return Err(Unsendable::Bytes { field, bytes });
            }
        }
        if self.encryption_key_id.is_some() != self.iv.is_some() {
            return Err(Unsendable::Sealing);
        }
        Ok(())
    }

    /// Its name, in a feed that the block may not name itself.
    pub fn key(&self, feed_id: Id) -> BlockKey {
        BlockKey { feed_id, sequence: self.sequence, actor_id: self.actor_id.clone() }
    }

    /// Bytes that it counts against the limits of messages.
    pub fn cost_bytes(&self) -> usize {
        self.data.0.len() + BLOCK_OVERHEAD_BYTES
    }
}
