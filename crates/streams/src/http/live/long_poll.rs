//! `GET` with `live=long-poll`: one response once there is data, or none when the time is up (PROTOCOL §5.7).

use alluvium_http::Response;
use alluvium_protocol::{StreamPath, etag};
use http::{StatusCode, header};
use tokio::time::Instant;

use super::{Waited, renewal_period, wait};
use crate::{
    backend::{Found, Source},
    http::{
        body::found_body,
        error::Failure,
        headers::{
            NO_STORE, STREAM_CLOSED, STREAM_UP_TO_DATE, TRUE, respond, set_earliest, set_incarnation,
            set_next_offset,
        },
        read::{Wanted, describe, framing, set_cursor},
    },
    state::State,
    waiters::Kind,
};

/// Answers with what is wanted, waiting for it if need be.
pub(in crate::http) async fn handle(
    streams: &State,
    path: &StreamPath,
    mut source: Source,
    wanted: Wanted,
    cursor: u64,
) -> Result<Response, Failure> {
    let mut found = source.read(streams, wanted.from, wanted.max_bytes).await?;
    if found.len == 0 && !found.closed {
        found = wait_for_data(streams, path, &mut source, wanted, found).await?;
    }
    if found.len == 0 {
        let mut response = nothing_new(streams, &found, cursor);
        let head = source.facts();
        set_incarnation(response.headers_mut(), head.incarnation);
        set_earliest(response.headers_mut(), head.floor);
        return Ok(response);
    }
    let head = source.facts();
    let etag = etag::etag(head.incarnation, found.start, found.end, found.closed);
    let mut response = respond(StatusCode::OK);
    describe(streams, &head, &found, etag, response.headers_mut());
    set_cursor(response.headers_mut(), streams.cursor_from(cursor));
    let found = found.sent_mapped(wanted.takes_mapped);
    *response.body_mut() = found_body(&streams.options.responses, found, framing(&head)).await?;
    Ok(response)
}

/// What there is once there is something in it or the stream is closed; an empty one when the time is up.
async fn wait_for_data(
    streams: &State,
    path: &StreamPath,
    source: &mut Source,
    wanted: Wanted,
    mut found: Found,
) -> Result<Found, Failure> {
    let _waiting = streams.waiters.take(Kind::LongPoll).ok_or(Failure::WaitersBusy)?;
    let deadline = Instant::now() + streams.options.long_poll_timeout;
    let renewal = renewal_period(source.facts().lifetime);
    while found.len == 0 && !found.closed {
        let until = renewal.map_or(deadline, |period| deadline.min(Instant::now() + period));
        match wait(source, wanted.from, until, streams.shutdown.wait()).await {
            Waited::News => found = source.read(streams, wanted.from, wanted.max_bytes).await?,
            Waited::Stopping => break,
            Waited::TimeUp if until == deadline => break,
            Waited::TimeUp => source.renew(streams, path).await?,
        }
    }
    Ok(found)
}

fn nothing_new(streams: &State, found: &Found, cursor: u64) -> Response {
    let mut response = respond(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    set_next_offset(headers, found.end);
    headers.insert(&STREAM_UP_TO_DATE, TRUE);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if found.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    } else {
        set_cursor(headers, streams.cursor_from(cursor));
    }
    response
}
