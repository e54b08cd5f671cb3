//! The seed's four exchanges as files, and messages written by the npm package `cbor-x`.

use std::fs;
use std::path::PathBuf;

use alluvium_feed_protocol::{Encoding, Operation, Request};
use serde_json::Value;

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a message says, without the tag that a path can stand for.
fn untagged(message: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(message).expect("it can be written");
    value.as_object_mut().expect("a message is an object").remove("_tag");
    value
}

const EXCHANGES: [(&str, Operation); 4] = [
    ("append", Operation::Append),
    ("subscribe", Operation::Subscribe),
    ("query", Operation::Query),
    ("feeds", Operation::ListFeeds),
];

#[test]
fn the_four_exchanges_read_and_write_as_they_lie() {
    for (name, operation) in EXCHANGES {
        let text = file(&format!("seed/{name}-request.json"));
        let request = Encoding::Json.decode_request(&text, Some(operation)).unwrap();
        assert_eq!(untagged(&request), serde_json::from_slice::<Value>(&text).unwrap(), "{name}");
        let text = file(&format!("seed/{name}-response.json"));
        let response = Encoding::Json.decode_message(&text, Some(operation)).unwrap();
        assert_eq!(untagged(&response), serde_json::from_slice::<Value>(&text).unwrap(), "{name}");
    }
}

#[test]
fn the_four_exchanges_say_the_same_in_the_other_encoding() {
    for (name, operation) in EXCHANGES {
        let request =
            Encoding::Json.decode_request(&file(&format!("seed/{name}-request.json")), Some(operation));
        let request = request.unwrap();
        let bytes = Encoding::Cbor.encode(&request).unwrap();
        assert_eq!(Encoding::Cbor.decode_request(&bytes, None).unwrap(), request);
        let text = file(&format!("seed/{name}-response.json"));
        let response = Encoding::Json.decode_message(&text, Some(operation)).unwrap();
        let bytes = Encoding::Cbor.encode(&response).unwrap();
        assert_eq!(Encoding::Cbor.decode_message(&bytes, None).unwrap(), response);
    }
}

#[test]
fn what_cbor_x_writes_is_understood() {
    for name in ["append-request", "append-request-tagged"] {
        let bytes = file(&format!("cbor-x/{name}.cbor"));
        let Request::Append(append) = Encoding::Cbor.decode_request(&bytes, None).unwrap() else { panic!() };
        assert_eq!(append.request_id.as_str(), "a1");
        let [first, second] = &append.blocks[..] else { panic!("{:?}", append.blocks) };
        // Above 32 bits, so JavaScript wrote it as a float.
        assert_eq!(first.timestamp, Some(1_750_000_000_000));
        assert_eq!(&first.data.0[..], [1, 2, 3]);
        assert_eq!((first.prev_sequence, first.position), (None, None));
        assert_eq!((second.prev_sequence, second.data.0.len()), (Some(0), 0));
    }
    let bytes = file("cbor-x/query-request.cbor");
    let Request::Query(query) = Encoding::Cbor.decode_request(&bytes, None).unwrap() else { panic!() };
    assert_eq!((query.cursor, query.limit, query.subscription_id), (Some(0), Some(50), None));
    let bytes = file("cbor-x/subscribe-request.cbor");
    let Request::Subscribe(subscribe) = Encoding::Cbor.decode_request(&bytes, None).unwrap() else {
        panic!()
    };
    assert_eq!((subscribe.feed_ids, subscribe.all), (Some(vec![]), Some(true)));
    let bytes = file("cbor-x/feeds-request.cbor");
    let request = Encoding::Cbor.decode_request(&bytes, None).unwrap();
    assert!(matches!(request, Request::ListFeeds(list) if list.namespace.is_none()));
}
