//! Checking a data directory that nobody has open: every checksum, and everything that one file says of another.
//!
//! A start believes checksums of tables only when it reads them, and stops at the first fault. Here everything is read
//! once, what is wrong is told and passed by, and nothing is changed: not even a torn tail is cut.

mod references;
mod shard;

use std::path::Path;

use alluvium_env::{Env, Finding, FindingKind};
use alluvium_journal::format::STREAMS_NAME;
use alluvium_journal::{DataDirectory, FormatError, Layout, Shape, shard_name};

use crate::check::references::References;
use crate::check::shard::ShardCheck;
use crate::rebuilt::Inconsistent;

/// Records, or files, of a shard that contradict each other.
fn inconsistent(dir: &Path, source: &Inconsistent) -> Finding {
    Finding::fault(dir, None, source.to_string())
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
/// [`FormatError`] when this is no data directory of this version, somebody has it open, or nothing tells any more how it
/// is cut. Everything else is a [`Finding`], also that its mark is missing.
pub fn check(env: &Env, dir: &Path, report: &mut dyn FnMut(Finding)) -> Result<Checked, FormatError> {
    let (data_directory, Layout { format, shards, segment_bytes, directory }) =
        DataDirectory::look(env, dir)?;
    match format {
        Ok(_) => {}
        Err(FormatError::Damage(damage)) => report(damage.into()),
        Err(FormatError::Io(fault)) => report(fault.into()),
        Err(error) => return Err(error),
    }
    let mut checked = Checked { shards: u64::from(shards), ..Checked::default() };
    let mut found = Vec::with_capacity(usize::from(shards));
    for index in 0..shards {
        let shape = Shape { segment_bytes, shard: Some(index), directory };
        let dir = data_directory.shard_dir(index);
        found.push(ShardCheck::new(env, index, dir, &mut checked, report).read(shape));
    }
    References::new(&found).check(&mut checked, report);
    folders(env, dir, shards, report);
    Ok(checked)
}

/// Tells of what lies beside the folders of the shards.
fn folders(env: &Env, dir: &Path, shards: u16, report: &mut dyn FnMut(Finding)) {
    let dir = dir.join(STREAMS_NAME);
    let known: Vec<String> = (0..shards).map(shard_name).collect();
    let names = match env.disk.list(&dir) {
        Ok(names) => names,
        Err(error) => {
            return report(Finding::new(&dir, None, format!("can't list it: {error}"), FindingKind::Unread));
        }
    };
    for name in names.iter().filter(|name| !known.contains(name)) {
        let file = dir.join(name);
        report(if name.starts_with("shard-") {
            let what = format!("it is the folder of a shard, and the directory has {shards} others only");
            Finding::fault(&file, None, what)
        } else {
            Finding::stray(&file)
        });
    }
}
