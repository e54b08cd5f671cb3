//! A connection that speaks HTTP/1.1.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, rt::Write as _, server::conn::http1, service::service_fn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Body, BodyError, Handler,
    admission::{HEAD_TOO_LARGE, TOO_MANY_HEADERS},
    connection::{Broken, Connection, Guard, Idle, IdleWatch, Shared},
    error::{ErrorShape, raw_error_response},
    framing::{Fault, Findings},
    limits::{BODY_CHUNK_BYTES_MAX, HEADERS_MAX, HEAVY_BYTES_MIN},
    line::Line,
    live::{self, Live},
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

/// A connection without requests for this long, or up to twice, keeps nothing ready for the next. Often enough that most
/// idle connections keep nothing, rare enough that looking costs busy ones nothing that could be measured.
const QUIET: Duration = Duration::from_secs(5);

/// What the requests of the connection share beside what all have.
struct State<H> {
    requests: AtomicU64,
    findings: Arc<Findings>,
    outbox: Arc<Outbox>,
    /// The socket, unless there is TLS before it.
    wire: Option<Arc<Wire>>,
    /// How the connection goes on once hyper is done with it.
    next: Mutex<Option<Next<H>>>,
}

impl<H> State<H> {
    fn next(&self) -> MutexGuard<'_, Option<Next<H>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_live(&self) -> Option<Live<H>> {
        let mut next = self.next();
        match next.take() {
            Some(Next::Live(live)) => Some(live),
            other => {
                *next = other;
                None
            }
        }
    }
}

/// What a connection does after hyper.
enum Next<H> {
    /// It goes on in another protocol.
    Upgrade(Upgrade),
    /// It sends the rest of an answer that is made as it is sent.
    Live(Live<H>),
}

/// How hyper's part of a connection has come to an end.
enum Ending<H> {
    /// The connection is over, or goes on in another protocol.
    Over,
    /// A head came that is not looked at.
    Faulty(Fault),
    /// What is left of an answer needs none of what hyper has in memory.
    Live(Live<H>),
    /// Nothing has been asked for some time.
    Quiet,
}

/// Serves the connection until it ends.
///
/// What hyper needs, two buffers above all, is there only while it is needed: not while an answer goes on that is made as
/// it is sent, not while nobody asks for anything, not in another protocol.
pub(crate) async fn run<H: Handler>(stream: Stream, connection: Arc<Connection<H>>) -> Result<(), Broken> {
    let shared = Arc::clone(&connection.shared);
    let outbox = Arc::new(Outbox::new(Arc::clone(&shared.responses)));
    let findings = Arc::new(Findings::default());
    let wire = stream.wire().cloned();
    let queries = shared.queries.clone();
    let socket =
        Socket::new(stream, Arc::clone(&findings), shared.header_bytes_max, queries, Arc::clone(&outbox));
    let mut io = Paced::new(socket, Arc::clone(&outbox));
    let requests = AtomicU64::new(0);
    let state = Arc::new(State { requests, findings, outbox, wire, next: Mutex::new(None) });
    loop {
        let ending;
        (io, ending) = Box::pin(speak(io, &connection, &state)).await?;
        match ending {
            Ending::Live(live) => {
                if !live::send(&mut io, live, &state.outbox, &shared.shutdown).await? {
                    return Ok(());
                }
            }
            Ending::Quiet => {
                if !wait_for_request(&mut io, &state, &shared).await? {
                    return Ok(());
                }
            }
            Ending::Over => {
                let upgrade = state.next().take();
                // Where the answer is stuck behind what a peer has not read, it is lost with the rest.
                if let Some(Next::Upgrade(upgrade)) = upgrade
                    && !state.outbox.is_socket_full()
                {
                    shared.front.counters.connections_upgraded.add();
                    drop(state);
                    upgrade.go_on(Upgraded::new(io.into_inner().into_inner())).await;
                }
                return Ok(());
            }
            Ending::Faulty(fault) => {
                Box::pin(refuse(io.into_inner().into_inner(), &shared, fault)).await;
                return Ok(());
            }
        }
    }
}

/// Has hyper serve the connection, until it ends or can do without.
async fn speak<H: Handler>(
    io: Paced<Socket>,
    connection: &Arc<Connection<H>>,
    state: &Arc<State<H>>,
) -> Result<(Paced<Socket>, Ending<H>), hyper::Error> {
    let shared = &connection.shared;
    let service = {
        let (connection, state) = (Arc::clone(connection), Arc::clone(state));
        // Hyper has room for one such future as long as it has the connection: so this is not the future itself.
        service_fn(move |request: http::Request<Incoming>| {
            Box::pin(answer(Arc::clone(&connection), Arc::clone(&state), request))
        })
    };
    let mut serving = builder(shared.header_bytes_max).serve_connection(io, service);
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    let period = QUIET.min(shared.idle_timeout);
    let mut look = std::pin::pin!(tokio::time::sleep(period));
    let (mut idle, mut idle_for) = (IdleWatch::new(period), Duration::ZERO);
    let mut asked_to_end = false;
    let ending = poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut serving).poll(cx) {
                return Poll::Ready(outcome.map(|()| Ending::Over));
            }
            if let Some(live) = state.take_live() {
                return Poll::Ready(Ok(Ending::Live(live)));
            }
            if let Some((fault, number)) = state.findings.fault()
                && state.requests.load(Ordering::Relaxed) == number
                && !connection.activity.is_busy()
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
            match idle.look(&connection.activity) {
                Ok(_) => idle_for = Duration::ZERO,
                Err(Idle) if state.findings.is_between() && state.outbox.is_empty() => {
                    return Poll::Ready(Ok(Ending::Quiet));
                }
                // A head that comes in bits and pieces, or an answer that nobody takes.
                Err(Idle) => {
                    idle_for += period;
                    if idle_for >= shared.idle_timeout {
                        shared.front.counters.connections_idle.add();
                        return Poll::Ready(Ok(Ending::Over));
                    }
                }
            }
            let next = look.deadline() + period;
            look.as_mut().reset(next);
        }
    })
    .await?;
    let http1::Parts { mut io, read_buf, .. } = serving.into_parts();
    io.put_back(&read_buf);
    Ok((io, ending))
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

/// Waits for the first bytes of a request, and for no longer than a connection may be idle. `false` if none come.
async fn wait_for_request<H>(
    io: &mut Paced<Socket>,
    state: &State<H>,
    shared: &Shared<H>,
) -> Result<bool, Broken> {
    let coming = poll_fn(|cx| match io.poll_ahead(cx) {
        // Such a head cannot be read.
        Poll::Pending if state.findings.fault().is_some() => Poll::Ready(Ok(true)),
        coming => coming,
    });
    let coming = tokio::time::timeout(shared.idle_timeout, coming);
    let has_come = tokio::select! {
        has_come = coming => has_come,
        () = shared.shutdown.wait() => Ok(Ok(false)),
    };
    let has_come = match has_come {
        Ok(has_come) => has_come?,
        Err(_elapsed) => {
            shared.front.counters.connections_idle.add();
            return Ok(false);
        }
    };
    if !has_come {
        poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await?;
    }
    Ok(has_come)
}

async fn answer<H: Handler>(
    connection: Arc<Connection<H>>,
    state: Arc<State<H>>,
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
    let (has_body, is_last) = (!request.body().is_end_stream(), asks_to_close(request.headers()));
    let (head, mut body) = guard.connection.answer(request, is_ambiguous).await.into_parts();
    if let Some(upgrade) = body.take_upgrade() {
        *state.next() = Some(Next::Upgrade(upgrade));
    }
    let mut leaves = None;
    if body.is_live() && is_chunked(version, &head) {
        if let Some(wire) = &state.wire {
            body.open(Line::new(Arc::clone(wire), Arc::clone(&state.outbox)));
        }
        // Of what is left of the request's own body only hyper knows.
        if !has_body && !head.headers.contains_key(CONNECTION) {
            leaves = Some((Arc::clone(&state), is_last));
        }
    }
    if body.size_hint().lower() >= HEAVY_BYTES_MIN {
        guard.connection.heavy.mark();
    }
    let guard = body.is_produced().then_some(guard);
    let outbox = Arc::clone(&state.outbox);
    let given = Given::Nothing;
    Ok(http::Response::from_parts(head, PacedBody { body, outbox, fault: None, guard, leaves, given }))
}

/// Whether the client wants the connection closed after the answer (RFC 9112 §9.6).
fn asks_to_close(headers: &HeaderMap) -> bool {
    let mut options =
        headers.get_all(CONNECTION).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// Whether a body of unknown length is sent in the chunked coding, as the connection does it by itself.
fn is_chunked(version: Version, head: &http::response::Parts) -> bool {
    version == Version::HTTP_11
        && head.status == StatusCode::OK
        && !head.headers.contains_key(CONTENT_LENGTH)
        && !head.headers.contains_key(TRANSFER_ENCODING)
}

/// Answers a head that no parser has seen, and leaves the peer the time to read that.
async fn refuse<H>(mut stream: Stream, shared: &Shared<H>, fault: Fault) {
    let counters = &shared.front.counters;
    match fault {
        Fault::HeadTooLarge | Fault::TooManyHeaders | Fault::QueryTooLong => counters.heads_too_large.add(),
        Fault::BareLineFeed | Fault::MalformedQuery => counters.heads_malformed.add(),
        Fault::TooManyQueries => counters.requests_refused.add(),
    }
    let telling = tell_fault(&mut stream, shared.front.error_shape, fault, shared.queries.bytes_max);
    // A peer that does not take it has had its chance.
    drop(tokio::time::timeout(REFUSAL_TIMEOUT, telling).await);
}

async fn tell_fault(
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
    guard: Option<Guard<H>>,
    /// Where it goes once there is nothing to be sent for now, if hyper is not needed for it any more, and whether the
    /// connection ends with it.
    leaves: Option<(Arc<State<H>>, bool)>,
    given: Given,
}

/// What a body has given to hyper.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Given {
    Nothing,
    Something,
    /// Itself, to go on without.
    Itself,
}

impl<H> PacedBody<H> {
    /// Goes on without hyper, if that may be. It has written the head with the first piece, and everything since.
    fn leave(&mut self) {
        if self.given != Given::Something || !self.outbox.is_empty() {
            return;
        }
        if let Some((state, is_last)) = self.leaves.take() {
            let (body, guard) = (std::mem::take(&mut self.body), self.guard.take());
            *state.next() = Some(Next::Live(Live { body, guard, is_last }));
            self.given = Given::Itself;
        }
    }
}

impl<H> http_body::Body for PacedBody<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.given == Given::Itself || this.outbox.holds_back() {
            return Poll::Pending;
        }
        if let Some(fault) = this.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        let Poll::Ready(polled) = this.body.poll_chunk(cx) else {
            this.leave();
            return Poll::Pending;
        };
        match polled {
            Some(Ok(chunk)) => {
                this.outbox.give_chunk(&chunk);
                this.given = Given::Something;
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
        self.given != Given::Itself && self.fault.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
