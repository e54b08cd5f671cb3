//! Replacing a small file in one durable step.

use std::path::Path;

use alluvium_env::{Disk, OpenMode};

use crate::error::{IoFault, io_fault};

/// The largest small file in bytes. None of ours comes near it.
const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Gives `name` in `dir` the content `bytes`: all or nothing. When it returns, the content and all names in `dir` as
/// they are now are durable.
pub(crate) fn replace_file(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), IoFault> {
    let path = dir.join(name);
    let scratch = dir.join(format!("{name}.tmp"));
    if disk.exists(&scratch).map_err(io_fault("look for", &scratch))? {
        disk.remove(&scratch).map_err(io_fault("remove", &scratch))?;
    }
    let file = disk.open(&scratch, OpenMode::CreateNew).map_err(io_fault("create", &scratch))?;
    file.write_all_at(&[bytes], 0).map_err(io_fault("write", &scratch))?;
    file.sync_all().map_err(io_fault("sync", &scratch))?;
    // What the new content refers to must have its names before the new content counts.
    disk.sync_dir(dir).map_err(io_fault("sync", dir))?;
    disk.rename(&scratch, &path).map_err(io_fault("rename", &scratch))?;
    disk.sync_dir(dir).map_err(io_fault("sync", dir))
}

/// The content of `name` in `dir`; `None` when there is no such file.
pub(crate) fn read_file(disk: &dyn Disk, dir: &Path, name: &str) -> Result<Option<Vec<u8>>, IoFault> {
    let path = dir.join(name);
    if !disk.exists(&path).map_err(io_fault("look for", &path))? {
        return Ok(None);
    }
    let file = disk.open(&path, OpenMode::Read).map_err(io_fault("open", &path))?;
    let len = file.len().map_err(io_fault("measure", &path))?.min(SMALL_FILE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(io_fault("read", &path))?;
    Ok(Some(bytes))
}

/// Makes `name` in `dir` durable as it is, with all names in `dir`, and removes what a replacement has left.
pub(crate) fn sync_file(disk: &dyn Disk, dir: &Path, name: &str) -> Result<(), IoFault> {
    let path = dir.join(name);
    let scratch = dir.join(format!("{name}.tmp"));
    if disk.exists(&scratch).map_err(io_fault("look for", &scratch))? {
        disk.remove(&scratch).map_err(io_fault("remove", &scratch))?;
    }
    let file = disk.open(&path, OpenMode::ReadWrite).map_err(io_fault("open", &path))?;
    file.sync_all().map_err(io_fault("sync", &path))?;
    disk.sync_dir(dir).map_err(io_fault("sync", dir))
}
