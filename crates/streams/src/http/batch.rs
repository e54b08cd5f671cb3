//! `POST …/append-batch`: many appends in one request and one commit. An addition of this project to the extensions.
//!
//! The body is frames, each four bytes of length (big endian) and as many bytes. Each frame is appended as a request
//! of its own would be, in order and with nothing of others in between; one that is refused does not keep the rest
//! back. The answer lists what became of each.

use alluvium_engine::{AppendError, AppendRequest, Appended, BATCH_FRAMES_MAX};
use alluvium_http::Response;
use alluvium_protocol::{
    ProducerStamp, StreamPath,
    batch::{InvalidFrames, split_frames},
    limits::INTEGER_MAX,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use super::{
    Request, append,
    bucket::json_response,
    collect_body,
    error::{self, Failure},
    headers::{self, PREFER, PREFERENCE_APPLIED, STREAM_INCARNATION, STREAM_SEQ, set_incarnation},
};
use crate::state::State;

/// What a store without them is said not to support.
pub(super) const BATCHES: &str = "batches of appends";

/// What became of one frame.
#[derive(Serialize)]
struct Item {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_next_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

#[derive(Serialize)]
struct ItemError {
    code: &'static str,
    message: String,
}

/// Appends the frames. Answered once all that was taken is durable.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    let engine = streams.backend.engine(BATCHES)?;
    let whole = append::read_headers(request.headers())?;
    if request.headers().contains_key(&STREAM_SEQ) {
        return Err(Failure::InvalidBatch("`Stream-Seq` stands for one append; a batch cannot have it"));
    }
    let body = collect_body(streams, request).await?;
    let frames = requests(&whole, split(body)?)?;
    let by_producer = frames.first().is_some_and(|frame| frame.producer.is_some());
    let before = engine.head(path)?.incarnation;
    let outcomes = engine.append_batch(path, frames, whole.expected_tail).await?;
    let mut response = answer(&outcomes, by_producer, request.headers())?;
    // A frame that was taken tells which stream it was. If none was, it is the one that was there all the time.
    if !response.headers().contains_key(&STREAM_INCARNATION)
        && engine.head(path).is_ok_and(|head| head.incarnation == before)
    {
        set_incarnation(response.headers_mut(), before);
    }
    Ok(response)
}

/// Cuts a body into its frames.
fn split(body: Bytes) -> Result<Vec<Bytes>, Failure> {
    split_frames(body, BATCH_FRAMES_MAX).map_err(|invalid| {
        Failure::InvalidBatch(match invalid {
            InvalidFrames::Length => "the body ends inside the length of a frame",
            InvalidFrames::Frame => "the body ends inside a frame",
            InvalidFrames::TooMany => "the batch has too many frames",
            InvalidFrames::None => "the batch has no frames",
        })
    })
}

/// One request a frame: the headers hold for each, a producer's sequence counts on from frame to frame, and the last
/// one closes if the batch does.
fn requests(whole: &AppendRequest, frames: Vec<Bytes>) -> Result<Vec<AppendRequest>, Failure> {
    let last = frames.len() - 1;
    let stamp = |index: usize| match &whole.producer {
        None => Ok(None),
        Some(first) => {
            let seq = first.seq + index as u64;
            if seq > INTEGER_MAX {
                return Err(Failure::InvalidBatch("the producer's sequence passes its end within the batch"));
            }
            Ok(Some(ProducerStamp { seq, ..first.clone() }))
        }
    };
    let request = |(index, body)| {
        Ok(AppendRequest {
            content_type: whole.content_type.clone(),
            body,
            producer: stamp(index)?,
            close: whole.close && index == last,
            expected_incarnation: whole.expected_incarnation,
            retry_metadata: whole.retry_metadata.clone(),
            ..AppendRequest::default()
        })
    };
    frames.into_iter().enumerate().map(request).collect()
}

/// If no frame was taken and all for the same reason, that is the answer. Otherwise each has its own in a list, which
/// is left out if the client does not care and there is nothing else to tell.
fn answer(
    outcomes: &[Result<Appended, AppendError>],
    by_producer: bool,
    request: &HeaderMap,
) -> Result<Response, Failure> {
    let refusals: Vec<&AppendError> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    if let Some(first) = refusals.first()
        && refusals.len() == outcomes.len()
        && refusals.iter().all(|refusal| error::append(refusal) == error::append(first))
    {
        return Err(Failure::Append((*first).clone()));
    }
    let wants_no_list = headers::text(request, &PREFER)?.is_some_and(prefers_minimal);
    let mut response = if refusals.is_empty() && wants_no_list {
        let mut response = headers::respond(StatusCode::NO_CONTENT);
        response.headers_mut().insert(&PREFERENCE_APPLIED, HeaderValue::from_static("return=minimal"));
        response
    } else {
        let items: Vec<Item> = outcomes.iter().map(|outcome| item(outcome, by_producer)).collect();
        json_response(StatusCode::OK, &items)
    };
    if let Some(last) = outcomes.iter().rev().find_map(|outcome| outcome.as_ref().ok()) {
        append::describe(last, response.headers_mut());
    }
    Ok(response)
}

/// Whether `Prefer` (RFC 7240) asks for as little as possible.
fn prefers_minimal(prefer: &str) -> bool {
    prefer.split(',').any(|preference| preference.trim().eq_ignore_ascii_case("return=minimal"))
}

fn item(outcome: &Result<Appended, AppendError>, by_producer: bool) -> Item {
    match outcome {
        Ok(appended) => Item {
            status: append::status(appended, by_producer).as_u16(),
            stream_next_offset: Some(appended.tail.to_string()),
            error: None,
        },
        Err(error) => {
            let (status, code) = error::append(error);
            let error = ItemError { code, message: error.to_string() };
            Item { status: status.as_u16(), stream_next_offset: None, error: Some(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_counts_on_and_the_last_frame_closes() {
        let producer = ProducerStamp::parse(Some("p"), Some("0"), Some("7")).expect("valid");
        let whole = AppendRequest { producer, close: true, ..AppendRequest::default() };
        let requests =
            requests(&whole, vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")]).expect("valid");
        let seqs: Vec<_> = requests.iter().map(|one| one.producer.as_ref().map(|stamp| stamp.seq)).collect();
        assert_eq!(seqs, [Some(7), Some(8)]);
        assert_eq!(requests.iter().map(|one| one.close).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn preferences_are_a_list() {
        assert!(prefers_minimal("respond-async, Return=Minimal"));
        assert!(!prefers_minimal("return=representation"));
    }
}
