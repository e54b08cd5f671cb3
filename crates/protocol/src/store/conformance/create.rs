//! Creating, and what a path without a stream answers.

use bytes::Bytes;

use super::{Harness, Writer, from, id, of_type, ok, path, refused, some, text};
use crate::content_type::ContentType;
use crate::create::ConfigConflict;
use crate::error::{Conflict, StreamError};
use crate::lifetime::Lifetime;
use crate::offset::Offset;
use crate::store::{AppendOptions, GetOptions, PutOptions, StreamStore, WaitOptions};

pub(super) async fn a_stream_is_created_once<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("a/b");
    let created = ok(store.put(&at, of_type(text())).await);
    assert!(created.created && !created.closed);
    assert_eq!((created.next_offset, &created.content_type), (Offset::ZERO, &text()));
    let again = ok(store.put(&at, of_type(text())).await);
    assert!(!again.created);
    assert_eq!(again.incarnation, created.incarnation);
    let head = some(ok(store.head(&at, None).await));
    assert_eq!((head.incarnation, head.next_offset), (created.incarnation, Offset::ZERO));
    let other = ok(store.put(&path("a/c"), PutOptions::default()).await);
    assert_eq!(other.content_type, ContentType::DEFAULT);
    assert_ne!(other.incarnation, created.incarnation);
}

pub(super) async fn a_repeated_create_confirms_or_conflicts<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let lifetime = Lifetime::Ttl { seconds: 1000 };
    let asked = PutOptions { lifetime, ..of_type(text()) };
    ok(store.put(&at, asked.clone()).await);
    let other_parameters = ContentType::parse("TEXT/plain; charset=utf-8").ok();
    let same =
        PutOptions { content_type: other_parameters, data: Bytes::from_static(b"ignored"), ..asked.clone() };
    let again = ok(store.put(&at, same).await);
    assert_eq!((again.created, again.next_offset), (false, Offset::ZERO));
    let error = refused(store.put(&at, PutOptions { lifetime, ..of_type(ContentType::JSON) }).await);
    assert!(matches!(error, StreamError::ContentTypeMismatch { .. }), "{error:?}");
    let error = refused(store.put(&at, of_type(text())).await);
    assert_eq!(error, Conflict::Exists(ConfigConflict::Lifetime).into());
    let error = refused(store.put(&at, PutOptions { closed: true, ..asked }).await);
    assert_eq!(error, Conflict::Exists(ConfigConflict::Closed).into());
}

pub(super) async fn a_stream_may_be_created_closed<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let options = PutOptions { closed: true, ..of_type(text()) };
    assert!(ok(store.put(&at, options).await).closed);
    let got = ok(store.get(&at, GetOptions::default()).await);
    assert!(got.closed && got.up_to_date && got.messages.is_empty());
    assert!(some(ok(store.head(&at, None).await)).closed);
}

pub(super) async fn a_missing_stream_is_missing_everywhere<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("nowhere");
    let missing = StreamError::NotFound { path: at.clone() };
    assert_eq!(refused(store.get(&at, GetOptions::default()).await), missing);
    let append = store.append(&at, Bytes::from_static(b"x"), AppendOptions::default()).await;
    assert_eq!(refused(append), missing);
    assert_eq!(refused(store.acquire_producer(&at, id("p"), None).await), missing);
    assert_eq!(refused(store.read_append_batches(&at, 1, 10, None, None).await), missing);
    let wait = store.wait_for_data(&at, Offset::ZERO, std::time::Duration::ZERO, WaitOptions::default());
    assert_eq!(refused(wait.await), missing);
    assert_eq!(ok(store.head(&at, None).await), None);
    assert_eq!(ok(store.storage_state(&at).await), None);
    assert_eq!(ok(store.append_end_offset(&at, 1, None).await), None);
    assert_eq!(ok(store.fold_checkpoint(&at, None).await), None);
    assert!(!ok(store.has(&at).await));
    ok(store.delete(&at, None).await);
}

pub(super) async fn a_deleted_path_is_free_again<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    writer.append("old").await;
    let at = writer.path.clone();
    ok(store.delete(&at, None).await);
    assert!(!ok(store.has(&at).await));
    let missing = StreamError::NotFound { path: at.clone() };
    assert_eq!(refused(store.get(&at, from(Offset::ZERO)).await), missing);
    let mut writer = Writer::create(store, "s", ContentType::JSON).await;
    writer.append("1").await;
    assert_eq!(writer.all().await, b"1,");
}
