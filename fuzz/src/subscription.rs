//! Fuzz bodies for documents about subscriptions: what makes one, what workers send, names and patterns.

use alluvium_protocol::subscription::answer::says_done;
use alluvium_protocol::subscription::config::parse_streams;
use alluvium_protocol::subscription::request::parse_claim;
use alluvium_protocol::subscription::{Config, Pattern, PatternSet, WakeRequest, name_of, parse_name};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 3] =
    [("subscription_document", document), ("subscription_pattern", pattern), ("subscription_answer", answer)];

/// The input is what a webhook answers. Only an object of JSON with `done` says anything.
pub fn answer(input: &[u8]) {
    if says_done(input) {
        let answer: serde_json::Value = serde_json::from_slice(input).expect("it was read");
        assert_eq!(answer["done"], true);
        assert!(answer.is_object());
    }
}

/// The input is a document. A configuration that is accepted is accepted again after being written, and is the same.
pub fn document(input: &[u8]) {
    if let Ok(config) = Config::parse(input) {
        let webhook = config.webhook_url.as_ref().map(|url| serde_json::json!({ "url": url }));
        let written = serde_json::json!({
            "type": config.kind, "pattern": config.pattern, "streams": config.streams, "webhook": webhook,
            "wake_stream": config.wake_stream, "lease_ttl_ms": config.lease_ttl_ms, "description": config.description,
        });
        let again =
            Config::parse(written.to_string().as_bytes()).expect("what was accepted is accepted again");
        assert_eq!(again, config);
        assert_eq!(again.hash(), config.hash());
        assert!(config.streams.is_sorted() && config.streams.iter().all(|name| parse_name(name).is_ok()));
    }
    if let Ok(names) = parse_streams(input) {
        assert!(!names.is_empty());
    }
    if let Ok(request) = WakeRequest::parse(input) {
        for ack in request.acks {
            assert!(ack.stream.is_none_or(|stream| name_of(&stream).is_some()));
        }
    }
    drop(parse_claim(input));
}

/// The input is patterns, one a line, and a name after the last line's end: a set finds those that each finds for itself.
pub fn pattern(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let (patterns, name) = text.rsplit_once('\n').unwrap_or(("", text));
    let patterns: Vec<Pattern> =
        patterns.lines().take(20).filter_map(|line| Pattern::parse(line).ok()).collect();
    let mut set = PatternSet::default();
    for (number, pattern) in (0..).zip(&patterns) {
        assert_eq!(Pattern::parse(pattern.as_str()).as_ref(), Ok(pattern));
        set.insert(pattern, number);
    }
    let mut found = set.matches(name);
    found.sort_unstable();
    let expected: Vec<u32> =
        (0..).zip(&patterns).filter(|(_, pattern)| pattern.matches(name)).map(|(number, _)| number).collect();
    assert_eq!(found, expected);
    for (number, pattern) in (0..).zip(&patterns) {
        set.remove(pattern, number);
    }
    assert!(set.matches(name).is_empty());
}
