//! Windows: bounded, resumable, and honest about the end.

use super::{Harness, Writer, bytes, from, ok, pattern, read_all, refused, some, text};
use crate::content_type::ContentType;
use crate::error::StreamError;
use crate::etag::{EntityTag, parse_etag};
use crate::json::MessageEnds;
use crate::offset::{Offset, OffsetQuery};
use crate::store::{GetOptions, StreamStore};

pub(super) async fn windows_are_bounded_and_resume<H: Harness>(harness: &H) {
    let store = harness.store();
    let window = harness.limits().read_bytes_max;
    let mut writer = Writer::create(store, "s", text()).await;
    let written = pattern(3 * window + window / 2, 1);
    writer.append(&written[..window / 2]).await;
    writer.append(&written[window / 2..]).await;
    let first = ok(store.get(&writer.path, GetOptions::default()).await);
    assert!(!first.up_to_date && bytes(&first).len() <= window);
    assert_eq!(writer.all().await, written);
    let middle = ok(store.get(&writer.path, from(first.next_offset)).await);
    assert_eq!(bytes(&middle)[..10], written[bytes(&first).len()..][..10]);
}

pub(super) async fn a_json_append_larger_than_a_window_is_read_whole<H: Harness>(harness: &H) {
    let store = harness.store();
    let window = harness.limits().read_bytes_max;
    let mut writer = Writer::create(store, "s", ContentType::JSON).await;
    let long = format!("\"{}, ]\"", "x".repeat(2 * window));
    let many = format!("[{}]", vec!["{\"n\":[1,2]}"; window / 4].join(","));
    writer.append(&long).await;
    writer.append("7").await;
    writer.append(&many).await;
    writer.append("\"last\"").await;
    let first = ok(store.get(&writer.path, GetOptions::default()).await);
    assert!(bytes(&first).starts_with(long.as_bytes()), "a message is never cut");
    let mut offset = Offset::ZERO;
    let mut messages = 0;
    loop {
        let got = ok(store.get(&writer.path, from(offset)).await);
        let mut ends = MessageEnds::default();
        let read = bytes(&got);
        let found: Vec<bool> = read.iter().map(|&byte| ends.push(byte)).collect();
        assert!(*some(found.last()), "a window ends between two messages");
        messages += found.iter().filter(|end| **end).count();
        offset = got.next_offset;
        if got.up_to_date {
            break;
        }
    }
    assert_eq!(messages, 1 + 1 + window / 4 + 1);
    let stored = format!("{long},7,{},\"last\",", &many[1..many.len() - 1]);
    assert_eq!(read_all(store, &writer.path).await, stored.as_bytes());
}

pub(super) async fn closed_is_told_only_at_the_end<H: Harness>(harness: &H) {
    let store = harness.store();
    let window = harness.limits().read_bytes_max;
    let mut writer = Writer::create(store, "s", text()).await;
    writer.append(pattern(2 * window, 1)).await;
    let end = writer.close().await;
    let first = ok(store.get(&writer.path, GetOptions::default()).await);
    assert!(!first.closed && !first.up_to_date);
    let last = ok(store.get(&writer.path, from(first.next_offset)).await);
    assert!(last.up_to_date && last.closed);
    assert_eq!(last.next_offset, end);
    let past = ok(store.get(&writer.path, from(end)).await);
    assert!(past.closed && past.messages.is_empty());
}

pub(super) async fn an_offset_of_no_stream_is_refused<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let end = writer.append("0123456789").await;
    let beyond = [
        Offset { position: end.position + 1, ..end },
        Offset { append_index: end.append_index + 1, ..end },
        Offset { append_index: Offset::MAX_COMPONENT, position: Offset::MAX_COMPONENT },
    ];
    for offset in beyond {
        let error = refused(store.get(&writer.path, from(offset)).await);
        assert_eq!(error, StreamError::InvalidOffset { offset });
    }
}

pub(super) async fn an_append_larger_than_a_chunk_reads_back<H: Harness>(harness: &H) {
    let store = harness.store();
    let written = pattern(harness.limits().append_bytes_max, 3);
    let mut writer = Writer::create(store, "s", text()).await;
    let end = writer.append(&written).await;
    assert_eq!(end, Offset::new(1, written.len() as u64));
    assert_eq!(writer.all().await, written);
}

pub(super) async fn many_appends_read_back_in_order<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let mut written = Vec::new();
    for at in 0..100 {
        let piece = pattern(1 + at * 7 % 60, at);
        let end = writer.append(&piece).await;
        written.extend_from_slice(&piece);
        assert_eq!(end, Offset::new(at as u64 + 1, written.len() as u64));
    }
    assert_eq!(writer.all().await, written);
    let got = ok(store.get(&writer.path, GetOptions::default()).await);
    for message in &got.messages[..got.messages.len() - 1] {
        let one = some(ok(store.append_end_offset(&writer.path, message.offset.append_index, None).await));
        assert_eq!(one, message.offset, "a message is an append");
    }
}

pub(super) async fn entity_tags_tell_incarnation_range_and_end<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let end = writer.append("data").await;
    let open = ok(store.get(&writer.path, GetOptions::default()).await);
    let tag = EntityTag { incarnation: open.incarnation, start: Offset::ZERO, end, closed: false };
    assert_eq!(parse_etag(&open.etag), Some(tag));
    writer.close().await;
    let closed = ok(store.get(&writer.path, GetOptions::default()).await);
    assert_eq!(parse_etag(&closed.etag), Some(EntityTag { closed: true, ..tag }));
    assert_eq!(some(ok(store.head(&writer.path, None).await)).etag, closed.etag);
    ok(store.delete(&writer.path, None).await);
    let mut writer = Writer::create(store, "s", text()).await;
    writer.append("else").await;
    writer.close().await;
    let other = ok(store.get(&writer.path, GetOptions::default()).await);
    assert_ne!(other.etag, closed.etag, "another stream of the same length");
}

pub(super) async fn now_is_the_tail<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let end = writer.append("data").await;
    let now = GetOptions { offset: OffsetQuery::Now, ..GetOptions::default() };
    let got = ok(store.get(&writer.path, now).await);
    assert!(got.messages.is_empty() && got.up_to_date);
    assert_eq!(got.next_offset, end);
}

pub(super) async fn an_append_over_the_limit_is_refused<H: Harness>(harness: &H) {
    let store = harness.store();
    let max = harness.limits().append_bytes_max;
    let mut writer = Writer::create(store, "s", ContentType::JSON).await;
    // The stored form is one byte longer than the body.
    let body = format!("\"{}\"", "x".repeat(max - 2));
    let error = refused(writer.try_append(&body).await);
    let (max, received) = (max as u64, body.len() as u64 + 1);
    assert_eq!(error, StreamError::PayloadTooLarge { max, received });
    assert_eq!(writer.all().await, b"");
}
