//! Looking through a data directory or a backup that no server uses: every byte that has a checksum, and what files say
//! of each other. Nothing is changed.

use std::path::{Path, PathBuf};

use alluvium_engine::Finding;
use alluvium_env::Env;
use alluvium_feed_store::StoreError;
use alluvium_feed_store::keep as sqlite;

use super::files::{sum, walk};
use super::manifest::{MANIFEST_BYTES_MAX, MANIFEST_NAME, Manifest};
use super::{DATA, FEEDS, Folder, KeepFault, STORE, jetstream};

/// Something that a check has found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// The file, or the folder where it is in no single file.
    pub file: PathBuf,
    /// Where in it, in bytes, if that can be told.
    pub at: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// What is lost by it.
    pub lost: &'static str,
    /// Whether something is wrong at all; other findings are what a crash may leave, and a start puts in order.
    pub is_fault: bool,
}

impl Found {
    pub(super) fn new(file: &Path, at: Option<u64>, what: String, is_fault: bool) -> Self {
        let lost = if is_fault { lost_by(file) } else { "nothing: a start puts it in order" };
        Self { file: file.to_owned(), at, what, lost, is_fault }
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
    report: &mut dyn FnMut(Found),
) -> Result<Counts, KeepFault> {
    let mut counts = Counts::new();
    match Folder::of(env.disk.as_ref(), dir) {
        Ok(Folder::Backup) => return check_backup(env, dir, scratch, report),
        Ok(Folder::Jetstream) => {
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
            if has_streams {
                check_streams(env, dir, &mut counts, report)?;
            }
            if has_feeds {
                check_feeds(env, dir, &mut counts, report)?;
            }
        }
        // All there is may be the file.
        Err(KeepFault::Foreign(_)) if store.is_some() => {}
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
    report: &mut dyn FnMut(Found),
) -> Result<(), KeepFault> {
    let checked = alluvium_engine::check(env, dir, &mut |finding| report(found(&finding)))?;
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

/// A finding of the engine.
fn found(finding: &Finding) -> Found {
    let is_fault = finding.is_fault();
    let (file, at, what) = match finding {
        Finding::Damage(damage) => (&damage.file, Some(damage.at), damage.reason.to_owned()),
        Finding::Io(fault) => (&fault.file, None, format!("can't {}: {}", fault.action, fault.source)),
        Finding::Inconsistent { dir, source } => (dir, None, source.to_string()),
        Finding::Gap { dir, stream, path, from, to } => {
            (dir, None, format!("the bytes {from} to {to} of stream {stream:#x} (`{path}`) are in no file"))
        }
        Finding::Torn { dir, at, reason } => {
            (dir, Some(*at), format!("the last segment ends in a torn write: {reason}"))
        }
        Finding::Leftover { file } => (file, None, "nothing refers to it".to_owned()),
    };
    Found::new(file, at, what, is_fault)
}

fn check_feeds(
    env: &Env,
    dir: &Path,
    counts: &mut Counts,
    report: &mut dyn FnMut(Found),
) -> Result<(), KeepFault> {
    let mut tell = |finding: alluvium_feeds::keep::Finding| {
        report(Found::new(&finding.file, finding.at, finding.what, finding.is_fault));
    };
    let checked = alluvium_feeds::keep::check(env.disk.as_ref(), &dir.join(FEEDS), &mut tell)?;
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
    report: &mut dyn FnMut(Found),
) -> Result<(), KeepFault> {
    let exists = env.disk.exists(store).map_err(KeepFault::disk(store))?;
    if !exists {
        report(Found::new(store, None, "it is missing".to_owned(), true));
        return Ok(());
    }
    alluvium_feeds::keep::check_log(env.disk.as_ref(), store, &mut |finding| {
        report(Found::new(&finding.file, finding.at, finding.what, finding.is_fault));
    })?;
    let connection = sqlite::look(store).map_err(KeepFault::sqlite(store))?;
    let mut tell = |what: String| report(Found::new(store, None, what, true));
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
    report: &mut dyn FnMut(Found),
) -> Result<Counts, KeepFault> {
    let disk = env.disk.as_ref();
    let manifest = match read_manifest(env, dir) {
        Ok(manifest) => manifest,
        Err(KeepFault::NotWhole { file, what }) => {
            report(Found::new(&file, None, what, true));
            return Ok(Counts::new());
        }
        Err(error) => return Err(error),
    };
    let (names, _) = walk(dir)?;
    let mut is_whole = true;
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
        report(Found::new(&path, None, what.to_owned(), true));
    }
    for name in &names {
        let is_named = manifest.files.binary_search_by(|entry| entry.path.cmp(name)).is_ok();
        if !is_named && name != MANIFEST_NAME {
            report(Found::new(&dir.join(name), None, "the manifest does not name it".to_owned(), true));
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
        counts.extend(check(env, &dir.join(DATA), has_store.then_some(store.as_path()), scratch, report)?);
    }
    Ok(counts)
}
