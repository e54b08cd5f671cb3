//! Incarnations: one life of a path is never taken for another.

use std::time::Duration;

use bytes::Bytes;

use super::{Harness, Writer, id, of_type, ok, path, refused, some, stamp, text};
use crate::error::Conflict;
use crate::etag::Incarnation;
use crate::offset::Offset;
use crate::store::{AppendOptions, FoldCheckpoint, GetOptions, PutOptions, StreamStore, WaitOptions};

pub(super) async fn every_operation_refuses_another_incarnation<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let right = ok(store.put(&at, of_type(text())).await).incarnation;
    let claim = ok(store.acquire_producer(&at, id("p"), Some(right)).await);
    ok(store.append(&at, Bytes::from_static(b"x"), stamp(&claim, 0)).await);
    let wrong = Some(Incarnation(right.0 ^ 1));
    let refusal = || Conflict::Incarnation.into();
    let put = PutOptions { expected_incarnation: wrong, ..of_type(text()) };
    assert_eq!(refused(store.put(&at, put.clone()).await), refusal());
    assert_eq!(refused(store.put(&path("free"), put).await), refusal(), "a create expects what is not there");
    let append = AppendOptions { expected_incarnation: wrong, ..stamp(&claim, 1) };
    assert_eq!(refused(store.append(&at, Bytes::from_static(b"y"), append).await), refusal());
    let get = GetOptions { expected_incarnation: wrong, ..GetOptions::default() };
    assert_eq!(refused(store.get(&at, get).await), refusal());
    let wait = WaitOptions { expected_incarnation: wrong, ..WaitOptions::default() };
    assert_eq!(refused(store.wait_for_data(&at, Offset::ZERO, Duration::ZERO, wait).await), refusal());
    assert_eq!(refused(store.head(&at, wrong).await), refusal());
    assert_eq!(refused(store.acquire_producer(&at, id("p"), wrong).await), refusal());
    assert_eq!(refused(store.append_end_offset(&at, 1, wrong).await), refusal());
    assert_eq!(refused(store.read_append_batches(&at, 1, 1, wrong, None).await), refusal());
    let checkpoint = FoldCheckpoint {
        offset: Offset::ZERO,
        incarnation: Incarnation(right.0 ^ 1),
        format_version: 1,
        data: String::new(),
    };
    assert_eq!(refused(store.put_fold_checkpoint(&at, checkpoint).await), refusal());
    assert_eq!(refused(store.delete(&at, wrong).await), refusal());
    assert!(ok(store.has(&at).await), "nothing of it happened");
    ok(store.delete(&at, Some(right)).await);
    assert_eq!(refused(store.delete(&at, Some(right)).await), refusal(), "what was meant is gone");
}

pub(super) async fn a_recreated_stream_shows_nothing_of_the_old_one<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut old = Writer::create(store, "s", text()).await;
    old.append("old and longer").await;
    let at = old.path.clone();
    let before = some(ok(store.head(&at, None).await));
    ok(store.delete(&at, None).await);
    let (mut new, created) = Writer::create_with(store, "s", of_type(text())).await;
    assert_ne!(created.incarnation, before.incarnation);
    assert_eq!(created.next_offset, Offset::ZERO);
    assert_eq!(new.all().await, b"");
    new.append("new").await;
    assert_eq!(new.all().await, b"new");
    let stale = GetOptions { expected_incarnation: Some(before.incarnation), ..GetOptions::default() };
    assert_eq!(refused(store.get(&at, stale).await), Conflict::Incarnation.into());
}
