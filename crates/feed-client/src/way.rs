//! The transport that a URL stands for.

use alluvium_env::Env;
use alluvium_feed_protocol::{Advanced, Id, Limits, Request, Response};
use alluvium_feed_replica::{CallError, Transport};

use crate::http::HttpTransport;
use crate::server::{Server, ServerError};
use crate::socket::SocketTransport;

/// A way to a server, as its URL says.
#[derive(Debug)]
pub enum Way {
    /// `http://`, `https://`.
    Http(Box<HttpTransport>),
    /// `ws://`, `wss://`.
    Socket(Box<SocketTransport>),
}

impl Way {
    /// The way to a server, for one space. Nothing is sent yet.
    pub fn new(server: &Server, space: &Id, env: Env) -> Result<Self, ServerError> {
        if server.is_socket() {
            return Ok(Self::Socket(Box::new(SocketTransport::new(server, space, env)?)));
        }
        Ok(Self::Http(Box::new(HttpTransport::new(server, env)?)))
    }
}

impl Transport for Way {
    async fn prepare(&self, space: &Id) {
        match self {
            Self::Http(way) => way.prepare(space).await,
            Self::Socket(way) => way.prepare(space).await,
        }
    }

    async fn call(&self, space: &Id, request: Request) -> Result<Response, CallError> {
        match self {
            Self::Http(way) => way.call(space, request).await,
            Self::Socket(way) => way.call(space, request).await,
        }
    }

    async fn hint(&self) -> Advanced {
        match self {
            Self::Http(way) => way.hint().await,
            Self::Socket(way) => way.hint().await,
        }
    }

    fn hold_hints(&self, until_ms: [u64; 2]) {
        match self {
            Self::Http(way) => way.hold_hints(until_ms),
            Self::Socket(way) => way.hold_hints(until_ms),
        }
    }

    fn limits(&self) -> Option<Limits> {
        match self {
            Self::Http(way) => way.limits(),
            Self::Socket(way) => way.limits(),
        }
    }

    fn is_live(&self) -> bool {
        match self {
            Self::Http(way) => way.is_live(),
            Self::Socket(way) => way.is_live(),
        }
    }
}
