//! WebSockets: those of this project against those of others, and feeds over them.

pub(crate) mod crowd;
mod echo;
mod messages;
pub(crate) mod peers;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::check::Report;
use crate::clients;
use crate::server::Store;
use crate::tools;

/// Feeds over WebSocket, against the binary.
pub(crate) fn feeds(binary: &Path, options: &crowd::Options, report: &mut Report) -> Result<()> {
    let node = tools::node_project()?;
    let mut script = Command::new("node");
    // Version 20 has the browser's `WebSocket` behind a flag; later ones take the flag and need it no more.
    script.args(["--experimental-websocket", "--no-warnings", "feeds.js"]).current_dir(&node);
    clients::drive("npm ws, cbor-x and the browser's WebSocket", script, (binary, Store::Engine), report)?;
    crowd::run(binary, options, report)
}
