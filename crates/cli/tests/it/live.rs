//! Live reads of what is large, or cut in odd places.

use std::collections::HashMap;

use super::support::{Events, Server, call};

const TEXT: &str = "content-type: text/plain";

fn put(server: &Server, stream: &str, headers: &[&str], body: &[u8]) {
    let answer = call(server.address(), "PUT", &format!("/v1/stream/{stream}"), headers, body);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn append(server: &Server, stream: &str, headers: &[&str], body: &[u8]) -> String {
    let answer = call(server.address(), "POST", &format!("/v1/stream/{stream}"), headers, body);
    assert_eq!(answer.status, 204, "{}", answer.text());
    answer.next_offset().to_owned()
}

fn subscribe(server: &Server, stream: &str, offset: &str) -> Events {
    Events::subscribe(server.address(), &format!("/v1/stream/{stream}?offset={offset}&live=sse")).1
}

/// The data up to the next control event, and what that says. Each event of data is followed by one of control.
fn next(events: &mut Events) -> (Option<String>, serde_json::Value) {
    let (name, data) = events.next().unwrap();
    if name == "control" {
        return (None, serde_json::from_str(&data).unwrap());
    }
    let (after, control) = events.next().unwrap();
    assert_eq!((name.as_str(), after.as_str()), ("data", "control"));
    (Some(data), serde_json::from_str(&control).unwrap())
}

/// All text from an offset to the end of a closed stream.
fn rest(server: &Server, stream: &str, offset: &str) -> String {
    let mut events = subscribe(server, stream, offset);
    let mut text = String::new();
    loop {
        let (data, control) = next(&mut events);
        text.push_str(&data.unwrap_or_default());
        if control["streamClosed"] == true {
            assert_eq!(events.next(), None);
            return text;
        }
    }
}

#[test]
fn text_that_is_cut_anywhere_arrives_whole_and_is_taken_up_at_any_offset() {
    for mut server in Server::of_each_store("") {
        // With a character that is never finished, and one that turns out to be none.
        let stored =
            [" a\u{e9}\r\n\u{20ac}\u{1f600}\r\u{e9}".as_bytes(), b"\xf0\x9fb", b"\r\n\xe2\x82"].concat();
        let expected = " a\u{e9}\n\u{20ac}\u{1f600}\n\u{e9}\u{fffd}b\n\u{fffd}";
        put(&server, "s", &[TEXT], b"");
        let mut events = subscribe(&server, "s", "-1");
        let start = next(&mut events).1;
        let mut received = vec![(start["streamNextOffset"].as_str().unwrap().to_owned(), String::new())];
        for byte in &stored {
            let offset = append(&server, "s", &[TEXT], &[*byte]);
            let (data, control) = next(&mut events);
            assert_eq!(control["streamNextOffset"], offset.as_str());
            assert_eq!(control["upToDate"], true);
            assert_ne!(data.as_deref(), Some(""), "an event without data");
            let text = received.last().unwrap().1.clone() + &data.unwrap_or_default();
            received.push((offset, text));
        }
        call(server.address(), "POST", "/v1/stream/s", &["stream-closed: true"], b"");
        let (last, control) = next(&mut events);
        assert_eq!((last.as_deref(), &control["streamClosed"]), (Some("\u{fffd}"), &true.into()));
        for (offset, before) in &received {
            assert_eq!(before.clone() + &rest(&server, "s", offset), expected, "from {offset}");
        }
        assert_eq!(rest(&server, "s", "-1"), expected);
        // From the disk it is the same.
        server.kill();
        server.restart();
        for (offset, before) in &received {
            assert_eq!(
                before.clone() + &rest(&server, "s", offset),
                expected,
                "from {offset} after a restart"
            );
        }
    }
}

#[test]
fn subscribers_who_share_events_also_share_what_is_unfinished() {
    for server in Server::of_each_store("") {
        put(&server, "s", &[TEXT], b"");
        let mut subscribers: Vec<Events> = (0..6).map(|_| subscribe(&server, "s", "now")).collect();
        let mut texts = vec![String::new(); subscribers.len()];
        for events in &mut subscribers {
            next(events);
        }
        for part in [&b"x\xf0\x9f"[..], b"\x98", b"\x80y"] {
            let offset = append(&server, "s", &[TEXT], part);
            for (events, text) in subscribers.iter_mut().zip(&mut texts) {
                let (data, control) = next(events);
                assert_eq!(control["streamNextOffset"], offset.as_str());
                text.push_str(&data.unwrap_or_default());
            }
        }
        assert_eq!(texts, ["x\u{1f600}y"; 6]);
    }
}

#[test]
fn a_large_message_is_one_event_however_it_is_sent() {
    let line = "\u{20ac} 0123456789 \r\n  abc\r\u{1f600}\n";
    let text = line.repeat(3_000_000 / line.len());
    let messages = format!("[{},{{\"k\":[1,2]}}]", serde_json::to_string(&text).unwrap());
    let as_lines = text.replace("\r\n", "\n").replace('\r', "\n");
    for flags in ["", "--recent-bytes 1", "--responses-bytes-max 1"] {
        let server = Server::start_with(flags);
        put(&server, "text", &[TEXT], text.as_bytes());
        put(&server, "json", &["content-type: application/json"], messages.as_bytes());
        put(&server, "bytes", &["content-type: application/octet-stream"], text.as_bytes());
        let read: HashMap<&str, String> = ["text", "json", "bytes"]
            .into_iter()
            .map(|stream| {
                let (data, control) = next(&mut subscribe(&server, stream, "-1"));
                assert_eq!(control["upToDate"], true, "{stream} {flags}");
                (stream, data.unwrap())
            })
            .collect();
        assert!(read["text"] == as_lines, "{flags}");
        let parse = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert!(parse(&read["json"]) == parse(&messages), "{flags}");
        let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &read["bytes"]);
        assert!(decoded.unwrap() == text.as_bytes(), "{flags}");
        let caught_up = call(server.address(), "GET", "/v1/stream/text", &[], b"");
        assert!(caught_up.text() == text, "{flags}");
    }
}
