//! What kind of trouble a transport has had.

use std::io;

use alluvium_feed_replica::{CallError, CallErrorKind};
use alluvium_websocket::{
    ConnectError, Error as SocketError, ProtocolError, SendError, plain_refusal, tls_refusal,
};

/// Why a request at a place had no answer, before any of that came.
pub(crate) fn of_request(error: ureq::Error, place: &str) -> CallError {
    let kind = match &error {
        ureq::Error::Io(error) => of_io(error, CallErrorKind::Unreachable),
        ureq::Error::Timeout(_) => CallErrorKind::Timeout,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => CallErrorKind::Tls,
        ureq::Error::Protocol(error) if plain_refusal(error).is_some() => CallErrorKind::Tls,
        ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => CallErrorKind::Nonsense,
        _ => CallErrorKind::Unreachable,
    };
    match error {
        // As the operating system words it.
        ureq::Error::Io(error) => CallError::new(kind, format!("{place}: {error}")).because(error),
        other => CallError::new(kind, format!("{place}: {other}")).because(other),
    }
}

/// Why the body of an answer could not be read to its end.
pub(crate) fn of_body(error: io::Error, place: &str) -> CallError {
    let text = format!("{place}: the answer breaks off: {error}");
    let carried = error.get_ref().and_then(|carried| carried.downcast_ref());
    let kind = match carried {
        Some(ureq::Error::Timeout(_)) => CallErrorKind::Timeout,
        Some(ureq::Error::Protocol(_)) => CallErrorKind::Nonsense,
        _ => of_io(&error, CallErrorKind::Closed),
    };
    CallError::new(kind, text).because(error)
}

/// Why there is no WebSocket at an address.
pub(crate) fn of_connecting(error: ConnectError, url: &str) -> CallError {
    let kind = match &error {
        ConnectError::Address(_) | ConnectError::Header => CallErrorKind::Unsent,
        ConnectError::Io { source, .. } => of_io(source, CallErrorKind::Unreachable),
        ConnectError::Untrusted { .. } => CallErrorKind::Tls,
        ConnectError::Timeout(_) => CallErrorKind::Timeout,
        // Whoever connects reads the answer first; this is what is left of one that says nothing.
        ConnectError::Refused(refusal) => CallErrorKind::Status(refusal.status.as_u16()),
        ConnectError::Answer | ConnectError::Handshake(_) => CallErrorKind::Nonsense,
    };
    CallError::new(kind, format!("{url}: {error}")).because(error)
}

/// Why there is no answer over a WebSocket.
pub(crate) fn of_socket(error: SocketError, url: &str) -> CallError {
    let kind = match &error {
        SocketError::Io(error) => of_io(error, CallErrorKind::Closed),
        SocketError::Protocol(
            ProtocolError::FrameTooLarge { .. }
            | ProtocolError::MessageTooLarge { .. }
            | ProtocolError::TooManyFragments { .. },
        ) => CallErrorKind::TooLarge,
        SocketError::Protocol(_) => CallErrorKind::Nonsense,
        SocketError::Silent | SocketError::Stalled => CallErrorKind::Timeout,
        SocketError::Broken | SocketError::CloseTimeout | SocketError::Unsendable(SendError::Closed) => {
            CallErrorKind::Closed
        }
        SocketError::Unsendable(_) => CallErrorKind::Unsent,
    };
    CallError::new(kind, format!("{url}: {error}")).because(error)
}

/// What an error of the system comes to, where one that says nothing of its own comes to `otherwise`.
fn of_io(error: &io::Error, otherwise: CallErrorKind) -> CallErrorKind {
    if tls_refusal(error).is_some() {
        return CallErrorKind::Tls;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => CallErrorKind::Timeout,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => CallErrorKind::Closed,
        _ => otherwise,
    }
}
