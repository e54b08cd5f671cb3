//! A connection that speaks HTTP/2.
//!
//! Its requests are futures within its own, not tasks beside it: so it moves to another reactor as a whole, and nothing
//! of it is left when it ends.

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

use bytes::Buf;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{HeaderValue, Method, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    Body, BodyError, Front, Handler,
    connection::{Connection, Guard, Idle, IdleWatch, Shared},
    limits::{
        CONNECTION_WINDOW_BYTES, HEAVY_BYTES_MIN, PING_TIMEOUT_S, QUEUED_BYTES_MAX, RESETS_CAUSED_MAX,
        RESETS_PENDING_MAX, STALLED_PEER_TIMEOUT_S, STREAM_WINDOW_BYTES,
    },
    outgoing::{Given, Ledger, Outgoing},
    stream::Stream,
};

/// How often it is looked whether streams have stalled: twice within the time that one may stall.
const STALL_LOOK: Duration = Duration::from_secs(STALLED_PEER_TIMEOUT_S / 2);

/// How long a client without a request may take to answer that the server is about to stop.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the connection until it ends.
pub(crate) async fn run<H: Handler>(
    stream: Stream,
    connection: Arc<Connection<H>>,
) -> Result<(), hyper::Error> {
    let shared = Arc::clone(&connection.shared);
    let watched = Arc::clone(&connection);
    let counters = Arc::clone(&shared.front.counters);
    counters.connections_http2.add();
    let ledger = Ledger::new(Arc::clone(&shared.responses));
    let requests = Requests::default();
    let rounds = Arc::new(AtomicU64::new(0));
    let service = {
        let (ledger, requests, rounds) = (Arc::clone(&ledger), requests.clone(), Arc::clone(&rounds));
        service_fn(move |request: http::Request<Incoming>| {
            let outgoing = requests.announce(ledger.begin());
            // By itself: the answer's body needs no room for what was needed to make it.
            Box::pin(answer(Arc::clone(&connection), outgoing, Arc::clone(&rounds), request))
        })
    };
    let serving = builder(&shared, requests.clone()).serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let mut under_way = FuturesUnordered::new();
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    let mut watch = Watch::new(&watched, &ledger);
    std::future::poll_fn(|cx| {
        loop {
            rounds.fetch_add(1, Ordering::Relaxed);
            if let Poll::Ready(outcome) = serving.as_mut().poll(cx) {
                if outcome.as_ref().is_err_and(is_peers_fault) {
                    counters.connections_http2_ended.add();
                }
                return Poll::Ready(outcome);
            }
            under_way.extend(requests.take_fresh());
            while let Poll::Ready(Some(())) = under_way.poll_next_unpin(cx) {}
            if !watch.is_ending && shutdown.as_mut().poll(cx).is_ready() {
                serving.as_mut().graceful_shutdown();
                watch.end();
                continue;
            }
            return watch.poll(cx).map(Ok);
        }
    })
    .await
}

/// What ends a connection that does not end by itself.
struct Watch<'a, H> {
    connection: &'a Connection<H>,
    ledger: &'a Ledger,
    look: Pin<Box<Sleep>>,
    stall_look: Pin<Box<Sleep>>,
    idle: IdleWatch,
    is_ending: bool,
}

impl<'a, H> Watch<'a, H> {
    fn new(connection: &'a Connection<H>, ledger: &'a Ledger) -> Self {
        let idle_timeout = connection.shared.idle_timeout;
        Self {
            connection,
            ledger,
            look: Box::pin(sleep(idle_timeout)),
            stall_look: Box::pin(sleep(STALL_LOOK)),
            idle: IdleWatch::new(idle_timeout),
            is_ending: false,
        }
    }

    /// The client has been told that the server is about to stop.
    fn end(&mut self) {
        self.is_ending = true;
        self.look.as_mut().reset(Instant::now() + FAREWELL_TIMEOUT);
    }

    /// Ready once the connection is to be closed, whatever its client thinks of that.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let activity = &self.connection.activity;
        let counters = &self.connection.shared.front.counters;
        while self.look.as_mut().poll(cx).is_ready() {
            let pause = if !self.is_ending {
                self.idle.look(activity).inspect_err(|Idle| counters.connections_idle.add())
            } else if activity.is_busy() {
                Ok(FAREWELL_TIMEOUT)
            } else {
                Err(Idle)
            };
            let Ok(pause) = pause else { return Poll::Ready(()) };
            self.look.as_mut().reset(Instant::now() + pause);
        }
        while self.stall_look.as_mut().poll(cx).is_ready() {
            let looked = self.ledger.look();
            (0..looked.cut).for_each(|_| counters.streams_stalled.add());
            if looked.is_stuck {
                counters.connections_stalled.add();
                return Poll::Ready(());
            }
            self.stall_look.as_mut().reset(Instant::now() + STALL_LOOK);
        }
        Poll::Pending
    }
}

/// HTTP/2 within the limits of the server.
fn builder<H>(shared: &Shared<H>, requests: Requests) -> http2::Builder<Requests> {
    let Front { streams_max, .. } = shared.front;
    // A head beyond the limit is answered with what is wrong with it; one far beyond gets nothing but its status.
    let head_bytes_max = shared.header_bytes_max.saturating_mul(2);
    let mut builder = http2::Builder::new(requests);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(2 * QUEUED_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_CAUSED_MAX)
        .keep_alive_interval(shared.idle_timeout)
        .keep_alive_timeout(Duration::from_secs(PING_TIMEOUT_S));
    builder
}

/// Whether a connection ended for what its peer sent, and not because it went away.
fn is_peers_fault(error: &hyper::Error) -> bool {
    let error = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_some_and(|error| error.is_library() && !error.is_io())
}

async fn answer<H: Handler>(
    connection: Arc<Connection<H>>,
    outgoing: Arc<Outgoing>,
    rounds: Arc<AtomicU64>,
    request: http::Request<Incoming>,
) -> Result<http::Response<StreamBody<H>>, Infallible> {
    connection.shared.front.counters.requests_http2.add();
    let guard = Guard::begin(connection);
    let shape = guard.connection.shared.front.error_shape;
    let is_head = request.method() == Method::HEAD;
    let (mut head, mut body) = guard.connection.answer(request, false).await.into_parts();
    if body.take_upgrade().is_some() || head.status.is_informational() {
        let message = "another protocol is to be had over HTTP/1.1 only";
        let refusal =
            shape.response(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "http_version_not_supported", message);
        (head, body) = refusal.into_parts();
    }
    let is_without_body = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_head || is_without_body {
        if is_head && let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
            head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
        }
        body = Body::empty();
    }
    if body.size_hint().lower() >= HEAVY_BYTES_MIN {
        guard.connection.heavy.mark();
    }
    let body = StreamBody { body, outgoing, rounds, fault: None, _guard: guard };
    Ok(http::Response::from_parts(head, body))
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that have come and are not yet under way.
#[derive(Clone, Debug, Default)]
struct Requests(Arc<Mutex<Fresh>>);

#[derive(Debug, Default)]
struct Fresh {
    requests: Vec<Request>,
    /// What the next request is counted by: hyper hands over what answers it right after it has asked for the answer.
    announced: Option<Arc<Outgoing>>,
}

impl Requests {
    fn announce(&self, outgoing: Arc<Outgoing>) -> Arc<Outgoing> {
        self.fresh().announced = Some(Arc::clone(&outgoing));
        outgoing
    }

    fn take_fresh(&self) -> Vec<Request> {
        std::mem::take(&mut self.fresh().requests)
    }

    fn fresh(&self) -> std::sync::MutexGuard<'_, Fresh> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, task: F) {
        let mut fresh = self.fresh();
        let outgoing = fresh.announced.take();
        fresh.requests.push(Request { task: Some(Box::pin(task)), outgoing });
    }
}

/// A request under way, until it is answered or cut.
struct Request {
    task: Option<Task>,
    outgoing: Option<Arc<Outgoing>>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("outgoing", &self.outgoing).finish_non_exhaustive()
    }
}

impl Future for Request {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(outgoing) = &self.outgoing {
            outgoing.wakes(cx.waker());
            if outgoing.is_cut() {
                self.task = None;
            }
        }
        match &mut self.task {
            Some(task) => task.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

/// A body that is handed over no faster than its stream gets rid of it, and keeps its request under way meanwhile.
struct StreamBody<H> {
    body: Body,
    outgoing: Arc<Outgoing>,
    /// How often the connection has been polled.
    rounds: Arc<AtomicU64>,
    /// Why the body broke off, and in which round.
    fault: Option<(BodyError, u64)>,
    _guard: Guard<H>,
}

impl<H> http_body::Body for StreamBody<H> {
    type Data = Given;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Given>, BodyError>>> {
        let this = self.get_mut();
        let round = this.rounds.load(Ordering::Relaxed);
        if let Some((fault, since)) = this.fault.take() {
            // An error drops what the stream has not sent: first its head goes out, then its bytes.
            if round > since && this.outgoing.is_empty() {
                return Poll::Ready(Some(Err(fault)));
            }
            this.fault = Some((fault, since));
            if round == since {
                cx.waker().wake_by_ref();
            }
            this.outgoing.waits();
            return Poll::Pending;
        }
        if this.outgoing.holds_back() {
            return Poll::Pending;
        }
        match std::task::ready!(this.body.poll_chunk(cx)) {
            Some(Ok(chunk)) => {
                let given = this.outgoing.give(chunk.bytes);
                debug_assert!(given.has_remaining() && chunk.is_held, "no page of a file comes this way");
                Poll::Ready(Some(Ok(Frame::data(given))))
            }
            Some(Err(fault)) => {
                this.fault = Some((fault, round));
                cx.waker().wake_by_ref();
                this.outgoing.waits();
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
