//! What the file may say, and what is told of what it may not.

use super::*;
use crate::Scope;

const WHOLE: &str = include_str!("../../../../fuzz/seeds/access_file/whole");
const HASH: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn parse(text: &str) -> Result<AccessFile, InvalidFile> {
    AccessFile::parse(text, Path::new("/etc/alluvium"))
}

#[test]
fn everything_that_can_be_said_is_read() {
    let file = parse(WHOLE).unwrap();
    let ingest = &file.tokens[&TokenHash::of("abc")];
    assert_eq!((ingest.name.as_str(), ingest.is_shared), ("ingest", false));
    assert!(
        ingest.grants.may(Scope::Read, "/v1/stream/a b/c") && ingest.grants.may(Scope::Write, "/ds/docs/x")
    );
    assert!(
        !ingest.grants.may(Scope::Read, "/ds/docs/x") && !ingest.grants.may(Scope::Write, "/v1/stream/a b")
    );
    assert_eq!(ingest.expires_ms, Some(1_896_091_200_000));
    let rates = Rates { requests_per_s: Some(50), append_bytes_per_s: Some(1 << 20) };
    assert_eq!((ingest.rates, ingest.actors.as_ref().unwrap().len()), (Some(rates), 1));
    let [by_url, by_file] = &file.issuers[..] else { panic!("{:?}", file.issuers) };
    assert_eq!(
        by_url.keys,
        KeySource::Url(KeyUrl { url: "https://id.example/jwks.json".to_owned(), authority: None })
    );
    assert_eq!((by_url.refresh_s, by_url.leeway_s, by_url.claims.scope.as_str()), (60, 5, "permissions"));
    assert!(by_url.ceiling.may(Scope::Write, "/ds/x") && !by_url.ceiling.may(Scope::Read, "/v1"));
    assert_eq!(by_file.keys, KeySource::File(PathBuf::from("/etc/alluvium/keys/own.pem")));
    assert_eq!(by_file.audience, ["alluvium"]);
    assert!(file.anyone.unwrap().may(Scope::Read, "/v1/stream/public/a"));
    for empty in ["", " ", "\n\n\t"] {
        assert_eq!(parse(empty), Err(InvalidFile::Empty));
    }
    // Somebody has meant that.
    assert_eq!(parse("# nobody\n").unwrap(), AccessFile::default());
    let nobody = AccessFile { anyone: Some(Grants::default()), ..AccessFile::default() };
    assert_eq!(parse("[anyone]\nscopes = []\n").unwrap(), nobody);
}

#[test]
fn an_entry_that_is_made_reads_back() {
    let scopes = ["read".to_owned(), "write:/ds/docs".to_owned()];
    let prefixes = ["/v1/stream/a\"b".to_owned()];
    let text = entry("a \"b\"\\", &TokenHash::of("t"), &scopes, &prefixes, Some("2030-01-31T12:00:00Z"));
    let file = parse(&(text + &entry("c", &TokenHash::of("u"), &scopes, &[], None))).unwrap();
    let made = &file.tokens[&TokenHash::of("t")];
    assert_eq!((made.name.as_str(), made.expires_ms), ("a \"b\"\\", Some(1_896_091_200_000)));
    assert!(made.grants.may(Scope::Read, "/v1/stream/a\"b") && made.grants.may(Scope::Write, "/ds/docs"));
    assert!(file.tokens[&TokenHash::of("u")].grants.may(Scope::Read, "/"));
}

#[test]
fn what_is_wrong_is_told_by_its_place() {
    let token =
        |more: &str| format!("[[token]]\nname = \"a\"\nhash = \"{HASH}\"\nscopes = [\"read\"]\n{more}");
    let issuer = |more: &str| format!("[[issuer]]\nissuer = \"a\"\naudience = \"b\"\nscopes = []\n{more}");
    for (text, expected) in [
        ("[[token]]\nname = 1\n".to_owned(), "line 2"),
        (token("colour = 1\n"), "line 5"),
        ("[[token]]\nname = \"a\"\n".to_owned(), "missing field"),
        (token("expires = 1\n"), "`expires`"),
        (token("requests-per-s = 0\n"), "rate"),
        (token("actors = [\"\"]\n"), "actor"),
        (token("prefixes = [\"ds\"]\n"), "begins with `/`"),
        (token("") + &token(""), "stand once"),
        (token("").replace("\"a\"", "\"\""), "1 to 128"),
        (token("") + &token("").replace("\"a\"", "\"b\""), "same hash"),
        (token("").replace("sha256:", "sha1:"), "hexadecimal"),
        (token("").replace("read", "reed"), "is no scope"),
        (issuer(""), "missing field"),
        (issuer("keys = \"http://id.example/k\"\n"), "https://"),
        (issuer("keys = \"https://u:p@id.example/k\"\n"), "https://"),
        (issuer("keys = \"ftp://id.example/k\"\n"), "https://"),
        (issuer("keys = \"k\"\nleeway-s = 301\n"), "leeway"),
        (issuer("keys = \"k\"\nrefresh-s = 1\n"), "refresh"),
        (issuer("keys = \"k\"\nkeys-ca = \"ca.pem\"\n"), "keys-ca"),
        (issuer("keys = \"http://127.0.0.1/k\"\nkeys-ca = \"ca.pem\"\n"), "keys-ca"),
        (issuer("keys = \"https://a/k\"\nkeys-ca = \"\"\n"), "keys-ca"),
        (issuer("keys = \"k\"\n").replace("\"b\"", "[]"), "audience"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} for {text}");
    }
    assert!(parse(&issuer("keys = \"http://127.0.0.1:8000/k\"\n")).is_ok());
    let private = parse(&issuer("keys = \"https://id.lan/k\"\nkeys-ca = \"ca.pem\"\n")).unwrap();
    let authority = Some(PathBuf::from("/etc/alluvium/ca.pem"));
    assert_eq!(
        private.issuers[0].keys,
        KeySource::Url(KeyUrl { url: "https://id.lan/k".to_owned(), authority })
    );
    let many: String =
        (0..=ISSUERS_MAX).map(|n| issuer("keys = \"k\"\n").replace("\"a\"", &format!("\"{n}\""))).collect();
    assert_eq!(parse(&many), Err(InvalidFile::TooManyIssuers));
}
