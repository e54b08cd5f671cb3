//! The data directory of a Jetstream: segments, a pending log, and the metadata store.

use std::fs;
use std::path::Path;

use alluvium_env::{Disk, Env, Finding};
use alluvium_jetstream_archive::{Archive, Checked, FjallStore, PENDING_LOG, Store, StoreError};
use alluvium_jss::SegmentIndex;

use super::backup::{copy_what_reads, link_or_copy};
use super::files::walk;
use super::{JETSTREAM, KeepFault};

/// Copies a directory that no server runs on; the bytes that are linked. What can't be copied is told to `report`.
pub(super) fn copy_closed(
    disk: &dyn Disk,
    dir: &Path,
    target: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<u64, KeepFault> {
    let (segments, meta) = JETSTREAM;
    let lock = dir.join(segments).join("LOCK");
    let Some(_lock) = disk.lock(&lock).map_err(KeepFault::disk(&lock))? else {
        return Err(KeepFault::Locked(dir.to_owned()));
    };
    let (from, to) = (dir.join(segments), target.join(segments));
    disk.create_dir_all(&to).map_err(KeepFault::disk(&to))?;
    let names = disk.list(&from).map_err(KeepFault::disk(&from))?;
    // The last one may still change.
    let last = names.iter().filter_map(|name| SegmentIndex::from_file_name(name)).max();
    let mut linked = 0;
    for name in &names {
        let index = SegmentIndex::from_file_name(name);
        // What else lies there is none of the archive's.
        if index.is_none() && name != PENDING_LOG {
            continue;
        }
        let never_changes = index.is_some() && index != last;
        linked += copy_what_reads(disk, &from.join(name), &to.join(name), never_changes, report);
    }
    copy_tree(disk, &dir.join(meta), &target.join(meta))?;
    Ok(linked)
}

/// Copies the archive of a running Jetstream, as of one moment; the bytes that are linked. When this returns nobody has the
/// copy's metadata open any more, so that its files stay as they are.
pub(super) fn copy_open(archive: &Archive, target: &Path) -> Result<u64, KeepFault> {
    let (segments, meta) = JETSTREAM;
    let store = FjallStore::open(&target.join(meta))
        .map_err(|error| KeepFault::Archive(StoreError(error.to_string()).into()))?;
    Ok(archive.backup(&target.join(segments), &store)?.linked_bytes)
}

/// Copies a folder with all that is in it.
fn copy_tree(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), KeepFault> {
    let walked = walk(from)?.plain()?;
    for folder in walked.folders {
        let folder = folder.strip_prefix(from).map_or(to.to_owned(), |below| to.join(below));
        disk.create_dir_all(&folder).map_err(KeepFault::disk(&folder))?;
    }
    for name in walked.files {
        link_or_copy(disk, &from.join(&name), &to.join(&name), false)?;
    }
    Ok(())
}

/// Checks a directory that no server runs on. The library of the metadata store cannot open one without writing to it: a
/// copy is looked at, in a folder that is made in `scratch` and removed.
pub(super) fn check(
    env: &Env,
    dir: &Path,
    scratch: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Checked, KeepFault> {
    let (segments, meta) = JETSTREAM;
    let meta = dir.join(meta);
    let copy = scratch.join(format!("alluvium-check-{:016x}", env.random.next_u64()));
    let _removed = Removed(&copy);
    let store = copy_tree(env.disk.as_ref(), &meta, &copy)
        .map_err(|error| StoreError(error.to_string()))
        .and_then(|()| FjallStore::open(&copy).map_err(|error| StoreError(error.to_string())));
    let store = store.as_ref().map(|store| store as &dyn Store).map_err(Clone::clone);
    let checked = alluvium_jetstream_archive::check(env, &dir.join(segments), &meta, store, report);
    checked.map_err(|error| match error {
        alluvium_jetstream_archive::Error::Locked => KeepFault::Locked(dir.to_owned()),
        other => other.into(),
    })
}

/// A folder that goes when this does.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.0.display(), %error, "a copy that was looked at cannot be removed");
        }
    }
}
