//! Checking a data directory that nobody has open: every checksum, and everything that one file says of another.
//!
//! A start believes checksums of tables only when it reads them, and stops at the first fault. Here everything is read
//! once, what is wrong is told and passed by, and nothing is changed: not even a torn tail is cut.

mod references;
mod shard;

use std::path::{Path, PathBuf};

use alluvium_env::Env;
use alluvium_journal::{Damage, DataDirectory, FormatError, IoFault};
use thiserror::Error;

use crate::check::references::References;
use crate::check::shard::ShardCheck;
use crate::rebuilt::Inconsistent;

/// Something that a check has found.
#[derive(Debug, Error)]
pub enum Finding {
    /// Bytes that are not what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation, so that something was not checked.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// Records, or files, that contradict each other.
    #[error("`{}`: {source}", dir.display())]
    Inconsistent {
        /// The folder of the shard.
        dir: PathBuf,
        /// The contradiction.
        source: Inconsistent,
    },
    /// Bytes of a stream that are in no file.
    #[error("`{}`: the bytes {from} to {to} of stream {stream:#x} (`{path}`) are in no file", dir.display())]
    Gap {
        /// The folder of the shard.
        dir: PathBuf,
        /// The number of the stream.
        stream: u64,
        /// Its path.
        path: String,
        /// The position of the first missing byte.
        from: u64,
        /// The position behind the last.
        to: u64,
    },
    /// The end of a write that a crash has cut off; a start removes it. Damage to the very last batch looks the same.
    #[error("`{}` ends in a torn write at byte {at}: {reason}", dir.display())]
    Torn {
        /// The folder of the shard.
        dir: PathBuf,
        /// Where in its last segment.
        at: u64,
        /// Which check failed there.
        reason: &'static str,
    },
    /// A file that nothing refers to. A start removes those of Alluvium's own.
    #[error("nothing refers to `{}`", file.display())]
    Leftover {
        /// The file.
        file: PathBuf,
    },
}

impl Finding {
    /// Whether something is wrong. The other findings are what a crash may leave behind, and a start puts in order.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Torn { .. } | Self::Leftover { .. })
    }
}

/// How much a check has looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checked {
    /// Shards.
    pub shards: u64,
    /// Streams that can be read, the internal ones of buckets and snapshots included.
    pub streams: u64,
    /// Segments of journals.
    pub segments: u64,
    /// Records in them.
    pub records: u64,
    /// Tables.
    pub tables: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Bytes of messages, in tables and journals.
    pub data_bytes: u64,
}

/// Checks the data directory `dir` and hands each finding to `report` as it is found.
///
/// # Errors
///
/// [`FormatError`] when this is no data directory of this version, or somebody has it open. Everything else is a
/// [`Finding`].
pub fn check(env: &Env, dir: &Path, report: &mut dyn FnMut(Finding)) -> Result<Checked, FormatError> {
    let (directory, format) = DataDirectory::look(env, dir)?;
    let mut checked = Checked { shards: u64::from(format.shards), ..Checked::default() };
    let mut shards = Vec::with_capacity(usize::from(format.shards));
    for index in 0..format.shards {
        let shard = ShardCheck::new(env, directory.shard_dir(index), &mut checked, report);
        shards.push(shard.read(index, format.segment_bytes));
    }
    References::new(&shards).check(&mut checked, report);
    Ok(checked)
}
