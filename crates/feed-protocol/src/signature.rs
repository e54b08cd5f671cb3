//! Signed blocks: the actor is an Ed25519 public key in hexadecimal, and the signature covers everything that names the
//! block and what is in it, but not the position, which is not the author's to give.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::{Block, ContentHash, Data, Id};

/// What a signature is made over begins with this.
const CONTEXT: &[u8] = b"alluvium feed block v1";

/// Why a signature isn't valid.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidSignature {
    /// The actor is no public key.
    #[error("the actor of a signed block is not a public key in hexadecimal")]
    Actor,
    /// Not 64 bytes, or not made by the actor over this block.
    #[error("a signature does not fit its block")]
    Signature,
}

/// The bytes that a signature covers: each part with its length before it.
pub fn payload(space_id: &Id, feed_id: &Id, block: &Block) -> Vec<u8> {
    let mut bytes = CONTEXT.to_vec();
    let mut part = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    part(space_id.as_str().as_bytes());
    part(feed_id.as_str().as_bytes());
    part(&block.sequence.to_be_bytes());
    part(block.actor_id.as_str().as_bytes());
    part(&block.prev_sequence.map(u64::to_be_bytes).map_or(Vec::new(), |bytes| bytes.to_vec()));
    part(block.prev_actor_id.as_ref().map_or(&[], |actor| actor.as_str().as_bytes()));
    part(&block.timestamp.map(u64::to_be_bytes).map_or(Vec::new(), |bytes| bytes.to_vec()));
    part(&ContentHash::of(block).0);
    bytes
}

/// The actor whose blocks `key` signs.
pub fn actor_of(key: &SigningKey) -> Id {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let key = key.verifying_key();
    let hex: String = key.as_bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    #[expect(clippy::expect_used, reason = "sixty-four hexadecimal digits")]
    Id::parse(&hex).expect("digits are an identifier")
}

/// Signs a block in place.
pub fn sign(key: &SigningKey, space_id: &Id, feed_id: &Id, block: &mut Block) {
    let signature = key.sign(&payload(space_id, feed_id, block));
    block.signature = Some(Data::from(signature.to_bytes().to_vec()));
}

/// Checks a block that has a signature; one without passes.
pub fn verify(space_id: &Id, feed_id: &Id, block: &Block) -> Result<(), InvalidSignature> {
    let Some(signature) = &block.signature else { return Ok(()) };
    let key = public_key(block.actor_id.as_str()).ok_or(InvalidSignature::Actor)?;
    let signature = Signature::from_slice(&signature.0).map_err(|_| InvalidSignature::Signature)?;
    let payload = payload(space_id, feed_id, block);
    key.verify_strict(&payload, &signature).map_err(|_| InvalidSignature::Signature)
}

fn public_key(hex: &str) -> Option<VerifyingKey> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    VerifyingKey::from_bytes(&bytes).ok()
}
