//! What an operator sees: metrics that move as they should, answers about the server's health, and names of requests.

mod health;
mod names;
mod values;

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use alluvium_metrics::{Exposition, parse};
use anyhow::{Context, Result, bail};

use crate::check::Report;
use crate::http::Connection;

/// The longest wait for something that the server does by itself.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often it is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs all checks.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    values::run(binary, report)?;
    names::run(binary, report)?;
    health::run(binary, report);
    Ok(())
}

/// The metrics of a server, as Prometheus would get them.
pub(crate) fn scrape(address: SocketAddr) -> Result<Exposition> {
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    scrape_as(address, accept)
}

fn scrape_as(address: SocketAddr, accept: &str) -> Result<Exposition> {
    let answer = Connection::open(address)?.call("GET", "/metrics", &[("accept", accept)], &[])?;
    let answer = answer.expect(&[200], "a scrape")?;
    let text = String::from_utf8(answer.body).context("metrics that are no text")?;
    parse(&text).context("the text of the metrics")
}

/// Waits until something that the server does by itself is done.
pub(crate) fn wait_until(what: &str, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_done()? {
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", WAIT_MAX.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
