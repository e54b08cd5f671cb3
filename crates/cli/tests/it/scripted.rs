//! `alluvium stream` against answers that break off, refuse or mislead at an exact place.

use crate::support::{Cli, Ended, Request, Scripted, signal};

const APPENDED: &str = "HTTP/1.1 200 OK\r\nstream-next-offset: 0_3\r\ncontent-length: 0\r\n\r\n";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
const NO_ANSWER: &str = "";
/// The field of a control event that ends a stream.
const CLOSED: &str = r#","streamClosed":true"#;

fn run(replies: &[&str], arguments: &str) -> (Ended, Vec<Request>) {
    let server = Scripted::start(replies);
    let ended = Cli::stream(&server.url, arguments).run_with(b"abc");
    (ended, server.requests())
}

/// A page of a stream. A length beyond the body's makes it break off.
fn page(content_type: &str, next: &str, length: usize, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nstream-next-offset: {next}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

fn last_page(content_type: &str, next: &str, body: &str) -> String {
    let page = page(content_type, next, body.len(), body);
    page.replacen("\r\n", "\r\nstream-up-to-date: true\r\n", 1)
}

fn events(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}")
}

fn data(text: &str) -> String {
    format!("event: data\ndata: {text}\n\n")
}

/// A control event; `more` are further fields.
fn control(next: &str, more: &str) -> String {
    format!("event: control\ndata: {{\"streamNextOffset\":\"{next}\"{more}}}\n\n")
}

fn stamp(request: &Request) -> [&str; 3] {
    ["producer-id", "producer-epoch", "producer-seq"].map(|name| request.header(name))
}

#[test]
fn a_page_that_breaks_off_is_continued_without_a_gap_or_a_double() {
    let replies = [
        page("text/plain", "0_4", 4, "abcd"),
        page("text/plain", "0_8", 4, "ef"),
        NO_ANSWER.to_owned(),
        last_page("text/plain", "0_8", "efgh"),
    ];
    let (ended, requests) = run(&replies.each_ref().map(String::as_str), "read a");
    assert_eq!(ended.next_offset(), "0_8");
    assert_eq!(ended.ok(), "abcdefgh");
    let lines: Vec<&str> = requests.iter().map(|request| request.line.as_str()).collect();
    let asked = |offset| format!("GET /v1/stream/a?offset={offset}");
    assert_eq!(lines, [asked("-1"), asked("0_4"), asked("0_4"), asked("0_4")]);
}

#[test]
fn a_json_page_that_breaks_off_inside_a_message_is_continued() {
    let replies = [
        page("application/json", "0_1", 30, r#"[{"a":1},{"#),
        last_page("application/json", "0_1", r#"[{"a":1},{"b":[2]}]"#),
    ];
    let (ended, _) = run(&replies.each_ref().map(String::as_str), "read a --json-lines");
    assert_eq!(ended.ok(), "{\"a\":1}\n{\"b\":[2]}\n");
}

#[test]
fn a_read_that_is_given_up_inside_a_page_names_no_offset() {
    let replies = [page("text/plain", "0_4", 9, "abcd")];
    let (ended, _) = run(&replies.each_ref().map(String::as_str), "read a --give-up-after 1");
    assert_eq!(ended.stdout, b"abcd");
    assert!(!ended.fails_with(7).contains("next offset"));
}

#[test]
fn an_append_is_repeated_with_its_producer_stamp() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let known = "HTTP/1.1 204 No Content\r\nstream-next-offset: 0_3\r\n\r\n";
    let (ended, requests) =
        run(&[NO_ANSWER, busy, known, APPENDED], "append a --content-type text/plain --close");
    ended.ok();
    let [first, second, third, rest @ ..] = requests.as_slice() else { panic!("{requests:?}") };
    for repeat in [first, second, third] {
        assert_eq!(repeat.line, "POST /v1/stream/a");
        assert_eq!(repeat.body, b"abc");
        assert_eq!(stamp(repeat), stamp(first));
    }
    assert_eq!(stamp(first)[1..], ["0", "0"]);
    // The end of the input may be seen with the last bytes, or after them.
    let close = rest.first().unwrap_or(third);
    assert_eq!(close.header("stream-closed"), "true");
    assert_eq!(stamp(close)[2], if rest.is_empty() { "0" } else { "1" });
}

#[test]
fn without_a_producer_an_append_is_not_repeated_blindly() {
    let (ended, requests) = run(&[NO_ANSWER], "append a --content-type text/plain --no-producer");
    assert!(ended.fails_with(7).contains("may or may not"));
    assert_eq!(stamp(&requests[0]), ["", "", ""]);
}

#[test]
fn an_append_that_is_given_up_says_that_it_may_be_in_the_stream() {
    let arguments = "append a --content-type text/plain --give-up-after 1 -m x -m y";
    let (ended, _) = run(&[APPENDED, NO_ANSWER], arguments);
    let shown = ended.fails_with(7);
    assert!(shown.contains("appended: 1 message of the input\nnext offset: 0_3 (reached before"), "{shown}");
    assert!(shown.contains("one more append may be in the stream"), "{shown}");
}

#[test]
fn each_refusal_has_its_exit_code() {
    let append = "append a --content-type text/plain";
    for (status, headers, code) in [
        ("400 Bad Request", "", 1),
        ("413 Payload Too Large", "", 1),
        ("301 Moved Permanently", "location: http://127.0.0.1:1/\r\n", 1),
        ("404 Not Found", "", 3),
        ("409 Conflict", "", 4),
        ("409 Conflict", "stream-closed: true\r\nstream-next-offset: 0_1\r\n", 4),
        ("409 Conflict", "producer-expected-seq: 0\r\nproducer-received-seq: 1\r\n", 4),
        ("410 Gone", "", 5),
        ("403 Forbidden", "producer-epoch: 3\r\n", 6),
        ("501 Not Implemented", "", 7),
        ("401 Unauthorized", "", 8),
        ("403 Forbidden", "", 8),
    ] {
        let reply = format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\n\r\n");
        let (ended, _) = run(&[&reply], append);
        assert_eq!(ended.code, Some(code), "{status} {headers:?} {}", ended.stderr);
    }
}

#[test]
fn a_failure_that_waiting_does_not_mend_ends_the_command_at_once() {
    let body = r#"{"error":{"code":"too_many_streams","message":"there are already 7 streams"}}"#;
    for status in ["500 Internal Server Error", "501 Not Implemented", "507 Insufficient Storage"] {
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let (ended, requests) = run(&[&reply, APPENDED], "create a");
        let shown = ended.fails_with(7);
        assert!(
            shown.contains(&format!("{status}: there are already 7 streams (too_many_streams)")),
            "{shown}"
        );
        assert_eq!((requests.len(), shown.contains("trying again")), (1, false));
    }
}

#[test]
fn a_failure_that_says_when_to_come_back_is_tried_again() {
    for status in ["429 Too Many Requests", "503 Service Unavailable", "507 Insufficient Storage"] {
        let reply = format!("HTTP/1.1 {status}\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n");
        let (ended, requests) = run(&[&reply, APPENDED], "create a");
        assert!(
            ended.stderr.contains(&format!("{status}: no reason given; trying again")),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("the server answers again"), "{}", ended.stderr);
        ended.ok();
        assert_eq!(requests.len(), 2);
    }
}

#[test]
fn a_read_that_is_stopped_inside_a_page_says_that_its_offset_is_too_early() {
    let replies = [page("text/plain", "0_4", 4, "abcd"), page("text/plain", "0_8", 4, "ef")];
    let server = Scripted::start(&replies.each_ref().map(String::as_str));
    let mut read = Cli::stream(&server.url, "read a").spawn();
    let mut printed = [0; 6];
    std::io::Read::read_exact(read.stdout.as_mut().unwrap(), &mut printed).unwrap();
    signal(&read, "INT");
    let ended = Ended::of(read);
    assert_eq!((ended.code, ended.next_offset().as_str()), (Some(130), "0_4"));
    assert!(ended.stderr.contains("0_4 (a part of what follows it is printed already)"), "{}", ended.stderr);
}

#[test]
fn a_token_is_sent_and_never_shown() {
    let server = Scripted::start(&["HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"]);
    let ended = Cli::stream(&server.url, "head a").env("ALLUVIUM_TOKEN", "swordfish").run();
    assert_eq!(server.requests()[0].header("authorization"), "Bearer swordfish");
    assert!(!ended.fails_with(8).contains("swordfish"));
    let help = Cli::new("stream head --help").env("ALLUVIUM_TOKEN", "swordfish").run().ok();
    assert!(!help.contains("swordfish"));
}

#[test]
fn a_servers_text_cannot_reach_the_terminal_unfiltered() {
    let body = "\x1b]0;owned\x07\x1b[31mno";
    let reply = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (ended, _) = run(&[&reply], "append a --content-type text/plain");
    let shown = ended.fails_with(1);
    assert!(shown.contains("no") && !shown.contains('\x1b') && !shown.contains('\x07'));
}

#[test]
fn events_are_printed_once_though_the_connection_breaks_before_their_control_event() {
    let replies = [
        last_page("text/plain", "0_1", "x"),
        events(&[data("y"), control("0_2", r#","streamCursor":"7""#), data("z")].concat()),
        events(&[data("z"), control("0_3", CLOSED)].concat()),
    ];
    let (ended, requests) = run(&replies.each_ref().map(String::as_str), "tail a --offset -1");
    assert_eq!(ended.next_offset(), "0_3");
    assert_eq!(ended.ok(), "xyz");
    assert_eq!(requests[1].line, "GET /v1/stream/a?live=sse&offset=0_1");
    assert_eq!(requests[2].line, "GET /v1/stream/a?cursor=7&live=sse&offset=0_2");
}

#[test]
fn binary_events_are_decoded() {
    let start = last_page("application/octet-stream", "0_0", "");
    let events = events(&[data("AAH/"), control("0_3", CLOSED)].concat()).replacen(
        "\r\n",
        "\r\nstream-sse-data-encoding: base64\r\n",
        1,
    );
    let (ended, _) = run(&[&start, &events], "tail a");
    assert_eq!(ended.stdout, [0, 1, 255]);
}

#[test]
fn long_polls_go_on_after_a_timeout_and_echo_the_cursor() {
    let timeout = "HTTP/1.1 204 No Content\r\nstream-next-offset: 0_1\r\nstream-cursor: 9\r\n\
                   stream-up-to-date: true\r\n\r\n";
    let end = last_page("text/plain", "0_2", "y").replacen("\r\n", "\r\nstream-closed: true\r\n", 1);
    let (ended, requests) = run(&[&last_page("text/plain", "0_1", ""), timeout, &end], "tail a --long-poll");
    assert_eq!(ended.ok(), "y");
    assert_eq!(requests[2].line, "GET /v1/stream/a?cursor=9&live=long-poll&offset=0_1");
}

#[test]
fn a_delete_whose_answer_was_lost_has_succeeded() {
    run(&[NO_ANSWER, NOT_FOUND], "rm a").0.ok();
    run(&[NOT_FOUND], "rm a").0.fails_with(3);
}

#[test]
fn nobody_at_the_address_is_unavailable() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = Cli::stream(&format!("http://{address}"), "read a --give-up-after 1").run();
    let shown = ended.fails_with(7);
    assert!(shown.contains("; trying again for 1 s\n") && shown.contains("gave up"), "{shown}");
}

#[test]
fn a_success_that_is_no_publication_is_a_failure() {
    let created = "HTTP/1.1 201 Created\r\netag: \"x\"\r\ncontent-length: 0\r\n\r\n";
    let bare = "HTTP/1.1 204 No Content\r\netag: \"x\"\r\n\r\n";
    for (reply, told) in [(created, "201"), (bare, "stream-snapshot-offset")] {
        let (ended, requests) = run(&[reply], "snapshot put /ds/docs/a - --offset 0_3");
        assert_eq!((requests.len(), requests[0].body.as_slice()), (1, &b"abc"[..]));
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        ended.fails_with(1);
    }
}
