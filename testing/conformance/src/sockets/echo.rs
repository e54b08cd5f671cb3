//! A server that says everything again, with a path for each way to compress.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use alluvium_http::{
    Body, Handler, Request, Response, ResponseBudget, Server, ServerOptions, Shutdown, bind, error_response,
};
use alluvium_websocket::{
    AcceptOptions, ConnectionOptions, Deflate, DeflateOptions, EncodedFrame, Error, Message, WebSocket,
    accept,
};
use anyhow::Result;
use tokio::io::{AsyncRead, AsyncWrite};

/// The paths.
pub(crate) const PATHS: [&str; 6] = ["/plain", "/alone", "/context", "/small", "/shared", "/mixed"];

/// What a path means by compression.
pub(crate) fn deflate(path: &str) -> Option<DeflateOptions> {
    let context = DeflateOptions {
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        bytes_min: 0,
        ..DeflateOptions::default()
    };
    match path {
        "/context" | "/mixed" => Some(context),
        "/small" => {
            Some(DeflateOptions { server_max_window_bits: 9, client_max_window_bits: 9, level: 9, ..context })
        }
        "/alone" | "/shared" => Some(DeflateOptions::default()),
        _ => None,
    }
}

/// Starts it; it runs until it is dropped with its process.
pub(crate) fn start() -> Result<Server<Echo>> {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let options = ServerOptions {
        reactors: 1,
        heavy_reactors: 0,
        connections_max: 100,
        header_bytes_max: 16 * 1024,
        idle_timeout: Duration::from_mins(1),
        responses: Arc::new(ResponseBudget::new(64 * 1024 * 1024)),
    };
    Ok(Server::start(listener, Echo, options, Shutdown::new())?)
}

/// The handler.
#[derive(Debug)]
pub(crate) struct Echo;

impl Handler for Echo {
    async fn handle(&self, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        let options = AcceptOptions { subprotocols: &["echo"], deflate: deflate(&path) };
        match accept(&request, &options) {
            Ok(accepted) => {
                let deflate = accepted.deflate;
                let body = Body::upgrade(async move |stream| {
                    // The other side says what went wrong; here it is only the end of a connection.
                    drop(echo(stream, deflate, &path).await);
                });
                accepted.response.map(|()| body)
            }
            Err(error) => error_response(error.status(), "no_handshake", &error.to_string()),
        }
    }
}

async fn echo<S>(stream: S, deflate: Option<Deflate>, path: &str) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut socket = WebSocket::server(stream, deflate.as_ref(), ConnectionOptions::default());
    let mut number = 0_u32;
    while let Some(message) = socket.next().await? {
        number += 1;
        let is_shared = path == "/shared" || (path == "/mixed" && number.is_multiple_of(3));
        match shared(&message, deflate.as_ref()).filter(|_| is_shared) {
            Some(frame) => socket.send_encoded(&frame).await?,
            None => socket.send(&message).await?,
        }
    }
    Ok(())
}

/// A message as it would be sent to many.
fn shared(message: &Message, deflate: Option<&Deflate>) -> Option<EncodedFrame> {
    match deflate {
        Some(deflate) => EncodedFrame::deflated(message, 6, deflate.server_max_window_bits).ok(),
        None => Some(EncodedFrame::plain(message)),
    }
}
