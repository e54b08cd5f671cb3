//! What the signature of a webhook covers, and how it stands in its header (PROTOCOL §7.1, §6.5).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The header with a webhook's signature.
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";

/// For how long receivers take a signature, in milliseconds.
pub const REPLAY_WINDOW_MS: u64 = 300_000;

/// What begins the name of a key.
const KEY_PREFIX: &str = "ds_";

/// The bytes that are signed: the time in seconds, a dot, the body.
pub fn signed_bytes(time_s: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = time_s.to_string().into_bytes();
    bytes.push(b'.');
    bytes.extend_from_slice(body);
    bytes
}

/// The value of the header.
pub fn header_value(time_s: u64, key_id: &str, signature: &[u8; 64]) -> String {
    format!("t={time_s},kid={key_id},ed25519={}", URL_SAFE_NO_PAD.encode(signature))
}

/// A public key as `x` of its JWK.
pub fn jwk_x(public_key: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(public_key)
}

/// The name of a public key: the thumbprint of its JWK (RFC 7638) behind [`KEY_PREFIX`].
pub fn key_id(public_key: &[u8; 32]) -> String {
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, jwk_x(public_key));
    format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(Sha256::digest(members)))
}
