//! Writers that go on while backups are taken, and what of their work a restored server may have.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::http::{Connection, read_all};
use crate::server::Store;

/// Writers of lines, each to a stream of its own.
const WRITERS: usize = 6;
/// Each of them forks its stream once in so many appends.
const FORK_EVERY: u64 = 40;
/// Of these, one is read back in full.
const FORKS_READ: u64 = 5;
/// Bytes of a snapshot: more than one part of an upload, so that it is in a table of its own.
const SNAPSHOT_BYTES: usize = 300 * 1024;
/// The longest wait for acknowledgements.
const PATIENCE: Duration = Duration::from_mins(1);

const TEXT: (&str, &str) = ("content-type", "text/plain");
/// The stream with snapshots.
const PAGE: &str = "/ds/docs/page";

/// What was acknowledged: appends of each writer, and snapshots.
#[derive(Clone, Debug)]
pub(super) struct Acknowledged {
    appends: Vec<u64>,
    snapshots: u64,
}

#[derive(Debug, Default)]
struct Shared {
    appends: [AtomicU64; WRITERS],
    snapshots: AtomicU64,
    stopped: AtomicBool,
}

/// Writers at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    counter: Mutex<Receiver<()>>,
    threads: Mutex<Vec<JoinHandle<Result<()>>>>,
    store: Store,
}

impl Load {
    /// Makes the streams and starts to write.
    pub(super) fn start(address: SocketAddr, store: Store) -> Result<Self> {
        let mut connection = Connection::open(address)?;
        for writer in 0..WRITERS {
            connection.send("PUT", &path(writer), &[TEXT], &[])?.expect(&[201], "create")?;
        }
        let (shared, (sender, counter)) = (Arc::new(Shared::default()), mpsc::channel());
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            threads.push(thread::spawn(move || write(writer, address, &shared, &sender)));
        }
        // One SQLite file has no snapshots.
        if store == Store::Engine {
            connection.call("PUT", "/ds/docs", &[], &[])?.expect(&[201], "create the bucket")?;
            connection.call("PUT", PAGE, &[TEXT], &[])?.expect(&[201], "create the page")?;
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || publish(address, &shared)));
        }
        Ok(Self { shared, counter: Mutex::new(counter), threads: Mutex::new(threads), store })
    }

    /// Waits for so many further acknowledgements.
    pub(super) fn wait_for(&self, writes: u64) -> Result<()> {
        let counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..writes {
            counter.recv_timeout(PATIENCE).map_err(|_| anyhow!("the writers have come to a halt"))?;
        }
        Ok(())
    }

    pub(super) fn acknowledged(&self) -> Acknowledged {
        let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Acknowledged {
            appends: self.shared.appends.iter().map(of).collect(),
            snapshots: of(&self.shared.snapshots),
        }
    }

    /// Ends the writers; their server may be gone.
    pub(super) fn stop(&self) -> Result<()> {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            thread.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        Ok(())
    }

    /// A server that was restored has at least what was acknowledged when its backup began, and nothing beyond what was
    /// written when that ended.
    pub(super) fn verify(&self, address: SocketAddr, floor: &Acknowledged, end: &Acknowledged) -> Result<()> {
        let mut connection = Connection::open(address)?;
        for writer in 0..WRITERS {
            // One more may have been under way.
            let range = floor.appends[writer]..=end.appends[writer] + 1;
            let count = lines(&mut connection, &path(writer), writer)?;
            ensure!(range.contains(&count), "writer {writer}: {count} appends, of {range:?}");
            for fork in (1..=count / FORK_EVERY).map(|nth| nth * FORK_EVERY) {
                check_fork(&mut connection, writer, fork, floor.appends[writer])
                    .with_context(|| format!("the fork of writer {writer} at append {fork}"))?;
            }
        }
        if self.store == Store::Engine {
            check_page(&mut connection, floor.snapshots, end.snapshots + 1)?;
        }
        Ok(())
    }
}

fn path(writer: usize) -> String {
    format!("backup/{writer}")
}

fn fork_path(writer: usize, append: u64) -> String {
    format!("backup/{writer}/at-{append}")
}

/// The line of an append: long ones too.
fn line(writer: usize, append: u64) -> String {
    let rest = usize::try_from(append * 7919 % 1500).unwrap_or(0);
    format!("{writer} {append} {}\n", "x".repeat(rest))
}

/// Appends, and forks once in a while, until the connection breaks or it is to stop.
fn write(writer: usize, address: SocketAddr, shared: &Shared, acknowledged: &Sender<()>) -> Result<()> {
    let mut connection = Connection::open(address)?;
    for append in 1.. {
        if shared.stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let body = line(writer, append);
        let Ok(answer) = connection.send("POST", &path(writer), &[TEXT], body.as_bytes()) else {
            return Ok(());
        };
        answer.expect(&[204], "append")?;
        if append % FORK_EVERY == 0 {
            let source = format!("/v1/stream/{}", path(writer));
            let headers = [TEXT, ("stream-forked-from", source.as_str())];
            let Ok(answer) = connection.send("PUT", &fork_path(writer, append), &headers, &[]) else {
                return Ok(());
            };
            answer.expect(&[201], "fork")?;
        }
        shared.appends[writer].store(append, Ordering::SeqCst);
        // Whoever counts may have ended first.
        let _ = acknowledged.send(());
    }
    Ok(())
}

/// How many of a writer's lines a stream has, which must be the first ones.
fn lines(connection: &mut Connection, path: &str, writer: usize) -> Result<u64> {
    let text = String::from_utf8(read_all(connection, path)?.concat())?;
    let mut count = 0;
    for found in text.split_inclusive('\n') {
        count += 1;
        ensure!(found == line(writer, count), "append {count} is `{found}`");
    }
    Ok(count)
}

/// A fork that was acknowledged before the backup is there; every one that is there is whole.
fn check_fork(connection: &mut Connection, writer: usize, append: u64, floor: u64) -> Result<()> {
    let path = fork_path(writer, append);
    let answer = connection.send("HEAD", &path, &[], &[])?;
    match answer.status {
        404 => ensure!(append > floor, "it is lost"),
        200 if (append / FORK_EVERY).is_multiple_of(FORKS_READ) || append > floor => {
            let count = lines(connection, &path, writer)?;
            ensure!(count == append, "it has {count} appends");
        }
        200 => {}
        status => bail!("status {status}"),
    }
    Ok(())
}

fn snapshot(number: u64) -> Vec<u8> {
    number.to_string().bytes().chain(*b" ").cycle().take(SNAPSHOT_BYTES).collect()
}

/// Appends a line and publishes a snapshot of all of them, again and again.
fn publish(address: SocketAddr, shared: &Shared) -> Result<()> {
    let mut connection = Connection::open(address)?;
    for number in 1.. {
        if shared.stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Ok(answer) = connection.call("POST", PAGE, &[TEXT], format!("{number}\n").as_bytes()) else {
            return Ok(());
        };
        let offset = answer.expect(&[204], "append to the page")?.next_offset()?;
        let target = format!("{PAGE}/snapshot/{offset}");
        let Ok(answer) = connection.call("PUT", &target, &[TEXT], &snapshot(number)) else { return Ok(()) };
        answer.expect(&[200, 201, 204], "publish")?;
        shared.snapshots.store(number, Ordering::SeqCst);
    }
    Ok(())
}

/// The page has the latest snapshot that it says it has, and what follows it.
fn check_page(connection: &mut Connection, floor: u64, end: u64) -> Result<()> {
    let redirect = connection.call("GET", &format!("{PAGE}/snapshot"), &[], &[])?;
    if redirect.status == 404 {
        ensure!(floor == 0, "the snapshot is lost");
        return Ok(());
    }
    let redirect = redirect.expect(&[307], "the latest snapshot")?;
    let offset = redirect.header("stream-snapshot-offset").context("no Stream-Snapshot-Offset")?;
    let target = format!("{PAGE}/snapshot/{offset}");
    let body = connection.call("GET", &target, &[], &[])?.expect(&[200], "the snapshot")?.body;
    let number = String::from_utf8_lossy(&body[..20.min(body.len())]).into_owned();
    let number: u64 = number.split(' ').next().unwrap_or_default().parse().context("a number")?;
    ensure!(body == snapshot(number), "snapshot {number} is not what was published");
    ensure!((floor..=end).contains(&number), "snapshot {number}, of {floor} to {end}");
    let rest = connection.call("GET", &format!("{PAGE}?offset={offset}"), &[], &[])?;
    let rest = String::from_utf8(rest.expect(&[200], "what follows the snapshot")?.body)?;
    let due = format!("{}\n", number + 1);
    ensure!(rest.is_empty() || rest == due, "behind snapshot {number} there is `{rest}`");
    Ok(())
}
