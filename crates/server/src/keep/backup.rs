//! Taking a backup: the parts are filled in, summed and synced, then the manifest is written, then the folder is named.

use std::path::Path;

use alluvium_env::{Disk, Env, Finding, FindingKind};
use alluvium_feed_store::keep as sqlite;
use alluvium_journal::{DataDirectory, Format, FormatError, ShardFile};

use super::check::check;
use super::files::{copy_sparse, discard, parent, put_in_place, sum, sync, walk, with_ending};
use super::folder::{Folder, refuse_overlap};
use super::manifest::{Entry, Kind, MANIFEST_NAME, Manifest, is_path};
use super::{DATA, FEEDS, KeepFault, STORE, jetstream};

/// What a folder is called that is not a backup yet.
const PARTIAL: &str = ".partial";
/// A file that is made to see whether one can be. No backup is called so.
const TRIED: &str = ".tried";

/// A backup that was taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Taken {
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of files that are also those of the data directory, under a second name.
    pub linked_bytes: u64,
    /// When it was finished, in milliseconds since the Unix epoch.
    pub taken_ms: u64,
}

/// Has a backup filled in and finishes it; `fill` gets its folder, and tells how many bytes are linked.
pub(super) fn assemble(
    env: &Env,
    target: &Path,
    kind: Kind,
    fill: impl FnOnce(&Path) -> Result<u64, KeepFault>,
) -> Result<Taken, KeepFault> {
    let disk = env.disk.as_ref();
    let partial = with_ending(target, PARTIAL);
    for (path, refusal) in
        [(target, KeepFault::Exists as fn(_) -> _), (&partial, KeepFault::Leftover as fn(_) -> _)]
    {
        if disk.exists(path).map_err(KeepFault::disk(path))? {
            return Err(refusal(path.to_owned()));
        }
    }
    disk.create_dir_all(&partial).map_err(KeepFault::disk(&partial))?;
    let finished = fill(&partial).and_then(|linked_bytes| {
        let taken = finish(env, &partial, kind, linked_bytes)?;
        put_in_place(disk, &partial, target)?;
        Ok(taken)
    });
    finished.inspect_err(|_| discard(&partial))
}

/// Sums and syncs everything, and writes the manifest.
fn finish(env: &Env, dir: &Path, kind: Kind, linked_bytes: u64) -> Result<Taken, KeepFault> {
    let disk = env.disk.as_ref();
    let walked = walk(dir)?.plain()?;
    let mut files = Vec::with_capacity(walked.files.len());
    for path in walked.files {
        let file = dir.join(&path);
        if !is_path(&path) {
            return Err(KeepFault::NotWhole { file, what: "no file of a backup is called so".to_owned() });
        }
        sync(disk, &file)?;
        let (len, sha256) = sum(disk, &file)?;
        files.push(Entry { path, len, sha256 });
    }
    for folder in &walked.folders {
        disk.sync_dir(folder).map_err(KeepFault::disk(folder))?;
    }
    let taken_ms = env.clock.now_ms();
    let bytes = files.iter().map(|file| file.len).sum();
    let taken = Taken { files: files.len() as u64, bytes, linked_bytes, taken_ms };
    let manifest = Manifest { kind, taken_ms, files };
    let unnamed = dir.join("BACKUP.tmp");
    let file = disk.open(&unnamed, alluvium_env::OpenMode::CreateNew).map_err(KeepFault::disk(&unnamed))?;
    file.write_all_at(&[manifest.encode().as_bytes()], 0).map_err(KeepFault::disk(&unnamed))?;
    file.sync_all().map_err(KeepFault::disk(&unnamed))?;
    put_in_place(disk, &unnamed, &dir.join(MANIFEST_NAME))?;
    Ok(taken)
}

/// Takes a backup of a data directory that no server runs on, and of the SQLite file `store` if its streams are there.
/// `target` is made. Everything is [checked](check) before, with copies in `scratch` where that needs some; what is found
/// goes to `report`, and so does what can't be copied. The backup is made of all the rest: with a fault among the findings
/// it is what there is, and not what there should be.
///
/// # Errors
///
/// [`KeepFault`], and then nothing is made.
pub fn backup_closed(
    env: &Env,
    dir: &Path,
    store: Option<&Path>,
    target: &Path,
    scratch: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Taken, KeepFault> {
    let disk = env.disk.as_ref();
    refuse_overlap(dir, target)?;
    let folder = match Folder::of(disk, dir) {
        Ok(Folder::Backup) => return Err(KeepFault::IsBackup(dir.to_owned())),
        // All there is may be the file.
        Err(KeepFault::Foreign(_)) if store.is_some() => {
            Folder::Server { has_streams: false, has_feeds: false }
        }
        other => other?,
    };
    check(env, dir, store, scratch, report)?;
    let kind = if folder == Folder::Jetstream { Kind::Jetstream } else { Kind::Server };
    assemble(env, target, kind, |partial| {
        let data = partial.join(DATA);
        disk.create_dir_all(&data).map_err(KeepFault::disk(&data))?;
        let Folder::Server { has_streams, has_feeds } = folder else {
            return jetstream::copy_closed(disk, dir, &data, report);
        };
        let linked = if has_streams { streams(env, dir, &data, report)? } else { 0 };
        if has_feeds {
            alluvium_feeds::keep::copy_whole(disk, &dir.join(FEEDS), &data.join(FEEDS), report)?;
        }
        if let Some(store) = store {
            copy_store(store, partial)?;
        }
        Ok(linked)
    })
}

/// Copies the file of a SQLite store into a backup.
pub(super) fn copy_store(store: &Path, partial: &Path) -> Result<(), KeepFault> {
    sqlite::copy_database(store, &partial.join(STORE)).map_err(KeepFault::sqlite(store)).map(drop)
}

/// Copies the streams of a closed data directory, as a crash would leave them; the bytes that are linked. What can't be
/// copied is told to `report`. Files that are none of a shard's, by their names, stay where they are, and so does what
/// a start makes anew: files in reserve, and replacements that were not finished.
fn streams(env: &Env, dir: &Path, target: &Path, report: &mut dyn FnMut(Finding)) -> Result<u64, KeepFault> {
    let disk = env.disk.as_ref();
    let (_lock, layout) = match DataDirectory::look(env, dir) {
        Ok(looked) => looked,
        // The check has told of it.
        Err(FormatError::Damage(_) | FormatError::Foreign { .. }) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let mut linked = 0;
    for shard in 0..layout.shards {
        let (from, to) = (Format::shard_dir(dir, shard), Format::shard_dir(target, shard));
        disk.create_dir_all(&to).map_err(KeepFault::disk(&to))?;
        let names = match disk.list(&from) {
            Ok(names) => names,
            Err(error) => {
                report(left_out(&from, &error));
                continue;
            }
        };
        for name in names {
            if let Some(kind) = ShardFile::of(&name).filter(|kind| *kind != ShardFile::Spare) {
                let never_changes = matches!(kind, ShardFile::Folded | ShardFile::Body);
                linked += copy_what_reads(disk, &from.join(&name), &to.join(&name), never_changes, report);
            }
        }
    }
    // Where the mark is missing there is none to copy, and the check has told of it.
    if let Ok(format) = layout.format {
        let written = format.write(disk, target);
        written.map_err(|fault| KeepFault::Disk { path: fault.file, source: fault.source })?;
    }
    Ok(linked)
}

/// [`link_or_copy`] of a file that may be damaged: if it can't be copied it is left out, and `report` is told.
pub(super) fn copy_what_reads(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    never_changes: bool,
    report: &mut dyn FnMut(Finding),
) -> u64 {
    link_or_copy(disk, from, to, never_changes).unwrap_or_else(|error| {
        // What there is of it is no copy; where there is nothing, nothing is removed.
        drop(disk.remove(to));
        report(left_out(from, &error));
        0
    })
}

fn left_out(file: &Path, error: &dyn std::fmt::Display) -> Finding {
    let what = format!("it is not in the backup, as it can't be copied: {error}");
    Finding::new(file, None, what, FindingKind::Unread)
}

/// Gives a file that never changes a second name where the system can, and copies others; the bytes that are linked.
pub(super) fn link_or_copy(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    never_changes: bool,
) -> Result<u64, KeepFault> {
    // A second name can be given to what is no file as well.
    if never_changes && from.is_file() && disk.link(from, to).is_ok() {
        let file = disk.open(to, alluvium_env::OpenMode::Read).map_err(KeepFault::disk(to))?;
        return file.len().map_err(KeepFault::disk(to));
    }
    copy_sparse(disk, from, to)?;
    Ok(0)
}

/// The folder that a backup is made in must be there, or can be made.
pub(super) fn prepare(disk: &dyn Disk, target: &Path) -> Result<(), KeepFault> {
    let folder = parent(target);
    disk.create_dir_all(folder).map_err(KeepFault::disk(folder))
}

/// Whether backups can be made in `folder`, of what is in `data`: makes it, and tries a file in it.
///
/// # Errors
///
/// [`KeepFault::Inside`] if one lies in the other, or what the disk refuses.
pub fn try_folder(disk: &dyn Disk, folder: &Path, data: &Path) -> Result<(), KeepFault> {
    refuse_overlap(data, folder)?;
    disk.create_dir_all(folder).map_err(KeepFault::disk(folder))?;
    let tried = folder.join(TRIED);
    if disk.exists(&tried).map_err(KeepFault::disk(&tried))? {
        disk.remove(&tried).map_err(KeepFault::disk(&tried))?;
    }
    disk.open(&tried, alluvium_env::OpenMode::CreateNew).map_err(KeepFault::disk(&tried))?;
    disk.remove(&tried).map_err(KeepFault::disk(&tried))
}
