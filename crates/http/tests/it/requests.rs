//! Requests that two parties could read in two ways are refused, whatever they come with.

use super::{Drained, Read, Server, Write, send, start, stop};

/// All that the server answers to these bytes, up to the end of the connection.
fn answers(server: &Server<super::Bodies>, bytes: &str) -> String {
    let mut socket = send(server, bytes);
    let mut text = String::new();
    // Bytes that were not read when the connection was closed come back as a reset, after the answer.
    drop(socket.read_to_string(&mut text));
    text
}

#[test]
fn requests_of_doubtful_length_are_refused_and_nothing_after_them_is_read() {
    let server = start(1, 0);
    let smuggled = "GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n";
    for (head, body, status, code) in [
        ("content-length: 6\r\ntransfer-encoding: chunked", "0\r\n\r\n", 400, "ambiguous_length"),
        ("transfer-encoding: chunked\r\ncontent-length: 6", "0\r\n\r\n", 400, "ambiguous_length"),
        ("transfer-encoding: chunked\r\ncontent-length: 0", "0\r\n\r\n", 400, "ambiguous_length"),
        ("content-length: 3\r\ncontent-length: 3", "abc", 400, "ambiguous_length"),
        ("transfer-encoding: gzip, chunked", "0\r\n\r\n", 501, "unsupported_transfer_coding"),
        (
            "transfer-encoding: gzip\r\ntransfer-encoding: chunked",
            "0\r\n\r\n",
            501,
            "unsupported_transfer_coding",
        ),
        ("transfer-encoding: chunked, chunked", "0\r\n\r\n", 501, "unsupported_transfer_coding"),
        ("transfer-encoding: x, chunked\r\ncontent-length: 3", "0\r\n\r\n", 400, "ambiguous_length"),
        ("transfer-encoding: gzip", "abc", 400, ""),
        ("transfer-encoding: chunked, identity", "0\r\n\r\n", 400, ""),
        ("transfer-encoding : chunked", "0\r\n\r\n", 400, ""),
        ("content-length: 3, 3", "abc", 400, ""),
        ("content-length: 3\r\ncontent-length: 4", "abcd", 400, ""),
        ("content-length: +3", "abc", 400, ""),
    ] {
        // Also where a well-formed request of each kind comes before it on the connection.
        for before in [
            "",
            "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok",
            "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ] {
            let request = format!("{before}POST /echo HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n{body}{smuggled}");
            let text = answers(&server, &request);
            let last = text.rsplit("HTTP/1.1 ").next().unwrap();
            assert!(last.starts_with(&status.to_string()), "{head}: {text}");
            assert!(last.contains(code), "{head}: {text}");
            assert_eq!(
                text.matches("HTTP/1.1").count(),
                1 + usize::from(!before.is_empty()),
                "{head}: {text}"
            );
        }
    }
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn an_http_1_1_request_has_one_host_and_only_expectations_that_are_known() {
    let server = start(1, 0);
    for (head, status, code) in [
        ("host: x", 200, ""),
        ("host: x:80", 200, ""),
        ("a: b", 400, "invalid_host"),
        ("host: x\r\nhost: x", 400, "invalid_host"),
        ("host: x y", 400, "invalid_host"),
        ("host: x\r\nexpect: 100-continue", 200, ""),
        ("host: x\r\nexpect: 200-ok", 417, "expectation_failed"),
        ("host: x\r\nexpect: 100-continue\r\nexpect: y", 417, "expectation_failed"),
    ] {
        let text = answers(&server, &format!("GET / HTTP/1.1\r\nconnection: close\r\n{head}\r\n\r\n"));
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {text}");
        assert!(text.contains(code), "{head}: {text}");
    }
    assert!(answers(&server, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
    let kept = "GET / HTTP/1.1\r\n\r\nGET /pieces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let text = answers(&server, kept);
    assert!(text.starts_with("HTTP/1.1 400") && text.ends_with("one two"), "{text}");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_head_that_no_parser_shall_see_is_refused_with_a_reason_after_what_came_before_it() {
    let server = start(1, 0);
    let first = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok";
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "x".repeat(8 * 1024));
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a:\r\n".repeat(100));
    let line = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(8 * 1024));
    let empty = "\r\n".repeat(5 * 1024);
    let faulty = [
        (long.as_str(), 431, "head_too_large"),
        (&many, 431, "too_many_headers"),
        (&line, 431, "head_too_large"),
        (&empty, 431, "head_too_large"),
        ("GET / HTTP/1.1\nhost: x\r\n\r\n", 400, "malformed_head"),
        ("GET / HTTP/1.1\r\nhost: x\n\r\n", 400, "malformed_head"),
        ("GET / HTTP/1.1\r\nhost: x\r\n\n", 400, "malformed_head"),
        ("GET / HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n", 400, ""),
        ("GET / HTTP/1.1\r\n host: x\r\n\r\n", 400, ""),
        ("GET / HTTP/1.1\r\nhost: x\r\na\0b: c\r\n\r\n", 400, ""),
        ("GET / HTTP/1.1\r\nhost: x\r\na: b\rc\r\n\r\n", 400, ""),
    ];
    for (head, status, code) in faulty {
        for before in ["", first] {
            let text = answers(&server, &format!("{before}{head}GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n"));
            let last = text.rsplit("HTTP/1.1 ").next().unwrap();
            assert!(last.starts_with(&status.to_string()) && last.contains(code), "{head:.40}: {text}");
            assert_eq!(
                text.matches("HTTP/1.1").count(),
                1 + usize::from(!before.is_empty()),
                "{head:.40}: {text}"
            );
        }
    }
    let counted = super::counters(&server);
    assert_eq!((counted.heads_too_large, counted.heads_malformed), (8, 6));
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_body_that_is_asked_for_is_waited_for() {
    let server = start(1, 0);
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 2\r\n\r\n";
    let mut socket = send(&server, head);
    let mut asked = [0; 25];
    socket.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.get_mut().write_all(b"ok").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\nok"), "{text}");
    assert_eq!(stop(server), Drained::Clean);
}
