use proptest::prelude::*;

use super::*;

#[test]
fn a_path_is_decoded_once() {
    let decoded = |raw| StreamPath::parse_encoded(raw).map(|path| path.as_str().to_owned());
    assert_eq!(decoded("orders/eu"), Ok("orders/eu".to_owned()));
    assert_eq!(decoded("a%20b"), Ok("a b".to_owned()));
    assert_eq!(decoded("a%2fb"), Ok("a/b".to_owned()));
    assert_eq!(decoded("a%2520b"), Ok("a%20b".to_owned()));
    assert_eq!(decoded("caf%C3%A9"), Ok("café".to_owned()));
    assert_eq!(decoded("café"), Ok("café".to_owned()));
    assert_eq!(decoded("..."), Ok("...".to_owned()));
    assert_eq!(decoded("a/__ds"), Ok("a/__ds".to_owned()));
    assert_eq!(decoded("__dsx"), Ok("__dsx".to_owned()));
}

#[test]
fn each_refusal_has_its_reason() {
    let refused = [
        ("", InvalidPath::Empty),
        ("/a", InvalidPath::Segment),
        ("a/", InvalidPath::Segment),
        ("a//b", InvalidPath::Segment),
        (".", InvalidPath::Segment),
        ("a/../b", InvalidPath::Segment),
        ("a/%2e%2E/b", InvalidPath::Segment),
        ("a%2F..", InvalidPath::Segment),
        ("a%2F", InvalidPath::Segment),
        ("a%00b", InvalidPath::Control),
        ("a%0Ab", InvalidPath::Control),
        ("a%7F", InvalidPath::Control),
        ("a%C2%85", InvalidPath::Control),
        ("a%", InvalidPath::Encoding),
        ("a%2", InvalidPath::Encoding),
        ("a%zz", InvalidPath::Encoding),
        ("a%+1", InvalidPath::Encoding),
        ("%ff", InvalidPath::Encoding),
        ("__ds", InvalidPath::Reserved),
        ("__ds/subscriptions", InvalidPath::Reserved),
        ("%5f_ds/x", InvalidPath::Reserved),
    ];
    for (raw, reason) in refused {
        assert_eq!(StreamPath::parse_encoded(raw), Err(reason), "{raw:?}");
    }
}

#[test]
fn the_length_is_bounded_after_decoding() {
    let longest = "%61".repeat(PATH_BYTES_MAX);
    assert_eq!(StreamPath::parse_encoded(&longest).unwrap().len(), PATH_BYTES_MAX);
    for raw in [format!("{longest}a"), "a".repeat(PATH_BYTES_MAX + 1)] {
        assert_eq!(StreamPath::parse_encoded(&raw), Err(InvalidPath::TooLong));
    }
}

proptest! {
    #[test]
    fn the_encoded_path_leads_back_and_is_canonical(path in "[^/]{1,12}(/[^/]{1,12}){0,3}") {
        if let Ok(path) = StreamPath::parse_decoded(&path) {
            let encoded = path.encoded();
            let in_urls = |byte: u8| byte.is_ascii_graphic() && !br#"?#[]"<>\^`{|}"#.contains(&byte);
            let plain = encoded.bytes().all(in_urls);
            prop_assert!(plain, "{}", encoded);
            let again = StreamPath::parse_encoded(&encoded);
            prop_assert_eq!(again.as_ref(), Ok(&path));
            prop_assert_eq!(again.unwrap().encoded(), encoded);
        }
    }

    #[test]
    fn an_accepted_path_is_safe_however_it_was_spelled(raw in "(a|\\.|/|%2e|%2F|%00|%|_|__ds|%C3%A9|é){0,8}") {
        if let Ok(path) = StreamPath::parse_encoded(&raw) {
            prop_assert!(!path.is_empty() && path.len() <= PATH_BYTES_MAX);
            prop_assert!(!path.contains(char::is_control));
            prop_assert!(path.split('/').all(|segment| !["", ".", ".."].contains(&segment)));
            prop_assert!(!path.starts_with("__ds/") && &*path != "__ds");
        }
    }
}

#[test]
fn a_place_is_one_of_the_url_path_and_covers_whole_segments() {
    let plain = StreamPath::parse_decoded("logs/a b").unwrap();
    let bucketed = StreamPath::parse_url_path("/ds/logs/a%20b").unwrap();
    for (prefix, of_plain, of_bucketed) in [
        ("", true, true),
        ("/", true, true),
        ("/v1", true, false),
        ("/v1/str", false, false),
        ("/v1/stream", true, false),
        ("/v1/stream/", true, false),
        ("/v1/stream/logs", true, false),
        ("/v1/stream/logs/", true, false),
        ("/v1/stream/log", false, false),
        ("/v1/stream/logs/a", false, false),
        ("/v1/stream/logs/a b", true, false),
        ("/v1/stream/logs/a b/", true, false),
        ("/v1/stream/logs/a b/c", false, false),
        ("/d", false, false),
        ("/ds", false, true),
        ("/ds/logs/a", false, false),
        ("/ds/logs/a b", false, true),
        ("/ds/log", false, false),
        ("/ds/logs/", false, true),
        ("/ds//", false, false),
        ("/ds/a", false, false),
        ("logs", false, false),
        ("\0logs", false, false),
    ] {
        assert_eq!(plain.is_under(prefix), of_plain, "{prefix}");
        assert_eq!(bucketed.is_under(prefix), of_bucketed, "{prefix}");
        assert!(!StreamPath::internal("logs/a").is_under(prefix), "{prefix}");
    }
}

proptest! {
    /// Looking through the spans finds what looking at every key finds, and nothing else.
    #[test]
    fn the_keys_under_a_place_are_those_in_its_spans(
        keys in prop::collection::vec("[\u{0}]?[ab0!/-]{1,6}", 0..20),
        place in "(/v1|/ds|/v1/stream)?(/[ab0!-]{1,2}){0,3}/?",
    ) {
        let spans = StreamPath::keys_under(&place);
        let mut paths: Vec<StreamPath> = keys.iter().filter_map(|key| StreamPath::from_key(key)).collect();
        let buckets = ["\0aaaa/a", "\0aaaa/b/a", "\0aaab/a"];
        paths.extend(buckets.iter().filter_map(|key| StreamPath::from_key(key)));
        paths.push(StreamPath::internal("a"));
        for path in paths {
            let key = path.as_str();
            let is_in = |span: &KeySpan| {
                key >= span.from.as_str() && span.until.as_deref().is_none_or(|until| key < until)
            };
            prop_assert_eq!(spans.iter().filter(|span| is_in(span)).count(), usize::from(path.is_under(&place)));
        }
    }

    /// One rule: what a prefix of a token covers is what a prefix of an operator names.
    #[test]
    fn a_place_covers_what_a_prefix_of_a_token_covers(
        key in "[ab]{1,2}(/[ab]{1,2}){0,2}", place in "(/v1|/ds|/v1/stream)(/[ab]{1,2}){0,3}/?",
    ) {
        let path = StreamPath::parse_decoded(&key).unwrap();
        let prefix = crate::prefix::Prefix::parse(&place).unwrap();
        prop_assert_eq!(path.is_under(&place), prefix.covers(&path.url_path()));
        prop_assert_eq!(path.is_under(prefix.as_str()), prefix.covers(&path.url_path()));
    }
}
