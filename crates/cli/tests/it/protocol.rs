//! The protocol on the wire, where the conformance suite does not look: codes of refusals, headers for browsers,
//! caching, and what live reads do at the edges.

use std::thread;

use super::support::{Answer, Events, Server, call};

const TEXT: &str = "content-type: text/plain";
const JSON: &str = "content-type: application/json";

fn put(server: &Server, stream: &str, headers: &[&str], body: &str) -> Answer {
    call(server.address(), "PUT", &format!("/v1/stream/{stream}"), headers, body.as_bytes())
}

fn post(server: &Server, stream: &str, headers: &[&str], body: &str) -> Answer {
    call(server.address(), "POST", &format!("/v1/stream/{stream}"), headers, body.as_bytes())
}

fn get(server: &Server, target: &str, headers: &[&str]) -> Answer {
    call(server.address(), "GET", &format!("/v1/stream/{target}"), headers, b"")
}

#[test]
fn a_stream_is_created_appended_to_read_and_deleted() {
    for server in Server::of_each_store("") {
        let created = put(&server, "a/b%20c", &[TEXT], "one ");
        assert_eq!(created.status, 201);
        assert_eq!(created.header("location"), Some("http://streams.test/v1/stream/a/b%20c"));
        let appended = post(&server, "a/b%20c", &[TEXT], "two");
        assert_eq!((appended.status, appended.header("content-length")), (204, None));
        let read = get(&server, "a/b%20c", &[]);
        assert_eq!((read.status, read.text()), (200, "one two"));
        assert_eq!(read.next_offset(), appended.next_offset());
        assert_eq!(read.header("stream-up-to-date"), Some("true"));
        let rest = get(&server, &format!("a/b%20c?offset={}", created.next_offset()), &[]);
        assert_eq!(rest.text(), "two");
        assert_eq!(call(server.address(), "DELETE", "/v1/stream/a/b%20c", &[], b"").status, 204);
        assert_eq!(get(&server, "a/b%20c", &[]).code(), "not_found");
    }
}

#[test]
fn every_refusal_has_its_status_and_code() {
    for server in Server::of_each_store("") {
        put(&server, "text", &[TEXT], "x");
        put(&server, "json", &[JSON], "");
        put(&server, "shut", &[TEXT, "stream-closed: true"], "x");
        let refused = |answer: &Answer| (answer.status, answer.code());
        for (answer, status, code) in [
            (get(&server, "missing", &[]), 404, "not_found"),
            (get(&server, "text?offset=1,2", &[]), 400, "invalid_offset"),
            (get(&server, "text?offset=-1&offset=-1", &[]), 400, "repeated_parameter"),
            (get(&server, "text?offset=-1&live=maybe", &[]), 400, "invalid_live_mode"),
            (get(&server, "text?live=sse", &[]), 400, "offset_required"),
            (get(&server, "text?offset=0000000000000009_0000000000000009", &[]), 400, "invalid_offset"),
            (get(&server, "a/../b", &[]), 400, "invalid_path"),
            (get(&server, "__ds/else/x", &[]), 501, "not_implemented"),
            (call(server.address(), "GET", "/elsewhere", &[], b""), 404, "no_such_resource"),
            (call(server.address(), "PATCH", "/v1/stream/text", &[], b""), 405, "method_not_allowed"),
            (post(&server, "text", &[TEXT], ""), 400, "empty_body"),
            (post(&server, "text", &[], "x"), 400, "content_type_required"),
            (post(&server, "text", &[JSON], "1"), 409, "content_type_mismatch"),
            (post(&server, "text", &[TEXT, "stream-seq: 1", "stream-seq: 2"], "x"), 400, "repeated_header"),
            (post(&server, "text", &[TEXT, "producer-id: p"], "x"), 400, "invalid_producer"),
            (post(&server, "json", &[JSON], "{"), 400, "invalid_json"),
            (post(&server, "json", &[JSON], "[]"), 400, "empty_array"),
            (post(&server, "shut", &[TEXT], "x"), 409, "closed"),
            (put(&server, "text", &[JSON], ""), 409, "exists"),
            (put(&server, "new", &["stream-ttl: 01"], ""), 400, "invalid_lifetime"),
            (put(&server, "new", &["stream-forked-from: /elsewhere/x"], ""), 400, "invalid_fork_source"),
            (
                put(&server, "new", &["stream-forked-from: /v1/stream/missing"], ""),
                404,
                "fork_source_not_found",
            ),
        ] {
            assert_eq!(refused(&answer), (status, code.to_owned()));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{code}");
            assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"), "{code}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{code}");
        }
    }
}

#[test]
fn a_producer_learns_where_it_stands() {
    for server in Server::of_each_store("") {
        put(&server, "s", &[TEXT], "");
        let append = |epoch: u64, seq: u64| {
            let (epoch, seq) = (format!("producer-epoch: {epoch}"), format!("producer-seq: {seq}"));
            post(&server, "s", &[TEXT, "producer-id: p", &epoch, &seq], "x")
        };
        assert_eq!(append(0, 0).status, 200);
        let duplicate = append(0, 0);
        assert_eq!((duplicate.status, duplicate.header("producer-seq")), (204, Some("0")));
        let gap = append(0, 5);
        assert_eq!((gap.status, gap.code().as_str()), (409, "producer_gap"));
        assert_eq!(gap.header("producer-expected-seq"), Some("1"));
        assert_eq!(gap.header("producer-received-seq"), Some("5"));
        assert_eq!(append(3, 1).code(), "producer_epoch_start");
        assert_eq!(append(3, 0).status, 200);
        let fenced = append(2, 0);
        assert_eq!((fenced.status, fenced.code().as_str()), (403, "producer_fenced"));
        assert_eq!(fenced.header("producer-epoch"), Some("3"));
    }
}

#[test]
fn a_conditional_read_is_answered_without_data_until_something_changes() {
    for server in Server::of_each_store("") {
        put(&server, "s", &[TEXT], "x");
        let first = get(&server, "s?offset=-1", &[]);
        let tag = format!("if-none-match: \"other\", W/{}", first.header("etag").unwrap());
        let unchanged = get(&server, "s?offset=-1", &[&tag]);
        assert_eq!((unchanged.status, unchanged.text()), (304, ""));
        assert_eq!(unchanged.next_offset(), first.next_offset());
        post(&server, "s", &["stream-closed: true"], "");
        let closed = get(&server, "s?offset=-1", &[&tag]);
        assert_eq!((closed.status, closed.header("stream-closed")), (200, Some("true")));
        call(server.address(), "DELETE", "/v1/stream/s", &[], b"");
        assert_eq!(get(&server, "s?offset=-1", &[&tag]).status, 404);
    }
}

#[test]
fn responses_with_data_are_cacheable_and_others_are_not() {
    for server in Server::of_each_store("") {
        let tail = put(&server, "s", &[TEXT], "x").next_offset().to_owned();
        put(&server, "short", &[TEXT, "stream-ttl: 10"], "x");
        let cache =
            |target: &str| get(&server, target, &[]).header("cache-control").map(str::to_owned).unwrap();
        assert_eq!(cache("s"), "public, max-age=60, stale-while-revalidate=300");
        assert_eq!(cache("short"), "public, max-age=10, stale-while-revalidate=0");
        assert_eq!(cache(&format!("s?offset={tail}")), "no-cache");
        assert_eq!(cache("s?offset=now"), "no-store");
    }
}

#[test]
fn a_browser_of_another_origin_may_use_the_protocol() {
    for server in Server::of_each_store("") {
        let preflight = call(server.address(), "OPTIONS", "/v1/stream/s", &["origin: https://app.test"], b"");
        assert_eq!(preflight.status, 204);
        let allowed = preflight.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
        for header in
            ["if-none-match", "producer-id", "producer-epoch", "producer-seq", "stream-seq", "stream-closed"]
        {
            assert!(allowed.contains(header), "{header}");
        }
        let created = put(&server, "s", &[TEXT, "origin: https://app.test"], "x");
        assert_eq!(created.header("access-control-allow-origin"), Some("*"));
        let read = get(&server, "s", &[]);
        assert_eq!(read.header("access-control-allow-origin"), Some("*"));
        assert!(read.header("access-control-expose-headers").unwrap().contains("Stream-Next-Offset"));
    }
}

#[test]
fn json_messages_come_back_as_one_array() {
    for server in Server::of_each_store("") {
        put(&server, "j", &[JSON], "[]");
        assert_eq!(get(&server, "j", &[]).text(), "[]");
        let first = post(&server, "j", &[JSON], " [ {\"a\" : 1}, [2,3] ] ");
        post(&server, "j", &[JSON], "1.50");
        assert_eq!(get(&server, "j", &[]).text(), "[{\"a\" : 1},[2,3],1.50]");
        assert_eq!(get(&server, &format!("j?offset={}", first.next_offset()), &[]).text(), "[1.50]");
        assert_eq!(get(&server, "j?offset=now", &[]).text(), "[]");
    }
}

#[test]
fn a_large_stream_is_read_in_responses_of_exact_length() {
    let server = Server::start_with("--read-bytes-max 1MiB --recent-bytes 1");
    put(&server, "big", &["content-type: application/octet-stream"], "");
    let piece: String = (0..300_000_u32).map(|n| char::from(b'a' + u8::try_from(n % 23).unwrap())).collect();
    for _ in 0..10 {
        post(&server, "big", &["content-type: application/octet-stream"], &piece);
    }
    let (mut offset, mut read) = ("-1".to_owned(), String::new());
    loop {
        let answer = get(&server, &format!("big?offset={offset}"), &[]);
        assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
        read.push_str(answer.text());
        answer.next_offset().clone_into(&mut offset);
        if answer.header("stream-up-to-date").is_some() {
            break;
        }
    }
    assert!(read == piece.repeat(10));
}

#[test]
fn a_long_poll_is_woken_by_an_append_and_by_a_close() {
    for server in Server::of_each_store("") {
        let tail = put(&server, "s", &[TEXT], "").next_offset().to_owned();
        let poll = |offset: &str| get(&server, &format!("s?offset={offset}&live=long-poll"), &[]);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| poll("now"));
            // Whether the append comes before or after the poll has begun to wait, both polls must see it.
            let also_waiting = scope.spawn(|| poll(&tail));
            post(&server, "s", &[TEXT], "x");
            let woken = also_waiting.join().unwrap();
            assert_eq!((woken.status, woken.text()), (200, "x"));
            assert!(woken.header("stream-cursor").is_some());
            post(&server, "s", &["stream-closed: true"], "");
            let ended = waiting.join().unwrap();
            assert!(matches!(ended.status, 200 | 204));
        });
        let ended = poll("now");
        assert_eq!((ended.status, ended.header("stream-closed")), (204, Some("true")));
        assert_eq!(ended.header("stream-cursor"), None);
    }
}

#[test]
fn a_subscriber_gets_what_was_there_what_comes_and_the_end() {
    for server in Server::of_each_store("") {
        put(&server, "s", &[TEXT], "one\r\ntwo");
        let (answer, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
        assert_eq!(answer.header("content-length"), None);
        assert_eq!(answer.header("stream-sse-data-encoding"), None);
        assert_eq!(events.next(), Some(("data".to_owned(), "one\ntwo".to_owned())));
        let (name, control) = events.next().unwrap();
        assert_eq!(name, "control");
        assert!(control.contains("\"upToDate\":true"), "{control}");
        post(&server, "s", &[TEXT, "stream-closed: true"], "three");
        assert_eq!(events.next(), Some(("data".to_owned(), "three".to_owned())));
        let (_, control) = events.next().unwrap();
        assert!(control.contains("\"streamClosed\":true"), "{control}");
        assert!(!control.contains("streamCursor"), "{control}");
        assert_eq!(events.next(), None);
    }
}

#[test]
fn a_subscriber_of_bytes_gets_base64() {
    for server in Server::of_each_store("") {
        put(&server, "b", &[], "\u{0}\u{1}\n");
        let (answer, mut events) = Events::subscribe(server.address(), "/v1/stream/b?offset=-1&live=sse");
        assert_eq!(answer.header("stream-sse-data-encoding"), Some("base64"));
        assert_eq!(events.next(), Some(("data".to_owned(), "AAEK".to_owned())));
    }
}

#[test]
fn a_subscription_ends_by_itself_and_is_taken_up_where_it_ended() {
    for server in Server::of_each_store("--sse-cycle 50ms") {
        put(&server, "s", &[TEXT], "x");
        let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
        assert_eq!(events.next(), Some(("data".to_owned(), "x".to_owned())));
        let (_, control) = events.next().unwrap();
        assert_eq!(events.next(), None);
        let control: serde_json::Value = serde_json::from_str(&control).unwrap();
        let (offset, cursor) = (&control["streamNextOffset"], &control["streamCursor"]);
        let target = format!(
            "/v1/stream/s?offset={}&live=sse&cursor={}",
            offset.as_str().unwrap(),
            cursor.as_str().unwrap()
        );
        let (_, mut events) = Events::subscribe(server.address(), &target);
        let (name, again) = events.next().unwrap();
        let again: serde_json::Value = serde_json::from_str(&again).unwrap();
        assert_eq!((name.as_str(), &again["streamNextOffset"]), ("control", offset));
        assert_ne!(&again["streamCursor"], cursor);
    }
}

#[test]
fn a_fork_reads_as_its_source_up_to_the_cut() {
    for server in Server::of_each_store("") {
        let cut = put(&server, "source", &[TEXT], "shared ").next_offset().to_owned();
        post(&server, "source", &[TEXT], "not shared");
        let offset = format!("stream-fork-offset: {cut}");
        let forked = put(&server, "fork", &["stream-forked-from: /v1/stream/source", &offset], "");
        assert_eq!((forked.status, forked.header("content-type")), (201, Some("text/plain")));
        post(&server, "fork", &[TEXT], "own");
        assert_eq!(get(&server, "fork", &[]).text(), "shared own");
        call(server.address(), "DELETE", "/v1/stream/source", &[], b"");
        assert_eq!(get(&server, "source", &[]).code(), "deleted");
        assert_eq!(get(&server, "fork", &[]).text(), "shared own");
    }
}
