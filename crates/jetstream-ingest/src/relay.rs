//! A relay over WebSocket.

use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Random;
use alluvium_websocket::{ConnectOptions, ConnectionOptions, Limits, Message, Stream, WebSocket, connect};
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::network::{Messages, Relay, RelayError};

/// Where a relay tells its events, if its address names no path.
const PATH: &str = "/xrpc/com.atproto.sync.subscribeRepos";

/// A relay by its address.
#[derive(Debug)]
pub struct WebSocketRelay {
    url: String,
    /// The longest message, in bytes.
    frame_bytes: usize,
    random: Arc<dyn Random>,
}

impl WebSocketRelay {
    /// `url` is `ws://…` or `wss://…`; without a path the usual one is meant.
    pub fn new(url: &str, frame_bytes: usize, random: Arc<dyn Random>) -> Self {
        let url = url.trim_end_matches('/');
        let host = url.split_once("://").map_or(url, |(_, host)| host);
        let path = if host.contains('/') { "" } else { PATH };
        Self { url: format!("{url}{path}"), frame_bytes, random }
    }

    fn address(&self, cursor: Option<u64>) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        cursor.map_or_else(|| self.url.clone(), |cursor| format!("{}{separator}cursor={cursor}", self.url))
    }
}

impl Relay for WebSocketRelay {
    fn connect(&self, cursor: Option<u64>) -> Result<Box<dyn Messages>, RelayError> {
        let failed = |error: &dyn std::fmt::Display| RelayError(error.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        // A message that is a little too long is let in, so that it is counted and its number noted.
        let longest = self.frame_bytes.saturating_mul(2);
        let limits = Limits { frame_bytes_max: longest, message_bytes_max: longest, ..Limits::default() };
        let connection = ConnectionOptions { limits, ..ConnectionOptions::default() };
        let options = ConnectOptions { connection, ..ConnectOptions::default() };
        let address = self.address(cursor);
        let opening = connect(&address, options, self.random.clone());
        let connected = runtime.block_on(opening).map_err(|error| failed(&error))?;
        Ok(Box::new(Connection { socket: connected.socket, runtime }))
    }
}

/// A connection. It is kept alive by pings of its own.
struct Connection {
    // Before the runtime, which it needs to end.
    socket: WebSocket<Stream>,
    runtime: Runtime,
}

impl Messages for Connection {
    fn next(&mut self, wait_ms: u64) -> Result<Option<Bytes>, RelayError> {
        let socket = &mut self.socket;
        let next = async { timeout(Duration::from_millis(wait_ms), socket.next()).await };
        match self.runtime.block_on(next) {
            Err(_) => Ok(None),
            Ok(Ok(Some(Message::Binary(message)))) => Ok(Some(message)),
            // Nothing that a relay says; counted as what cannot be read.
            Ok(Ok(Some(Message::Text(_)))) => Ok(Some(Bytes::new())),
            Ok(Ok(None)) => {
                let closed = self.socket.closed_by_peer();
                Err(RelayError(format!("the relay has closed the connection ({closed:?})")))
            }
            Ok(Err(error)) => Err(RelayError(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use alluvium_env::OsRandom;

    use super::*;

    #[test]
    fn the_usual_path_is_added_and_the_cursor_behind_it() {
        for (url, address) in [
            ("wss://relay.test", "wss://relay.test/xrpc/com.atproto.sync.subscribeRepos?cursor=7"),
            ("wss://relay.test/", "wss://relay.test/xrpc/com.atproto.sync.subscribeRepos?cursor=7"),
            ("ws://127.0.0.1:80/feed", "ws://127.0.0.1:80/feed?cursor=7"),
            ("wss://relay.test/x?y=1", "wss://relay.test/x?y=1&cursor=7"),
        ] {
            let relay = WebSocketRelay::new(url, 1, Arc::new(OsRandom));
            assert_eq!(relay.address(Some(7)), address);
            assert!(!relay.address(None).contains("cursor"));
        }
    }
}
