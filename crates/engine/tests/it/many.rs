//! Batches of appends, optimistic appends, and attributes.

use alluvium_engine::{
    AppendError, AppendRequest, Appended, BatchError, CreateConflict, CreateError, CreateRequest,
};
use alluvium_protocol::{AppendRejection, Attributes, ConfigConflict, Offset};

use crate::support::{Fixture, append_request, create_request, path, stamp};

#[tokio::test]
async fn each_frame_is_an_append_and_a_refused_one_holds_back_no_other() {
    let mut fixture = Fixture::new();
    fixture.create("s", "application/json").await;
    let frame = |body: &str| append_request("application/json", body.as_bytes());
    let frames = vec![frame("[1,2]"), frame(""), frame("{"), frame("3"), frame("[]")];
    let answers = fixture.engine.append_batch(&path("s"), frames, None).await.unwrap();
    let tails: Vec<Option<Offset>> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|appended| appended.tail)).collect();
    assert_eq!(tails, [Some(Offset::new(1, 4)), None, None, Some(Offset::new(2, 6)), None]);
    assert_eq!(answers[1], Err(AppendRejection::Empty.into()));
    assert!(matches!(answers[2], Err(AppendError::Json(_))));
    for _ in 0..2 {
        assert_eq!(fixture.read("s"), b"1,2,3,");
        fixture.restart();
    }
}

#[tokio::test]
async fn a_repeated_batch_of_a_producer_is_all_duplicates() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let frames = || {
        let one = |seq| AppendRequest {
            producer: Some(stamp("p", 0, seq)),
            close: seq == 2,
            ..append_request("text/plain", b"ab")
        };
        (0..3).map(one).collect::<Vec<_>>()
    };
    // The stream is closed from the first time on, and closing forgets nothing that a retry is recognised by.
    for turn in 0..4 {
        let answers = fixture.engine.append_batch(&path("s"), frames(), Some(Offset::ZERO)).await.unwrap();
        assert_eq!(duplicates(&answers), [Some(turn > 0); 3], "{turn}");
        assert!(answers.iter().flatten().all(|appended| turn == 0 || appended.closed));
        assert_eq!(fixture.read("s"), b"ababab");
        if turn % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
    // What was not stored is refused: a later sequence, another epoch, another producer, none.
    for producer in [Some(stamp("p", 0, 3)), Some(stamp("p", 1, 0)), Some(stamp("q", 0, 0)), None] {
        let frames = vec![AppendRequest { producer, ..append_request("text/plain", b"ab") }];
        let answers = fixture.engine.append_batch(&path("s"), frames, None).await.unwrap();
        assert_eq!(answers, [Err(AppendRejection::Closed { tail: Offset::new(3, 6) }.into())]);
    }
    // A single append keeps to the protocol.
    let single = AppendRequest { producer: Some(stamp("p", 0, 0)), ..append_request("text/plain", b"ab") };
    let closed = AppendRejection::Closed { tail: Offset::new(3, 6) };
    assert_eq!(fixture.try_append("s", single).await, Err(closed.into()));
}

fn duplicates(answers: &[Result<Appended, AppendError>]) -> Vec<Option<bool>> {
    answers.iter().map(|answer| answer.as_ref().ok().map(|appended| appended.duplicate)).collect()
}

#[tokio::test]
async fn a_guarded_batch_is_recognised_before_its_tail_is_compared() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let frame =
        |seq| AppendRequest { producer: Some(stamp("p", 0, seq)), ..append_request("text/plain", b"ab") };
    let send = async |seqs: std::ops::Range<u64>, tail| {
        fixture.engine.append_batch(&path("s"), seqs.map(frame).collect(), Some(tail)).await
    };
    let stale = Offset::ZERO;
    assert_eq!(duplicates(&send(0..2, stale).await.unwrap()), [Some(false); 2]);
    assert_eq!(duplicates(&send(0..2, stale).await.unwrap()), [Some(true); 2]);
    let tail = Offset::new(2, 4);
    let mismatch = AppendRejection::TailMismatch { tail };
    // New frames are not taken, whether duplicates come before them or not, and get one and the same reason.
    let mixed = send(1..4, stale).await.unwrap();
    assert_eq!(duplicates(&mixed), [Some(true), None, None]);
    assert_eq!(mixed[1..], [Err(mismatch.clone().into()), Err(mismatch.clone().into())]);
    assert_eq!(send(2..4, stale).await, Err(BatchError::Rejected(mismatch)));
    assert_eq!(fixture.read("s"), b"abab");
    assert_eq!(duplicates(&send(1..4, tail).await.unwrap()), [Some(true), Some(false), Some(false)]);
    assert_eq!(fixture.read("s"), b"abababab");
    let fenced = fixture.engine.append_batch(
        &S,
        vec![AppendRequest { producer: Some(stamp("p", 1, 3)), ..append_request("text/plain", b"ab") }],
        Some(stale),
    );
    assert!(matches!(fenced.await.unwrap()[0], Err(AppendError::Rejected(AppendRejection::Producer(_)))));
}

#[tokio::test]
async fn batches_have_limits() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let batch = |count, length| vec![append_request("text/plain", &vec![b'x'; length]); count];
    let send = |frames| fixture.engine.append_batch(&S, frames, None);
    assert_eq!(send(Vec::new()).await, Err(BatchError::Empty));
    assert_eq!(send(batch(513, 1)).await, Err(BatchError::TooManyFrames { max: 512, received: 513 }));
    let received = 64 * 1024 + 8;
    assert_eq!(
        send(batch(8, received / 8)).await,
        Err(BatchError::TooLarge { max: 65_536, received: 65_544 })
    );
    assert_eq!(send(batch(8, 8192)).await.unwrap().len(), 8);
    assert_eq!(fixture.engine.head(&S).unwrap().tail, Offset::new(8, 65_536));
}

static S: std::sync::LazyLock<alluvium_protocol::StreamPath> = std::sync::LazyLock::new(|| path("s"));

#[tokio::test]
async fn an_expected_tail_is_taken_once() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let at = |expected_tail| AppendRequest {
        expected_tail: Some(expected_tail),
        ..append_request("text/plain", b"abc")
    };
    let tail = fixture.try_append("s", at(Offset::ZERO)).await.unwrap().tail;
    let late = fixture.try_append("s", at(Offset::ZERO)).await;
    assert_eq!(late, Err(AppendRejection::TailMismatch { tail }.into()));
    let frames = || vec![append_request("text/plain", b"abc"), append_request("text/plain", b"def")];
    let answers = fixture.engine.append_batch(&path("s"), frames(), Some(tail)).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let late = fixture.engine.append_batch(&path("s"), frames(), Some(tail)).await;
    let tail = Offset::new(3, 9);
    assert_eq!(late, Err(BatchError::Rejected(AppendRejection::TailMismatch { tail })));
    assert_eq!(fixture.read("s"), b"abcabcdef");
}

#[tokio::test]
async fn attributes_are_kept_replaced_and_compared_by_a_repeated_create() {
    let mut fixture = Fixture::new();
    let attributes = |text: &str| Attributes::parse(text.as_bytes()).unwrap();
    let create = |text: Option<&str>| CreateRequest {
        attributes: text.map(attributes),
        ..create_request("text/plain")
    };
    let s = path("s");
    fixture.engine.create(&s, create(Some(r#"{"title":"Aare"}"#))).await.unwrap();
    let other = fixture.engine.create(&s, create(Some("{}"))).await;
    assert_eq!(other, Err(CreateError::Conflict(CreateConflict::Configuration(ConfigConflict::Attributes))));
    for same in [None, Some(r#"{"title":"Aare"}"#)] {
        assert!(!fixture.engine.create(&s, create(same)).await.unwrap().fresh);
    }
    let closing = AppendRequest { close: true, ..AppendRequest::default() };
    fixture.try_append("s", closing).await.unwrap();
    for text in [r#"{"title":"Aare"}"#, r#"{"n":[1]}"#, "{}"] {
        fixture.engine.set_attributes(&s, attributes(text)).await.unwrap();
        for state in 0..4 {
            assert_eq!(fixture.engine.head(&s).unwrap().attributes.as_json(), text, "{state}");
            if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
        }
    }
}
