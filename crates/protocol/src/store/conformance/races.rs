//! Many at once.

use bytes::Bytes;

use super::{Harness, Writer, id, join_all, of_type, ok, path, read_all, refused, stamp, text};
use crate::content_type::ContentType;
use crate::error::StreamError;
use crate::fork::ForkOrigin;
use crate::store::{AppendOptions, PutOptions, StoreError, StreamStore};

pub(super) async fn racing_creates_make_one_stream<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    let creates = (0..50).map(|_| store.put(&at, of_type(text()))).collect();
    let answers: Vec<_> = join_all(creates).await.into_iter().map(ok).collect();
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert!(answers.iter().all(|answer| answer.incarnation == answers[0].incarnation));
    let others = (0..10)
        .map(|turn| store.put(&at, of_type(if turn % 2 == 0 { text() } else { ContentType::JSON })))
        .collect();
    for (turn, answer) in join_all(others).await.into_iter().enumerate() {
        assert_eq!(answer.is_ok(), turn % 2 == 0);
    }
}

pub(super) async fn racing_appends_all_find_a_place<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = Writer::create(store, "s", text()).await.path;
    let appends = (0..200_u8)
        .map(|turn| store.append(&at, Bytes::from(vec![turn; 3]), AppendOptions::default()))
        .collect();
    let mut ends: Vec<_> = join_all(appends).await.into_iter().map(|answer| ok(answer).next_offset).collect();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), 200);
    let mut stored = read_all(store, &at).await;
    assert!(stored.chunks_exact(3).all(|piece| piece.iter().all(|&byte| byte == piece[0])), "none is torn");
    stored.sort_unstable();
    assert_eq!(stored, (0..200_u8).flat_map(|turn| [turn; 3]).collect::<Vec<_>>());
}

pub(super) async fn racing_takeovers_leave_one_owner<H: Harness>(harness: &H) {
    let store = harness.store();
    let at = path("s");
    ok(store.put(&at, of_type(text())).await);
    let takeovers = (0..20)
        .map(|turn| {
            let at = &at;
            async move {
                let name = format!("producer {turn}");
                let claim = ok(store.acquire_producer(at, id(&name), None).await);
                let written = store.append(at, Bytes::from_static(b"x"), stamp(&claim, 0)).await;
                (claim, written)
            }
        })
        .collect();
    let answers = join_all(takeovers).await;
    let mut epochs: Vec<u64> = answers.iter().map(|(claim, _)| claim.epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 20, "every acquisition has an epoch of its own");
    let written = answers.iter().filter(|(_, written)| written.is_ok()).count();
    assert_eq!(read_all(store, &at).await.len(), written);
    let last = answers.iter().max_by_key(|(claim, _)| claim.epoch);
    assert!(last.is_some_and(|(_, written)| written.is_ok()), "nobody fenced the last one");
    for (claim, written) in answers {
        if let Err(error) = written {
            assert!(matches!(error, StoreError::Refused(StreamError::Conflict(_))), "{claim:?}: {error:?}");
        }
    }
}

pub(super) async fn racing_deletes_of_the_last_forks_free_the_source<H: Harness>(harness: &H) {
    let store = harness.store();
    let mut source = Writer::create(store, "source", text()).await;
    source.append("x").await;
    let mut forks = Vec::new();
    for turn in 0..10 {
        let origin = ForkOrigin { source: source.path.clone(), offset: None, sub_offset: 0 };
        let options = PutOptions { fork: Some(origin), ..PutOptions::default() };
        forks.push(Writer::create_with(store, &format!("fork{turn}"), options).await.0.path);
    }
    ok(store.delete(&source.path, None).await);
    let gone = StreamError::Gone { path: source.path.clone() };
    assert_eq!(refused(store.head(&source.path, None).await), gone);
    for answer in join_all(forks.iter().map(|fork| store.delete(fork, None)).collect()).await {
        ok(answer);
    }
    assert_eq!(ok(store.head(&source.path, None).await), None);
    assert!(ok(store.put(&source.path, of_type(text())).await).created);
}
