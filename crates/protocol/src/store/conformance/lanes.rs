//! Streams that anybody may write: producers' lanes, writer sequences, content types.

use bytes::Bytes;

use super::{Harness, Writer, id, ok, path, read_all, refused, text};
use crate::content_type::ContentType;
use crate::error::{Conflict, ProducerFault, StreamError};
use crate::json::InvalidJson;
use crate::limits::RECEIPTS_PER_PRODUCER;
use crate::producer::{ProducerStamp, ProducerState};
use crate::store::{AppendOptions, Repeats, StreamStore};

fn by(name: &str, epoch: u64, seq: u64) -> AppendOptions {
    let producer = Some(ProducerStamp { id: id(name), epoch, seq });
    AppendOptions { producer, ..AppendOptions::default() }
}

pub(super) async fn lanes_judge_each_producer_by_itself<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let append = async |data: &'static str, options| store.append(&at, Bytes::from(data), options).await;
    let first = ok(append("a", by("a", 5, 0)).await);
    assert_eq!(first.producer, Some(ProducerState { epoch: 5, seq: 0 }));
    ok(append("b", by("b", 0, 0)).await);
    ok(append("A", by("a", 5, 1)).await);
    let again = ok(append("a", by("a", 5, 0)).await);
    assert!(!again.appended);
    assert_eq!(
        (again.next_offset, again.producer),
        (first.next_offset, Some(ProducerState { epoch: 5, seq: 1 }))
    );
    let gap = |expected, received| StreamError::ProducerSequenceConflict { expected, received };
    assert_eq!(refused(append("x", by("a", 5, 3)).await), gap(2, 3));
    assert_eq!(refused(append("x", by("c", 0, 1)).await), gap(0, 1));
    let fenced = StreamError::ProducerFenced { current_epoch: 5, received_epoch: 4 };
    assert_eq!(refused(append("x", by("a", 4, 0)).await), fenced);
    assert_eq!(refused(append("x", by("a", 6, 1)).await), ProducerFault::EpochMustStartAtZero.into());
    ok(append("!", by("a", 6, 0)).await);
    ok(append("?", AppendOptions::default()).await);
    assert_eq!(read_all(store, &at).await, b"abA!?");
}

pub(super) async fn a_repetition_may_be_recognised_by_its_stamp_alone<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let stamped = |seq| AppendOptions { repeats: Repeats::Recognised, ..by("p", 0, seq) };
    ok(store.append(&at, Bytes::from_static(b"one"), stamped(0)).await);
    let again = ok(store.append(&at, Bytes::from_static(b"another"), stamped(0)).await);
    assert_eq!((again.appended, again.producer), (false, Some(ProducerState { epoch: 0, seq: 0 })));
    let close = AppendOptions { close: true, ..stamped(1) };
    ok(store.append(&at, Bytes::from_static(b"!"), close.clone()).await);
    let again = ok(store.append(&at, Bytes::from_static(b"?"), close).await);
    assert!(again.closed && !again.appended);
    assert_eq!(read_all(store, &at).await, b"one!");
}

pub(super) async fn writer_sequences_must_grow<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let seq = |text: &str| AppendOptions { seq: Some(text.to_owned()), ..AppendOptions::default() };
    ok(store.append(&at, Bytes::from_static(b"1"), seq("a")).await);
    ok(store.append(&at, Bytes::from_static(b"2"), seq("b")).await);
    ok(store.append(&at, Bytes::from_static(b"3"), AppendOptions::default()).await);
    for late in ["b", "a", "Z"] {
        let error = refused(store.append(&at, Bytes::from_static(b"x"), seq(late)).await);
        let (last, received) = ("b".to_owned(), late.to_owned());
        assert_eq!(error, StreamError::SequenceConflict { last, received });
    }
    ok(store.append(&at, Bytes::from_static(b"4"), seq("ba")).await);
    assert_eq!(read_all(store, &at).await, b"1234");
}

pub(super) async fn a_closed_stream_takes_nothing<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    writer.append("x").await;
    let end = writer.close().await;
    let at = path("s");
    let closed = StreamError::Closed { path: at.clone(), next_offset: end };
    let plain = store.append(&at, Bytes::from_static(b"y"), AppendOptions::default()).await;
    assert_eq!(refused(plain), closed);
    assert_eq!(refused(store.append(&at, Bytes::from_static(b"y"), by("p", 0, 0)).await), closed);
    let close = AppendOptions { close: true, ..AppendOptions::default() };
    let again = ok(store.append(&at, Bytes::new(), close.clone()).await);
    assert!(again.closed && !again.appended);
    assert_eq!(refused(store.append(&at, Bytes::from_static(b"y"), close).await), closed);
}

pub(super) async fn content_types_must_agree<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let of = |content_type: &str| AppendOptions {
        content_type: ContentType::parse(content_type).ok(),
        ..AppendOptions::default()
    };
    ok(store.append(&at, Bytes::from_static(b"a"), of("Text/Plain; charset=utf-8")).await);
    let error = refused(store.append(&at, Bytes::from_static(b"b"), of("application/json")).await);
    assert!(matches!(error, StreamError::ContentTypeMismatch { .. }), "{error:?}");
    let close = AppendOptions { close: true, ..of("application/json") };
    assert!(ok(store.append(&at, Bytes::new(), close).await).closed, "without data no type matters");
}

pub(super) async fn json_is_flattened_and_checked<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", ContentType::JSON).await;
    writer.append("[ {\"a\": 1.0} , [2] ]").await;
    assert_eq!(refused(writer.try_append("[]").await), InvalidJson::EmptyArray.into());
    let error = refused(writer.try_append("{").await);
    assert!(matches!(error, StreamError::InvalidJson(InvalidJson::Syntax { .. })), "{error:?}");
    assert_eq!(writer.all().await, b"{\"a\": 1.0},[2],");
    let got = ok(store.get(&writer.path, crate::store::GetOptions::default()).await);
    let response = store.format_response(&got.content_type, &got.messages);
    assert_eq!(response, &b"[{\"a\": 1.0},[2]]"[..]);
}

pub(super) async fn the_last_appends_of_each_producer_can_be_repeated<H: Harness>(harness: &H) {
    const OTHERS: usize = 10;
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let kept = RECEIPTS_PER_PRODUCER as u64;
    let append = async |name: &str, seq| {
        store.append(&at, Bytes::from(format!("{name}{seq};")), by(name, 0, seq)).await
    };
    let mut ends = Vec::new();
    for seq in 0..kept {
        ends.push(ok(append("slow", seq).await).next_offset);
    }
    // Far more than one producer's receipts, by others.
    for seq in 0..=kept {
        let others: Vec<String> = (0..OTHERS).map(|other| format!("other{other}-")).collect();
        for answer in super::join_all(others.iter().map(|other| append(other, seq)).collect()).await {
            assert!(ok(answer).appended);
        }
    }
    for (seq, end) in (0..).zip(&ends) {
        let again = ok(append("slow", seq).await);
        assert_eq!((again.appended, again.next_offset), (false, *end), "{seq}");
    }
    assert_eq!(refused(append("other3-", 0).await), Conflict::ReceiptGone.into());
    assert!(!ok(append("other3-", 1).await).appended);
    // One of its own takes the place of its first.
    assert!(ok(append("slow", kept).await).appended);
    assert_eq!(refused(append("slow", 0).await), Conflict::ReceiptGone.into());
    // A new epoch begins without receipts, and what was before it is fenced.
    assert!(ok(store.append(&at, Bytes::from("new"), by("slow", 1, 0)).await).appended);
    assert!(!ok(store.append(&at, Bytes::from("new"), by("slow", 1, 0)).await).appended);
    let fenced = StreamError::ProducerFenced { current_epoch: 1, received_epoch: 0 };
    assert_eq!(refused(append("slow", kept).await), fenced);
}
