use super::*;

fn path() -> StreamPath {
    StreamPath::parse_decoded("a/b").unwrap()
}

/// One error of each kind, with its status.
fn all() -> [(StreamError, u16); 12] {
    let (expected, received) = (ContentType::JSON, ContentType::DEFAULT);
    [
        (StreamError::NotFound { path: path() }, 404),
        (StreamError::Gone { path: path() }, 410),
        (StreamError::Closed { path: path(), next_offset: Offset::new(1, 2) }, 409),
        (Conflict::Empty.into(), 409),
        (StreamError::SequenceConflict { last: "b".to_owned(), received: "a".to_owned() }, 409),
        (StreamError::ContentTypeMismatch { expected, received }, 409),
        (StreamError::ProducerSequenceConflict { expected: 1, received: 3 }, 409),
        (StreamError::ProducerFenced { current_epoch: 4, received_epoch: 3 }, 403),
        (InvalidJson::EmptyArray.into(), 400),
        (StreamError::InvalidOffset { offset: Offset::new(9, 9) }, 400),
        (ProducerFault::ClaimRequired.into(), 400),
        (StreamError::PayloadTooLarge { max: 1, received: 2 }, 413),
    ]
}

#[test]
fn each_kind_has_its_status_and_a_tag_of_its_own() {
    let mut tags: Vec<&str> = all().iter().map(|(error, _)| error.tag()).collect();
    for (error, status) in all() {
        assert_eq!(error.status(), status, "{error}");
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 12);
}

#[test]
fn headers_tell_what_a_client_needs_to_go_on() {
    let told: Vec<String> = all()
        .iter()
        .flat_map(|(error, _)| error.headers())
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let offset = Offset::new(1, 2);
    assert_eq!(
        told,
        [
            "stream-closed: true".to_owned(),
            format!("stream-next-offset: {offset}"),
            "producer-expected-seq: 1".to_owned(),
            "producer-received-seq: 3".to_owned(),
            "producer-epoch: 4".to_owned(),
        ]
    );
}

#[test]
fn an_event_tells_error_status_name_and_tag() {
    let (error, _) = &all()[0];
    assert_eq!(
        error.event_data().to_json(),
        r#"{"error":"there is no stream `a/b`","status":404,"name":"StreamNotFoundError","tag":"StreamNotFoundError"}"#
    );
    assert_eq!(
        ErrorEventData::fault("StoreFault", "the store has stopped").to_json(),
        r#"{"error":"the store has stopped","status":500,"name":"StoreFault"}"#
    );
}

#[test]
fn refused_producers_become_the_errors_that_clients_know() {
    let of = |refusal: ProducerRefusal| StreamError::from_refusal(refusal, 3);
    assert_eq!(of(ProducerRefusal::ClaimRequired), ProducerFault::ClaimRequired.into());
    assert_eq!(of(ProducerRefusal::NotOwner), Conflict::NotOwner.into());
    assert_eq!(
        of(ProducerRejection::Fenced { current_epoch: 4 }.into()),
        StreamError::ProducerFenced { current_epoch: 4, received_epoch: 3 }
    );
    assert_eq!(
        of(ProducerRejection::Gap { expected: 1, received: 2 }.into()),
        StreamError::ProducerSequenceConflict { expected: 1, received: 2 }
    );
    assert_eq!(
        of(ProducerRejection::EpochMustStartAtZero.into()),
        ProducerFault::EpochMustStartAtZero.into()
    );
}
