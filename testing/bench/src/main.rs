//! `alluvium-bench`: measures servers of the Durable Streams Protocol, and of Jetstream.
//!
//! It drives any server by URL, or starts servers itself, with one client thread in closed loops over raw
//! HTTP/1.1. Two servers are measured in alternation, so that their ratio holds even on a machine whose
//! speed does not. See the README beside this crate.

mod args;
mod ceiling;
mod clock;
mod http;
mod jetstream;
mod procfs;
mod report;
mod schedule;
mod server;
mod sse;
mod stats;
mod target;
mod usage;
mod workload;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Cli;
use crate::report::Report;
use crate::schedule::Schedule;

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    // One thread: the client should take as little from a shared machine as it can.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting up")?;
    if let Some(port) = cli.ceiling_port() {
        return runtime.block_on(ceiling::serve(port));
    }
    if let Some(files) = cli.scanned() {
        return print(&jetstream::scan::run(files, cli.common.runs())?, cli.common.json.as_deref());
    }
    let schedule = Schedule {
        targets: cli.common.targets()?,
        workloads: cli.workloads(),
        runs: cli.common.runs(),
        other_load_max: cli.common.other_load_max(),
        launch: cli.common.launch_options(),
    };
    let (report, failed) = runtime.block_on(async {
        // An interrupted run is dropped, which ends the servers started for it and removes their data.
        tokio::select! {
            done = schedule.execute() => Ok(done),
            () = interrupted() => Err(anyhow!("interrupted")),
        }
    })?;
    print(&report, cli.common.json.as_deref())?;
    if failed > 0 {
        bail!("{failed} runs failed");
    }
    Ok(())
}

/// Waits for SIGINT or SIGTERM; for ever if the system lets nobody wait for them.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
}

fn print(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json != Some(Path::new("-")) {
        stdout.write_all(report.to_text().as_bytes()).context("printing the report")?;
    }
    let Some(path) = json else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(report).context("writing the report as JSON")?;
    text.push('\n');
    if path == Path::new("-") {
        stdout.write_all(text.as_bytes()).context("printing the report")
    } else {
        write_file(path, &text)
    }
}

#[expect(clippy::disallowed_methods, reason = "a report for people needs no seam for simulated disks")]
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
