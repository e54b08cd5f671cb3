//! Create, append, read, close, delete, and all of it again after a restart.

use alluvium_engine::{
    AppendError, AppendRequest, CreateConflict, CreateError, DeleteError, LookupError, ReadError, Wake,
};
use alluvium_protocol::{AppendRejection, ConfigConflict, Offset, OffsetQuery};

use crate::support::{Fixture, append_request, create_request, path, stamp};

#[tokio::test]
async fn what_is_appended_is_read_and_survives_a_restart() {
    let mut fixture = Fixture::new();
    assert!(fixture.create("a", "text/plain").await.fresh);
    assert!(!fixture.create("a", "text/plain").await.fresh);
    let first = fixture.append("a", "text/plain", b"hello ").await;
    let second = fixture.append("a", "text/plain", b"world").await;
    assert_eq!(first.tail, Offset::new(1, 6));
    assert_eq!(second.tail, Offset::new(2, 11));
    assert_eq!(fixture.read("a"), b"hello world");
    fixture.restart();
    assert_eq!(fixture.read("a"), b"hello world");
    let head = fixture.engine.head(&path("a")).unwrap();
    assert_eq!((head.tail, head.closed, head.incarnation), (second.tail, false, second.incarnation));
}

#[tokio::test]
async fn json_messages_are_stored_apart_and_offsets_inside_an_append_are_boundaries() {
    let fixture = Fixture::new();
    fixture.create("j", "application/json").await;
    fixture.append("j", "application/json", b"[1, 22,{\"a\":3}]").await;
    fixture.append("j", "application/json", b"\"x\"").await;
    assert_eq!(fixture.read("j"), b"1,22,{\"a\":3},\"x\",");
    let reader = fixture.reader("j");
    for (offset, found) in [
        (Offset::new(0, 2), Ok(Offset::new(0, 2))),
        (Offset::new(0, 5), Ok(Offset::new(0, 5))),
        (Offset::new(1, 13), Ok(Offset::new(1, 13))),
        (Offset::new(1, 5), Err(ReadError::Unaligned)),
        (Offset::new(0, 3), Err(ReadError::Unaligned)),
        (Offset::new(3, 17), Err(ReadError::Beyond { tail: Offset::new(2, 17) })),
        (Offset::new(2, 18), Err(ReadError::Beyond { tail: Offset::new(2, 17) })),
    ] {
        assert_eq!(reader.resolve(OffsetQuery::At(offset)), found, "{offset}");
    }
    let empty = fixture.try_append("j", append_request("application/json", b"[]")).await;
    assert!(matches!(empty, Err(AppendError::Json(_))), "{empty:?}");
}

#[tokio::test]
async fn producers_are_exactly_once_across_a_restart() {
    let mut fixture = Fixture::new();
    fixture.create("p", "text/plain").await;
    let request = |seq, body: &[u8]| AppendRequest {
        producer: Some(stamp("writer", 0, seq)),
        ..append_request("text/plain", body)
    };
    assert!(!fixture.try_append("p", request(0, b"a")).await.unwrap().duplicate);
    assert!(!fixture.try_append("p", request(1, b"b")).await.unwrap().duplicate);
    fixture.restart();
    assert!(fixture.try_append("p", request(1, b"b")).await.unwrap().duplicate);
    assert!(!fixture.try_append("p", request(2, b"c")).await.unwrap().duplicate);
    fixture.fold();
    fixture.restart();
    assert!(fixture.try_append("p", request(2, b"c")).await.unwrap().duplicate);
    assert_eq!(fixture.read("p"), b"abc");
}

#[tokio::test]
async fn a_closed_stream_stays_closed_and_says_so_before_anything_else() {
    let mut fixture = Fixture::new();
    fixture.create("c", "application/json").await;
    let closing = AppendRequest { close: true, ..append_request("application/json", b"1") };
    let closed = fixture.try_append("c", closing).await.unwrap();
    assert!(closed.closed);
    for restarted in [false, true] {
        if restarted {
            fixture.restart();
        }
        for body in [&b"not json"[..], b"2"] {
            let refused = fixture.try_append("c", append_request("application/json", body)).await;
            let rejection = AppendRejection::Closed { tail: closed.tail };
            assert_eq!(refused, Err(AppendError::Rejected(rejection)));
        }
        let again = AppendRequest { close: true, ..AppendRequest::default() };
        assert!(fixture.try_append("c", again).await.unwrap().closed);
        assert_eq!(fixture.reader("c").wait(closed.tail).await, Wake::Closed);
    }
}

#[tokio::test]
async fn a_deleted_stream_is_gone_and_its_path_free() {
    let mut fixture = Fixture::new();
    let first = fixture.create("d", "text/plain").await;
    fixture.append("d", "text/plain", b"old").await;
    let reader = fixture.reader("d");
    fixture.engine.delete(&path("d")).await.unwrap();
    assert_eq!(reader.wait(Offset::new(1, 3)).await, Wake::Deleted);
    assert_eq!(fixture.engine.delete(&path("d")).await, Err(DeleteError::Lookup(LookupError::NotFound)));
    fixture.restart();
    assert_eq!(fixture.engine.head(&path("d")), Err(LookupError::NotFound));
    let second = fixture.create("d", "text/plain").await;
    assert!(second.fresh && second.incarnation != first.incarnation);
    assert_eq!(fixture.read("d"), b"");
    fixture.fold();
    fixture.restart();
    assert_eq!(fixture.read("d"), b"");
}

#[tokio::test]
async fn another_configuration_is_a_conflict() {
    let fixture = Fixture::new();
    fixture.create("x", "text/plain").await;
    let other = fixture.engine.create(&path("x"), create_request("application/json")).await;
    assert_eq!(other, Err(CreateError::Conflict(CreateConflict::Configuration(ConfigConflict::ContentType))));
}

#[tokio::test]
async fn a_waiting_reader_wakes_for_data_that_can_be_read() {
    let fixture = Fixture::new();
    fixture.create("w", "text/plain").await;
    let reader = fixture.reader("w");
    let waiting = tokio::spawn(async move {
        assert_eq!(reader.wait(Offset::ZERO).await, Wake::Data);
        reader.read(Offset::ZERO, 100).unwrap().end
    });
    tokio::task::yield_now().await;
    let appended = fixture.append("w", "text/plain", b"now").await;
    assert_eq!(waiting.await.unwrap(), appended.tail);
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_what_just_fits_is_taken() {
    let fixture = Fixture::new();
    fixture.create("l", "text/plain").await;
    let limit = 64 * 1024;
    fixture.append("l", "text/plain", &vec![7; limit]).await;
    let refused = fixture.try_append("l", append_request("text/plain", &vec![7; limit + 1])).await;
    assert_eq!(refused, Err(AppendError::TooLarge { max: limit as u64, received: limit as u64 + 1 }));
    assert_eq!(fixture.read("l").len(), limit);
}

#[tokio::test]
async fn a_second_engine_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        alluvium_engine::Engine::open(alluvium_env::Env::real(), dir.path(), crate::support::small_options())
    };
    let first = open().unwrap();
    assert!(matches!(
        open().unwrap_err(),
        alluvium_engine::OpenError::Format(alluvium_journal::FormatError::Locked { .. })
    ));
    first.shutdown();
    open().unwrap().shutdown();
}
