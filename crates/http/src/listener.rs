//! Opens listening sockets.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::LISTEN_BACKLOG;

/// Why an address could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("address `{address}` is already in use")]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on `{address}`: {source}")]
    Io {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Listens on `address` (port 0 picks a free one).
///
/// `SO_REUSEADDR` lets a restart take the port back at once; `SO_REUSEPORT` is left off on purpose, because it
/// would let a second server share the port without a word.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    open(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        _ => BindError::Io { address, source },
    })
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
