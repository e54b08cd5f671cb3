//! Data sealed at rest: AES-256-GCM with a random nonce, bound to the block that it belongs to.
//!
//! The author's replica seals when it appends; ciphertext, key name and nonce then travel and lie as they are, and a peer
//! without the key passes them on. Off unless a [`Cypher`] is given.

use std::fmt;
use std::sync::Arc;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use alluvium_env::Random;
use alluvium_feed_protocol::{Block, Data, Id};
use sha2::{Digest, Sha256};

/// Length of a nonce.
const NONCE_BYTES: usize = 12;

/// Why sealed data stays closed.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SealError {
    /// Sealed with a key that isn't here.
    #[error("data is sealed with another key")]
    UnknownKey,
    /// Changed, or of another block.
    #[error("sealed data does not open")]
    Damaged,
}

/// Decides what a key's holder seals.
type Chooser = Arc<dyn Fn(&Id) -> bool + Send + Sync>;

/// A key, and for which feeds it is used.
#[derive(Clone)]
pub struct Cypher {
    key_id: Id,
    cipher: Aes256Gcm,
    seals: Chooser,
}

impl fmt::Debug for Cypher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cypher").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Cypher {
    /// A cypher that seals the feeds chosen by `seals`. The key is named by its hash, 64 hexadecimal digits.
    pub fn new(key: &[u8; 32], seals: impl Fn(&Id) -> bool + Send + Sync + 'static) -> Self {
        let digest = Sha256::new().chain_update(b"alluvium feed key").chain_update(key).finalize();
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        let name: String = digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        #[expect(clippy::expect_used, reason = "64 hexadecimal digits are an identifier")]
        let key_id = Id::parse(&name).expect("digits");
        Self { key_id, cipher: Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)), seals: Arc::new(seals) }
    }

    /// Seals a new block of a feed, if this feed is sealed.
    pub fn seal(&self, feed: &Id, block: &mut Block, random: &dyn Random) -> Result<(), SealError> {
        if !(self.seals)(feed) {
            return Ok(());
        }
        let bits = random.next_u128().to_be_bytes();
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&bits[..NONCE_BYTES]);
        let aad = aad(feed, block);
        let payload = Payload { msg: &block.data.0, aad: &aad };
        let sealed = self.cipher.encrypt(&Nonce::from(nonce), payload).map_err(|_| SealError::Damaged)?;
        block.data = Data::from(sealed);
        block.iv = Some(Data::from(nonce.to_vec()));
        block.encryption_key_id = Some(self.key_id.clone());
        Ok(())
    }

    /// Opens a block for a reader; one that isn't sealed stays as it is.
    pub fn open(&self, feed: &Id, block: &mut Block) -> Result<(), SealError> {
        let Some(key_id) = &block.encryption_key_id else { return Ok(()) };
        if *key_id != self.key_id {
            return Err(SealError::UnknownKey);
        }
        let iv = block.iv.as_ref().map(|iv| &iv.0[..]).unwrap_or_default();
        let nonce: [u8; NONCE_BYTES] = iv.try_into().map_err(|_| SealError::Damaged)?;
        let aad = aad(feed, block);
        let payload = Payload { msg: &block.data.0, aad: &aad };
        let data = self.cipher.decrypt(&Nonce::from(nonce), payload).map_err(|_| SealError::Damaged)?;
        block.data = Data::from(data);
        block.iv = None;
        block.encryption_key_id = None;
        Ok(())
    }
}

/// What binds the bytes to their block: `feedId:actorId:sequence`, each part with its length before it.
fn aad(feed: &Id, block: &Block) -> Vec<u8> {
    let (feed, actor) = (feed.as_str(), block.actor_id.as_str());
    format!("{}:{feed}:{}:{actor}:{}", feed.len(), actor.len(), block.sequence).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_env::sim::SeededRandom;

    fn id(text: &str) -> Id {
        Id::parse(text).unwrap()
    }

    fn block() -> Block {
        let json = r#"{"sequence":7,"actorId":"a","data":"AQID"}"#;
        alluvium_feed_protocol::Encoding::Json.decode(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_sealed_block_opens_with_its_key_and_shows_nothing_without() {
        let random = SeededRandom::new(1);
        let cypher = Cypher::new(&[9; 32], |feed| feed.as_str() == "secret");
        let mut sealed = block();
        cypher.seal(&id("secret"), &mut sealed, &random).unwrap();
        assert!(sealed.data.0.windows(3).all(|bytes| bytes != [1, 2, 3]));
        assert_eq!(sealed.iv.as_ref().unwrap().0.len(), NONCE_BYTES);
        assert_eq!(sealed.encryption_key_id.as_ref().unwrap().as_str().len(), 64);
        let mut twice = block();
        cypher.seal(&id("secret"), &mut twice, &random).unwrap();
        assert_ne!(sealed.data, twice.data);
        cypher.open(&id("secret"), &mut sealed).unwrap();
        assert_eq!(sealed, block());
        let mut open = block();
        cypher.seal(&id("public"), &mut open, &random).unwrap();
        assert_eq!(open, block());
    }

    #[test]
    fn changed_bytes_another_block_and_another_key_fail() {
        let random = SeededRandom::new(1);
        let cypher = Cypher::new(&[9; 32], |_| true);
        let mut sealed = block();
        cypher.seal(&id("f"), &mut sealed, &random).unwrap();
        let mut changed = sealed.clone();
        let mut bytes = changed.data.0.to_vec();
        bytes[0] ^= 1;
        changed.data = Data::from(bytes);
        assert_eq!(cypher.open(&id("f"), &mut changed), Err(SealError::Damaged));
        assert_eq!(cypher.open(&id("g"), &mut sealed.clone()), Err(SealError::Damaged));
        let mut moved = Block { sequence: 8, ..sealed.clone() };
        assert_eq!(cypher.open(&id("f"), &mut moved), Err(SealError::Damaged));
        let other = Cypher::new(&[8; 32], |_| true);
        assert_eq!(other.open(&id("f"), &mut sealed.clone()), Err(SealError::UnknownKey));
        sealed.iv = None;
        assert_eq!(cypher.open(&id("f"), &mut sealed), Err(SealError::Damaged));
    }
}
