//! A sync or a write that fails: the process stops, and nothing acknowledged is lost (DESIGN: fail-stop).
//!
//! After a failed `fdatasync` the kernel may have dropped the pages, so trying again proves nothing; the only safe
//! answer is to stop and to recover from what is on disk. Both failures are injected from outside, into the
//! unchanged binary: the sync by `strace`, the write by a limit on file size that is set while the server runs. Such a limit that only
//! keeps a new segment from being made is something else: there is no room, and nothing has failed.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::check::Report;
use crate::http::Connection;
use crate::random::Random;
use crate::server::{Launch, Server, Store};
use crate::tools;
use crate::writer::{Answer, Kind, Writer};

/// Writers at once.
const WRITERS: u32 = 16;
/// The calls that sync: the engine has the latter, SQLite one of them, as it was built.
const SYNCS: &str = "fsync,fdatasync";
/// From this sync of a thread on, each fails.
const FIRST_FAILED_SYNC: u32 = 150;
/// Acknowledged appends of a writer before the limit on file size is set.
const APPENDS_BEFORE_LIMIT: usize = 20;
/// Writes behind this position fail once the limit is set.
const FILE_BYTES_LIMIT: u64 = 4_096;
/// Size of a segment where the limit is one on further segments.
const SEGMENT_BYTES: u64 = 2 << 20;
/// A writer that gets this far was never stopped.
const APPENDS_MAX: usize = 100_000;

/// Fails a sync, then a write.
pub(crate) fn run(binary: &Path, store: Store, report: &mut Report) -> Result<()> {
    tools::debian_tool("strace")?;
    failed_sync(binary, store, report);
    failed_write(binary, store, report);
    if store == Store::Engine {
        limit_on_size(binary, report);
    }
    Ok(())
}

fn failed_sync(binary: &Path, store: Store, report: &mut Report) {
    report.check("a failed sync stops the server, and a restart has everything acknowledged", || {
        let scratch = tempfile::tempdir()?;
        let plain = Launch::new(binary, &scratch.path().join("data"), &["--shards", "2"]).with_store(store);
        let mut traced = plain.clone();
        let inject = format!("inject={SYNCS}:error=EIO:when={FIRST_FAILED_SYNC}+");
        let trace = format!("trace={SYNCS}");
        // `-D` makes the server, not strace, the child that is waited for.
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        traced.program = strace.iter().map(|&word| word.to_owned()).chain(plain.program.clone()).collect();
        let server = traced.start()?;
        let mut writers = create(server.address)?;
        write_all(&mut writers, server.address, APPENDS_MAX)?;
        stopped_and_recovered(server, &plain, &mut writers)
    });
}

fn failed_write(binary: &Path, store: Store, report: &mut Report) {
    report.check("a failed write stops the server, and a restart has everything acknowledged", || {
        let scratch = tempfile::tempdir()?;
        let plain = Launch::new(binary, &scratch.path().join("data"), &["--shards", "2"]).with_store(store);
        let server = plain.start()?;
        let mut writers = create(server.address)?;
        write_all(&mut writers, server.address, APPENDS_BEFORE_LIMIT)?;
        limit_files(&server, Some(FILE_BYTES_LIMIT))?;
        write_all(&mut writers, server.address, APPENDS_MAX)?;
        stopped_and_recovered(server, &plain, &mut writers)
    });
}

fn limit_on_size(binary: &Path, report: &mut Report) {
    report.check("a limit on file size is a full disk: told as such, and over once it is lifted", || {
        let scratch = tempfile::tempdir()?;
        let flags = ["--shards", "1", "--segment-bytes", "2MiB", "--append-bytes-max", "1MiB"];
        let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
        let mut writers = create(server.address)?;
        write_all(&mut writers, server.address, APPENDS_BEFORE_LIMIT)?;
        // What there is can be written to; another segment does not fit.
        limit_files(&server, Some(SEGMENT_BYTES - 1))?;
        until_refused(&mut writers, server.address)?;
        let mut connection = Connection::open(server.address)?;
        writers.iter().try_for_each(|writer| writer.check_content(&mut connection))?;
        limit_files(&server, None)?;
        for writer in &mut writers {
            writer.verify(&mut connection).with_context(|| writer.to_string())?;
        }
        server.stop()?;
        Ok(())
    });
}

/// Limits the size of files that a running server writes, or lifts the limit.
pub(crate) fn limit_files(server: &Server, bytes: Option<u64>) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(server.pid())?).context("process id")?;
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).context("limit the size of files")?;
    Ok(())
}

/// Lets one writer after the other append until it is told that there is no room.
fn until_refused(writers: &mut [Writer], address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    'writers: for writer in writers {
        for _ in 0..APPENDS_MAX {
            if let Answer::Refused(response) = writer.append_next(&mut connection)? {
                let response = response.expect(&[507], "an append beyond the limit")?;
                ensure!(response.header("alluvium-error") == Some("storage_full"), "{response:?}");
                continue 'writers;
            }
        }
        bail!("{APPENDS_MAX} appends and the limit is not reached");
    }
    Ok(())
}

fn create(address: SocketAddr) -> Result<Vec<Writer>> {
    let mut connection = Connection::open(address)?;
    let writers: Vec<Writer> =
        (0..WRITERS).map(|id| Writer::new(id, Kind::Producer, Random::new(u64::from(id)))).collect();
    writers.iter().try_for_each(|writer| writer.create(&mut connection))?;
    Ok(writers)
}

/// Lets every writer append up to `count` times, or until the server fails it.
fn write_all(writers: &mut [Writer], address: SocketAddr, count: usize) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(move || write(writer, address, count))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a writer panicked"))?)
    })
}

fn write(writer: &mut Writer, address: SocketAddr, count: usize) -> Result<()> {
    let Ok(mut connection) = Connection::open(address) else { return Ok(()) };
    for _ in 0..count {
        match writer.append_next(&mut connection) {
            Ok(Answer::Acknowledged) => {}
            // Failed appends may be answered before the process ends; they must never be acknowledged.
            Ok(Answer::Refused(response)) if response.status >= 500 => return Ok(()),
            Ok(Answer::Refused(response)) => bail!("an append got status {}", response.status),
            Err(_) => return Ok(()),
        }
    }
    ensure!(count < APPENDS_MAX, "{APPENDS_MAX} appends and nothing failed");
    Ok(())
}

fn stopped_and_recovered(mut server: Server, plain: &Launch, writers: &mut [Writer]) -> Result<()> {
    let status = server.wait_exit()?;
    ensure!(!status.success(), "the server ended with success after a failure of its disk");
    println!("        the server ended with {status} and said:\n{}", server.output());
    let server = plain.start()?;
    let mut connection = Connection::open(server.address)?;
    for writer in writers {
        writer.verify(&mut connection).with_context(|| writer.to_string())?;
    }
    server.stop()?;
    Ok(())
}
