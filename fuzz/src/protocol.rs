//! Fuzz bodies for `alluvium-protocol`: everything that reads text from the network.
//!
//! Each takes any bytes. Where a rule reads several headers, the input holds one per line, and a missing line is a
//! missing header. A body fails by panicking: in the code under test, or on a property that must always hold.

use std::collections::HashMap;

use alluvium_protocol::batch::split_frames;
use alluvium_protocol::limits::{
    BUCKETED_PATH_BYTES_MAX, INTEGER_MAX, PATH_BYTES_MAX, PRODUCER_ID_BYTES_MAX,
};
use alluvium_protocol::path_token::{decode_stream_path, encode_stream_path};
use alluvium_protocol::prefix::Prefix;
use alluvium_protocol::sse::{DataEvent, TextSplit};
use alluvium_protocol::{
    Attributes, ContentType, ForkOrigin, Lifetime, Offset, OffsetQuery, ProducerStamp, ProducerVerdict,
    SseEncoding, StreamPath, cursor, etag, json, producer,
};
use bytes::Bytes;
use serde_json::value::RawValue;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 13] = [
    ("protocol_offset", offset),
    ("protocol_path", path),
    ("protocol_content_type", content_type),
    ("protocol_json", json_messages),
    ("protocol_lifetime", lifetime),
    ("protocol_producer", producer_headers),
    ("protocol_fork", fork_headers),
    ("protocol_cursor", response_cursor),
    ("protocol_etag", entity_tags),
    ("protocol_sse", data_event),
    ("protocol_batch", batch),
    ("protocol_prefix", prefix),
    ("protocol_path_token", path_token),
];

/// The first `N` lines of the input, `None` past its end.
fn lines<const N: usize>(input: &[u8]) -> Option<[Option<&str>; N]> {
    let mut lines = str::from_utf8(input).ok()?.split('\n');
    Some(std::array::from_fn(|_| lines.next()))
}

/// The input is a path, and a word for one. A word names its path, or the beginning of a long one; a word that reads is the
/// word of what it reads as, unless that is a beginning only.
pub fn path_token(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let word = encode_stream_path(text);
    assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte)), "{word}");
    let told = decode_stream_path(&word).expect("a word that was made of a path");
    assert!(text.starts_with(&told));
    assert_eq!(told != text, word.contains('~'));
    if let Some(path) = decode_stream_path(text).filter(|_| !text.contains('~')) {
        assert_eq!(encode_stream_path(&path), text);
    }
}

/// Frames are the body again when they are put together, and no more than there may be.
pub fn batch(input: &[u8]) {
    let Ok(frames) = split_frames(Bytes::copy_from_slice(input), 8) else { return };
    assert!((1..=8).contains(&frames.len()));
    let mut joined = Vec::new();
    for frame in &frames {
        let length = u32::try_from(frame.len()).expect("a frame has the length that is written before it");
        joined.extend_from_slice(&length.to_be_bytes());
        joined.extend_from_slice(frame);
    }
    assert_eq!(joined, input);
}

/// The input is a prefix and a URL path. A prefix covers what is under its place, and nothing else; what the keys under it
/// are says the same.
pub fn prefix(input: &[u8]) {
    let Some([Some(prefix), Some(path)]) = lines(input) else { return };
    let Ok(prefix) = Prefix::parse(prefix) else { return };
    assert!(prefix.as_str().is_empty() || prefix.covers(prefix.as_str()));
    assert!(!prefix.as_str().split('/').any(|segment| matches!(segment, "." | "..")));
    let Some(path) = StreamPath::parse_url_path(path) else { return };
    let is_under = path.is_under(prefix.as_str());
    let key = path.as_str();
    let spans = StreamPath::keys_under(prefix.as_str());
    let is_in = |from: &str, until: Option<&str>| key >= from && until.is_none_or(|until| key < until);
    assert_eq!(spans.iter().any(|span| is_in(&span.from, span.until.as_deref())), is_under);
    let decoded = alluvium_protocol::path::percent_decode(&path.url_path()).expect("a path of ours");
    assert_eq!(prefix.covers(&decoded), is_under);
}

/// An accepted token is the only spelling of its offset.
pub fn offset(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(OffsetQuery::At(offset)) = OffsetQuery::parse(Some(text)) {
        assert_eq!(offset.to_string(), text);
        assert!(offset.append_index <= Offset::MAX_COMPONENT && offset.position <= Offset::MAX_COMPONENT);
    }
}

/// An accepted path has no dangerous segment, and its URL form leads back to it, in either namespace.
pub fn path(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let (bucket, stream_id) = text.split_once('/').unwrap_or(("abcd", text));
    if let Some(path) = StreamPath::parse_url_path(&format!("/ds/{bucket}/{stream_id}")) {
        let (bucket, stream_id) = path.bucket().zip(path.stream_id()).expect("a path in a bucket");
        assert!(
            (4..=64).contains(&bucket.len()) && bucket.len() + 1 + stream_id.len() <= BUCKETED_PATH_BYTES_MAX
        );
        assert!(!stream_id.contains(['/', '\0']) && !stream_id.contains("..") && stream_id != "streams");
        assert_eq!(StreamPath::parse_url_path(&path.url_path()), Some(path.clone()));
        assert_eq!(StreamPath::from_key(path.as_str()), Some(path));
    }
    let Ok(path) = StreamPath::parse_encoded(text) else { return };
    assert!(path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control));
    assert!(path.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
    let encoded = path.encoded();
    assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(StreamPath::parse_encoded(&encoded), Ok(path));
}

/// An accepted type is what it says, however it is spelled.
pub fn content_type(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(content_type) = ContentType::parse(text) else { return };
    assert_eq!(ContentType::parse(content_type.as_str()), Ok(content_type.clone()));
    let shouted = ContentType::parse(&text.to_ascii_uppercase()).expect("case does not matter");
    assert!(shouted.same_media_type(&content_type));
    assert_eq!(shouted.sse_encoding(), content_type.sse_encoding());
}

/// Accepted messages are valid JSON, and a read of them flattens to themselves. Accepted attributes are an object.
pub fn json_messages(input: &[u8]) {
    if let Ok(attributes) = Attributes::parse(input) {
        let text = attributes.as_json();
        assert!(
            serde_json::from_str::<HashMap<String, &RawValue>>(text)
                .is_ok_and(|object| object.is_empty() == attributes.is_empty())
        );
        assert_eq!(Attributes::parse(text.as_bytes()), Ok(attributes));
    }
    let valid = serde_json::from_slice::<&RawValue>(input).is_ok();
    let Ok(messages) = json::flatten(input) else { return };
    assert!(valid);
    let mut rest = &messages.bytes[..];
    for &length in &messages.lengths {
        let (message, tail) = rest.split_at(length as usize);
        let text = message.strip_suffix(b",").expect("every message ends with its separator");
        assert!(serde_json::from_slice::<&RawValue>(text).is_ok());
        rest = tail;
    }
    assert!(rest.is_empty());
    let read = [b"[", messages.bytes.strip_suffix(b",").unwrap_or_default(), b"]"].concat();
    assert_eq!(json::flatten(&read), Ok(messages));
}

/// The header written for a lifetime is read as the same lifetime.
pub fn lifetime(input: &[u8]) {
    let Some([ttl, expires_at]) = lines(input) else { return };
    for (ttl, expires_at) in [(ttl, expires_at), (None, expires_at)] {
        let Ok(lifetime) = Lifetime::parse(ttl, expires_at) else { continue };
        let again = match (lifetime, lifetime.header()) {
            (Lifetime::Forever, None) => Lifetime::parse(None, None),
            (Lifetime::Ttl { .. }, Some((_, value))) => Lifetime::parse(Some(&value), None),
            (Lifetime::Until { .. }, Some((_, value))) => Lifetime::parse(None, Some(&value)),
            unexpected => panic!("{unexpected:?}"),
        };
        assert_eq!(again, Ok(lifetime));
        let _ = lifetime.deadline_ms(u64::MAX);
    }
}

/// An accepted stamp keeps to its bounds, and repeating it is a duplicate.
pub fn producer_headers(input: &[u8]) {
    let Some([id, epoch, seq]) = lines(input) else { return };
    let Ok(Some(stamp)) = ProducerStamp::parse(id, epoch, seq) else { return };
    assert!((1..=PRODUCER_ID_BYTES_MAX).contains(&stamp.id.as_str().len()));
    assert!(stamp.epoch <= INTEGER_MAX && stamp.seq <= INTEGER_MAX);
    let repeated = producer::evaluate(Some(stamp.state()), stamp.epoch, stamp.seq);
    assert_eq!(repeated, Ok(ProducerVerdict::Duplicate(stamp.state())));
}

/// Fork headers survive being written out again.
pub fn fork_headers(input: &[u8]) {
    let Some([source, offset, sub_offset]) = lines(input) else { return };
    let source = source.and_then(|source| StreamPath::parse_encoded(source).ok());
    let Ok(Some(fork)) = ForkOrigin::parse(source, offset, sub_offset) else { return };
    let offset = fork.offset.map(|offset| offset.to_string());
    let sub_offset = fork.sub_offset.to_string();
    let again = ForkOrigin::parse(Some(fork.source.clone()), offset.as_deref(), Some(&sub_offset));
    assert_eq!(again, Ok(Some(fork)));
}

/// A cursor never goes back, whatever the client sends; the first line is the time.
pub fn response_cursor(input: &[u8]) {
    let Some([now_ms, client]) = lines(input) else { return };
    let now_ms = now_ms.and_then(|now_ms| now_ms.parse().ok()).unwrap_or_default();
    let current = cursor::response_cursor(now_ms, None, || cursor::JITTER_S_MAX).expect("no client's cursor");
    let Ok(answer) = cursor::response_cursor(now_ms, client, || cursor::JITTER_S_MAX) else { return };
    assert!(answer >= current);
    let next = cursor::response_cursor(now_ms, Some(&answer.to_string()), || cursor::JITTER_S_MIN);
    assert_eq!(next.is_ok_and(|next| next > answer), answer < u64::MAX);
}

/// A tag is found alone and at the end of any well-formed list; the first line is the header, the second the tag.
pub fn entity_tags(input: &[u8]) {
    let Some([Some(header), Some(tag)]) = lines(input) else { return };
    let _ = etag::if_none_match(header, tag);
    if tag.contains('"') {
        return;
    }
    let tag = format!("\"{tag}\"");
    assert!(etag::if_none_match(&tag, &tag));
    assert!(etag::if_none_match(&format!("W/{tag}"), &tag));
    let listed = format!("\"{}\", {tag}", header.replace('"', ""));
    assert!(etag::if_none_match(&listed, &tag));
}

/// Payload stays inside its event. The first byte chooses the encoding, the second where the payload is cut.
pub fn data_event(input: &[u8]) {
    let [encoding, cut, payload @ ..] = input else { return };
    let encoding = [SseEncoding::Text, SseEncoding::Json, SseEncoding::Base64][usize::from(encoding % 3)];
    if encoding == SseEncoding::Json && str::from_utf8(payload).is_err() {
        return;
    }
    let (first, second) = payload.split_at(usize::from(*cut).min(payload.len()));
    let mut out = Vec::new();
    let mut event = DataEvent::begin(&mut out, encoding, TextSplit::NONE);
    event.push(&mut out, first);
    event.push(&mut out, second);
    event.finish_for_good(&mut out);
    let text = str::from_utf8(&out).expect("an event stream is UTF-8");
    let body = text.strip_prefix("event: data\n").and_then(|text| text.strip_suffix("\n\n"));
    let mut lines = body.expect("one event").split('\n');
    assert!(lines.all(|line| line.starts_with("data:") && !line.contains('\r')));
}
