//! One set of answers in the four states that bytes go through: in the journal, in tables, after a restart, and in
//! tables that were merged.

use alluvium_engine::{BootstrapLimits, LookupError, SnapshotError};
use alluvium_protocol::{Offset, OffsetQuery};

use crate::support::{Fixture, path, publish_request, read_body};

/// Everything that can be asked about a stream without changing it, answered.
pub(crate) async fn answers(fixture: &Fixture, name: &str) -> Vec<String> {
    let mut answers = Vec::new();
    let engine = &fixture.engine;
    let head = match engine.head(&path(name)) {
        Ok(head) => head,
        Err(error) => return vec![format!("{error:?}")],
    };
    answers.push(format!("{head:?}"));
    let reader = fixture.reader(name);
    for query in [OffsetQuery::Start, OffsetQuery::Now] {
        answers.push(format!("{query:?}: {:?}", reader.resolve(query)));
    }
    for append_index in 0..=head.tail.append_index + 1 {
        for position in 0..=head.tail.position + 1 {
            let offset = Offset::new(append_index, position);
            let resolved = reader.resolve(OffsetQuery::At(offset));
            let read = resolved.as_ref().ok().map(|from| reader.bounded_end(*from, 3));
            let publish = engine.begin_publish(&path(name), publish_request(offset)).await;
            let publish = publish.map(drop);
            let snapshot = match engine.open_snapshot(&path(name), offset) {
                Ok(snapshot) => Some(String::from_utf8(read_body(&snapshot)).unwrap()),
                Err(SnapshotError::NotFound) => None,
                Err(SnapshotError::Lookup(LookupError::NotFound)) => unreachable!(),
                Err(other) => panic!("{other}"),
            };
            answers.push(format!("{offset}: {resolved:?} {read:?} {publish:?} {snapshot:?}"));
        }
    }
    answers.push(format!("{:?}", cut(fixture, name)));
    answers
}

/// What a bootstrap gives: the snapshot, then every message with the offset after it.
pub(crate) fn cut(fixture: &Fixture, name: &str) -> (Option<String>, Vec<(String, Offset)>, Offset, bool) {
    let mut bootstrap = fixture.engine.bootstrap(&path(name), BootstrapLimits::NONE).unwrap();
    let snapshot = bootstrap.snapshot.as_ref().map(|one| String::from_utf8(read_body(one)).unwrap());
    let mut messages = Vec::new();
    while let Some(more) = bootstrap.next_messages() {
        let more = more.unwrap();
        assert!(!more.is_empty());
        messages.extend(more.into_iter().map(|message| {
            let body = message.body.whole().unwrap();
            assert_eq!(body.len() as u64, message.len);
            (String::from_utf8(body.to_vec()).unwrap(), message.next)
        }));
    }
    assert_eq!(messages.last().map_or(bootstrap.from, |last| last.1), bootstrap.end);
    assert!(bootstrap.at_tail);
    (snapshot, messages, bootstrap.end, bootstrap.closed)
}

/// Asks for the same answers hot, folded, restarted and merged.
pub(crate) async fn same_in_every_state(fixture: &mut Fixture, names: &[&str]) -> Vec<Vec<String>> {
    let mut expected: Option<Vec<Vec<String>>> = None;
    for state in ["hot", "folded", "restarted", "merged"] {
        match state {
            "folded" => fixture.fold(),
            "restarted" => fixture.restart(),
            "merged" => merge(fixture).await,
            _ => {}
        }
        let mut found = Vec::new();
        for name in names {
            found.push(answers(fixture, name).await);
        }
        if let Some(expected) = &expected {
            for (one, other) in expected.iter().flatten().zip(found.iter().flatten()) {
                assert_eq!(other, one, "{state}");
            }
        }
        expected = Some(found);
    }
    expected.unwrap_or_default()
}

/// Has all tables rewritten into one, by making enough small ones beside them.
async fn merge(fixture: &Fixture) {
    let before = fixture.engine.stats().tables;
    for round in 0..6 {
        for filler in 0..8 {
            let name = format!("filler-{round}-{filler}");
            fixture.create(&name, "text/plain").await;
            fixture.append(&name, "text/plain", &[b'f'; 200]).await;
        }
        fixture.fold();
    }
    for filler in 0..8 {
        for round in 0..6 {
            fixture.engine.delete(&path(&format!("filler-{round}-{filler}"))).await.unwrap();
        }
    }
    fixture.fold();
    assert!(fixture.engine.stats().tables <= before + 6, "nothing was merged");
}
