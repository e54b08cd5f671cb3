//! A watcher learns which streams have changed, whatever happens between two looks.

use alluvium_engine::NOTED_STREAMS_MAX;
use alluvium_protocol::{Offset, StreamPath};

use crate::support::{Fixture, path};

fn sorted(mut paths: Vec<StreamPath>) -> Vec<String> {
    paths.sort();
    paths.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_changed_stream_is_noted_once_and_before_its_append_is_answered() {
    let fixture = Fixture::new();
    fixture.create("before", "text/plain").await;
    fixture.append("before", "text/plain", b"x").await;
    let watch = fixture.engine.watch_changes();
    assert!(watch.take().paths.is_empty(), "what was before is not told of");
    fixture.create("empty", "text/plain").await;
    assert!(watch.take().paths.is_empty(), "there is nothing in it");
    for _ in 0..10 {
        fixture.append("before", "text/plain", b"x").await;
        fixture.append("empty", "text/plain", b"x").await;
    }
    watch.changed().await;
    let changed = watch.take();
    assert_eq!(
        (sorted(changed.paths), changed.missed),
        (vec!["before".to_owned(), "empty".to_owned()], false)
    );
    assert!(watch.take().paths.is_empty());
    fixture.append("empty", "text/plain", b"x").await;
    assert_eq!(sorted(watch.take().paths), ["empty"]);

    fixture.engine.delete(&path("empty")).await.unwrap();
    assert_eq!(sorted(watch.take().paths), ["empty"]);
    assert_eq!(fixture.engine.end_of(&path("empty")), None);
    fixture.create("empty", "text/plain").await;
    fixture.append("empty", "text/plain", b"y").await;
    assert_eq!(sorted(watch.take().paths), ["empty"]);
    assert_eq!(fixture.engine.end_of(&path("empty")).unwrap().tail, Offset::new(1, 1));

    watch.set_watching(false);
    fixture.append("empty", "text/plain", b"y").await;
    watch.set_watching(true);
    assert!(watch.take().paths.is_empty(), "nobody watched");
    fixture.append("empty", "text/plain", b"y").await;
    assert_eq!(sorted(watch.take().paths), ["empty"], "and that left nothing behind");
    drop(watch);
    fixture.append("empty", "text/plain", b"y").await;
    assert!(fixture.engine.watch_changes().take().paths.is_empty());
}

#[tokio::test]
async fn every_stream_is_shown_but_those_that_are_gone() {
    let mut fixture = Fixture::new();
    let internal = StreamPath::internal("subscriptions/x");
    for name in ["a", "b", "c"] {
        fixture.create(name, "text/plain").await;
    }
    let watch = fixture.engine.watch_changes();
    fixture.engine.create(&internal, crate::support::create_request("text/plain")).await.unwrap();
    fixture.engine.append(&internal, crate::support::append_request("text/plain", b"x")).await.unwrap();
    assert!(watch.take().paths.is_empty(), "what the server keeps for itself is its own news");
    drop(watch);
    fixture.engine.delete(&path("b")).await.unwrap();
    for _ in 0..2 {
        let mut shown = Vec::new();
        fixture.engine.for_each_stream(|path, _| shown.push(path.clone()));
        assert_eq!(sorted(shown), ["__ds/subscriptions/x", "a", "c"]);
        fixture.restart();
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_look_is_told_that_it_missed_something() {
    let fixture = Fixture::new();
    let watch = fixture.engine.watch_changes();
    let streams = NOTED_STREAMS_MAX + 100;
    let mut creates = tokio::task::JoinSet::new();
    for number in 0..streams {
        let engine = fixture.engine.clone();
        creates.spawn(async move {
            let mut request = crate::support::create_request("text/plain");
            request.body = bytes::Bytes::from_static(b"x");
            engine.create(&path(&format!("s/{number}")), request).await
        });
        if creates.len() >= 1000 {
            creates.join_next().await.unwrap().unwrap().unwrap();
        }
    }
    while let Some(created) = creates.join_next().await {
        created.unwrap().unwrap();
    }
    let changed = watch.take();
    assert!(changed.missed && changed.paths.len() <= NOTED_STREAMS_MAX, "{}", changed.paths.len());
    // What was missed is noted again with its next change.
    fixture.append("s/1", "text/plain", b"x").await;
    fixture.append(&format!("s/{}", streams - 1), "text/plain", b"x").await;
    let changed = watch.take();
    assert_eq!((changed.paths.len(), changed.missed), (2, false));
}
