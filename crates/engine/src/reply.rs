//! The answers to commands, held back until what they rest on is durable.

use tokio::sync::oneshot;

use crate::error::{AppendError, CreateError, DeleteError};
use crate::request::{Appended, Created};

/// An answer and where it goes.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Housekeeping has nobody to answer.
    None,
    Append(oneshot::Sender<Result<Appended, AppendError>>, Result<Appended, AppendError>),
    Create(oneshot::Sender<Result<Created, CreateError>>, Result<Created, CreateError>),
    Delete(oneshot::Sender<Result<(), DeleteError>>, Result<(), DeleteError>),
}

impl Reply {
    /// Sends the answer. A caller that no longer waits has given it up; the mutation stands.
    pub(crate) fn send(self) {
        match self {
            Self::None => {}
            Self::Append(sender, answer) => drop(sender.send(answer)),
            Self::Create(sender, answer) => drop(sender.send(answer)),
            Self::Delete(sender, answer) => drop(sender.send(answer)),
        }
    }
}
