//! Bootstrap: a snapshot and everything after it, as of one moment (extensions §3).

use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;

use crate::engine::Engine;
use crate::error::{LookupError, ReadError, ReadFault};
use crate::request::Head;
use crate::snapshot::Snapshot;

/// One consistent cut of a stream. What it covers stays readable while it is held, whatever is appended or published
/// meanwhile; a deletion of the stream ends it with a fault.
#[derive(Debug)]
pub struct Bootstrap {
    /// What the stream was at the cut.
    pub head: Head,
    /// The latest snapshot at the cut.
    pub snapshot: Option<Snapshot>,
    /// Where the messages begin: at the snapshot, or without one at the floor.
    pub from: Offset,
    /// Where they end: the offset to go on from.
    pub end: Offset,
    /// Whether that was the tail at the cut.
    pub at_tail: bool,
    /// Whether the stream was closed there.
    pub closed: bool,
}

/// One message of a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapMessage {
    /// Its bytes. Of a JSON stream: the text of one value, without a separator.
    pub body: Bytes,
    /// The offset after it.
    pub next: Offset,
}

impl Engine {
    /// Cuts a stream at this moment. Counts as a read: it renews a sliding lifetime.
    ///
    /// The cut ends at the tail, or at the first message boundary of the store at which there are at least `bytes_max`
    /// bytes of messages. Does not touch the disk.
    pub fn bootstrap(&self, path: &StreamPath, _bytes_max: u64) -> Result<Bootstrap, ReadError> {
        self.head(path)?;
        Err(LookupError::NotFound.into())
    }
}

impl Bootstrap {
    /// The next messages, in order: at least one, about [`READ_BYTES_MAX`](crate::READ_BYTES_MAX) of bytes and at most
    /// some thousand of them; `None` after the last. Blocks on the disk.
    pub fn next_messages(&mut self) -> Option<Result<Vec<BootstrapMessage>, ReadFault>> {
        None
    }
}
