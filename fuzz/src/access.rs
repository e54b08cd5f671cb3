//! Fuzz bodies for `alluvium-access`: no token is taken that was not signed as it is, nothing of a file is in an error, and
//! what a path is taken for is what its router takes it for.

use std::path::Path;

use alluvium_access::file::AccessFile;
use alluvium_access::jwt::Unverified;
use alluvium_access::keys::KeySet;
use alluvium_access::routes::{Asked, need};
use alluvium_access::{Doors, redact};
use alluvium_protocol::path::percent_decode;
use alluvium_protocol::{BucketId, StreamPath};
use http::{HeaderMap, Method, Uri};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 5] = [
    ("access_jwt", jwt),
    ("access_keys", keys),
    ("access_file", file),
    ("access_query", query),
    ("access_route", route),
];

const KEYS: &str = include_str!("../seeds/access_keys/set.json");
const SIGNED: [&str; 3] = [
    include_str!("../seeds/access_jwt/rs256"),
    include_str!("../seeds/access_jwt/es256"),
    include_str!("../seeds/access_jwt/eddsa"),
];
/// Stands for `@` in a file.
const SECRET: &str = "alv_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The input is a token.
pub fn jwt(input: &[u8]) {
    let Ok(token) = std::str::from_utf8(input) else { return };
    let keys = KeySet::parse(KEYS.as_bytes()).expect("keys");
    let Ok(unverified) = Unverified::parse(token) else { return };
    let issuer = unverified.issuer().map(str::to_owned);
    if let Ok(claims) = unverified.verify(&keys) {
        assert!(SIGNED.iter().any(|signed| signed.rsplit_once('.').map(|(signed, _)| signed)
            == token.rsplit_once('.').map(|(own, _)| own)));
        assert_eq!(issuer.as_deref(), Some("https://id.example"));
        assert_eq!(claims.text("sub"), Some("alice"));
    }
}

/// The input is a file, or an answer, with keys.
pub fn keys(input: &[u8]) {
    if let Ok(keys) = KeySet::parse(input) {
        assert!((1..=alluvium_access::limits::KEYS_MAX).contains(&keys.len()));
    }
}

/// The input is an access file.
pub fn file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let text = text.replace('@', SECRET);
    if let Err(error) = AccessFile::parse(&text, Path::new("")) {
        // The folder that stands for the secret part of a long text may be cut, but never shown.
        assert!(!error.to_string().contains(&SECRET[..12]), "{error}");
    }
}

/// The input is a URI.
pub fn query(input: &[u8]) {
    let Ok(uri) = Uri::try_from(input) else { return };
    let redacted = redact(&uri).unwrap_or(uri);
    let mut parameters = redacted.query().unwrap_or_default().split('&');
    assert!(parameters.all(|parameter| parameter.split('=').next() != Some("access_token")));
}

/// The input is the path of a URL.
pub fn route(input: &[u8]) {
    let Ok(uri) = Uri::try_from(input) else { return };
    let path = uri.path();
    let needed = need(Doors::Server, &Method::GET, path, &HeaderMap::new());
    let place = match needed.asked {
        Asked::Scope(_) if !needed.place.is_empty() => needed.place,
        _ => return,
    };
    if let Some(rest) = path.strip_prefix("/v1/stream/").filter(|rest| !rest.starts_with("__ds/")) {
        let stream = StreamPath::parse_encoded(rest).expect("a place is that of a stream");
        assert_eq!(place, format!("/v1/stream/{}", stream.as_str()));
        assert!(!place.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")));
    } else if let Some(rest) = path.strip_prefix("/ds/") {
        let mut segments = rest.split('/');
        let bucket = BucketId::parse(segments.next().unwrap_or_default()).expect("a place is in a bucket");
        match segments.next() {
            None => assert_eq!(place, format!("/ds/{bucket}")),
            Some("streams") if segments.next().is_none() => assert_eq!(place, format!("/ds/{bucket}")),
            Some(stream) => {
                let stream = percent_decode(stream).expect("a place is that of a stream");
                assert_eq!(place, format!("/ds/{bucket}/{stream}"));
                assert!(!stream.contains('/'));
            }
        }
    }
}
