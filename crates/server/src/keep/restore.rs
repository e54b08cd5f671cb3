//! Bringing a backup back: copied beside the place it is for, compared with the manifest, checked, and put in place by a
//! rename.

use std::path::Path;

use alluvium_env::Env;

use super::check::{Counts, Found, check, read_manifest};
use super::files::{copy_summed, discard, parent, put_in_place, walk, with_ending};
use super::manifest::{MANIFEST_NAME, Manifest};
use super::{DATA, KeepFault, STORE};

/// What is called so is not restored yet.
const RESTORING: &str = ".restoring";

/// Makes `dir`, which is empty or not there, the data directory that `backup` is of; its SQLite file, if it has one, goes
/// to `store`, which is not there. What the check finds goes to `report`; if anything is wrong, nothing is put in place.
pub fn restore(
    env: &Env,
    backup: &Path,
    dir: &Path,
    store: Option<&Path>,
    report: &mut dyn FnMut(Found),
) -> Result<Counts, KeepFault> {
    let disk = env.disk.as_ref();
    if !disk.exists(&backup.join(MANIFEST_NAME)).map_err(KeepFault::disk(backup))? {
        return Err(KeepFault::Foreign(backup.to_owned()));
    }
    let manifest = read_manifest(env, backup)?;
    let has_store = manifest.files.iter().any(|file| file.path == STORE);
    match (has_store, store) {
        (true, None) => {
            return Err(KeepFault::Store(
                "the backup has the file of a SQLite store: say with --store where it goes",
            ));
        }
        (false, Some(_)) => return Err(KeepFault::Store("the backup has no file of a SQLite store")),
        (true, Some(_)) | (false, None) => {}
    }
    refuse_others(backup, &manifest)?;
    let is_there = disk.exists(dir).map_err(KeepFault::disk(dir))?;
    if is_there && !disk.list(dir).map_err(KeepFault::disk(dir))?.is_empty() {
        return Err(KeepFault::NotEmpty(dir.to_owned()));
    }
    if let Some(store) = store
        && disk.exists(store).map_err(KeepFault::disk(store))?
    {
        return Err(KeepFault::Exists(store.to_owned()));
    }
    // Without the ending of a folder, so that the other name lies beside it.
    let dir: &Path = &dir.components().collect::<std::path::PathBuf>();
    let restoring = with_ending(dir, RESTORING);
    // A file that is in the folder comes there with it.
    let store_restoring = store.map(|store| match store.strip_prefix(dir) {
        Ok(below) => restoring.join(below),
        Err(_) => with_ending(store, RESTORING),
    });
    for path in store_restoring.iter().chain([&restoring]) {
        if disk.exists(path).map_err(KeepFault::disk(path))? {
            return Err(KeepFault::Leftover(path.clone()));
        }
    }
    let brought = bring(env, backup, &manifest, (&restoring, store_restoring.as_deref()), report);
    let counts = brought.inspect_err(|_| {
        discard(&restoring);
        if let Some(path) = &store_restoring {
            // It may not have come to be.
            drop(disk.remove(path));
        }
    })?;
    if let (Some(from), Some(store)) = (&store_restoring, store)
        && !from.starts_with(&restoring)
    {
        put_in_place(disk, from, store)?;
    }
    put_in_place(disk, &restoring, dir)?;
    Ok(counts)
}

/// A file that the manifest does not name is none of the backup.
fn refuse_others(backup: &Path, manifest: &Manifest) -> Result<(), KeepFault> {
    let (names, _) = walk(backup)?;
    let is_named = |name: &String| manifest.files.binary_search_by(|entry| entry.path.cmp(name)).is_ok();
    match names.iter().find(|name| !is_named(name) && *name != MANIFEST_NAME) {
        Some(other) => {
            let what = "the manifest does not name it".to_owned();
            Err(KeepFault::NotWhole { file: backup.join(other), what })
        }
        None => Ok(()),
    }
}

/// Copies everything and checks it.
fn bring(
    env: &Env,
    backup: &Path,
    manifest: &Manifest,
    (dir, store): (&Path, Option<&Path>),
    report: &mut dyn FnMut(Found),
) -> Result<Counts, KeepFault> {
    let disk = env.disk.as_ref();
    disk.create_dir_all(dir).map_err(KeepFault::disk(dir))?;
    for entry in &manifest.files {
        let from = backup.join(&entry.path);
        let to = match (entry.path.strip_prefix(DATA).and_then(|path| path.strip_prefix('/')), store) {
            (Some(below), _) => dir.join(below),
            (None, Some(store)) if entry.path == STORE => store.to_owned(),
            (None, _) => {
                let what = "a backup of this version has no such file".to_owned();
                return Err(KeepFault::NotWhole { file: from, what });
            }
        };
        let folder = parent(&to);
        disk.create_dir_all(folder).map_err(KeepFault::disk(folder))?;
        if copy_summed(disk, &from, &to)? != (entry.len, entry.sha256) {
            let what = "it is not what the manifest says".to_owned();
            return Err(KeepFault::NotWhole { file: from, what });
        }
    }
    let (_, folders) = walk(dir)?;
    for folder in &folders {
        disk.sync_dir(folder).map_err(KeepFault::disk(folder))?;
    }
    let mut faults = 0;
    let counts = checked(env, dir, store, &mut |found| {
        faults += u64::from(found.is_fault);
        report(found);
    })?;
    if faults > 0 { Err(KeepFault::Damaged(faults)) } else { Ok(counts) }
}

/// Copies that the check makes lie beside what is checked, where there is room.
fn checked(
    env: &Env,
    dir: &Path,
    store: Option<&Path>,
    report: &mut dyn FnMut(Found),
) -> Result<Counts, KeepFault> {
    let is_empty = env.disk.list(dir).map_err(KeepFault::disk(dir))?.is_empty();
    if is_empty && store.is_none() {
        return Ok(Counts::new());
    }
    check(env, dir, store, parent(dir), report)
}
