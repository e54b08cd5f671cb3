//! The parser against hand-written streams, and against a small encoder under arbitrary chunking.

use proptest::prelude::*;

use super::*;

fn parse(pieces: &[&[u8]]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut parser = SseParser::new(EVENT_BYTES_MAX);
    for piece in pieces {
        parser.push(piece, &mut |event| events.push(event)).unwrap();
    }
    events
}

fn event(name: &str, data: &str) -> Event {
    Event { name: name.into(), data: data.into() }
}

#[test]
fn data_lines_are_joined_and_one_space_is_dropped() {
    let events = parse(&[b"event: data\ndata:a\ndata:  b\ndata\n\n"]);
    assert_eq!(events, [event("data", "a\n b\n")]);
}

#[test]
fn comments_and_unknown_fields_are_passed_over() {
    let events = parse(&[b": heartbeat\n\nid: 7\nretry: 1\nevent:control\ndata:{}\n\n"]);
    assert_eq!(events, [event("control", "{}")]);
}

#[test]
fn an_event_without_data_is_none() {
    assert_eq!(parse(&[b"event: data\n\ndata: x\n\n"]), [event("", "x")]);
}

#[test]
fn an_unfinished_event_is_not_handed_over() {
    assert_eq!(parse(&[b"event: data\ndata: x\n"]), []);
}

#[test]
fn a_crlf_cut_in_two_is_one_line_end() {
    assert_eq!(parse(&[b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"]), [event("", "a\nb")]);
}

#[test]
fn a_byte_order_mark_is_dropped_at_the_start_only() {
    assert_eq!(parse(&[b"\xEF\xBB", b"\xBFdata: a\n\n"]), [event("", "a")]);
}

#[test]
fn a_larger_event_is_refused_however_it_is_cut() {
    let mut parser = SseParser::new(16);
    let mut ignore = |_| {};
    assert!(parser.push(b"data: 0123456789", &mut ignore).is_ok());
    assert_eq!(parser.push(b"0", &mut ignore), Err(EventTooLarge { max: 16 }));
    let mut parser = SseParser::new(16);
    let lines = (0..9).try_for_each(|_| parser.push(b"data:0\n", &mut ignore));
    assert_eq!(lines, Err(EventTooLarge { max: 16 }));
}

/// Events as a server writes them, with the line end under test.
fn encode(events: &[(String, Vec<String>)], end: &str) -> Vec<u8> {
    let mut text = String::new();
    for (name, lines) in events {
        text.extend(["event: ", name, end]);
        for line in lines {
            text.extend(["data: ", line, end]);
        }
        text.extend([":comment", end, end]);
    }
    text.into_bytes()
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(
        events in prop::collection::vec(("[a-z]{1,8}", prop::collection::vec("[^\r\n]{0,12}", 1..4)), 0..6),
        end in prop::sample::select(vec!["\n", "\r", "\r\n"]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes = encode(&events, end);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let expected: Vec<Event> =
            events.iter().map(|(name, lines)| event(name, &lines.join("\n"))).collect();
        prop_assert_eq!(parse(&pieces), expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_chunking_does_not_matter(
        bytes in prop::collection::vec(prop::sample::select(b"\r\n: adtevn\xEF\xBB\xBF".to_vec()), 0..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(bytes.len() + 1);
        prop_assert_eq!(parse(&[&bytes]), parse(&[&bytes[..cut], &bytes[cut..]]));
    }
}
