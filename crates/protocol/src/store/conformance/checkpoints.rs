//! Fold checkpoints.

use super::{Harness, Writer, of_type, ok, refused, some, text};
use crate::error::{Conflict, StreamError};
use crate::offset::Offset;
use crate::store::{FoldCheckpoint, StreamStore};

async fn checkpoint<S: StreamStore>(writer: &Writer<'_, S>, offset: Offset, data: &str) -> FoldCheckpoint {
    let incarnation = some(ok(writer.store.head(&writer.path, None).await)).incarnation;
    FoldCheckpoint { offset, incarnation, format_version: 3, data: data.to_owned() }
}

pub(super) async fn a_checkpoint_round_trips_and_is_superseded<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let at = writer.path.clone();
    assert_eq!(ok(store.fold_checkpoint(&at, None).await), None);
    let first = writer.append("one").await;
    let small = checkpoint(&writer, first, "{\"n\":1}").await;
    ok(store.put_fold_checkpoint(&at, small.clone()).await);
    assert_eq!(ok(store.fold_checkpoint(&at, None).await), Some(small));
    let second = writer.append("two").await;
    // As long as it may be, of characters of every length.
    let mut long = "aé€\u{1f600}".repeat(harness.limits().checkpoint_bytes_max / 10);
    long.push_str(&"x".repeat(harness.limits().checkpoint_bytes_max - long.len()));
    for data in [&*long, "short again", ""] {
        let next = checkpoint(&writer, second, data).await;
        ok(store.put_fold_checkpoint(&at, next.clone()).await);
        assert_eq!(ok(store.fold_checkpoint(&at, None).await), Some(next));
    }
}

pub(super) async fn a_checkpoint_after_the_bound_is_withheld<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let first = writer.append("one").await;
    let second = writer.append("two").await;
    let kept = checkpoint(&writer, second, "2").await;
    ok(store.put_fold_checkpoint(&writer.path, kept.clone()).await);
    let at_or_before = async |bound| ok(store.fold_checkpoint(&writer.path, Some(bound)).await);
    assert_eq!(at_or_before(first).await, None);
    assert_eq!(at_or_before(second).await, Some(kept));
}

pub(super) async fn a_checkpoint_must_fit_the_stream<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let first = writer.append("one").await;
    let second = writer.append("two").await;
    let put = async |checkpoint| store.put_fold_checkpoint(&writer.path, checkpoint).await;
    for offset in [Offset::new(3, 6), Offset::new(2, 7), Offset::new(1, 4), Offset::new(2, 3)] {
        let error = refused(put(checkpoint(&writer, offset, "x").await).await);
        assert_eq!(error, StreamError::InvalidOffset { offset });
    }
    let max = harness.limits().checkpoint_bytes_max;
    let error = refused(put(checkpoint(&writer, first, &"x".repeat(max + 1)).await).await);
    let (max, received) = (max as u64, max as u64 + 1);
    assert_eq!(error, StreamError::PayloadTooLarge { max, received });
    let kept = checkpoint(&writer, second, "2").await;
    ok(put(kept.clone()).await);
    let error = refused(put(checkpoint(&writer, first, "1").await).await);
    assert_eq!(error, Conflict::CheckpointBehind.into());
    assert_eq!(ok(store.fold_checkpoint(&writer.path, None).await), Some(kept));
}

pub(super) async fn a_checkpoint_dies_with_its_stream<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let at = writer.path.clone();
    let end = writer.append("one").await;
    ok(store.put_fold_checkpoint(&at, checkpoint(&writer, end, "old").await).await);
    ok(store.delete(&at, None).await);
    assert_eq!(ok(store.fold_checkpoint(&at, None).await), None);
    let (mut writer, _) = Writer::create_with(store, "s", of_type(text())).await;
    writer.append("two").await;
    assert_eq!(ok(store.fold_checkpoint(&at, None).await), None);
}
