//! No room, and a disk that fails: what does not fit is refused with a typed error and leaves nothing, what was
//! acknowledged stays, nothing is there twice, and writing goes on once there is room.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use alluvium_env::Env;
use alluvium_protocol::store::{
    AppendOptions, AppendResult, GetOptions, PutOptions, StoreError, StoreFault, StoreResult, StreamStore,
};
use alluvium_protocol::{Offset, OffsetQuery, ProducerId, ProducerStamp, StreamPath};
use alluvium_sqlstore::{SqliteOptions, SqliteStore};
use bytes::Bytes;
use rusqlite::Connection;

use crate::world::{World, options, runtime};
use crate::writer::all;

const STREAMS: u64 = 4;
/// Rounds of appends after which a small disk must be full.
const ROUNDS_MAX: u64 = 4000;
/// The variable that names the directory in which a test process does its part.
const DIR: &str = "SQLSTORE_FULL_DIR";
/// The variable that tells such a process to die half-way.
const DIES: &str = "SQLSTORE_FULL_DIES";

fn path(stream: u64) -> StreamPath {
    StreamPath::parse_decoded(&format!("s{stream}")).expect("a path")
}

/// Appends of every length between nothing much and several rows.
fn data(stream: u64, seq: u64) -> Bytes {
    let length = usize::try_from((seq * 7 + stream) % 13 * 311).expect("small");
    Bytes::from(format!("{stream}.{seq};{}\n", "x".repeat(length)))
}

async fn append(store: &SqliteStore, stream: u64, seq: u64) -> StoreResult<AppendResult> {
    let id = ProducerId::parse("p").expect("an id");
    let producer = Some(ProducerStamp { id, epoch: 0, seq });
    store
        .append(&path(stream), data(stream, seq), AppendOptions { producer, ..AppendOptions::default() })
        .await
}

async fn read(store: &SqliteStore, stream: u64) -> Vec<u8> {
    let (mut bytes, mut offset) = (Vec::new(), Offset::ZERO);
    loop {
        let options = GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() };
        let got = store.get(&path(stream), options).await.expect("reads");
        bytes.extend(got.messages.iter().flat_map(|message| message.data.to_vec()));
        offset = got.next_offset;
        if got.up_to_date {
            return bytes;
        }
    }
}

/// What each stream has: the appends with numbers below this one.
type Next = BTreeMap<u64, u64>;

/// The streams have what was acknowledged, in order, once each, and nothing else.
async fn check(store: &SqliteStore, next: &Next) {
    for (stream, next) in next {
        let expected: Vec<u8> = (0..*next).flat_map(|seq| data(*stream, seq)).collect();
        assert!(read(store, *stream).await == expected, "stream {stream}, {next} appends");
    }
}

/// Every stream's next append, all at once; `true` if all were made. What does not fit is refused as such.
async fn round(store: &SqliteStore, next: &mut Next) -> bool {
    let answers = all(next.iter().map(|(stream, seq)| append(store, *stream, *seq)).collect()).await;
    let mut fits = true;
    for ((stream, seq), answer) in next.iter_mut().zip(answers) {
        match answer {
            Ok(appended) => {
                assert!(appended.appended, "stream {stream}, {seq}: what was refused has left nothing");
                *seq += 1;
            }
            Err(StoreError::Fault(StoreFault::Full)) => fits = false,
            Err(error) => panic!("{error}"),
        }
    }
    fits
}

/// Creates the streams, and one more of `ballast` bytes or more, and appends until it is full.
async fn fill(store: &SqliteStore, ballast: usize) -> Next {
    for stream in 0..=STREAMS {
        store.put(&path(stream), PutOptions::default()).await.expect("creates");
    }
    for _ in 0..ballast.div_ceil(20_000) {
        let data = Bytes::from(vec![b'.'; 20_000]);
        store.append(&path(STREAMS), data, AppendOptions::default()).await.expect("appends");
    }
    let mut next: Next = (0..STREAMS).map(|stream| (stream, 0)).collect();
    let mut rounds = 0;
    while round(store, &mut next).await {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "it gets full");
    }
    assert!(rounds > 10, "not at once: {rounds}");
    next
}

/// Appends until `rounds` rounds went through; the store makes room meanwhile.
async fn go_on(store: &SqliteStore, next: &mut Next, rounds: u32) {
    let (mut done, mut tries) = (0, 0);
    while done < rounds {
        done += u32::from(round(store, next).await);
        tries += 1;
        assert!(tries < 20_000, "room comes back");
    }
}

#[test]
fn a_full_database_refuses_loses_nothing_and_goes_on_when_there_is_room() {
    let world = World::new(1);
    let runtime = runtime();
    let limited = SqliteOptions { database_bytes_max: Some(600_000), ..options() };
    let store = world.try_open(limited.clone()).expect("opens");
    let mut next = runtime.block_on(async {
        let next = fill(&store, 100_000).await;
        check(&store, &next).await;
        next
    });
    store.close();
    assert!(fs::metadata(world.file()).expect("is there").len() <= 600_000);
    // Opening takes no room, and it is as full as before.
    let store = world.try_open(limited.clone()).expect("opens");
    runtime.block_on(async {
        check(&store, &next).await;
        let largest = Bytes::from(vec![b'x'; 20_000]);
        let refused = store.append(&path(0), largest, AppendOptions::default()).await;
        assert_eq!(refused, Err(StoreFault::Full.into()));
        // Repetitions of what was written need no room.
        let last = next[&0] - 1;
        assert!(!append(&store, 0, last).await.expect("is recognised").appended);
        // A deletion fits, and its rows make room.
        store.delete(&path(STREAMS), None).await.expect("deletes");
        go_on(&store, &mut next, 5).await;
        check(&store, &next).await;
    });
    store.close();
    let store = world.try_open(SqliteOptions { database_bytes_max: None, ..limited }).expect("opens");
    runtime.block_on(async {
        go_on(&store, &mut next, 100).await;
        check(&store, &next).await;
    });
    store.close();
    assert_sound(&world.file());
}

fn assert_sound(file: &Path) {
    let sql = Connection::open(file).expect("opens");
    let sound: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checks");
    assert_eq!(sound, "ok");
}

/// This program again, for one test, started by a shell that first does `prepare`.
fn again(prepare: &str, test: &str, dir: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", &format!("{prepare}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture"])
        .env(DIR, dir);
    shell
}

#[test]
fn a_process_told_to_do_so_fills_a_disk() {
    let Ok(dir) = std::env::var(DIR) else {
        // An ordinary test run: another test starts this one as a process of its own, on a disk of its own.
        return;
    };
    let dir = Path::new(&dir);
    let ballast = dir.join("ballast");
    #[expect(clippy::disallowed_methods, reason = "the test takes room away and gives it back")]
    fs::write(&ballast, vec![1; 1_000_000]).expect("fits");
    let file = dir.join("streams.sqlite");
    // Small steps, so that the disk gets full in the log as well as in the database; and to the brim, as others may fill
    // it who keep nothing free.
    let options = SqliteOptions { checkpoint_pages: 50, free_bytes_min: 0, ..options() };
    let runtime = runtime();
    let store = SqliteStore::open(&file, options.clone(), &Env::real()).expect("opens");
    let mut next = runtime.block_on(async {
        let mut next = fill(&store, 100_000).await;
        check(&store, &next).await;
        #[expect(clippy::disallowed_methods, reason = "the test takes room away and gives it back")]
        fs::remove_file(&ballast).expect("is removed");
        go_on(&store, &mut next, 20).await;
        check(&store, &next).await;
        while round(&store, &mut next).await {}
        next
    });
    store.close();
    // Full again, to the brim. Opening takes no room that is not there.
    let store = SqliteStore::open(&file, options, &Env::real()).expect("opens");
    runtime.block_on(async {
        check(&store, &next).await;
        round(&store, &mut next).await;
        check(&store, &next).await;
    });
    store.close();
    assert_sound(&file);
    println!("filled twice");
}

/// Needs the tools `unshare` and `mount`, and no privileges beyond user namespaces.
#[test]
fn a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room() {
    on_a_disk_of("3m", "full::a_process_told_to_do_so_fills_a_disk", "filled twice");
}

/// Runs one test of this program on a disk of its own, of which it must tell in the end.
fn on_a_disk_of(size: &str, test: &str, success: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let mount = format!("mount -t tmpfs -o size={size} tmpfs '{}'", dir.path().display());
    let shell = again(&mount, test, dir.path());
    let mut namespace = Command::new("unshare");
    namespace.args(["--map-root-user", "--mount"]).arg(shell.get_program()).args(shell.get_args());
    let output = namespace.env(DIR, dir.path()).output().expect("`unshare` runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains(success), "{told}{errors}");
}

/// A store that keeps some of its small disk free; its log alone may grow larger than that disk.
fn open_guarded(dir: &Path) -> SqliteStore {
    let options = SqliteOptions { free_bytes_min: 1 << 20, ..options() };
    SqliteStore::open(&dir.join("streams.sqlite"), options, &Env::real()).expect("opens")
}

/// What adds nothing passes on a disk that is full for data.
async fn small_writes_pass(store: &SqliteStore, next: &Next) {
    let last = next[&0] - 1;
    assert!(!append(store, 0, last).await.expect("a repetition is recognised").appended);
    let there = store.put(&path(0), PutOptions::default()).await.expect("is there");
    assert!(!there.created);
    let refused = store.put(&path(STREAMS + 9), PutOptions::default()).await.map(|put| put.created);
    assert_eq!(refused, Err(StoreFault::Full.into()), "a stream more is data as well");
    for claim in 0..200 {
        let id = ProducerId::parse(&format!("claims {claim}")).expect("an id");
        store.acquire_producer(&path(STREAMS + 3), id, None).await.expect("claims");
    }
    let close = AppendOptions { close: true, ..AppendOptions::default() };
    let closed = store.append(&path(STREAMS + 2), Bytes::new(), close).await.expect("closes");
    assert!(closed.closed);
}

/// Appends a byte at a time until not even that fits.
async fn fill_up(store: &SqliteStore) {
    let at = path(STREAMS + 1);
    for _ in 0..10_000 {
        match store.append(&at, Bytes::from("x"), AppendOptions::default()).await {
            Ok(_) => {}
            Err(StoreError::Fault(StoreFault::Full)) => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it gets full");
}

/// What a process does before it is killed: fills the disk and deletes a stream, which is then swept.
fn fill_and_delete(dir: &Path) -> (SqliteStore, Next) {
    let store = open_guarded(dir);
    let next = runtime().block_on(async {
        for extra in STREAMS + 1..=STREAMS + 3 {
            store.put(&path(extra), PutOptions::default()).await.expect("creates");
        }
        let next = fill(&store, 3_000_000).await;
        fill_up(&store).await;
        small_writes_pass(&store, &next).await;
        check(&store, &next).await;
        store.delete(&path(STREAMS), None).await.expect("deletes");
        next
    });
    (store, next)
}

#[test]
fn a_process_told_to_do_so_fills_a_disk_and_is_killed() {
    let Ok(dir) = std::env::var(DIR) else {
        // An ordinary test run: another test starts this one as a process of its own, on a disk of its own.
        return;
    };
    let dir = Path::new(&dir);
    if std::env::var_os(DIES).is_some() {
        let (_store, next) = fill_and_delete(dir);
        for (stream, next) in &next {
            println!("\nhas {stream} {next}");
        }
        std::process::abort();
    }
    let mut first = again(":", "full::a_process_told_to_do_so_fills_a_disk_and_is_killed", dir);
    let output = first.env(DIES, "yes").output().expect("`sh` runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let mut next: Next = told
        .lines()
        .filter_map(|line| line.strip_prefix("has ")?.split_once(' '))
        .map(|(stream, next)| (stream.parse().expect("a number"), next.parse().expect("a number")))
        .collect();
    assert_eq!(next.len() as u64, STREAMS, "{told}{}", String::from_utf8_lossy(&output.stderr));

    let store = open_guarded(dir);
    runtime().block_on(async {
        check(&store, &next).await;
        assert!(!store.has(&path(STREAMS)).await.expect("reads"), "the deletion stands");
        // What the deleted stream had, 3 MB, is there again for others: 300 rounds are 2.2 MB.
        go_on(&store, &mut next, 300).await;
        check(&store, &next).await;
        // And again: full, one stream less, room.
        for turn in 0..3 {
            while round(&store, &mut next).await {}
            fill_up(&store).await;
            next.remove(&turn);
            store.delete(&path(turn), None).await.expect("deletes");
            go_on(&store, &mut next, 100).await;
            check(&store, &next).await;
        }
        for stream in next.keys() {
            store.delete(&path(*stream), None).await.expect("deletes");
        }
    });
    store.close();
    assert_sound(&dir.join("streams.sqlite"));
    println!("killed once");
}

#[test]
fn a_disk_full_of_data_takes_deletions_and_the_rows_they_leave_are_room_also_after_a_kill() {
    on_a_disk_of("12m", "full::a_process_told_to_do_so_fills_a_disk_and_is_killed", "killed once");
}

#[test]
fn a_process_told_to_do_so_writes_until_its_disk_fails() {
    let Ok(dir) = std::env::var(DIR) else {
        // An ordinary test run: another test starts this one as a process of its own, whose files may not grow.
        return;
    };
    let file = Path::new(&dir).join("streams.sqlite");
    let store = SqliteStore::open(&file, options(), &Env::real()).expect("opens");
    runtime().block_on(async {
        let mut next: Next = (0..STREAMS).map(|stream| (stream, 0)).collect();
        for stream in next.keys() {
            store.put(&path(*stream), PutOptions::default()).await.expect("creates");
        }
        loop {
            let appends = next.iter().map(|(stream, seq)| append(&store, *stream, *seq)).collect();
            let answers = all(appends).await;
            for ((stream, seq), answer) in next.iter_mut().zip(&answers) {
                if answer.is_ok() {
                    println!("\nack {stream} {seq}");
                    *seq += 1;
                }
            }
            if let Some(Err(error)) = answers.into_iter().find(Result::is_err) {
                assert_eq!(error, StoreFault::Stopped.into());
                break;
            }
        }
        // Nobody knows what the failed write has left, so this store writes no more.
        assert_eq!(append(&store, 0, next[&0]).await, Err(StoreFault::Stopped.into()));
        println!("\nstopped");
    });
}

#[test]
fn a_write_that_the_disk_fails_stops_the_store_and_opening_it_again_finds_what_was_acknowledged() {
    let world = World::new(1);
    let runtime = runtime();
    // A file that may not grow fails as a broken disk does: with an error that is none of a full one.
    let mut shell = again(
        "trap '' XFSZ; ulimit -f 1000",
        "full::a_process_told_to_do_so_writes_until_its_disk_fails",
        world.dir.path(),
    );
    let output = shell.output().expect("`sh` runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("\nstopped"), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let mut next: Next = (0..STREAMS).map(|stream| (stream, 0)).collect();
    for line in told.lines() {
        if let Some((stream, seq)) = line.strip_prefix("ack ").and_then(|line| line.split_once(' ')) {
            let seq: u64 = seq.parse().expect("a number");
            next.insert(stream.parse().expect("a number"), seq + 1);
        }
    }
    assert!(next.values().all(|next| *next > 3), "{next:?}");
    let store = world.open();
    runtime.block_on(async {
        // The write that failed may be there or not; its producer repeats it, and then it is, once.
        for (stream, next) in &mut next {
            append(&store, *stream, *next).await.expect("appends");
            *next += 1;
        }
        check(&store, &next).await;
        go_on(&store, &mut next, 20).await;
        check(&store, &next).await;
    });
    store.close();
    assert_sound(&world.file());
}
