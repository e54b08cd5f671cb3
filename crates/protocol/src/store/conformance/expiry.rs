//! Lifetimes.

use super::{Harness, Writer, of_type, ok, path, refused, some, text};
use crate::error::StreamError;
use crate::lifetime::Lifetime;
use crate::store::{GetOptions, PutOptions, StreamStore};

pub(super) async fn a_sliding_lifetime_begins_anew_when_read_or_written<H: Harness>(harness: &H) {
    let store = harness.store();
    let options = PutOptions { lifetime: Lifetime::Ttl { seconds: 100 }, ..of_type(text()) };
    let (mut writer, _) = Writer::create_with(store, "s", options).await;
    harness.advance_ms(90_000);
    writer.append("x").await;
    harness.advance_ms(90_000);
    ok(store.get(&writer.path, GetOptions::default()).await);
    harness.advance_ms(90_000);
    // Neither of these is a read that counts.
    assert!(some(ok(store.head(&writer.path, None).await)).lifetime.is_sliding());
    ok(store.get(&writer.path, GetOptions { renew_ttl: false, ..GetOptions::default() }).await);
    harness.advance_ms(10_000);
    let missing = StreamError::NotFound { path: writer.path.clone() };
    assert_eq!(refused(store.get(&writer.path, GetOptions::default()).await), missing);
    assert_eq!(ok(store.head(&writer.path, None).await), None);
    assert_eq!(refused(writer.try_append("y").await), missing);
}

pub(super) async fn a_fixed_lifetime_ends_whatever_happens<H: Harness>(harness: &H) {
    let store = harness.store();
    // The suite does not know what time it is in the store: a sliding lifetime of the other kind tells.
    let (mut writer, _) = Writer::create_with(store, "s", of_type(text())).await;
    let created_ms = some(ok(store.storage_state(&writer.path).await)).created_ms;
    writer.append("x").await;
    let lifetime = Lifetime::Until { unix_ms: created_ms + 100_000 };
    let options = PutOptions { lifetime, ..of_type(text()) };
    let (mut writer, _) = Writer::create_with(store, "fixed", options).await;
    harness.advance_ms(99_999);
    writer.append("x").await;
    harness.advance_ms(1);
    assert_eq!(refused(writer.try_append("y").await), StreamError::NotFound { path: path("fixed") });
    assert!(!ok(store.has(&path("fixed")).await));
    assert!(ok(store.has(&path("s")).await));
}

pub(super) async fn an_expired_path_is_free_for_another_stream<H: Harness>(harness: &H) {
    let store = harness.store();
    let options = PutOptions { lifetime: Lifetime::Ttl { seconds: 1 }, ..of_type(text()) };
    let (mut writer, first) = Writer::create_with(store, "s", options.clone()).await;
    writer.append("old").await;
    harness.advance_ms(1000);
    let (writer, second) = Writer::create_with(store, "s", options).await;
    assert_ne!(second.incarnation, first.incarnation);
    assert_eq!(writer.all().await, b"");
}
