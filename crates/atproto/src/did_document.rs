//! DID documents: who signs for an account, where it lives, and what it is called (<https://atproto.com/specs/did>).
//!
//! A document is written by whoever owns the DID, so it is read with bounds and taken for what it claims: a handle in it
//! proves nothing until the handle's domain says the same.

use serde_json::Value;
use thiserror::Error;

use crate::key::{Curve, PublicKey};
use crate::syntax::{Did, Handle};

/// The longest document, in bytes.
pub const MAX_LEN: usize = 256 * 1024;
/// The longest address of a server, in bytes.
pub const MAX_ENDPOINT_LEN: usize = 2048;

/// Why a document was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DidDocumentError {
    /// Longer than [`MAX_LEN`].
    #[error("the document is too long")]
    TooLong,
    /// Not a JSON object, or nested deeper than 127 levels.
    #[error("the document is no JSON object")]
    Json,
    /// No `id`, or that of another account.
    #[error("the document is of another DID")]
    Id,
}

/// What a document says about an account. A part that is missing or malformed is `None`; the others still count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DidDocument {
    /// Whose document it is.
    pub did: Did,
    /// The first handle in `alsoKnownAs`, claimed and not proven.
    pub handle: Option<Handle>,
    /// The key of the verification method `#atproto`.
    pub signing_key: Option<PublicKey>,
    /// The address of the service `#atproto_pds`: scheme, host and port, without a slash behind.
    pub pds: Option<String>,
}

impl DidDocument {
    /// Reads the document of `did`.
    pub fn read(did: &Did, document: &[u8]) -> Result<Self, DidDocumentError> {
        if document.len() > MAX_LEN {
            return Err(DidDocumentError::TooLong);
        }
        let document: Value = serde_json::from_slice(document).map_err(|_| DidDocumentError::Json)?;
        if !document.is_object() {
            return Err(DidDocumentError::Json);
        }
        if text(&document, "id") != Some(did.as_str()) {
            return Err(DidDocumentError::Id);
        }
        let method = named(&document, "verificationMethod", did, "#atproto");
        let service = named(&document, "service", did, "#atproto_pds")
            .filter(|service| text(service, "type") == Some("AtprotoPersonalDataServer"));
        Ok(Self {
            did: did.clone(),
            handle: list(&document, "alsoKnownAs")
                .find_map(|name| name.as_str()?.strip_prefix("at://")?.parse().ok()),
            signing_key: method.and_then(key),
            pds: service.and_then(|service| endpoint(text(service, "serviceEndpoint")?)),
        })
    }
}

fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The first entry whose `id` is `fragment`, with the DID before it or without.
fn named<'a>(document: &'a Value, field: &str, did: &Did, fragment: &str) -> Option<&'a Value> {
    list(document, field).find(|entry| {
        text(entry, "id").is_some_and(|id| id.strip_prefix(did.as_str()).unwrap_or(id) == fragment)
    })
}

fn key(method: &Value) -> Option<PublicKey> {
    let key = text(method, "publicKeyMultibase")?;
    match text(method, "type")? {
        "Multikey" => PublicKey::from_multibase(key).ok(),
        "EcdsaSecp256k1VerificationKey2019" => PublicKey::from_bare_multibase(Curve::K256, key).ok(),
        "EcdsaSecp256r1VerificationKey2019" => PublicKey::from_bare_multibase(Curve::P256, key).ok(),
        _ => None,
    }
}

/// `http` or `https`, a host and perhaps a port; no credentials, path, query or fragment.
fn endpoint(text: &str) -> Option<String> {
    if text.len() > MAX_ENDPOINT_LEN {
        return None;
    }
    let text = text.strip_suffix('/').unwrap_or(text);
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port_is_valid = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = !host.is_empty() && host.len() <= 253 && host.bytes().all(allowed);
    (port_is_valid && (is_name || is_address)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::key::SecretKey;

    fn did() -> Did {
        "did:plc:abc".parse().expect("a DID")
    }

    fn public(curve: Curve) -> PublicKey {
        SecretKey::from_bytes(curve, &[3; 32]).expect("a key").public_key()
    }

    fn document() -> Value {
        json!({
            "@context": ["https://www.w3.org/ns/did/v1"],
            "id": "did:plc:abc",
            "alsoKnownAs": [7, "https://other.test", "at://not_a_handle", "at://alice.test", "at://bob.test"],
            "verificationMethod": [
                {"id": "did:plc:abc#other", "type": "Multikey", "publicKeyMultibase": public(Curve::P256).to_multibase()},
                {"id": "did:plc:abc#atproto", "type": "Multikey", "controller": "did:plc:abc",
                 "publicKeyMultibase": public(Curve::K256).to_multibase()},
            ],
            "service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.test/"}],
        })
    }

    fn read(document: &Value) -> Result<DidDocument, DidDocumentError> {
        DidDocument::read(&did(), document.to_string().as_bytes())
    }

    #[test]
    fn key_server_and_handle_are_found() {
        let found = read(&document()).expect("a document");
        assert_eq!(found.signing_key, Some(public(Curve::K256)));
        assert_eq!(found.pds.as_deref(), Some("https://pds.test"));
        assert_eq!(found.handle.as_ref().map(Handle::as_str), Some("alice.test"));
    }

    #[test]
    fn older_kinds_of_keys_are_read() {
        for (curve, kind) in [
            (Curve::K256, "EcdsaSecp256k1VerificationKey2019"),
            (Curve::P256, "EcdsaSecp256r1VerificationKey2019"),
        ] {
            let mut document = document();
            let bare = format!("z{}", crate::base::base58(&public(curve).to_sec1()));
            document["verificationMethod"] =
                json!([{"id": "#atproto", "type": kind, "publicKeyMultibase": bare}]);
            assert_eq!(read(&document).expect("a document").signing_key, Some(public(curve)));
        }
    }

    #[test]
    fn a_part_that_is_malformed_is_missing_and_the_others_count() {
        let spoilers: [(&str, Value); 6] = [
            ("/verificationMethod/1/publicKeyMultibase", json!("zzz")),
            ("/verificationMethod/1/type", json!("Ed25519VerificationKey2020")),
            ("/verificationMethod/1/id", json!("did:plc:abd#atproto")),
            ("/verificationMethod", json!({})),
            ("/verificationMethod", json!(null)),
            ("/verificationMethod/1", json!("x")),
        ];
        for (place, value) in spoilers {
            let mut document = document();
            *document.pointer_mut(place).expect("the place exists") = value;
            let found = read(&document).expect("a document");
            assert_eq!(
                (found.signing_key, found.pds.is_some(), found.handle.is_some()),
                (None, true, true),
                "{place}"
            );
        }
        let bare = read(&json!({"id": "did:plc:abc"})).expect("a document");
        assert_eq!((bare.handle, bare.signing_key, bare.pds), (None, None, None));
    }

    #[test]
    fn only_the_address_of_a_server_is_taken() {
        for good in
            ["http://localhost:2583", "https://a.b", "https://[::1]:80", "https://[::1]", "https://127.0.0.1"]
        {
            assert_eq!(endpoint(good).as_deref(), Some(good));
        }
        let long = format!("https://{}", "a".repeat(254));
        for bad in [
            "",
            "https://",
            "ftp://a.b",
            "a.b",
            "https://u@a.b",
            "https://a.b/path",
            "https://a.b?q",
            "https://a.b#f",
            "https://a.b:",
            "https://a.b:0",
            "https://a.b:65536",
            "https://a.b:+1",
            "https://[::1",
            "https://[x]",
            "https://a b",
            "https://a.b//",
            "javascript:alert(1)",
            &long,
        ] {
            assert_eq!(endpoint(bad), None, "{bad}");
        }
    }

    #[test]
    fn another_account_nonsense_and_too_much_are_refused() {
        let mut other = document();
        other["id"] = json!("did:plc:abd");
        assert_eq!(read(&other), Err(DidDocumentError::Id));
        assert_eq!(read(&json!({})), Err(DidDocumentError::Id));
        for text in ["", "[]", "1", "{", "{} x"] {
            assert_eq!(DidDocument::read(&did(), text.as_bytes()), Err(DidDocumentError::Json), "{text}");
        }
        assert_eq!(DidDocument::read(&did(), &vec![b' '; MAX_LEN + 1]), Err(DidDocumentError::TooLong));
    }

    proptest! {
        #[test]
        fn any_address_is_judged_without_a_panic(text in "https?://\\PC{0,20}") {
            if let Some(endpoint) = endpoint(&text) {
                prop_assert!(text.starts_with(&endpoint));
            }
        }
    }
}
