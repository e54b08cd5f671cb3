//! `/healthz` and `/readyz`: during recovery, in between, on a full disk, and while the server stops.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{scrape, wait_until};
use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, free_address};
use crate::tools;

const TEXT: (&str, &str) = ("content-type", "text/plain");

pub(super) fn run(binary: &Path, report: &mut Report) {
    report.check("a server is alive while it recovers, and ready once it has", || recovering(binary));
    report.check("a server that stops is not ready, and its own address says so to the end", || {
        stopping(binary)
    });
    report.check("metrics are where they are told to be, and nowhere else", || places(binary));
}

/// Status and error code of an answer.
fn ask(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let answer = Connection::open(address)?.call("GET", path, &[], &[])?;
    Ok((answer.status, answer.code()))
}

fn not_ready() -> (u16, String) {
    (503, "not_ready".to_owned())
}

/// A process that is ended with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Who is held up by strace ends only with it.
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        if let Some(tracer) = tracer.and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw) {
            kill_process(tracer, Signal::KILL).ok();
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Recovery comes to no end while `strace` holds up whoever locks the data directory.
fn recovering(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("data");
    let own = free_address()?;
    let mut launch = Launch::new(binary, &data, &["--shards", "1", "--metrics-listen", &own.to_string()]);
    let server = launch.start()?;
    launch.listen = server.address;
    Connection::open(server.address)?.send("PUT", "a", &[TEXT], b"kept")?.expect(&[201], "create")?;
    server.stop()?;
    tools::debian_tool("strace")?;
    // `-D` makes the server, not strace, the child that is ended.
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock"];
    let held_up = ["-e", "inject=flock:delay_enter=600000000"];
    let plain = launch.program.clone();
    launch.program =
        strace.iter().chain(&held_up).map(|&word| word.to_owned()).chain(plain.clone()).collect();
    let stuck = Ended(launch.spawn()?);
    for address in [own, launch.listen] {
        wait_until("it listens", || Ok(Connection::open(address).is_ok()))?;
        ensure!(ask(address, "/healthz")?.0 == 200, "{address}: not alive");
        ensure!(ask(address, "/readyz")? == not_ready(), "{address}: ready");
    }
    let shown = scrape(own)?;
    ensure!(shown.value("alluvium_ready", &[]) == Some(0.0), "ready, by the metrics");
    drop(stuck);
    launch.program = plain;
    let server = launch.start()?;
    for address in [own, server.address] {
        ensure!(ask(address, "/readyz")?.0 == 200, "{address}: not ready");
    }
    ensure!(scrape(own)?.value("alluvium_ready", &[]) == Some(1.0), "not ready, by the metrics");
    server.stop()?;
    Ok(())
}

/// A body that is still being sent keeps the server from its end.
fn stopping(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let own = free_address()?;
    let flags = ["--shutdown-timeout", "60s", "--metrics-listen", &own.to_string()];
    let mut server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    let mut connection = Connection::open(server.address)?;
    connection.send("PUT", "a", &[TEXT], &[])?.expect(&[201], "create")?;
    connection.begin("POST", "/v1/stream/a", &[TEXT, ("content-length", "2")])?;
    wait_until("the request is there", || {
        Ok(scrape(own)?.value("alluvium_requests_in_flight", &[]) == Some(1.0))
    })?;
    ensure!(ask(own, "/readyz")?.0 == 200, "not ready before");
    let pid = Pid::from_raw(i32::try_from(server.pid())?).context("process id")?;
    kill_process(pid, Signal::TERM)?;
    wait_until("it is not ready", || Ok(ask(own, "/readyz")? == not_ready()))?;
    ensure!(ask(own, "/healthz")?.0 == 200, "not alive");
    ensure!(scrape(own)?.value("alluvium_ready", &[]) == Some(0.0), "ready, by the metrics");
    connection.write(b"ok")?;
    connection.finish()?.expect(&[204], "the append")?;
    let status = server.wait_exit()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

fn places(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("data");
    let own = free_address()?.to_string();
    let start = |flags: &[&str]| Launch::new(binary, &data, flags).start();
    let server = start(&["--metrics-listen", &own])?;
    ensure!(ask(server.address, "/metrics")?.0 == 404, "also at the main address");
    scrape(own.parse()?)?;
    ensure!(ask(own.parse()?, "/v1/stream/a")? == (404, "no_such_resource".to_owned()), "streams, too");
    let taken = Command::new(binary)
        .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", &own, "--data-dir"])
        .arg(scratch.path().join("other"))
        .output()?;
    ensure!(taken.status.code() == Some(69), "a taken address: {}", taken.status);
    server.stop()?;
    let server = start(&["--metrics-listen", "off"])?;
    ensure!(ask(server.address, "/metrics")?.0 == 404, "metrics that are off");
    ensure!(ask(server.address, "/readyz")?.0 == 200, "not ready");
    let post = Connection::open(server.address)?.call("POST", "/readyz", &[], &[])?;
    ensure!((post.status, post.header("allow")) == (405, Some("GET, HEAD")), "POST: {post:?}");
    server.stop()?;
    let mut launch = Launch::new(binary, &data, &["--insecure"]);
    launch.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let server = launch.start()?;
    let local = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    ensure!(ask(local, "/metrics")?.0 == 404, "metrics for everybody");
    server.stop()?;
    Ok(())
}
