//! Files of another data directory, of the same shard and number and with every checksum in order; and a directory whose
//! mark is gone.

use std::fs;
use std::path::{Path, PathBuf};

use alluvium_engine::{Checked, Engine, FormatError, OpenError, check};
use alluvium_env::{Env, Finding, FindingKind, OpenMode};

use crate::support::{Fixture, publish_request, small_options};

/// How the files of each kind are called.
const KINDS: [&str; 4] = ["journal-", "table-", "checkpoint-", "body-"];

/// A file of each kind.
fn files(fixture: &Fixture) -> Vec<String> {
    let names: Vec<String> = contents(fixture).into_iter().map(|(name, _)| name).collect();
    KINDS.iter().map(|kind| names.iter().find(|name| name.starts_with(kind)).unwrap().clone()).collect()
}

/// Where a file that says whose it is says so, and the end of what its checksum is over.
fn field(name: &str) -> (usize, usize) {
    if name.starts_with("journal-") { (46, 64) } else { (24, 32) }
}

/// A data directory with files of each kind, those of a body that no fold has come to among them; stopped.
async fn filled() -> Fixture {
    let mut options = small_options();
    options.shards = 1;
    let fixture = Fixture::with(options);
    for name in ["a", "b"] {
        fixture.create(name, "text/plain").await;
        fixture.append(name, "text/plain", format!("the content of {name}").as_bytes()).await;
    }
    fixture.fold();
    let tail = fixture.append("a", "text/plain", b"more").await.tail;
    fixture.engine.step_spare(0);
    let body = vec![b'x'; 300 * 1024];
    fixture.publish_body("a", publish_request(tail), &body).await.unwrap();
    fixture.engine.shutdown();
    fixture
}

fn shard(fixture: &Fixture) -> PathBuf {
    fixture.dir().join("streams/shard-00")
}

fn put(path: &Path, bytes: &[u8]) {
    let disk = Env::real().disk;
    if path.exists() {
        disk.remove(path).unwrap();
    }
    disk.open(path, OpenMode::CreateNew).unwrap().write_all_at(&[bytes], 0).unwrap();
}

fn look(dir: &Path) -> Result<(Checked, Vec<Finding>), FormatError> {
    let mut found = Vec::new();
    let checked = check(&Env::real(), dir, &mut |finding| found.push(finding))?;
    Ok((checked, found))
}

fn open(fixture: &Fixture) -> Result<Engine, OpenError> {
    let mut options = small_options();
    options.shards = 1;
    Engine::open(Env::real(), fixture.dir(), options)
}

/// Every file of a shard that has data, with what is in it.
fn contents(fixture: &Fixture) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(shard(fixture)).unwrap().map(|entry| entry.unwrap().path());
    let mut contents: Vec<(String, Vec<u8>)> = entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect();
    contents.retain(|(name, _)| !name.starts_with("spare-"));
    contents.sort();
    contents
}

#[tokio::test]
async fn files_of_another_directory_are_found_and_refused_not_served() {
    let (one, other) = (filled().await, filled().await);
    assert_eq!(look(one.dir()).unwrap().1, []);
    assert_eq!(files(&one), files(&other));
    for name in &files(&one) {
        let path = shard(&one).join(name);
        let own = fs::read(&path).unwrap();
        put(&path, &fs::read(shard(&other).join(name)).unwrap());
        let (_, found) = look(one.dir()).unwrap();
        let is_told = |found: &Finding| found.file == path && found.what.contains("another data directory");
        assert!(found.iter().any(|found| found.is_fault() && is_told(found)), "{name}: {found:?}");
        let before = contents(&one);
        let refused = open(&one).map(drop).unwrap_err().to_string();
        assert!(refused.contains("another data directory") && refused.contains(name), "{name}: {refused}");
        assert!(contents(&one) == before, "{name}: a start that was refused has changed something");
        put(&path, &own);
    }
    // The mark of another directory makes strangers of all of them.
    let format = fs::read(one.dir().join("FORMAT")).unwrap();
    put(&one.dir().join("FORMAT"), &fs::read(other.dir().join("FORMAT")).unwrap());
    let (_, found) = look(one.dir()).unwrap();
    assert!(found.iter().any(|found| found.what.contains("another data directory")), "{found:?}");
    open(&one).map(drop).unwrap_err();
    put(&one.dir().join("FORMAT"), &format);
    assert_eq!(look(one.dir()).unwrap().1, []);
    open(&one).unwrap().shutdown();
}

#[tokio::test]
async fn files_that_do_not_say_whose_they_are_are_taken_and_new_ones_say_it() {
    let mut one = filled().await;
    for (name, bytes) in contents(&one) {
        let mut bytes = bytes;
        if KINDS.iter().any(|kind| name.starts_with(kind)) {
            let (at, end) = field(&name);
            let is_of_use = bytes[..4] == *b"alvm";
            assert_eq!(bytes[at..at + 8] != [0; 8], is_of_use, "{name}");
            bytes[at..at + 8].fill(0);
            let crc = alluvium_journal::checksum(&bytes[12..end]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            put(&shard(&one).join(&name), &bytes);
        }
    }
    assert_eq!(look(one.dir()).unwrap().1, []);
    one.restart();
    assert_eq!(one.read("b"), b"the content of b");
    one.append("b", "text/plain", b" and more").await;
    one.fold();
    one.engine.shutdown();
    assert_eq!(look(one.dir()).unwrap().1, []);
    let new = contents(&one).into_iter().filter(|(name, _)| name.starts_with("checkpoint-"));
    for (name, bytes) in new {
        assert_ne!(bytes[24..32], [0; 8], "{name}");
    }
    one.restart();
    assert_eq!(one.read("b"), b"the content of b and more");
}

#[tokio::test]
async fn a_copy_and_a_backup_are_of_the_same_directory() {
    let (one, copy) = (filled().await, tempfile::tempdir().unwrap());
    let engine = open(&one).unwrap();
    engine.backup(copy.path()).unwrap();
    engine.shutdown();
    assert_eq!(look(copy.path()).unwrap().1, []);
    for name in files(&one) {
        let path = copy.path().join("streams/shard-00").join(&name);
        assert!(path.exists(), "{name} is not in the backup");
    }
}

#[tokio::test]
async fn without_its_mark_a_directory_is_looked_through_all_the_same() {
    let one = filled().await;
    let path = one.dir().join("FORMAT");
    let format = fs::read_to_string(&path).unwrap();
    let (whole, found) = look(one.dir()).unwrap();
    assert_eq!(found, []);
    let newer = format.replace("version 1\n", "version 2\n");
    for (text, told) in
        [(None, "is missing"), (Some(""), "data directory"), (Some(&format[..60]), "data directory")]
    {
        match text {
            None => Env::real().disk.remove(&path).unwrap(),
            Some(text) => put(&path, text.as_bytes()),
        }
        let (checked, found) = look(one.dir()).unwrap();
        assert_eq!(checked, whole, "{text:?}");
        let [only] = &found[..] else { panic!("{text:?}: {found:?}") };
        assert!(only.file == path && only.kind == FindingKind::Fault, "{only:?}");
        assert!(only.what.contains(told), "{only:?}");
        // What else is wrong is found as well.
        let table = shard(&one).join(&files(&one)[1]);
        let bytes = fs::read(&table).unwrap();
        let mut damaged = bytes.clone();
        damaged[40] ^= 1;
        put(&table, &damaged);
        let (_, found) = look(one.dir()).unwrap();
        assert!(found.iter().any(|found| found.file == table), "{found:?}");
        put(&table, &bytes);
        open(&one).map(drop).unwrap_err();
    }
    put(&path, newer.as_bytes());
    assert!(matches!(look(one.dir()), Err(FormatError::Version { version: 2, .. })));
    put(&path, format.as_bytes());
    assert_eq!(look(one.dir()).unwrap(), (whole, vec![]));
}

#[tokio::test]
async fn a_start_that_was_cut_off_is_no_directory_without_a_mark() {
    let fixture = Fixture::new();
    fixture.engine.shutdown();
    Env::real().disk.remove(&fixture.dir().join("FORMAT")).unwrap();
    assert!(matches!(look(fixture.dir()), Err(FormatError::Foreign { .. })));
    let engine = Engine::open(Env::real(), fixture.dir(), small_options()).unwrap();
    engine.shutdown();
    assert_eq!(look(fixture.dir()).unwrap().1, []);
}
