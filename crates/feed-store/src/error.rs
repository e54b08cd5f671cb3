//! What can go wrong in a store.

use std::io;

use alluvium_feed_protocol::{Id, InvalidId};

/// SQLite's `SQLITE_IOERR_SHMSIZE`: the index of the log, which readers share, can't get its size.
const NO_ROOM_FOR_INDEX: i32 = 4874;

/// A fault of the store, or of the file below it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite refuses.
    #[error("the database refuses: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row holds what was never written.
    #[error("the database holds something invalid: {0}")]
    Corrupt(String),
    /// A block is not what was stored: its content does not match the hash that stands beside it, or its row not its check.
    #[error("block {sequence} of feed `{}`, at position {}, is not what was stored", or_none(feed.as_ref()), or_none(position.as_ref()))]
    Damaged {
        /// Its feed.
        feed: Option<Id>,
        /// Its sequence.
        sequence: u64,
        /// Its position, if it has one.
        position: Option<u64>,
    },
    /// The row of a feed, or what leads to it or to its blocks, is not what was stored: nothing can be told of this feed.
    #[error("feed `{feed}` is damaged: {what}")]
    DamagedFeed {
        /// Which one.
        feed: Id,
        /// In what way.
        what: String,
    },
    /// A row of a feed or of a space is not what was stored, or a block is not found that must be there.
    #[error("the database is damaged: {0}")]
    Inconsistent(String),
    /// The file was made by a later version.
    #[error("the database has schema version {found}, this program knows up to {known}")]
    Newer {
        /// What the file has.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// The file was made by an earlier version, and is not opened in a way that brings it up to date.
    #[error(
        "the database has schema version {found}, this program works with {known}: a start that can write brings it there"
    )]
    Older {
        /// What the file has.
        found: i64,
        /// What this program works with.
        known: i64,
    },
    /// A file or folder beside the database can't be used.
    #[error("cannot use {what}: {error}")]
    File {
        /// Which one.
        what: &'static str,
        /// What the disk says.
        error: io::Error,
    },
    /// A path that stands for no file.
    #[error("`{0}` is not the name of a file, and blocks are kept in one")]
    NoFile(String),
    /// An earlier write may or may not be on the disk; only a restart tells.
    #[error("the database failed to write earlier; a restart is needed")]
    Poisoned,
}

fn or_none<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), T::to_string)
}

/// The result of a call of the store.
pub type StoreResult<T> = Result<T, StoreError>;

impl StoreError {
    /// Whether the disk is full: nothing of the transaction was kept, and it may be tried again.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Sqlite(error) => error.sqlite_error().is_some_and(|error| {
                error.code == rusqlite::ErrorCode::DiskFull || error.extended_code == NO_ROOM_FOR_INDEX
            }),
            Self::File { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            ),
            Self::Corrupt(_)
            | Self::Damaged { .. }
            | Self::DamagedFeed { .. }
            | Self::Inconsistent(_)
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::NoFile(_)
            | Self::Poisoned => false,
        }
    }

    /// The code of SQLite, if it is SQLite that refuses.
    pub fn sqlite_code(&self) -> Option<rusqlite::ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            _ => None,
        }
    }

    /// Whether it is the content of a row that can't be read, and not the file.
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::Damaged { .. } => true,
            Self::Sqlite(error) => matches!(
                error,
                rusqlite::Error::FromSqlConversionFailure(..)
                    | rusqlite::Error::IntegralValueOutOfRange(..)
                    | rusqlite::Error::InvalidColumnType(..)
                    | rusqlite::Error::Utf8Error(..)
            ),
            Self::DamagedFeed { .. }
            | Self::Inconsistent(_)
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::File { .. }
            | Self::NoFile(_)
            | Self::Poisoned => false,
        }
    }

    /// Whether what was stored is there no more as it was, and so is not given out.
    pub fn is_damage(&self) -> bool {
        let is_corrupt = || self.sqlite_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt);
        self.is_of_row() || matches!(self, Self::DamagedFeed { .. } | Self::Inconsistent(_)) || is_corrupt()
    }

    /// Whether it can't be said what is on the disk.
    pub(crate) fn is_io(&self) -> bool {
        let codes = [rusqlite::ErrorCode::SystemIoFailure, rusqlite::ErrorCode::DatabaseCorrupt];
        !self.is_full()
            && matches!(self, Self::Sqlite(error) if error.sqlite_error_code().is_some_and(|code| codes.contains(&code)))
    }
}

impl From<InvalidId> for StoreError {
    fn from(error: InvalidId) -> Self {
        Self::Corrupt(error.to_string())
    }
}
