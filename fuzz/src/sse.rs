//! A fuzz body for what the command line reads of a server: server-sent events, as they come.

#[path = "../../crates/cli/src/stream/client/sse.rs"]
mod parser;

use parser::{Event, SseParser};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("cli_sse", events)];

/// Longest event that is taken here. Of a command it is far longer.
const EVENT_BYTES_MAX: usize = 4096;
const _: () = assert!(EVENT_BYTES_MAX < parser::EVENT_BYTES_MAX);

/// The input is a stream of events. However it comes, the same events are in it, none is longer than what came, and one that
/// is too long ends it at the same event.
pub fn events(input: &[u8]) {
    let at_once = read(input, input.len().max(1));
    for pace in [1, 2, 3, 7] {
        assert_eq!(read(input, pace), at_once, "{pace} bytes at a time");
    }
    for event in &at_once.0 {
        assert!(event.name.len() + event.data.len() <= input.len().min(EVENT_BYTES_MAX));
        assert!(!event.name.iter().chain(&event.data).any(|byte| *byte == b'\r'));
        assert!(!event.name.contains(&b'\n'));
    }
}

fn read(input: &[u8], pace: usize) -> (Vec<Event>, bool) {
    let (mut parser, mut found) = (SseParser::new(EVENT_BYTES_MAX), Vec::new());
    let fits = input.chunks(pace).all(|piece| parser.push(piece, &mut |event| found.push(event)).is_ok());
    (found, fits)
}
