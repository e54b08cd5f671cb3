use super::*;
use crate::claim::{Claim, ProducerDecision};
use crate::error::{Conflict, ProducerFault};
use crate::producer::{ProducerStamp, ProducerState};

fn message(data: &'static str) -> StreamMessage {
    StreamMessage { offset: Offset::ZERO, data: Bytes::from_static(data.as_bytes()) }
}

#[test]
fn a_response_is_an_array_or_the_bytes() {
    let messages = [message("1,"), message("[2],")];
    assert_eq!(format_response(&ContentType::JSON, &messages), "[1,[2]]");
    assert_eq!(format_response(&ContentType::JSON, &[]), "[]");
    assert_eq!(format_response(&ContentType::DEFAULT, &messages), "1,[2],");
    assert_eq!(format_response(&ContentType::DEFAULT, &[]), "");
}

#[test]
fn retry_metadata_is_short_text_for_a_header() {
    assert_eq!(RetryMetadata::parse("attempt 1").unwrap().as_str(), "attempt 1");
    for text in ["", "a\nb", &"x".repeat(crate::limits::RETRY_METADATA_BYTES_MAX + 1)] {
        assert_eq!(RetryMetadata::parse(text), Err(InvalidRetryMetadata));
    }
}

#[test]
fn a_receipt_tells_a_repetition_from_another_append() {
    let metadata = RetryMetadata::parse("m").ok();
    let receipt = Receipt {
        start: Offset::new(1, 4),
        end: Offset::new(2, 9),
        closed: false,
        metadata: metadata.clone(),
    };
    assert_eq!(receipt.compare(5, false, metadata.as_ref()), Ok(()));
    let differs = Err(Conflict::RetryDiffers);
    assert_eq!(receipt.compare(4, false, metadata.as_ref()), differs);
    assert_eq!(receipt.compare(5, true, metadata.as_ref()), differs);
    assert_eq!(receipt.compare(5, false, None), differs);
}

/// Everything about an append that decides over it.
#[derive(Clone)]
struct Case {
    closed: bool,
    claim: Option<Claim>,
    lane: Option<ProducerState>,
    claims_required: bool,
    length: u64,
    options: AppendOptions,
}

impl Case {
    fn plain(length: u64) -> Case {
        let options = AppendOptions::default();
        Case { closed: false, claim: None, lane: None, claims_required: false, length, options }
    }

    fn by(mut self, seq: u64) -> Case {
        let id = ProducerId::parse("p").unwrap();
        self.options.producer = Some(ProducerStamp { id, epoch: 1, seq });
        self
    }

    fn decide(&self) -> Result<Admitted, StreamError> {
        let path = StreamPath::parse_decoded("s").unwrap();
        let facts = StreamFacts {
            path: &path,
            content_type: &ContentType::DEFAULT,
            tail: Offset::new(1, 10),
            closed: self.closed,
            last_seq: Some("b"),
            claim: self.claim.as_ref(),
            lane: self.lane,
            claims_required: self.claims_required,
        };
        let data = AppendFacts { length: self.length, bytes_max: 100 };
        admit(&facts, self.length > 0, &self.options, || Ok((data, ()))).map(|(admitted, ())| admitted)
    }
}

#[test]
fn an_append_moves_the_end_and_a_close_does_not() {
    let write = |producer, end| Ok(Admitted::Write { producer, end });
    assert_eq!(Case::plain(5).decide(), write(ProducerDecision::Plain, Offset::new(2, 15)));
    let mut close = Case::plain(0);
    assert_eq!(close.decide(), Err(Conflict::Empty.into()));
    close.options.close = true;
    assert_eq!(close.decide(), write(ProducerDecision::Plain, Offset::new(1, 10)));
    close.closed = true;
    assert_eq!(close.decide(), Ok(Admitted::AlreadyClosed));
}

#[test]
fn a_repetition_is_recognised_on_a_closed_stream() {
    let state = ProducerState { epoch: 1, seq: 3 };
    let mut case = Case::plain(5).by(3);
    case.lane = Some(state);
    case.closed = true;
    assert_eq!(case.decide(), Ok(Admitted::Compare { state }));
    let case = Case { options: case.clone().by(4).options, ..case };
    assert!(matches!(case.decide(), Err(StreamError::Closed { .. })));
}

#[test]
fn the_first_fault_in_the_documented_order_is_the_answer() {
    let mut case = Case::plain(101).by(7);
    case.closed = true;
    case.options.seq = Some("a".to_owned());
    case.options.content_type = Some(ContentType::JSON);
    assert!(matches!(case.decide(), Err(StreamError::ProducerSequenceConflict { .. })));
    case.options.producer = None;
    assert!(matches!(case.decide(), Err(StreamError::ContentTypeMismatch { .. })));
    case.options.content_type = None;
    assert_eq!(case.decide(), Err(StreamError::PayloadTooLarge { max: 100, received: 101 }));
    case.length = 1;
    assert!(matches!(case.decide(), Err(StreamError::Closed { .. })));
    case.closed = false;
    assert!(matches!(case.decide(), Err(StreamError::SequenceConflict { .. })));
    case.options.seq = Some("c".to_owned());
    assert!(case.decide().is_ok());
}

#[test]
fn a_store_may_require_claims() {
    let mut case = Case::plain(1);
    case.claims_required = true;
    assert_eq!(case.decide(), Err(ProducerFault::ClaimRequired.into()));
    assert_eq!(case.clone().by(0).decide(), Err(Conflict::NotOwner.into()));
    let id = ProducerId::parse("p").unwrap();
    case.claim = Some(Claim { id: id.clone(), epoch: 1, next_seq: 0 });
    let claimed = ProducerDecision::Claimed(Claim { id, epoch: 1, next_seq: 1 });
    let expected = Admitted::Write { producer: claimed, end: Offset::new(2, 11) };
    assert_eq!(case.by(0).decide(), Ok(expected));
}
