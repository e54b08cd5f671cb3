use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug, Eq, PartialEq)]
struct Event {
    name: String,
    data: String,
}

/// An event-stream reader after the WHATWG standard, working on one character at a time.
fn read_events(stream: &[u8]) -> Vec<Event> {
    let text = str::from_utf8(stream).expect("an event stream is UTF-8");
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), String::new());
    let mut line = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\n' && character != '\r' {
            line.push(character);
            continue;
        }
        if character == '\r' {
            characters.next_if_eq(&'\n');
        }
        let finished = std::mem::take(&mut line);
        if finished.is_empty() {
            let (name, mut data) = (std::mem::take(&mut name), std::mem::take(&mut data));
            if data.pop().is_some() {
                events.push(Event { name, data });
            }
            continue;
        }
        let (field, value) = finished.split_once(':').unwrap_or((&finished, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data.extend([value, "\n"]),
            _ => {}
        }
    }
    assert!(line.is_empty() && data.is_empty(), "the stream ends between events");
    events
}

fn encode(encoding: SseEncoding, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"event: earlier\ndata:x\n\n".to_vec();
    let mut event = DataEvent::begin(&mut out, encoding, TextSplit::NONE);
    for piece in pieces {
        event.push(&mut out, piece);
    }
    event.finish_for_good(&mut out);
    out
}

/// The payload of the one data event that `pieces` become.
fn carried(encoding: SseEncoding, pieces: &[Vec<u8>]) -> String {
    let mut events = read_events(&encode(encoding, pieces));
    assert_eq!(events.len(), 2, "{events:?}");
    let event = events.pop().unwrap();
    assert_eq!(event.name, "data");
    event.data
}

fn line_ends_as_lf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

fn whole(encoding: SseEncoding, payload: &[u8]) -> String {
    let mut out = Vec::new();
    data_event(&mut out, encoding, payload);
    String::from_utf8(out).unwrap()
}

#[test]
fn each_line_of_text_is_a_data_line_without_a_space() {
    assert_eq!(whole(SseEncoding::Text, b"a\nb\r\nc\rd"), "event: data\ndata:a\ndata:b\ndata:c\ndata:d\n\n");
    assert_eq!(whole(SseEncoding::Text, b""), "event: data\ndata:\n\n");
    assert_eq!(whole(SseEncoding::Text, b"\n\r\r\n"), "event: data\ndata:\ndata:\ndata:\ndata:\n\n");
}

#[test]
fn a_line_that_begins_with_a_space_keeps_it() {
    assert_eq!(whole(SseEncoding::Text, b" a\n  b"), "event: data\ndata:  a\ndata:   b\n\n");
}

#[test]
fn payload_cannot_forge_an_event() {
    for line_end in ["\n", "\r", "\r\n"] {
        let forged = ["x", "", "event: control", "data: {\"streamClosed\":true}", "", "y"].join(line_end);
        assert_eq!(carried(SseEncoding::Text, &[forged.clone().into_bytes()]), line_ends_as_lf(&forged));
    }
}

#[test]
fn json_messages_become_one_array() {
    assert_eq!(whole(SseEncoding::Json, b"{\"a\":1},2,"), "event: data\ndata:[{\"a\":1},2]\n\n");
    assert_eq!(
        whole(SseEncoding::Json, b"{\n \"a\":1}\n,"),
        "event: data\ndata:[{\ndata:  \"a\":1}\ndata:]\n\n"
    );
    assert_eq!(whole(SseEncoding::Json, b""), "event: data\ndata:[]\n\n");
}

#[test]
fn other_bytes_become_one_line_of_base64() {
    assert_eq!(whole(SseEncoding::Base64, b"\x00\xff\n"), "event: data\ndata:AP8K\n\n");
    assert_eq!(whole(SseEncoding::Base64, b"ab"), "event: data\ndata:YWI=\n\n");
    assert_eq!(whole(SseEncoding::Base64, b""), "event: data\ndata:\n\n");
}

#[test]
fn control_events_tell_offset_cursor_and_state() {
    let next_offset = Offset::new(1, 2);
    let encoded = |cursor, up_to_date, closed| {
        let mut out = Vec::new();
        control_event(&mut out, &Control { next_offset, cursor, up_to_date, closed, incarnation: None });
        let events = read_events(&out);
        assert_eq!((events.len(), &*events[0].name), (1, "control"));
        serde_json::from_str::<Value>(&events[0].data).unwrap()
    };
    let offset = next_offset.to_string();
    assert_eq!(encoded(Some(7), false, false), json!({"streamNextOffset": offset, "streamCursor": "7"}));
    assert_eq!(
        encoded(Some(7), true, false),
        json!({"streamNextOffset": offset, "streamCursor": "7", "upToDate": true})
    );
    let closed = json!({"streamNextOffset": offset, "upToDate": true, "streamClosed": true});
    assert_eq!(encoded(Some(7), false, true), closed);
    assert_eq!(encoded(None, true, true), closed);
}

#[test]
fn a_control_event_can_tell_the_identity() {
    let control = Control {
        next_offset: Offset::ZERO,
        cursor: Some(7),
        up_to_date: true,
        closed: false,
        incarnation: None,
    };
    let mut out = Vec::new();
    identified_control_event(&mut out, &control, Incarnation(1));
    let events = read_events(&out);
    let expected = json!({
        OFFSET_FIELD: Offset::ZERO.to_string(),
        CURSOR_FIELD: "7",
        "upToDate": true,
        INCARNATION_FIELD: Incarnation(1).to_string(),
    });
    assert_eq!(serde_json::from_str::<Value>(&events[0].data).unwrap(), expected);
}

#[test]
fn a_heartbeat_is_no_event() {
    assert_eq!(read_events(&[HEARTBEAT, HEARTBEAT].concat()), []);
}

/// Bytes likely to hold line ends, spaces and broken or whole multi-byte characters, in pieces cut anywhere.
fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"\r\n a:".to_vec()),
        4 => prop::sample::select("é€😀\u{feff}".as_bytes().to_vec()),
        1 => any::<u8>(),
    ];
    let broken = prop::collection::vec(byte, 0..8);
    let characters = "[\r\n a:é€😀\u{feff}\u{fffd}]{0,4}".prop_map(String::into_bytes);
    prop::collection::vec(prop_oneof![broken, characters], 0..6)
}

proptest! {
    #[test]
    fn text_arrives_with_only_its_line_ends_changed(pieces in pieces()) {
        let payload = pieces.concat();
        prop_assert_eq!(carried(SseEncoding::Text, &pieces), line_ends_as_lf(&String::from_utf8_lossy(&payload)));
    }

    #[test]
    fn bytes_arrive_through_base64(pieces in pieces()) {
        let decoded = STANDARD.decode(carried(SseEncoding::Base64, &pieces)).unwrap();
        prop_assert_eq!(decoded, pieces.concat());
    }

    #[test]
    fn messages_arrive_as_an_array(texts in prop::collection::vec("\\PC{0,6}", 0..6), cut in any::<prop::sample::Index>()) {
        let values: Vec<Value> = texts.into_iter().map(|text| json!({"k": text, "n": [1]})).collect();
        let body = serde_json::to_string_pretty(&values).unwrap().replace('\n', "\r\n");
        let stored = json::flatten(body.as_bytes()).unwrap().bytes;
        let (first, second) = stored.split_at(cut.index(stored.len() + 1));
        let data = carried(SseEncoding::Json, &[first.to_vec(), second.to_vec()]);
        prop_assert_eq!(serde_json::from_str::<Value>(&data).unwrap(), Value::Array(values));
    }

    #[test]
    fn where_the_pieces_are_cut_makes_no_difference(pieces in pieces()) {
        for encoding in [SseEncoding::Text, SseEncoding::Base64, SseEncoding::Json] {
            prop_assert_eq!(encode(encoding, &pieces), encode(encoding, &[pieces.concat()]));
        }
    }

    /// What goes out piece by piece, each encoded into a buffer of its own, is what goes out whole.
    #[test]
    fn an_event_in_buffers_is_the_event_in_one(pieces in pieces()) {
        for encoding in [SseEncoding::Text, SseEncoding::Base64, SseEncoding::Json] {
            let mut buffers = vec![Vec::new()];
            let mut event = DataEvent::begin(&mut buffers[0], encoding, TextSplit::NONE);
            for piece in &pieces {
                let mut buffer = Vec::new();
                event.push(&mut buffer, piece);
                // A separator or a group of the piece before may come on top.
                prop_assert!(buffer.len() <= (piece.len() + 1) * DataEvent::BYTES_PER_BYTE_MAX);
                buffers.push(buffer);
            }
            let mut last = Vec::new();
            event.finish_for_good(&mut last);
            buffers.push(last);
            let mut whole = Vec::new();
            data_event(&mut whole, encoding, &pieces.concat());
            prop_assert_eq!(buffers.concat(), whole);
        }
    }

    /// A reader that goes away after any event and comes back at its end, knowing nothing but the bytes before, has
    /// the same text in the end as one that stayed, and as one that read everything at once.
    #[test]
    fn characters_split_between_events_arrive_once_and_whole(
        pieces in pieces(),
        stays in prop::collection::vec(any::<bool>(), 6),
    ) {
        let stored = pieces.concat();
        let (mut split, mut end, mut out) = (TextSplit::NONE, 0, Vec::new());
        for (piece, stays) in pieces.iter().zip(stays) {
            let before = out.len();
            let mut event = DataEvent::begin(&mut out, SseEncoding::Text, split);
            event.push(&mut out, piece);
            end += piece.len();
            let is_blank = event.is_blank();
            split = event.finish(&mut out);
            prop_assert_eq!(is_blank, &out[before..] == b"event: data\ndata:\n\n");
            prop_assert_eq!(split, TextSplit::at_end_of(&stored[..end]));
            prop_assert_eq!(split, TextSplit::unpacked(split.packed()));
            if !stays {
                split = TextSplit::at_end_of(&stored[end.saturating_sub(3)..end]);
            }
        }
        DataEvent::begin(&mut out, SseEncoding::Text, split).finish_for_good(&mut out);
        let text: String = read_events(&out).into_iter().map(|event| event.data).collect();
        prop_assert_eq!(text, line_ends_as_lf(&String::from_utf8_lossy(&stored)));
    }
}
