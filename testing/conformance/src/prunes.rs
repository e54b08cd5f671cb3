//! A feed whose old blocks an operator removes: replicas, queries and readers of it as a stream are told, what is left is
//! whole, a damaged block goes with the rest, and it stays so over `kill -9`.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::check::Report;
use crate::feeds::Client;
use crate::http::Connection;
use crate::server::{Launch, Server};

const JSON: (&str, &str) = ("content-type", "application/json");
const SPACE: &str = "a space";
/// More blocks than one transaction removes, and one request: 5000 and 50,000.
const MANY: u64 = 52_000;

/// Runs everything.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &["--shards", "1"]).start()?;
    let world = World { binary, url: format!("http://{}", server.address) };
    report.check("`alluvium admin prune-feed` says what it would come to, and does it with `--yes`", || {
        world.by_hand(&server, scratch.path())
    });
    report.check("a feed that is pruned in several requests is left as it was meant", || world.many(&server));
    let mut running = Some(server);
    report.check("what went is gone after `kill -9`, positions go on, and the files are in order", || {
        let launch = running.take().context("a server")?.kill()?;
        launch.check_files()?;
        let server = running.insert(launch.start()?);
        let listed = ask(server, "feeds", &json!({"prefix": "mine"}))?;
        ensure!(listed["feeds"][0]["firstPosition"] == 7, "{listed}");
        let block = json!({"feedId": "mine", "actorId": "b", "sequence": 90, "data": "eA=="});
        let answer = ask(server, "append", &json!({"blocks": [block]}))?;
        ensure!(answer["positions"][0] == 11 + MANY, "{answer}");
        Ok(())
    });
    if let Some(server) = running {
        server.stop()?.check_files()?;
    }
    Ok(())
}

/// A message about the space, and its answer.
fn ask(server: &Server, what: &str, body: &Value) -> Result<Value> {
    let target = format!("/feeds/v1/spaces/a%20space/{what}");
    let mut connection = Connection::open(server.address)?;
    let answer = connection.call("POST", &target, &[JSON], body.to_string().as_bytes())?;
    Ok(serde_json::from_slice(&answer.expect(&[200], what)?.body)?)
}

fn append(server: &Server, feed: &str, sequences: std::ops::Range<u64>) -> Result<()> {
    for sequence in sequences {
        let block = json!({"feedId": feed, "actorId": "a", "sequence": sequence, "data": "eA=="});
        ask(server, "append", &json!({"blocks": [block]}))?;
    }
    Ok(())
}

struct World<'a> {
    binary: &'a Path,
    url: String,
}

impl World<'_> {
    fn prune(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.binary);
        command.args(["admin", "--url", &self.url, "prune-feed"]).args(arguments);
        command.output().context("run the command")
    }

    /// The lines of a command that goes well.
    fn pruned(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let output = self.prune(&[arguments, &["--json"]].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        let lines = std::str::from_utf8(&output.stdout)?.lines();
        lines.map(|line| serde_json::from_str(line).context("a line of JSON")).collect()
    }

    fn by_hand(&self, server: &Server, scratch: &Path) -> Result<()> {
        let early = Client::replicating(self.binary, scratch.join("e.sqlite"), &self.url, SPACE, "--all")?;
        // Positions: 1 to 3 mine, 4 and 5 yours, 6 to 10 mine.
        append(server, "mine", 0..3)?;
        append(server, "yours", 0..2)?;
        let mut connection = Connection::open(server.address)?;
        let stream = "/feeds/v1/spaces/a%20space/streams/mine";
        let middle = connection.call("GET", &format!("{stream}?offset=-1"), &[], b"")?.next_offset()?;
        append(server, "mine", 3..8)?;
        early.sync()?;
        let before = early.feeds()?;

        let looked = self.pruned(&[SPACE, "mine", "--keep-blocks", "4"])?;
        let plan = json!([7, 4, 4, false]);
        let told = |line: &Value| {
            json!([line["from_position"], line["pruned_blocks"], line["pruned_bytes"], line["has_more"]])
        };
        ensure!(looked.len() == 1 && told(&looked[0]) == plan && looked[0]["dry_run"] == true, "{looked:?}");
        let listed = ask(server, "feeds", &json!({}))?;
        ensure!(listed["feeds"][0]["blockCount"] == 8, "a look is only a look: {listed}");
        let done = self.pruned(&[SPACE, "mine", "--keep-blocks", "4", "--yes"])?;
        ensure!(told(&done[0]) == plan && done[0]["dry_run"] == false, "{done:?}");
        for keep in [["--keep-blocks", "4"], ["--keep-blocks", "99"], ["--from", "1"], ["--keep-time", "1h"]]
        {
            let again = self.pruned(&[&[SPACE, "mine"], &keep[..], &["--yes"]].concat())?;
            ensure!(again[0]["pruned_blocks"] == 0, "{keep:?}: {again:?}");
        }

        // Queries, streams and replicas are told.
        let page = ask(server, "query", &json!({"feedIds": ["mine"]}))?;
        ensure!(page["prunedBelow"] == 7 && page["blocks"][0]["position"] == 7, "{page}");
        ensure!(page["pruned"] == json!([{"feedId": "mine", "below": 7}]), "{page}");
        let yours = ask(server, "query", &json!({"feedIds": ["yours"]}))?;
        ensure!(yours["prunedBelow"].is_null(), "another feed: {yours}");
        for live in ["", "&live=long-poll", "&live=sse"] {
            let answer = connection.call("GET", &format!("{stream}?offset={middle}{live}"), &[], b"")?;
            ensure!(answer.status == 410, "a reader before it{live}: {}", answer.status);
        }
        let whole = connection.call("GET", &format!("{stream}?offset=-1"), &[], b"")?;
        let left: Value = serde_json::from_slice(&whole.body)?;
        ensure!(left.as_array().is_some_and(|blocks| blocks.len() == 4), "{left}");
        early.sync()?;
        ensure!(early.feeds()? == before, "a replica keeps what it has");
        let late = Client::replicating(self.binary, scratch.join("l.sqlite"), &self.url, SPACE, "--all")?;
        late.sync()?;
        let feeds = late.feeds()?;
        ensure!(feeds["mine"] == before["mine"][4..] && feeds["yours"] == before["yours"], "{feeds:?}");
        let listed = late.listed()?;
        ensure!(listed[0]["prunedBelow"] == 7 && listed[1]["prunedBelow"].is_null(), "{listed:?}");
        self.nonsense(&mut connection)
    }

    /// What is refused, and how.
    fn nonsense(&self, connection: &mut Connection) -> Result<()> {
        for (arguments, code) in [
            (&[SPACE, "mine"][..], 2),
            (&[SPACE, "mine", "--from", "1", "--keep-blocks", "1"], 2),
            (&[SPACE, "mine", "--from", "0"], 1),
            (&[SPACE, "mine", "--from", "12"], 1),
            (&[SPACE, "none", "--keep-blocks", "1"], 3),
            (&["none", "mine", "--keep-blocks", "1"], 3),
        ] {
            let ended = self.prune(arguments)?.status.code();
            ensure!(ended == Some(code), "{arguments:?} ended with {ended:?}");
        }
        for (body, status, code) in [
            (json!({"space_id": SPACE, "feed_id": "mine", "from_position": 12}), 400, "invalid_position"),
            (json!({"space_id": SPACE, "feed_id": "mine"}), 400, "invalid_body"),
            (json!({"space_id": SPACE, "feed_id": "none", "keep_ms": 1}), 404, "feed_not_found"),
            (json!({"space_id": "none", "feed_id": "mine", "keep_ms": 1}), 404, "space_not_found"),
        ] {
            let answer =
                connection.call("POST", "/admin/v1/prune-feed", &[JSON], body.to_string().as_bytes())?;
            ensure!((answer.status, answer.code().as_str()) == (status, code), "{body}: {}", answer.code());
        }
        let answer = connection.call("GET", "/admin/v1/prune-feed", &[], b"")?;
        ensure!(answer.status == 405 && answer.header("allow") == Some("POST"), "{}", answer.status);
        Ok(())
    }

    fn many(&self, server: &Server) -> Result<()> {
        for first in (0..MANY).step_by(500) {
            let blocks: Vec<Value> = (first..first + 500)
                .map(|sequence| json!({"actorId": "a", "sequence": sequence, "data": ""}))
                .collect();
            ask(server, "append", &json!({"feedId": "many", "blocks": blocks}))?;
        }
        let lines = self.pruned(&[SPACE, "many", "--keep-blocks", "3", "--yes"])?;
        let went: u64 = lines.iter().filter_map(|line| line["pruned_blocks"].as_u64()).sum();
        ensure!(lines.len() > 1 && went == MANY - 3, "{lines:?}");
        let page = ask(server, "query", &json!({"feedIds": ["many"]}))?;
        let left: Vec<u64> = page["blocks"]
            .as_array()
            .context("blocks")?
            .iter()
            .filter_map(|block| block["position"].as_u64())
            .collect();
        ensure!(left == [8 + MANY, 9 + MANY, 10 + MANY], "{left:?}");
        ensure!(page["prunedBelow"] == 8 + MANY, "{page}");
        let text = Connection::open(server.address)?.call("GET", "/metrics", &[], &[])?.body;
        let shown = alluvium_metrics::parse(std::str::from_utf8(&text)?)?;
        let counted = shown.value("alluvium_feed_pruned_blocks_total", &[]);
        ensure!(counted == Some(52_001.0), "{counted:?} are counted");
        Ok(())
    }
}
