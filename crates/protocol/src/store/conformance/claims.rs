//! Claims: one writer, fenced.

use bytes::Bytes;

use super::{Harness, id, of_type, ok, path, read_all, refused, some, stamp, text};
use crate::claim::Claim;
use crate::error::{Conflict, ProducerFault, StreamError};
use crate::offset::Offset;
use crate::store::{AppendOptions, StreamStore};

pub(super) async fn acquiring_fences_whoever_was<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let created = ok(store.put(&at, of_type(text())).await);
    let first = ok(store.acquire_producer(&at, id("a"), None).await);
    assert_eq!((first.next_seq, first.incarnation), (0, created.incarnation));
    assert_eq!(first.next_offset, Offset::ZERO);
    ok(store.append(&at, Bytes::from_static(b"1"), stamp(&first, 0)).await);
    // The same producer again: a new epoch all the same.
    let second = ok(store.acquire_producer(&at, id("a"), None).await);
    assert!(second.epoch > first.epoch);
    let fenced = StreamError::ProducerFenced { current_epoch: second.epoch, received_epoch: first.epoch };
    let stale = store.append(&at, Bytes::from_static(b"2"), stamp(&first, 1)).await;
    assert_eq!(refused(stale), fenced);
    // Even the exact repetition of what the fenced producer wrote.
    let repeated = store.append(&at, Bytes::from_static(b"1"), stamp(&first, 0)).await;
    assert_eq!(refused(repeated), fenced);
    ok(store.append(&at, Bytes::from_static(b"3"), stamp(&second, 0)).await);
    assert_eq!(read_all(store, &at).await, b"13");
}

pub(super) async fn a_claimed_stream_takes_only_its_producer<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    ok(store.put(&at, of_type(text())).await);
    let claim = ok(store.acquire_producer(&at, id("a"), None).await);
    let data = Bytes::from_static(b"x");
    let plain = store.append(&at, data.clone(), AppendOptions::default()).await;
    assert_eq!(refused(plain), ProducerFault::ClaimRequired.into());
    let mut other = claim.clone();
    other.id = id("b");
    assert_eq!(refused(store.append(&at, data.clone(), stamp(&other, 0)).await), Conflict::NotOwner.into());
    let gap = StreamError::ProducerSequenceConflict { expected: 0, received: 2 };
    assert_eq!(refused(store.append(&at, data.clone(), stamp(&claim, 2)).await), gap);
    let mut ahead = claim.clone();
    ahead.epoch += 1;
    let error = refused(store.append(&at, data.clone(), stamp(&ahead, 0)).await);
    assert!(matches!(error, StreamError::ProducerFenced { .. }), "{error:?}");
    let appended = ok(store.append(&at, data, stamp(&claim, 0)).await);
    assert!(appended.appended);
    assert_eq!(some(appended.producer).epoch, claim.epoch);
    let state = some(ok(store.storage_state(&at).await));
    assert_eq!(state.claim, Some(Claim { id: id("a"), epoch: claim.epoch, next_seq: 1 }));
    assert_eq!(state.next_offset, Offset::new(1, 1));
}

pub(super) async fn a_takeover_finds_the_tail_and_goes_on<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    ok(store.put(&at, of_type(text())).await);
    let old = ok(store.acquire_producer(&at, id("a"), None).await);
    let end = ok(store.append(&at, Bytes::from_static(b"left behind"), stamp(&old, 0)).await).next_offset;
    let new = ok(store.acquire_producer(&at, id("b"), Some(old.incarnation)).await);
    assert_eq!(new.next_offset, end);
    assert_eq!(read_all(store, &at).await, b"left behind");
    ok(store.append(&at, Bytes::from_static(b", taken up"), stamp(&new, 0)).await);
    assert_eq!(read_all(store, &at).await, b"left behind, taken up");
    let late = store.append(&at, Bytes::from_static(b"late"), stamp(&old, 1)).await;
    assert_eq!(refused(late), Conflict::NotOwner.into());
}

pub(super) async fn a_claim_ends_with_its_incarnation<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    ok(store.put(&at, of_type(text())).await);
    let old = ok(store.acquire_producer(&at, id("a"), None).await);
    ok(store.delete(&at, None).await);
    ok(store.put(&at, of_type(text())).await);
    assert_eq!(some(ok(store.storage_state(&at).await)).claim, None);
    let new = ok(store.acquire_producer(&at, id("a"), None).await);
    assert_ne!(new.incarnation, old.incarnation);
    let options = AppendOptions { expected_incarnation: Some(old.incarnation), ..stamp(&old, 0) };
    let stale = store.append(&at, Bytes::from_static(b"x"), options).await;
    assert_eq!(refused(stale), Conflict::Incarnation.into());
}
