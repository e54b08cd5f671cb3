//! The data directory of a server: what lies in it that is none of ours, and what its backups have when its mark is gone.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_engine::{Engine, Fault, Options};
use alluvium_env::{Env, Finding, FindingKind, OpenMode};
use alluvium_server::keep::{KeepFault, backup_closed, check, restore};
use tempfile::TempDir;

fn put(path: &Path) {
    Env::real().disk.open(path, OpenMode::CreateNew).unwrap().write_all_at(&[b"notes"], 0).unwrap();
}

fn options() -> Options {
    let mut options = Options::new(Arc::new(|fault: &Fault| panic!("{fault}")));
    options.shards = 2;
    options.segment_bytes = 256 * 1024;
    options.limits.append_bytes_max = 64 * 1024;
    options
}

/// A data directory with a bucket in it, which is a record like any other.
fn made(dir: &Path) {
    let engine = Engine::open(Env::real(), dir, options()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for name in ["bucket-1", "bucket-2", "bucket-3", "bucket-4"] {
        let name = alluvium_protocol::BucketId::parse(name).unwrap();
        runtime.block_on(engine.create_bucket(&name)).unwrap();
    }
    for shard in 0..2 {
        engine.step_fold(shard).unwrap();
    }
    engine.shutdown();
}

fn look(dir: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    check(&Env::real(), dir, None, &std::env::temp_dir(), &mut |one| found.push(one)).unwrap();
    found
}

fn backup(dir: &Path, target: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    let scratch = std::env::temp_dir();
    backup_closed(&Env::real(), dir, None, target, &scratch, &mut |one| found.push(one)).unwrap();
    found
}

fn bring(backup: &Path, dir: &Path) -> Result<Vec<Finding>, KeepFault> {
    let mut found = Vec::new();
    restore(&Env::real(), backup, dir, None, &mut |one| found.push(one)).map(|_| found)
}

/// Everything below a folder.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn what_is_none_of_ours_is_a_note_wherever_it_lies_and_in_no_backup() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    let dir = place("data");
    made(&dir);
    assert_eq!(look(&dir), []);
    fs::create_dir_all(dir.join("feeds")).unwrap();
    put(&dir.join("feeds/lock"));
    let mut strays = Vec::new();
    for at in ["", "streams", "streams/shard-00", "streams/shard-01", "feeds"] {
        for name in ["notes.txt", "table-notes.txt", "journal-0000000000000001.seg.bak"] {
            strays.push(dir.join(at).join(name));
            put(strays.last().unwrap());
        }
        strays.push(dir.join(at).join("sub"));
        fs::create_dir_all(dir.join(at).join("sub/sub")).unwrap();
        put(&dir.join(at).join("sub/sub/notes.txt"));
    }
    strays.sort();
    let told = |found: Vec<Finding>| {
        assert!(found.iter().all(|found| found.kind == FindingKind::Stray), "{found:?}");
        let mut files: Vec<PathBuf> = found.into_iter().map(|found| found.file).collect();
        files.sort();
        files
    };
    assert_eq!(told(look(&dir)), strays);
    assert_eq!(told(backup(&dir, &place("backup"))), strays);
    let copied = below(&place("backup"));
    let is_stray = |path: &&PathBuf| {
        path.components().any(|part| ["sub", "notes.txt"].iter().any(|name| part.as_os_str() == *name))
            || path.to_string_lossy().contains("notes")
            || path.extension().is_some_and(|ending| ending == "bak")
    };
    assert_eq!(copied.iter().find(is_stray), None);
    assert_eq!(bring(&place("backup"), &place("restored")).unwrap(), []);
    // A start leaves them where they are too.
    Engine::open(Env::real(), &dir, options()).unwrap().shutdown();
    assert_eq!(told(look(&dir)), strays);
}

#[test]
fn without_its_mark_a_directory_is_backed_up_as_damaged() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    let dir = place("data");
    made(&dir);
    let whole = below(&dir).len();
    let mark = dir.join("FORMAT");
    Env::real().disk.remove(&mark).unwrap();
    for found in [look(&dir), backup(&dir, &place("backup"))] {
        let [only] = &found[..] else { panic!("{found:?}") };
        assert!(only.file == mark && only.is_fault() && only.what.contains("missing"), "{only:?}");
    }
    let names = |dir: &Path| -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = below(&dir.join("streams"))
            .iter()
            .map(|path| path.strip_prefix(dir).unwrap().to_owned())
            .collect();
        names.retain(|name| !name.to_string_lossy().contains("spare-"));
        names.sort();
        names
    };
    assert_eq!(names(&place("backup/data")), names(&dir));
    assert!(whole > names(&dir).len());
    let refused = bring(&place("backup"), &place("restored"));
    assert!(matches!(refused, Err(KeepFault::Damaged(1))), "{refused:?}");
    assert!(!place("restored").exists());
}
