//! Tokens that are taken, and the many that are not.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;

const SET: &[u8] = include_bytes!("../../../../fuzz/seeds/access_keys/set.json");
const SIGNED: [&str; 3] = [
    include_str!("../../../../fuzz/seeds/access_jwt/rs256"),
    include_str!("../../../../fuzz/seeds/access_jwt/es256"),
    include_str!("../../../../fuzz/seeds/access_jwt/eddsa"),
];

fn pair() -> (Ed25519KeyPair, KeySet) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k"}]});
    (pair, KeySet::parse(keys.to_string().as_bytes()).unwrap())
}

fn sign(head: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(head), part(claims));
    let signature = pair().0.sign(message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

fn verified(token: &str, keys: &KeySet) -> Result<Claims, InvalidJwt> {
    Unverified::parse(token)?.verify(keys)
}

#[test]
fn tokens_of_each_algorithm_are_verified_as_another_implementation_signed_them() {
    let keys = KeySet::parse(SET).unwrap();
    for token in SIGNED {
        let claims = verified(token, &keys).unwrap();
        assert_eq!(claims.check(&["alluvium".to_owned()], 0, 1_600_000_000_000), Ok(2_000_000_000_000));
        assert_eq!(claims.texts("scope").unwrap().unwrap(), ["openid", "read", "write:/ds/docs"]);
    }
}

#[test]
fn no_part_of_a_token_can_be_changed() {
    let keys = KeySet::parse(SET).unwrap();
    for token in SIGNED {
        for at in 0..token.len() {
            let mut changed = token.as_bytes().to_vec();
            changed[at] = match changed[at] {
                b'A' => b'B',
                _ => b'A',
            };
            let changed = String::from_utf8(changed).unwrap();
            assert!(verified(&changed, &keys).is_err(), "at {at}");
        }
        for cut in [1, 2, 20] {
            assert!(verified(&token[..token.len() - cut], &keys).is_err());
        }
        assert!(verified(&format!("{token}="), &keys).is_err());
        assert!(verified(&format!("{token}."), &keys).is_err());
    }
}

#[test]
fn the_head_of_a_token_chooses_nothing_but_a_key() {
    let (_, keys) = pair();
    let claims = json!({"iss": "i"});
    assert!(verified(&sign(&json!({"alg": "EdDSA", "kid": "k"}), &claims), &keys).is_ok());
    assert!(verified(&sign(&json!({"alg": "EdDSA", "typ": "at+JWT"}), &claims), &keys).is_ok());
    for (head, error) in [
        (json!({"alg": "none"}), InvalidJwt::UnknownKey),
        (json!({"alg": "None", "kid": "k"}), InvalidJwt::UnknownKey),
        (json!({"alg": "HS256", "kid": "k"}), InvalidJwt::UnknownKey),
        (json!({"alg": "HS512"}), InvalidJwt::UnknownKey),
        (json!({"alg": "ES256", "kid": "k"}), InvalidJwt::UnknownKey),
        (json!({"alg": "EdDSA", "kid": "other"}), InvalidJwt::UnknownKey),
        (json!({"alg": "EdDSA", "crit": ["exp"]}), InvalidJwt::Kind),
        (json!({"alg": "EdDSA", "typ": "logout+jwt"}), InvalidJwt::Kind),
        (json!({"kid": "k"}), InvalidJwt::Form),
        (json!({"alg": ["EdDSA"]}), InvalidJwt::Form),
    ] {
        assert_eq!(verified(&sign(&head, &claims), &keys).err(), Some(error), "{head}");
    }
    // What a library would do that takes the public key for a shared secret: HMAC with the bytes of the key.
    let twice = format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(r#"{"alg":"none","alg":"EdDSA"}"#));
    assert_eq!(verified(&twice, &keys).err(), Some(InvalidJwt::Form));
    for text in ["", "..", "a.b", "a.b.c.d", "e30.e30.", "e30.e30.*", "a b.c.d"] {
        assert!(verified(text, &keys).is_err(), "{text}");
    }
}

#[test]
fn a_token_is_for_an_audience_and_a_time() {
    let (_, keys) = pair();
    let own = ["a".to_owned(), "b".to_owned()];
    let check = |claims: Value, leeway_s| {
        verified(&sign(&json!({"alg": "EdDSA"}), &claims), &keys).unwrap().check(&own, leeway_s, 1_000_000)
    };
    assert_eq!(check(json!({"aud": "b", "exp": 1001}), 0), Ok(1_001_000));
    assert_eq!(check(json!({"aud": ["x", "a"], "exp": 1000.5}), 0), Ok(1_000_500));
    for aud in [json!("c"), json!(["c"]), json!([]), json!(1), json!({"a": "a"}), json!("a b"), Value::Null] {
        assert_eq!(check(json!({"aud": aud, "exp": 2000}), 0), Err(InvalidJwt::Audience), "{aud}");
    }
    assert_eq!(check(json!({"exp": 2000}), 0), Err(InvalidJwt::Audience));
    // Its end, with what the clock may be off.
    assert_eq!(check(json!({"aud": "a"}), 0), Err(InvalidJwt::Expired));
    assert_eq!(check(json!({"aud": "a", "exp": 1000}), 0), Err(InvalidJwt::Expired));
    assert_eq!(check(json!({"aud": "a", "exp": 1000}), 5), Ok(1_005_000));
    assert_eq!(check(json!({"aud": "a", "exp": 994}), 5), Err(InvalidJwt::Expired));
    assert_eq!(check(json!({"aud": "a", "exp": -1}), 5), Err(InvalidJwt::Expired));
    assert_eq!(check(json!({"aud": "a", "exp": "2000"}), 5), Err(InvalidJwt::Form));
    assert_eq!(check(json!({"aud": "a", "exp": 1e300}), 5), Ok(u64::MAX));
    // Its beginning.
    assert_eq!(check(json!({"aud": "a", "exp": 2000, "nbf": 1001}), 0), Err(InvalidJwt::Early));
    assert!(check(json!({"aud": "a", "exp": 2000, "nbf": 1001}), 1).is_ok());
    assert!(check(json!({"aud": "a", "exp": 2000, "nbf": 1000}), 0).is_ok());
    assert_eq!(check(json!({"aud": "a", "exp": 2000, "nbf": "x"}), 0), Err(InvalidJwt::Form));
}

#[test]
fn several_texts_are_an_array_or_have_spaces_between_them() {
    let (_, keys) = pair();
    let claims = json!({"a": "x  y", "b": ["x y", "z"], "c": 1, "d": [1], "e": null});
    let claims = verified(&sign(&json!({"alg": "EdDSA"}), &claims), &keys).unwrap();
    assert_eq!(claims.texts("a"), Ok(Some(vec!["x", "y"])));
    assert_eq!(claims.texts("b"), Ok(Some(vec!["x y", "z"])));
    assert_eq!((claims.texts("c"), claims.texts("d")), (Err(InvalidJwt::Grants), Err(InvalidJwt::Grants)));
    assert_eq!((claims.texts("e"), claims.texts("f")), (Ok(None), Ok(None)));
}
