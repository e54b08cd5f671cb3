//! HTTP/1.1 plumbing that knows no protocol: sockets, connections, bodies, limits and shutdown.
//!
//! A surface implements [`Handler`] and gives it to [`Server::start`]. Everything a surface needs and every
//! surface needs alike lives here: collecting a request body within a limit ([`collect()`]), a response
//! [`Body`] for each way a response comes into being, the JSON error shape ([`error_response`]), and a
//! [`Shutdown`] signal that long-lived responses watch so that a restart ends them cleanly.

mod admission;
mod body;
mod collect;
mod connection;
mod error;
mod feed;
mod framing;
mod limits;
mod listener;
mod mailbox;
mod paced;
mod peer;
mod reactor;
mod receive;
mod responses;
mod roaming;
mod server;
mod shutdown;
mod socket;
mod upgrade;
mod watchdog;

pub use body::{Body, BodyError};
pub use collect::{BodyBudget, CollectError, CollectLimits, collect, discard};
pub use error::{ERROR_CODE, error_body, error_response};
pub use feed::Feed;
pub use limits::{
    ACCEPT_RETRY_MS, BLOCKING_THREADS_MAX, BODY_CHUNK_BYTES_MAX, CONNECTIONS_MAX, HEADER_BYTES_MAX,
    HEADERS_MAX, HEAVY_BYTES_MIN, IDLE_TIMEOUT_S, LISTEN_BACKLOG, PIECE_BYTES, QUEUED_BYTES_MAX,
    RESPONSES_BYTES_MAX, SCARCE_PIECE_BYTES, STALLED_PEER_TIMEOUT_S,
};
pub use listener::{BindError, bind};
pub use peer::Peer;
pub use reactor::{default_reactors, heavy_reactors};
pub use receive::{ReceiveLimits, Receiver};
pub use responses::{HeldResponse, ResponseBudget};
pub use server::{Drained, Handler, Server, ServerOptions, StartError};
pub use shutdown::Shutdown;
pub use upgrade::Upgraded;

/// A request as a [`Handler`] gets it: head parsed, body not yet read.
pub type Request = http::Request<RequestBody>;

/// The body of a [`Request`], as it arrives.
pub type RequestBody = hyper::body::Incoming;

/// A response as a [`Handler`] gives it.
pub type Response = http::Response<Body>;
