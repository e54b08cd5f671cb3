//! `GET` without `live`: a catch-up read (PROTOCOL §5.6), and what all reads have in common.

use std::sync::Arc;

use alluvium_engine::ReadError;
use alluvium_http::{Peer, Response};
use alluvium_protocol::{Lifetime, Offset, OffsetQuery, StreamPath, etag, header::LiveMode};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Request,
    body::{Framing, found_body},
    error::Failure,
    headers::{
        self, NO_CACHE, NO_STORE, STREAM_CLOSED, STREAM_CURSOR, STREAM_UP_TO_DATE, TRUE, ascii, respond,
        set_content_type, set_earliest, set_incarnation, set_next_offset, set_number,
    },
    live::{long_poll, sse},
    query::ReadQuery,
};
use crate::{
    backend::{Facts, Found, Source},
    limits::{CACHE_FRESH_S, CACHE_STALE_S},
    options::CacheVisibility,
    state::State,
};

/// Looks for the start of a stream that is trimmed as it is looked for. Each finds a later one.
const STARTS_MAX: usize = 8;

/// Answers a read in the mode its query asks for.
pub(super) async fn handle(
    streams: &Arc<State>,
    path: StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    let query = ReadQuery::parse(request.uri().query())?.resumed(request.headers())?;
    let looks = if query.offset == OffsetQuery::Start { STARTS_MAX } else { 1 };
    for _ in 1..looks {
        match answer(streams, path.clone(), request, &query).await {
            // What was found as the start has been given up since: nobody has asked for it.
            Err(Failure::Read(ReadError::Retained { snapshot: None, .. })) => {}
            answered => return answered,
        }
    }
    answer(streams, path, request, &query).await
}

async fn answer(
    streams: &Arc<State>,
    path: StreamPath,
    request: &Request,
    query: &ReadQuery<'_>,
) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    let (mut source, from) = streams.backend.open(&path, expected, query.offset).await?;
    let cursor = || streams.cursor_after(query.cursor.as_deref());
    let wanted = Wanted { from, max_bytes: query.max_bytes, takes_mapped: Peer::takes_mapped(request) };
    match query.live {
        Some(LiveMode::LongPoll) => long_poll::handle(streams, &path, source, wanted, cursor()?).await,
        Some(LiveMode::Sse) => sse::handle(streams, path, source, from, cursor()?).await,
        None if query.offset == OffsetQuery::Now => Ok(at_tail(&source, from)),
        None => catch_up(streams, &mut source, wanted, request.headers()).await,
    }
}

/// What a finite read is to bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Where it starts.
    pub(super) from: Offset,
    /// Most stored bytes that the client wants, more only if a single message is larger.
    pub(super) max_bytes: Option<u64>,
    /// Whether they may be given as slices of mapped files.
    pub(super) takes_mapped: bool,
}

async fn catch_up(
    streams: &State,
    source: &mut Source,
    wanted: Wanted,
    request: &HeaderMap,
) -> Result<Response, Failure> {
    let found = source.read(streams, wanted.from, wanted.max_bytes).await?;
    let facts = source.facts();
    let etag = etag::etag(facts.incarnation, found.start, found.end, found.closed);
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
    describe(streams, &facts, &found, etag, response.headers_mut());
    if !unchanged {
        let found = found.sent_mapped(wanted.takes_mapped);
        *response.body_mut() = found_body(&streams.options.responses, found, framing(&facts)).await?;
    }
    Ok(response)
}

/// `offset=now`: no data, only where the stream ends (PROTOCOL §8). Never cached and never tagged, because the next
/// answer may name another place.
fn at_tail(source: &Source, tail: Offset) -> Response {
    let head = source.facts();
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    set_content_type(headers, &head.content_type);
    set_next_offset(headers, tail);
    set_incarnation(headers, head.incarnation);
    set_earliest(headers, head.floor);
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

pub(super) fn framing(head: &Facts) -> Framing {
    if head.content_type.is_json() { Framing::JsonArray } else { Framing::Plain }
}

/// The headers of a response with what was found (PROTOCOL §5.6).
pub(super) fn describe(streams: &State, head: &Facts, found: &Found, etag: String, headers: &mut HeaderMap) {
    set_content_type(headers, &head.content_type);
    set_next_offset(headers, found.end);
    set_incarnation(headers, head.incarnation);
    set_earliest(headers, head.floor);
    headers.insert(header::ETAG, ascii(Bytes::from(etag)));
    headers.insert(header::CACHE_CONTROL, cache_control_of(streams, head, found.len == 0));
    if found.at_tail {
        headers.insert(&STREAM_UP_TO_DATE, TRUE);
    }
    if found.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
}

/// The headers of a live response at the tail.
pub(super) fn set_cursor(headers: &mut HeaderMap, cursor: u64) {
    set_number(headers, &STREAM_CURSOR, cursor);
}

/// What was read of a stream whose floor moves should not outlive the floor in a shared cache, unless its operator
/// does not mind.
fn cache_control_of(streams: &State, head: &Facts, is_empty: bool) -> HeaderValue {
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
