//! A browser's `EventSource`, cut off wherever it can be: it comes back by itself with the URL that it began with and the
//! `id` of the last event, and its page gets everything once.

use std::collections::HashMap;

use serde_json::Value;

use super::support::{Events, Server, call};

const PATH: &str = "/v1/stream/s";
const TARGET: &str = "/v1/stream/s?offset=-1&live=sse";
/// So many that those who can be are served together.
const SUBSCRIBERS: usize = 6;

/// What `EventSource` makes of the bytes of one response (HTML, 9.2.6).
#[derive(Debug, Default, Eq, PartialEq)]
struct Dispatched {
    /// The data of the events named `data`.
    data: Vec<String>,
    /// What it would come back with.
    last_id: String,
}

impl Dispatched {
    fn of(sent: &[u8]) -> Self {
        let mut all = Self::default();
        let (mut name, mut data, mut id) = (String::new(), Vec::new(), String::new());
        let lines = sent.split_inclusive(|byte| *byte == b'\n');
        // A line that was not sent to its end is none, and an event without its empty line neither.
        for line in lines.filter_map(|line| line.strip_suffix(b"\n")) {
            let line = str::from_utf8(line).unwrap();
            assert!(!line.contains('\r'));
            if line.is_empty() {
                id.clone_into(&mut all.last_id);
                let (name, data) = (std::mem::take(&mut name), std::mem::take(&mut data));
                if name == "data" && !data.is_empty() {
                    all.data.push(data.join("\n"));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut name),
                "data" => data.push(value.to_owned()),
                "id" => value.clone_into(&mut id),
                _ => {}
            }
        }
        all
    }
}

/// What the data of a stream of one content type comes to, however it was cut into events.
type Whole = fn(&[String]) -> String;

fn texts(data: &[String]) -> String {
    data.concat()
}

fn messages(data: &[String]) -> String {
    let arrays = data.iter().map(|data| serde_json::from_str::<Vec<Value>>(data).unwrap());
    serde_json::to_string(&arrays.flatten().collect::<Vec<_>>()).unwrap()
}

/// A response that the test reads whole.
fn rest(mut events: Events) -> Vec<u8> {
    std::iter::from_fn(|| events.next_lines()).collect::<String>().into_bytes()
}

/// Appends while subscribers read, closes the stream, and gives what each of them was sent.
fn watched(server: &Server, content_type: &str, appends: &[&[u8]]) -> Vec<Vec<u8>> {
    let content_type = format!("content-type: {content_type}");
    assert_eq!(call(server.address(), "PUT", PATH, &[&content_type], b"").status, 201);
    let mut readers: Vec<(Events, String)> = (0..SUBSCRIBERS)
        .map(|number| match number {
            // Never served together with others.
            0 => Events::subscribe_old(server.address(), TARGET),
            _ => Events::subscribe(server.address(), TARGET).1,
        })
        .map(|events| (events, String::new()))
        .collect();
    let mut all_read = || {
        for (events, read) in &mut readers {
            loop {
                let lines = events.next_lines().unwrap();
                read.push_str(&lines);
                if lines.starts_with("event: control") {
                    break;
                }
            }
        }
    };
    all_read();
    for append in appends {
        assert_eq!(call(server.address(), "POST", PATH, &[&content_type], append).status, 204);
        all_read();
    }
    assert_eq!(call(server.address(), "POST", PATH, &["stream-closed: true"], b"").status, 204);
    all_read();
    readers
        .into_iter()
        .map(|(mut events, read)| {
            assert_eq!(events.next_lines(), None);
            read.into_bytes()
        })
        .collect()
}

/// Where a cut makes a difference: after the empty line of each event. What is cut off before its own is as if it had not
/// been sent.
fn cuts(sent: &[u8]) -> impl Iterator<Item = usize> {
    let ends = sent.windows(2).enumerate().filter(|(_, two)| two == b"\n\n").map(|(at, _)| at + 2);
    std::iter::once(0).chain(ends)
}

fn everything_comes_once(
    server: &Server,
    content_type: &str,
    appends: &[&[u8]],
    whole: Whole,
    expected: &str,
) {
    let sent = watched(server, content_type, appends);
    let (first, others) = sent.split_first().unwrap();
    let seen = Dispatched::of(first);
    assert!(seen.data.len() > 1, "{seen:?}");
    assert_eq!(whole(&seen.data), expected);
    for other in others {
        assert_eq!(Dispatched::of(other), seen, "served together or not");
    }
    let mut rests: HashMap<String, Vec<String>> = HashMap::new();
    for cut in cuts(first) {
        let Dispatched { mut data, last_id } = Dispatched::of(&first[..cut]);
        let rest = rests.entry(last_id.clone()).or_insert_with(|| {
            let events = match &*last_id {
                // It has seen nothing, and sends no header.
                "" => Events::subscribe(server.address(), TARGET).1,
                id => Events::resume(server.address(), TARGET, id),
            };
            Dispatched::of(&rest(events)).data
        });
        data.extend(rest.iter().cloned());
        assert_eq!(whole(&data), expected, "cut after {cut} bytes, at `{last_id}`");
    }
    assert!(rests.len() > appends.len(), "each append is a place to come back to");
    assert_eq!(rests[&seen.last_id], Vec::<String>::new(), "nothing follows the end");
}

#[test]
fn messages_come_once_wherever_the_connection_is_cut() {
    for server in Server::of_each_store("") {
        let long = serde_json::to_string(&vec!["\u{e9} \n"; 16_000]).unwrap();
        let appends: [&[u8]; 5] = [b"1", b"[{\"a\":[2]},3]", b"[\"4\\n\"]", long.as_bytes(), b"5"];
        let all: Vec<String> = appends
            .iter()
            .map(|body| str::from_utf8(body).unwrap())
            .map(|body| {
                body.strip_prefix('[').and_then(|body| body.strip_suffix(']')).unwrap_or(body).to_owned()
            })
            .collect();
        let expected = messages(&[format!("[{}]", all.join(","))]);
        everything_comes_once(&server, "application/json", &appends, messages, &expected);
    }
}

#[test]
fn text_comes_once_wherever_the_connection_is_cut_and_the_text_was() {
    for server in Server::of_each_store("") {
        let text = " a\u{e9}\r\n\u{20ac}\u{1f600}\r\u{e9}\n".as_bytes();
        let appends: Vec<&[u8]> = text.chunks(1).collect();
        let expected = " a\u{e9}\n\u{20ac}\u{1f600}\n\u{e9}\n";
        everything_comes_once(&server, "text/plain", &appends, texts, expected);
    }
}

#[test]
fn binary_data_comes_once_wherever_the_connection_is_cut() {
    for server in Server::of_each_store("") {
        // Of such lengths that the base64 of two is that of both.
        let appends: [&[u8]; 3] = [b"\x00\xff\n", b"\r\n\nabc", b"\xf0\x9f\x92"];
        everything_comes_once(&server, "application/octet-stream", &appends, texts, "AP8KDQoKYWJj8J+S");
    }
}

#[test]
fn an_id_that_is_no_offset_is_refused_like_an_offset_and_means_nothing_to_other_reads() {
    for server in Server::of_each_store("") {
        let content_type = "content-type: text/plain";
        let end = call(server.address(), "PUT", PATH, &[content_type], b"abc").next_offset().to_owned();
        let seen = format!("last-event-id: {end}");
        let answer = |target: &str, headers: &[&str]| call(server.address(), "GET", target, headers, b"");
        for id in ["last-event-id: x", "last-event-id:", "last-event-id: 1,2"] {
            let refused = answer(TARGET, &[id]);
            assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_offset"), "{id}");
            assert!(refused.text().contains("Last-Event-ID"), "{}", refused.text());
        }
        assert_eq!(answer(TARGET, &[&seen, &seen]).status, 400);
        // Beyond the end, as an offset beyond it.
        let beyond = "00000000000000ff_00000000000000ff";
        let by_offset = answer(&format!("{PATH}?offset={beyond}&live=sse"), &[]);
        let by_id = answer(TARGET, &[&format!("last-event-id: {beyond}")]);
        assert_eq!((by_id.status, by_id.code()), (by_offset.status, by_offset.code()));
        for target in [PATH.to_owned(), format!("{PATH}?offset=-1&live=long-poll")] {
            assert_eq!(answer(&target, &[&seen]).text(), "abc", "{target}");
        }
        let preflight = call(server.address(), "OPTIONS", PATH, &["origin: https://app.example"], b"");
        assert!(preflight.header("access-control-allow-headers").unwrap().contains("Last-Event-ID"));
    }
}
