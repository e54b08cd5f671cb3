//! Zstandard dictionaries: what both ends know beforehand, so that a message of a few hundred bytes compresses alone.
//!
//! The dictionary of `/subscribe` is compiled into its clients and never changes. Those of the other two feeds are this
//! project's, made from simulated traffic of each; a client asks for one by its id. Whoever got one of them was not told
//! for which of the two, so both take every id that was ever given out for either: a frame names its dictionary, and that
//! of the other feed only compresses less.

use std::io;

use thiserror::Error;
use zstd::bulk::{Compressor, Decompressor};

use crate::render::Wire;
use crate::request::Known;

/// The level of all feeds: higher ones cost more than they gain on messages this small.
const LEVEL: i32 = 1;
const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// A dictionary with its number.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Dictionary {
    /// Its id, as messages carry it.
    pub id: u32,
    /// Its bytes, in the format of RFC 8878, section 5.
    pub bytes: &'static [u8],
}

/// The one that clients of `/subscribe` have; see `THIRD-PARTY-NOTICES.md`.
const SUBSCRIBE: Dictionary =
    Dictionary { id: 1_612_007_021, bytes: include_bytes!("../dictionaries/subscribe-1612007021.zdict") };

/// Made by `cargo run --release -p alluvium-bench --example dictionaries`, as the next one.
const V2: Dictionary =
    Dictionary { id: 2_026_112_901, bytes: include_bytes!("../dictionaries/subscribe-v2-2026112901.zdict") };

const EVENTS: Dictionary = Dictionary {
    id: 2_026_112_902,
    bytes: include_bytes!("../dictionaries/subscribe-events-2026112902.zdict"),
};

/// Bytes that are no dictionary.
#[derive(Debug, Error)]
pub enum DictionaryError {
    /// The library refused it.
    #[error("the dictionary cannot be used: {0}")]
    Refused(#[from] io::Error),
    /// It has no id, or is no dictionary at all.
    #[error("not a dictionary with an id")]
    Format,
}

/// The id in the head of a dictionary.
pub fn id_of(dictionary: &[u8]) -> Option<u32> {
    let rest = dictionary.strip_prefix(&MAGIC)?;
    rest.first_chunk().map(|id| u32::from_le_bytes(*id)).filter(|id| *id != 0)
}

/// All dictionaries that a wire takes, the one that was made for it last.
pub const fn of(wire: Wire) -> &'static [Dictionary] {
    match wire {
        Wire::V1 => &[SUBSCRIBE],
        Wire::V2 => &[EVENTS, V2],
        Wire::Events => &[V2, EVENTS],
    }
}

/// The ids of the dictionaries of a wire.
pub fn known(wire: Wire) -> Known<'static> {
    match wire {
        Wire::V1 => Known { ids: &[SUBSCRIBE.id], current: SUBSCRIBE.id },
        Wire::V2 => Known { ids: &[EVENTS.id, V2.id], current: V2.id },
        Wire::Events => Known { ids: &[V2.id, EVENTS.id], current: EVENTS.id },
    }
}

/// Any dictionary that a server may be asked to hand out.
pub fn find(id: u32) -> Option<Dictionary> {
    [SUBSCRIBE, V2, EVENTS].into_iter().find(|dictionary| dictionary.id == id)
}

/// Compresses messages by one dictionary. One for each thread: preparing it costs far more than a message.
pub struct Encoder {
    id: u32,
    compressor: Compressor<'static>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder by a dictionary.
    pub fn new(dictionary: Dictionary) -> Result<Self, DictionaryError> {
        if id_of(dictionary.bytes) != Some(dictionary.id) {
            return Err(DictionaryError::Format);
        }
        let compressor = Compressor::with_dictionary(LEVEL, dictionary.bytes)?;
        Ok(Self { id: dictionary.id, compressor })
    }

    /// The id that its messages carry.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// One frame with the message.
    pub fn encode(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        self.compressor.compress(message)
    }
}

/// Reads what an [`Encoder`] with the same dictionary wrote.
pub struct Decoder {
    decompressor: Decompressor<'static>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder by the bytes of a dictionary.
    pub fn new(dictionary: &[u8]) -> Result<Self, DictionaryError> {
        id_of(dictionary).ok_or(DictionaryError::Format)?;
        Ok(Self { decompressor: Decompressor::with_dictionary(dictionary)? })
    }

    /// The message in a frame, of at most `bytes_max` bytes.
    pub fn decode(&mut self, frame: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        self.decompressor.decompress(frame, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRES: [Wire; 3] = [Wire::V1, Wire::V2, Wire::Events];

    #[test]
    fn every_dictionary_has_the_id_that_it_is_known_by() {
        for wire in WIRES {
            let ids: Vec<u32> = of(wire).iter().map(|dictionary| dictionary.id).collect();
            assert_eq!(known(wire).ids, ids);
            assert_eq!(ids.last(), Some(&known(wire).current));
            for dictionary in of(wire) {
                assert_eq!(id_of(dictionary.bytes), Some(dictionary.id));
                assert_eq!(find(dictionary.id), Some(*dictionary));
            }
        }
        assert_eq!(find(7), None);
    }

    /// Whatever is handed out for one of the newer feeds, without an id as well, is taken by both.
    #[test]
    fn the_newer_feeds_take_the_same_ids() {
        let ids = |wire| known(wire).ids.iter().copied().collect::<std::collections::BTreeSet<u32>>();
        assert_eq!(ids(Wire::V2), ids(Wire::Events));
        assert!(
            !ids(Wire::V2).contains(&SUBSCRIBE.id),
            "its frames are for clients that have it compiled in"
        );
    }

    #[test]
    fn messages_come_back_and_name_their_dictionary() {
        let message =
            br#"{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","time_us":1783175888085434,"kind":"commit"}"#;
        for wire in WIRES {
            for dictionary in of(wire) {
                let frame = Encoder::new(*dictionary).expect("an encoder").encode(message).expect("a frame");
                assert!(frame.len() < message.len(), "{wire:?}: {} bytes", frame.len());
                assert_eq!(
                    zstd::zstd_safe::get_dict_id_from_frame(&frame).map(u32::from),
                    Some(dictionary.id)
                );
                let mut decoder = Decoder::new(dictionary.bytes).expect("a decoder");
                assert_eq!(decoder.decode(&frame, message.len()).expect("a message"), message);
                assert!(decoder.decode(&frame, message.len() - 1).is_err());
            }
        }
    }

    #[test]
    fn what_is_no_dictionary_is_refused() {
        assert!(matches!(Decoder::new(b"text"), Err(DictionaryError::Format)));
        let wrong = Dictionary { id: 1, ..SUBSCRIBE };
        assert!(matches!(Encoder::new(wrong), Err(DictionaryError::Format)));
    }

    #[test]
    fn the_dictionary_of_existing_clients_is_the_one_they_have() {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(SUBSCRIBE.bytes);
        assert_eq!(digest[..4], [0xb8, 0xd7, 0x7b, 0x46]);
        assert_eq!(SUBSCRIBE.bytes.len(), 112_640);
    }
}
