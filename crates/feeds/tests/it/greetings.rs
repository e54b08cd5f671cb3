//! Greetings: which server it is, as whom a connection goes on, and between which peers a message goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium_feed_protocol::{Encoding, Hello, Id, Request, Response};
use alluvium_feeds::http::SurfaceOptions;
use alluvium_websocket::Message as Frame;
use serde_json::{Value, json};

use crate::http::Site;
use crate::sockets::{ONE_SPACE, Talk, WordGate};
use crate::support::{Authority, append, block};

fn server_id(authority: &Authority) -> Id {
    let Response::Welcome(welcome) = authority.handle(Request::Hello(Hello::default())) else { panic!() };
    welcome.server_id.expect("a name")
}

#[test]
fn a_server_says_which_one_it_is_and_stays_that() {
    let mut authority = Authority::new();
    let id = server_id(&authority);
    authority.restart();
    assert_eq!(server_id(&authority), id);
}

#[test]
fn a_refusal_on_a_socket_for_all_spaces_names_its_request_and_no_space_that_the_request_did_not() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, "/feeds/v1/ws", Encoding::Json);
    for (request, space) in [
        (json!({ "_tag": "Hello", "requestId": "1", "protocol": 99 }), Value::Null),
        (json!({ "_tag": "Hello", "requestId": "2", "protocol": 99, "spaces": ["space"] }), Value::Null),
        (json!({ "_tag": "QueryRequest", "requestId": "3", "spaceId": "" }), Value::Null),
        (json!({ "_tag": "QueryRequest", "requestId": "4", "spaceId": ["space"] }), Value::Null),
        (json!({ "_tag": "QueryRequest", "requestId": "5" }), Value::Null),
        (
            json!({ "_tag": "QueryRequest", "requestId": "6", "spaceId": "space", "subscriptionId": "none" }),
            json!("space"),
        ),
    ] {
        talk.send_json(&request);
        let answer = talk.next_text();
        assert_eq!((&answer["_tag"], &answer["requestId"]), (&json!("Error"), &request["requestId"]));
        assert_eq!(answer["spaceId"], space, "{answer}");
    }
}

/// A site that lets in who knows the word.
fn guarded(options: SurfaceOptions) -> (Arc<WordGate>, Site) {
    let gate = Arc::new(WordGate(AtomicBool::new(true)));
    let site = Site::open(Arc::clone(&gate) as _, options);
    (gate, site)
}

#[test]
fn a_socket_without_credentials_may_only_greet_with_some() {
    let (_, site) = guarded(SurfaceOptions::default());
    let hello = |fields: Value| {
        let mut hello = json!({ "_tag": "Hello", "requestId": "h" });
        hello.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Frame::text(hello.to_string())
    };
    let query = Frame::text(json!({ "_tag": "QueryRequest", "requestId": "h" }).to_string());
    for (path, first, code) in [
        (ONE_SPACE, query, "unauthorized"),
        (ONE_SPACE, hello(json!({})), "unauthorized"),
        (ONE_SPACE, hello(json!({ "token": "wrong" })), "unauthorized"),
        ("/feeds/v1/ws", hello(json!({ "token": "wrong", "spaces": ["space"] })), "unauthorized"),
        (ONE_SPACE, Frame::text("{\"requestId\":\"h\"}"), "bad_request"),
    ] {
        let mut talk = Talk::open(&site, path, Encoding::Json);
        talk.send(&first);
        assert_eq!(talk.refusal(), ("h".to_owned(), code.to_owned()));
        assert_eq!(talk.close_code(), 1008);
    }
}

#[test]
fn a_greeting_with_a_token_lets_a_socket_in_for_as_long_as_that_is_good() {
    let options = SurfaceOptions { ping_interval: Duration::from_millis(5), ..SurfaceOptions::default() };
    let (gate, site) = guarded(options);
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Cbor);
    talk.send_json(&json!({ "_tag": "Hello", "requestId": "1", "protocol": 1, "token": "word" }));
    assert!(matches!(talk.answer(), Response::Welcome(_)));
    talk.send_json(&json!({ "_tag": "ListFeedsRequest", "requestId": "2" }));
    assert!(matches!(talk.answer(), Response::ListFeeds(_)));
    // Another token that is none changes nothing.
    talk.send_json(&json!({ "_tag": "Hello", "requestId": "3", "token": "wrong" }));
    assert_eq!(talk.refusal().1, "unauthorized");
    talk.send_json(&json!({ "_tag": "AppendRequest", "requestId": "4",
        "blocks": [{ "actorId": "a", "sequence": 0, "data": "eA==" }] }));
    assert_eq!(talk.refusal(), ("4".to_owned(), "forbidden".to_owned()));
    gate.0.store(false, Ordering::SeqCst);
    assert_eq!(talk.close_code(), 1008);
}

#[test]
fn a_socket_that_does_not_greet_in_time_is_closed() {
    let greeting_timeout = Duration::from_millis(20);
    let (_, site) = guarded(SurfaceOptions { greeting_timeout, ..SurfaceOptions::default() });
    assert_eq!(Talk::open(&site, ONE_SPACE, Encoding::Json).close_code(), 1008);
    // Who has presented something at once need not greet.
    let mut talk = Talk::try_open(&site, ONE_SPACE, &["feeds.bearer.word", "feeds.v1.json"]).unwrap();
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "waitMs": 200 }));
    assert!(matches!(talk.answer(), Response::Query(_)));
}

#[test]
fn answers_and_hints_go_back_to_the_peer_that_asked() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    let ask = |talk: &mut Talk, tag: &str, peers: Value, fields: Value| {
        let mut request = json!({ "_tag": tag, "requestId": "r" });
        for more in [peers, fields] {
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        talk.send(&Frame::text(request.to_string()));
        talk.next_text()
    };
    let from = |peer: &str| json!({ "senderPeerId": peer, "recipientPeerId": "server" });
    let peers = |answer: &Value| (answer["senderPeerId"].clone(), answer["recipientPeerId"].clone());
    let subscribed = ask(&mut talk, "SubscribeRequest", from("one"), json!({ "all": true }));
    assert_eq!(subscribed["_tag"], "SubscribeResponse");
    assert_eq!(peers(&subscribed), (json!("server"), json!("one")));
    let second = ask(&mut talk, "SubscribeRequest", json!({}), json!({ "all": true, "push": "blocks" }));
    assert_eq!(peers(&second), (Value::Null, Value::Null));
    let third = json!({ "all": true, "push": "blocks" });
    let third = ask(&mut talk, "SubscribeRequest", json!({ "senderPeerId": "three" }), third);
    assert_eq!(peers(&third), (Value::Null, json!("three")));
    let refused = ask(&mut talk, "QueryRequest", from("two"), json!({ "subscriptionId": "none" }));
    assert_eq!((peers(&refused), &refused["_tag"]), ((json!("server"), json!("two")), &json!("Error")));
    let unread = ask(&mut talk, "QueryRequest", from("two"), json!({ "cursor": 1.5 }));
    assert_eq!((peers(&unread), &unread["code"]), ((json!("server"), json!("two")), &json!("bad_request")));
    // What comes unasked is for who subscribed.
    site.authority.append(append(vec![block("f", "a", 0, "x")]));
    let mut expected = vec![
        (subscribed["subscriptionId"].clone(), "FeedAdvanced", json!("one")),
        (second["subscriptionId"].clone(), "BlocksPushed", Value::Null),
        (third["subscriptionId"].clone(), "BlocksPushed", json!("three")),
    ];
    while !expected.is_empty() {
        let message = talk.next_text();
        let at = expected.iter().position(|(subscription, ..)| *subscription == message["subscriptionId"]);
        let (_, tag, peer) = expected.swap_remove(at.expect("one that is waited for"));
        assert_eq!((&message["_tag"], &message["recipientPeerId"]), (&json!(tag), &peer), "{message}");
    }
}

#[test]
fn the_peers_of_a_message_are_told_over_http_too() {
    let site = Site::anyone();
    let body = br#"{"requestId":"r","senderPeerId":"one","recipientPeerId":"server"}"#;
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let answer = read(&site.post("feeds", Encoding::Json, body).body);
    assert_eq!((&answer["recipientPeerId"], &answer["senderPeerId"]), (&json!("one"), &json!("server")));
    let bad = read(&site.post("query", Encoding::Json, br#"{"cursor":-2.5,"senderPeerId":"one"}"#).body);
    assert_eq!((&bad["recipientPeerId"], &bad["code"]), (&json!("one"), &json!("bad_request")));
    assert_eq!(site.post("feeds", Encoding::Json, br#"{"senderPeerId":""}"#).status, 400);
}
