//! A selection of feeds as server-sent events.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{Encoding, SubscribeRequest};
use alluvium_feeds::OpenGate;
use alluvium_feeds::http::SurfaceOptions;
use serde_json::Value;

use crate::http::Site;
use crate::support::{append, block, id};

const PATH: &str = "/feeds/v1/spaces/space/events";

/// An event: its name and its page.
fn event(text: &str) -> (String, Value) {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    assert_eq!(field("event:"), "blocks");
    (field("id:").to_owned(), serde_json::from_str(field("data:")).expect("a page"))
}

fn positions(page: &Value) -> Vec<u64> {
    page["blocks"].as_array().unwrap().iter().map(|block| block["position"].as_u64().unwrap()).collect()
}

/// A site whose event streams end at once.
fn brief() -> Site {
    let options = SurfaceOptions { sse_cycle: Duration::ZERO, ..SurfaceOptions::default() };
    let site = Site::open(Arc::new(OpenGate), options);
    site.authority.append(append(vec![
        block("f", "a", 0, "1"),
        block("g", "a", 0, "2"),
        block("f", "a", 1, "3"),
    ]));
    site
}

#[test]
fn events_have_what_follows_a_cursor_and_go_on_where_the_last_one_ended() {
    let site = brief();
    let read = |query: &str, last: Option<&str>| {
        let last = last.map_or_else(String::new, |last| format!("\r\nlast-event-id: {last}"));
        let answer = site.ask(&format!("GET {PATH}{query} HTTP/1.1{last}"), b"");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        event(&String::from_utf8(answer.body).unwrap())
    };
    let (_, all) = read("", None);
    assert_eq!((positions(&all), &all["_tag"]), (vec![1, 2, 3], &Value::from("QueryResponse")));
    let (last, page) = read("?cursor=1", None);
    assert_eq!((positions(&page), last.starts_with("3.")), (vec![2, 3], true));
    // A browser that comes again asks for the same, and says what it had.
    let (again, page) = read("?cursor=1", Some(&last));
    assert_eq!((positions(&page), page.get("reset"), &again), (vec![], None, &last));
    // Another history under the same token.
    let (place, check) = last.rsplit_once('.').unwrap();
    let other = if check.starts_with('0') { "1" } else { "0" };
    let (_, page) = read("", Some(&format!("{place}.{other}{}", &check[1..])));
    assert_eq!((positions(&page), &page["reset"]), (vec![1, 2, 3], &Value::from(true)));
    let subscribe = SubscribeRequest { feed_ids: Some(vec![id("g")]), ..SubscribeRequest::default() };
    let subscription = site.authority.subscribe(subscribe).subscription_id;
    let (last, page) = read(&format!("?subscriptionId={subscription}"), None);
    assert_eq!((positions(&page), last.starts_with("3.")), (vec![2], true));
}

#[test]
fn what_cannot_be_followed_is_refused_before_the_first_event() {
    let site = brief();
    let code = |query: &str| {
        let answer = site.get(&format!("{PATH}{query}"));
        (answer.status, answer.header("alluvium-error").unwrap_or_default().to_owned())
    };
    assert_eq!(code("?subscriptionId=none"), (404, "subscription_not_found".to_owned()));
    assert_eq!(code("?cursor=one"), (400, "bad_request".to_owned()));
    // Each complaint names what it is about.
    for (query, named) in [
        ("?cursor=one", "`cursor`"),
        ("?cursor=1&cursor=2", "`cursor` stands twice"),
        ("?subscriptionId=", "`subscriptionId`"),
        ("?subscriptionId=%ff", "`subscriptionId`"),
        ("?subscriptionId=a&subscriptionId=a", "`subscriptionId` stands twice"),
        ("?feedIds=f", "nothing else"),
        ("?Cursor=1", "nothing else"),
    ] {
        let answer = site.get(&format!("{PATH}{query}"));
        let json: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &json["code"]), (400, &Value::from("bad_request")), "{query}");
        assert!(json["message"].as_str().unwrap().contains(named), "{query}: {json}");
    }
    for last in ["garbage", "", "é", "1.t.x"] {
        let answer = site.ask(&format!("GET {PATH}?cursor=1 HTTP/1.1\r\nlast-event-id: {last}"), b"");
        let json: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(json["message"].as_str().unwrap().contains("`Last-Event-ID`"), "{last}: {json}");
    }
    assert_eq!(site.post("events", Encoding::Json, b"{}").status, 405);
}

#[test]
fn what_is_appended_meanwhile_is_an_event() {
    let site = Site::anyone();
    let mut reader = site.connect(&format!("GET {PATH} HTTP/1.1"), b"");
    let mut next = || {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "it goes on");
            if line.starts_with("data:") {
                return event(&format!("{text}{line}"));
            }
            text.push_str(&line);
        }
    };
    assert!(positions(&next().1).is_empty());
    for number in 0..3 {
        site.authority.append(append(vec![block("f", "a", number, "x")]));
        assert_eq!(positions(&next().1), [number + 1]);
    }
}
