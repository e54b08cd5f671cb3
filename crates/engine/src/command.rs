//! What waits for a committer, and where its answer goes.

use std::sync::Arc;

use alluvium_protocol::{Attributes, ContentType, Offset, ProducerStamp};
use tokio::sync::oneshot;

use crate::error::{AppendError, CreateError, DeleteError};
use crate::request::{Appended, Created, Payload};
use crate::stream::{Birth, Fork, Stream};

/// Bytes reserved in a segment for a record beyond its payload, path, types and ids.
const RECORD_OVERHEAD_MAX: u64 = 512;
/// Most bytes that one message length takes in a record.
const LENGTH_BYTES_MAX: u64 = 5;
/// Most bytes that one inherited range takes in a record.
const RANGE_BYTES_MAX: u64 = 64;

/// A mutation to be admitted, in the order of the queue.
#[derive(Debug)]
pub(crate) enum Command {
    Create(Box<CreateCommand>),
    Append(Box<AppendCommand>),
    Delete(DeleteCommand),
    /// Write down a deadline that reads have moved.
    Renew(Arc<Stream>),
    /// Remove a stream whose deadline has passed.
    Expire(Arc<Stream>),
}

#[derive(Debug)]
pub(crate) struct CreateCommand {
    /// Everything but the id, which the committer gives.
    pub(crate) draft: Draft,
    pub(crate) closed: bool,
    pub(crate) payload: Payload,
    pub(crate) reply: oneshot::Sender<Result<Created, CreateError>>,
}

/// A stream without an id.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) birth: Birth,
    /// Whether the request itself named a content type.
    pub(crate) content_type_given: bool,
    /// The lifetime as requested, before a fork inherits.
    pub(crate) lifetime_requested: alluvium_protocol::Lifetime,
    /// The fork as requested: a request without an offset also asks for what a concurrent one has made.
    pub(crate) fork_requested: Option<alluvium_protocol::ForkOrigin>,
    /// The attributes as requested: none asks for whatever there is.
    pub(crate) attributes_requested: Option<Attributes>,
}

#[derive(Debug)]
pub(crate) struct AppendCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) content_type: Option<ContentType>,
    pub(crate) payload: Payload,
    pub(crate) seq: Option<String>,
    pub(crate) producer: Option<ProducerStamp>,
    pub(crate) close: bool,
    pub(crate) expected_tail: Option<Offset>,
    pub(crate) reply: oneshot::Sender<Result<Appended, AppendError>>,
}

#[derive(Debug)]
pub(crate) struct DeleteCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) reply: oneshot::Sender<Result<(), DeleteError>>,
}

impl Command {
    /// Payload bytes, for the queue's budget.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Self::Create(command) => command.payload.data.len() as u64,
            Self::Append(command) => command.payload.data.len() as u64,
            Self::Delete(_) | Self::Renew(_) | Self::Expire(_) => 0,
        }
    }

    /// Whether the command gives space back, and may therefore use what a full disk has left.
    pub(crate) fn frees_space(&self) -> bool {
        matches!(self, Self::Delete(_) | Self::Expire(_))
    }

    /// An upper bound of the journal bytes this command can come to, so that room is made before it is
    /// admitted: once admitted it can no longer be refused.
    pub(crate) fn journal_bytes_max(&self) -> u64 {
        let payload =
            |payload: &Payload| payload.data.len() as u64 + payload.lengths.len() as u64 * LENGTH_BYTES_MAX;
        match self {
            Self::Create(command) => {
                let birth = &command.draft.birth;
                let fork = birth.fork.as_deref().map_or(0, Fork::journal_bytes_max);
                // A create over an expired stream also writes that stream's end.
                2 * RECORD_OVERHEAD_MAX
                    + payload(&command.payload)
                    + (birth.path.as_str().len() + birth.content_type.as_str().len()) as u64
                    + fork
            }
            Self::Append(command) => {
                RECORD_OVERHEAD_MAX
                    + payload(&command.payload)
                    + command.seq.as_ref().map_or(0, String::len) as u64
                    + command.producer.as_ref().map_or(0, |stamp| stamp.id.as_str().len()) as u64
            }
            Self::Delete(_) | Self::Renew(_) | Self::Expire(_) => RECORD_OVERHEAD_MAX,
        }
    }
}

impl Fork {
    fn journal_bytes_max(&self) -> u64 {
        self.origin.source.as_str().len() as u64 + self.inherited.len() as u64 * RANGE_BYTES_MAX
    }
}
