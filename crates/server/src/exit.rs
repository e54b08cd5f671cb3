//! Why a server ends, as an exit code that scripts can tell apart and a hint that people can act on.

use std::io;
use std::path::PathBuf;

use alluvium_access::AccessError;
use alluvium_engine::OpenError;
use alluvium_http::{BindError, StartError, TlsError};
use alluvium_journal::FormatError;

use crate::config::{Config, ConfigError};
use crate::keep::KeepFault;
use crate::sight::OwnError;

/// The data directory or the SQLite file is damaged, not ours, or of another version (`EX_DATAERR` of `sysexits.h`).
pub const EXIT_DATA: u8 = 65;
/// The address is in use (`EX_UNAVAILABLE`).
pub const EXIT_PORT_IN_USE: u8 = 69;
/// The store could no longer promise durability and stopped the process (`EX_SOFTWARE`).
pub const EXIT_ENGINE_FAULT: u8 = 70;
/// The system failed an operation (`EX_IOERR`).
pub const EXIT_IO: u8 = 74;
/// Another process holds the data directory (`EX_TEMPFAIL`).
pub const EXIT_LOCKED: u8 = 75;
/// The configuration is wrong (`EX_CONFIG`).
pub const EXIT_CONFIG: u8 = 78;

/// Every exit code of `alluvium serve` with its meaning, for the help and the documentation.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "stopped by SIGTERM or Ctrl-C"),
    (2, "wrong usage, such as an unknown flag"),
    (EXIT_DATA, "the data directory or the SQLite file is damaged, not one of ours, or of another version"),
    (EXIT_PORT_IN_USE, "another program listens on the address"),
    (EXIT_ENGINE_FAULT, "a write or sync of the disk failed; a restart serves what was acknowledged"),
    (EXIT_IO, "the system failed an operation: a file, a thread, or an address that is not this machine's"),
    (EXIT_LOCKED, "another process uses the data directory"),
    (EXIT_CONFIG, "the configuration is wrong; `alluvium config check` tells without starting"),
];

/// Why a server did not start or did not stay up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The SQLite file cannot be used.
    #[error("cannot use the file that `store` names, `{}`: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: alluvium_sqlstore::OpenError,
    },
    /// The folder of the SQLite file cannot be made.
    #[error("cannot make the folder `{}` for the file that `store` names: {source}", path.display())]
    SqliteFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The options do not go with the data directory.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody can be let in.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Backups cannot be made where they are to be.
    #[error("`backup-dir` cannot be used: {0}")]
    Backups(KeepFault),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A thread could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The folder of feeds cannot be used.
    #[error(transparent)]
    Feeds(#[from] alluvium_feeds::OpenError),
    /// The subscriptions cannot be read.
    #[error(transparent)]
    Subscriptions(#[from] alluvium_subscriptions::LoadError),
    /// Signals cannot be received.
    #[error("cannot run: {0}")]
    Io(#[from] io::Error),
}

impl ServeError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bind(BindError::InUse { .. }) => EXIT_PORT_IN_USE,
            Self::Open(OpenError::Format(FormatError::Locked { .. }))
            | Self::Feeds(alluvium_feeds::OpenError::Locked) => EXIT_LOCKED,
            Self::Access(AccessError::Thread(_)) => EXIT_IO,
            Self::Access(_)
            | Self::Config(_)
            | Self::Open(OpenError::Options(_))
            | Self::Tls(_)
            | Self::Backups(KeepFault::Inside { .. })
            | Self::Sqlite { source: alluvium_sqlstore::OpenError::Bounds(_), .. } => EXIT_CONFIG,
            Self::Sqlite { source, .. } if source.is_foreign() => EXIT_DATA,
            Self::Open(error) if error.is_of_the_system() => EXIT_IO,
            Self::Open(_) | Self::Subscriptions(_) => EXIT_DATA,
            Self::Feeds(alluvium_feeds::OpenError::Folder(_))
            | Self::Bind(BindError::Io { .. })
            | Self::Sqlite { .. }
            | Self::SqliteFolder { .. }
            | Self::Backups(_)
            | Self::Start(_)
            | Self::Io(_) => EXIT_IO,
        }
    }

    /// What to do about it, where there is something.
    pub fn hint(&self, config: &Config) -> Option<String> {
        match self {
            Self::Bind(BindError::InUse { .. }) => {
                Some("another program listens there; choose another address with `--listen`".to_owned())
            }
            Self::Open(OpenError::Format(FormatError::Locked { .. }))
            | Self::Feeds(alluvium_feeds::OpenError::Locked) => Some(
                "one server at a time uses a data directory; choose another one with `--data-dir`".to_owned(),
            ),
            Self::Open(OpenError::Format(FormatError::Foreign { .. })) => Some(
                "nothing was changed there; choose an empty or new directory with `--data-dir`".to_owned(),
            ),
            Self::Open(OpenError::Format(FormatError::Version { .. })) => Some(
                "nothing was changed there; run the version of `alluvium` that wrote it, or a newer one"
                    .to_owned(),
            ),
            Self::Open(_) if self.exit_code() == EXIT_DATA => Some(format!(
                "nothing was changed; keep a copy of `{}` before trying anything, the rest of it may be whole",
                config.data_dir.display()
            )),
            Self::Sqlite { .. } if self.exit_code() == EXIT_DATA => {
                Some("nothing was changed there; name another file with `--store`".to_owned())
            }
            Self::Open(_)
            | Self::Sqlite { .. }
            | Self::SqliteFolder { .. }
            | Self::Bind(BindError::Io { .. })
            | Self::Start(_)
            | Self::Access(_)
            | Self::Config(_)
            | Self::Backups(_)
            | Self::Tls(_)
            | Self::Feeds(_)
            | Self::Subscriptions(_)
            | Self::Io(_) => None,
        }
    }
}

impl From<OwnError> for ServeError {
    fn from(error: OwnError) -> Self {
        match error {
            OwnError::Bind(error) => Self::Bind(error),
            OwnError::Start(error) => Self::Start(error),
        }
    }
}
