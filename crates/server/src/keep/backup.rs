//! Taking a backup: the parts are filled in, summed and synced, then the manifest is written, then the folder is named.

use std::path::Path;

use alluvium_env::{Disk, Env};
use alluvium_feed_store::keep as sqlite;
use alluvium_journal::{DataDirectory, Format};

use super::files::{copy_sparse, discard, parent, put_in_place, sum, sync, walk, with_ending};
use super::manifest::{Entry, Kind, MANIFEST_NAME, Manifest, is_path};
use super::{DATA, FEEDS, Folder, KeepFault, STORE, jetstream};

/// What a folder is called that is not a backup yet.
const PARTIAL: &str = ".partial";

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
    let (names, folders) = walk(dir)?;
    let mut files = Vec::with_capacity(names.len());
    for path in names {
        let file = dir.join(&path);
        if !is_path(&path) {
            return Err(KeepFault::NotWhole { file, what: "no file of a backup is called so".to_owned() });
        }
        sync(disk, &file)?;
        let (len, sha256) = sum(disk, &file)?;
        files.push(Entry { path, len, sha256 });
    }
    for folder in &folders {
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
/// `target` is made.
pub fn backup_closed(env: &Env, dir: &Path, store: Option<&Path>, target: &Path) -> Result<Taken, KeepFault> {
    let disk = env.disk.as_ref();
    match Folder::of(disk, dir) {
        Ok(Folder::Server { has_streams, has_feeds }) => assemble(env, target, Kind::Server, |partial| {
            let mut linked = 0;
            let data = partial.join(DATA);
            disk.create_dir_all(&data).map_err(KeepFault::disk(&data))?;
            if has_streams {
                linked = streams(env, dir, &data)?;
            }
            if has_feeds {
                alluvium_feeds::keep::copy_closed(disk, &dir.join(FEEDS), &data.join(FEEDS))?;
            }
            if let Some(store) = store {
                copy_store(store, partial)?;
            }
            Ok(linked)
        }),
        Ok(Folder::Jetstream) => assemble(env, target, Kind::Jetstream, |partial| {
            jetstream::copy_closed(disk, dir, &partial.join(DATA))
        }),
        Ok(Folder::Backup) => Err(KeepFault::Foreign(dir.to_owned())),
        // All there is may be the file.
        Err(KeepFault::Foreign(_)) if store.is_some() => assemble(env, target, Kind::Server, |partial| {
            let data = partial.join(DATA);
            disk.create_dir_all(&data).map_err(KeepFault::disk(&data))?;
            if let Some(store) = store {
                copy_store(store, partial)?;
            }
            Ok(0)
        }),
        Err(error) => Err(error),
    }
}

/// Copies the file of a SQLite store into a backup.
pub(super) fn copy_store(store: &Path, partial: &Path) -> Result<(), KeepFault> {
    sqlite::copy_database(store, &partial.join(STORE)).map_err(KeepFault::sqlite(store)).map(drop)
}

/// Copies the streams of a closed data directory, as a crash would leave them; the bytes that are linked.
fn streams(env: &Env, dir: &Path, target: &Path) -> Result<u64, KeepFault> {
    let disk = env.disk.as_ref();
    let (_lock, format) = DataDirectory::look(env, dir)?;
    let mut linked = 0;
    for shard in 0..format.shards {
        let (from, to) = (Format::shard_dir(dir, shard), Format::shard_dir(target, shard));
        disk.create_dir_all(&to).map_err(KeepFault::disk(&to))?;
        for name in disk.list(&from).map_err(KeepFault::disk(&from))? {
            let never_changes = ["table-", "body-", "checkpoint-"].iter().any(|kind| name.starts_with(kind));
            // Files in reserve, and replacements that were not finished, are made anew.
            if !name.starts_with("spare-") && !is_unfinished(&name) {
                linked += link_or_copy(disk, &from.join(&name), &to.join(&name), never_changes)?;
            }
        }
    }
    format.write(disk, target).map_err(|fault| KeepFault::Disk { path: fault.file, source: fault.source })?;
    Ok(linked)
}

/// Whether a file is a replacement that was not finished.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some()
}

/// Gives a file that never changes a second name where the system can, and copies others; the bytes that are linked.
pub(super) fn link_or_copy(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    never_changes: bool,
) -> Result<u64, KeepFault> {
    if never_changes && disk.link(from, to).is_ok() {
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
