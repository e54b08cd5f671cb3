//! The manifest of a shard: which files count.

use std::path::Path;

use alluvium_env::Disk;
use thiserror::Error;

use crate::error::{Damage, IoFault};

/// The name of the manifest.
pub const MANIFEST_NAME: &str = "MANIFEST";

/// What goes wrong with a manifest.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
}

/// Which files of a shard count. Everything else in its folder is left over and can go.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Manifest {
    /// The number of the shard.
    pub shard: u16,
    /// The newest checkpoint.
    pub checkpoint: Option<u64>,
    /// The tables, ascending.
    pub tables: Vec<u64>,
    /// The first segment that the checkpoint doesn't cover.
    pub first_segment: u64,
    /// The sequence number of the last batch before that segment.
    pub last_seq: u64,
    /// The number of the next table or checkpoint.
    pub next_file: u64,
}

impl Manifest {
    /// Reads the manifest of the shard in `dir`; `None` when there is none.
    pub fn read(_disk: &dyn Disk, _dir: &Path) -> Result<Option<Self>, ManifestError> {
        todo!()
    }

    /// Replaces the manifest of the shard in `dir` in one step. Durable when it returns, and so are the names of the
    /// files that it mentions.
    pub fn write(&self, _disk: &dyn Disk, _dir: &Path) -> Result<(), ManifestError> {
        todo!()
    }
}
