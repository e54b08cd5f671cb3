//! The network as the ingest needs it: directories of DIDs, servers with repositories, a relay.

use alluvium_atproto::Did;
use bytes::Bytes;

use crate::account::{FetchFailure, HostingStatus};
use crate::budget::Permit;
use crate::rules::LookupError;

/// Why a repository was not got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchError {
    /// It failed.
    Failure(FetchFailure),
    /// The server asks to be left alone for a while; that is no failure of this account.
    Busy {
        /// For how long, in milliseconds.
        wait_ms: u64,
    },
    /// There was not enough room for it at the moment.
    NoRoom,
}

/// Directories and servers. Calls wait for the network, within time limits of their own, and come from many threads.
pub trait Network: Send + Sync {
    /// The DID document.
    fn document(&self, did: &Did) -> Result<Vec<u8>, LookupError>;

    /// The repository of `did` as a file. `server` is as its DID document names it: scheme, host and port. `permit` is
    /// grown to what is read.
    fn repo(&self, server: &str, did: &Did, permit: &mut Permit) -> Result<Bytes, FetchError>;

    /// How `server` says that an account is hosted; without a server, how the relay says it.
    fn status(&self, server: Option<&str>, did: &Did) -> Result<HostingStatus, FetchError>;
}

/// Why a connection to the relay was not made, or ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RelayError(pub String);

/// A relay.
pub trait Relay: Send + Sync {
    /// Connects. With a cursor the relay begins behind it, without one with what happens next.
    fn connect(&self, cursor: Option<u64>) -> Result<Box<dyn Messages>, RelayError>;
}

/// What one connection brings.
pub trait Messages {
    /// The next message. It waits as long as the relay is there, however little it says, and returns `None` after
    /// `wait_ms` without one, so that the caller can look whether it should stop.
    fn next(&mut self, wait_ms: u64) -> Result<Option<Bytes>, RelayError>;
}
