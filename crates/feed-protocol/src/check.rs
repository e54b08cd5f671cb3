//! The check: a running hash over all positioned blocks of a space.
//!
//! A position alone can't tell that history below it was replaced: a server that lost its last rows and has grown again
//! gives the same numbers to other blocks. Even the block *at* the position can be the same, pushed once more by its
//! author, with another one before it. The check at a position covers everything up to it, so a reader that sends it
//! back with its cursor learns of any such change in the very next answer, whatever feeds it reads.
//!
//! 64 bits guard against accidents, not against a malicious authority.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

use crate::{Block, BlockKey};

/// SHA-256 of what an author wrote: data, and nonce and key if it is sealed.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
pub struct ContentHash(pub [u8; 32]);

/// Its beginning, enough to tell two apart.
impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}…")
    }
}

impl ContentHash {
    /// The hash of a block's content.
    pub fn of(block: &Block) -> Self {
        let mut hash = Sha256::new();
        part(&mut hash, &block.data.0);
        if let Some(key) = &block.encryption_key_id {
            part(&mut hash, key.as_str().as_bytes());
            part(&mut hash, block.iv.as_ref().map_or(&[], |iv| &iv.0));
        }
        Self(hash.finalize().into())
    }
}

/// The state of the running hash after a position.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq, Hash)]
pub struct Check(pub u64);

impl Check {
    /// The check before the first position.
    pub const START: Self = Self(0);

    /// The check once a block has the next position.
    #[must_use]
    pub fn then(self, position: u64, key: &BlockKey, content: &ContentHash) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.to_be_bytes());
        hash.update(position.to_be_bytes());
        part(&mut hash, key.feed_id.as_str().as_bytes());
        hash.update(key.sequence.to_be_bytes());
        part(&mut hash, key.actor_id.as_str().as_bytes());
        hash.update(content.0);
        let digest: [u8; 32] = hash.finalize().into();
        let (bits, _) = digest.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        Self(u64::from_be_bytes(*bits))
    }
}

/// A part with its length before it, so that no two lists of parts read alike.
fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Sixteen hexadecimal digits.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Check {
    type Err = InvalidCheck;

    fn from_str(text: &str) -> Result<Self, InvalidCheck> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
        bits.map(Self).ok_or(InvalidCheck)
    }
}

/// A text that is no check.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a check is not sixteen hexadecimal digits")]
pub struct InvalidCheck;

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
