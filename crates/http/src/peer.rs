//! Who is at the other end of a connection.

use std::net::SocketAddr;

/// The address of the peer of a connection; an extension of each of its requests. A proxy is a peer like any other.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Peer(pub SocketAddr);
