//! The data directory of a Jetstream: looked through, damaged, copied, brought back.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Env, Finding};
use alluvium_jetstream_archive::{Archive, Batch, FjallStore, Options};
use alluvium_jss::{Event, Kind, WriteLimits};
use alluvium_server::keep::{KeepFault, Taken, backup_closed, check, restore};
use tempfile::TempDir;

/// Batches of an archive, and rows of each.
const BATCHES: u64 = 60;
const ROWS: u64 = 3;

fn open(dir: &Path) -> Archive {
    let store = FjallStore::open(&dir.join("meta")).unwrap();
    let mut options = Options::new(dir.join("segments"));
    options.blocks = WriteLimits { block_rows: 7, ..WriteLimits::default() };
    options.segment_bytes = 700;
    Archive::open(Env::real(), Arc::new(store), options).unwrap().0
}

fn fill(archive: &Archive, batches: std::ops::Range<u64>) {
    for batch in batches {
        let event = |row: u64| Event {
            witnessed_at: i64::try_from(1_783_000_000_000_000 + batch * ROWS + row).unwrap(),
            indexed_at: 0,
            kind: Kind::Create,
            did: format!("did:plc:{}", batch % 11),
            collection: "app.bsky.feed.post".into(),
            rkey: format!("r{row}"),
            rev: "v".into(),
            payload: vec![0xa0; 90].into(),
        };
        let changes = [(format!("account/{batch}").into(), Some("a state".into()))];
        archive.submit(Batch { events: (0..ROWS).map(event).collect(), changes: changes.into() }).unwrap();
        archive.commit_waiting().unwrap();
    }
}

fn made(dir: &Path) {
    fs::create_dir_all(dir.join("meta")).unwrap();
    fill(&open(dir), 0..BATCHES);
}

fn look(dir: &Path) -> (Vec<Finding>, BTreeMap<&'static str, u64>) {
    let mut found = Vec::new();
    let counts = check(&Env::real(), dir, None, &std::env::temp_dir(), &mut |one| found.push(one)).unwrap();
    found.retain(Finding::is_fault);
    (found, counts.into_iter().collect())
}

fn backup(dir: &Path, target: &Path) -> Result<Taken, KeepFault> {
    let mut found = Vec::new();
    let scratch = std::env::temp_dir();
    let taken = backup_closed(&Env::real(), dir, None, target, &scratch, &mut |one| found.push(one));
    found.retain(Finding::is_fault);
    assert_eq!(found, []);
    taken
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[expect(clippy::disallowed_methods, reason = "a test damages files")]
fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test moves files")]
fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

#[test]
fn a_damaged_file_of_an_archive_is_named_and_a_whole_one_has_no_findings() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("data");
    made(&dir);
    let (found, counts) = look(&dir);
    assert_eq!(found, []);
    assert!(counts["segments"] > 3, "{counts:?}");
    assert_eq!(counts["events"] + counts["pending events"], BATCHES * ROWS);
    assert!(counts["keys of metadata"] > 2, "{counts:?}");
    for path in files(&dir.join("segments")) {
        let bytes = fs::read(&path).unwrap();
        for at in [3, bytes.len() / 3, bytes.len() / 2] {
            if bytes.len() <= at || path.ends_with("LOCK") {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            write(&path, &damaged);
            let (found, _) = look(&dir);
            // The last record of the pending log, and what lies behind it, look like an interrupted write.
            let is_torn = path.ends_with("pending.log") && at > 100;
            assert!(is_torn || found.iter().any(|found| found.file == path), "{at} of {path:?}: {found:?}");
        }
        write(&path, &bytes);
    }
    assert_eq!(look(&dir).0, []);
}

#[test]
fn metadata_that_is_older_than_the_archive_is_found() {
    let folder = TempDir::new().unwrap();
    let (dir, old) = (folder.path().join("data"), folder.path().join("old"));
    made(&dir);
    backup(&dir, &old).unwrap();
    fill(&open(&dir), BATCHES..2 * BATCHES);
    assert_eq!(look(&dir).0, []);
    fs::remove_dir_all(dir.join("meta")).unwrap();
    rename(&old.join("data/meta"), &dir.join("meta"));
    let (found, _) = look(&dir);
    assert!(found.iter().any(|found| found.what.contains("older than the archive")), "{found:?}");
}

#[test]
fn an_archive_goes_on_where_its_backup_ended() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    made(&place("data"));
    let running = open(&place("data"));
    let refused = backup(&place("data"), &place("no"));
    assert!(matches!(refused, Err(KeepFault::Locked(_))), "{refused:?}");
    let next = running.next_seq();
    drop(running);
    let taken = backup(&place("data"), &place("backup")).unwrap();
    assert!(taken.linked_bytes > 0, "{taken:?}");
    // What the old one does from now on is not seen in the copy.
    fill(&open(&place("data")), BATCHES..2 * BATCHES);
    let mut found = Vec::new();
    restore(&Env::real(), &place("backup"), &place("new"), None, &mut |one| found.push(one)).unwrap();
    assert!(found.iter().all(|found| !found.is_fault()), "{found:?}");
    let restored = open(&place("new"));
    assert_eq!(restored.next_seq(), next);
    fill(&restored, BATCHES..BATCHES + 5);
    drop(restored);
    assert_eq!(look(&place("new")).0, []);
}
