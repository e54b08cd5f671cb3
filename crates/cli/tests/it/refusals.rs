//! What is refused says so, whoever asks and however.

use std::os::unix::fs::FileExt;

use super::support::{Answer, Server, call, open, request};

const TEXT: &str = "content-type: text/plain";

fn send(server: &Server, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Answer {
    call(server.address(), method, &format!("/v1/stream/{target}"), headers, body)
}

#[test]
fn every_method_tells_its_errors_in_the_body_and_in_a_header() {
    let server = Server::start();
    for (method, headers, body) in [
        ("GET", &[][..], &b""[..]),
        ("POST", &[TEXT], b"x"),
        ("POST", &["stream-closed: true"], b""),
        ("DELETE", &[], b""),
    ] {
        let answer = send(&server, method, "missing", headers, body);
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{method}");
        assert_eq!(answer.header("alluvium-error"), Some("not_found"), "{method}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{method}");
    }
    let head = send(&server, "HEAD", "missing", &[], b"");
    assert_eq!((head.status, head.header("alluvium-error")), (404, Some("not_found")));
    assert_eq!(head.text(), "");
    let head = send(&server, "HEAD", "a/../b", &[], b"");
    assert_eq!((head.status, head.header("alluvium-error")), (400, Some("invalid_path")));
    // A client that waits for leave to send a body is told at once.
    let asking = "POST /v1/stream/missing HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
        content-type: text/plain\r\ncontent-length: 1\r\n\r\nx";
    let (answer, _) = open(server.address(), asking.as_bytes());
    assert!(matches!(answer.status, 100 | 404), "{}", answer.status);
}

#[test]
fn a_fork_source_is_the_path_of_a_stream_and_nothing_else() {
    let server = Server::start();
    send(&server, "PUT", "a/b%20c", &[TEXT], b"x");
    for source in [
        "/v1/stream/a/b%20c?y=1",
        "/v1/stream/a/b%20c?",
        "/v1/stream/a/b%20c#y",
        "/v1/stream/a/b c",
        "/v1/stream/a/<b>",
        "/v1/stream/a/b%2",
        "/v1/stream/a/b%zz",
        "/v1/stream/a/%ff",
        "/v1/stream/a/%00",
        "/v1/stream/a//b",
        "/v1/stream/a/../a/b%20c",
        "/v1/stream/",
        "/v1/stream",
        "/v1/streams/a",
        "v1/stream/a/b%20c",
        "//x/v1/stream/a/b%20c",
        "http://x/v1/stream/a/b%20c",
        "/v1/stream/__ds/x",
        "a/b%20c",
        "",
    ] {
        let answer = send(&server, "PUT", "fork", &[&format!("stream-forked-from: {source}")], b"");
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_fork_source"), "{source}");
    }
    for source in ["/v1/stream/a/b%20c", "/v1/stream/%61%2Fb%20c"] {
        let answer = send(&server, "PUT", "fork", &[&format!("stream-forked-from: {source}")], b"");
        assert!(matches!(answer.status, 200 | 201), "{source}: {}", answer.text());
    }
}

#[test]
fn a_cursor_grows_whatever_it_is_and_is_refused_where_it_cannot() {
    let server = Server::start_with("--long-poll-timeout 1ms");
    send(&server, "PUT", "s", &[TEXT], b"x");
    let ask = |live: &str, offset: &str, cursor: &str| {
        send(&server, "GET", &format!("s?offset={offset}&live={live}&cursor={cursor}"), &[], b"")
    };
    for cursor in [0, 1 << 53, (1 << 53) + 1, 1 << 63, u64::MAX - 1] {
        for offset in ["-1", "now"] {
            let answer = ask("long-poll", offset, &cursor.to_string());
            let next: u64 = answer.header("stream-cursor").unwrap().parse().unwrap();
            assert!(next > cursor, "{next} after {cursor}");
        }
        let target = format!("/v1/stream/s?offset=-1&live=sse&cursor={cursor}");
        let (_, mut events) = super::support::Events::subscribe(server.address(), &target);
        events.next();
        let control: serde_json::Value = serde_json::from_str(&events.next().unwrap().1).unwrap();
        let next: u64 = control["streamCursor"].as_str().unwrap().parse().unwrap();
        assert!(next > cursor, "{next} after {cursor}");
    }
    for cursor in ["18446744073709551615", "18446744073709551616", "99999999999999999999999"] {
        for live in ["long-poll", "sse"] {
            let answer = ask(live, "-1", cursor);
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_cursor"), "{cursor}");
        }
    }
}

#[test]
fn who_may_cache_is_an_option() {
    let server = Server::start_with("--cache-visibility private");
    send(&server, "PUT", "s", &[TEXT], b"x");
    send(&server, "PUT", "short", &[TEXT, "stream-ttl: 10"], b"x");
    let cache =
        |target: &str| send(&server, "GET", target, &[], b"").header("cache-control").unwrap().to_owned();
    assert_eq!(cache("s"), "private, max-age=60, stale-while-revalidate=300");
    assert_eq!(cache("s?offset=-1&live=long-poll"), "private, max-age=60, stale-while-revalidate=300");
    assert_eq!(cache("short"), "private, max-age=10, stale-while-revalidate=0");
    assert_eq!(cache("s?offset=now"), "no-store");
}

#[test]
fn a_request_that_could_be_read_in_two_ways_changes_nothing() {
    let server = Server::start();
    let head = "PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n";
    for (headers, status) in [
        ("transfer-encoding: gzip, chunked\r\n", 501),
        ("transfer-encoding: chunked\r\ncontent-length: 4\r\n", 400),
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n", 400),
        ("host: y\r\ntransfer-encoding: chunked\r\n", 400),
        ("expect: something\r\ntransfer-encoding: chunked\r\n", 417),
    ] {
        let request = format!("{head}{headers}\r\n1\r\nx\r\n0\r\n\r\n");
        let (answer, _) = open(server.address(), request.as_bytes());
        assert_eq!(answer.status, status, "{headers}");
        assert!(answer.header("alluvium-error").is_some(), "{headers}");
        assert_eq!(send(&server, "HEAD", "s", &[], b"").status, 404, "{headers}");
    }
}

/// Finds `needle` in a journal segment, and gives the file and the place to `spoil`.
fn spoil(server: &Server, needle: &[u8], spoil: impl Fn(&std::fs::File, u64)) {
    for shard in std::fs::read_dir(server.data().join("streams")).unwrap() {
        for path in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            let path = path.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
                return spoil(&std::fs::OpenOptions::new().write(true).open(&path).unwrap(), at as u64);
            }
        }
    }
    panic!("`{}` is in no file", String::from_utf8_lossy(needle));
}

#[test]
fn stored_bytes_that_cannot_be_read_are_an_answer_and_not_a_broken_connection() {
    for is_cut in [false, true] {
        let server = Server::start_with("--recent-bytes 1 --segment-bytes 4MiB --append-bytes-max 2MiB");
        send(&server, "PUT", "s", &[TEXT], b"");
        send(&server, "POST", "s", &[TEXT], "good".repeat(100_000).as_bytes());
        let good = send(&server, "HEAD", "s", &[], b"").next_offset().to_owned();
        send(&server, "POST", "s", &[TEXT], "evil".repeat(200_000).as_bytes());
        spoil(&server, "evil".repeat(10).as_bytes(), |file, at| {
            if is_cut {
                file.set_len(at + 1000).unwrap();
            } else {
                file.write_all_at(b"E", at + 700_000).unwrap();
            }
        });
        for mode in ["", "&live=long-poll", "&live=sse"] {
            let target = format!("s?offset={good}{mode}");
            let answer = send(&server, "GET", &target, &[], b"");
            assert_eq!((answer.status, answer.code().as_str()), (500, "read_failed"), "{target}");
            // What comes before it is sent, and then the response breaks off.
            let target = format!("/v1/stream/s?offset=-1{mode}");
            let (answer, mut rest) = open(server.address(), &request("GET", &target, &[], b""));
            assert_eq!(answer.status, 200, "{target}");
            let mut body = Vec::new();
            // A connection that is cut while there is something to read may end in an error.
            drop(std::io::Read::read_to_end(&mut rest, &mut body));
            assert!(String::from_utf8_lossy(&body).contains("goodgood"), "{target}");
            assert!(!body.ends_with(b"0\r\n\r\n"), "{target}");
        }
        assert_eq!(send(&server, "HEAD", "s", &[], b"").status, 200);
    }
}

#[test]
fn a_repeated_create_says_in_what_the_stream_differs() {
    for server in Server::of_each_store("") {
        send(&server, "PUT", "log", &[TEXT], b"");
        send(&server, "POST", "log", &["stream-closed: true"], b"");
        for (headers, told) in [
            (&[TEXT][..], "is closed where the request says open"),
            (&["content-type: text/html", "stream-closed: true"], "another content type"),
            (&[TEXT, "stream-closed: true", "stream-ttl: 60"], "another lifetime"),
        ] {
            let refused = send(&server, "PUT", "log", headers, b"");
            assert_eq!((refused.status, refused.code().as_str()), (409, "exists"));
            assert!(refused.text().contains(told), "{told}: {}", refused.text());
        }
    }
}

#[test]
fn a_snapshot_that_must_be_new_is_refused_because_there_is_one() {
    let server = Server::start();
    let ask = |method: &str, target: &str, headers: &[&str]| {
        call(server.address(), method, &format!("/ds/docs{target}"), headers, b"")
    };
    ask("PUT", "", &[]);
    ask("PUT", "/s", &[TEXT]);
    let at = "/s/snapshot/0000000000000000_0000000000000000";
    let none = ask("PUT", at, &["if-match: *"]);
    assert!(none.status == 412 && none.text().contains("the stream has none"), "{}", none.text());
    assert_eq!(ask("PUT", at, &["if-none-match: *"]).status, 204);
    let again = ask("PUT", at, &["if-none-match: *"]);
    assert!(again.header("etag").is_some());
    assert_eq!((again.status, again.code().as_str()), (412, "precondition_failed"));
    assert!(again.text().contains("there is a snapshot at this offset already"), "{}", again.text());
    let other = ask("PUT", at, &["if-match: \"x\""]);
    assert!(
        other.status == 412 && other.text().contains("not the one that `If-Match` names"),
        "{}",
        other.text()
    );
}

#[test]
fn attributes_of_a_stream_without_a_resource_for_them_are_in_its_head() {
    let server = Server::start();
    send(&server, "PUT", "plain", &[TEXT], b"");
    assert_eq!(send(&server, "HEAD", "plain", &[], b"").header("stream-attrs"), None);
    send(&server, "PUT", "told", &[TEXT, "stream-attrs: {\"title\": \"Aare \u{1f30a}\"}"], b"");
    let head = send(&server, "HEAD", "told", &[], b"");
    assert_eq!(head.header("stream-attrs"), Some("{\"title\": \"Aare \\ud83c\\udf0a\"}"));
}

#[test]
fn each_refusal_of_a_subscription_has_its_status_and_code() {
    let server = Server::start();
    let path = "__ds/subscriptions/x";
    let hook = |url: &str| format!(r#"{{"type":"webhook","pattern":"a/*","webhook":{{"url":"{url}"}}}}"#);
    let made = send(&server, "PUT", path, &[], hook("https://worker.example/").as_bytes());
    assert_eq!(made.status, 201, "{}", made.text());
    let pull = br#"{"type":"pull-wake","pattern":"a/*","wake_stream":"w"}"#;
    send(&server, "PUT", "__ds/subscriptions/p", &[], pull);
    let long = vec![b' '; 4 * 1024 * 1024 + 1];
    for (method, path, headers, body, status, code) in [
        ("GET", "__ds/subscriptions/none", &[][..], &b""[..], 404, "SUBSCRIPTION_NOT_FOUND"),
        ("GET", "__ds/subscriptions/x/y", &[], b"", 404, "NO_SUCH_RESOURCE"),
        ("PATCH", path, &[], b"", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "__ds/jwks.json", &[], b"", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", path, &[], b"{", 400, "INVALID_REQUEST"),
        ("PUT", path, &[], pull, 409, "SUBSCRIPTION_ALREADY_EXISTS"),
        (
            "PUT",
            "__ds/subscriptions/y",
            &[],
            hook("http://127.0.0.1/").as_bytes(),
            400,
            "WEBHOOK_URL_REJECTED",
        ),
        ("PUT", "__ds/subscriptions/y", &[], &long, 413, "BODY_REFUSED"),
        ("POST", "__ds/subscriptions/x/streams", &[], br#"{"streams":["a//b"]}"#, 400, "INVALID_REQUEST"),
        ("POST", "__ds/subscriptions/x/claim", &[], br#"{"worker":"w"}"#, 400, "INVALID_REQUEST"),
        ("POST", "__ds/subscriptions/p/claim", &[], br#"{"worker":"w"}"#, 409, "NO_PENDING_WORK"),
        ("POST", "__ds/subscriptions/x/callback", &[], b"{}", 401, "TOKEN_INVALID"),
        ("POST", "__ds/subscriptions/p/ack", &["authorization: Bearer a.b"], b"{}", 401, "TOKEN_INVALID"),
        ("POST", "__ds/subscriptions/p/release", &["authorization: Basic a"], b"{}", 401, "TOKEN_INVALID"),
    ] {
        let refused = send(&server, method, path, headers, body);
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{method} {path}");
        assert_eq!(refused.header("alluvium-error"), Some(code));
    }
    let allowed = send(&server, "PATCH", path, &[], b"");
    assert_eq!(allowed.header("allow"), Some("GET, HEAD, PUT, DELETE, OPTIONS"));
}
