//! Whatever can be said, both encodings say it.

use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{
    AppendRequest, Block, Check, Data, Encoding, Id, Namespace, Peers, QueryRequest, Request, RequestId,
    Token,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

fn id() -> impl Strategy<Value = Id> {
    "[^\\p{C}]{1,40}".prop_map(|text| Id::parse(&text).expect("an identifier"))
}

fn request_id() -> impl Strategy<Value = RequestId> {
    any::<String>().prop_map(|text| RequestId::parse(&text).unwrap_or_default())
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=3u64, 0..=NUMBER_MAX, u64::from(u32::MAX) - 1..=u64::from(u32::MAX) + 1, Just(NUMBER_MAX)]
}

fn data() -> impl Strategy<Value = Data> {
    vec(any::<u8>(), 0..60).prop_map(Data::from)
}

prop_compose! {
    fn block()(
        (feed_id, position, sequence, actor_id) in (of(id()), of(number()), number(), id()),
        (prev_sequence, prev_actor_id, timestamp) in (of(number()), of(id()), of(number())),
        (data, iv, signature, key) in (data(), of(data()), of(data()), of(id())),
        namespace in of("[A-Za-z0-9._-]{1,64}"),
    ) -> Block {
        let namespace = namespace.map(|text| Namespace::parse(&text).expect("a namespace"));
        Block { feed_id, namespace, position, sequence, actor_id, prev_sequence, prev_actor_id, timestamp, data,
            encryption_key_id: key, iv, signature }
    }
}

prop_compose! {
    fn append()(
        request_id in request_id(),
        (space_id, feed_id) in (of(id()), of(id())),
        blocks in vec(block(), 0..5),
        expected_position in of(number()),
        strict in of(any::<bool>()),
    ) -> Request {
        Request::Append(AppendRequest {
            request_id, space_id, feed_id, blocks, expected_position, strict,
            expected_check: expected_position.map(Check),
            expected_server_token: Some(Token::from_random(7)),
            ..AppendRequest::default()
        })
    }
}

prop_compose! {
    fn query()(
        request_id in request_id(),
        (cursor, limit) in (of(number()), of(number())),
        feed_ids in of(vec(id(), 0..4)),
        subscription_id in of(id()),
    ) -> Request {
        Request::Query(QueryRequest { request_id, cursor, limit, feed_ids, subscription_id, ..QueryRequest::default() })
    }
}

proptest! {
    #[test]
    fn a_request_reads_as_it_was_written(request in prop_oneof![append(), query()]) {
        for encoding in [Encoding::Json, Encoding::Cbor] {
            let bytes = encoding.encode(&request).unwrap();
            for path in [None, Some(request.operation())] {
                prop_assert_eq!(encoding.decode_request(&bytes, path), Ok(request.clone()));
            }
        }
    }

    #[test]
    fn the_peers_of_a_message_are_read_beside_it_and_its_answer_goes_back(
        request in prop_oneof![append(), query()], sender in of(id()), recipient in of(id()),
    ) {
        let peers = Peers { sender_peer_id: sender.clone(), recipient_peer_id: recipient.clone() };
        let back = Peers { sender_peer_id: recipient, recipient_peer_id: sender };
        for encoding in [Encoding::Json, Encoding::Cbor] {
            let bytes = encoding.encode_routed(&request, &peers).unwrap();
            prop_assert_eq!(encoding.decode_routed(&bytes, None), Ok((request.clone(), peers.clone())));
            // Who knows nothing of peers reads the same request.
            prop_assert_eq!(encoding.decode_request(&bytes, None), Ok(request.clone()));
        }
        prop_assert_eq!(peers.answering(), back);
    }

    #[test]
    fn a_request_that_breaks_off_is_refused(request in append(), cut in any::<prop::sample::Index>()) {
        for encoding in [Encoding::Json, Encoding::Cbor] {
            let bytes = encoding.encode(&request).unwrap();
            prop_assert!(encoding.decode_request(&bytes[..cut.index(bytes.len())], None).is_err());
        }
    }
}
