//! A server that has nothing but what an operator asks for, at an address of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use alluvium_http::{
    BindError, Drained, Handler, IDLE_TIMEOUT_S, Request, Response, ResponseBudget, Server, ServerOptions,
    Shutdown, StartError, bind,
};

use super::{Operated, Sight};
use crate::config::MetricsPlace;

/// Connections held at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request head.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of answers in memory before they go out in small pieces.
const RESPONSES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a scrape has to end when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub struct OwnServer(Server<Operated<Nothing>>);

/// A surface that is never there.
#[derive(Debug)]
enum Nothing {}

impl Handler for Nothing {
    async fn handle(&self, _request: Request) -> Response {
        match *self {}
    }
}

/// Why there is no such server.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its thread cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl OwnServer {
    /// Serves from now on, through recovery and shutdown, if metrics have a place of their own.
    pub fn start(place: MetricsPlace, sight: &Arc<Sight>) -> Result<Option<Self>, OwnError> {
        let MetricsPlace::Own(address) = place else { return Ok(None) };
        let options = ServerOptions {
            reactors: 1,
            heavy_reactors: 0,
            connections_max: CONNECTIONS_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
            idle_timeout: Duration::from_secs(IDLE_TIMEOUT_S),
            responses: Arc::new(ResponseBudget::new(RESPONSES_BYTES_MAX)),
        };
        let surface = Operated::alone(Arc::clone(sight));
        Ok(Some(Self(Server::start(bind(address)?, surface, options, Shutdown::new())?)))
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Ends it: the last thing that a server does.
    pub async fn stop(self) {
        if let Drained::Cut { connections } = self.0.drain(STOP_TIMEOUT).await {
            tracing::debug!(connections, "scrapes were cut");
        }
    }
}
