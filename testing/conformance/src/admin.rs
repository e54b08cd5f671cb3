//! What an operator does: rules by which streams end, lists by size and idleness, totals, deletions by prefix.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, Server};

/// Streams under the prefix that is listed and deleted.
const STREAMS: usize = 30;
/// The longest wait for what happens a moment later.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The exit code of a wrong configuration.
const EXIT_CONFIG: i32 = 78;

/// Runs everything.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(
        binary,
        &scratch.path().join("data"),
        &["--segment-bytes", "1MiB", "--append-bytes-max", "256KiB"],
    )
    .start()?;
    let mut world = World {
        binary,
        connection: Connection::open(server.address)?,
        url: format!("http://{}", server.address),
    };
    world.fill()?;
    report.check("pages by size and by path have every stream once, in order", || world.pages());
    report.check("totals are those of the streams, group by group", || world.totals());
    report.check("`alluvium admin` prints tables, and JSON of the same", || world.commands());
    report.check("spaces of feeds are listed by size, with their names, and which are deleted", || {
        world.spaces()
    });
    report.check("a dry run deletes nothing, and says what there is", || world.dry_run());
    report.check("a deletion goes on where one was cut short, in batches, and leaves what is newer", || {
        world.deletes()
    });
    server.stop()?;
    retention(binary, report)?;
    on_sqlite(binary, report)
}

struct World<'a> {
    binary: &'a Path,
    connection: Connection,
    url: String,
}

/// The path of a stream, and how much is in it.
fn stream(number: usize) -> (String, usize) {
    (format!("/v1/stream/logs/{}/s{number:02}", number % 3), 100 * (number % 7))
}

impl World<'_> {
    fn call(&mut self, method: &str, target: &str, body: &[u8], status: u16) -> Result<Value> {
        let headers = [("content-type", "application/json")];
        let answer = self.connection.call(method, target, &headers, body)?.expect(&[status], target)?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    fn put(&mut self, path: &str, bytes: usize) -> Result<()> {
        let headers = [("content-type", "text/plain")];
        let body = vec![b'x'; bytes];
        self.connection.call("PUT", path, &headers, &body)?.expect(&[201], path).map(drop)
    }

    fn fill(&mut self) -> Result<()> {
        for number in 0..STREAMS {
            let (path, bytes) = stream(number);
            self.put(&path, bytes)?;
        }
        self.put("/v1/stream/z%20z", 5)?;
        self.call("PUT", "/ds/docs", b"", 201)?;
        self.put("/ds/docs/a", 7)?;
        for (space, blocks) in [("small", 1), ("large one", 40)] {
            for sequence in 0..blocks {
                let block = json!({"actorId": "a", "sequence": sequence, "data": "x".repeat(4000)});
                let body = json!({"requestId": "1", "blocks": [block]}).to_string();
                let target = format!("/feeds/v1/spaces/{}/append", space.replace(' ', "%20"));
                self.call("POST", &target, body.as_bytes(), 200)?;
            }
        }
        Ok(())
    }

    /// All items of a list, page by page.
    fn walk(&mut self, target: &str, items: &str) -> Result<Vec<Value>> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let mut page = self.call("GET", &format!("{target}&cursor={cursor}"), b"", 200)?;
            let found = page[items].take();
            let found = found.as_array().context("no items")?;
            ensure!(found.len() <= 4, "{} items on a page of 4", found.len());
            all.extend(found.iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) if page["has_more"] == true => cursor = next.replace('%', "%25"),
                next => {
                    ensure!(next.is_none() && page["has_more"] == false, "a cursor and no more: {next:?}");
                    return Ok(all);
                }
            }
        }
    }

    fn pages(&mut self) -> Result<()> {
        let mut expected: Vec<(String, u64)> =
            (0..STREAMS).map(stream).map(|(path, bytes)| (path, bytes as u64)).collect();
        expected.extend([("/v1/stream/z%20z".to_owned(), 5), ("/ds/docs/a".to_owned(), 7)]);
        let told = |items: Vec<Value>| -> Vec<(String, u64)> {
            let of = |item: &Value| {
                (item["path"].as_str().unwrap_or_default().to_owned(), item["bytes"].as_u64().unwrap_or(0))
            };
            items.iter().map(of).collect()
        };
        expected.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ensure!(told(self.walk("/admin/v1/streams?limit=4", "streams")?) == expected, "by size");
        expected.sort();
        ensure!(told(self.walk("/admin/v1/streams?limit=4&order=path", "streams")?) == expected, "by path");
        let idle = self.walk("/admin/v1/streams?limit=4&order=idle&prefix=/v1/stream/logs/1/", "streams")?;
        let times: Vec<u64> = idle.iter().filter_map(|item| item["last_write_at_ms"].as_u64()).collect();
        ensure!(idle.len() == STREAMS / 3 && times.is_sorted(), "by idleness: {times:?}");
        Ok(())
    }

    fn totals(&mut self) -> Result<()> {
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (path, bytes) in (0..STREAMS).map(stream) {
            let group = expected.entry(path[..=path.rfind('/').context("a slash")?].to_owned()).or_default();
            *group = (group.0 + 1, group.1 + bytes as u64);
        }
        let told = |groups: &[Value]| -> BTreeMap<String, (u64, u64)> {
            let number = |group: &Value, name: &str| group[name].as_u64().unwrap_or(0);
            let of = |group: &Value| {
                (
                    group["prefix"].as_str().unwrap_or_default().to_owned(),
                    (number(group, "streams"), number(group, "bytes")),
                )
            };
            groups.iter().map(of).collect()
        };
        let deep = self.walk("/admin/v1/totals?limit=1&depth=2&prefix=/v1/stream/logs/", "groups")?;
        ensure!(told(&deep) == expected, "{deep:?}");
        let all: (u64, u64) = expected.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let page = self.call("GET", "/admin/v1/totals", b"", 200)?;
        let expected = BTreeMap::from([
            ("/ds/docs/".to_owned(), (1, 7)),
            ("/v1/stream/".to_owned(), (1, 5)),
            ("/v1/stream/logs/".to_owned(), all),
        ]);
        ensure!(told(page["groups"].as_array().context("no groups")?) == expected, "{page}");
        ensure!(page["total"]["streams"] == all.0 + 2 && page["total"]["bytes"] == all.1 + 12, "{page}");
        Ok(())
    }

    fn admin(&self, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(self.binary).arg("admin").args(["--url", &self.url]).args(arguments).output()?)
    }

    /// What a command has printed, if it ended well.
    fn printed(&self, arguments: &[&str]) -> Result<String> {
        let output = self.admin(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    fn commands(&mut self) -> Result<()> {
        let table = self.printed(&["streams", "-n", "3"])?;
        let lines: Vec<&str> = table.lines().collect();
        ensure!(lines.len() == 4 && lines[0].ends_with("STREAM") && lines[1].contains("600 B"), "{table}");
        ensure!(lines[1].ends_with("/v1/stream/logs/0/s06"), "{table}");
        let all = self.printed(&["streams", "--all", "--json", "--by", "path"])?;
        let paths: Vec<String> = all
            .lines()
            .map(|line| {
                Ok(serde_json::from_str::<Value>(line)?["path"].as_str().context("a path")?.to_owned())
            })
            .collect::<Result<_>>()?;
        ensure!(paths.len() == STREAMS + 2 && paths.is_sorted(), "{paths:?}");
        let one = self.printed(&["streams", "--prefix", "/v1/stream/z%20z", "--by", "idle"])?;
        ensure!(one.lines().count() == 2 && one.contains("/v1/stream/z%20z"), "{one}");
        let totals = self.printed(&["totals"])?;
        ensure!(totals.lines().count() == 4 && totals.contains("/v1/stream/logs/"), "{totals}");
        for (arguments, code) in [
            (&["streams", "--prefix", "logs"][..], 1),
            (&["streams", "--by", "colour"], 2),
            (&["delete", "/ds/none", "--batch", "0"], 2),
        ] {
            let ended = self.admin(arguments)?.status.code();
            ensure!(ended == Some(code), "{arguments:?} ended with {ended:?}");
        }
        Ok(())
    }

    fn spaces(&mut self) -> Result<()> {
        let page = self.call("GET", "/admin/v1/spaces?limit=1", b"", 200)?;
        ensure!(page["spaces"][0]["space_id"] == "large one" && page["has_more"] == true, "{page}");
        ensure!(
            page["total"]["spaces"] == 2 && page["spaces"][0]["bytes"].as_u64() > Some(160_000),
            "{page}"
        );
        let table = self.printed(&["spaces"])?;
        let lines: Vec<&str> = table.lines().collect();
        ensure!(
            lines.len() == 3 && lines[1].ends_with("large one") && lines[2].ends_with("small"),
            "{table}"
        );
        self.deleted_space()
    }

    /// A list says which spaces are deleted, and since when.
    fn deleted_space(&mut self) -> Result<()> {
        let body = br#"{"space_id":"small","dry_run":false}"#;
        let deleted = self.call("POST", "/admin/v1/delete-space", body, 200)?;
        let page = self.call("GET", "/admin/v1/spaces", b"", 200)?;
        let of = |name: &str| {
            let named = page["spaces"].as_array()?.iter().find(|space| space["space_id"] == name)?;
            named.get("deleted_at_ms")
        };
        let since = of("small").and_then(Value::as_u64).with_context(|| format!("since when: {page}"))?;
        let span = deleted["as_of_ms"].as_u64()..=page["as_of_ms"].as_u64();
        ensure!(span.contains(&Some(since)), "{since} in {page} after {deleted}");
        ensure!(of("large one") == Some(&Value::Null) && page["total"]["spaces"] == 2, "{page}");
        let table = self.printed(&["spaces"])?;
        let line = |name: &str| table.lines().find(|line| line.ends_with(name)).unwrap_or_default();
        ensure!(line("SPACE").contains("DELETED") && line("large one").contains(" -  "), "{table}");
        // No digit of the folder's name is an `s`, which is for seconds.
        ensure!(line("small").contains("s  "), "{table}");
        Ok(())
    }

    fn count(&mut self, prefix: &str) -> Result<u64> {
        let page = self.call("GET", &format!("/admin/v1/totals?prefix={prefix}"), b"", 200)?;
        page["total"]["streams"].as_u64().context("a number")
    }

    fn dry_run(&mut self) -> Result<()> {
        let said = self.printed(&["delete", "/v1/stream/logs/"])?;
        ensure!(said.starts_with("30 streams with ") && said.contains("--yes"), "{said}");
        let told = self.printed(&["delete", "/v1/stream/logs/", "--json"])?;
        ensure!(serde_json::from_str::<Value>(&told)?["streams"] == 30, "{told}");
        ensure!(self.count("/v1/stream/logs/")? == 30, "some are gone");
        Ok(())
    }

    fn deletes(&mut self) -> Result<()> {
        // As of a moment at which the newest is not there yet.
        let seen = self.call("POST", "/admin/v1/delete", br#"{"prefix":"/v1/stream/"}"#, 200)?;
        let before_ms = seen["as_of_ms"].as_u64().context("a time")?;
        let body = json!({"prefix": "/v1/stream/logs/", "dry_run": false, "limit": 4, "created_before_ms": before_ms});
        let first = self.call("POST", "/admin/v1/delete", body.to_string().as_bytes(), 200)?;
        ensure!(first["deleted_streams"] == 4 && first["remaining_streams"] == 26, "{first}");
        let said = self.printed(&["delete", "/v1/stream/logs/", "--yes", "--batch", "10"])?;
        let left: Vec<&str> =
            said.lines().filter_map(|line| line.rsplit_once(", ")).map(|(_, left)| left).collect();
        ensure!(left == ["16 left", "6 left", "0 left"], "{said}");
        ensure!(
            self.count("/v1/stream/logs/")? == 0 && self.count("/")? == 2,
            "too few or too many are gone"
        );
        self.call("GET", "/v1/stream/logs/0/s00?offset=-1", b"", 404)?;
        self.put("/v1/stream/logs/new", 1)?;
        let body = json!({"prefix": "/v1/stream/logs/", "dry_run": false, "created_before_ms": before_ms});
        let kept = self.call("POST", "/admin/v1/delete", body.to_string().as_bytes(), 200)?;
        ensure!(kept["deleted_streams"] == 0 && kept["remaining_streams"] == 0, "{kept}");
        ensure!(self.count("/v1/stream/logs/")? == 1, "what is newer is gone");
        Ok(())
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}: not within {WAIT_MAX:?}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn status(connection: &mut Connection, method: &str, path: &str, body: &[u8]) -> Result<u16> {
    let headers = [("content-type", "text/plain")];
    Ok(connection.call(method, path, &headers, body)?.status)
}

/// Rules end the streams that they are about, for good, and no others.
fn retention(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let rules = "prefix=/v1/stream/tmp/,max-closed=1ms;prefix=/v1/stream/cap/,max-bytes=1000";
    let flags = ["--retention", rules, "--retention-interval", "20ms"];
    let mut server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    report.check("rules end closed streams, and the longest idle of too many bytes", || {
        let mut connection = Connection::open(server.address)?;
        let closed = [("content-type", "text/plain"), ("stream-closed", "true")];
        for path in ["/v1/stream/tmp/closed", "/v1/stream/other/closed"] {
            connection.call("PUT", path, &closed, b"end")?.expect(&[201], path)?;
        }
        ensure!(status(&mut connection, "PUT", "/v1/stream/tmp/open", b"x")? == 201, "a create");
        for number in 0..4 {
            let path = format!("/v1/stream/cap/{number}");
            ensure!(status(&mut connection, "PUT", &path, &[b'x'; 400])? == 201, "{path}");
            // So that each is older than the next.
            let first = now_ms();
            wait("time passes", || Ok(now_ms() > first))?;
        }
        wait("they go", || {
            let mut gone = 0;
            for path in ["/v1/stream/tmp/closed", "/v1/stream/cap/0", "/v1/stream/cap/1"] {
                gone += usize::from(status(&mut connection, "GET", path, b"")? == 404);
            }
            Ok(gone == 3)
        })?;
        stay(&mut connection)?;
        let text = connection.call("GET", "/metrics", &[], &[])?.body;
        let shown = alluvium_metrics::parse(std::str::from_utf8(&text)?)?;
        let ended = |cause| shown.value("alluvium_retention_streams_total", &[("cause", cause)]);
        ensure!((ended("closed"), ended("bytes")) == (Some(1.0), Some(2.0)), "they are not counted");
        ensure!(shown.value("alluvium_retention_bytes_total", &[("cause", "bytes")]) == Some(800.0), "bytes");
        Ok(())
    });
    server = server.kill()?.start()?;
    report.check("what went by a rule stays gone after kill -9, and what did not is there", || {
        let mut connection = Connection::open(server.address)?;
        for path in ["/v1/stream/tmp/closed", "/v1/stream/cap/0", "/v1/stream/cap/1"] {
            ensure!(status(&mut connection, "GET", path, b"")? == 404, "{path} is back");
        }
        stay(&mut connection)
    });
    server.stop()?;
    report.check("rules that are none are refused at the start, with what is wrong", || {
        for (rules, expected) in [
            ("max-age=1d", "`max-age` is no limit"),
            ("stream-max-bytes=0", "stream-max-bytes"),
            ("prefix=/ds/", "has no limit"),
            ("prefix=logs,max-idle=1d", "no stream is at or below"),
            ("max-idle=1w", "expected a duration"),
        ] {
            refused(binary, &["--retention", rules], expected)?;
        }
        refused(binary, &["--store", "sqlite:x", "--retention", "max-idle=1d"], "store = engine")?;
        refused(binary, &["--disk-free-warn", "1MiB", "--disk-free-min", "1GiB"], "disk-free-warn")
    });
    Ok(())
}

/// What no rule is about.
fn stay(connection: &mut Connection) -> Result<()> {
    for path in ["/v1/stream/other/closed", "/v1/stream/tmp/open", "/v1/stream/cap/2", "/v1/stream/cap/3"] {
        ensure!(status(connection, "GET", path, b"")? == 200, "{path} is gone");
    }
    Ok(())
}

fn now_ms() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn refused(binary: &Path, flags: &[&str], expected: &str) -> Result<()> {
    let output = Command::new(binary).args(["config", "check"]).args(flags).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(EXIT_CONFIG), "{flags:?} ended with {}", output.status);
    ensure!(said.contains(expected), "{flags:?}: {said}");
    Ok(())
}

/// A store that cannot tell says so.
fn on_sqlite(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let launch =
        Launch::new(binary, &scratch.path().join("data"), &[]).with_store(crate::server::Store::Sqlite);
    let server: Server = launch.start()?;
    report.check("on one SQLite file streams cannot be listed, and that is said; spaces can", || {
        let mut connection = Connection::open(server.address)?;
        for target in ["/admin/v1/streams", "/admin/v1/totals"] {
            let answer = connection.call("GET", target, &[], &[])?;
            ensure!((answer.status, answer.code().as_str()) == (501, "not_supported_by_store"), "{target}");
        }
        connection.call("GET", "/admin/v1/spaces", &[], &[])?.expect(&[200], "the spaces")?;
        Ok(())
    });
    server.stop()?;
    Ok(())
}
