//! The equation that a signature must satisfy.
//!
//! With the feature `native`, libsecp256k1 and `ring` compute it, in C and assembler and several times as fast; without,
//! as for WebAssembly, the crates `k256` and `p256`. Either is only asked about two numbers that are of the curve, `s`
//! the lower one: what form a signature must have is decided before, once for both.

#[cfg(feature = "native")]
pub(super) use native::{k256, p256};
#[cfg(not(feature = "native"))]
pub(super) use portable::{k256, p256};

#[cfg(feature = "native")]
pub(super) mod native {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use secp256k1::{Message, PublicKey, ecdsa};
    use sha2::{Digest as _, Sha256};

    /// Whether `signature` is of `message` by `key`, on K-256.
    pub(in crate::key) fn k256(
        key: &k256::ecdsa::VerifyingKey,
        message: &[u8],
        signature: &k256::ecdsa::Signature,
    ) -> bool {
        let point = key.to_sec1_point(false);
        let (Ok(key), Ok(signature)) =
            (PublicKey::from_slice(point.as_bytes()), ecdsa::Signature::from_compact(&signature.to_bytes()))
        else {
            return false;
        };
        let message = Message::from_digest(Sha256::digest(message).into());
        ecdsa::verify(&signature, message, &key).is_ok()
    }

    /// The same on P-256.
    pub(in crate::key) fn p256(
        key: &p256::ecdsa::VerifyingKey,
        message: &[u8],
        signature: &p256::ecdsa::Signature,
    ) -> bool {
        let point = key.to_sec1_point(false);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point.as_bytes());
        key.verify(message, &signature.to_bytes()).is_ok()
    }
}

#[cfg(any(test, not(feature = "native")))]
pub(super) mod portable {
    use k256::ecdsa::signature::Verifier as _;

    /// Whether `signature` is of `message` by `key`, on K-256.
    pub(in crate::key) fn k256(
        key: &k256::ecdsa::VerifyingKey,
        message: &[u8],
        signature: &k256::ecdsa::Signature,
    ) -> bool {
        key.verify(message, signature).is_ok()
    }

    /// The same on P-256.
    pub(in crate::key) fn p256(
        key: &p256::ecdsa::VerifyingKey,
        message: &[u8],
        signature: &p256::ecdsa::Signature,
    ) -> bool {
        key.verify(message, signature).is_ok()
    }
}
