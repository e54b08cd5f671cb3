//! A space of feeds that an operator deletes: whoever asks about it is told, replicas keep what they have, the disk has its
//! room back, and it stays so over `kill -9`.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::check::Report;
use crate::feeds::Client;
use crate::http::Connection;
use crate::server::{Launch, Server};

const JSON: (&str, &str) = ("content-type", "application/json");
const DOOMED: &str = "to go";
const OTHER: &str = "to stay";
/// More blocks than one request removes, which is 50,000.
const MANY: u64 = 51_000;

/// Runs everything.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &["--shards", "1"]).start()?;
    let world = World { binary, url: format!("http://{}", server.address) };
    report
        .check("`alluvium admin delete-space` says what it would come to, and does it with `--yes`", || {
            world.by_hand(&server, scratch.path())
        });
    let mut running = Some(server);
    report.check("a deleted space stays so after `kill -9`, and the files are in order", || {
        let launch = running.take().context("a server")?.kill()?;
        launch.check_files()?;
        let server = running.insert(launch.start()?);
        refused(server)?;
        ask(server, OTHER, "feeds", &json!({}), 200).map(drop)
    });
    if let Some(server) = running {
        server.stop()?.check_files()?;
    }
    Ok(())
}

/// A message about a space, and its answer.
fn ask(server: &Server, space: &str, what: &str, body: &Value, status: u16) -> Result<Value> {
    let target = format!("/feeds/v1/spaces/{}/{what}", space.replace(' ', "%20"));
    let mut connection = Connection::open(server.address)?;
    let answer = connection.call("POST", &target, &[JSON], body.to_string().as_bytes())?;
    Ok(serde_json::from_slice(&answer.expect(&[status], what)?.body)?)
}

fn append(server: &Server, space: &str, blocks: u64) -> Result<()> {
    for first in (0..blocks).step_by(500) {
        let blocks: Vec<Value> = (first..blocks.min(first + 500))
            .map(|sequence| json!({"actorId": "a", "sequence": sequence, "data": "eA=="}))
            .collect();
        ask(server, space, "append", &json!({"feedId": "f", "blocks": blocks}), 200)?;
    }
    Ok(())
}

/// Through each door, old or new, the space is told to be deleted.
fn refused(server: &Server) -> Result<()> {
    let block = json!({"feedId": "f", "actorId": "b", "sequence": 0, "data": "eA=="});
    for (what, body) in [
        ("query", json!({})),
        ("feeds", json!({})),
        ("subscribe", json!({"all": true})),
        ("append", json!({"blocks": [block]})),
    ] {
        let error = ask(server, DOOMED, what, &body, 410)?;
        ensure!(error["code"] == "space_deleted", "{what}: {error}");
    }
    let mut connection = Connection::open(server.address)?;
    for door in ["streams/f?offset=-1", "streams/f?offset=-1&live=sse", "events"] {
        let answer = connection.call("GET", &format!("/feeds/v1/spaces/to%20go/{door}"), &[], b"")?;
        ensure!(answer.status == 410, "{door}: {}", answer.status);
    }
    Ok(())
}

struct World<'a> {
    binary: &'a Path,
    url: String,
}

impl World<'_> {
    fn admin(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.binary);
        command.args(["admin", "--url", &self.url]).args(arguments);
        command.output().context("run the command")
    }

    /// The lines of a command that goes well.
    fn told(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let output = self.admin(&[arguments, &["--json"]].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        let lines = std::str::from_utf8(&output.stdout)?.lines();
        lines.map(|line| serde_json::from_str(line).context("a line of JSON")).collect()
    }

    /// What the files of a space take.
    fn bytes(&self, space: &str) -> Result<u64> {
        let spaces = self.told(&["spaces"])?;
        let found = spaces.iter().find(|found| found["space_id"] == space).context("it is listed")?;
        found["bytes"].as_u64().context("a number")
    }

    fn by_hand(&self, server: &Server, scratch: &Path) -> Result<()> {
        append(server, OTHER, 3)?;
        append(server, DOOMED, 3)?;
        let mut replica =
            Client::replicating(self.binary, scratch.join("r.sqlite"), &self.url, DOOMED, "--all")?;
        replica.sync()?;
        let before = replica.feeds()?;
        append(server, DOOMED, MANY)?;
        let (took, other) = (self.bytes(DOOMED)?, self.bytes(OTHER)?);

        let looked = self.told(&["delete-space", DOOMED])?;
        ensure!(looked.len() == 1 && looked[0]["dry_run"] == true, "{looked:?}");
        ensure!(looked[0]["deleted_blocks"] == MANY && looked[0]["deleted_bytes"] == MANY, "{looked:?}");
        ask(server, DOOMED, "feeds", &json!({}), 200).context("a look is only a look")?;
        let said = self.admin(&["delete-space", DOOMED])?;
        let said = String::from_utf8(said.stdout)?;
        ensure!(said.contains("51000 blocks") && said.contains("`--yes` does it"), "{said}");

        let lines = self.told(&["delete-space", DOOMED, "--yes"])?;
        let went: u64 = lines.iter().filter_map(|line| line["deleted_blocks"].as_u64()).sum();
        ensure!(lines.len() == 2 && went == MANY, "{lines:?}");
        ensure!(lines[0]["has_more"] == true && lines[1]["has_more"] == false, "{lines:?}");
        refused(server)?;
        let takes = self.bytes(DOOMED)?;
        ensure!(takes < took / 10 && self.bytes(OTHER)? == other, "{took} bytes, and now {takes}");
        let again = self.told(&["delete-space", DOOMED, "--yes"])?;
        ensure!(again.len() == 1 && again[0]["deleted_blocks"] == 0, "{again:?}");

        // Who has a replica keeps it, and is told when it brings something.
        ensure!(replica.sync().is_err(), "there is nothing to synchronise with");
        ensure!(replica.feeds()? == before, "a replica keeps what it has");
        replica.kill()?;
        self.nonsense(&mut Connection::open(server.address)?)
    }

    /// What is refused, and how.
    fn nonsense(&self, connection: &mut Connection) -> Result<()> {
        for (arguments, code) in [(&["delete-space"][..], 2), (&["delete-space", "none", "--yes"], 3)] {
            let ended = self.admin(arguments)?.status.code();
            ensure!(ended == Some(code), "{arguments:?} ended with {ended:?}");
        }
        for (body, status, code) in [
            (json!({"space_id": "none"}), 404, "space_not_found"),
            (json!({"space_id": "none", "dry_run": false}), 404, "space_not_found"),
            (json!({"space": OTHER, "dry_run": false}), 400, "invalid_body"),
        ] {
            let answer =
                connection.call("POST", "/admin/v1/delete-space", &[JSON], body.to_string().as_bytes())?;
            ensure!((answer.status, answer.code().as_str()) == (status, code), "{body}: {}", answer.code());
        }
        let answer = connection.call("GET", "/admin/v1/delete-space", &[], b"")?;
        ensure!(answer.status == 405 && answer.header("allow") == Some("POST"), "{}", answer.status);
        let body = json!({"space_id": DOOMED, "feed_id": "f", "keep_blocks": 0}).to_string();
        let pruned = connection.call("POST", "/admin/v1/prune-feed", &[JSON], body.as_bytes())?;
        ensure!((pruned.status, pruned.code().as_str()) == (410, "space_deleted"), "{}", pruned.status);
        Ok(())
    }
}
