//! `WebSocket` connections (RFC 6455) with `permessage-deflate` (RFC 7692), for servers and clients.
//!
//! [`Decoder`] and [`Encoder`] are the protocol as bytes: they do no I/O. [`handshake`] and [`extension`] are pure
//! functions of headers. [`WebSocket`] runs a connection over any stream, [`connect`] opens one.
//!
//! Why our own: what a server sends to many subscribers is framed and deflated once, as an [`EncodedFrame`], and written
//! to each connection without a copy. The maintained libraries of the right licence either have no compression
//! (`tungstenite`, `fastwebsockets`, `tokio-websockets`) or no way to hand them a frame.

mod client;
mod close;
mod connection;
mod decoder;
mod deflate;
mod encoder;
mod error;
pub mod extension;
mod frame;
pub mod handshake;
mod limits;
mod message;
mod refusal;
mod stream;
mod utf8;

pub use client::{ConnectError, ConnectOptions, Connected, Refusal, connect};
pub use close::{Close, CloseCode};
pub use connection::{ConnectionOptions, Error, Progress, Receiver, SendError, Sender, WebSocket};
pub use decoder::{Decoder, Event, Role};
pub use deflate::DeflateError;
pub use encoder::{Buffers, Encoder};
pub use error::ProtocolError;
pub use extension::{Deflate, DeflateOptions};
pub use frame::{HEADER_BYTES_MAX, Header, Opcode, mask};
pub use handshake::{AcceptOptions, Accepted, Agreed, HandshakeError, accept, is_upgrade};
pub use limits::{
    CONTROL_BYTES_MAX, FRAGMENTS_MAX, FRAME_BYTES_MAX, Limits, MESSAGE_BYTES_MAX, OUTGOING_BYTES_MAX,
    RESPONSE_HEAD_BYTES_MAX, RESPONSE_HEADERS_MAX,
};
pub use message::{EncodedFrame, Message, Text};
pub use refusal::{plain_refusal, tls_refusal, try_plain, try_tls};
pub use stream::{Stream, Tls, tls_with_roots, trusting};
