//! Takes the stream's bytes out of server-sent events (PROTOCOL §5.8) and finds the benchmark's messages in
//! them.
//!
//! A server may put several appends into one event, so deliveries are not counted by events: every message
//! has the same length and starts with a marker that names it.

/// The bytes of the marker at the start of each message: `#` and fifteen digits.
pub(crate) const MARKER_BYTES: usize = 16;

/// A message of `length` bytes that carries its number. Plain text without line breaks, so that it is one
/// `data` line however the server encodes it.
pub(crate) fn message(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = format!("#{number:015}").into_bytes();
    bytes.resize(length.max(MARKER_BYTES), b'.');
    bytes
}

/// Splits an event stream into lines and hands on the payload of `data` events.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    partial: Vec<u8>,
    in_data_event: bool,
}

impl EventParser {
    /// Takes the next bytes of the event stream.
    pub(crate) fn feed(&mut self, mut input: &[u8], payload: &mut impl FnMut(&[u8])) {
        while let Some(end) = input.iter().position(|&byte| byte == b'\n') {
            if self.partial.is_empty() {
                self.line(&input[..end], payload);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(&input[..end]);
                self.line(&whole, payload);
                // Keeps the allocation for the next line that arrives in two pieces.
                whole.clear();
                self.partial = whole;
            }
            input = &input[end + 1..];
        }
        self.partial.extend_from_slice(input);
    }

    fn line(&mut self, line: &[u8], payload: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.in_data_event = false;
        } else if let Some(name) = line.strip_prefix(b"event:") {
            self.in_data_event = name.trim_ascii() == b"data";
        } else if let Some(value) = line.strip_prefix(b"data:")
            && self.in_data_event
        {
            payload(value.strip_prefix(b" ").unwrap_or(value));
        }
    }
}

/// Cuts a stream's bytes into the messages made by [`message`].
#[derive(Debug)]
pub(crate) struct MessageCutter {
    length: usize,
    filled: usize,
    marker: [u8; MARKER_BYTES],
}

impl MessageCutter {
    /// For messages of `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self { length: length.max(MARKER_BYTES), filled: 0, marker: [0; MARKER_BYTES] }
    }

    /// Takes the next bytes; `whole` gets the number of each message completed by them, `None` for one whose
    /// marker is damaged.
    pub(crate) fn feed(&mut self, mut payload: &[u8], whole: &mut impl FnMut(Option<u64>)) {
        while !payload.is_empty() {
            let taken = payload.len().min(self.length - self.filled);
            if self.filled < MARKER_BYTES {
                let marked = taken.min(MARKER_BYTES - self.filled);
                self.marker[self.filled..self.filled + marked].copy_from_slice(&payload[..marked]);
            }
            self.filled += taken;
            payload = &payload[taken..];
            if self.filled == self.length {
                self.filled = 0;
                whole(number(&self.marker));
            }
        }
    }
}

fn number(marker: &[u8; MARKER_BYTES]) -> Option<u64> {
    let digits = marker.strip_prefix(b"#")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &[u8], step: usize, length: usize) -> Vec<Option<u64>> {
        let (mut parser, mut cutter, mut seen) =
            (EventParser::default(), MessageCutter::new(length), Vec::new());
        for piece in events.chunks(step) {
            parser.feed(piece, &mut |payload| cutter.feed(payload, &mut |number| seen.push(number)));
        }
        seen
    }

    fn event(payload: &[u8]) -> Vec<u8> {
        let mut bytes = b"event: data\ndata:".to_vec();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\n\nevent: control\ndata:{\"streamNextOffset\":\"1_2\"}\n\n");
        bytes
    }

    #[test]
    fn messages_are_counted_however_the_bytes_arrive() {
        let mut events = event(&message(7, 40));
        events.extend(event(&[message(8, 40), message(9, 40)].concat()));
        for step in 1..=events.len() {
            assert_eq!(numbers(&events, step, 40), [Some(7), Some(8), Some(9)], "step {step}");
        }
    }

    #[test]
    fn a_message_may_be_spread_over_events() {
        let whole = message(3, 64);
        let events = [event(&whole[..10]), event(&whole[10..])].concat();
        assert_eq!(numbers(&events, 5, 64), [Some(3)]);
    }

    #[test]
    fn comments_control_events_and_carriage_returns_are_no_payload() {
        let text =
            b": heartbeat\r\n\r\nevent: control\r\ndata: {}\r\n\r\nevent: data\r\ndata: #000000000000005\r\n\r\n";
        assert_eq!(numbers(text, 4, 16), [Some(5)]);
    }

    #[test]
    fn a_damaged_marker_is_reported() {
        assert_eq!(numbers(&event(&[b'x'; 20]), 9, 20), [None]);
    }
}
