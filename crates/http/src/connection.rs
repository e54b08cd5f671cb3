//! One connection from its first byte to its last.

use std::{
    convert::Infallible,
    future::Future,
    net::TcpStream,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use socket2::SockRef;

use crate::{
    Body, BodyError, Handler, Peer, Request, Response, ResponseBudget, Shutdown, admission,
    framing::FirstAmbiguous,
    limits::{BODY_CHUNK_BYTES_MAX, HEADERS_MAX, HEAVY_BYTES_MIN, STALLED_PEER_TIMEOUT_S},
    paced::Paced,
    responses::Outbox,
    roaming::Heavy,
    socket::Socket,
    upgrade::{Upgrade, Upgraded},
    watchdog::Activity,
};

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared<H> {
    pub(crate) handler: H,
    pub(crate) shutdown: Shutdown,
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_max: usize,
    pub(crate) header_bytes_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) responses: Arc<ResponseBudget>,
}

/// A place among the connections; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<H> {
    shared: Arc<Shared<H>>,
}

impl<H> Place<H> {
    /// Takes a place, or `None` when all are taken.
    pub(crate) fn take(shared: &Arc<Shared<H>>) -> Option<Self> {
        let held = shared.connections.fetch_add(1, Ordering::AcqRel);
        let place = Self { shared: Arc::clone(shared) };
        (held < shared.connections_max).then_some(place)
    }
}

impl<H> Drop for Place<H> {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The state a connection's requests share: the handler by way of `place`, what the watchdog looks at, and what the
/// socket tells.
#[derive(Debug)]
struct Connection<H> {
    place: Place<H>,
    /// None if the socket does not say.
    peer: Option<Peer>,
    activity: Activity,
    heavy: Arc<Heavy>,
    requests: AtomicU64,
    ambiguous: Arc<FirstAmbiguous>,
    outbox: Arc<Outbox>,
    /// How the connection goes on once HTTP is done with it.
    upgrade: Mutex<Option<Upgrade>>,
}

impl<H: Handler> Connection<H> {
    async fn answer(&self, mut request: Request) -> Response {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        match admission::check(request.version(), request.headers(), self.ambiguous.is(number)) {
            Ok(()) => self.place.shared.handler.handle(request).await,
            Err(refusal) => refusal.into_response(),
        }
    }
}

impl<H> Connection<H> {
    fn upgrade(&self) -> std::sync::MutexGuard<'_, Option<Upgrade>> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a connection until it ends, the watchdog ends it, or the shutdown signal has let it finish.
pub(crate) async fn serve<H: Handler>(stream: TcpStream, place: Place<H>, heavy: Arc<Heavy>) {
    let peer = stream.peer_addr().ok().map(Peer);
    let socket = SockRef::from(&stream);
    // Both only improve things: without them small answers wait for acknowledgements and dead peers linger.
    if let Err(error) = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(Duration::from_secs(STALLED_PEER_TIMEOUT_S))))
    {
        tracing::debug!(%error, "cannot set socket options");
    }
    let stream = match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection");
            return;
        }
    };
    let ambiguous = Arc::new(FirstAmbiguous::default());
    let outbox = Arc::new(Outbox::new(Arc::clone(&place.shared.responses)));
    let socket = Paced::new(Socket::new(stream, Arc::clone(&ambiguous)), Arc::clone(&outbox));
    let activity = Activity::default();
    let connection = Connection {
        place,
        peer,
        activity,
        heavy,
        requests: AtomicU64::new(0),
        ambiguous,
        outbox,
        upgrade: Mutex::new(None),
    };
    let served = run(socket, Arc::new(connection)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn run<H: Handler>(io: Paced<Socket>, connection: Arc<Connection<H>>) -> Result<(), hyper::Error> {
    let shared = Arc::clone(&connection.place.shared);
    let watched = Arc::clone(&connection);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let connection = Arc::clone(&connection);
        async move {
            let guard = Guard::begin(connection);
            let (head, mut body) = guard.connection.answer(request).await.into_parts();
            if let Some(upgrade) = body.take_upgrade() {
                *guard.connection.upgrade() = Some(upgrade);
            }
            if body.size_hint().lower() >= HEAVY_BYTES_MIN {
                guard.connection.heavy.mark();
            }
            let outbox = Arc::clone(&guard.connection.outbox);
            let guard = body.is_produced().then_some(guard);
            Ok::<_, Infallible>(http::Response::from_parts(
                head,
                PacedBody { body, outbox, fault: None, _guard: guard },
            ))
        }
    });
    let mut serving = http1::Builder::new()
        .writev(true)
        .max_headers(HEADERS_MAX)
        .max_header_size(shared.header_bytes_max)
        .max_buf_size(BODY_CHUNK_BYTES_MAX)
        .header_read_timeout(None)
        .serve_connection(io, service);
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    let mut look = std::pin::pin!(tokio::time::sleep(shared.idle_timeout));
    let mut asked_to_end = false;
    let mut begun = 0;
    std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut serving).poll(cx) {
                return Poll::Ready(outcome);
            }
            if !asked_to_end && shutdown.as_mut().poll(cx).is_ready() {
                asked_to_end = true;
                Pin::new(&mut serving).graceful_shutdown();
                continue;
            }
            std::task::ready!(look.as_mut().poll(cx));
            if !watched.activity.is_busy() && watched.activity.begun() == begun {
                return Poll::Ready(Ok(()));
            }
            begun = watched.activity.begun();
            let next = look.deadline() + shared.idle_timeout;
            look.as_mut().reset(next);
        }
    })
    .await?;
    let upgrade = watched.upgrade().take();
    // Where the answer is stuck behind what a peer has not read, it is lost with the rest.
    if let Some(upgrade) = upgrade.filter(|_| !watched.outbox.is_socket_full()) {
        let http1::Parts { io, read_buf, .. } = serving.into_parts();
        let stream = io.into_inner().into_inner();
        upgrade.go_on(Upgraded::new(read_buf, stream)).await;
    }
    Ok(())
}

/// Marks a request as under way from its head to the end of its body.
struct Guard<H> {
    connection: Arc<Connection<H>>,
}

impl<H> Guard<H> {
    fn begin(connection: Arc<Connection<H>>) -> Self {
        connection.activity.begin();
        Self { connection }
    }
}

impl<H> Drop for Guard<H> {
    fn drop(&mut self) {
        self.connection.activity.end();
    }
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
