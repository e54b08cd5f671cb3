//! Content identifiers: the one form that repositories use.
//!
//! Version 1 with the codec DAG-CBOR or raw and a SHA-256 digest, always 36 bytes, as text in base32 with the prefix `b`.
//! Every other version, codec, hash or base is refused (<https://dasl.ing/cid.html>). The general crate `cid` reads
//! them all, and holds a CID in 96 bytes; here a CID is a key of maps and a check of every block, so it is ours.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::base::{base32, base32_decode};

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// DAG-CBOR: records, commits, nodes of the tree.
    DagCbor,
    /// Bytes as they are: blobs.
    Raw,
}

impl Codec {
    const fn byte(self) -> u8 {
        match self {
            Self::DagCbor => 0x71,
            Self::Raw => 0x55,
        }
    }
}

/// Why bytes or text are not a CID of this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a CID version 1 of DAG-CBOR or raw bytes with SHA-256")]
pub struct InvalidCid;

/// A content identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid([u8; Self::LEN]);

impl Cid {
    /// The length of the binary form, in bytes.
    pub const LEN: usize = 36;
    /// The length of the text, in bytes.
    pub const TEXT_LEN: usize = 59;

    /// The CID of `block`.
    pub fn of(codec: Codec, block: &[u8]) -> Self {
        Self::from_digest(codec, Sha256::digest(block).into())
    }

    /// The CID of the block with this SHA-256 digest.
    pub fn from_digest(codec: Codec, digest: [u8; 32]) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&[1, codec.byte(), 0x12, 32]);
        bytes[4..].copy_from_slice(&digest);
        Self(bytes)
    }

    /// Reads the binary form; nothing may follow it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidCid> {
        let bytes: [u8; Self::LEN] = bytes.try_into().map_err(|_| InvalidCid)?;
        match bytes {
            [1, 0x71 | 0x55, 0x12, 32, ..] => Ok(Self(bytes)),
            _ => Err(InvalidCid),
        }
    }

    /// The binary form.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// What the block holds.
    pub const fn codec(&self) -> Codec {
        if self.0[1] == Codec::DagCbor.byte() { Codec::DagCbor } else { Codec::Raw }
    }

    /// The SHA-256 digest.
    pub fn digest(&self) -> &[u8] {
        &self.0[4..]
    }

    /// Whether `block` is what this CID names.
    pub fn names(&self, block: &[u8]) -> bool {
        Sha256::digest(block).as_slice() == self.digest()
    }
}

impl FromStr for Cid {
    type Err = InvalidCid;

    fn from_str(text: &str) -> Result<Self, InvalidCid> {
        if text.len() != Self::TEXT_LEN {
            return Err(InvalidCid);
        }
        let digits = text.strip_prefix('b').ok_or(InvalidCid)?;
        Self::from_bytes(&base32_decode(digits).ok_or(InvalidCid)?)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", base32(&self.0))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether `text` has the looser form that a lexicon's string format `cid` asks for: any base, any codec, 8 to 256
/// bytes, not version 0. It says nothing about whether a CID can be read from it
/// (<https://atproto.com/specs/data-model#link-and-cid-formats>).
pub fn is_cid_text(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'=');
    (8..=256).contains(&text.len()) && text.bytes().all(known) && !text.starts_with("Qmb")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SHA-256 of the empty string is well known, so this text is checked by hand.
    const EMPTY_RAW: &str = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";

    #[test]
    fn the_empty_block_has_its_known_name() {
        let cid = Cid::of(Codec::Raw, b"");
        assert_eq!(cid.to_string(), EMPTY_RAW);
        assert_eq!(EMPTY_RAW.parse(), Ok(cid));
        assert_eq!(cid.codec(), Codec::Raw);
        assert!(cid.names(b"") && !cid.names(b"x"));
    }

    #[test]
    fn other_versions_codecs_hashes_lengths_and_bases_are_refused() {
        let good = *Cid::of(Codec::DagCbor, b"x").as_bytes();
        for (at, byte) in [(0, 0), (0, 2), (1, 0x70), (2, 0x11), (3, 31), (3, 33)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(Cid::from_bytes(&bytes), Err(InvalidCid), "byte {at} is {byte}");
        }
        assert_eq!(Cid::from_bytes(&good[..35]), Err(InvalidCid));
        assert_eq!(Cid::from_bytes(&[&good[..], &[0]].concat()), Err(InvalidCid));
        let text = Cid::of(Codec::DagCbor, b"x").to_string();
        for text in
            [text.to_uppercase(), text.replacen('b', "z", 1), text[1..].to_owned(), format!("{text}a")]
        {
            assert_eq!(text.parse::<Cid>(), Err(InvalidCid), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_come_back(block in proptest::collection::vec(any::<u8>(), 0..64), raw in any::<bool>()) {
            let cid = Cid::of(if raw { Codec::Raw } else { Codec::DagCbor }, &block);
            prop_assert_eq!(cid.to_string().parse(), Ok(cid));
            prop_assert_eq!(Cid::from_bytes(cid.as_bytes()), Ok(cid));
            prop_assert!(cid.names(&block));
            prop_assert!(is_cid_text(&cid.to_string()));
        }

        #[test]
        fn a_text_that_is_read_is_the_only_one(text in "b[a-z2-7]{58}") {
            if let Ok(cid) = text.parse::<Cid>() {
                prop_assert_eq!(cid.to_string(), text);
            }
        }
    }
}
