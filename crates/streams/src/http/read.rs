//! `GET` without `live`: a catch-up read (PROTOCOL §5.6), and what all reads have in common.

use std::sync::Arc;

use alluvium_engine::{End, Head, ReadError, ReadPlan, StreamReader};
use alluvium_http::{Request, Response};
use alluvium_protocol::{Lifetime, Offset, OffsetQuery, StreamPath, etag, header::LiveMode};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    body::{Framing, read_body},
    error::Failure,
    headers::{
        self, NO_CACHE, NO_STORE, STREAM_CLOSED, STREAM_CURSOR, STREAM_UP_TO_DATE, TRUE, ascii, respond,
        set_content_type, set_next_offset, set_number,
    },
    live::{long_poll, sse},
    query::ReadQuery,
};
use crate::{
    limits::{CACHE_FRESH_S, CACHE_STALE_S},
    state::State,
};

/// Answers a read in the mode its query asks for.
pub(super) async fn handle(
    streams: &Arc<State>,
    path: StreamPath,
    request: Request,
) -> Result<Response, Failure> {
    let query = ReadQuery::parse(request.uri().query())?;
    let reader = streams.engine.open_stream(&path)?;
    let from = reader.resolve(query.offset)?;
    match query.live {
        Some(LiveMode::LongPoll) => {
            let wanted = Wanted { from, max_bytes: query.max_bytes };
            long_poll::handle(streams, &path, reader, wanted, query.cursor.as_deref()).await
        }
        Some(LiveMode::Sse) => sse::handle(streams, path, reader, from, query.cursor.as_deref()),
        None if query.offset == OffsetQuery::Now => Ok(at_tail(&reader, from)),
        None => {
            let wanted = Wanted { from, max_bytes: query.max_bytes };
            catch_up(streams, &reader, wanted, request.headers()).await
        }
    }
}

/// What a finite read is to bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Where it starts.
    pub(super) from: Offset,
    /// Most stored bytes that the client wants, more only if a single message is larger.
    pub(super) max_bytes: Option<u64>,
}

impl Wanted {
    /// Plans the read, within the client's bound and the server's.
    pub(super) fn plan(self, streams: &State, reader: &StreamReader) -> Result<ReadPlan, ReadError> {
        let limit = streams.options.read_bytes_max;
        match self.max_bytes {
            Some(max) if max < limit => {
                let end = reader.end()?;
                let tail = reader.bounded_end(self.from, max)?;
                let closed = end.closed && tail == end.tail;
                let mut plan = reader.read_to(self.from, End { tail, closed }, u64::MAX)?;
                plan.at_tail = tail == end.tail;
                Ok(plan)
            }
            _ => reader.read(self.from, limit),
        }
    }
}

async fn catch_up(
    streams: &State,
    reader: &StreamReader,
    wanted: Wanted,
    request: &HeaderMap,
) -> Result<Response, Failure> {
    let plan = wanted.plan(streams, reader)?;
    let head = reader.head();
    let etag = etag::etag(head.incarnation, plan.start, plan.end, plan.closed);
    let unchanged = match headers::text(request, &header::IF_NONE_MATCH) {
        Ok(Some(known)) => etag::if_none_match(known, &etag),
        // Several lines mean the same as one with commas; each is compared.
        Ok(None) | Err(_) => request
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .any(|line| line.to_str().is_ok_and(|known| etag::if_none_match(known, &etag))),
    };
    let status = if unchanged { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = respond(status);
    describe(streams, &head, &plan, etag, response.headers_mut());
    if !unchanged {
        *response.body_mut() = read_body(plan, framing(&head)).await?;
    }
    Ok(response)
}

/// `offset=now`: no data, only where the stream ends (PROTOCOL §8). Never cached and never tagged, because the next
/// answer may name another place.
fn at_tail(reader: &StreamReader, tail: Offset) -> Response {
    let head = reader.head();
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    set_content_type(headers, &head.content_type);
    set_next_offset(headers, tail);
    headers.insert(&STREAM_UP_TO_DATE, TRUE);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if head.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
    if framing(&head) == Framing::JsonArray {
        *response.body_mut() = alluvium_http::Body::full(Bytes::from_static(b"[]"));
    }
    response
}

pub(super) fn framing(head: &Head) -> Framing {
    if head.content_type.is_json() { Framing::JsonArray } else { Framing::Plain }
}

/// The headers of a response with the data of `plan` (PROTOCOL §5.6).
pub(super) fn describe(streams: &State, head: &Head, plan: &ReadPlan, etag: String, headers: &mut HeaderMap) {
    set_content_type(headers, &head.content_type);
    set_next_offset(headers, plan.end);
    headers.insert(header::ETAG, ascii(Bytes::from(etag)));
    headers.insert(header::CACHE_CONTROL, cache_control_of(streams, head, plan.len == 0));
    if plan.at_tail {
        headers.insert(&STREAM_UP_TO_DATE, TRUE);
    }
    if plan.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
}

/// The headers of a live response at the tail.
pub(super) fn set_cursor(headers: &mut HeaderMap, cursor: u64) {
    set_number(headers, &STREAM_CURSOR, cursor);
}

/// What was read of a stream whose floor moves should not outlive the floor in a shared cache, unless its operator
/// does not mind.
fn cache_control_of(streams: &State, head: &Head, is_empty: bool) -> HeaderValue {
    if head.floor > Offset::ZERO && !streams.options.public_history {
        return NO_STORE;
    }
    cache_control(head.lifetime, streams.now_ms(), is_empty)
}

/// How long a response may be cached (PROTOCOL §10.1). Bytes at a position never change, so responses with data may
/// be, as long as the stream lives. "Nothing new yet" is asked again each time, which the entity tag makes cheap.
fn cache_control(lifetime: Lifetime, now_ms: u64, is_empty: bool) -> HeaderValue {
    if is_empty {
        return NO_CACHE;
    }
    let Some(deadline_ms) = lifetime.deadline_ms(now_ms) else {
        return HeaderValue::from_static(CACHEABLE);
    };
    let lives_s = deadline_ms.saturating_sub(now_ms) / 1000;
    let fresh_s = lives_s.min(CACHE_FRESH_S);
    let stale_s = (lives_s - fresh_s).min(CACHE_STALE_S);
    let value = format!("public, max-age={fresh_s}, stale-while-revalidate={stale_s}");
    ascii(Bytes::from(value))
}

/// [`cache_control`] of a stream that does not expire.
const CACHEABLE: &str = "public, max-age=60, stale-while-revalidate=300";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_not_cached_past_the_end_of_its_stream() {
        let value = |seconds| cache_control(Lifetime::Ttl { seconds }, 1_000_000, false);
        assert_eq!(value(10), "public, max-age=10, stale-while-revalidate=0");
        assert_eq!(value(100), "public, max-age=60, stale-while-revalidate=40");
        assert_eq!(value(100_000), CACHEABLE);
        assert_eq!(cache_control(Lifetime::Forever, 0, false), CACHEABLE);
        assert_eq!(
            CACHEABLE,
            format!("public, max-age={CACHE_FRESH_S}, stale-while-revalidate={CACHE_STALE_S}")
        );
    }
}
