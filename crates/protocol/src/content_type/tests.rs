use proptest::prelude::*;

use super::*;

fn parse(value: &str) -> ContentType {
    ContentType::parse(value).unwrap()
}

#[test]
fn the_spelling_is_kept_without_surrounding_space() {
    for value in ["application/json", "Application/JSON; charset=utf-8", "image/svg+xml", "x/y;q=\"a,b\""] {
        assert_eq!(parse(value).as_str(), value);
        assert_eq!(parse(&format!(" \t{value} ")).as_str(), value);
    }
}

#[test]
fn values_without_type_and_subtype_are_refused() {
    for value in
        ["", " ", "text", "text/", "/plain", "a b/c", "text/pl ain", "text/plain/x", "té/x", "a/b;\n", ";a/b"]
    {
        assert_eq!(ContentType::parse(value), Err(InvalidContentType::Syntax), "{value:?}");
    }
    let long = format!("text/{}", "x".repeat(CONTENT_TYPE_BYTES_MAX - 5));
    assert_eq!(parse(&long).as_str(), long);
    assert_eq!(ContentType::parse(&format!("{long}x")), Err(InvalidContentType::TooLong));
}

#[test]
fn only_the_exact_json_type_keeps_message_boundaries() {
    for value in
        ["application/json", "APPLICATION/Json", "application/json;charset=utf-8", "application/json ; a=b"]
    {
        assert!(parse(value).is_json(), "{value:?}");
        assert_eq!(parse(value).sse_encoding(), SseEncoding::Json);
        assert_eq!(parse(value).sub_offset_unit(), SubOffsetUnit::Messages);
    }
    for value in ["application/ndjson", "application/vnd.api+json", "text/json", "application/jsonx"] {
        assert!(!parse(value).is_json(), "{value:?}");
        assert_eq!(parse(value).sub_offset_unit(), SubOffsetUnit::Bytes);
    }
}

#[test]
fn text_travels_as_text_and_all_else_in_base64() {
    for value in ["text/plain", "TEXT/html; charset=utf-8", "text/x"] {
        assert_eq!(parse(value).sse_encoding(), SseEncoding::Text, "{value:?}");
    }
    for value in ["application/octet-stream", "image/png", "textual/plain", "application/x-ndjson", "te/xt"] {
        assert_eq!(parse(value).sse_encoding(), SseEncoding::Base64, "{value:?}");
    }
}

#[test]
fn common_spellings_are_not_copied() {
    assert!(matches!(parse("application/json").0, Spelling::Common(_)));
    assert!(matches!(parse("application/JSON").0, Spelling::Other(_)));
    assert_eq!(ContentType::default(), parse("application/octet-stream"));
}

/// The comparison said the slow way.
fn normalised(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

proptest! {
    #[test]
    fn types_are_the_same_when_their_media_types_are(
        (a, b) in ("[abAB]/[xyXY]( ?;[a-z]=[0-9]){0,2}", "[abAB]/[xyXY]( ?;[a-z]=[0-9]){0,2}"),
    ) {
        let same = parse(&a).same_media_type(&parse(&b));
        prop_assert_eq!(same, normalised(&a) == normalised(&b));
        prop_assert_eq!(same, parse(&b).same_media_type(&parse(&a)));
    }
}
