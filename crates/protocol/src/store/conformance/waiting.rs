//! Waiting at the tail.

use std::time::Duration;

use super::{Harness, Writer, meanwhile, of_type, ok, pattern, text};
use crate::error::{Conflict, StreamError};
use crate::etag::Incarnation;
use crate::offset::Offset;
use crate::store::{StoreError, StreamStore, WaitOptions, WaitResult};

/// Longer than anything here takes: a wait that lasts this long has missed its wake-up.
const LONG: Duration = Duration::from_mins(1);

async fn wait<S: StreamStore>(writer: &Writer<'_, S>, offset: Offset) -> WaitResult {
    ok(writer.store.wait_for_data(&writer.path, offset, LONG, WaitOptions::default()).await)
}

fn data(result: &WaitResult) -> Vec<u8> {
    result.messages.iter().flat_map(|message| message.data.iter().copied()).collect()
}

pub(super) async fn what_is_there_is_given_at_once<H: Harness>(harness: &H) {
    let window = harness.limits().read_bytes_max;
    let mut writer = Writer::create(harness.store(), "s", text()).await;
    writer.append(pattern(window + 10, 0)).await;
    let first = wait(&writer, Offset::ZERO).await;
    assert!(!first.timed_out && !first.up_to_date && !first.closed);
    assert_eq!(data(&first).len(), window);
    writer.close().await;
    let next = first.next_offset.unwrap_or(Offset::ZERO);
    let last = wait(&writer, next).await;
    assert!(last.up_to_date && last.closed);
    let end = last.next_offset.unwrap_or(Offset::ZERO);
    let past = wait(&writer, end).await;
    assert!(past.closed && past.messages.is_empty() && !past.timed_out);
}

pub(super) async fn a_wait_ends_with_an_append<H: Harness>(harness: &H) {
    let writer = Writer::create(harness.store(), "s", text()).await;
    let mut other = Writer::of(harness.store(), writer.path.clone()).await;
    let (waited, _) = meanwhile(wait(&writer, Offset::ZERO), other.append("news")).await;
    assert_eq!(data(&waited), b"news");
    assert!(!waited.timed_out && waited.up_to_date && !waited.closed);
    assert_eq!(waited.next_offset, Some(Offset::new(1, 4)));
}

pub(super) async fn a_wait_ends_with_a_close<H: Harness>(harness: &H) {
    let writer = Writer::create(harness.store(), "s", text()).await;
    let mut other = Writer::of(harness.store(), writer.path.clone()).await;
    let (waited, _) = meanwhile(wait(&writer, Offset::ZERO), other.close()).await;
    assert!(waited.closed && !waited.timed_out && waited.messages.is_empty());
}

/// A wait for one incarnation, which ends by an answer or, if it began too late, by a refusal.
async fn wait_for_same<S: StreamStore>(
    writer: &Writer<'_, S>,
    incarnation: Incarnation,
) -> Option<WaitResult> {
    let options = WaitOptions { expected_incarnation: Some(incarnation), ..WaitOptions::default() };
    match writer.store.wait_for_data(&writer.path, Offset::ZERO, LONG, options).await {
        Ok(waited) => Some(waited),
        Err(StoreError::Refused(
            StreamError::NotFound { .. } | StreamError::Conflict(Conflict::Incarnation),
        )) => None,
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn a_wait_ends_with_a_deletion<H: Harness>(harness: &H) {
    let (writer, created) = Writer::create_with(harness.store(), "s", of_type(text())).await;
    let wait = wait_for_same(&writer, created.incarnation);
    let (waited, deleted) = meanwhile(wait, harness.store().delete(&writer.path, None)).await;
    ok(deleted);
    if let Some(waited) = waited {
        assert!(!waited.timed_out && waited.messages.is_empty());
        assert_eq!(waited.incarnation, None);
    }
}

pub(super) async fn a_wait_is_told_of_a_new_incarnation<H: Harness>(harness: &H) {
    let store = harness.store();
    let (writer, created) = Writer::create_with(store, "s", of_type(text())).await;
    let replace = async {
        ok(store.delete(&writer.path, None).await);
        ok(store.put(&writer.path, of_type(text())).await).incarnation
    };
    let (waited, new) = meanwhile(wait_for_same(&writer, created.incarnation), replace).await;
    if let Some(waited) = waited {
        assert!(!waited.timed_out && waited.messages.is_empty());
        // It may have looked between the two.
        assert!(waited.incarnation.is_none_or(|seen| seen == new));
    }
}

pub(super) async fn a_wait_ends_when_the_time_is_up<H: Harness>(harness: &H) {
    let writer = Writer::create(harness.store(), "s", text()).await;
    let short = Duration::from_millis(20);
    let waited =
        ok(writer.store.wait_for_data(&writer.path, Offset::ZERO, short, WaitOptions::default()).await);
    assert!(waited.timed_out && waited.messages.is_empty() && !waited.closed);
    assert_eq!(waited.next_offset, Some(Offset::ZERO));
}
