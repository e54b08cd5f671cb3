use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::limits::INTEGER_MAX;

const TTL: Lifetime = Lifetime::Ttl { seconds: 60 };
const UNTIL: Lifetime = Lifetime::Until { unix_ms: 5_000 };

fn until(text: &str) -> Result<Lifetime, InvalidLifetime> {
    Lifetime::parse(None, Some(text))
}

#[test]
fn forks_take_their_own_lifetime_or_their_sources() {
    let own_ttl = Lifetime::Ttl { seconds: 1 };
    let own_until = Lifetime::Until { unix_ms: 9_000 };
    let table = [
        (Lifetime::Forever, Lifetime::Forever, Lifetime::Forever),
        (Lifetime::Forever, own_ttl, own_ttl),
        (Lifetime::Forever, own_until, own_until),
        (TTL, Lifetime::Forever, TTL),
        (TTL, own_ttl, own_ttl),
        (TTL, own_until, own_until),
        (UNTIL, Lifetime::Forever, UNTIL),
        (UNTIL, own_ttl, own_ttl),
        (UNTIL, own_until, own_until),
    ];
    for (source, requested, fork) in table {
        assert_eq!(Lifetime::inherit(source, requested), fork, "{source:?} {requested:?}");
    }
}

#[test]
fn at_most_one_lifetime_header_may_be_given() {
    assert_eq!(Lifetime::parse(None, None), Ok(Lifetime::Forever));
    let both = Lifetime::parse(Some("1"), Some("2030-01-01T00:00:00Z"));
    assert_eq!(both, Err(InvalidLifetime::Both));
    assert_eq!(Lifetime::parse(Some("x"), Some("y")), Err(InvalidLifetime::Both));
}

#[test]
fn a_deadline_slides_only_with_a_ttl() {
    assert_eq!(Lifetime::Forever.deadline_ms(7), None);
    assert_eq!(TTL.deadline_ms(7), Some(60_007));
    assert_eq!(UNTIL.deadline_ms(7), Some(5_000));
    assert_eq!(Lifetime::Ttl { seconds: INTEGER_MAX }.deadline_ms(u64::MAX - 1), Some(u64::MAX));
    assert!(TTL.is_sliding() && !UNTIL.is_sliding() && !Lifetime::Forever.is_sliding());
}

#[test]
fn a_stream_is_gone_at_its_deadline() {
    assert!(!is_expired(None, u64::MAX));
    assert!(!is_expired(Some(10), 9));
    assert!(is_expired(Some(10), 10));
    assert!(is_expired(Lifetime::Ttl { seconds: 0 }.deadline_ms(3), 3));
}

#[test]
fn timestamps_must_follow_rfc_3339() {
    let accepted = [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01t00:00:01.23456z", 1_234),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:00+01:00", 0),
        ("1600-01-01T00:00:00Z", 0),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_799_000),
        ("9999-12-31T23:59:59.999Z", EXPIRES_AT_MS_MAX),
        ("9999-12-31T23:59:59-23:59", EXPIRES_AT_MS_MAX),
    ];
    for (text, unix_ms) in accepted {
        assert_eq!(until(text), Ok(Lifetime::Until { unix_ms }), "{text}");
    }
    let refused = [
        "",
        "not-a-timestamp",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01 00:00:00Z",
        "2030-01-01T00:00Z",
        "2030-01-01T00:00:00.Z",
        "2030-01-01T00:00:00,5Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T00:60:00Z",
        "2030-01-01T00:00:61Z",
        "2030-01-01T00:00:00+24:00",
        "2030-01-01T00:00:00+0100",
        "2030-02-29T00:00:00Z",
        "2030-13-01T00:00:00Z",
        "2030-00-01T00:00:00Z",
        "02030-01-01T00:00:00Z",
        "+2030-01-01T00:00:00Z",
        "2030-01-01T00:00:00Z[UTC]",
        "2030-01-01T00:00:00Z ",
        "1893456000",
    ];
    for text in refused {
        assert_eq!(until(text), Err(InvalidLifetime::ExpiresAt), "{text:?}");
    }
}

#[test]
fn headers_tell_the_lifetime_canonically() {
    assert_eq!(Lifetime::Forever.header(), None);
    assert_eq!(TTL.header(), Some(("stream-ttl", "60".to_owned())));
    assert_eq!(UNTIL.header(), Some(("stream-expires-at", "1970-01-01T00:00:05.000Z".to_owned())));
    let (_, last) = Lifetime::Until { unix_ms: u64::MAX }.header().unwrap();
    assert_eq!(last, "9999-12-31T23:59:59.999Z");
}

proptest! {
    #[test]
    fn a_ttl_has_one_spelling(text in "[0-9+eE. -]{0,18}") {
        let seconds = text.parse::<u64>().ok().filter(|seconds| seconds.to_string() == text && *seconds <= INTEGER_MAX);
        let expected = seconds.map(|seconds| Lifetime::Ttl { seconds }).ok_or(InvalidLifetime::Ttl);
        prop_assert_eq!(Lifetime::parse(Some(&text), None), expected);
    }

    /// Against `jiff`'s own parser and printer, over the range it knows.
    #[test]
    fn instants_agree_with_an_independent_calendar(
        unix_ms in 86_400_000_u64..253_402_100_000_000,
        zone_minutes in -1_439_i32..=1_439,
    ) {
        let instant = Timestamp::from_millisecond(unix_ms.cast_signed()).unwrap();
        let zone = jiff::tz::Offset::from_seconds(zone_minutes * 60).unwrap();
        let local = zone.to_datetime(instant);
        let sign = if zone_minutes < 0 { '-' } else { '+' };
        let (hours, minutes) = (zone_minutes.abs() / 60, zone_minutes.abs() % 60);
        let text = format!("{local:.3}{sign}{hours:02}:{minutes:02}");
        prop_assert_eq!(until(&text), Ok(Lifetime::Until { unix_ms }));
        let (_, canonical) = Lifetime::Until { unix_ms }.header().unwrap();
        prop_assert_eq!(&canonical, &format!("{instant:.3}"));
        prop_assert_eq!(until(&canonical), Ok(Lifetime::Until { unix_ms }));
    }

    #[test]
    fn no_text_upsets_the_parser(text in "\\PC{0,30}") {
        let _ = until(&text);
    }
}
