//! A watcher learns which streams have changed, whatever happens between two looks.

use alluvium_engine::{NOTED_STREAMS_MAX, PathWalk};
use alluvium_protocol::{BucketId, Offset, StreamPath};

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

/// All paths of a walk in slices of `max`, by their URL or as they are.
fn walked(fixture: &Fixture, prefix: &str, max: usize) -> Vec<String> {
    let (mut walk, mut found) = (PathWalk::over(prefix), Vec::new());
    loop {
        let slice = fixture.engine.next_paths(&mut walk, max);
        if slice.is_empty() {
            return sorted(found);
        }
        assert!(slice.len() <= max);
        found.extend(slice);
    }
}

#[tokio::test]
async fn a_walk_in_slices_of_any_size_shows_the_paths_that_begin_alike_once() {
    let mut fixture = Fixture::new();
    let names = ["a", "a/1", "a/2", "a/2/x", "a-b", "ab/1", "b/1", "b/2", "é/1"];
    for name in names {
        fixture.create(name, "text/plain").await;
    }
    let bucket = BucketId::parse("docs").unwrap();
    fixture.engine.create_bucket(&bucket).await.unwrap();
    fixture.create("/ds/docs/notes", "text/plain").await;
    fixture.engine.delete(&path("b/2")).await.unwrap();
    for _ in 0..2 {
        for max in 1..12 {
            let below = |prefix: &str| {
                let all = names.iter().filter(|name| name.starts_with(prefix) && **name != "b/2");
                let mut below: Vec<_> = all.map(|name| (*name).to_owned()).collect();
                below.sort();
                below
            };
            for prefix in ["a", "a/", "a/2", "b/", "c", "é", "a/1/"] {
                assert_eq!(walked(&fixture, prefix, max), below(prefix), "{prefix} by {max}");
            }
            assert_eq!(walked(&fixture, "\0", max), ["/ds/docs/notes"]);
            assert_eq!(walked(&fixture, "\0docs/", max), ["/ds/docs/notes"]);
            assert_eq!(walked(&fixture, "", max).len(), names.len());
        }
        fixture.restart();
    }
}

#[tokio::test]
async fn a_walk_goes_on_where_it_was_whatever_comes_and_goes() {
    let fixture = Fixture::new();
    for number in 0..20 {
        fixture.create(&format!("s/{number:02}"), "text/plain").await;
    }
    let (mut walk, mut shown) = (PathWalk::over("s/"), Vec::new());
    for round in 0.. {
        let slice = fixture.engine.next_paths(&mut walk, 3);
        if slice.is_empty() {
            break;
        }
        shown.extend(slice);
        // One behind, one ahead, and one that was shown goes.
        fixture.create(&format!("s/!{round}"), "text/plain").await;
        fixture.create(&format!("s/~{round}"), "text/plain").await;
        fixture.engine.delete(&shown[shown.len() - 1].clone()).await.unwrap();
    }
    let names = sorted(shown.clone());
    let old: Vec<_> = names.iter().filter(|name| !name.contains(['!', '~'])).collect();
    assert_eq!(old.len(), 20, "{names:?}");
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), names.len(), "each once");
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
