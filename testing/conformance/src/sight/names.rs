//! Names of requests: kept, made, answered, and in the log.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::wait_until;
use crate::check::Report;
use crate::failed_sync::limit_files;
use crate::http::Connection;
use crate::server::{Launch, Server};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const TEXT: (&str, &str) = ("content-type", "text/plain");
/// Size of a segment, so that a limit on file size keeps another from being made.
const SEGMENT_BYTES: u64 = 2 << 20;

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let flags =
        ["--shards", "1", "--segment-bytes", "2MiB", "--append-bytes-max", "1MiB", "--log-format", "json"];
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    report.check("each answer names its request as the client did, or anew", || named(&server));
    report
        .check("a request that fails for the server's reason is in the log by its name", || failed(&server));
    server.stop()?;
    let streams = fs::read_dir(scratch.path())?.count();
    ensure!(streams > 0, "the data directory is there");
    Ok(())
}

fn named(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let mut id = |method: &str, target: &str, headers: &[(&str, &str)]| -> Result<String> {
        let answer = connection.call(method, target, headers, &[])?;
        Ok(answer.header("x-request-id").context("an answer without a name")?.to_owned())
    };
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for target in ["/v1/stream/none", "/ds/abcd", "/feeds/v1/spaces/x", "/nothing", "/healthz", "/metrics"] {
        ensure!(id("GET", target, &[("x-request-id", "mine-1")])? == "mine-1", "{target}: another name");
        ensure!(id("GET", target, &[("traceparent", &parent)])? == TRACE, "{target}: not the trace's");
        let (one, other) = (id("HEAD", target, &[])?, id("HEAD", target, &[])?);
        ensure!(one != other && one.len() == 16, "{target}: `{one}` and `{other}`");
        let unsafe_name = id("GET", target, &[("x-request-id", "a\"b <script>")])?;
        ensure!(unsafe_name.len() == 16, "{target}: `{unsafe_name}`");
    }
    Ok(())
}

/// Has writes fail for want of room until one is told so, and looks for it in the log.
fn failed(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    connection.send("PUT", "full", &[TEXT], &[])?.expect(&[201], "create")?;
    limit_files(server, Some(SEGMENT_BYTES - 1))?;
    let body = vec![b'x'; 256 * 1024];
    let told = (0..1000).find_map(|number| {
        let name = format!("append-{number}");
        match connection.send("POST", "full", &[TEXT, ("x-request-id", &name)], &body) {
            Ok(answer) if answer.status == 204 => None,
            Ok(answer) => Some(answer.expect(&[507], "an append").map(|answer| (name, answer))),
            Err(error) => Some(Err(error.into())),
        }
    });
    let (name, answer) = told.context("the disk is never full")??;
    ensure!(answer.header("x-request-id") == Some(&name), "another name");
    let line = |output: String| -> Option<serde_json::Value> {
        let lines = output.lines().filter_map(|line| serde_json::from_str(line.trim()).ok());
        let mut lines = lines.filter(|line: &serde_json::Value| line["id"] == name.as_str());
        lines.next()
    };
    wait_until("a line in the log", || Ok(line(server.output()).is_some()))?;
    let line = line(server.output()).context("no line")?;
    let expected = serde_json::json!({
        "level": "WARN", "operation": "append", "status": 507, "code": "storage_full"
    });
    for (key, value) in expected.as_object().context("an object")? {
        ensure!(line[key] == *value, "`{key}` in {line}");
    }
    limit_files(server, None)
}
