//! What is too much is refused with a clear answer.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::support::{Answer, Events, Server, call, open, request};

#[test]
fn a_body_that_announces_too_much_is_refused_before_it_is_sent() {
    let server = Server::start_with("--append-bytes-max 1KiB");
    let head = "PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1025\r\n\r\n";
    let (answer, _) = open(server.address(), head.as_bytes());
    assert_eq!(answer.status, 413);
    let fits = call(server.address(), "PUT", "/v1/stream/s", &[], &[b'x'; 1024]);
    assert_eq!(fits.status, 201);
}

#[test]
fn a_chunked_body_is_refused_once_it_grows_too_large() {
    let server = Server::start_with("--append-bytes-max 1KiB");
    let head = "PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let (answer, _) = open(server.address(), format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes());
    assert_eq!(answer.status, 413);
    let fits = format!("{head}{chunk}0\r\n\r\n");
    assert_eq!(open(server.address(), fits.as_bytes()).0.status, 201);
}

/// Sends a request of a large body a little at a time, and only then looks for the answer, as many clients do.
fn send_slowly(server: &Server, method: &str, target: &str, headers: &[&str]) -> Answer {
    const BODY_BYTES: usize = 8 << 20;
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    socket.write_all(format!("{head}content-length: {BODY_BYTES}\r\n\r\n").as_bytes()).unwrap();
    for _ in 0..BODY_BYTES / 4096 {
        socket.write_all(&[b'x'; 4096]).unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        std::thread::yield_now();
    }
    Answer::read(socket).0
}

#[test]
fn a_body_whose_request_is_refused_for_its_head_is_read_so_that_the_answer_is_seen() {
    let text = "content-type: text/plain";
    let server = Server::start();
    call(server.address(), "PUT", "/ds/lakes", &[], b"");
    call(server.address(), "PUT", "/ds/lakes/thun", &[text], b"");
    for (method, target, headers, code) in [
        ("PUT", "/elsewhere", &[text][..], "no_such_resource"),
        ("POST", "/v1/stream/a/../b", &[text], "invalid_path"),
        ("POST", "/v1/stream/__ds/else/s", &[text], "not_implemented"),
        ("PATCH", "/v1/stream/s", &[text], "method_not_allowed"),
        ("PUT", "/v1/stream/s", &[text, "stream-ttl: x"], "invalid_lifetime"),
        ("POST", "/v1/stream/s", &[text, "producer-id: p"], "invalid_producer"),
        ("POST", "/v1/stream/s", &["content-type: /"], "invalid_content_type"),
        ("PUT", "/v1/stream/__ds/checkpoint/s", &[], "incarnation_required"),
        ("PUT", "/ds/x", &[text], "invalid_bucket"),
        ("POST", "/ds/lakes/thun/append-batch", &[text, "stream-seq: 1"], "invalid_batch"),
        ("PUT", "/ds/lakes/thun/snapshot/x", &[text], "invalid_offset"),
        ("PUT", "/ds/lakes/thun/attrs", &["stream-if-incarnation: x"], "invalid_incarnation"),
    ] {
        let answer = send_slowly(&server, method, target, headers);
        assert_eq!(answer.header("alluvium-error"), Some(code), "{method} {target}: {answer:?}");
    }
    let server = Server::on_sqlite("");
    let answer = send_slowly(&server, "PUT", "/ds/lakes/thun", &[text]);
    assert_eq!(answer.header("alluvium-error"), Some("not_supported_by_store"));
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for_long() {
    let server = Server::start_with("--body-timeout 50ms");
    let head = "PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nx";
    assert_eq!(open(server.address(), head.as_bytes()).0.status, 408);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let server = Server::start_with("--header-bytes-max 8KiB");
    let long = format!("x-long: {}", "x".repeat(16 * 1024));
    assert_eq!(open(server.address(), &request("GET", "/", &[&long], b"")).0.status, 431);
    let many: Vec<String> = (0..200).map(|n| format!("x-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(open(server.address(), &request("GET", "/", &many, b"")).0.status, 431);
}

#[test]
fn a_waiter_too_many_is_asked_to_come_back() {
    let server = Server::start_with("--waiters-max 1");
    call(server.address(), "PUT", "/v1/stream/s", &["content-type: text/plain"], b"");
    let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
    assert!(events.next().is_some());
    for mode in ["sse", "long-poll"] {
        let target = format!("/v1/stream/s?offset=now&live={mode}");
        let refused = call(server.address(), "GET", &target, &[], b"");
        assert_eq!((refused.status, refused.code().as_str()), (503, "too_many_waiters"));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
}

#[test]
fn a_connection_too_many_is_answered_and_closed() {
    let server = Server::start_with("--connections-max 1");
    call(server.address(), "PUT", "/v1/stream/s", &["content-type: text/plain"], b"");
    // The place of the first connection is given back some time after its close; wait until it is.
    let mut held = loop {
        let keep_alive = b"HEAD /v1/stream/s HTTP/1.1\r\nhost: x\r\n\r\n";
        let (answer, socket) = open(server.address(), keep_alive);
        if answer.status == 200 {
            break socket;
        }
    };
    let (refused, mut rest) = open(server.address(), b"");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("alluvium-error"), Some("too_many_connections"));
    let mut body = String::new();
    rest.read_to_string(&mut body).unwrap();
    assert!(body.contains("too_many_connections"), "{body}");
    held.get_mut().write_all(b"HEAD /v1/stream/s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_connection_without_a_request_is_closed() {
    let server = Server::start_with("--idle-timeout 50ms");
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"GET /v1/stream/s HTT").unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn a_stream_too_many_is_refused_and_the_client_does_not_wait_for_room() {
    let server = Server::start_with("--streams-max 1");
    server.stream("create first").run().ok();
    let refused = call(server.address(), "PUT", "/v1/stream/second", &[], b"");
    assert_eq!((refused.status, refused.code().as_str()), (507, "too_many_streams"));
    let shown = server.stream("create second").run().fails_with(7);
    assert!(shown.contains("too_many_streams") && !shown.contains("trying again"), "{shown}");
    server.stream("rm first").run().ok();
    server.stream("create second").run().ok();
}

#[test]
fn a_producer_too_many_is_refused() {
    let server = Server::start_with("--producers-max 1");
    server.stream("create s").run().ok();
    server.stream("append s --producer-id one -m x").run().ok();
    let shown = server.stream("append s --producer-id two -m x").run().fails_with(4);
    assert!(shown.contains("too_many_producers"), "{shown}");
    server.stream("append s --producer-id one --epoch 1 -m x").run().ok();
}

#[test]
fn bodies_that_take_too_much_memory_together_are_refused() {
    let server = Server::start_with("--bodies-bytes-max 1KiB");
    let head = "PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n";
    // Only a body that is still on its way takes room.
    let part = "x".repeat(1500);
    let (refused, mut rest) = open(server.address(), format!("{head}{part}").as_bytes());
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let mut text = vec![0; refused.header("content-length").unwrap().parse().unwrap()];
    rest.read_exact(&mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("too_many_bodies"));
    assert_eq!(call(server.address(), "PUT", "/v1/stream/s", &[], &[b'x'; 1000]).status, 201);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    call(server.address(), "PUT", "/v1/stream/s", &["content-type: text/plain"], b"");
    let mut requests = Vec::new();
    for n in 0..50 {
        let text = format!("{n:02}");
        let head =
            "POST /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n";
        requests.extend_from_slice(head.as_bytes());
        requests.extend_from_slice(text.as_bytes());
    }
    requests.extend_from_slice(&request("GET", "/v1/stream/s", &[], b""));
    let (first, mut rest) = open(server.address(), &requests);
    let mut answers = String::new();
    rest.read_to_string(&mut answers).unwrap();
    assert_eq!((first.status, answers.matches("HTTP/1.1 204").count()), (204, 49));
    let expected = (0..50).fold(String::new(), |text, n| format!("{text}{n:02}"));
    assert!(answers.ends_with(&expected), "{answers}");
}

#[test]
fn every_limit_of_feeds_is_an_option_told_to_clients_and_kept_to() {
    let server = Server::start_with(
        "--feed-count-max 3 --feed-count-warn 2 --feed-blocks-max 5 --feed-blocks-warn 4 \
         --feed-block-bytes-max 1KiB --feed-append-blocks-max 2 --feed-append-bytes-max 4KiB \
         --feed-page-blocks-max 7 --feed-page-bytes-max 8KiB --feed-frame-bytes-max 64KiB \
         --feed-subscribe-max 6 --feed-subscriptions-max 9 --feed-requests-max 10 \
         --feed-ping-interval 5s --feed-reader-timeout 6s --feed-greeting-timeout 7s",
    );
    let ask = |target: &str, body: &str| {
        call(server.address(), "POST", &format!("/feeds/v1/spaces/s{target}"), &[], body.as_bytes())
    };
    let welcome = ask("", r#"{"_tag":"Hello"}"#);
    assert_eq!(welcome.status, 200);
    for limit in [
        r#""feedsMax":3"#,
        r#""feedsSoftMax":2"#,
        r#""feedBlocksMax":5"#,
        r#""feedBlocksSoftMax":4"#,
        r#""dataBytesMax":1024"#,
        r#""appendBlocksMax":2"#,
        r#""appendBytesMax":4096"#,
        r#""pageBlocksMax":7"#,
        r#""pageBytesMax":8192"#,
        r#""frameBytesMax":65536"#,
        r#""subscribeFeedsMax":6"#,
        r#""subscriptionsMax":9"#,
        r#""openRequestsMax":10"#,
    ] {
        assert!(welcome.text().contains(limit), "{limit}: {}", welcome.text());
    }
    let append = |feed: &str, sequence: u32| {
        let block = format!(r#"{{"feedId":"{feed}","actorId":"a","sequence":{sequence},"data":"eA=="}}"#);
        ask("/append", &format!(r#"{{"blocks":[{block}]}}"#))
    };
    for (feed, sequence, status, is_warned) in [
        ("f", 0, 200, false),
        ("f", 1, 200, false),
        ("f", 2, 200, false),
        ("f", 3, 200, false),
        ("f", 4, 200, true),
        ("f", 5, 409, false),
        ("g", 0, 200, false),
        ("h", 0, 200, true),
        ("i", 0, 409, false),
    ] {
        let answer = append(feed, sequence);
        let warned = answer.header("alluvium-warning").is_some();
        assert_eq!((answer.status, warned), (status, is_warned), "{feed} {sequence}: {}", answer.text());
    }
    let block = r#"{"feedId":"f","actorId":"b","sequence":0,"data":"eA=="}"#;
    assert_eq!(ask("/append", &format!(r#"{{"blocks":[{block},{block},{block}]}}"#)).status, 413);
}
