//! Reading by append.

use super::{Harness, Writer, of_type, ok, path, pattern, some, text};
use crate::content_type::ContentType;
use crate::fork::ForkOrigin;
use crate::offset::Offset;
use crate::store::{PutOptions, StreamStore};

pub(super) async fn appends_are_numbered_from_one<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut writer = Writer::create(store, "s", text()).await;
    let end_of = async |index| ok(store.append_end_offset(&path("s"), index, None).await);
    assert_eq!(end_of(0).await, Some(Offset::ZERO));
    assert_eq!(end_of(1).await, None);
    let mut ends = Vec::new();
    for at in 0..40_usize {
        ends.push(writer.append(pattern(1 + at * at, at)).await);
    }
    for (at, end) in ends.iter().enumerate() {
        assert_eq!(end_of(at as u64 + 1).await, Some(*end));
    }
    assert_eq!(end_of(41).await, None);
    writer.close().await;
    assert_eq!(end_of(41).await, None, "closing is no append");
}

pub(super) async fn batches_are_whole_and_bounded<H: Harness>(harness: &H) {
    let store = harness.store();
    let limits = harness.limits();
    let mut writer = Writer::create(store, "s", ContentType::JSON).await;
    writer.append("[1,2]").await;
    writer.append("3").await;
    let long = format!("\"{}\"", "x".repeat(limits.append_bytes_max - 4));
    writer.append(&long).await;
    writer.append("4").await;
    let read =
        async |from, limit, max| ok(store.read_append_batches(&path("s"), from, limit, None, max).await);
    let batches = read(1, 2, None).await;
    assert_eq!(batches.len(), 2);
    assert_eq!((&batches[0].data[..], &batches[1].data[..]), (&b"1,2,"[..], &b"3,"[..]));
    assert_eq!((batches[0].append_index, batches[0].start_offset), (1, Offset::ZERO));
    assert_eq!(batches[0].end_offset, Offset::new(1, 4));
    assert_eq!(batches[1].start_offset, batches[0].end_offset);
    assert_eq!(read(0, 10, Some(5)).await, batches[..1], "0 is 1, and the second would not fit");
    assert_eq!(read(1, 10, Some(6)).await, batches);
    // The first is given however large it is; else nobody could go on.
    let large = read(3, 10, Some(1)).await;
    assert_eq!(large.len(), 1);
    assert_eq!(large[0].data.len(), long.len() + 1);
    assert_eq!(&read(4, 10, None).await[0].data[..], b"4,");
    assert_eq!(read(5, 10, None).await, []);
    assert_eq!(read(1, 0, None).await, []);
    ok(store.put(&path("empty"), of_type(text())).await);
    assert_eq!(ok(store.read_append_batches(&path("empty"), 1, 10, None, None).await), []);
}

pub(super) async fn batches_of_a_fork_begin_in_its_source<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    for piece in ["one", "two", "three"] {
        source.append(piece).await;
    }
    let cut = some(ok(store.append_end_offset(&source.path, 2, None).await));
    let origin = ForkOrigin { source: source.path.clone(), offset: Some(cut), sub_offset: 0 };
    let options = PutOptions { fork: Some(origin), ..PutOptions::default() };
    let (mut fork, _) = Writer::create_with(store, "fork", options).await;
    fork.append("drei").await;
    source.append("four").await;
    let batches = ok(store.read_append_batches(&fork.path, 1, 10, None, None).await);
    let data: Vec<&[u8]> = batches.iter().map(|batch| &batch.data[..]).collect();
    assert_eq!(data, [&b"one"[..], b"two", b"drei"]);
    for batch in &batches {
        let end = ok(store.append_end_offset(&fork.path, batch.append_index, None).await);
        assert_eq!(end, Some(batch.end_offset));
    }
    assert_eq!(ok(store.append_end_offset(&fork.path, 4, None).await), None);
}
