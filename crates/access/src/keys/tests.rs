//! What is a key, and what is not.

use super::*;

const RSA: &str = include_str!("../../../../fuzz/seeds/access_keys/rsa.pem");
const P256: &str = include_str!("../../../../fuzz/seeds/access_keys/p256.pem");
const ED25519: &str = include_str!("../../../../fuzz/seeds/access_keys/ed25519.pem");
const SET: &str = include_str!("../../../../fuzz/seeds/access_keys/set.json");

#[test]
fn pem_and_json_have_the_same_keys() {
    let set = KeySet::parse(SET.as_bytes()).unwrap();
    // One for encryption, a symmetric one and one of another curve are passed over.
    assert_eq!(set.len(), 3);
    for (pem, algorithm, id) in [(RSA, "RS256", "rsa"), (P256, "ES256", "ec"), (ED25519, "EdDSA", "ed")] {
        let alone = KeySet::parse(pem.as_bytes()).unwrap();
        let (of_pem, of_set) = (alone.find(algorithm, None).unwrap(), set.find(algorithm, Some(id)).unwrap());
        assert!(of_pem.material == of_set.material, "{algorithm}");
    }
    let all = KeySet::parse([RSA, P256, ED25519].concat().as_bytes()).unwrap();
    assert_eq!(all.len(), 3);
}

#[test]
fn a_key_is_found_by_its_name_and_its_own_algorithm_only() {
    let set = KeySet::parse(SET.as_bytes()).unwrap();
    assert!(set.find("Ed25519", Some("ed")).is_some());
    for (algorithm, id) in [
        ("none", Some("ed")),
        ("HS256", Some("rsa")),
        ("ES256", Some("rsa")),
        ("RS256", Some("enc")),
        ("RS384", Some("rsa")),
        ("EdDSA", Some("new")),
        ("", None),
    ] {
        assert!(set.find(algorithm, id).is_none(), "{algorithm} {id:?}");
    }
    // Without a name it must be the only one; a key without a name is meant by any.
    assert!(set.find("EdDSA", None).is_some());
    let two = format!(r#"{{"keys":[{0},{1}]}}"#, ed("a", ""), ed("b", ""));
    assert!(KeySet::parse(two.as_bytes()).unwrap().find("EdDSA", None).is_none());
    let pem = KeySet::parse(ED25519.as_bytes()).unwrap();
    assert!(pem.find("EdDSA", Some("whatever")).is_some());
}

fn ed(id: &str, more: &str) -> String {
    format!(
        r#"{{"kty":"OKP","crv":"Ed25519","x":"En89fQORldl-NFsVdgdgdA_hxt8d_FENPYV_t1W40dc","kid":"{id}"{more}}}"#
    )
}

#[test]
fn what_is_no_public_key_for_signatures_is_refused() {
    for (text, error) in [
        ("", InvalidKeys::Format),
        ("key", InvalidKeys::Format),
        ("{", InvalidKeys::Format),
        (r#"{"keys":[]}"#, InvalidKeys::None),
        (r#"{"kty":"oct","k":"c2VjcmV0"}"#, InvalidKeys::None),
        (r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#, InvalidKeys::None),
        ("-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n", InvalidKeys::None),
        ("-----BEGIN PRIVATE KEY-----\nMCow\n-----END PRIVATE KEY-----\n", InvalidKeys::Private),
    ] {
        assert_eq!(KeySet::parse(text.as_bytes()), Err(error), "{text}");
    }
    assert_eq!(KeySet::parse(ed("a", r#","d":"AA""#).as_bytes()), Err(InvalidKeys::Private));
    for more in [r#","use":"enc""#, r#","alg":"ES256""#, r#","key_ops":["sign"]"#] {
        assert_eq!(KeySet::parse(ed("a", more).as_bytes()), Err(InvalidKeys::None), "{more}");
    }
    let many = vec![ed("a", ""); KEYS_MAX + 1].join(",");
    assert_eq!(KeySet::parse(format!(r#"{{"keys":[{many}]}}"#).as_bytes()), Err(InvalidKeys::TooMany));
}
