//! The extension, black box: buckets, snapshots, retention, bootstrap, and what goes beyond it.
//!
//! `docs/extensions.md` says what is right. [`cover`] keeps count of which requirement has which check.

mod api;
mod beyond;
mod bootstrap;
mod cover;
mod crashes;
pub(crate) mod events;
mod forks;
mod kept;
mod lifecycle;
mod listing;
mod live;
mod model;
pub(crate) mod multipart;
mod parsers;
mod resources;
mod snapshots;
mod stages;
mod uploads;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::check::Report;
use crate::clients;
use crate::server::{Launch, Store};
use crate::tools;

/// Limits small enough to be met.
fn flags() -> Vec<String> {
    let snapshot_bytes_max = uploads::SNAPSHOT_BYTES_MAX.to_string();
    [
        "--snapshot-bytes-max",
        &snapshot_bytes_max,
        "--bootstrap-bytes-max",
        "256KiB",
        "--long-poll-timeout",
        "2s",
        "--shards",
        "2",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Runs all checks, and then checks that none is missing.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let mut suite = cover::Suite::new(report);
    let scratch = tempfile::tempdir()?;
    let flags = flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    let address = server.address;
    lifecycle::run(&mut suite, address);
    listing::run(&mut suite, address);
    snapshots::run(&mut suite, address);
    uploads::run(&mut suite, address);
    bootstrap::run(&mut suite, address);
    forks::run(&mut suite, address);
    beyond::run(&mut suite, address);
    parsers::run(&mut suite, address)?;
    server.stop()?;
    resources::run(&mut suite, binary)?;
    stages::run(&mut suite, binary)?;
    kept::run(&mut suite, binary)?;
    crashes::run(&mut suite, binary)?;
    model::run(&mut suite, binary);
    suite.finish();
    let mut script = Command::new("node");
    script.arg("yjs.js").current_dir(tools::node_project()?);
    clients::drive("npm yjs", script, (binary, Store::Engine), report)
}
