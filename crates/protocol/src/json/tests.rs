use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

/// The messages as text, without separators.
fn texts(body: &str) -> Result<Vec<String>, InvalidJson> {
    let messages = flatten(body.as_bytes())?;
    let mut rest = &messages.bytes[..];
    let mut texts = Vec::new();
    for &length in &messages.lengths {
        let (message, tail) = rest.split_at(length as usize);
        let (&separator, text) = message.split_last().unwrap();
        assert_eq!(separator, SEPARATOR);
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        rest = tail;
    }
    assert!(rest.is_empty());
    Ok(texts)
}

fn is_syntax_error(body: &str) -> bool {
    matches!(texts(body), Err(InvalidJson::Syntax { .. }))
}

#[test]
fn one_level_of_array_is_taken_apart() {
    for (body, messages) in [
        (r#"{"event":"created"}"#, vec![r#"{"event":"created"}"#]),
        (r#"[{"event":"a"}, {"event":"b"}]"#, vec![r#"{"event":"a"}"#, r#"{"event":"b"}"#]),
        ("[[1,2], [3,4]]", vec!["[1,2]", "[3,4]"]),
        ("[[[1,2,3]]]", vec!["[[1,2,3]]"]),
        ("[]", vec![]),
        (" [ ] ", vec![]),
        ("[[]]", vec!["[]"]),
        ("\t7\r\n", vec!["7"]),
        ("\r\n\t [1]", vec!["1"]),
        (" \n[\r\n 1 ,\t\"a b\" ]\n", vec!["1", "\"a b\""]),
        ("null", vec!["null"]),
    ] {
        assert_eq!(texts(body).unwrap(), messages, "{body}");
    }
}

#[test]
fn nothing_inside_a_message_is_rewritten() {
    for message in [
        "12345678901234567890123456789",
        "1.10",
        "-0",
        "1e999",
        "0.1000000000000000055511151231257827",
        r#""\u0041\/\ud83d\ude00\ud800""#,
        r#"{ "b" : 1,	"a":2, "a":3 }"#,
        "{\n  \"k\": [ ]\r\n}",
        "\"\u{2028}é\u{7f}\"",
    ] {
        assert_eq!(texts(message).unwrap(), [message]);
        assert_eq!(texts(&format!("[ {message} , {message}]")).unwrap(), [message, message]);
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for body in [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "1 2",
        "[1]]",
        "[1],",
        "{}{}",
        "nul",
        "'a'",
        "01",
        "1.",
        "+1",
        "NaN",
        "\"\n\"",
        "\"\\x\"",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":1,}",
        "// x\n1",
        "\u{feff}1",
        "\u{a0}1",
        "\u{b}[1]",
    ] {
        assert!(is_syntax_error(body), "{body:?}");
    }
    assert_eq!(flatten(b"\"\xff\""), Err(InvalidJson::Utf8));
    assert_eq!(flatten(b"[1,\"\xc3\"]"), Err(InvalidJson::Utf8));
    assert_eq!(texts("[1,\n x]"), Err(InvalidJson::Syntax { line: 2, column: 2 }));
}

#[test]
fn an_empty_batch_is_for_the_caller_to_judge() {
    let empty = flatten(b"[]").unwrap();
    assert_eq!(empty, JsonMessages::default());
    assert_eq!(empty.non_empty(), Err(InvalidJson::EmptyArray));
    let one = flatten(b"1").unwrap();
    assert_eq!(one.clone().non_empty(), Ok(one));
}

#[test]
fn nesting_is_bounded_in_each_message() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    // The outermost array is the batch, so it is not part of the message.
    assert_eq!(texts(&nested(JSON_NESTING_LEVELS_MAX + 1)).unwrap(), [nested(JSON_NESTING_LEVELS_MAX)]);
    assert_eq!(texts(&nested(JSON_NESTING_LEVELS_MAX + 2)), Err(InvalidJson::TooDeep));
    let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert!(texts(&objects(JSON_NESTING_LEVELS_MAX)).is_ok());
    assert_eq!(texts(&objects(JSON_NESTING_LEVELS_MAX + 1)), Err(InvalidJson::TooDeep));
    assert!(texts(&format!("[{0},{0}]", objects(JSON_NESTING_LEVELS_MAX))).is_ok());
    // Far beyond any stack.
    assert_eq!(texts(&nested(1_000_000)), Err(InvalidJson::TooDeep));
    assert!(is_syntax_error(&"[".repeat(1_000_000)));
}

#[test]
fn brackets_in_strings_do_not_nest() {
    let text = format!("\"{}\\\"{}\\\\\"", "[".repeat(300), "{".repeat(300));
    assert_eq!(texts(&text).unwrap().concat(), text);
    let siblings = format!("[{}1]", "[1],".repeat(300));
    assert_eq!(texts(&format!("[{siblings}]")).unwrap(), [siblings]);
}

#[test]
fn a_batch_cut_short_anywhere_is_refused() {
    let body = r#"[{"a":[1,"x\"y"]}, "é", 2.5, null]"#;
    for end in 0..body.len() {
        assert!(flatten(&body.as_bytes()[..end]).is_err(), "{end}");
    }
    assert_eq!(texts(body).unwrap().len(), 4);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}|[\"\\\\\n\r\t\u{0}\\[\\]{},]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a\"\\\\{]{0,3}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn messages_are_the_elements_of_the_parsed_body(value in value(), pretty in any::<bool>()) {
        let body =
            if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let expected = match serde_json::from_str(&body).unwrap() {
            Value::Array(elements) => elements,
            single => vec![single],
        };
        let messages = flatten(body.as_bytes()).unwrap();
        let parsed: Vec<Value> =
            texts(&body).unwrap().iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        prop_assert_eq!(&parsed, &expected);
        let stored = messages.bytes.strip_suffix(b",").unwrap_or_default();
        let read = [b"[", stored, b"]"].concat();
        prop_assert_eq!(serde_json::from_slice::<Value>(&read).unwrap(), Value::Array(expected));
    }

    #[test]
    fn exactly_the_valid_texts_are_accepted(body in "[\\[\\]{}:, \"\\\\a1e.+-]{0,12}|(true|null|\\[|,|\\]|1| ){0,10}") {
        let valid = serde_json::from_str::<&RawValue>(&body).is_ok();
        prop_assert_eq!(texts(&body).is_ok(), valid, "{:?}", body);
    }

    #[test]
    fn no_bytes_upset_the_parser(body in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(flatten(&body));
    }
}

#[test]
fn stored_messages_read_back_as_an_array() {
    assert_eq!(array(b""), b"[]");
    assert_eq!(array(&flatten(b"[1, {\"a\":[2]}]").unwrap().bytes), b"[1,{\"a\":[2]}]");
}

#[test]
fn message_ends_are_found_whatever_the_messages_hold() {
    let body = br#"[ 1, "a,\"],", {"k":[1,2,{"x":","}],"y":"\\"}, [3,[4,","]], true, "\\\"," ]"#;
    let messages = flatten(body).unwrap();
    let mut ends = MessageEnds::default();
    let mut lengths = Vec::new();
    let mut start = 0;
    for (at, &byte) in messages.bytes.iter().enumerate() {
        if ends.push(byte) {
            lengths.push(u32::try_from(at + 1 - start).unwrap());
            start = at + 1;
        }
    }
    assert_eq!(lengths, messages.lengths);
}
