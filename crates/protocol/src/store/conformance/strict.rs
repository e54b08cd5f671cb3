//! Stores that take data only from a producer that has acquired the stream.

use bytes::Bytes;

use super::{Harness, id, of_type, ok, path, refused, text};
use crate::error::{Conflict, ProducerFault};
use crate::producer::ProducerStamp;
use crate::store::{AppendOptions, GetOptions, PutOptions, StreamStore};

pub(super) async fn data_needs_a_claim<H: Harness>(harness: &H) {
    let store = harness.store();
    assert!(store.producer_claims_required());
    let at = path("s");
    ok(store.put(&at, of_type(text())).await);
    let append = async |options| store.append(&at, Bytes::from_static(b"x"), options).await;
    assert_eq!(refused(append(AppendOptions::default()).await), ProducerFault::ClaimRequired.into());
    let producer = Some(ProducerStamp { id: id("p"), epoch: 1, seq: 0 });
    let named = AppendOptions { producer, ..AppendOptions::default() };
    assert_eq!(refused(append(named.clone()).await), Conflict::NotOwner.into());
    // Closing ends the transcript, so it is the owner's as well.
    let close = AppendOptions { close: true, ..AppendOptions::default() };
    assert_eq!(refused(store.append(&at, Bytes::new(), close).await), ProducerFault::ClaimRequired.into());
    ok(store.get(&at, GetOptions::default()).await);
    ok(store.acquire_producer(&at, id("p"), None).await);
    assert!(ok(append(named).await).appended);
    ok(store.delete(&at, None).await);
}

pub(super) async fn a_stream_is_created_empty<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let with_data = PutOptions { data: Bytes::from_static(b"x"), ..of_type(text()) };
    assert_eq!(refused(store.put(&at, with_data).await), ProducerFault::ClaimRequired.into());
    assert!(!ok(store.has(&at).await));
    assert!(ok(store.put(&at, of_type(text())).await).created);
}
