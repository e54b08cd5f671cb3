//! What goes wrong with files: they are damaged, or the system refuses an operation on them.

use std::io;
use std::path::{Path, PathBuf};

use alluvium_env::{Finding, FindingKind};
use thiserror::Error;

/// Bytes that are not what was written. Nothing was changed because of it.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error("`{}` is damaged at byte {at}: {reason}", file.display())]
pub struct Damage {
    /// The damaged file.
    pub file: PathBuf,
    /// The position in bytes of the structure that fails its check.
    pub at: u64,
    /// Which check failed.
    pub reason: &'static str,
}

impl From<Damage> for Finding {
    fn from(damage: Damage) -> Self {
        Self::fault(&damage.file, Some(damage.at), damage.reason)
    }
}

/// An operation of the system on a file that failed.
#[derive(Debug, Error)]
#[error("can't {action} `{}`", file.display())]
pub struct IoFault {
    /// What was tried, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub file: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

impl From<IoFault> for Finding {
    fn from(fault: IoFault) -> Self {
        let what = format!("can't {} it: {}", fault.action, fault.source);
        Self::new(&fault.file, None, what, FindingKind::Unread)
    }
}

impl IoFault {
    /// Whether there is no room: the disk is full, or a quota on it or the limit on file size is reached.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

/// Makes an [`IoFault`] of an `io::Error` by saying what was tried on which file.
pub(crate) fn io_fault(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> IoFault {
    move |source| IoFault { action, file: file.to_owned(), source }
}

/// What goes wrong with a journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// There is no space for another segment. Nothing was changed: the writer goes on with the segment it has.
    #[error("no space left for another journal segment")]
    Full,
    /// An earlier write or sync failed, so nobody knows what the file holds. Only a restart clears this.
    #[error("the journal stopped after a failed write")]
    Poisoned,
    /// A batch doesn't fit the rest of the current segment. Nothing was written.
    #[error("a batch of {len} bytes doesn't fit the {remaining} bytes left in the segment")]
    BatchTooLarge {
        /// The length of the batch in bytes.
        len: u64,
        /// What [`JournalWriter::remaining`](crate::JournalWriter::remaining) says.
        remaining: u64,
    },
    /// A file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
}
