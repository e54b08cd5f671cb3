//! Keys and signatures.

use alluvium_atproto::key::KeyError;
use alluvium_atproto::{Curve, PublicKey, SecretKey};

use alluvium_vectors::{Files, base64, hex, text};

pub(crate) fn signatures(files: &Files) {
    let mut refused = Vec::new();
    for case in files.cases("interop/crypto/signature-fixtures.json") {
        let comment = text(&case, "comment");
        let curve = match text(&case, "algorithm") {
            "ES256" => Curve::P256,
            "ES256K" => Curve::K256,
            other => panic!("an unknown algorithm: {other}"),
        };
        let key: PublicKey = text(&case, "publicKeyDid").parse().expect("a key");
        assert_eq!(key.to_string(), text(&case, "publicKeyDid"));
        assert_eq!(key.curve(), curve, "{comment}");
        assert_eq!(PublicKey::from_bare_multibase(curve, text(&case, "publicKeyMultibase")), Ok(key.clone()));
        let message = base64(text(&case, "messageBase64"));
        let verdict = key.verify(&message, &base64(text(&case, "signatureBase64")));
        let expected = case["validSignature"].as_bool().expect("a verdict");
        assert_eq!(verdict.is_ok(), expected, "{comment}: {verdict:?}");
        refused.extend(verdict.err());
    }
    for why in [KeyError::HighS, KeyError::Malformed] {
        assert!(refused.contains(&why), "high-S and DER are among the fixtures: {refused:?}");
    }
}

pub(crate) fn keys(files: &Files) {
    for case in files.cases("interop/crypto/w3c_didkey_K256.json") {
        let key = SecretKey::from_bytes(Curve::K256, &hex(text(&case, "privateKeyBytesHex"))).expect("a key");
        assert_eq!(key.public_key().to_string(), text(&case, "publicDidKey"));
    }
    for case in files.cases("interop/crypto/w3c_didkey_P256.json") {
        let secret = base58(text(&case, "privateKeyBytesBase58"));
        let key = SecretKey::from_bytes(Curve::P256, &secret).expect("a key");
        assert_eq!(key.public_key().to_string(), text(&case, "publicDidKey"));
        assert_eq!(text(&case, "publicDidKey").parse(), Ok(key.public_key()));
    }
}

/// Slow and plain.
fn base58(text: &str) -> Vec<u8> {
    const DIGITS: &str = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut bytes = vec![0_u8; 32];
    for digit in text.chars() {
        let mut carry = DIGITS.find(digit).expect("a digit");
        for byte in bytes.iter_mut().rev() {
            carry += usize::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry /= 256;
        }
        assert_eq!(carry, 0, "the number fits");
    }
    bytes
}
