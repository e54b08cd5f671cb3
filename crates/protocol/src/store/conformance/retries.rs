//! Repetitions: recognised, compared, answered with the first answer.

use bytes::Bytes;

use super::{Harness, Writer, id, join_all, of_type, ok, path, pattern, read_all, refused, stamp, text};
use crate::content_type::ContentType;
use crate::error::Conflict;
use crate::limits::RECEIPTS_PER_PRODUCER;
use crate::offset::Offset;
use crate::store::{AppendOptions, ProducerClaim, Repeats, RetryMetadata, StreamStore};

async fn claimed<H: Harness>(harness: &H, content_type: ContentType) -> ProducerClaim {
    ok(harness.store().put(&path("s"), of_type(content_type)).await);
    ok(harness.store().acquire_producer(&path("s"), id("p"), None).await)
}

pub(super) async fn a_repetition_gets_the_first_answer<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, ContentType::JSON).await;
    let body = Bytes::from_static(b"[1, 2]");
    let first = ok(store.append(&at, body.clone(), stamp(&claim, 0)).await);
    ok(store.append(&at, Bytes::from_static(b"3"), stamp(&claim, 1)).await);
    // Spelled otherwise, but stored alike.
    for repeated in [body, Bytes::from_static(b" [1,2] ")] {
        let again = ok(store.append(&at, repeated, stamp(&claim, 0)).await);
        assert!(first.appended && !again.appended);
        assert_eq!(again.next_offset, first.next_offset);
    }
    assert_eq!(read_all(store, &at).await, b"1,2,3,");
}

pub(super) async fn a_repetition_to_a_claimed_stream_is_always_compared<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let stamped = || AppendOptions { repeats: Repeats::Recognised, ..stamp(&claim, 0) };
    ok(store.append(&at, Bytes::from_static(b"one"), stamped()).await);
    let other = store.append(&at, Bytes::from_static(b"another"), stamped()).await;
    assert_eq!(refused(other), Conflict::RetryDiffers.into());
}

pub(super) async fn a_repetition_that_differs_is_refused<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    ok(store.append(&at, Bytes::from_static(b"same"), stamp(&claim, 0)).await);
    for other in ["sane", "sam", "samex", ""] {
        let options = AppendOptions { close: other.is_empty(), ..stamp(&claim, 0) };
        let answer = store.append(&at, Bytes::from(other), options).await;
        assert_eq!(refused(answer), Conflict::RetryDiffers.into(), "`{other}`");
    }
    // And nothing has moved on.
    ok(store.append(&at, Bytes::from_static(b"!"), stamp(&claim, 1)).await);
    assert_eq!(read_all(store, &at).await, b"same!");
}

pub(super) async fn a_large_repetition_is_compared_to_the_last_byte<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let mut body = pattern(harness.limits().append_bytes_max, 5);
    let first = ok(store.append(&at, Bytes::from(body.clone()), stamp(&claim, 0)).await);
    let again = ok(store.append(&at, Bytes::from(body.clone()), stamp(&claim, 0)).await);
    assert_eq!(again.next_offset, first.next_offset);
    if let Some(last) = body.last_mut() {
        *last ^= 1;
    }
    let other = store.append(&at, Bytes::from(body), stamp(&claim, 0)).await;
    assert_eq!(refused(other), Conflict::RetryDiffers.into());
}

pub(super) async fn a_closing_repetition_is_compared<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let close = AppendOptions { close: true, ..stamp(&claim, 0) };
    let first = ok(store.append(&at, Bytes::from_static(b"end"), close.clone()).await);
    assert!(first.closed);
    let again = ok(store.append(&at, Bytes::from_static(b"end"), close.clone()).await);
    assert!(again.closed && !again.appended);
    assert_eq!(again.next_offset, first.next_offset);
    for (body, options) in [("eND", close.clone()), ("end", stamp(&claim, 0)), ("", close)] {
        let other = store.append(&at, Bytes::from(body), options).await;
        assert_eq!(refused(other), Conflict::RetryDiffers.into(), "`{body}`");
    }
}

pub(super) async fn a_repetition_is_recognised_after_the_stream_was_closed<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let first = ok(store.append(&at, Bytes::from_static(b"x"), stamp(&claim, 0)).await);
    ok(store.append(&at, Bytes::new(), AppendOptions { close: true, ..stamp(&claim, 1) }).await);
    let again = ok(store.append(&at, Bytes::from_static(b"x"), stamp(&claim, 0)).await);
    assert!(again.closed && !again.appended);
    assert_eq!(again.next_offset, first.next_offset);
}

pub(super) async fn retry_metadata_must_be_the_same<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let with =
        |text: &str| AppendOptions { retry_metadata: RetryMetadata::parse(text).ok(), ..stamp(&claim, 0) };
    let body = Bytes::from_static(b"x");
    ok(store.append(&at, body.clone(), with("attempt-1")).await);
    assert!(!ok(store.append(&at, body.clone(), with("attempt-1")).await).appended);
    for other in [with("attempt-2"), stamp(&claim, 0)] {
        assert_eq!(refused(store.append(&at, body.clone(), other).await), Conflict::RetryDiffers.into());
    }
}

pub(super) async fn a_thousand_repetitions_leave_one_copy<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    writer.append("before ").await;
    let at = writer.path.clone();
    let claim = ok(store.acquire_producer(&at, id("p"), None).await);
    let retries =
        (0..1000).map(|_| store.append(&at, Bytes::from_static(b"once"), stamp(&claim, 0))).collect();
    let answers: Vec<_> = join_all(retries).await.into_iter().map(ok).collect();
    assert_eq!(answers.iter().filter(|answer| answer.appended).count(), 1);
    assert!(answers.iter().all(|answer| answer.next_offset == Offset::new(2, 11)));
    assert_eq!(read_all(store, &at).await, b"before once");
}

pub(super) async fn the_last_appends_of_a_claim_can_be_repeated<H: Harness>(harness: &H) {
    let (store, at) = (harness.store(), path("s"));
    let claim = claimed(harness, text()).await;
    let kept = RECEIPTS_PER_PRODUCER as u64;
    let append = async |seq: u64| store.append(&at, Bytes::from(format!("{seq};")), stamp(&claim, seq)).await;
    let mut ends = Vec::new();
    for seq in 0..kept + 3 {
        ends.push(ok(append(seq).await).next_offset);
    }
    for (seq, end) in (0..).zip(&ends).skip(3) {
        let again = ok(append(seq).await);
        assert_eq!((again.appended, again.next_offset), (false, *end), "{seq}");
    }
    for seq in 0..3 {
        assert_eq!(refused(append(seq).await), Conflict::ReceiptGone.into(), "{seq}");
    }
    assert!(ok(append(kept + 3).await).appended);
    let written = (0..kept + 4).map(|seq| format!("{seq};")).collect::<Vec<_>>().concat();
    assert_eq!(read_all(store, &at).await, written.as_bytes());
}
