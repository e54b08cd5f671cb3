//! Signing keys and signatures: ECDSA over SHA-256 with the curves K-256 (secp256k1) and P-256
//! (<https://atproto.com/specs/cryptography>).
//!
//! A signature is 64 bytes, `r` and `s`, with the lower of both possible `s`. The other one is refused here by name,
//! since the crate `p256` takes it; an encoding as DER is refused by its length.

mod equation;

use std::fmt;
use std::str::FromStr;

use k256::ecdsa::signature::Signer as _;
use thiserror::Error;

use crate::base::{base58, base58_decode};

/// A curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Curve {
    /// secp256k1, as nearly all accounts use it.
    K256,
    /// NIST P-256, as hardware has it.
    P256,
}

impl Curve {
    /// The multicodec of a compressed public key, as an unsigned varint.
    const fn multicodec(self) -> [u8; 2] {
        match self {
            Self::K256 => [0xe7, 0x01],
            Self::P256 => [0x80, 0x24],
        }
    }
}

/// Why a key or signature was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Not base58 with the prefix `z`, or `did:key:` is missing.
    #[error("the key is not in base58")]
    Encoding,
    /// A key of another kind.
    #[error("the key is for another curve")]
    Curve,
    /// Not a point of the curve, or not a secret number of it.
    #[error("the key is not one of its curve")]
    Key,
    /// Not 64 bytes, or with a number that is not of the curve.
    #[error("the signature is malformed")]
    Malformed,
    /// The higher `s` of both.
    #[error("the signature is not in its lower form")]
    HighS,
    /// Made for other bytes, or with another key.
    #[error("the signature is not of these bytes by this key")]
    Wrong,
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(Public);

#[derive(Clone, PartialEq, Eq)]
enum Public {
    K256(k256::ecdsa::VerifyingKey),
    P256(p256::ecdsa::VerifyingKey),
}

impl PublicKey {
    /// Reads a point in SEC1 form: 33 bytes compressed, 65 bytes not.
    pub fn from_sec1(curve: Curve, point: &[u8]) -> Result<Self, KeyError> {
        // The crate `p256` knows a third form, without the sign.
        if !matches!((point.first(), point.len()), (Some(2 | 3), 33) | (Some(4), 65)) {
            return Err(KeyError::Key);
        }
        match curve {
            Curve::K256 => k256::ecdsa::VerifyingKey::from_sec1_bytes(point).map(Public::K256),
            Curve::P256 => p256::ecdsa::VerifyingKey::from_sec1_bytes(point).map(Public::P256),
        }
        .map(Self)
        .map_err(|_| KeyError::Key)
    }

    /// Reads a `publicKeyMultibase` of type `Multikey`, or what follows `did:key:`: the curve and a compressed point.
    pub fn from_multibase(text: &str) -> Result<Self, KeyError> {
        let bytes = multibase(text)?;
        let (codec, point) = bytes.split_first_chunk::<2>().ok_or(KeyError::Curve)?;
        let curve = [Curve::K256, Curve::P256].into_iter().find(|curve| curve.multicodec() == *codec);
        match curve {
            Some(curve) if point.len() == 33 => Self::from_sec1(curve, point),
            Some(_) => Err(KeyError::Key),
            None => Err(KeyError::Curve),
        }
    }

    /// Reads a `publicKeyMultibase` as older DID documents hold it: a point of a curve that its type names.
    pub fn from_bare_multibase(curve: Curve, text: &str) -> Result<Self, KeyError> {
        Self::from_sec1(curve, &multibase(text)?)
    }

    /// The curve.
    pub const fn curve(&self) -> Curve {
        match self.0 {
            Public::K256(_) => Curve::K256,
            Public::P256(_) => Curve::P256,
        }
    }

    /// The compressed point, 33 bytes.
    pub fn to_sec1(&self) -> Vec<u8> {
        match &self.0 {
            Public::K256(key) => key.to_sec1_point(true).as_bytes().to_vec(),
            Public::P256(key) => key.to_sec1_point(true).as_bytes().to_vec(),
        }
    }

    /// The text of type `Multikey`.
    pub fn to_multibase(&self) -> String {
        format!("z{}", base58(&[&self.curve().multicodec()[..], &self.to_sec1()].concat()))
    }

    /// Checks that `signature`, of 64 bytes and in its lower form, is of `message` by this key.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), KeyError> {
        let holds = match &self.0 {
            Public::K256(key) => {
                let signature =
                    k256::ecdsa::Signature::from_slice(signature).map_err(|_| KeyError::Malformed)?;
                if signature.normalize_s() != signature {
                    return Err(KeyError::HighS);
                }
                equation::k256(key, message, &signature)
            }
            Public::P256(key) => {
                let signature =
                    p256::ecdsa::Signature::from_slice(signature).map_err(|_| KeyError::Malformed)?;
                if signature.normalize_s() != signature {
                    return Err(KeyError::HighS);
                }
                equation::p256(key, message, &signature)
            }
        };
        if holds { Ok(()) } else { Err(KeyError::Wrong) }
    }
}

fn multibase(text: &str) -> Result<Vec<u8>, KeyError> {
    text.strip_prefix('z').and_then(base58_decode).ok_or(KeyError::Encoding)
}

/// As `did:key:z…`.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "did:key:{}", self.to_multibase())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_multibase(text.strip_prefix("did:key:").ok_or(KeyError::Encoding)?)
    }
}

/// A secret key. It signs the same bytes the same way each time (RFC 6979).
#[derive(Clone)]
pub struct SecretKey(Secret);

#[derive(Clone)]
enum Secret {
    K256(k256::ecdsa::SigningKey),
    P256(p256::ecdsa::SigningKey),
}

impl SecretKey {
    /// The key with this secret number, in 32 bytes; zero and numbers beyond the curve's order are refused.
    pub fn from_bytes(curve: Curve, bytes: &[u8]) -> Result<Self, KeyError> {
        // The crates would fill up a number that is a little shorter.
        if bytes.len() != 32 {
            return Err(KeyError::Key);
        }
        match curve {
            Curve::K256 => k256::ecdsa::SigningKey::from_slice(bytes).map(Secret::K256),
            Curve::P256 => p256::ecdsa::SigningKey::from_slice(bytes).map(Secret::P256),
        }
        .map(Self)
        .map_err(|_| KeyError::Key)
    }

    /// The public key that belongs to it.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(match &self.0 {
            Secret::K256(key) => Public::K256(*key.verifying_key()),
            Secret::P256(key) => Public::P256(*key.verifying_key()),
        })
    }

    /// The signature of `message`, 64 bytes in the lower form.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.0 {
            Secret::K256(key) => {
                let signature: k256::ecdsa::Signature = key.sign(message);
                signature.normalize_s().to_bytes().to_vec()
            }
            Secret::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.normalize_s().to_bytes().to_vec()
            }
        }
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public_key())
    }
}

#[cfg(test)]
mod tests;
