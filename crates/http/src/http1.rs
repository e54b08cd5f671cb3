//! A connection that speaks HTTP/1.1.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Body, BodyError, Handler,
    admission::{HEAD_TOO_LARGE, TOO_MANY_HEADERS},
    connection::{Connection, Guard, IdleWatch},
    error::{ErrorShape, raw_error_response},
    framing::{Fault, Findings},
    limits::{BODY_CHUNK_BYTES_MAX, HEADERS_MAX, HEAVY_BYTES_MIN},
    line::Line,
    paced::Paced,
    responses::Outbox,
    socket::Socket,
    stream::Stream,
    upgrade::{Upgrade, Upgraded},
    wire::Wire,
};

/// How long a peer may take to read why its head was refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of what it still sends that are read meanwhile. A connection closed on them might lose the refusal.
const REFUSED_BYTES_MAX: usize = 1024 * 1024;

/// What the requests of the connection share beside what all have.
#[derive(Debug)]
struct State {
    requests: AtomicU64,
    findings: Arc<Findings>,
    outbox: Arc<Outbox>,
    /// The socket, unless there is TLS before it.
    wire: Option<Arc<Wire>>,
    /// How the connection goes on once HTTP is done with it.
    upgrade: Mutex<Option<Upgrade>>,
}

impl State {
    fn upgrade(&self) -> std::sync::MutexGuard<'_, Option<Upgrade>> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a connection came out of HTTP.
enum Ending {
    /// It is over, or goes on in another protocol.
    Over,
    /// A head came that is not looked at.
    Faulty(Fault),
}

/// Serves the connection until it ends.
pub(crate) async fn run<H: Handler>(
    stream: Stream,
    connection: Arc<Connection<H>>,
) -> Result<(), hyper::Error> {
    let shared = Arc::clone(&connection.shared);
    let outbox = Arc::new(Outbox::new(Arc::clone(&shared.responses)));
    let findings = Arc::new(Findings::default());
    let queries = shared.queries.clone();
    let wire = stream.wire().cloned();
    let socket =
        Socket::new(stream, Arc::clone(&findings), shared.header_bytes_max, queries, Arc::clone(&outbox));
    let io = Paced::new(socket, Arc::clone(&outbox));
    let requests = AtomicU64::new(0);
    let state = Arc::new(State { requests, findings, outbox, wire, upgrade: Mutex::new(None) });
    let watched = Arc::clone(&connection);
    let requests = Arc::clone(&state);
    let service = service_fn(move |request: http::Request<Incoming>| {
        answer(Arc::clone(&connection), Arc::clone(&requests), request)
    });
    let mut serving = builder(shared.header_bytes_max).serve_connection(io, service);
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    let mut look = std::pin::pin!(tokio::time::sleep(shared.idle_timeout));
    let mut idle = IdleWatch::new(shared.idle_timeout);
    let mut asked_to_end = false;
    let ending = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut serving).poll(cx) {
                return Poll::Ready(outcome.map(|()| Ending::Over));
            }
            if let Some((fault, number)) = state.findings.fault()
                && state.requests.load(Ordering::Relaxed) == number
                && !watched.activity.is_busy()
                && !state.outbox.is_socket_full()
            {
                return Poll::Ready(Ok(Ending::Faulty(fault)));
            }
            if !asked_to_end && shutdown.as_mut().poll(cx).is_ready() {
                asked_to_end = true;
                Pin::new(&mut serving).graceful_shutdown();
                continue;
            }
            std::task::ready!(look.as_mut().poll(cx));
            let Ok(pause) = idle.look(&watched.activity) else {
                shared.front.counters.connections_idle.add();
                return Poll::Ready(Ok(Ending::Over));
            };
            let next = look.deadline() + pause;
            look.as_mut().reset(next);
        }
    })
    .await?;
    let upgrade = state.upgrade().take();
    let http1::Parts { io, read_buf, .. } = serving.into_parts();
    let mut stream = io.into_inner().into_inner();
    if let Ending::Faulty(fault) = ending {
        let counters = &shared.front.counters;
        match fault {
            Fault::HeadTooLarge | Fault::TooManyHeaders | Fault::QueryTooLong => {
                counters.heads_too_large.add();
            }
            Fault::BareLineFeed | Fault::MalformedQuery => counters.heads_malformed.add(),
            Fault::TooManyQueries => counters.requests_refused.add(),
        }
        let (shape, query_bytes_max) = (shared.front.error_shape, shared.queries.bytes_max);
        // A peer that does not take it has had its chance.
        drop(tokio::time::timeout(REFUSAL_TIMEOUT, refuse(&mut stream, shape, fault, query_bytes_max)).await);
    // Where the answer is stuck behind what a peer has not read, it is lost with the rest.
    } else if let Some(upgrade) = upgrade.filter(|_| !state.outbox.is_socket_full()) {
        shared.front.counters.connections_upgraded.add();
        stream.put_back(read_buf);
        upgrade.go_on(Upgraded::new(stream)).await;
    }
    Ok(())
}

/// HTTP/1.1 within the limits of the server.
fn builder(header_bytes_max: usize) -> http1::Builder {
    // What is larger does not get here.
    let header_bytes_max = header_bytes_max.saturating_add(1);
    let mut builder = http1::Builder::new();
    builder
        .writev(true)
        .max_headers(HEADERS_MAX)
        .max_header_size(header_bytes_max)
        .max_buf_size(BODY_CHUNK_BYTES_MAX.max(header_bytes_max))
        .header_read_timeout(None);
    builder
}

async fn answer<H: Handler>(
    connection: Arc<Connection<H>>,
    state: Arc<State>,
    mut request: http::Request<Incoming>,
) -> Result<http::Response<PacedBody<H>>, Infallible> {
    connection.shared.front.counters.requests_http1.add();
    let guard = Guard::begin(connection);
    let number = state.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(cut) = state.findings.take_cut(number) {
        cut.put(&mut request);
    }
    let is_ambiguous = state.findings.is_ambiguous(number);
    let version = request.version();
    let (head, mut body) = guard.connection.answer(request, is_ambiguous).await.into_parts();
    if let Some(upgrade) = body.take_upgrade() {
        *state.upgrade() = Some(upgrade);
    }
    if let Some(wire) = &state.wire
        && body.is_live()
        && is_chunked(version, &head)
    {
        body.open(Line::new(Arc::clone(wire), Arc::clone(&state.outbox)));
    }
    if body.size_hint().lower() >= HEAVY_BYTES_MIN {
        guard.connection.heavy.mark();
    }
    let guard = body.is_produced().then_some(guard);
    let outbox = Arc::clone(&state.outbox);
    Ok(http::Response::from_parts(head, PacedBody { body, outbox, fault: None, _guard: guard }))
}

/// Whether a body of unknown length is sent in the chunked coding, as the connection does it by itself.
fn is_chunked(version: Version, head: &http::response::Parts) -> bool {
    version == Version::HTTP_11
        && head.status == StatusCode::OK
        && !head.headers.contains_key(CONTENT_LENGTH)
        && !head.headers.contains_key(TRANSFER_ENCODING)
}

/// Answers a head that no parser has seen, and leaves the peer the time to read that.
async fn refuse(
    stream: &mut Stream,
    shape: ErrorShape,
    fault: Fault,
    query_bytes_max: usize,
) -> std::io::Result<()> {
    let (status, code) = match fault {
        Fault::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
        Fault::TooManyHeaders => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_headers"),
        Fault::BareLineFeed | Fault::MalformedQuery => (StatusCode::BAD_REQUEST, "malformed_head"),
        Fault::QueryTooLong => (StatusCode::URI_TOO_LONG, "query_too_long"),
        Fault::TooManyQueries => (StatusCode::SERVICE_UNAVAILABLE, "too_many_queries"),
    };
    let message = match fault {
        Fault::HeadTooLarge => HEAD_TOO_LARGE,
        Fault::TooManyHeaders => TOO_MANY_HEADERS,
        Fault::BareLineFeed => "a line of the request's head ends without a carriage return",
        Fault::MalformedQuery => "the query of the request is none",
        Fault::QueryTooLong => &*format!("the query of the request has more than {query_bytes_max} bytes"),
        Fault::TooManyQueries => "too many requests with long queries come in",
    };
    stream.write_all(&raw_error_response(shape, status, code, message)).await?;
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    let mut left = REFUSED_BYTES_MAX;
    while left > 0 {
        match stream.read(&mut scratch).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

/// A body that is handed over no faster than the socket takes it, and keeps its request under way meanwhile.
struct PacedBody<H> {
    body: Body,
    outbox: Arc<Outbox>,
    /// Why the body broke off, until what came before it is sent.
    fault: Option<BodyError>,
    _guard: Option<Guard<H>>,
}

impl<H> http_body::Body for PacedBody<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.outbox.holds_back() {
            return Poll::Pending;
        }
        if let Some(fault) = this.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        match std::task::ready!(this.body.poll_chunk(cx)) {
            Some(Ok(chunk)) => {
                if chunk.is_held {
                    this.outbox.give(chunk.bytes.len());
                } else {
                    this.outbox.give_mapped();
                }
                Poll::Ready(Some(Ok(Frame::data(chunk.bytes))))
            }
            Some(Err(fault)) => {
                // An error drops the connection with all that it has not sent. Perhaps nothing is left to be sent:
                // then nobody else would wake this.
                this.fault = Some(fault);
                this.outbox.wait_until_taken();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.fault.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
