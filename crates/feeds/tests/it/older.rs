//! Files of older schema versions: they are checked with what they have, copied as they are, and brought up to date by
//! whoever opens them. And while one space is opened, however long that takes, the others go on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use alluvium_env::sim::SeededRandom;
use alluvium_env::{Disk, DiskFile, DiskLock, Env, OpenMode, RealDisk};
use alluvium_feed_protocol::{QueryRequest, Request, Response, SubscribeRequest};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, blocks, known_version, spaces};
use alluvium_feeds::{Principal, Service, keep};

use crate::support::{Authority, append, block, id};

/// What takes a step back, as far as it has left anything: the version that it makes a file leave, and the statements.
const BACK: &[(i64, &str)] = &[
    (9, "ALTER TABLE blocks DROP COLUMN positionBefore; ALTER TABLE prunedChecks DROP COLUMN rowCheck;
         ALTER TABLE subscriptions DROP COLUMN rowCheck;"),
    (8, "UPDATE blocks SET rowCheck = NULL, placeCheck = NULL; UPDATE feeds SET nameCheck = NULL, rowCheck = NULL;
         UPDATE spaces SET rowCheck = NULL;"),
    (7, "ALTER TABLE blocks DROP COLUMN rowCheck; ALTER TABLE blocks DROP COLUMN placeCheck;
         ALTER TABLE feeds DROP COLUMN nameCheck; ALTER TABLE feeds DROP COLUMN rowCheck;
         ALTER TABLE spaces DROP COLUMN rowCheck;"),
    (6, "DROP TABLE refusals;"),
    (5, "DROP INDEX subscriptions_owner; ALTER TABLE subscriptions DROP COLUMN address;
         ALTER TABLE subscriptions DROP COLUMN awaitedFeedIds; ALTER TABLE subscriptions DROP COLUMN awaitedBytes;"),
    (4, "DROP TABLE prunedChecks;"),
    (3, "ALTER TABLE feeds DROP COLUMN lastTimestamp;"),
    (2, "DROP TABLE settings; ALTER TABLE replication DROP COLUMN fromTime;"),
];

/// The statements that make a file one of an older version.
pub(crate) fn back_to(version: i64) -> String {
    let steps = BACK.iter().filter(|(left, _)| *left > version).map(|(_, sql)| *sql).collect::<String>();
    format!("{steps} DELETE FROM migrations WHERE version > {version};")
}

fn file_of(folder: &Path) -> PathBuf {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap().join("space.sqlite")
}

/// A stopped authority with something pruned and a subscription, in a file of a version.
fn of_version(version: i64) -> Authority {
    let mut authority = Authority::new();
    for sequence in 0..6 {
        let blocks = vec![block("f", "a", sequence, "x"), block("g", "a", sequence, "y")];
        authority.append(append(blocks));
    }
    authority.subscribe(SubscribeRequest { feed_ids: Some(vec![id("f")]), ..SubscribeRequest::default() });
    authority.service().prune(&id("space"), &id("f"), 6).unwrap();
    authority.service().close();
    authority.service = None;
    unchain(&file_of(authority.folder.path()));
    change(authority.folder.path(), &back_to(version));
    authority
}

/// Has the blocks of a file not say what is before them, as those of before version 9.
fn unchain(file: &Path) {
    let connection = Connection::open(file).unwrap();
    let sql = "SELECT insertionId, position, positionCheck FROM blocks";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let rows: Vec<(i64, u64, i64)> = rows.unwrap().map(Result::unwrap).collect();
    for (row, position, check) in rows {
        let check = spaces::check_from_sql(check);
        blocks::set_position(&connection, row, Some(position), Some(check)).unwrap();
    }
}

fn change(folder: &Path, sql: &str) {
    Connection::open(file_of(folder)).unwrap().execute_batch(sql).unwrap();
}

/// What a check says is wrong, what else it says, and how many blocks it has seen.
fn checked(folder: &Path) -> (Vec<String>, Vec<String>, u64) {
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    let checked = keep::check(&RealDisk, folder, &mut |finding| {
        if finding.is_fault() { &mut faults } else { &mut notes }.push(finding.what);
    });
    (faults, notes, checked.unwrap().blocks)
}

#[test]
fn a_file_of_an_older_version_is_checked_with_what_it_has_and_stays_as_it_is() {
    for version in 1..known_version() {
        let authority = of_version(version);
        let file = file_of(authority.folder.path());
        let before = std::fs::read(&file).unwrap();
        let (faults, notes, blocks) = checked(authority.folder.path());
        assert_eq!((faults, blocks), (vec![], 9), "version {version}");
        let [note] = &notes[..] else { panic!("version {version}: {notes:?}") };
        let (old, now) = (format!("version {version};"), format!("version {}.", known_version()));
        assert!(note.contains(&old) && note.contains(&now), "{note}");
        assert!(std::fs::read(&file).unwrap() == before, "version {version}");
    }
}

#[test]
fn what_an_older_file_has_is_compared() {
    // A log beside it is read too: then the connection is another one.
    for (has_log, version) in (1..known_version()).flat_map(|version| [(false, version), (true, version)]) {
        for (sql, complaint) in [
            (
                "DROP TRIGGER blocks_data_is_immutable; UPDATE blocks SET data = x'00' WHERE position = 6",
                "hash",
            ),
            ("UPDATE blocks SET positionCheck = 1 WHERE position = 9", "the check at position 9"),
            ("UPDATE feeds SET blockCount = 77 WHERE feedId = 'g'", "the number of blocks"),
            ("DELETE FROM blocks WHERE position = 9", "the positions 9 to 9 are missing"),
            ("UPDATE subscriptions SET feedPrivateIds = '[99]'", "names a feed"),
        ] {
            let authority = of_version(version);
            let open = has_log.then(|| {
                let open = Connection::open(file_of(authority.folder.path())).unwrap();
                open.query_row("SELECT count(*) FROM spaces", [], |_| Ok(())).unwrap();
                open
            });
            change(authority.folder.path(), sql);
            // A copy of the files, as of a server that was killed.
            let copy = tempfile::tempdir().unwrap();
            let file = file_of(authority.folder.path());
            let to = copy.path().join(file.parent().unwrap().file_name().unwrap());
            std::fs::create_dir(&to).unwrap();
            for entry in std::fs::read_dir(file.parent().unwrap()).unwrap().map(Result::unwrap) {
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
            drop(open);
            assert_eq!(to.join("space.sqlite-wal").exists(), has_log);
            let (faults, notes, _) = checked(copy.path());
            // What has checks is told by them.
            let is_told = |fault: &String| {
                fault.contains(complaint) || (version >= 8 && fault.contains("is not what was written"))
            };
            assert!(faults.iter().any(is_told), "version {version}: {sql}: {faults:?}");
            assert_eq!(notes.len(), 1, "version {version}: {notes:?}");
        }
    }
}

#[test]
fn a_copy_of_an_older_file_is_whole_and_opens_as_one_of_this_version() {
    for version in 1..known_version() {
        let mut authority = of_version(version);
        let copy = tempfile::tempdir().unwrap();
        let target = copy.path().join("feeds");
        assert_eq!(keep::copy_closed(&RealDisk, authority.folder.path(), &target).unwrap(), 1);
        let (faults, notes, blocks) = checked(&target);
        assert_eq!((faults, notes.len(), blocks), (vec![], 1, 9), "version {version}");
        for folder in [authority.folder.path(), &target] {
            let env = Env {
                disk: Arc::new(RealDisk),
                random: Arc::new(SeededRandom::new(9)),
                clock: authority.clock.clone(),
            };
            let service = Service::open(folder, env, authority.options.clone()).unwrap();
            let all = Request::Query(QueryRequest { limit: Some(99), ..QueryRequest::default() });
            let Response::Query(page) =
                service.handle_blocking(&Principal::anyone(), &id("space"), all, None)
            else {
                panic!("version {version}")
            };
            assert_eq!((page.blocks.len(), page.max_position), (9, 12), "version {version}");
            service.close();
            drop(service);
            assert_eq!(checked(folder), (vec![], vec![], 9), "version {version}");
        }
        authority.start();
        authority.append(append(vec![block("f", "a", 6, "z")]));
    }
}

#[test]
fn a_file_of_a_newer_version_is_neither_checked_nor_copied() {
    let authority = of_version(known_version());
    change(authority.folder.path(), "INSERT INTO migrations (version) VALUES (99)");
    let is_newer = |error: keep::KeepError| match error {
        keep::KeepError::Store { source: StoreError::Newer { found: 99, known }, .. } => {
            known == known_version()
        }
        _ => false,
    };
    let path = authority.folder.path();
    assert!(is_newer(keep::check(&RealDisk, path, &mut |_| {}).unwrap_err()));
    let copy = tempfile::tempdir().unwrap();
    assert!(is_newer(keep::copy_closed(&RealDisk, path, &copy.path().join("feeds")).unwrap_err()));
}

/// A disk on which the guard of one space is only opened once somebody says so.
#[derive(Debug)]
struct Holding {
    /// The folder of the space, once that is known.
    held: Mutex<Option<PathBuf>>,
    entered: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Disk for Holding {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let is_held = self.held.lock().unwrap().as_deref() == Some(path);
        if is_held {
            self.entered.send(()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
        RealDisk.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        RealDisk.lock(path)
    }
}

#[test]
fn while_a_space_is_opened_only_those_who_want_it_wait() {
    let mut authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.service().close();
    authority.service = None;
    let guard = file_of(authority.folder.path()).with_file_name("guard");
    assert!(guard.exists());
    let (entered, has_entered) = channel();
    let (go, may_go) = channel();
    let disk = Arc::new(Holding { held: Mutex::new(Some(guard)), entered, go: Mutex::new(may_go) });
    let env = Env {
        disk: Arc::clone(&disk) as _,
        random: Arc::new(SeededRandom::new(9)),
        clock: authority.clock.clone(),
    };
    let service = Service::open(authority.folder.path(), env, authority.options.clone()).unwrap();
    let ask = |space: &str| {
        let all = Request::Query(QueryRequest::default());
        match service.handle_blocking(&Principal::anyone(), &id(space), all, None) {
            Response::Query(page) => page.max_position,
            other => panic!("{other:?}"),
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask("space"));
        has_entered.recv().unwrap();
        // Another one that is there, and one that isn't.
        let one = append(vec![block("f", "a", 0, "x")]);
        let appended =
            service.handle_blocking(&Principal::anyone(), &id("other"), Request::Append(one), None);
        assert!(matches!(appended, Response::Append(_)), "{appended:?}");
        assert_eq!((ask("other"), ask("nowhere")), (1, 0));
        let second = scope.spawn(|| ask("space"));
        // It is opened once: nobody else may be let in.
        go.send(()).unwrap();
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 1));
        assert!(has_entered.try_recv().is_err());
    });
}
