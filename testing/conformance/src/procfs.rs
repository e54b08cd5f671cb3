//! What the kernel says about a process and a directory: open files, memory, bytes on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// How many files a process has open.
pub(crate) fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd")).context("list the open files of the server")?.count())
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The most resident memory that a process has had, in bytes.
pub(crate) fn peak_resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Resident memory of a process that is its own and no file's, in bytes.
pub(crate) fn anonymous_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no `{name}` line"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// Disk blocks held by everything below a directory, in bytes, and the number of files.
pub(crate) fn disk_use(dir: &Path) -> Result<(u64, usize)> {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            let (below, count) = disk_use(&entry.path())?;
            bytes += below;
            files += count;
        } else {
            bytes += metadata.blocks() * 512;
            files += 1;
        }
    }
    Ok((bytes, files))
}
