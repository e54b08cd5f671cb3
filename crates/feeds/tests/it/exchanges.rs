//! The four exchanges of the protocol's text, in one space, in their order, in both encodings.

use alluvium_feed_protocol::{Encoding, Message, Operation, Request};
use serde_json::{Value, json};

use crate::support::Authority;

/// Sends JSON as it stands, as JSON or translated to CBOR, and gives the answer as JSON.
fn exchange(authority: &Authority, encoding: Encoding, operation: Operation, request: &Value) -> Value {
    let read = Encoding::Json.decode_request(request.to_string().as_bytes(), Some(operation)).unwrap();
    let bytes = encoding.encode(&read).unwrap();
    let request: Request = encoding.decode_request(&bytes, Some(operation)).unwrap();
    let answer = encoding.encode(&authority.handle(request)).unwrap();
    let message: Message = encoding.decode_message(&answer, Some(operation)).unwrap();
    serde_json::to_value(&message).unwrap()
}

#[test]
fn the_four_exchanges_run_as_they_are_written() {
    for encoding in [Encoding::Json, Encoding::Cbor] {
        let authority = Authority::new();
        let ask = |operation, request| exchange(&authority, encoding, operation, &request);
        let appended = ask(
            Operation::Append,
            json!({
                "requestId": "req-1",
                "namespace": "my-app-data",
                "blocks": [{ "actorId": "01H1...", "sequence": 100, "data": "3q2+7w==", "timestamp": 1_234_567_890 }],
            }),
        );
        assert_eq!((&appended["requestId"], &appended["positions"]), (&json!("req-1"), &json!([1])));
        let subscribed = ask(Operation::Subscribe, json!({ "requestId": "req-2", "feedIds": ["01H1..."] }));
        assert_eq!(subscribed["requestId"], json!("req-2"));
        assert!(subscribed["expiresAt"].as_u64().unwrap() > 1_750_000_000_000);
        let subscription = &subscribed["subscriptionId"];
        let page = ask(
            Operation::Query,
            json!({ "requestId": "req-3", "subscriptionId": subscription, "cursor": 0 }),
        );
        assert_eq!(page["requestId"], json!("req-3"));
        let blocks = page["blocks"].as_array().unwrap();
        assert_eq!(blocks.len(), 1);
        for (field, value) in [
            ("position", json!(1)),
            ("sequence", json!(100)),
            ("actorId", json!("01H1...")),
            ("data", json!("3q2+7w==")),
            ("feedId", json!("01H1...")),
            ("namespace", json!("my-app-data")),
            ("timestamp", json!(1_234_567_890)),
        ] {
            assert_eq!(blocks[0][field], value, "{field}");
        }
        assert_eq!(page["nextCursor"], json!(1));
        let listed = ask(Operation::ListFeeds, json!({ "requestId": "req-4", "namespace": "my-app-data" }));
        assert_eq!(listed["feeds"][0]["feedId"], json!("01H1..."));
        assert_eq!(listed["feeds"][0]["namespace"], json!("my-app-data"));
        let none = ask(Operation::ListFeeds, json!({ "requestId": "🦀", "namespace": "data" }));
        assert_eq!((&none["requestId"], &none["feeds"]), (&json!("🦀"), &json!([])));
    }
}

#[test]
fn local_numbers_never_leave_the_store() {
    let authority = Authority::new();
    for operation in [Operation::Append, Operation::Subscribe, Operation::Query, Operation::ListFeeds] {
        let request = json!({ "requestId": "", "blocks": [{ "actorId": "a", "sequence": 0, "data": "" }] });
        let answer = exchange(&authority, Encoding::Json, operation, &request).to_string();
        assert!(!answer.to_lowercase().contains("private"), "{answer}");
        assert!(!answer.contains("insertion"), "{answer}");
    }
}
