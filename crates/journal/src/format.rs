//! The mark of a data directory: what wrote it, in which version, and how it is cut.

use std::path::{Path, PathBuf};

use alluvium_env::Env;
use thiserror::Error;

use crate::error::{Damage, IoFault};

/// The version of the formats that this code writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Why a directory can't be used.
#[derive(Debug, Error)]
pub enum FormatError {
    /// Another process has it open.
    #[error("`{}` is in use by another process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// It has files in it and none of them is ours.
    #[error("`{}` is not empty and not a data directory of Alluvium", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// A newer version wrote it.
    #[error("`{}` has format version {version}; this program knows version {FORMAT_VERSION}", dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// The version it has.
        version: u32,
    },
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
}

/// What the file `FORMAT` says.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Format {
    /// A random number that names the directory.
    pub directory: u128,
    /// How many shards it has; never changes.
    pub shards: u16,
    /// The size of a segment in bytes; never changes.
    pub segment_bytes: u32,
}

/// A data directory, locked for this process until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {}

impl DataDirectory {
    /// Locks `dir`, creating it when missing, and reads its format.
    ///
    /// When there is none yet, [`DataDirectory::format`] is `None`: create the shards, then call
    /// [`DataDirectory::mark`], which makes the directory count. A crash before that leaves a directory that is
    /// still unmarked.
    pub fn open(_env: &Env, _dir: &Path) -> Result<Self, FormatError> {
        todo!()
    }

    /// The format, once there is one.
    pub fn format(&self) -> Option<&Format> {
        todo!()
    }

    /// The folder of a shard. [`Disk::create_dir_all`](alluvium_env::Disk::create_dir_all) it before use.
    pub fn shard_dir(&self, _shard: u16) -> PathBuf {
        todo!()
    }

    /// Writes the format, durably.
    pub fn mark(&mut self, _shards: u16, _segment_bytes: u32) -> Result<&Format, FormatError> {
        todo!()
    }
}
