//! `alluvium jetstream serve` behind a network that is made up: as published clients see it, and compared with the model
//! of that network.

mod backups;
mod crashes;
mod faults;
mod network;
mod paths;
mod power;
mod readers;
mod replacing;
mod replay;
mod soak;
mod told;
mod trace;
pub(crate) mod world;

pub(crate) use replacing::{Options as ReplaceOptions, replace};
pub(crate) use soak::Options as SoakOptions;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::check::Report;
use crate::clients::converse;
use crate::http::Connection;
use crate::server::{Launch, Server};
use crate::simulator::Network;
use crate::tools;

/// Events of the network in a second: clients wait for some hundreds of one collection.
const RATE: u32 = 240;
/// The dictionary that clients of the oldest feed have compiled in.
const DICTIONARY: &str = "../../crates/jetstream-wire/dictionaries/subscribe-1612007021.zdict";

/// Starts a network and a server that follows it, and runs the clients over restarts of the server.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let network = Network::with_rate(binary, 5, RATE)?;
    let scratch = tempfile::tempdir()?;
    let (relay, plc) = (format!("ws://{}", network.address), format!("http://{}", network.address));
    let flags = ["--relay", &relay, "--plc", &plc, "--start-cursor", "0", "--allow-private"];
    let mut launch = Launch::new(binary, &scratch.path().join("data"), &flags);
    launch.program.push("jetstream".to_owned());
    let mut server = Some(launch.start()?);
    let url = format!("http://{}", server.as_ref().context("it runs")?.address);

    let mut javascript = Command::new("node");
    javascript.arg("jetstream.js").current_dir(tools::node_project()?).env("ALLUVIUM_TEST_URL", &url);
    converse("npm", javascript, report, |how| {
        let running = server.take().context("it runs")?;
        let launch = if how == "kill" { running.kill()? } else { running.stop()? };
        server = Some(launch.start()?);
        Ok(())
    })?;

    let (dir, interpreter) = tools::python_project()?;
    let mut python = Command::new(interpreter);
    python.args(["-u", "jetstream.py"]).current_dir(&dir).env("ALLUVIUM_TEST_URL", &url);
    python.env("ALLUVIUM_TEST_DICTIONARY", Path::new(env!("CARGO_MANIFEST_DIR")).join(DICTIONARY));
    converse("PyPI websockets", python, report, |how| anyhow::bail!("a restart of kind `{how}`"))?;

    let running = server.context("it runs")?;
    report.check("what it does is in its metrics, and in `alluvium top`", || shown(binary, running.address));
    report.check("nothing is lost, doubled or out of order over `kill -9` in a loop", || killed(running));
    network.stop()
}

/// Takes backups of a server that follows a busy network, and brings them back.
pub(crate) fn backups(binary: &Path, report: &mut Report) {
    backups::run(binary, report);
}

/// Compares everything that the server serves with the model of the network, at several seeds.
pub(crate) fn against_model(binary: &Path, report: &mut Report) {
    network::run(binary, report);
}

/// Lets everything loose that can be wrong with a network.
pub(crate) fn with_faults(binary: &Path, report: &mut Report) -> Result<()> {
    faults::run(binary, report)
}

/// Lets a network go on for as long as it is told, over restarts of the server.
pub(crate) fn soak(binary: &Path, options: &SoakOptions, report: &mut Report) {
    soak::run(binary, options, report);
}

/// Kills the server at every step to the disk, and its readers; takes its power, and that of who replaces segments.
pub(crate) fn with_crashes(binary: &Path, report: &mut Report) -> Result<()> {
    readers::run(binary, report);
    crashes::run(binary, report)?;
    power::run(binary, report)?;
    replacing::run(binary, report)
}

/// Looks at what the clients before have caused.
fn shown(binary: &Path, address: SocketAddr) -> Result<()> {
    let answer = Connection::open(address)?.call("GET", "/metrics", &[], b"")?.expect(&[200], "a scrape")?;
    ensure!(answer.header("x-request-id").is_some(), "an answer without a name");
    let shown = alluvium_metrics::parse(std::str::from_utf8(&answer.body)?)?;
    let next = shown.value("jetstream_next_seq", &[]).context("no next event")?;
    let rows = shown.value("jetstream_livestream_rows_total", &[]).context("no rows")?;
    let received = shown.value("jetstream_livestream_events_received_total", &[]).context("no events")?;
    ensure!(next > 1.0 && rows > 0.0 && received > 0.0, "next {next}, rows {rows}, received {received}");
    let live = shown.sum("alluvium_requests_total", &[("operation", "subscribe"), ("status", "101")]);
    ensure!(live > 0.0, "no live feed was counted");
    for path in ["/healthz", "/readyz"] {
        Connection::open(address)?.call("GET", path, &[], b"")?.expect(&[200], path)?;
    }
    let url = format!("http://{address}");
    let top = Command::new(binary).args(["top", "--once", "--interval", "1", "--url", &url]).output()?;
    let text = String::from_utf8(top.stdout)?;
    ensure!(top.status.success() && text.contains("relay ") && text.contains("archive "), "top: {text}");
    Ok(())
}

/// Kills the server again and again while the network goes on: what was served stays what it was.
fn killed(mut server: Server) -> Result<()> {
    let mut known: Vec<String> = Vec::new();
    for round in 0..5 {
        let events = events(server.address)?;
        ensure!(
            events.len() >= known.len(),
            "round {round}: {} events, and {} before",
            events.len(),
            known.len()
        );
        ensure!(events[..known.len()] == known[..], "round {round}: what was served has changed");
        let seqs: Vec<u64> = events.iter().map(|event| seq(event)).collect::<Result<_>>()?;
        ensure!(seqs.iter().copied().eq(1..=seqs.len() as u64), "round {round}: numbers are missing");
        known = events;
        server = server.kill()?.start()?;
    }
    server.stop()?;
    Ok(())
}

/// All events that there are, as lines.
fn events(address: SocketAddr) -> Result<Vec<String>> {
    let (mut events, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let path = format!("/streams/events?offset={offset}");
        let answer = Connection::open(address)?.call("GET", &path, &[], b"")?.expect(&[200], &path)?;
        let page: Vec<serde_json::Value> = serde_json::from_slice(&answer.body)?;
        events.extend(page.iter().map(ToString::to_string));
        answer.header("stream-next-offset").context("no offset")?.clone_into(&mut offset);
        if answer.header("stream-up-to-date").is_some() {
            return Ok(events);
        }
    }
}

fn seq(event: &str) -> Result<u64> {
    let event: serde_json::Value = serde_json::from_str(event)?;
    event["seq"].as_u64().context("an event without a number")
}
