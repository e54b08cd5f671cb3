//! Bringing a backup back: copied beside the place it is for, compared with the manifest, checked, and put in place by a
//! rename.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use alluvium_env::{Env, Finding};

use super::check::{Counts, check_data, read_manifest};
use super::files::{copy_summed, discard, parent, put_in_place, walk, with_ending};
use super::folder::{real, refuse_overlap};
use super::manifest::{MANIFEST_NAME, Manifest};
use super::{DATA, KeepFault, STORE};

/// What is called so is not restored yet.
const RESTORING: &str = ".restoring";
/// Most findings that are told.
const FINDINGS_MAX: usize = 10_000;

/// Makes `dir`, which is empty or not there, the data directory that `backup` is of; its SQLite file, if it has one, goes
/// to `store`, which is not there. If the check finds anything wrong, nothing is put in place. What it finds goes to `report`
/// in the end, of the files that there are then: those of `dir`, or else those of the backup.
pub fn restore(
    env: &Env,
    backup: &Path,
    dir: &Path,
    store: Option<&Path>,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, KeepFault> {
    let disk = env.disk.as_ref();
    if !disk.exists(&backup.join(MANIFEST_NAME)).map_err(KeepFault::disk(backup))? {
        return Err(KeepFault::Foreign(backup.to_owned()));
    }
    for target in store.into_iter().chain([dir]) {
        refuse_overlap(backup, target)?;
    }
    let manifest = read_manifest(env, backup)?;
    refuse_store(&manifest, store)?;
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
    // Where links lead, so that the other name lies beside the folder itself, and one path is known to be in another.
    let (dir, store) = (&*real(dir)?, store.map(real).transpose()?);
    let store = store.as_deref();
    if is_there && is_mount(dir)? {
        return Err(KeepFault::Mounted(dir.to_owned()));
    }
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
    let mut findings = Vec::new();
    let brought = bring(env, backup, &manifest, &restoring, store_restoring.as_deref(), &mut findings);
    // They are told of files that are there when this is over.
    let (data, file) = match (&brought, store) {
        (Ok(_), Some(store)) => (dir.to_owned(), store.to_owned()),
        (Ok(_), None) => (dir.to_owned(), dir.to_owned()),
        (Err(_), _) => (backup.join(DATA), backup.join(STORE)),
    };
    for mut finding in findings {
        if store_restoring.as_ref() == Some(&finding.file) {
            finding.file.clone_from(&file);
        } else if let Ok(below) = finding.file.strip_prefix(&restoring) {
            finding.file = data.join(below);
        }
        report(finding);
    }
    let undo = || {
        discard(&restoring);
        if let Some(path) = &store_restoring {
            // It may not have come to be.
            drop(disk.remove(path));
        }
    };
    let counts = brought.inspect_err(|_| undo())?;
    put_in_place(disk, &restoring, dir).inspect_err(|_| undo())?;
    if let (Some(from), Some(store)) = (&store_restoring, store)
        && !from.starts_with(&restoring)
    {
        put_in_place(disk, from, store)?;
    }
    Ok(counts)
}

/// Whether a folder is the root of another file system than the one around it.
fn is_mount(dir: &Path) -> Result<bool, KeepFault> {
    let device = |path: &Path| path.metadata().map(|about| about.dev()).map_err(KeepFault::disk(path));
    Ok(device(dir)? != device(parent(dir))?)
}

/// Whoever has the file of a store must have a place for it, and nobody else.
fn refuse_store(manifest: &Manifest, store: Option<&Path>) -> Result<(), KeepFault> {
    let has_store = manifest.files.iter().any(|file| file.path == STORE);
    match (has_store, store) {
        (true, None) => {
            Err(KeepFault::Store("the backup has the file of a SQLite store: say with --store where it goes"))
        }
        (false, Some(_)) => Err(KeepFault::Store("the backup has no file of a SQLite store")),
        (true, Some(_)) | (false, None) => Ok(()),
    }
}

/// A file that the manifest does not name is none of the backup.
fn refuse_others(backup: &Path, manifest: &Manifest) -> Result<(), KeepFault> {
    let names = walk(backup)?.plain()?.files;
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
    dir: &Path,
    store: Option<&Path>,
    findings: &mut Vec<Finding>,
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
    for folder in &walk(dir)?.folders {
        disk.sync_dir(folder).map_err(KeepFault::disk(folder))?;
    }
    let mut faults = 0;
    let counts = checked(env, dir, store, &mut |finding| {
        faults += u64::from(finding.is_fault());
        // Of a backup that is whole there are few; who gets very many has seen enough.
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    })?;
    if faults > 0 { Err(KeepFault::Damaged(faults)) } else { Ok(counts) }
}

/// Copies that the check makes lie beside what is checked, where there is room.
fn checked(
    env: &Env,
    dir: &Path,
    store: Option<&Path>,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, KeepFault> {
    let is_empty = env.disk.list(dir).map_err(KeepFault::disk(dir))?.is_empty();
    if is_empty && store.is_none() {
        return Ok(Counts::new());
    }
    check_data(env, dir, store, parent(dir), report)
}
