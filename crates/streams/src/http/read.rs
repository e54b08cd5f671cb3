//! `GET` without `live`: a catch-up read (PROTOCOL §5.6), and what all reads have in common.

use std::sync::Arc;

use alluvium_engine::{End, Head, ReadError, ReadPlan, StreamReader};
use alluvium_http::{Request, Response};
use alluvium_protocol::{Lifetime, Offset, OffsetQuery, StreamPath, etag, header::LiveMode};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    body::{Framing, on_blocking_thread, read_body},
    claim::check,
    error::Failure,
    headers::{
        self, NO_CACHE, NO_STORE, STREAM_CLOSED, STREAM_CURSOR, STREAM_UP_TO_DATE, TRUE, ascii, respond,
        set_content_type, set_incarnation, set_next_offset, set_number,
    },
    live::{long_poll, sse},
    query::ReadQuery,
};
use crate::{
    limits::{CACHE_FRESH_S, CACHE_STALE_S},
    options::CacheVisibility,
    state::State,
};

/// Answers a read in the mode its query asks for.
pub(super) async fn handle(
    streams: &Arc<State>,
    path: StreamPath,
    request: Request,
) -> Result<Response, Failure> {
    let query = ReadQuery::parse(request.uri().query())?;
    let expected = headers::expected_incarnation(request.headers())?;
    let reader = streams.engine.open_stream(&path)?;
    check(expected, reader.incarnation())?;
    let from = resolve(&reader, query.offset).await?;
    let cursor = || streams.cursor_after(query.cursor.as_deref());
    match query.live {
        Some(LiveMode::LongPoll) => {
            let wanted = Wanted { from, max_bytes: query.max_bytes };
            long_poll::handle(streams, &path, reader, wanted, cursor()?).await
        }
        Some(LiveMode::Sse) => sse::handle(streams, path, reader, from, cursor()?).await,
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
    pub(super) async fn plan(self, streams: &State, reader: &StreamReader) -> Result<ReadPlan, ReadError> {
        let limit = streams.options.read_bytes_max;
        match self.max_bytes {
            Some(max) if max < limit => {
                let end = reader.end()?;
                let (looking, from) = (reader.clone(), self.from);
                let tail = on_blocking_thread(move || looking.bounded_end(from, max)).await?;
                let closed = end.closed && tail == end.tail;
                let mut plan = reader.read_to(self.from, End { tail, closed }, u64::MAX)?;
                plan.at_tail = tail == end.tail;
                Ok(plan)
            }
            _ => reader.read(self.from, limit),
        }
    }
}

/// Finds the offset, in place if that takes no waiting for the disk, else where blocking is allowed.
async fn resolve(reader: &StreamReader, query: OffsetQuery) -> Result<Offset, Failure> {
    if let Some(offset) = reader.resolve_cached(query)? {
        return Ok(offset);
    }
    let reader = reader.clone();
    Ok(on_blocking_thread(move || reader.resolve(query)).await?)
}

async fn catch_up(
    streams: &State,
    reader: &StreamReader,
    wanted: Wanted,
    request: &HeaderMap,
) -> Result<Response, Failure> {
    let plan = wanted.plan(streams, reader).await?;
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
        *response.body_mut() = read_body(&streams.options.responses, plan, framing(&head)).await?;
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
    set_incarnation(headers, head.incarnation);
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
    set_incarnation(headers, head.incarnation);
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
    cache_control(streams.options.cache_visibility, head.lifetime, streams.now_ms(), is_empty)
}

/// How long a response may be cached (PROTOCOL §10.1). Bytes at a position never change, so responses with data may
/// be, as long as the stream lives. "Nothing new yet" is asked again each time, which the entity tag makes cheap.
fn cache_control(
    visibility: CacheVisibility,
    lifetime: Lifetime,
    now_ms: u64,
    is_empty: bool,
) -> HeaderValue {
    if is_empty {
        return NO_CACHE;
    }
    let Some(deadline_ms) = lifetime.deadline_ms(now_ms) else {
        return HeaderValue::from_static(match visibility {
            CacheVisibility::Public => PUBLIC,
            CacheVisibility::Private => PRIVATE,
        });
    };
    let lives_s = deadline_ms.saturating_sub(now_ms) / 1000;
    let fresh_s = lives_s.min(CACHE_FRESH_S);
    let stale_s = (lives_s - fresh_s).min(CACHE_STALE_S);
    let who = visibility.directive();
    ascii(Bytes::from(format!("{who}, max-age={fresh_s}, stale-while-revalidate={stale_s}")))
}

/// [`cache_control`] of a stream that does not expire, for each visibility.
const PUBLIC: &str = "public, max-age=60, stale-while-revalidate=300";
const PRIVATE: &str = "private, max-age=60, stale-while-revalidate=300";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_not_cached_past_the_end_of_its_stream() {
        let public = CacheVisibility::Public;
        let value = |seconds| cache_control(public, Lifetime::Ttl { seconds }, 1_000_000, false);
        assert_eq!(value(10), "public, max-age=10, stale-while-revalidate=0");
        assert_eq!(value(100), "public, max-age=60, stale-while-revalidate=40");
        assert_eq!(value(100_000), PUBLIC);
    }

    #[test]
    fn who_may_cache_is_said_whether_or_not_the_stream_expires() {
        for visibility in [CacheVisibility::Public, CacheVisibility::Private] {
            let who = visibility.directive();
            let expected = format!("{who}, max-age={CACHE_FRESH_S}, stale-while-revalidate={CACHE_STALE_S}");
            for lifetime in [Lifetime::Forever, Lifetime::Ttl { seconds: 100_000 }] {
                assert_eq!(cache_control(visibility, lifetime, 0, false), expected);
            }
            assert_eq!(cache_control(visibility, Lifetime::Forever, 0, true), NO_CACHE);
        }
    }
}
