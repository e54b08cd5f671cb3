//! `POST`: appends to a stream, closes it, or both (PROTOCOL §5.2, §5.3).

use alluvium_engine::{AppendRequest, Appended};
use alluvium_http::Response;
use alluvium_protocol::{
    Offset, ProducerStamp, StreamPath, limits::STREAM_SEQ_BYTES_MAX, store::RetryMetadata,
};
use http::{HeaderMap, StatusCode, header};

use super::{
    Request, collect_body,
    error::{Failure, InvalidContract},
    headers::{
        self, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_RETRY_METADATA, PRODUCER_SEQ, STREAM_CLOSED, STREAM_SEQ,
        TRUE, respond, set_incarnation, set_next_offset, set_number,
    },
};
use crate::state::State;

/// Appends the body as one unit. Answered once it is durable.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    let mut append = read_headers(request.headers())?;
    append.body = collect_body(streams, request).await?;
    let new_data_by_producer = append.producer.is_some() && !append.body.is_empty();
    let appended = streams.backend.append(path, append).await?;
    Ok(answer(&appended, new_data_by_producer))
}

/// What the headers of an append say; the body is still to come.
pub(super) fn read_headers(headers: &HeaderMap) -> Result<AppendRequest, Failure> {
    let seq = headers::text(headers, &STREAM_SEQ)?;
    if seq.is_some_and(|seq| seq.len() > STREAM_SEQ_BYTES_MAX) {
        return Err(Failure::SeqTooLong);
    }
    Ok(AppendRequest {
        content_type: headers::content_type(headers)?,
        seq: seq.map(str::to_owned),
        producer: ProducerStamp::parse(
            headers::text(headers, &PRODUCER_ID)?,
            headers::text(headers, &PRODUCER_EPOCH)?,
            headers::text(headers, &PRODUCER_SEQ)?,
        )?,
        close: headers::is_true(headers, &STREAM_CLOSED),
        expected_tail: expected_tail(headers)?,
        expected_incarnation: headers::expected_incarnation(headers)?,
        retry_metadata: match headers::text(headers, &PRODUCER_RETRY_METADATA)? {
            None => None,
            Some(text) => Some(RetryMetadata::parse(text).map_err(InvalidContract::from)?),
        },
        ..AppendRequest::default()
    })
}

/// The tail that `If-Match` names, as one entity tag: the offset in quotes. `*` asks for nothing that an append does
/// not need anyway.
fn expected_tail(headers: &HeaderMap) -> Result<Option<Offset>, Failure> {
    match headers::text(headers, &header::IF_MATCH)?.map(str::trim) {
        None | Some("*") => Ok(None),
        Some(tag) => {
            let offset = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let offset = offset.and_then(|offset| offset.parse().ok());
            offset.map(Some).ok_or(Failure::InvalidIfMatch)
        }
    }
}

fn answer(appended: &Appended, new_data_by_producer: bool) -> Response {
    let mut response = respond(status(appended, new_data_by_producer));
    describe(appended, response.headers_mut());
    response
}

/// `200` tells a producer that its data is new, `204` covers everything else (PROTOCOL §5.2.1).
pub(super) fn status(appended: &Appended, new_data_by_producer: bool) -> StatusCode {
    if new_data_by_producer && !appended.duplicate { StatusCode::OK } else { StatusCode::NO_CONTENT }
}

/// The headers that tell what an append came to.
pub(super) fn describe(appended: &Appended, headers: &mut HeaderMap) {
    set_next_offset(headers, appended.tail);
    set_incarnation(headers, appended.incarnation);
    if appended.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
    if let Some(producer) = appended.producer {
        set_number(headers, &PRODUCER_EPOCH, producer.epoch);
        set_number(headers, &PRODUCER_SEQ, producer.seq);
    }
}
