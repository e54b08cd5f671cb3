//! The three live feeds: from a request to a subscriber.

use std::sync::Arc;
use std::time::Duration;

use alluvium_access::Lease;
use alluvium_http::{Body, Request, Response, query};
use alluvium_jetstream_wire::{Compression, Subscription, Wire, dictionary, render, update};
use alluvium_websocket::{
    AcceptOptions, ConnectionOptions, Deflate, DeflateOptions, Limits, WebSocket, accept,
};
use http::{HeaderName, HeaderValue};

use super::State;
use super::refusal::Refusal;
use super::segments::blocking;
use crate::addresses;
use crate::forms::{DEFLATE_WINDOW_BITS, Form};
use crate::live::{Subscriber, Wanted};
use crate::metrics::CursorMode;
use crate::resolve::{self, Start};

/// The subprotocol of proposal 0015.
const SUBPROTOCOL: &str = "xrpc.v1.json";
/// How long a subscriber may take for the end of its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Where a feed may begin at the earliest, told with the answer to the handshake.
const FLOOR_SEQ: HeaderName = HeaderName::from_static("x-jetstream-floor-seq");
/// When that was seen, in microseconds since the Unix epoch.
const FLOOR_TIME: HeaderName = HeaderName::from_static("x-jetstream-floor-time");

pub(super) async fn handle(state: &Arc<State>, wire: Wire, request: Request) -> Result<Response, Refusal> {
    let encoding = request.headers().get("socket-encoding").and_then(|value| value.to_str().ok());
    let wanted = Subscription::parse(wire, query(&request), encoding, dictionary::known(wire))?;
    let (archive, lookback) = (state.archive.clone(), state.options.lookback);
    let cursor = wanted.cursor;
    let start = blocking(move || Ok(resolve::start(&archive, lookback, wire, cursor)?)).await;
    let mode = start.as_ref().map_or(CursorMode::Failed, |start| start.mode(cursor, lookback));
    state.metrics.count_cursor(mode);
    let start = start?;
    let waits_for_hello = wanted.require_hello && wire != Wire::Events;
    let (start, notice) = match start {
        // What comes while the answer is on its way belongs to the feed, unless the client has yet to say what it wants.
        Start::Live => ((!waits_for_hello).then(|| state.archive.next_seq()), None),
        Start::At(seq) => (Some(seq), None),
        Start::Clamped(seq) => (Some(seq), (wire == Wire::Events).then(|| outdated(seq))),
        Start::TooOld { cursor, floor } => return Err(Refusal::CursorTooOld { cursor, floor }),
    };
    // A client cannot take back its browser's offer to compress. With a dictionary it is declined.
    let may_deflate = wire == Wire::V1 && wanted.compression == Compression::Socket && state.options.deflate;
    let options = AcceptOptions {
        subprotocols: if wire == Wire::Events { &[SUBPROTOCOL] } else { &[] },
        deflate: may_deflate.then(deflate_options),
    };
    let accepted = accept(&request, &options)?;
    let client = addresses::client(&request);
    let admitted = state.admit(client)?;
    let room = state.filters.room(&wanted.filter).ok_or(Refusal::Filters)?;
    let replay = state.admit_replay(client, start)?;
    let deflate = accepted.deflate;
    let form = match wanted.compression {
        Compression::Zstd(id) => dictionary::find(id).map_or(Form::Text, Form::Zstd),
        Compression::Socket if deflate.is_some_and(fits_all) => Form::Deflated,
        Compression::Socket | Compression::None => Form::Text,
    };
    let subscriber = Subscriber {
        state: Arc::clone(state),
        wire,
        form,
        wanted: Arc::new(Wanted { filter: wanted.filter, _room: room }),
        client,
        peer: addresses::peer(&request),
        start,
        notice,
        waits_for_hello,
        lease: request.extensions().get::<Lease>().cloned(),
        replay,
    };
    let socket_options = connection_options(state);
    let floor = resolve::floor(&state.archive, state.options.lookback);
    let mut response = accepted.response.map(|()| {
        Body::upgrade(async move |stream| {
            let socket = WebSocket::server(stream, deflate.as_ref(), socket_options);
            subscriber.run(socket).await;
            drop(admitted);
        })
    });
    response.headers_mut().insert(FLOOR_SEQ, HeaderValue::from(floor));
    if let Some(time) = resolve::floor_time(&state.archive, floor) {
        response.headers_mut().insert(FLOOR_TIME, HeaderValue::from(time));
    }
    Ok(response)
}

/// Whether the client takes what is deflated once for all. One that keeps a smaller window is sent plain text.
const fn fits_all(deflate: Deflate) -> bool {
    deflate.server_max_window_bits >= DEFLATE_WINDOW_BITS
}

/// Each message is deflated alone, so that all clients can be sent the same bytes.
fn deflate_options() -> DeflateOptions {
    DeflateOptions {
        #[cfg(feature = "planted-bugs")]
        server_no_context_takeover: !alluvium_jss::planted::is_planted(
            alluvium_jss::planted::Bug::TakeoverTold,
        ),
        #[cfg(not(feature = "planted-bugs"))]
        server_no_context_takeover: true,
        client_no_context_takeover: true,
        server_max_window_bits: DEFLATE_WINDOW_BITS,
        ..DeflateOptions::default()
    }
}

fn connection_options(state: &State) -> ConnectionOptions {
    ConnectionOptions {
        limits: Limits {
            frame_bytes_max: update::MESSAGE_BYTES_MAX,
            message_bytes_max: update::MESSAGE_BYTES_MAX,
            ..Limits::default()
        },
        outgoing_bytes_max: state.options.outgoing_bytes_max,
        ping_interval: Some(state.options.ping_interval),
        write_timeout: state.options.write_timeout,
        close_timeout: CLOSE_TIMEOUT.min(state.options.write_timeout),
        ..ConnectionOptions::default()
    }
}

fn outdated(seq: u64) -> String {
    render::info(
        "OutdatedCursor",
        &format!("the cursor is older than what this feed gives; it begins at {seq}"),
    )
}
