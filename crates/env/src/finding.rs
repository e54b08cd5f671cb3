//! What a check of files on a disk has found.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something that a check has found. All checks tell of their files in these words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The file, or the folder where it is in no single file.
    pub file: PathBuf,
    /// Where in it, in bytes, if that can be told.
    pub at: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// How wrong it is.
    pub kind: FindingKind,
}

/// What a finding means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FindingKind {
    /// Something is not as it was written.
    Fault,
    /// The system failed an operation, so that something was not looked at. Whether anything is wrong is not known.
    Unread,
    /// What a crash may leave behind, or an earlier version of the program, and a start puts in order.
    Crash,
    /// What is none of ours, or is in nobody's way. It stays as it is.
    Stray,
}

impl Finding {
    /// A finding in a file.
    pub fn new(file: &Path, at: Option<u64>, what: impl Into<String>, kind: FindingKind) -> Self {
        Self { file: file.to_owned(), at, what: what.into(), kind }
    }

    /// Something that is wrong with a file.
    pub fn fault(file: &Path, at: Option<u64>, what: impl Into<String>) -> Self {
        Self::new(file, at, what, FindingKind::Fault)
    }

    /// What a crash may leave behind, and a start puts in order.
    pub fn of_a_crash(file: &Path, at: Option<u64>, what: impl Into<String>) -> Self {
        Self::new(file, at, what, FindingKind::Crash)
    }

    /// A file that nothing refers to, and that nothing of ours removes.
    pub fn stray(file: &Path) -> Self {
        Self::new(file, None, "nothing refers to it", FindingKind::Stray)
    }

    /// Whether something is wrong, or could not be looked at. Other findings are notes.
    pub fn is_fault(&self) -> bool {
        matches!(self.kind, FindingKind::Fault | FindingKind::Unread)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.file.display())?;
        if let Some(at) = self.at {
            write!(f, ", byte {at}")?;
        }
        write!(f, ": {}", self.what)
    }
}
