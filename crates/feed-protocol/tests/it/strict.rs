//! What is refused, and how far a bad message can be read.

use alluvium_feed_protocol::limits::NAMES_HARD_MAX;
use alluvium_feed_protocol::{Encoding, Id, Operation, Request};

fn query(json: &str) -> Result<Request, String> {
    Encoding::Json.decode_request(json.as_bytes(), Some(Operation::Query)).map_err(|error| error.message)
}

fn refused(json: &str, complaint: &str) {
    let message = query(json).expect_err(json);
    assert!(message.contains(complaint), "{json}: {message}");
}

#[test]
fn numbers_are_whole_and_within_53_bits() {
    let cursor = |json: &str| match query(&format!("{{\"requestId\":\"q\",\"cursor\":{json}}}")).unwrap() {
        Request::Query(query) => query.cursor,
        other => panic!("{other:?}"),
    };
    assert_eq!(cursor("41"), Some(41));
    assert_eq!(cursor("-1"), Some(0));
    assert_eq!(cursor("41.0"), Some(41));
    assert_eq!(cursor("null"), None);
    assert_eq!(cursor("9007199254740991"), Some((1 << 53) - 1));
    refused(r#"{"cursor":9007199254740992}"#, "2^53");
    refused(r#"{"cursor":1.5}"#, "whole");
    refused(r#"{"cursor":"x"}"#, "`cursor`");
    refused(r#"{"cursor":"41"}"#, "`cursor`: a number is written as text");
    refused(r#"{"cursor":[1]}"#, "`cursor`");
    refused(r#"{"limit":-3}"#, "negative");
    refused(r#"{"limit":"3"}"#, "text");
    refused(r#"{"cursor":1e300}"#, "whole");
}

#[test]
fn lists_and_nesting_end_at_their_limits() {
    let feeds = |count| format!("{{\"feedIds\":[{}]}}", vec!["\"f\""; count].join(","));
    assert!(query(&feeds(NAMES_HARD_MAX)).is_ok());
    refused(&feeds(NAMES_HARD_MAX + 1), "more than");
    let deep = [&[0xa1, 0x61, b'x'][..], &[0x81; 40], &[0xf6]].concat();
    let error = Encoding::Cbor.decode_request(&deep, Some(Operation::Query)).unwrap_err();
    assert_eq!(error.message, "nested too deep");
}

#[test]
fn nothing_may_follow_a_message_or_stand_twice_in_it() {
    refused("{} {}", "trailing");
    refused(r#"{"cursor":1,"cursor":2}"#, "duplicate");
    let error = Encoding::Cbor.decode_request(&[0xa0, 0xa0], Some(Operation::Query)).unwrap_err();
    assert_eq!(error.message, "bytes follow the message");
}

#[test]
fn a_tag_that_is_missing_unknown_or_contradicts_the_path_is_refused() {
    let read = |json: &str, path| Encoding::Json.decode_request(json.as_bytes(), path).map_err(|e| e.message);
    assert!(read(r#"{"requestId":"a"}"#, None).unwrap_err().contains("missing"));
    assert!(read(r#"{"_tag":"Dance"}"#, None).unwrap_err().contains("Dance"));
    let contradiction = read(r#"{"_tag":"QueryRequest"}"#, Some(Operation::ListFeeds));
    assert!(contradiction.unwrap_err().contains("different"));
}

#[test]
fn a_message_is_an_object_and_so_are_its_blocks() {
    let values = [
        ("[]", "an object"),
        ("null", "an object"),
        ("7", "an object"),
        ("\"x\"", "an object"),
        ("[[],null,null,null,null,null,null,null,null]", "an object"),
        (r#"{"blocks":[["f",null,null,0,"a",null,null,null,""]]}"#, "`blocks[0]`: "),
        (r#"{"blocks":[null]}"#, "`blocks[0]`: "),
        (r#"{"blocks":{}}"#, "`blocks`: "),
    ];
    for (json, complaint) in values {
        let value: ciborium::Value = serde_json::from_str(json).unwrap();
        let mut cbor = Vec::new();
        ciborium::into_writer(&value, &mut cbor).unwrap();
        for (encoding, bytes) in [(Encoding::Json, json.as_bytes()), (Encoding::Cbor, &cbor)] {
            for operation in [None, Some(Operation::Append), Some(Operation::Query)] {
                let Err(error) = encoding.decode_request(bytes, operation) else {
                    assert_eq!(operation, Some(Operation::Query), "{json}");
                    continue;
                };
                // Names of types are nobody's business.
                assert!(!error.message.contains("struct"), "{}", error.message);
                if operation == Some(Operation::Append) && encoding == Encoding::Json {
                    assert!(error.message.contains(complaint), "{json}: {}", error.message);
                }
            }
        }
    }
}

#[test]
fn a_bad_field_of_the_envelope_hides_none_of_the_others() {
    for bad in [r#""spaceId":"""#, r#""spaceId":[1]"#, r#""_tag":{"a":7}"#, r#""senderPeerId":1.5,"x":null"#]
    {
        let json = format!(r#"{{"requestId":"mine",{bad},"recipientPeerId":"there"}}"#);
        let value: ciborium::Value = serde_json::from_str(&json).unwrap();
        let mut cbor = Vec::new();
        ciborium::into_writer(&value, &mut cbor).unwrap();
        for (encoding, bytes) in [(Encoding::Json, json.as_bytes()), (Encoding::Cbor, &cbor)] {
            let error = encoding.decode_routed(bytes, None).unwrap_err();
            let recipient = error.peers.recipient_peer_id.as_ref().map(Id::as_str);
            assert_eq!((error.request_id.as_str(), recipient), ("mine", Some("there")), "{json}");
        }
    }
    // One that is bad itself is none, and the others stay.
    let bad = br#"{"requestId":5,"senderPeerId":"me"}"#;
    let error = Encoding::Json.decode_routed(bad, None).unwrap_err();
    assert_eq!(error.request_id.as_str(), "");
    assert_eq!(error.peers.sender_peer_id.map(|id| id.to_string()).as_deref(), Some("me"));
}

#[test]
fn the_name_of_a_bad_request_is_told_as_far_as_it_can_be_read() {
    let bad = r#"{"_tag":"AppendRequest","requestId":"wörk 🦀","blocks":"none"}"#;
    let error = Encoding::Json.decode_request(bad.as_bytes(), None).unwrap_err();
    assert_eq!(error.request_id.as_str(), "wörk 🦀");
    let error = Encoding::Json.decode_request(b"{", None).unwrap_err();
    assert_eq!(error.request_id.as_str(), "");
}

#[test]
fn data_is_base64_with_or_without_padding_in_either_alphabet() {
    let data = |text: &str| {
        let json = format!(r#"{{"blocks":[{{"sequence":0,"actorId":"a","data":"{text}"}}]}}"#);
        match Encoding::Json.decode_request(json.as_bytes(), Some(Operation::Append)) {
            Ok(Request::Append(append)) => Ok(append.blocks[0].data.0.to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.message),
        }
    };
    for spelling in ["+/8=", "+/8", "-_8=", "-_8"] {
        assert_eq!(data(spelling), Ok(vec![0xfb, 0xff]), "{spelling}");
    }
    assert!(data("not base64!").unwrap_err().contains("base64"));
}

/// The data of blocks as CBOR has it.
fn make_bytes(value: &mut ciborium::Value) {
    match value {
        ciborium::Value::Array(values) => values.iter_mut().for_each(make_bytes),
        ciborium::Value::Map(entries) => {
            for (name, value) in entries {
                let is_data = name.as_text() == Some("data");
                if is_data { *value = ciborium::Value::Bytes(Vec::new()) } else { make_bytes(value) }
            }
        }
        _ => {}
    }
}

#[test]
fn an_error_names_the_field_at_fault_in_either_encoding() {
    let cases = [
        (
            r#"{"blocks":[{"sequence":0,"actorId":"a","data":""},{"sequence":-1,"actorId":"a","data":""}]}"#,
            "`blocks[1].sequence`: ",
        ),
        (r#"{"blocks":[{"sequence":0,"actorId":"","data":""}]}"#, "`blocks[0].actorId`: "),
        (r#"{"blocks":[{"sequence":0,"actorId":"a"}]}"#, "`blocks[0]`: missing field `data`"),
        (r#"{"blocks":[],"namespace":"a b"}"#, "`namespace`: "),
        (r#"{"blocks":[],"expectedPosition":"x"}"#, "`expectedPosition`: "),
        (r#"{"blocks":[],"strict":1}"#, "`strict`: "),
        ("{}", "missing field `blocks`"),
    ];
    for (json, complaint) in cases {
        let mut value: ciborium::Value = serde_json::from_str(json).unwrap();
        make_bytes(&mut value);
        let mut cbor = Vec::new();
        ciborium::into_writer(&value, &mut cbor).unwrap();
        for (encoding, bytes) in [(Encoding::Json, json.as_bytes()), (Encoding::Cbor, &cbor)] {
            let error = encoding.decode_request(bytes, Some(Operation::Append)).unwrap_err();
            assert!(error.message.starts_with(complaint), "{encoding:?} {json}: {}", error.message);
            assert!(!error.message.contains('\u{1}'));
        }
    }
    // The envelope too.
    refused(r#"{"requestId":7}"#, "`requestId`: ");
    refused(r#"{"spaceId":""}"#, "`spaceId`: ");
}

#[test]
fn an_error_is_in_the_words_of_the_protocol_and_not_of_whoever_reads() {
    let of_blocks = [
        r#"{"blocks":[{"sequence":null,"actorId":"a","data":""}]}"#,
        r#"{"blocks":"x"}"#,
        "[]",
        r#"{"blocks":["x"]}"#,
    ];
    let of_subscribe = [
        r#"{"push":"nope"}"#,
        r#"{"push":5}"#,
        r#"{"push":[]}"#,
        r#"{"push":{}}"#,
        r#"{"feedIds":5}"#,
        r#"{"feedIds":[{}]}"#,
    ];
    let cases = of_blocks.map(|json| (Operation::Append, json)).into_iter();
    for (operation, json) in cases.chain(of_subscribe.map(|json| (Operation::Subscribe, json))) {
        let mut value: ciborium::Value = serde_json::from_str(json).unwrap();
        make_bytes(&mut value);
        let mut cbor = Vec::new();
        ciborium::into_writer(&value, &mut cbor).unwrap();
        for (encoding, bytes) in [(Encoding::Json, json.as_bytes()), (Encoding::Cbor, &cbor)] {
            let message = encoding.decode_request(bytes, Some(operation)).unwrap_err().message;
            for foreign in
                ["Option", "enum", "variant", "struct", "expected map", "expected str", "expected array"]
            {
                assert!(!message.contains(foreign), "{encoding:?} {json}: {message}");
            }
            let has_field = json == "[]"
                || message.starts_with("`push`: ")
                || message.contains("s[0]")
                || message.contains("s`: ");
            assert!(has_field, "{encoding:?} {json}: {message}");
        }
    }
}
