//! Forks: inherited bytes, sub-offsets, soft deletion, cascades.

use alluvium_engine::{CreateConflict, CreateError, LookupError};
use alluvium_protocol::Offset;

use crate::support::{Fixture, path};

#[tokio::test]
async fn a_fork_reads_its_source_up_to_the_cut_and_then_itself() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let middle = fixture.append("s", "text/plain", b"abc").await.tail;
    fixture.append("s", "text/plain", b"def").await;
    fixture.fork("f", "s", Some(middle), 2).await.unwrap();
    fixture.append("f", "text/plain", b"XY").await;
    fixture.append("s", "text/plain", b"ghi").await;
    fixture.fork("g", "f", None, 0).await.unwrap();
    fixture.append("g", "text/plain", b"!").await;
    fixture.fork("h", "g", Some(Offset::ZERO), 0).await.unwrap();
    for round in 0..4 {
        assert_eq!(fixture.read_pages("s", 1).0, b"abcdefghi", "round {round}");
        assert_eq!(fixture.read_pages("f", 1).0, b"abcdeXY", "round {round}");
        assert_eq!(fixture.read("g"), b"abcdeXY!", "round {round}");
        assert_eq!(fixture.read("h"), b"", "round {round}");
        match round {
            1 => fixture.fold(),
            _ => fixture.restart(),
        }
    }
}

#[tokio::test]
async fn impossible_cuts_are_refused_and_hold_nothing() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    fixture.append("s", "text/plain", b"abc").await;
    let at = |position| Some(Offset::new(1, position));
    assert_eq!(fixture.fork("f", "none", None, 0).await, Err(CreateError::SourceNotFound));
    assert_eq!(
        fixture.fork("f", "s", at(4), 0).await,
        Err(CreateError::ForkBeyondTail { tail: Offset::new(1, 3) })
    );
    assert_eq!(fixture.fork("f", "s", at(2), 0).await, Err(CreateError::ForkUnaligned));
    assert_eq!(fixture.fork("f", "s", Some(Offset::ZERO), 4).await, Err(CreateError::ForkSubOffset));
    // No refused fork keeps the source from going.
    fixture.engine.delete(&path("s")).await.unwrap();
    assert_eq!(fixture.engine.head(&path("s")), Err(LookupError::NotFound));
}

#[tokio::test]
async fn json_sub_offsets_count_messages_across_appends() {
    let fixture = Fixture::new();
    fixture.create("s", "application/json").await;
    fixture.append("s", "application/json", b"[1,2]").await;
    fixture.append("s", "application/json", b"[3,4]").await;
    let cut = fixture.fork("f", "s", Some(Offset::ZERO), 3).await.unwrap();
    assert_eq!(cut.tail, Offset::new(1, 6));
    assert_eq!(fixture.read("f"), b"1,2,3,");
}

#[tokio::test]
async fn a_deleted_source_stays_for_its_forks_and_goes_with_the_last() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    fixture.append("s", "text/plain", b"abc").await;
    fixture.fork("f", "s", None, 0).await.unwrap();
    fixture.fork("g", "f", None, 0).await.unwrap();
    fixture.engine.delete(&path("s")).await.unwrap();
    fixture.engine.delete(&path("f")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(fixture.engine.head(&path("s")), Err(LookupError::Deleted));
        assert_eq!(fixture.engine.head(&path("f")), Err(LookupError::Deleted));
        assert_eq!(fixture.fork("h", "s", None, 0).await, Err(CreateConflict::SourceDeleted.into()));
        assert_eq!(fixture.read("g"), b"abc");
        fixture.fold();
        fixture.restart();
    }
    fixture.engine.delete(&path("g")).await.unwrap();
    assert_eq!(fixture.engine.head(&path("s")), Err(LookupError::NotFound));
    assert_eq!(fixture.engine.head(&path("f")), Err(LookupError::NotFound));
    fixture.restart();
    assert_eq!(fixture.engine.stats().streams, 0);
    assert!(fixture.create("s", "text/plain").await.fresh);
}

#[tokio::test]
async fn a_repeated_fork_is_confirmed_even_without_its_source() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    fixture.append("s", "text/plain", b"abc").await;
    assert!(fixture.fork("f", "s", None, 0).await.unwrap().fresh);
    fixture.engine.delete(&path("s")).await.unwrap();
    assert!(!fixture.fork("f", "s", None, 0).await.unwrap().fresh);
}

#[tokio::test]
async fn long_chains_of_forks_survive_a_restart() {
    let mut fixture = Fixture::new();
    fixture.create("0", "text/plain").await;
    fixture.append("0", "text/plain", b"x").await;
    for number in 1..300 {
        let (name, source) = (number.to_string(), (number - 1).to_string());
        fixture.fork(&name, &source, None, 0).await.unwrap();
        fixture.append(&name, "text/plain", b"x").await;
    }
    fixture.restart();
    assert_eq!(fixture.read("299"), [b'x'; 300]);
    fixture.fold();
    assert_eq!(fixture.read_pages("299", 7).0, [b'x'; 300]);
}
