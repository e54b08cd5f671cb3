//! Fuzz bodies for `alluvium-feed-protocol`: both decoders of messages, as server and as client.
//!
//! A message that is accepted reads the same after being written again, in either encoding.

use alluvium_feed_protocol::{Encoding, Operation};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 2] = [("feed_json", json), ("feed_cbor", cbor)];

const OPERATIONS: [Operation; 6] = [
    Operation::Hello,
    Operation::Query,
    Operation::Subscribe,
    Operation::Unsubscribe,
    Operation::Append,
    Operation::ListFeeds,
];

/// The input is a message in JSON.
pub fn json(input: &[u8]) {
    message(Encoding::Json, input);
}

/// The input is a message in CBOR.
pub fn cbor(input: &[u8]) {
    message(Encoding::Cbor, input);
}

fn message(encoding: Encoding, input: &[u8]) {
    for operation in [None].into_iter().chain(OPERATIONS.map(Some)) {
        if let Ok(request) = encoding.decode_request(input, operation) {
            for encoding in [Encoding::Json, Encoding::Cbor] {
                let bytes = encoding.encode(&request).expect("what was read can be written");
                assert_eq!(encoding.decode_request(&bytes, None).as_ref(), Ok(&request));
            }
        }
        if let Ok(message) = encoding.decode_message(input, operation) {
            for encoding in [Encoding::Json, Encoding::Cbor] {
                let bytes = encoding.encode(&message).expect("what was read can be written");
                assert_eq!(encoding.decode_message(&bytes, None).as_ref(), Ok(&message));
            }
        }
    }
}
