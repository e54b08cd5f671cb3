//! Fuzz bodies for `alluvium-jetstream-client`: what a server answers and sends.

use alluvium_jetstream_client::{Form, readers};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 3] =
    [("client_message", message), ("client_plan", plan), ("client_list", list)];

/// The input is a message of a live feed, in both forms.
pub fn message(input: &[u8]) {
    let Ok(line) = std::str::from_utf8(input) else { return };
    for form in [Form::V2, Form::Events] {
        if let Ok(Some(event)) = readers::message(line, form) {
            assert_eq!(event.line, line, "a line is handed on as it came");
            assert_eq!(readers::message(&event.line, form), Ok(Some(event)));
        }
    }
}

/// The input is the answer to a plan. What is taken of it is in order, and each range leads forward.
pub fn plan(input: &[u8]) {
    let Ok((_, entries)) = readers::plan(input) else { return };
    for pair in entries.windows(2) {
        assert!(pair[0].0 <= pair[1].0, "segments in order");
        assert!(
            pair[0].0 < pair[1].0 || (pair[0].1.is_some() && pair[1].1.is_some()),
            "a whole one comes once"
        );
    }
    for (_, ranges) in entries {
        let ranges = ranges.unwrap_or_default();
        assert!(ranges.iter().all(|(first, last)| first <= last), "ranges lead forward");
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges in order");
    }
}

/// The input is a list of segments.
pub fn list(input: &[u8]) {
    for time in [i64::MIN, 0, 1_783_000_000_000_000] {
        let first = readers::list(input, time);
        assert_eq!(first, readers::list(input, time));
    }
}
