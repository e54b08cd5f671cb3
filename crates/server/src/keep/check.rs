//! Looking through a data directory or a backup that no server uses: every byte that has a checksum, and what files say
//! of each other. Nothing is changed.

use std::path::Path;

use alluvium_env::{Env, Finding, FindingKind};
use alluvium_feed_store::StoreError;
use alluvium_feed_store::keep as sqlite;
use alluvium_journal::FormatError;
use alluvium_journal::format::STREAMS_NAME;

use super::files::{sum, walk};
use super::folder::{Folder, tell_of_special, tell_of_strays, tell_of_strays_of_jetstream};
use super::manifest::{MANIFEST_BYTES_MAX, MANIFEST_NAME, Manifest};
use super::{DATA, FEEDS, KeepFault, STORE, jetstream};

/// What is lost by what was found.
pub fn lost(finding: &Finding) -> &'static str {
    match finding.kind {
        FindingKind::Fault => lost_by(&finding.file),
        FindingKind::Unread => "not known: it was not looked at",
        FindingKind::Crash => "nothing: a start puts it in order",
        FindingKind::Stray => "nothing: it is none of ours, and stays",
    }
}

/// What is lost if a file is damaged.
fn lost_by(file: &Path) -> &'static str {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is = |prefix: &str, ending: &str| name.starts_with(prefix) && name.ends_with(ending);
    match &*name {
        "FORMAT" => "nothing by itself, but no start without it",
        "MANIFEST" => "what the shard's other files are for: no start; they may be whole",
        "BACKUP" => "the certainty that the backup is whole",
        "guard" => "nothing by itself: clients are told that the history is another one",
        "pending.log" => "events since the last full block that are not in a segment",
        "meta" => "what the Jetstream remembers: the relay's cursor, and the state of accounts",
        _ if is("journal-", ".seg") => {
            "writes from here to the end of the segment; no start as long as it is so"
        }
        _ if is("table-", ".tbl") => "messages of one block; reads of them are refused, all others work",
        _ if is("body-", ".tbl") => "a part of one snapshot; reads of it are refused, all others work",
        _ if is("checkpoint-", ".ckp") => "where the streams of the shard are; no start as long as it is so",
        _ if is("seg_", ".jss") => {
            "events of one block, or of the segment where its header or footer is damaged"
        }
        _ if is("", "-wal") => "transactions from here on",
        _ if is("space", ".sqlite") => "blocks of this space; its clients have those that they have pulled",
        _ if is("", ".sqlite") => "the streams that are named",
        _ => "what is named",
    }
}

/// How much was looked at: names of things, and how many.
pub type Counts = Vec<(&'static str, u64)>;

/// Checks what is in `dir`: a data directory of a server or of a Jetstream, or a backup; and the SQLite file `store`, where
/// that has the streams. Copies that have to be made are made in `scratch` and removed. Each finding is handed to
/// `report` as it is found.
///
/// # Errors
///
/// [`KeepFault`] where it cannot be looked at: a server runs on it, it is of another version, or it isn't ours.
pub fn check(
    env: &Env,
    dir: &Path,
    store: Option<&Path>,
    scratch: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, KeepFault> {
    match Folder::of(env.disk.as_ref(), dir) {
        Ok(Folder::Backup) => check_backup(env, dir, scratch, report),
        Ok(Folder::Server { has_streams: false, .. }) if store.is_none() => {
            Err(KeepFault::NoStreams(dir.to_owned()))
        }
        Ok(_) => check_data(env, dir, store, scratch, report),
        // All there is may be the file.
        Err(KeepFault::Foreign(_)) if store.is_some() => check_data(env, dir, store, scratch, report),
        Err(error) => Err(error),
    }
}

/// Checks what there is in a data directory, which may have no streams, and the SQLite file `store`.
pub(super) fn check_data(
    env: &Env,
    dir: &Path,
    store: Option<&Path>,
    scratch: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, KeepFault> {
    let (disk, mut counts) = (env.disk.as_ref(), Counts::new());
    match Folder::of(disk, dir) {
        Ok(Folder::Jetstream) => {
            tell_of_special(dir, report);
            tell_of_strays_of_jetstream(disk, dir, report)?;
            let checked = jetstream::check(env, dir, scratch, report)?;
            counts.extend([
                ("segments", checked.segments),
                ("blocks", checked.blocks),
                ("events", checked.rows),
                ("pending events", checked.pending_rows),
                ("keys of metadata", checked.keys),
            ]);
        }
        Ok(Folder::Server { has_streams, has_feeds }) => {
            tell_of_special(dir, report);
            tell_of_strays(disk, dir, store, report)?;
            if has_streams {
                check_streams(env, dir, &mut counts, report)?;
            }
            if has_feeds {
                check_feeds(env, dir, &mut counts, report)?;
            }
        }
        Ok(Folder::Backup) => return Err(KeepFault::IsBackup(dir.to_owned())),
        // The data directory of a server whose streams are in the file, without feeds.
        Err(KeepFault::Foreign(_)) => {}
        Err(error) => return Err(error),
    }
    if let Some(store) = store {
        check_store(env, store, &mut counts, report)?;
    }
    Ok(counts)
}

fn check_streams(
    env: &Env,
    dir: &Path,
    counts: &mut Counts,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepFault> {
    let checked = match alluvium_engine::check(env, dir, report) {
        Ok(checked) => checked,
        // Not even how it is cut is known any more. What else there is can be looked at.
        Err(FormatError::Damage(damage)) => {
            report(damage.into());
            return Ok(());
        }
        Err(FormatError::Foreign { dir }) => {
            let what = "a start was cut off before there was anything in it";
            report(Finding::of_a_crash(&dir.join(STREAMS_NAME), None, what));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    counts.extend([
        ("shards", checked.shards),
        ("streams", checked.streams),
        ("journal segments", checked.segments),
        ("records", checked.records),
        ("tables", checked.tables),
        ("table blocks", checked.blocks),
        ("bytes of messages", checked.data_bytes),
    ]);
    Ok(())
}

fn check_feeds(
    env: &Env,
    dir: &Path,
    counts: &mut Counts,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepFault> {
    let checked = alluvium_feeds::keep::check(env.disk.as_ref(), &dir.join(FEEDS), report)?;
    counts.extend([
        ("spaces", checked.spaces),
        ("feeds", checked.feeds),
        ("feed blocks", checked.blocks),
        ("bytes of feed blocks", checked.data_bytes),
    ]);
    Ok(())
}

fn check_store(
    env: &Env,
    store: &Path,
    counts: &mut Counts,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepFault> {
    let exists = env.disk.exists(store).map_err(KeepFault::disk(store))?;
    if !exists {
        report(Finding::fault(store, None, "it is missing"));
        return Ok(());
    }
    alluvium_feeds::keep::check_log(env.disk.as_ref(), store, report)?;
    let connection = match sqlite::look(store) {
        Ok(connection) => connection,
        Err(StoreError::Corrupt(what)) => {
            report(Finding::fault(store, None, what));
            return Ok(());
        }
        Err(error) => return Err(KeepFault::sqlite(store)(error)),
    };
    let mut tell = |what: String| report(Finding::fault(store, None, what));
    let checked = sqlite::check_structure(&connection, &mut tell)
        .and_then(|()| alluvium_sqlstore::check(&connection, &mut tell));
    match checked {
        Ok(checked) => counts.extend([
            ("streams", checked.streams),
            ("rows of bytes", checked.chunks),
            ("bytes of messages", checked.data_bytes),
            ("checkpoints", checked.checkpoints),
        ]),
        Err(error) if sqlite::is_damage(&error) => tell(format!("SQLite says: {error}")),
        Err(error) => return Err(KeepFault::sqlite(store)(StoreError::Sqlite(error))),
    }
    Ok(())
}

/// Compares every file of a backup with the manifest; whether it is as that says is told to `report`.
pub(super) fn read_manifest(env: &Env, dir: &Path) -> Result<Manifest, KeepFault> {
    let path = dir.join(MANIFEST_NAME);
    let file = env.disk.open(&path, alluvium_env::OpenMode::Read).map_err(KeepFault::disk(&path))?;
    let len = file.len().map_err(KeepFault::disk(&path))?;
    let not_whole = |what: &str| KeepFault::NotWhole { file: path.clone(), what: what.to_owned() };
    if len > MANIFEST_BYTES_MAX {
        return Err(not_whole("the manifest is too long"));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0).map_err(KeepFault::disk(&path))?;
    Manifest::decode(&bytes).map_err(not_whole)
}

fn check_backup(
    env: &Env,
    dir: &Path,
    scratch: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, KeepFault> {
    let disk = env.disk.as_ref();
    let manifest = match read_manifest(env, dir) {
        Ok(manifest) => manifest,
        Err(KeepFault::NotWhole { file, what }) => {
            report(Finding::fault(&file, None, what));
            return Ok(Counts::new());
        }
        Err(error) => return Err(error),
    };
    let walked = walk(dir)?;
    let mut is_whole = walked.others.is_empty();
    for other in &walked.others {
        report(Finding::fault(other, None, "it is neither a file nor a folder"));
    }
    let names = walked.files;
    for entry in &manifest.files {
        let path = dir.join(&entry.path);
        let what = if names.binary_search(&entry.path).is_err() {
            "the manifest names it, and it is missing"
        } else if sum(disk, &path)? != (entry.len, entry.sha256) {
            "it is not what the manifest says"
        } else {
            continue;
        };
        is_whole = false;
        report(Finding::fault(&path, None, what));
    }
    for name in &names {
        let is_named = manifest.files.binary_search_by(|entry| entry.path.cmp(name)).is_ok();
        if !is_named && name != MANIFEST_NAME {
            report(Finding::fault(&dir.join(name), None, "the manifest does not name it"));
        }
    }
    let mut counts = vec![
        ("files of the backup", manifest.files.len() as u64),
        ("bytes of the backup", manifest.files.iter().map(|file| file.len).sum()),
    ];
    // What is not the file that was written is not looked into: it was told of.
    if is_whole {
        let store = dir.join(STORE);
        let has_store = manifest.files.iter().any(|file| file.path == STORE);
        let store = has_store.then_some(store.as_path());
        counts.extend(check_data(env, &dir.join(DATA), store, scratch, report)?);
    }
    Ok(counts)
}
