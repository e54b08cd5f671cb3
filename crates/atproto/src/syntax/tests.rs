use proptest::prelude::*;

use super::*;

fn expect<T: std::str::FromStr>(valid: &[&str], invalid: &[&str]) {
    for text in valid {
        assert!(text.parse::<T>().is_ok(), "{text:?} is valid");
    }
    for text in invalid {
        assert!(text.parse::<T>().is_err(), "{text:?} is not valid");
    }
}

fn long(unit: &str, times: usize) -> String {
    unit.repeat(times)
}

#[test]
fn dids_are_told_from_other_text() {
    let longest = format!("did:a:{}", long("b", 2042));
    let too_long = format!("did:a:{}", long("b", 2043));
    expect::<Did>(
        &["did:plc:abc", "did:web:localhost%3A80", "did:m:::x", "did:m:-", "did:m:%41.", &longest],
        &[
            "",
            "did:",
            "did::x",
            "did:m:",
            "did:m",
            "did:M:x",
            "did:m1:x",
            "DID:m:x",
            "did:m:x:",
            "did:m:x%",
            "did:m:a/b",
            "did:m:a#b",
            "did:m:a b",
            "did:m:é",
            " did:m:x",
            "did:m:x\n",
            &too_long,
        ],
    );
    assert_eq!("did:plc:abc".parse::<Did>().map(|did| did.method().to_owned()).as_deref(), Ok("plc"));
}

#[test]
fn handles_are_told_from_other_text() {
    let label = long("a", 63);
    let longest = format!("{}{}.com", long(&format!("{label}."), 3), long("b", 57));
    assert_eq!(longest.len(), 253);
    let too_long = format!("b{longest}");
    let long_label = format!("{label}a.com");
    expect::<Handle>(
        &["a.b", "A.Test", "9.x", "a--b.c-d", "xn--a.test", &longest],
        &[
            "",
            "a",
            "a.",
            ".a",
            "a..b",
            "-a.b",
            "a-.b",
            "a.9",
            "a.9b",
            "a_b.c",
            "a.b ",
            "é.b",
            &too_long,
            &long_label,
        ],
    );
}

#[test]
fn nsids_are_told_from_other_text() {
    let name = format!("a.b.{}", long("c", 63));
    let long_name = format!("{name}c");
    expect::<Nsid>(
        &["a.b.c", "com.example.fooBar", "a.9.c1", "a-b.c.d", &name],
        &["", "a.b", "a..c", "9.b.c", "a.b.9", "a.b.c-d", "a.-b.c", "a.b.c.", "a.b.*", "a.b.é", &long_name],
    );
}

#[test]
fn record_keys_and_paths_are_told_from_other_text() {
    let longest = long("o", 512);
    let too_long = long("o", 513);
    expect::<RecordKey>(
        &["self", "...", ":", "-_~.", &longest],
        &["", ".", "..", "a/b", "a b", "a%", "é", &too_long],
    );
    expect::<RecordPath>(
        &["a.b.c/self"],
        &["", "a.b.c", "a.b.c/", "/self", "a.b/self", "a.b.c/d/e", "a.b.c/.."],
    );
    let path: RecordPath = "a.b.c/self".parse().expect("a valid path");
    assert_eq!((path.collection(), path.record_key()), ("a.b.c", "self"));
}

#[test]
fn at_uris_are_told_from_other_text() {
    let too_long = format!("at://did:m:x/a.b.c/{}", long("o", 513));
    expect::<AtUri>(
        &["at://did:m:x", "at://a.test", "at://a.test/a.b.c", "at://did:m:x/a.b.c/self"],
        &[
            "",
            "at:",
            "at://",
            "At://a.test",
            "at:///a.b.c",
            "at://a.test/",
            "at://a.test//",
            "at://a.test/a.b",
            "at://a.test/a.b.c/",
            "at://a.test/a.b.c/k/",
            "at://a.test/a.b.c/k/l",
            "at://a.test#f",
            "at://a.test?q",
            "at://a.test/a.b.c/k#f",
            &too_long,
        ],
    );
    let uri: AtUri = "at://did:m:x/a.b.c/self".parse().expect("a valid AT-URI");
    assert_eq!(
        (uri.authority(), uri.collection(), uri.record_key()),
        ("did:m:x", Some("a.b.c"), Some("self"))
    );
    expect::<AtIdentifier>(&["did:m:x", "a.test"], &["", "a", "@a.test", "did:m:"]);
}

#[test]
fn tids_are_told_from_other_text() {
    expect::<Tid>(
        &["2222222222222", "7777777777777", "jzzzzzzzzzzzz", "3jzfcijpj2z2a"],
        &[
            "",
            "222222222222",
            "22222222222222",
            "k222222222222",
            "222222222222a ",
            "222222222222A",
            "222222222222-",
            "1222222222222",
        ],
    );
    assert_eq!(Tid::new(u64::MAX, 0xffff).micros(), Tid::MAX_MICROS);
    assert_eq!(Tid::new(0, 1).to_string(), "2222222222223");
}

proptest! {
    #[test]
    fn a_tid_sorts_as_number_and_as_text(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (Tid::from_number(a), Tid::from_number(b));
        prop_assert_eq!(a.to_string().parse(), Ok(a));
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
    }

    #[test]
    fn a_tid_keeps_time_and_clock(micros in 0..=Tid::MAX_MICROS, clock in 0_u16..1024) {
        let tid = Tid::new(micros, clock);
        prop_assert_eq!((tid.micros(), tid.clock()), (micros, clock));
    }

    #[test]
    fn any_text_is_judged_without_a_panic(text in "\\PC{0,40}") {
        for judge in [Did::is_valid, Handle::is_valid, Nsid::is_valid, RecordKey::is_valid, AtUri::is_valid, Tid::is_valid] {
            let _: bool = judge(&text);
        }
    }

    #[test]
    fn an_at_uri_is_made_of_its_parts(key in "[a-zA-Z0-9_~.:-]{1,20}", name in "[a-z]{1,5}\\.[a-z0-9]{1,5}\\.[a-zA-Z]{1,5}") {
        prop_assume!(RecordKey::is_valid(&key));
        let uri: AtUri = format!("at://did:plc:abc/{name}/{key}").parse().expect("made of valid parts");
        prop_assert_eq!(uri.collection(), Some(name.as_str()));
        prop_assert_eq!(uri.record_key(), Some(key.as_str()));
    }
}
