//! Cost must follow the work, not the number of streams: 100,000 of them, and a bounded number of open files.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};

use crate::check::Report;
use crate::http::Connection;
use crate::procfs;
use crate::server::{Launch, Server};

/// Open files of the server, whatever the number of streams: its own, and one for each connection of this test.
const OPEN_FILES_MAX: usize = 128 + CONNECTIONS;
const CONNECTIONS: usize = 32;

/// How many streams.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Streams to make, with one message each.
    #[arg(long, default_value_t = 100_000)]
    streams: usize,
}

/// Makes the streams, restarts gracefully and by force, and reads them all after each.
pub(crate) fn run(binary: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data_dir = scratch.path().join("data");
    let streams = options.streams;
    let server = Launch::new(binary, &data_dir, &[]).start()?;
    let began = Instant::now();
    report.check(&format!("{streams} streams are created and take one message each"), || {
        let made = in_parallel(server.address, streams, create)?;
        println!("        created and appended in {:.1} s", began.elapsed().as_secs_f64());
        ensure!(made == streams, "{made} of {streams} made");
        describe(&server, &data_dir)
    });
    let server = server.stop()?.start()?;
    report.check("after a graceful restart each has its message", || read_all(&server, streams, &data_dir));
    let server = server.kill()?.start()?;
    report.check("after kill -9 each has its message", || read_all(&server, streams, &data_dir));
    server.stop()?;
    Ok(())
}

fn read_all(server: &Server, streams: usize, data_dir: &Path) -> Result<()> {
    println!("        answered {:.2} s after its start", server.start_time.as_secs_f64());
    let read = in_parallel(server.address, streams, read)?;
    ensure!(read == streams, "{read} of {streams} read");
    describe(server, data_dir)
}

fn describe(server: &Server, data_dir: &Path) -> Result<()> {
    let open = procfs::open_files(server.pid())?;
    let (disk, files) = procfs::disk_use(data_dir)?;
    println!(
        "        {open} open files, {} MiB of memory, {} MiB on disk in {files} files",
        procfs::resident_bytes(server.pid())? >> 20,
        disk >> 20
    );
    ensure!(open <= OPEN_FILES_MAX, "{open} open files where at most {OPEN_FILES_MAX} are allowed");
    Ok(())
}

/// Calls `operation` for each stream, over all connections; returns how often.
fn in_parallel(
    address: SocketAddr,
    streams: usize,
    operation: fn(&mut Connection, usize) -> Result<()>,
) -> Result<usize> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|first| {
                scope.spawn(move || {
                    let mut connection = Connection::open(address)?;
                    let mine = (first..streams).step_by(CONNECTIONS);
                    mine.map(|stream| operation(&mut connection, stream).map(|()| 1)).sum::<Result<usize>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow!("a connection's thread panicked"))?)
            .sum()
    })
}

fn path(stream: usize) -> String {
    format!("many/{}/{stream}", stream % 100)
}

fn content(stream: usize) -> String {
    format!("the only message of stream {stream}")
}

fn create(connection: &mut Connection, stream: usize) -> Result<()> {
    let text = [("content-type", "text/plain")];
    connection.send("PUT", &path(stream), &text, &[])?.expect(&[201], "create")?;
    connection.send("POST", &path(stream), &text, content(stream).as_bytes())?.expect(&[204], "append")?;
    Ok(())
}

fn read(connection: &mut Connection, stream: usize) -> Result<()> {
    let response = connection.send("GET", &path(stream), &[], &[])?.expect(&[200], "read")?;
    ensure!(response.body == content(stream).as_bytes(), "stream {stream} holds something else");
    Ok(())
}
