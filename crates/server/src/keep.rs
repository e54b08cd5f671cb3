//! Keeping data: looking through it, taking copies of it, and bringing them back.
//!
//! A *backup* is a folder with a data directory in `data/`, with the SQLite file of a store beside it if there is one,
//! and a [manifest](Manifest) that names every file with its length and checksum. The manifest is written last and the
//! folder gets its name after that, so what has the name is whole.

mod backup;
mod check;
mod files;
mod folder;
mod http;
mod jetstream;
mod keeper;
mod manifest;
mod restore;

use std::io;
use std::path::{Path, PathBuf};

use alluvium_engine::BackupError;
use alluvium_feeds::keep::KeepError;
use alluvium_journal::FormatError;
use thiserror::Error;

pub use self::backup::{Taken, backup_closed, try_folder};
pub use self::check::{Counts, check, lost};
pub use self::http::WithBackups;
pub(crate) use self::http::{Backups, OPERATIONS as BACKUP_OPERATIONS, operation};
pub(crate) use self::keeper::{Counted, Keeper};
pub use self::manifest::{Entry, Kind, MANIFEST_NAME, Manifest};
pub use self::restore::restore;

/// The data directory of a backup.
const DATA: &str = "data";
/// The file of a SQLite store in a backup.
const STORE: &str = "store.sqlite";
/// The folder of feeds in a data directory.
pub(crate) const FEEDS: &str = "feeds";
/// The folders of a Jetstream's data directory: segments, and metadata.
const JETSTREAM: (&str, &str) = ("segments", "meta");

/// Why something was not kept, looked at or brought back.
#[derive(Debug, Error)]
pub enum KeepFault {
    /// Neither a data directory nor a backup.
    #[error(
        "`{}` is no data directory of Alluvium, and no backup of one: it has neither `FORMAT`, `streams` nor `feeds` with \
         spaces of a server, nor `segments` and `meta` of a Jetstream, nor `BACKUP`", _0.display()
    )]
    Foreign(PathBuf),
    /// Another process has it open.
    #[error("`{}` is in use by another process: a server runs on it", _0.display())]
    Locked(PathBuf),
    /// A backup, where something is wanted that one can be made of.
    #[error("`{}` is a backup: copy it as it is, or restore it", _0.display())]
    IsBackup(PathBuf),
    /// Feeds only, and nobody said where the streams are.
    #[error(
        "`{}` has feeds and no streams: there is neither `FORMAT` nor `streams` in it. Say with `--store sqlite:PATH` where \
         the streams are", _0.display()
    )]
    NoStreams(PathBuf),
    /// One of two folders lies in the other.
    #[error("`{}` is in `{}`, and one cannot be copied to the other", inner.display(), outer.display())]
    Inside {
        /// What lies in the other.
        inner: PathBuf,
        /// The other.
        outer: PathBuf,
    },
    /// What is to be made is there already.
    #[error("`{}` is there already", _0.display())]
    Exists(PathBuf),
    /// What an interrupted run has left is in the way.
    #[error("`{}` is what an interrupted run has left: remove it", _0.display())]
    Leftover(PathBuf),
    /// A target that has something in it.
    #[error("`{}` is not empty", _0.display())]
    NotEmpty(PathBuf),
    /// A target that nothing can be put in the place of.
    #[error("`{}` is where a volume is mounted, which nothing can take the place of: name a folder in it", _0.display())]
    Mounted(PathBuf),
    /// A backup that is not whole.
    #[error("`{}`: {what}", file.display())]
    NotWhole {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The check of what was brought back has found something.
    #[error("{0} things are wrong with what was brought back; nothing was put in place")]
    Damaged(u64),
    /// A backup with a SQLite file that nobody said a place for, or the other way round.
    #[error("{0}")]
    Store(&'static str),
    /// Another backup is being taken.
    #[error("another backup is being taken")]
    Busy,
    /// A name that no backup may have.
    #[error(
        "a backup is called by 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit"
    )]
    Name,
    /// The engine could not be copied.
    #[error(transparent)]
    Engine(#[from] BackupError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Format(FormatError),
    /// Feeds cannot be used.
    #[error(transparent)]
    Feeds(KeepError),
    /// An archive of a Jetstream cannot be used.
    #[error("the archive: {0}")]
    Archive(alluvium_jetstream_archive::Error),
    /// The disk.
    #[error("cannot use `{}`: {source}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A database of SQLite.
    #[error("cannot use `{}`: {source}", path.display())]
    Sqlite {
        /// Its file.
        path: PathBuf,
        /// What SQLite says.
        source: alluvium_feed_store::StoreError,
    },
}

impl KeepFault {
    fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { path, source }
    }

    fn sqlite(path: &Path) -> impl FnOnce(alluvium_feed_store::StoreError) -> Self {
        let path = path.to_owned();
        move |source| match source.sqlite_code() {
            Some(alluvium_feed_store::rusqlite::ErrorCode::DatabaseBusy) => Self::Locked(path),
            _ => Self::Sqlite { path, source },
        }
    }
}

impl From<FormatError> for KeepFault {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Locked { dir } => Self::Locked(dir),
            FormatError::Foreign { dir } => Self::Foreign(dir),
            other => Self::Format(other),
        }
    }
}

impl From<KeepError> for KeepFault {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Locked(folder) => Self::Locked(folder),
            KeepError::Disk { path, source } => Self::Disk { path, source },
            KeepError::Store { path, source } => Self::sqlite(&path)(source),
        }
    }
}

impl From<alluvium_jetstream_archive::Error> for KeepFault {
    fn from(error: alluvium_jetstream_archive::Error) -> Self {
        Self::Archive(error)
    }
}
