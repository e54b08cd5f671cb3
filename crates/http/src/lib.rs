//! HTTP plumbing that knows no protocol: sockets, TLS, connections, bodies, limits and shutdown.
//!
//! HTTP/1.1 and HTTP/2 are spoken on one port, whichever a client begins with (over TLS, whichever it agrees to).
//!
//! A surface implements [`Handler`] and gives it to [`Server::start`]. Everything a surface needs and every
//! surface needs alike lives here: collecting a request body within a limit ([`collect()`]), a response
//! [`Body`] for each way a response comes into being, the JSON error shape ([`error_response`]), and a
//! [`Shutdown`] signal that long-lived responses watch so that a restart ends them cleanly.

mod admission;
mod body;
mod collect;
mod connection;
mod counters;
mod error;
mod feed;
mod framing;
mod header;
mod http1;
mod http2;
mod limits;
mod line;
mod listener;
mod live;
mod mailbox;
mod outgoing;
mod paced;
mod peer;
mod places;
mod query;
mod range;
mod reactor;
mod receive;
mod responses;
mod roaming;
mod server;
mod shutdown;
mod socket;
mod stream;
mod tls;
mod upgrade;
mod watchdog;
mod wire;

pub use body::{Body, BodyError};
pub use collect::{BodyBudget, CollectError, CollectLimits, collect, discard};
pub use counters::{CounterSnapshot, Counters};
pub use error::{ERROR_CODE, ErrorShape, error_body, error_response};
pub use feed::Feed;
#[doc(hidden)]
pub use framing::fuzzing;
pub use header::{InvalidHeader, header_text};
pub use limits::{
    ACCEPT_RETRY_MS, BLOCKING_THREADS_MAX, BODY_CHUNK_BYTES_MAX, CERTIFICATE_LOOK_S, CONNECTION_WINDOW_BYTES,
    CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX, HANDSHAKE_TIMEOUT_S, HEADER_BYTES_MAX, HEADERS_MAX,
    HEAVY_BYTES_MIN, IDLE_TIMEOUT_S, LISTEN_BACKLOG, PIECE_BYTES, PING_TIMEOUT_S, QUERIES_BYTES_MAX,
    QUEUED_BYTES_MAX, RESETS_CAUSED_MAX, RESETS_PENDING_MAX, RESPONSES_BYTES_MAX, SCARCE_PIECE_BYTES,
    STALLED_PEER_TIMEOUT_S, STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION_MAX, TLS_BUFFER_BYTES_MAX,
};
pub use line::{Framed, Line, Sent};
pub use listener::{BindError, bind};
pub use peer::{InvalidNetwork, Networks, Peer};
pub use query::{LongQuery, query};
pub use range::Ranged;
pub use reactor::{default_reactors, heavy_reactors};
pub use receive::{ReceiveLimits, Receiver};
pub use responses::{HeldResponse, ResponseBudget};
pub use server::{Drained, Front, Handler, Server, ServerOptions, StartError};
pub use shutdown::Shutdown;
pub use tls::{Tls, TlsError};
pub use upgrade::Upgraded;

/// A request as a [`Handler`] gets it: head parsed, body not yet read.
pub type Request = http::Request<RequestBody>;

/// The body of a [`Request`], as it arrives.
pub type RequestBody = hyper::body::Incoming;

/// A response as a [`Handler`] gives it.
pub type Response = http::Response<Body>;
