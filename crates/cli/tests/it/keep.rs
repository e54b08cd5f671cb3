//! `alluvium check`, `backup` and `restore` over the binary: each kind of file, damaged, is named; what is not whole is not
//! brought back; and nothing that is looked at is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::support::{Cli, Ended, Server, call};

const TEXT: &str = "content-type: text/plain";
const JSON: &str = "content-type: application/json";

fn put(server: &Server, target: &str, body: &[u8]) {
    let answer = call(server.address(), "PUT", target, &[TEXT], body);
    assert!(answer.status < 300, "{target}: {} {}", answer.status, answer.text());
}

/// A server with something of everything, killed.
fn used(flags: &str) -> Server {
    let mut server = Server::start_with(flags);
    fill(&server, true);
    server.kill();
    server
}

fn fill(server: &Server, has_buckets: bool) {
    for stream in 0..6 {
        put(server, &format!("/v1/stream/s{stream}"), &vec![b'x'; 40_000]);
    }
    if has_buckets {
        put(server, "/ds/docs", b"");
        put(server, "/ds/docs/page", b"one\n");
        let head = call(server.address(), "HEAD", "/ds/docs/page", &[], b"");
        let target = format!("/ds/docs/page/snapshot/{}", head.next_offset());
        put(server, &target, &vec![b's'; 300_000]);
    }
    for sequence in 0..9 {
        let feed = sequence % 2;
        let message = format!(
            r#"{{"requestId":"r","blocks":[{{"feedId":"f{feed}","actorId":"a","sequence":{sequence},"data":"{}"}}]}}"#,
            "QUJD".repeat(3000)
        );
        let target = "/feeds/v1/spaces/demo/append";
        let answer = call(server.address(), "POST", target, &[JSON], message.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

fn check(dir: &Path, more: &str) -> Ended {
    Cli::new(&format!("check --json {more}")).arg(dir.to_str().unwrap()).run()
}

/// The findings that are faults, and what was looked at.
fn faults(ended: &Ended) -> (Vec<Value>, Value) {
    let text = String::from_utf8(ended.stdout.clone()).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap_or_else(|| panic!("nothing was told: {}", ended.stderr));
    lines.retain(|line| line["kind"] == "fault");
    assert_eq!(last["faults"], lines.len(), "{text}");
    (lines, last["checked"].clone())
}

/// Every file of a folder with its bytes.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

/// The byte in the middle of the part of a file that is not zeros at its end.
fn middle(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) / 2
}

/// A byte of what is stored in a database, on a page that holds nothing else: on others there may be what was moved away.
fn stored(bytes: &[u8], pattern: &[u8]) -> usize {
    let run: Vec<u8> = pattern.iter().copied().cycle().take(4000).collect();
    bytes.windows(run.len()).position(|window| window == run).unwrap()
}

#[test]
fn after_a_kill_nothing_is_wrong_and_looking_changes_nothing() {
    for server in [used("--shards 2 --segment-bytes 128KiB --append-bytes-max 60KiB"), used("")] {
        let before = contents(server.data());
        let (found, counted) = faults(&check(server.data(), ""));
        assert_eq!(found, Vec::<Value>::new());
        for what in ["streams", "records", "spaces", "feed_blocks", "bytes_of_messages"] {
            assert!(counted[what].as_u64().unwrap() > 0, "{what}: {counted}");
        }
        assert_eq!(counted["feed_blocks"], 9);
        assert!(contents(server.data()) == before, "a check has changed a file");
    }
}

#[test]
fn a_damaged_file_of_any_kind_is_named() {
    // Small segments, so that some are folded: the maintenance does that by itself, and the restart waits for it.
    let mut server = Server::start_with("--shards 1 --segment-bytes 128KiB --append-bytes-max 60KiB");
    fill(&server, true);
    let has_table = |server: &Server| {
        contents(server.data()).keys().any(|path| path.to_string_lossy().contains("/table-"))
    };
    while !has_table(&server) {
        put(&server, "/v1/stream/more", b"");
        let more = vec![b'y'; 50_000];
        call(server.address(), "POST", "/v1/stream/more", &[TEXT], &more);
    }
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let files = contents(server.data());
    let mut seen = BTreeMap::new();
    for (path, bytes) in &files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kind = name.split(['-', '.']).next().unwrap().to_owned();
        if ["LOCK", "lock", "spare"].contains(&kind.as_str()) || bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = if kind == "space" { stored(bytes, b"ABC") } else { middle(bytes) };
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        write(path, &damaged);
        let ended = check(server.data(), "");
        write(path, bytes);
        // The last segment has so little that its only batches may be those at its end: that is a torn write.
        if ended.code == Some(0) && kind == "journal" {
            continue;
        }
        let (found, _) = if ended.code == Some(2) { (Vec::new(), Value::Null) } else { faults(&ended) };
        let told = format!("{found:?} {}", ended.stderr);
        assert!(told.contains(path.to_str().unwrap()), "byte {at} of {}: {told}", path.display());
        *seen.entry(kind).or_insert(0) += 1;
    }
    for kind in ["journal", "table", "checkpoint", "body", "MANIFEST", "FORMAT", "space", "guard"] {
        assert!(seen.contains_key(kind), "no {kind} was damaged: {seen:?}");
    }
    assert_eq!(faults(&check(server.data(), "")).0, Vec::<Value>::new());
}

#[test]
fn a_set_back_space_and_a_damaged_log_are_found() {
    let mut server = Server::start();
    fill(&server, false);
    server.kill();
    let space = |files: &BTreeMap<PathBuf, Vec<u8>>, ending: &str| {
        files.keys().find(|path| path.to_string_lossy().ends_with(ending)).unwrap().clone()
    };
    let files = contents(server.data());
    let log = space(&files, "space.sqlite-wal");
    let mut damaged = files[&log].clone();
    // In the first transaction, behind which there are others.
    damaged[3000] ^= 1;
    write(&log, &damaged);
    let ended = check(server.data(), "");
    let (found, _) = faults(&ended);
    assert!(found.iter().any(|fault| fault["file"] == log.to_str().unwrap()), "{found:?}");
    assert_eq!(ended.code, Some(1));
    // Without its log the database is older than its guard.
    fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    let (found, _) = faults(&check(server.data(), ""));
    assert!(!found.is_empty());
}

#[test]
fn what_has_lost_its_mark_is_looked_at_all_the_same_or_refused() {
    let mut server = Server::start();
    fill(&server, false);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("b").display().to_string();
    remove(&server.data().join("feeds/lock"));
    let (found, counted) = faults(&check(server.data(), ""));
    assert_eq!((found, counted["feed_blocks"].as_u64()), (Vec::new(), Some(9)));
    remove(&server.data().join("FORMAT"));
    // It is the one thing that is wrong, everything else is looked through and copied, and a server is not made of that.
    let (found, counted) = faults(&check(server.data(), ""));
    let is_of_mark = |fault: &Value| fault["file"].as_str().unwrap().ends_with("FORMAT");
    assert!(found.len() == 1 && is_of_mark(&found[0]), "{found:?}");
    assert_eq!(counted["feed_blocks"].as_u64(), Some(9));
    Cli::new("backup").arg(server.data().to_str().unwrap()).arg(&target).run().fails_with(9);
    let restored = folder.path().join("r").display().to_string();
    Cli::new("restore").arg(&target).arg(&restored).run().fails_with(1);
    assert!(!Path::new(&restored).exists());
}

#[test]
fn a_log_without_its_database_is_told_of_and_stays() {
    let mut server = Server::start();
    fill(&server, false);
    server.kill();
    let files = contents(server.data());
    let is_database = |path: &&PathBuf| path.to_string_lossy().ends_with("space.sqlite");
    let database = files.keys().find(is_database).unwrap().clone();
    write(&database, b"");
    let before = contents(server.data());
    let (found, _) = faults(&check(server.data(), ""));
    assert!(found.iter().any(|fault| fault["file"] == database.to_str().unwrap()), "{found:?}");
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("b").display().to_string();
    // All else is in the backup.
    let ended = Cli::new("backup").arg(server.data().to_str().unwrap()).arg(&target).run();
    assert!(String::from_utf8_lossy(&ended.stdout).contains(database.to_str().unwrap()), "{ended:?}");
    ended.fails_with(9);
    assert!(contents(server.data()) == before, "a file was changed by looking at it");
    let (found, counted) = faults(&check(Path::new(&target), ""));
    assert_eq!((found, counted["feed_blocks"].as_u64()), (Vec::new(), Some(0)));
    assert!(counted["streams"].as_u64() > Some(5), "{counted}");
}

#[test]
fn one_sqlite_file_is_looked_through_and_brought_back() {
    let mut server = Server::on_sqlite("");
    fill(&server, false);
    let file = server.data().join("streams.sqlite");
    let flag = format!("--store sqlite:{}", file.display());
    assert!(check(server.data(), &flag).fails_with(2).contains("in use"));
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let (found, counted) = faults(&check(server.data(), &flag));
    assert_eq!((found, counted["streams"].as_u64()), (Vec::new(), Some(6)));
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    Cli::new(&format!("backup {flag}")).arg(server.data().to_str().unwrap()).arg(&place("b")).run().ok();
    // It has brought what was in the log into the file.
    let bytes = fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[stored(&bytes, b"x")] = b'y';
    write(&file, &damaged);
    let (found, _) = faults(&check(server.data(), &flag));
    assert!(found[0]["what"].as_str().unwrap().contains("checksum"), "{found:?}");
    write(&file, &bytes);
    let restore = || Cli::new("restore").arg(&place("b")).arg(&place("data"));
    restore().run().fails_with(1);
    restore().arg("--store").arg(&format!("sqlite:{}", place("s.sqlite"))).run().ok();
    let flag = format!("--store sqlite:{}", place("s.sqlite"));
    let (found, counted) = faults(&check(Path::new(&place("data")), &flag));
    assert_eq!((found, counted["streams"].as_u64()), (Vec::new(), Some(6)));
    // Where links lead, and with the file in the folder, however that is spelt.
    for name in ["real", "other"] {
        fs::create_dir(place(name)).unwrap();
    }
    std::os::unix::fs::symlink("real", place("link")).unwrap();
    for (dir, store) in [
        (place("link"), place("linked.sqlite")),
        (place("./new"), place("new/streams.sqlite")),
        (place("newer"), place("other/../newer/streams.sqlite")),
    ] {
        let flag = format!("sqlite:{store}");
        Cli::new("restore").arg(&place("b")).arg(&dir).arg("--store").arg(&flag).run().ok();
        let (found, counted) = faults(&check(Path::new(&dir), &format!("--store {flag}")));
        assert_eq!((found, counted["streams"].as_u64()), (Vec::new(), Some(6)), "{dir} {store}");
        assert!(Path::new(&place("link")).is_symlink(), "the link itself is no target");
    }
    // What cannot be put in place leaves nothing.
    let before = contents(folder.path());
    let flag = format!("sqlite:{}", place("none.sqlite"));
    let said =
        Cli::new("restore").arg(&place("b")).arg("/proc").arg("--store").arg(&flag).run().fails_with(1);
    assert!(said.contains("/proc"), "{said}");
    assert!(contents(folder.path()) == before, "something was made");
}

#[test]
fn a_backup_that_is_not_whole_is_not_brought_back() {
    let server = used("");
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    let restore = |target: &str| {
        Cli::new("restore").arg(place("b").to_str().unwrap()).arg(place(target).to_str().unwrap()).run()
    };
    let taken = Cli::new("backup").arg(server.data().to_str().unwrap()).arg(place("b").to_str().unwrap());
    taken.run().ok();
    let again = Cli::new("backup").arg(server.data().to_str().unwrap()).arg(place("b").to_str().unwrap());
    assert!(again.run().fails_with(1).contains("is there already"));
    let (found, _) = faults(&check(&place("b"), ""));
    assert_eq!(found, Vec::<Value>::new());
    // A file of the backup that is damaged, cut, missing, or too many.
    let files = contents(&place("b"));
    for (path, bytes) in &files {
        let name = path.display();
        let mut damaged = bytes.clone();
        if let Some(byte) = damaged.get_mut(middle(bytes)) {
            *byte ^= 1;
            // Others may be second names of files of the data directory.
            remove(path);
            write(path, &damaged);
            assert_eq!(check(&place("b"), "").code, Some(1), "{name}");
            restore("x").fails_with(1);
            assert!(!place("x").exists() && !place("x.restoring").exists(), "{name}");
        }
        remove(path);
        if !path.ends_with("BACKUP") {
            assert_eq!(check(&place("b"), "").code, Some(1), "{name}");
        }
        restore("x").fails_with(1);
        write(path, bytes);
    }
    write(&place("b").join("data/more"), b"more");
    restore("x").fails_with(1);
    remove(&place("b").join("data/more"));
    restore("x").ok();
    assert!(restore("x").fails_with(1).contains("is not empty"));
    let (found, counted) = faults(&check(&place("x"), ""));
    assert_eq!((found, counted["feed_blocks"].as_u64()), (Vec::new(), Some(9)));
}

#[test]
fn what_is_none_of_ours_is_not_looked_at() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("thesis.tex"), b"\\end");
    check(folder.path(), "").fails_with(2);
    let target = folder.path().join("b");
    let backup = Cli::new("backup").arg(folder.path().to_str().unwrap()).arg(target.to_str().unwrap());
    backup.run().fails_with(1);
    assert!(!target.exists());
}

#[test]
fn a_running_server_takes_backups_only_where_it_was_told_to() {
    let folder = TempDir::new().unwrap();
    let server = Server::start();
    let live = |server: &Server| Cli::new("backup daily --url").arg(&server.url()).run();
    assert!(live(&server).fails_with(3).contains("backup-dir"));
    let server = Server::start_with(&format!("--backup-dir {}", folder.path().join("b").display()));
    fill(&server, true);
    assert!(live(&server).ok().starts_with("daily: "));
    live(&server).fails_with(4);
    let (found, counted) = faults(&check(&folder.path().join("b/daily"), ""));
    assert_eq!((found, counted["feed_blocks"].as_u64()), (Vec::new(), Some(9)));
    for target in ["/admin/v1/backups/..", "/admin/v1/backups/a%2Fb", "/admin/v1/backups/.lock"] {
        let refused = call(server.address(), "PUT", target, &[], b"");
        assert_eq!((refused.status, refused.code().as_str()), (400, "backup_name"), "{target}");
    }
    check(server.data(), "").fails_with(2);
}

/// Two shards of small files, so that looking through them takes no time.
const SMALL_SHARDS: &str = "--shards 2 --segment-bytes 128KiB --append-bytes-max 60KiB";

/// Puts a data directory back as it was. A backup folds the logs of SQLite, if no server runs.
fn put_back(dir: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in contents(dir).keys().filter(|path| !files.contains_key(*path)) {
        remove(path);
    }
    for (path, bytes) in files {
        // It may be a second name of a file of a backup.
        if path.exists() {
            remove(path);
        }
        write(path, bytes);
    }
}

/// A server of two shards with a file of every kind in each, stopped.
fn of_two_shards() -> Server {
    let mut server = Server::start_with(SMALL_SHARDS);
    fill(&server, true);
    let kinds = |server: &Server, shard: &str| {
        let names = fs::read_dir(server.data().join("streams").join(shard)).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        ["table-", "checkpoint-"].iter().all(|kind| names.iter().any(|name| name.starts_with(kind)))
    };
    let mut round = 0;
    while !kinds(&server, "shard-00") || !kinds(&server, "shard-01") {
        let path = format!("/v1/stream/s{}", round % 6);
        call(server.address(), "POST", &path, &[TEXT], &vec![b'y'; 50_000]);
        round += 1;
    }
    // Bodies of more than one part for each shard. The next fold but one would make them parts of tables.
    for stream in 0..8 {
        let path = format!("/ds/docs/more{stream}");
        put(&server, &path, b"one\n");
        let head = call(server.address(), "HEAD", &path, &[], b"");
        put(&server, &format!("{path}/snapshot/{}", head.next_offset()), &vec![b's'; 300_000]);
    }
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    server
}

#[test]
fn a_file_of_another_shard_under_the_name_of_ones_own_is_found() {
    let mut server = of_two_shards();
    assert_eq!(faults(&check(server.data(), "")).0, Vec::<Value>::new());
    let files = contents(server.data());
    let mut seen = BTreeMap::new();
    for (path, bytes) in &files {
        let (name, folder) = (path.file_name().unwrap().to_str().unwrap(), path.parent().unwrap());
        let kind = name.split('-').next().unwrap();
        if folder.file_name() != Some("shard-00".as_ref()) || kind == "spare" {
            continue;
        }
        // The one of the same name, or else of the same kind.
        let others = files.iter().filter(|(other, _)| other.to_string_lossy().contains("/shard-01/"));
        let mut others = others.filter(|(other, _)| {
            other.file_name().unwrap().to_string_lossy().split('-').next() == Some(kind)
        });
        let same = folder.with_file_name("shard-01").join(name);
        let Some(foreign) = files.get(&same).or_else(|| others.next().map(|(_, bytes)| bytes)) else {
            continue;
        };
        write(path, foreign);
        let (found, _) = faults(&check(server.data(), ""));
        write(path, bytes);
        let told = found.iter().any(|fault| {
            fault["file"] == path.to_str().unwrap() || (kind == "MANIFEST" && fault["what"] != Value::Null)
        });
        assert!(told, "{}: {found:?}", path.display());
        *seen.entry(kind.to_owned()).or_insert(0) += 1;
    }
    for kind in ["journal", "table", "checkpoint", "body", "MANIFEST"] {
        assert!(seen.contains_key(kind), "no {kind} was replaced: {seen:?}");
    }
    // Nor does a server start on a journal that is another shard's.
    let journals: Vec<_> = files.keys().filter(|path| path.to_string_lossy().contains("/journal-")).collect();
    let of = |shard: &str| journals.iter().rfind(|path| path.to_string_lossy().contains(shard)).unwrap();
    write(of("shard-00"), &files[*of("shard-01")]);
    let start = Cli::new("serve --append-bytes-max 60KiB --listen 127.0.0.1:0 --data-dir")
        .arg(server.data().to_str().unwrap())
        .run();
    start.fails_with(65);
    server.kill();
}

#[test]
fn what_is_no_file_is_reported_and_never_opened() {
    let server = used(SMALL_SHARDS);
    let folder = TempDir::new().unwrap();
    let files = contents(server.data());
    for path in files.keys() {
        let name = path.display();
        remove(path);
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        // It ends, and names it.
        let ended = check(server.data(), "");
        assert_ne!(ended.code, Some(0), "{name}");
        let told = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
        assert!(told.contains(path.to_str().unwrap()) && told.contains("no regular file"), "{name}: {told}");
        let target = folder.path().join("b");
        let backup =
            Cli::new("backup").arg(server.data().to_str().unwrap()).arg(target.to_str().unwrap()).run();
        assert!(matches!(backup.code, Some(1 | 9)), "{name}: {backup:?}");
        if backup.code == Some(9) {
            fs::remove_dir_all(&target).unwrap();
        }
        remove(path);
        put_back(server.data(), &files);
    }
    let socket = server.data().join("streams/socket");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (found, _) = faults(&check(server.data(), ""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0]["what"].as_str().unwrap().contains("a socket"), "{found:?}");
}

#[test]
fn what_is_damaged_is_backed_up_as_far_as_it_goes_and_said_to_be() {
    let server = used(SMALL_SHARDS);
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let files = contents(server.data());
    let backup =
        |target: &str| Cli::new("backup").arg(server.data().to_str().unwrap()).arg(&place(target)).run();
    for (number, (path, bytes)) in files.iter().enumerate() {
        let name = path.file_name().unwrap().to_string_lossy();
        let mut damaged = bytes.clone();
        let at = if name == "space.sqlite-wal" { 3000 } else { middle(bytes) };
        match damaged.get_mut(at) {
            Some(byte) if bytes.iter().any(|byte| *byte != 0) && !name.ends_with("-shm") => *byte ^= 0x20,
            _ => continue,
        }
        write(path, &damaged);
        let is_seen = check(server.data(), "").code;
        let ended = backup(&format!("b{number}"));
        put_back(server.data(), &files);
        // What cannot be looked at cannot be backed up either.
        let expected = match is_seen {
            Some(0) => 0,
            Some(1) => 9,
            _ => 1,
        };
        assert_eq!(ended.code, Some(expected), "{name}: {ended:?}");
        assert_eq!(Path::new(&place(&format!("b{number}"))).exists(), expected != 1, "{name}");
        if expected == 9 {
            assert!(String::from_utf8_lossy(&ended.stdout).contains(path.to_str().unwrap()), "{ended:?}");
            // It says so of itself as well, and is not brought back unseen.
            let restored = Cli::new("restore").arg(&place(&format!("b{number}"))).arg(&place("new")).run();
            let is_whole = restored.code == Some(0);
            assert_eq!(
                is_whole,
                check(Path::new(&place(&format!("b{number}"))), "").code == Some(0),
                "{name}"
            );
            if is_whole {
                // A space that is left out, or a guard that no backup has.
                fs::remove_dir_all(place("new")).unwrap();
            }
        }
    }
}

#[test]
fn a_store_that_was_forgotten_is_asked_for() {
    let mut server = Server::on_sqlite("");
    fill(&server, false);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("b");
    let data = server.data().to_str().unwrap();
    let said = Cli::new("backup").arg(data).arg(target.to_str().unwrap()).run().fails_with(1);
    assert!(said.contains("--store sqlite:PATH") && said.contains("`FORMAT`"), "{said}");
    assert!(!target.exists());
    let said = check(server.data(), "").fails_with(2);
    assert!(said.contains("--store sqlite:PATH"), "{said}");
    // Where there is nothing at all it is said what was looked for.
    let said = Cli::new("backup").arg(folder.path().to_str().unwrap()).arg(&format!("{data}/b")).run();
    let said = said.fails_with(1);
    for looked_for in ["`FORMAT`", "`streams`", "`feeds`", "`segments`", "`meta`", "`BACKUP`"] {
        assert!(said.contains(looked_for), "{said}");
    }
}

#[test]
fn nothing_is_copied_into_itself() {
    let server = used(SMALL_SHARDS);
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let data = server.data().to_str().unwrap();
    let link = place("link");
    std::os::unix::fs::symlink(data, &link).unwrap();
    let before = contents(server.data());
    for target in [format!("{data}/b"), format!("{data}/streams/b"), format!("{link}/b")] {
        let said = Cli::new("backup").arg(data).arg(&target).run().fails_with(1);
        assert!(said.contains("cannot be copied to the other"), "{said}");
        let said =
            Cli::new("serve --listen 127.0.0.1:0 --data-dir").arg(data).arg("--backup-dir").arg(&target);
        assert!(said.run().fails_with(78).contains("backup-dir"));
    }
    assert!(contents(server.data()) == before);
    Cli::new("backup").arg(data).arg(&place("b")).run().ok();
    let before = contents(folder.path());
    for target in [place("b/new"), place("b/data"), place("b")] {
        let said = Cli::new("restore").arg(&place("b")).arg(&target).run().fails_with(1);
        assert!(said.contains("cannot be copied to the other"), "{said}");
    }
    assert!(contents(folder.path()) == before);
}

#[test]
fn spaces_that_are_not_served_are_in_a_backup_all_the_same() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::start_with(SMALL_SHARDS);
    fill(&server, true);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    server.restart_with(&format!(
        "--append-bytes-max 60KiB --feeds no --backup-dir {}",
        folder.path().display()
    ));
    Cli::new("backup daily --url").arg(&server.url()).run().ok();
    let (found, counted) = faults(&check(&folder.path().join("daily"), ""));
    assert_eq!((found, counted["feed_blocks"].as_u64()), (Vec::new(), Some(9)));
}

#[test]
fn a_folder_that_no_backup_can_be_made_in_is_told_of_at_the_start() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data").display().to_string();
    let file = folder.path().join("file");
    write(&file, b"");
    for unusable in [file.display().to_string(), format!("{}/b", file.display()), "/proc/b".to_owned()] {
        let serve =
            Cli::new("serve --listen 127.0.0.1:0 --data-dir").arg(&data).arg("--backup-dir").arg(&unusable);
        let said = serve.run().fails_with(74);
        assert!(said.contains("backup-dir") && said.contains(&unusable), "{said}");
    }
    assert!(!Path::new(&data).exists());
}

#[test]
fn a_backup_that_fails_says_in_the_log_why() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::start_with(&format!("--backup-dir {}", folder.path().join("b").display()));
    fill(&server, true);
    // A space that is no database any more.
    let files = contents(&server.data().join("feeds"));
    let database = files.keys().find(|path| path.to_string_lossy().ends_with("space.sqlite")).unwrap();
    let name = database.parent().unwrap().file_name().unwrap();
    let stray = database.parent().unwrap().parent().unwrap().join("f".repeat(name.len()));
    fs::create_dir_all(&stray).unwrap();
    write(
        &stray.join("space.sqlite"),
        b"this is no database of SQLite, and long enough not to be taken for one",
    );
    let said = Cli::new("backup daily --url").arg(&server.url()).run().fails_with(7);
    assert!(said.contains("the log of the server says why"), "{said}");
    server.kill();
    let log = server.log();
    assert!(log.contains("a backup failed") && log.contains("not a database"), "{log}");
    assert!(!folder.path().join("b/daily").exists() && !folder.path().join("b/daily.partial").exists());
}

#[test]
fn what_is_none_of_ours_is_noted_as_such_and_what_a_restore_notes_is_there() {
    let server = used(SMALL_SHARDS);
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    let notes = |ended: &Ended| -> Vec<(String, String)> {
        let text = String::from_utf8(ended.stdout.clone()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("note: "));
        let told = lines.map(|line| {
            let (file, rest) = line.split_once(": ").unwrap();
            (file.split(", byte").next().unwrap().to_owned(), rest.to_owned())
        });
        told.collect()
    };
    let look = |dir: &Path| Cli::new("check").arg(dir.to_str().unwrap()).run();
    let before = notes(&look(server.data()));
    let strays = ["notes.txt", "streams/notes.txt", "streams/shard-00/notes.txt", "feeds/notes.txt"];
    for stray in strays {
        write(&server.data().join(stray), b"mine");
    }
    write(&server.data().join("streams/shard-00/table-00000000000000ff.tbl"), b"half a table");
    let ended = look(server.data());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let after: Vec<_> = notes(&ended).into_iter().filter(|note| !before.contains(note)).collect();
    assert_eq!(after.len(), strays.len() + 1, "{after:?}");
    for (file, what) in &after {
        let is_ours = file.contains("/table-");
        assert_eq!(what.contains("a start puts it in order"), is_ours, "{file}: {what}");
        assert_eq!(what.contains("it is none of ours, and stays"), !is_ours, "{file}: {what}");
    }
    // A restore tells of files that are there afterwards.
    Cli::new("backup").arg(server.data().to_str().unwrap()).arg(place("b").to_str().unwrap()).run().ok();
    let restored =
        Cli::new("restore").arg(place("b").to_str().unwrap()).arg(place("new").to_str().unwrap()).run();
    let told = notes(&restored);
    restored.ok();
    assert!(!told.is_empty());
    for (file, _) in told {
        assert!(Path::new(&file).starts_with(place("new")) && Path::new(&file).exists(), "{file}");
    }
}
