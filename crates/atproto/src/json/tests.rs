use proptest::prelude::*;

use super::*;
use crate::cbor::{Finite, Map, Value, decode_lenient, encode};
use crate::fixtures::value;

#[test]
fn each_kind_of_value_is_read() {
    let read = |text: &str| from_json(text.as_bytes());
    assert_eq!(read(" null "), Ok(Value::Null));
    assert_eq!(read("[true,\"a\\u00e9\"]"), Ok(Value::List(vec![Value::Bool(true), Value::from("aé")])));
    for (text, integer) in [
        ("0", 0),
        ("-0", 0),
        ("1.0", 1),
        ("1e3", 1000),
        ("-9223372036854775808", i64::MIN),
        ("9223372036854775807", i64::MAX),
    ] {
        assert_eq!(read(text), Ok(Value::Integer(integer)), "{text}");
    }
    for text in ["{\"$bytes\":\"AQ\"}", "{\"$bytes\":\"AQ==\"}"] {
        assert_eq!(read(text), Ok(Value::Bytes(vec![1])), "{text}");
    }
}

#[test]
fn what_the_model_has_no_room_for_is_refused() {
    let link = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    let cases = [
        ("1.5", JsonError::Float),
        ("[1e-1]", JsonError::Float),
        ("9223372036854775808", JsonError::Range),
        ("-9223372036854775809", JsonError::Range),
        ("1e300", JsonError::Range),
        ("{\"$link\":1}", JsonError::Link),
        ("{\"$link\":\"x\"}", JsonError::Link),
        (&format!("{{\"$link\":\"{link}\",\"a\":1}}"), JsonError::Link),
        ("{\"$bytes\":[1]}", JsonError::Bytes),
        ("{\"$bytes\":\"A\"}", JsonError::Bytes),
        ("{\"$bytes\":\"-_\"}", JsonError::Bytes),
        ("{\"$bytes\":\"AQ\",\"a\":1}", JsonError::Bytes),
        ("{\"$bytes\":\"AQ\",\"$link\":\"\"}", JsonError::Link),
        ("{\"a\":1,\"a\":1}", JsonError::DuplicateKey),
    ];
    for (text, why) in cases {
        assert_eq!(from_json(text.as_bytes()), Err(why), "{text}");
    }
    for text in ["", "{", "[1,]", "nul", "1 1", "\"\\ud800\"", "\"\u{1}\"", "1e999", "{1:2}"] {
        assert!(matches!(from_json(text.as_bytes()), Err(JsonError::Syntax { .. })), "{text}");
    }
    let deep = "[".repeat(200_000);
    assert!(matches!(from_json(deep.as_bytes()), Err(JsonError::Syntax { .. })));
    let many = format!("[{}0]", "0,".repeat(1_000_000));
    assert_eq!(from_json(many.as_bytes()), Err(JsonError::Values));
}

#[test]
fn writing_sorts_keys_by_bytes_and_escapes_as_go_does() {
    let entries = [("bb", Value::Null), ("c", Value::Bool(false)), ("", Value::Bytes(vec![1]))];
    let map = Map::from_entries(entries.map(|(key, value)| (key.to_owned(), value)).into()).map(Value::Map);
    assert_eq!(
        map.as_ref().map(to_json).as_deref(),
        Some("{\"\":{\"$bytes\":\"AQ\"},\"bb\":null,\"c\":false}")
    );
    let text = Value::from("\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}<>&\u{2028}\u{2029}é😀");
    let escaped = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}\\u003c\\u003e\\u0026\\u2028\\u2029é😀\"";
    assert_eq!(to_json(&text), escaped);
}

#[test]
fn floats_are_written_in_their_shortest_form() {
    let cases = [
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (9.5e-7, "9.5e-7"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
    ];
    for (float, text) in cases {
        assert_eq!(Finite::new(float).map(|float| to_json(&Value::Float(float))).as_deref(), Some(text));
    }
}

proptest! {
    #[test]
    fn a_value_of_the_model_comes_back(value in value(false)) {
        prop_assert_eq!(from_json(to_json(&value).as_bytes()), Ok(value));
    }

    #[test]
    fn what_is_written_is_json(value in value(true)) {
        prop_assert!(serde_json::from_str::<serde_json::Value>(&to_json(&value)).is_ok());
    }

    #[test]
    fn transcoding_is_reading_and_writing(value in value(true)) {
        let mut json = "before".to_owned();
        prop_assert_eq!(transcode(&encode(&value), &mut json), Ok(()));
        prop_assert_eq!(json, format!("before{}", to_json(&value)));
    }

    #[test]
    fn any_bytes_are_transcoded_as_they_are_read(bytes in proptest::collection::vec(prop_oneof![0x60..0x64_u8, 0x80..0x84_u8, 0xa0..0xa4_u8, any::<u8>()], 0..40)) {
        let mut json = "before".to_owned();
        let transcoded = transcode(&bytes, &mut json);
        match decode_lenient(&bytes) {
            Ok(value) => prop_assert_eq!(json, format!("before{}", to_json(&value))),
            Err(error) => {
                prop_assert_eq!(transcoded, Err(error));
                prop_assert_eq!(json, "before");
            }
        }
    }

    #[test]
    fn any_input_is_judged_without_a_panic(input in "[\\[\\]{}\",:$a-z0-9.e-]{0,40}") {
        let _ = from_json(input.as_bytes()).is_ok();
    }
}
