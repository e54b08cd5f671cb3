//! `GET` with `live=long-poll`: one response once there is data, or none when the time is up (PROTOCOL §5.7).

use alluvium_engine::{ReadPlan, StreamReader};
use alluvium_http::Response;
use alluvium_protocol::{StreamPath, etag};
use http::{StatusCode, header};
use tokio::time::Instant;

use super::{Waited, renewal_period, wait};
use crate::{
    http::{
        body::read_body,
        error::Failure,
        headers::{
            NO_STORE, STREAM_CLOSED, STREAM_UP_TO_DATE, TRUE, respond, set_incarnation, set_next_offset,
        },
        read::{Wanted, describe, framing, set_cursor},
    },
    state::State,
};

/// Answers with what is wanted, waiting for it if need be.
pub(in crate::http) async fn handle(
    streams: &State,
    path: &StreamPath,
    reader: StreamReader,
    wanted: Wanted,
    cursor: u64,
) -> Result<Response, Failure> {
    let mut plan = wanted.plan(streams, &reader).await?;
    if plan.len == 0 && !plan.closed {
        plan = wait_for_data(streams, path, &reader, wanted, plan).await?;
    }
    if plan.len == 0 {
        let mut response = nothing_new(streams, &plan, cursor);
        set_incarnation(response.headers_mut(), reader.incarnation());
        return Ok(response);
    }
    let head = reader.head();
    let etag = etag::etag(head.incarnation, plan.start, plan.end, plan.closed);
    let mut response = respond(StatusCode::OK);
    describe(streams, &head, &plan, etag, response.headers_mut());
    set_cursor(response.headers_mut(), streams.cursor_from(cursor));
    *response.body_mut() = read_body(&streams.options.responses, plan, framing(&head)).await?;
    Ok(response)
}

/// The plan once there is something in it or the stream is closed; an empty one when the time is up.
async fn wait_for_data(
    streams: &State,
    path: &StreamPath,
    reader: &StreamReader,
    wanted: Wanted,
    mut plan: ReadPlan,
) -> Result<ReadPlan, Failure> {
    let _waiting = streams.waiters.take().ok_or(Failure::WaitersBusy)?;
    let deadline = Instant::now() + streams.options.long_poll_timeout;
    let renewal = renewal_period(reader.head().lifetime);
    while plan.len == 0 && !plan.closed {
        let until = renewal.map_or(deadline, |period| deadline.min(Instant::now() + period));
        match wait(reader, wanted.from, until, streams.shutdown.wait()).await {
            Waited::News => plan = wanted.plan(streams, reader).await?,
            Waited::Stopping => break,
            Waited::TimeUp if until == deadline => break,
            Waited::TimeUp => drop(streams.engine.open_stream(path)?),
        }
    }
    Ok(plan)
}

fn nothing_new(streams: &State, plan: &ReadPlan, cursor: u64) -> Response {
    let mut response = respond(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    set_next_offset(headers, plan.end);
    headers.insert(&STREAM_UP_TO_DATE, TRUE);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if plan.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    } else {
        set_cursor(headers, streams.cursor_from(cursor));
    }
    response
}
