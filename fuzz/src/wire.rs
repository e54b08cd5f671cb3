//! Fuzz bodies for `alluvium-jetstream-wire`: requests for live feeds, and what clients say in them.

use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::query::Query;
use alluvium_jetstream_wire::request::{Known, Subscription};
use alluvium_jetstream_wire::update::Update;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 2] = [("wire_request", request), ("wire_update", update)];

/// What the close frame of a WebSocket has room for beside its code (RFC 6455 §5.5).
const REASON_BYTES_MAX: usize = 123;

/// The input is the query of a request, perhaps with the header `Socket-Encoding` behind the first line's end.
pub fn request(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (query, encoding) = text.split_once('\n').map_or((text, None), |(query, rest)| (query, Some(rest)));
    let known = Known { ids: &[1, 2], current: 2 };
    let is_query = Query::parse(query).is_ok();
    for wire in [Wire::V1, Wire::V2, Wire::Events] {
        let parsed = Subscription::parse(wire, query, encoding, known);
        assert!(is_query || parsed.is_err());
        if let Ok(parsed) = parsed {
            // What nobody knows is passed over.
            let more = format!("{query}&unknownToAll=1");
            let again = Subscription::parse(wire, &more, encoding, known).expect("one more parameter");
            assert_eq!(format!("{again:?}"), format!("{parsed:?}"));
        }
    }
}

/// The input is a message of a client.
pub fn update(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Err(error) = Update::parse(text) {
        assert!(error.close_reason().len() <= REASON_BYTES_MAX, "{}", error.close_reason());
    }
}
