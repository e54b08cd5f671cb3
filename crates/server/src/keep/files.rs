//! Files and folders of backups: finding, copying, summing.

use std::fs;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, DiskFile, OpenMode};
use sha2::{Digest as _, Sha256};

use super::KeepFault;

/// How many bytes are read at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// What is below a folder.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Every file, by its name from there with `/` between, ascending.
    pub(super) files: Vec<String>,
    /// Every folder, the one itself included.
    pub(super) folders: Vec<PathBuf>,
    /// What is neither, links among it.
    pub(super) others: Vec<PathBuf>,
}

impl Walked {
    /// The same, if there is nothing but files and folders.
    pub(super) fn plain(self) -> Result<Self, KeepFault> {
        match self.others.first() {
            Some(other) => {
                let what = "it is neither a file nor a folder".to_owned();
                Err(KeepFault::NotWhole { file: other.clone(), what })
            }
            None => Ok(self),
        }
    }
}

/// Goes through all that is below a folder.
pub(super) fn walk(dir: &Path) -> Result<Walked, KeepFault> {
    let (mut walked, mut next) = (Walked::default(), vec![String::new()]);
    while let Some(at) = next.pop() {
        let folder = dir.join(&at);
        let entries = fs::read_dir(&folder).map_err(KeepFault::disk(&folder))?;
        for entry in entries {
            let entry = entry.map_err(KeepFault::disk(&folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = if at.is_empty() { name } else { format!("{at}/{name}") };
            let kind = entry.file_type().map_err(KeepFault::disk(&entry.path()))?;
            if kind.is_dir() {
                next.push(name);
            } else if kind.is_file() {
                walked.files.push(name);
            } else {
                walked.others.push(entry.path());
            }
        }
        walked.folders.push(folder);
    }
    walked.files.sort_unstable();
    Ok(walked)
}

/// The length of a file, and its SHA-256.
pub(super) type Summed = (u64, [u8; 32]);

/// The length of a file and its sum.
pub(super) fn sum(disk: &dyn Disk, path: &Path) -> Result<Summed, KeepFault> {
    let file = disk.open(path, OpenMode::Read).map_err(KeepFault::disk(path))?;
    pieces(file.as_ref(), path, &mut |_, _| Ok(()))
}

/// Copies a file, zeros and all, makes the copy durable, and gives its length and sum.
pub(super) fn copy_summed(disk: &dyn Disk, from: &Path, to: &Path) -> Result<Summed, KeepFault> {
    let file = disk.open(from, OpenMode::Read).map_err(KeepFault::disk(from))?;
    let copy = disk.open(to, OpenMode::CreateNew).map_err(KeepFault::disk(to))?;
    let summed = pieces(file.as_ref(), from, &mut |piece, at| {
        copy.write_all_at(&[piece], at).map_err(KeepFault::disk(to))
    })?;
    copy.sync_all().map_err(KeepFault::disk(to))?;
    Ok(summed)
}

/// Copies a file whose zeros need no room, as those behind the end of a journal; how many bytes were not.
pub(super) fn copy_sparse(disk: &dyn Disk, from: &Path, to: &Path) -> Result<u64, KeepFault> {
    let file = disk.open(from, OpenMode::Read).map_err(KeepFault::disk(from))?;
    let copy = disk.open(to, OpenMode::CreateNew).map_err(KeepFault::disk(to))?;
    let mut copied = 0;
    let (len, _) = pieces(file.as_ref(), from, &mut |piece, at| {
        if piece.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        copied += piece.len() as u64;
        copy.write_all_at(&[piece], at).map_err(KeepFault::disk(to))
    })?;
    if copy.len().map_err(KeepFault::disk(to))? < len {
        copy.write_all_at(&[&[0]], len - 1).map_err(KeepFault::disk(to))?;
    }
    Ok(copied)
}

/// Gets each piece of a file and where it is.
type Visit<'a> = dyn FnMut(&[u8], u64) -> Result<(), KeepFault> + 'a;

fn pieces(file: &dyn DiskFile, path: &Path, visit: &mut Visit<'_>) -> Result<Summed, KeepFault> {
    let len = file.len().map_err(KeepFault::disk(path))?;
    let (mut sum, mut buffer, mut at) = (Sha256::new(), vec![0; PIECE_BYTES], 0);
    while at < len {
        let length = usize::try_from(len - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let piece = &mut buffer[..length];
        file.read_exact_at(piece, at).map_err(KeepFault::disk(path))?;
        visit(piece, at)?;
        sum.update(&*piece);
        at += length as u64;
    }
    Ok((len, sum.finalize().into()))
}

/// Has a file as durable as its content is now.
pub(super) fn sync(disk: &dyn Disk, path: &Path) -> Result<(), KeepFault> {
    let file = disk.open(path, OpenMode::Read).map_err(KeepFault::disk(path))?;
    file.sync_all().map_err(KeepFault::disk(path))
}

/// The folder that has this name in it.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A name beside another: with an ending.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Removes a folder that was not finished. What cannot be removed is in the way of the next run, which says so.
pub(super) fn discard(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir) {
        tracing::warn!(folder = %dir.display(), %error, "an unfinished folder cannot be removed");
    }
}

/// Gives a folder or file its final name, durably.
pub(super) fn put_in_place(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), KeepFault> {
    disk.rename(from, to).map_err(KeepFault::disk(to))?;
    let parent = parent(to);
    disk.sync_dir(parent).map_err(KeepFault::disk(parent))
}
