//! Forks: a beginning by reference, then a stream like any other.

use super::{Harness, Writer, from, ok, path, pattern, read_all, refused, some, text};
use crate::content_type::ContentType;
use crate::error::{Conflict, StreamError};
use crate::fork::ForkOrigin;
use crate::offset::Offset;
use crate::store::{GetOptions, PutOptions, StreamStore};

fn fork(source: &str, offset: Option<Offset>, sub_offset: u64) -> PutOptions {
    let origin = ForkOrigin { source: path(source), offset, sub_offset };
    PutOptions { fork: Some(origin), ..PutOptions::default() }
}

pub(super) async fn a_fork_begins_as_its_source<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    let first = source.append("one ").await;
    let second = source.append("two ").await;
    source.append("three").await;
    source.close().await;
    let (mut middle, created) = Writer::create_with(store, "middle", fork("source", Some(second), 0)).await;
    assert_eq!((created.next_offset, &created.content_type, created.closed), (second, &text(), false));
    assert_eq!(middle.all().await, b"one two ");
    let end = middle.append("zwei").await;
    assert_eq!(end, Offset::new(3, 12));
    assert_eq!(middle.all().await, b"one two zwei");
    assert_eq!(source.all().await, b"one two three");
    let got = ok(store.get(&middle.path, from(first)).await);
    assert_eq!(got.messages.iter().map(|message| message.offset).collect::<Vec<_>>(), [second, end]);
    // Without an offset, at the source's tail; and the same request again finds the same stream.
    let (whole, created) = Writer::create_with(store, "whole", fork("source", None, 0)).await;
    assert_eq!(whole.all().await, b"one two three");
    let again = ok(store.put(&whole.path, fork("source", None, 0)).await);
    assert_eq!((again.created, again.incarnation), (false, created.incarnation));
    let error = refused(store.put(&whole.path, fork("source", Some(first), 0)).await);
    assert!(matches!(error, StreamError::Conflict(Conflict::Exists(_))), "{error:?}");
}

pub(super) async fn a_fork_stands_on_its_own<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    source.append("shared ").await;
    let (mut fork, created) = Writer::create_with(store, "fork", fork("source", None, 0)).await;
    let source_head = some(ok(store.head(&source.path, None).await));
    assert_ne!(created.incarnation, source_head.incarnation);
    source.append("left").await;
    fork.append("right").await;
    source.append("!").await;
    assert_eq!(source.all().await, b"shared left!");
    assert_eq!(fork.all().await, b"shared right");
    fork.close().await;
    assert!(!some(ok(store.head(&source.path, None).await)).closed);
}

pub(super) async fn a_fork_of_a_fork_reads_through<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut written = Vec::new();
    let mut last = Writer::create(store, "f0", text()).await;
    for level in 0..6 {
        if level > 0 {
            let name = format!("f{level}");
            last = Writer::create_with(store, &name, fork(&format!("f{}", level - 1), None, 0)).await.0;
        }
        let piece = pattern(harness.limits().read_bytes_max / 3 + level, level);
        last.append(&piece).await;
        written.extend_from_slice(&piece);
    }
    assert_eq!(last.all().await, written);
    // A fork that parts before its source's own beginning.
    let early = some(ok(store.append_end_offset(&last.path, 2, None).await));
    let (fork, _) = Writer::create_with(store, "early", fork("f5", Some(early), 0)).await;
    let length = usize::try_from(early.position).unwrap_or_default();
    assert_eq!(fork.all().await, &written[..length]);
}

pub(super) async fn a_fork_may_part_within_an_append<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    let first = source.append("0123").await;
    source.append("456789").await;
    let (mut cut, created) = Writer::create_with(store, "cut", fork("source", Some(first), 3)).await;
    assert_eq!(created.next_offset.position, 7);
    assert_eq!(cut.all().await, b"0123456");
    let end = cut.append("x").await;
    assert_eq!(end.position, 8);
    assert_eq!(cut.all().await, b"0123456x");
    let error = refused(store.put(&path("far"), fork("source", Some(first), 7)).await);
    assert!(matches!(error, StreamError::InvalidOffset { .. }), "{error:?}");
    let (fork, _) = Writer::create_with(store, "fork", fork("cut", Some(end), 0)).await;
    assert_eq!(fork.all().await, b"0123456x");
}

pub(super) async fn a_json_fork_may_part_between_messages<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", ContentType::JSON).await;
    let first = source.append("[1,\"a,b\"]").await;
    source.append("[{\"k\":[3]},4]").await;
    source.append("5").await;
    for (sub_offset, expected) in
        [(0, "1,\"a,b\","), (1, "1,\"a,b\",{\"k\":[3]},"), (3, "1,\"a,b\",{\"k\":[3]},4,5,")]
    {
        let name = format!("fork{sub_offset}");
        let (mut cut, _) = Writer::create_with(store, &name, fork("source", Some(first), sub_offset)).await;
        assert_eq!(cut.all().await, expected.as_bytes());
        cut.append("[6,7]").await;
        assert_eq!(cut.all().await, format!("{expected}6,7,").as_bytes());
    }
    let error = refused(store.put(&path("far"), fork("source", Some(first), 4)).await);
    assert!(matches!(error, StreamError::InvalidOffset { .. }), "{error:?}");
}

pub(super) async fn a_source_lives_as_long_as_its_forks<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    source.append("kept").await;
    let (first, _) = Writer::create_with(store, "first", fork("source", None, 0)).await;
    let (second, _) = Writer::create_with(store, "second", fork("first", None, 0)).await;
    ok(store.delete(&first.path, None).await);
    ok(store.delete(&source.path, None).await);
    for hidden in [&source.path, &first.path] {
        let gone = StreamError::Gone { path: hidden.clone() };
        assert_eq!(refused(store.get(hidden, GetOptions::default()).await), gone);
        assert_eq!(refused(store.head(hidden, None).await), gone);
        assert_eq!(refused(store.delete(hidden, None).await), gone);
        assert!(!ok(store.has(hidden).await));
        assert_eq!(refused(store.put(hidden, PutOptions::default()).await), Conflict::PathHeld.into());
    }
    let error = refused(store.put(&path("third"), fork("source", None, 0)).await);
    assert_eq!(error, Conflict::SourceDeleted.into());
    assert_eq!(second.all().await, b"kept");
    // With the last fork go all that were kept for it.
    ok(store.delete(&second.path, None).await);
    for free in [&source.path, &first.path] {
        assert_eq!(ok(store.head(free, None).await), None);
        assert!(ok(store.put(free, PutOptions::default()).await).created);
    }
}

pub(super) async fn forks_are_refused_where_they_cannot_be<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    let end = source.append("0123").await;
    let at = path("fork");
    let missing = StreamError::NotFound { path: path("nowhere") };
    assert_eq!(refused(store.put(&at, fork("nowhere", None, 0)).await), missing);
    let other = PutOptions { content_type: Some(ContentType::JSON), ..fork("source", None, 0) };
    let error = refused(store.put(&at, other).await);
    assert!(matches!(error, StreamError::ContentTypeMismatch { .. }), "{error:?}");
    let beyond = Offset { position: end.position + 1, ..end };
    for offset in [beyond, Offset { append_index: end.append_index + 1, ..end }] {
        let error = refused(store.put(&at, fork("source", Some(offset), 0)).await);
        assert!(matches!(error, StreamError::InvalidOffset { .. }), "{error:?}");
    }
    let error = refused(store.put(&at, fork("source", None, 1)).await);
    assert!(matches!(error, StreamError::InvalidOffset { .. }), "{error:?}");
    assert!(!ok(store.has(&at).await));
}

pub(super) async fn a_long_prefix_can_be_forked<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    let max = harness.limits().append_bytes_max;
    let mut written = Vec::new();
    for at in 0..3 {
        let piece = pattern(max, at);
        source.append(&piece).await;
        written.extend_from_slice(&piece);
    }
    // Three times what one append may have: a copy would not fit in one write.
    let (mut fork, _) = Writer::create_with(store, "fork", fork("source", None, 0)).await;
    fork.append("end").await;
    written.extend_from_slice(b"end");
    assert_eq!(read_all(store, &fork.path).await, written);
}
