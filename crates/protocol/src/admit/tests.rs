//! Admission against a model that keeps the whole history of accepted requests and searches it for every
//! answer.
//!
//! The model shares no state with the code under test: where that looks up "the producer's last sequence
//! number", the model asks which requests it has ever let in. All requests of a small alphabet are tried
//! after every possible history of accepted ones. Requests that are not accepted change nothing, so this
//! covers every sequence of that many requests, refused and repeated ones included.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::producer::ProducerId;

/// One request of the alphabet.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Request {
    content_type: Option<ContentType>,
    has_data: bool,
    close: bool,
    seq: Option<&'static str>,
    producer: Option<ProducerStamp>,
}

impl Request {
    fn intent(&self) -> AppendIntent<'_> {
        AppendIntent {
            content_type: self.content_type.as_ref(),
            has_data: self.has_data,
            close: self.close,
            seq: self.seq,
            producer: self.producer.as_ref(),
            expected_tail: None,
        }
    }
}

/// The stream as a server would keep it, moved only by what [`admit`] answers.
#[derive(Clone, Default)]
struct Stream {
    closed: bool,
    closed_by: Option<ProducerStamp>,
    last_seq: Option<&'static str>,
    producers: HashMap<ProducerId, ProducerState>,
    appends: u64,
}

const STREAM_TYPE: ContentType = ContentType::JSON;

impl Stream {
    fn tail(&self) -> Offset {
        Offset::new(self.appends, self.appends)
    }

    fn admit(&self, request: &Request) -> Result<Admission, AppendRejection> {
        let view = StreamView {
            closed: self.closed,
            closed_by: self.closed_by.as_ref(),
            content_type: &STREAM_TYPE,
            last_seq: self.last_seq,
            tail: self.tail(),
            producer: request.producer.as_ref().and_then(|stamp| self.producers.get(&stamp.id).copied()),
        };
        admit(&view, &request.intent())
    }

    /// The stream after an accepted request; `None` if the answer changes nothing.
    fn after(&self, request: &Request, answer: &Result<Admission, AppendRejection>) -> Option<Stream> {
        let mut next = self.clone();
        let Ok(Admission::Append { producer } | Admission::Close { producer }) = *answer else {
            return None;
        };
        next.appends += u64::from(matches!(answer, Ok(Admission::Append { .. })));
        next.last_seq = request.seq.or(self.last_seq);
        if let (Some(stamp), Some(state)) = (&request.producer, producer) {
            next.producers.insert(stamp.id.clone(), state);
        }
        if request.close {
            next.closed = true;
            next.closed_by.clone_from(&request.producer);
        }
        Some(next)
    }
}

/// The answer according to PROTOCOL §5.2, found by searching the accepted requests.
fn model(history: &[Request], request: &Request) -> Result<Admission, AppendRejection> {
    let appends = history.iter().filter(|earlier| earlier.has_data).count() as u64;
    if request.has_data && request.content_type.is_none() {
        return Err(AppendRejection::ContentTypeMissing);
    }
    if !request.has_data && !request.close {
        return Err(AppendRejection::Empty);
    }
    if let Some(closing) = history.iter().find(|earlier| earlier.close) {
        return match &request.producer {
            Some(stamp) if closing.producer.as_ref() == Some(stamp) => {
                let state = ProducerState { epoch: stamp.epoch, seq: stamp.seq };
                Ok(Admission::Duplicate { state, closed: true })
            }
            None if !request.has_data => Ok(Admission::AlreadyClosed),
            _ => Err(AppendRejection::Closed { tail: Offset::new(appends, appends) }),
        };
    }
    if let Some(received) = request.content_type.clone()
        && request.has_data
        && !received.as_str().starts_with("application/json")
    {
        return Err(AppendRejection::ContentTypeMismatch { expected: STREAM_TYPE, received });
    }
    let producer = match &request.producer {
        Some(stamp) => match model_producer(history, stamp)? {
            Ok(state) => Some(state),
            Err(duplicate) => return Ok(duplicate),
        },
        None => None,
    };
    if let (Some(last), Some(received)) = (history.iter().rev().find_map(|earlier| earlier.seq), request.seq)
        && last >= received
    {
        return Err(AppendRejection::SeqRegression { last: last.into(), received: received.into() });
    }
    Ok(if request.has_data { Admission::Append { producer } } else { Admission::Close { producer } })
}

/// The producer's part of the model: a state to keep, or the answer to a duplicate.
fn model_producer(
    history: &[Request],
    stamp: &ProducerStamp,
) -> Result<Result<ProducerState, Admission>, ProducerRejection> {
    let mine: Vec<_> = history
        .iter()
        .filter_map(|earlier| earlier.producer.as_ref())
        .filter(|own| own.id == stamp.id)
        .collect();
    let state = ProducerState { epoch: stamp.epoch, seq: stamp.seq };
    match mine.iter().map(|own| own.epoch).max() {
        Some(current_epoch) if stamp.epoch < current_epoch => {
            return Err(ProducerRejection::Fenced { current_epoch });
        }
        Some(current_epoch) if stamp.epoch > current_epoch && stamp.seq > 0 => {
            return Err(ProducerRejection::EpochMustStartAtZero);
        }
        _ => {}
    }
    let expected = mine.iter().filter(|own| own.epoch == stamp.epoch).count() as u64;
    if mine.contains(&stamp) {
        let state = ProducerState { seq: expected - 1, ..state };
        return Ok(Err(Admission::Duplicate { state, closed: false }));
    }
    if stamp.seq != expected {
        return Err(ProducerRejection::Gap { expected, received: stamp.seq });
    }
    Ok(Ok(state))
}

/// Every combination of the given headers, with and without data and close.
fn alphabet(
    producers: &[&str],
    numbers: u64,
    types: &[Option<&str>],
    seqs: &[Option<&'static str>],
) -> Vec<Request> {
    let mut stamps = vec![None];
    for id in producers {
        let id = ProducerId::parse(id).unwrap();
        let stamp = |n| ProducerStamp { id: id.clone(), epoch: n / numbers, seq: n % numbers };
        stamps.extend((0..numbers * numbers).map(|n| Some(stamp(n))));
    }
    let mut requests = Vec::new();
    for producer in &stamps {
        for content_type in types {
            for &seq in seqs {
                for (has_data, close) in [(false, false), (false, true), (true, false), (true, true)] {
                    let content_type = content_type.map(|value| ContentType::parse(value).unwrap());
                    requests.push(Request { content_type, has_data, close, seq, producer: producer.clone() });
                }
            }
        }
    }
    requests
}

/// What an exploration came across, so that a test can tell that it was not idle.
#[derive(Default)]
struct Coverage {
    answers: u64,
    kinds: BTreeSet<&'static str>,
}

impl Coverage {
    fn count(&mut self, answer: &Result<Admission, AppendRejection>) {
        self.answers += 1;
        self.kinds.insert(match answer {
            Ok(Admission::Append { .. }) => "append",
            Ok(Admission::Close { .. }) => "close",
            Ok(Admission::AlreadyClosed) => "already closed",
            Ok(Admission::Duplicate { closed: false, .. }) => "duplicate",
            Ok(Admission::Duplicate { closed: true, .. }) => "duplicate close",
            Err(AppendRejection::Closed { .. }) => "closed",
            Err(AppendRejection::ContentTypeMismatch { .. }) => "content type mismatch",
            Err(AppendRejection::ContentTypeMissing) => "content type missing",
            Err(AppendRejection::SeqRegression { .. }) => "seq regression",
            Err(AppendRejection::Producer(ProducerRejection::Fenced { .. })) => "fenced",
            Err(AppendRejection::Producer(ProducerRejection::EpochMustStartAtZero)) => "epoch start",
            Err(AppendRejection::Producer(ProducerRejection::Gap { .. })) => "gap",
            Err(AppendRejection::Empty) => "empty",
            Err(AppendRejection::TailMismatch { .. }) => "another tail",
        });
    }

    /// Tries every request after `history`, then goes on from each that was accepted.
    fn explore(
        &mut self,
        alphabet: &[Request],
        stream: &Stream,
        history: &mut Vec<Request>,
        requests: usize,
    ) {
        for request in alphabet {
            let answer = stream.admit(request);
            assert_eq!(answer, model(history, request), "{request:?} after {history:#?}");
            self.count(&answer);
            if let Some(next) = stream.after(request, &answer)
                && requests > 1
            {
                history.push(request.clone());
                self.explore(alphabet, &next, history, requests - 1);
                history.pop();
            }
        }
    }
}

fn explore(alphabet: &[Request], requests: usize) -> Coverage {
    let mut coverage = Coverage::default();
    coverage.explore(alphabet, &Stream::default(), &mut Vec::new(), requests);
    coverage
}

#[test]
fn all_short_interleavings_of_producers_and_closing_are_judged_as_the_model_does() {
    let json = [Some("application/json")];
    let one = explore(&alphabet(&["a"], 3, &json, &[None]), 6);
    assert!(one.answers > 10_000, "{}", one.answers);
    assert_eq!(one.kinds.len(), 10, "{:?}", one.kinds);
    let two = explore(&alphabet(&["a", "b"], 3, &json, &[None]), 5);
    assert!(two.answers > 50_000, "{}", two.answers);
    assert_eq!(two.kinds.len(), 10, "{:?}", two.kinds);
}

#[test]
fn all_short_mixtures_of_every_header_are_judged_as_the_model_does() {
    let types = [None, Some("application/json;v=1"), Some("text/plain")];
    let all = explore(&alphabet(&["a"], 2, &types, &[None, Some("10"), Some("9")]), 4);
    assert!(all.answers > 50_000, "{}", all.answers);
    assert_eq!(all.kinds.len(), 13, "{:?}", all.kinds);
}

#[test]
fn a_retry_is_a_duplicate_although_its_stream_seq_is_used_up() {
    let [.., request] = &alphabet(&["a"], 1, &[Some("application/json")], &[Some("1")])[..] else { panic!() };
    let request = Request { close: false, ..request.clone() };
    let stream = Stream::default();
    let stream = stream.after(&request, &stream.admit(&request)).unwrap();
    let state = ProducerState { epoch: 0, seq: 0 };
    assert_eq!(stream.admit(&request), Ok(Admission::Duplicate { state, closed: false }));
    let other = Request { producer: None, ..request };
    let regression = AppendRejection::SeqRegression { last: "1".into(), received: "1".into() };
    assert_eq!(stream.admit(&other), Err(regression));
}

#[test]
fn stream_seq_is_compared_byte_by_byte() {
    let append = |seq| Request {
        content_type: Some(STREAM_TYPE),
        has_data: true,
        close: false,
        seq: Some(seq),
        producer: None,
    };
    for (last, next, accepted) in [
        ("09", "10", true),
        ("2", "10", false),
        ("a", "B", false),
        ("B", "a", true),
        ("1", "1", false),
        ("1", "10", true),
    ] {
        let stream = Stream { last_seq: Some(last), ..Stream::default() };
        assert_eq!(stream.admit(&append(next)).is_ok(), accepted, "{last} then {next}");
    }
}

#[test]
fn an_expected_tail_is_compared_last_and_a_retry_never_fails_it() {
    let stamp = ProducerStamp { id: ProducerId::parse("p").expect("a producer"), epoch: 0, seq: 0 };
    let intent = |expected_tail, producer| AppendIntent {
        content_type: Some(&STREAM_TYPE),
        has_data: true,
        close: false,
        seq: None,
        producer,
        expected_tail,
    };
    let view = |closed, producer| StreamView {
        closed,
        closed_by: None,
        content_type: &STREAM_TYPE,
        last_seq: None,
        tail: Offset::new(1, 9),
        producer,
    };
    let (right, wrong) = (Some(Offset::new(1, 9)), Some(Offset::new(1, 8)));
    assert_eq!(admit(&view(false, None), &intent(right, None)), Ok(Admission::Append { producer: None }));
    let mismatch = AppendRejection::TailMismatch { tail: Offset::new(1, 9) };
    assert_eq!(admit(&view(false, None), &intent(wrong, Some(&stamp))), Err(mismatch));
    let closed = AppendRejection::Closed { tail: Offset::new(1, 9) };
    assert_eq!(admit(&view(true, None), &intent(wrong, None)), Err(closed));
    let known = stamp.state();
    let repeated = admit(&view(false, Some(known)), &intent(wrong, Some(&stamp)));
    assert_eq!(repeated, Ok(Admission::Duplicate { state: known, closed: false }));
}
