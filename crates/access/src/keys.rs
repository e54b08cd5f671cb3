//! Public keys of issuers: from JSON Web Keys (RFC 7517) or PEM.
//!
//! A key knows its algorithm, and verifies by that one only: what a token says of its algorithm chooses nothing. Symmetric
//! keys are not read, so no public key can be taken for a shared secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::limits::KEYS_MAX;

/// Bytes of a modulus: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// How tokens may be signed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// Ed25519 (RFC 8037).
    EdDsa,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// Its name in the head of a token. Ed25519 has two (RFC 8037, RFC 9864).
    pub(crate) fn is_named(self, name: &str) -> bool {
        match self {
            Self::EdDsa => matches!(name, "EdDSA" | "Ed25519"),
            Self::Es256 => name == "ES256",
            Self::Rs256 => name == "RS256",
        }
    }
}

/// A public key.
#[derive(Clone, Eq, PartialEq)]
enum Material {
    /// 32 bytes.
    Ed25519(Vec<u8>),
    /// An uncompressed point.
    P256(Vec<u8>),
    /// Modulus and exponent, big-endian, without zeros before them.
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

/// A public key and what it is called.
#[derive(Clone, Eq, PartialEq)]
pub struct Key {
    id: Option<String>,
    material: Material,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:?}, {:?})", self.algorithm(), self.id)
    }
}

impl Key {
    /// How it verifies.
    pub const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Ed25519(_) => Algorithm::EdDsa,
            Material::P256(_) => Algorithm::Es256,
            Material::Rsa { .. } => Algorithm::Rs256,
        }
    }

    /// Whether a signature of a message is by this key.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        verified.is_ok()
    }
}

/// Why keys cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidKeys {
    /// Neither JSON nor PEM.
    #[error("keys are a JSON Web Key, a set of them, or PEM")]
    Format,
    /// None that could verify a token.
    #[error("there is no public key for EdDSA (Ed25519), ES256 or RS256 (2048 bits at least)")]
    None,
    /// More than [`KEYS_MAX`].
    #[error("there are more than {KEYS_MAX} keys")]
    TooMany,
    /// A private key, which has no business here.
    #[error("this is a private key; a server needs the public one only")]
    Private,
}

/// The keys of an issuer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeySet(Vec<Key>);

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

/// The members of a key that matter here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    d: Option<serde_json::Value>,
}

impl KeySet {
    /// Reads a set of keys, a single one, or PEM. Keys of other kinds or for other purposes are passed over; a set in which
    /// none is left is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidKeys> {
        let text = bytes.trim_ascii();
        let keys = if text.starts_with(b"{") { Self::parse_json(text)? } else { Self::parse_pem(text)? };
        if keys.is_empty() {
            return Err(InvalidKeys::None);
        }
        Ok(Self(keys))
    }

    fn parse_json(text: &[u8]) -> Result<Vec<Key>, InvalidKeys> {
        let members = match serde_json::from_slice::<Jwks>(text) {
            Ok(set) => set.keys,
            Err(_) => vec![serde_json::from_slice(text).map_err(|_| InvalidKeys::Format)?],
        };
        if members.len() > KEYS_MAX {
            return Err(InvalidKeys::TooMany);
        }
        let keys = members.into_iter().filter_map(|member| serde_json::from_value::<Jwk>(member).ok());
        let mut usable = Vec::new();
        for key in keys {
            if key.d.is_some() {
                return Err(InvalidKeys::Private);
            }
            usable.extend(of_jwk(&key));
        }
        Ok(usable)
    }

    fn parse_pem(text: &[u8]) -> Result<Vec<Key>, InvalidKeys> {
        if text.windows(11).any(|window| window == b"PRIVATE KEY") {
            return Err(InvalidKeys::Private);
        }
        let mut keys = Vec::new();
        for section in SubjectPublicKeyInfoDer::pem_slice_iter(text) {
            if keys.len() >= KEYS_MAX {
                return Err(InvalidKeys::TooMany);
            }
            let section = section.map_err(|_| InvalidKeys::Format)?;
            keys.extend(of_spki(section.as_ref()).map(|material| Key { id: None, material }));
        }
        if keys.is_empty() && !text.starts_with(b"-----BEGIN") {
            return Err(InvalidKeys::Format);
        }
        Ok(keys)
    }

    /// The key that a token names. One without a name is meant where it is the only one of its algorithm that could be.
    pub(crate) fn find(&self, algorithm: &str, id: Option<&str>) -> Option<&Key> {
        let fitting = || self.0.iter().filter(|key| key.algorithm().is_named(algorithm));
        let Some(id) = id else { return only(fitting()) };
        let named = fitting().find(|key| key.id.as_deref() == Some(id));
        named.or_else(|| only(fitting().filter(|key| key.id.is_none())))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

fn of_jwk(key: &Jwk) -> Option<Key> {
    let is_for_signatures = key.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
        && key.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !is_for_signatures {
        return None;
    }
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    let material = match (key.kty.as_str(), key.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&key.x).filter(|x| x.len() == 32)?),
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&key.x)?, bytes(&key.y)?);
            Material::P256((x.len() == 32 && y.len() == 32).then(|| [&[4][..], &x, &y].concat())?)
        }
        ("RSA", _) => rsa(&bytes(&key.n)?, &bytes(&key.e)?)?,
        _ => return None,
    };
    let key_of = Key { id: key.kid.clone(), material };
    key.alg.as_deref().is_none_or(|alg| key_of.algorithm().is_named(alg)).then_some(key_of)
}

fn rsa(n: &[u8], e: &[u8]) -> Option<Material> {
    let trimmed = |number: &[u8]| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        number[zeros..].to_vec()
    };
    let (n, e) = (trimmed(n), trimmed(e));
    (MODULUS_BYTES.contains(&n.len()) && (1..=8).contains(&e.len())).then_some(Material::Rsa { n, e })
}

/// What comes before the key of an Ed25519 `SubjectPublicKeyInfo` (RFC 8410).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What comes before the point of one of P-256 (RFC 5480).
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The algorithm of an RSA key (RFC 3279 §2.3.1).
const RSA_ALGORITHM: [u8; 13] =
    [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The key in a `SubjectPublicKeyInfo`, if it is of a kind that is known.
fn of_spki(der: &[u8]) -> Option<Material> {
    if let Some(key) = der.strip_prefix(&ED25519_SPKI).filter(|key| key.len() == 32) {
        return Some(Material::Ed25519(key.to_vec()));
    }
    if let Some(point) = der.strip_prefix(&P256_SPKI).filter(|point| point.len() == 65 && point[0] == 4) {
        return Some(Material::P256(point.to_vec()));
    }
    let (info, after) = element(der, SEQUENCE)?;
    let (algorithm, rest) = element(info, SEQUENCE)?;
    let (bits, end) = element(rest, BIT_STRING)?;
    let (key, behind) = element(bits.strip_prefix(&[0])?, SEQUENCE)?;
    let (n, rest) = element(key, INTEGER)?;
    let (e, last) = element(rest, INTEGER)?;
    let is_whole = [after, end, behind, last].iter().all(|left| left.is_empty());
    (is_whole && algorithm == RSA_ALGORITHM).then(|| rsa(n, e))?
}

/// The content of the first DER element, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    (len <= rest.len()).then(|| rest.split_at(len))
}

#[cfg(test)]
mod tests;
