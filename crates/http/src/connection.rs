//! One connection from its first byte to its last.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Version};
use http_body::Body as _;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio_rustls::rustls::ServerConnection;

use crate::{
    BodyError, Front, Handler, Peer, Request, Response, ResponseBudget, Shutdown, admission, http1, http2,
    limits::{HANDSHAKE_TIMEOUT_S, STALLED_PEER_TIMEOUT_S, TLS_BUFFER_BYTES_MAX},
    peer::Networks,
    places::{Place, Places},
    query::Queries,
    roaming::Heavy,
    stream::Stream,
    watchdog::Activity,
};

/// What every client of HTTP/2 sends first (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared<H> {
    pub(crate) handler: H,
    pub(crate) shutdown: Shutdown,
    pub(crate) places: Arc<Places>,
    pub(crate) header_bytes_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) responses: Arc<ResponseBudget>,
    pub(crate) front: Front,
    pub(crate) proxies: Arc<Networks>,
    pub(crate) queries: Queries,
}

/// The state a connection's requests share.
#[derive(Debug)]
pub(crate) struct Connection<H> {
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) activity: Activity,
    pub(crate) heavy: Arc<Heavy>,
    peer: Peer,
    _place: Place,
}

impl<H: Handler> Connection<H> {
    /// Answers a request, unless it is none that a handler should see.
    pub(crate) async fn answer(&self, mut request: Request, is_ambiguous: bool) -> Response {
        let admitted = match request.version() {
            Version::HTTP_2 if is_read(&request) && !request.body().is_end_stream() => {
                Err(admission::Refusal::UnexpectedBody)
            }
            Version::HTTP_2 => admission::check_size(&request, self.shared.header_bytes_max)
                .and_then(|()| admission::settle_host(&mut request)),
            _ => Ok(()),
        };
        let admitted =
            admitted.and_then(|()| admission::check(request.version(), request.headers(), is_ambiguous));
        if let Err(refusal) = admitted {
            self.shared.front.counters.requests_refused.add();
            return refusal.into_response(self.shared.front.error_shape);
        }
        request.extensions_mut().insert(self.peer.clone());
        self.shared.handler.handle(request).await
    }
}

fn is_read(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Marks a request as under way from its head to the end of its body.
pub(crate) struct Guard<H> {
    pub(crate) connection: Arc<Connection<H>>,
}

impl<H> Guard<H> {
    pub(crate) fn begin(connection: Arc<Connection<H>>) -> Self {
        connection.activity.begin();
        Self { connection }
    }
}

impl<H> Drop for Guard<H> {
    fn drop(&mut self) {
        self.connection.activity.end();
    }
}

/// Says once in a while whether a connection has been without a request for all that while.
#[derive(Debug)]
pub(crate) struct IdleWatch {
    period: Duration,
    begun: u32,
}

impl IdleWatch {
    pub(crate) const fn new(period: Duration) -> Self {
        Self { period, begun: 0 }
    }

    /// To be asked each time the period is over. `Err` once the connection has been idle, else the time to ask again.
    pub(crate) fn look(&mut self, activity: &Activity) -> Result<Duration, Idle> {
        if !activity.is_busy() && activity.begun() == self.begun {
            return Err(Idle);
        }
        self.begun = activity.begun();
        Ok(self.period)
    }
}

/// A connection without a request.
#[derive(Debug)]
pub(crate) struct Idle;

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the peer has gone in the middle of an answer")]
    Gone,
}

/// Serves a connection until it ends, the watchdog ends it, or the shutdown signal has let it finish.
pub(crate) async fn serve<H: Handler>(
    stream: TcpStream,
    address: SocketAddr,
    shared: Arc<Shared<H>>,
    place: Place,
    heavy: Arc<Heavy>,
) {
    let socket = SockRef::from(&stream);
    // Both only improve things: without them small answers wait for acknowledgements and dead peers linger.
    if let Err(error) = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(Duration::from_secs(STALLED_PEER_TIMEOUT_S))))
    {
        tracing::debug!(%error, "cannot set socket options");
    }
    // By itself, as all that comes after it: a connection has no room for what it is done with, or never comes to.
    let opened = Box::pin(async {
        tokio::select! {
            opened = open(stream, &shared) => Some(opened),
            () = shared.shutdown.wait() => None,
        }
    });
    let Some(opened) = opened.await else { return };
    let (stream, is_http2) = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => {
            shared.front.counters.connections_idle.add();
            return;
        }
        Err(error) => {
            shared.front.counters.connections_broken.add();
            tracing::debug!(%error, %address, "a connection did not come to its first request");
            return;
        }
    };
    let counters = Arc::clone(&shared.front.counters);
    let is_tls = shared.front.tls.is_some();
    let peer = Peer::new(address, is_tls, !is_tls && !is_http2, Arc::clone(&shared.proxies));
    let connection =
        Arc::new(Connection { shared, activity: Activity::default(), heavy, peer, _place: place });
    let served = if is_http2 {
        Box::pin(http2::run(stream, connection)).await.map_err(Broken::from)
    } else {
        Box::pin(http1::run(stream, connection)).await
    };
    if let Err(error) = served {
        counters.connections_broken.add();
        tracing::debug!(%error, %address, "connection ended early");
    }
}

/// Brings a connection to where HTTP begins, and tells which one is spoken. `None` if nothing came in time.
async fn open<H>(stream: TcpStream, shared: &Shared<H>) -> io::Result<Option<(Stream, bool)>> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let mut stream = match &shared.front.tls {
        None => Stream::plain(stream),
        Some(tls) => {
            let counters = &shared.front.counters;
            let shaking = tls.acceptor().accept_with(stream, limit_buffer);
            let shaken = tokio::time::timeout(Duration::from_secs(HANDSHAKE_TIMEOUT_S), shaking);
            // Where there is no TLS there is no room for it.
            let shaken = Box::pin(shaken).await;
            let stream = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let stream = stream.inspect_err(|_| counters.tls_handshakes_failed.add())?;
            counters.tls_handshakes.add();
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => return Ok(Some((Stream::tls(stream), true))),
                Some(_) => return Ok(Some((Stream::tls(stream), false))),
                None => Stream::tls(stream),
            }
        }
    };
    match tokio::time::timeout(shared.idle_timeout, begins_as_http2(&mut stream)).await {
        Ok(is_http2) => Ok(Some((stream, is_http2?))),
        Err(_elapsed) => Ok(None),
    }
}

/// What a connection's TLS holds in memory, so that it counts as one more piece and not as several.
fn limit_buffer(connection: &mut ServerConnection) {
    connection.set_buffer_limit(Some(TLS_BUFFER_BYTES_MAX));
}

/// Whether the first bytes are those of HTTP/2. They can be read again.
async fn begins_as_http2(stream: &mut Stream) -> io::Result<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    let mut len = 0;
    while len < first.len() && first[..len] == HTTP2_PREFACE[..len] {
        match stream.read(&mut first[len..]).await? {
            0 => break,
            read => len += read,
        }
    }
    stream.put_back(Bytes::copy_from_slice(&first[..len]));
    Ok(first == *HTTP2_PREFACE)
}
