//! Streams whose beginning goes by a rule or by an operator's hand: readers in every mode are told, what is left is whole, and
//! it stays so over `kill -9`.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::check::Report;
use crate::http::{Connection, Response};
use crate::server::{Launch, Server, Store};

const TEXT: (&str, &str) = ("content-type", "text/plain");
/// The longest wait for what happens a moment later.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What a stream under `cap/` keeps.
const CAP_BYTES: u64 = 1000;
/// How often the server is killed.
const KILLS: u64 = 8;
const START: &str = "0000000000000000_0000000000000000";

/// Runs everything.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let rules = format!(
        "prefix=/v1/stream/cap/,stream-max-bytes={CAP_BYTES};prefix=/v1/stream/old/,stream-max-age=100ms;\
         prefix=/ds/docs/,stream-max-bytes=100"
    );
    let flags = [
        "--retention",
        &rules,
        "--retention-interval",
        "5ms",
        "--segment-bytes",
        "1MiB",
        "--append-bytes-max",
        "64KiB",
        // One without news is waited for.
        "--long-poll-timeout",
        "500ms",
    ];
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    report.check(
        "a stream keeps its last messages, and whoever reads from before is told in every mode",
        || too_long(&server),
    );
    report.check("what is too old goes, and the stream goes on where it was", || too_old(&server));
    report.check("what follows a snapshot stays, and a bootstrap goes on from it without a gap", || {
        snapshots(&server)
    });
    report.check("a live reader at the tail goes on while the beginning goes", || live(&server));
    report.check("`alluvium admin trim` says what it would come to, and does it with `--yes`", || {
        by_hand(binary, &server)
    });
    let mut running = Some(server);
    report.check("what went and what is left is the same after `kill -9` in the middle of it", || {
        let mut earliest = START.to_owned();
        let mut written = 0;
        for _ in 0..KILLS {
            let server = running.take().context("a server")?;
            written = write(&server, written)?;
            let server = running.insert(server.kill()?.start()?);
            whole(server, written, &mut earliest)?;
        }
        Ok(())
    });
    if let Some(server) = running {
        server.stop()?.check_files()?;
    }
    on_sqlite(binary, report)
}

/// One message of so many bytes, which says its number.
fn message(number: u64) -> Vec<u8> {
    format!("{number:019}\n").into_bytes()
}

fn post(connection: &mut Connection, path: &str, body: &[u8]) -> Result<String> {
    connection.call("POST", path, &[TEXT], body)?.expect(&[204], path)?.next_offset()
}

/// Makes a stream and appends numbered messages; where each ends.
fn fill(connection: &mut Connection, path: &str, messages: u64) -> Result<Vec<String>> {
    connection.call("PUT", path, &[TEXT], b"")?.expect(&[201], path)?;
    (0..messages).map(|number| post(connection, path, &message(number))).collect()
}

fn earliest(response: &Response) -> Result<String> {
    Ok(response.header("stream-earliest-offset").context("no Stream-Earliest-Offset")?.to_owned())
}

fn head(connection: &mut Connection, path: &str) -> Result<Response> {
    connection.call("HEAD", path, &[], b"")?.expect(&[200], path)
}

fn refused(response: &Response, floor: &str) -> Result<()> {
    let told = (response.status, response.code(), earliest(response)?);
    ensure!(told == (410, "trimmed".to_owned(), floor.to_owned()), "{told:?} and not {floor}");
    ensure!(response.header("stream-snapshot-offset").is_none(), "nothing stands for it");
    Ok(())
}

fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}: not within {WAIT_MAX:?}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The numbers of the messages in a body, which must follow one another.
fn numbers(body: &[u8]) -> Result<std::ops::Range<u64>> {
    let text = std::str::from_utf8(body)?;
    ensure!(body.len().is_multiple_of(20), "{} bytes are no whole messages", body.len());
    let all: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    let first = all.first().copied().unwrap_or(0);
    ensure!(
        all.iter().copied().eq(first..first + all.len() as u64),
        "messages are missing or doubled: {all:?}"
    );
    Ok(first..first + all.len() as u64)
}

fn too_long(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let path = "/v1/stream/cap/a";
    let ends = fill(&mut connection, path, 80)?;
    // Fifty of twenty bytes stay.
    let floor = &ends[29];
    wait("it is trimmed", || Ok(earliest(&head(&mut connection, path)?).is_ok_and(|found| found == *floor)))?;
    for query in ["", "?offset=-1"] {
        let all = connection.call("GET", &format!("{path}{query}"), &[], b"")?.expect(&[200], query)?;
        ensure!(numbers(&all.body)? == (30..80) && earliest(&all)? == *floor, "`{query}` begins elsewhere");
        ensure!(all.header("cache-control") == Some("no-store"), "a cache would keep what is gone");
    }
    for below in [START, &ends[0], &ends[28]] {
        for mode in ["", "&live=long-poll", "&live=sse", "&max-bytes=5"] {
            let response = connection.call("GET", &format!("{path}?offset={below}{mode}"), &[], b"")?;
            refused(&response, floor).with_context(|| format!("{below}{mode}"))?;
        }
        let fork = [TEXT, ("stream-forked-from", path), ("stream-fork-offset", below)];
        refused(&connection.call("PUT", "/v1/stream/fork/none", &fork, b"")?, floor).context("a fork")?;
    }
    let rest =
        connection.call("GET", &format!("{path}?offset={}", ends[60]), &[], b"")?.expect(&[200], path)?;
    ensure!(numbers(&rest.body)? == (61..80), "what is left can be read from anywhere");
    let now = connection.call("GET", &format!("{path}?offset=now"), &[], b"")?.expect(&[200], "now")?;
    ensure!(now.next_offset()? == ends[79] && earliest(&now)? == *floor, "`now` is the tail");
    let poll = format!("{path}?offset={}&live=long-poll", ends[79]);
    let nothing = connection.call("GET", &poll, &[], b"")?.expect(&[204], "a long-poll")?;
    ensure!(earliest(&nothing)? == *floor, "a long-poll without news does not say where the stream begins");
    let appends = "/v1/stream/__ds/appends/cap/a";
    for (query, first) in [
        ("", Some(31)),
        ("?from=31", Some(31)),
        ("?from=70", Some(70)),
        ("?from=30", None),
        ("?from=1", None),
    ] {
        let response = connection.call("GET", &format!("{appends}{query}"), &[], b"")?;
        let Some(first) = first else {
            refused(&response, floor).with_context(|| format!("appends `{query}`"))?;
            continue;
        };
        let items = response.expect(&[200], query)?;
        let read: Value = serde_json::from_slice(&items.body)?;
        ensure!(read[0]["append_index"] == first && earliest(&items)? == *floor, "appends `{query}`: {read}");
    }
    // A fork has what it began with, whatever goes of its source.
    let fork = [TEXT, ("stream-forked-from", path), ("stream-fork-offset", ends[49].as_str())];
    connection.call("PUT", "/v1/stream/fork/a", &fork, b"")?.expect(&[201], "a fork")?;
    for number in 80..140 {
        post(&mut connection, path, &message(number))?;
    }
    wait("it is trimmed again", || Ok(earliest(&head(&mut connection, path)?)? > ends[70]))?;
    let fork = connection.call("GET", "/v1/stream/fork/a?offset=-1", &[], b"")?.expect(&[200], "the fork")?;
    ensure!(numbers(&fork.body)? == (30..50) && earliest(&fork)? == *floor, "the fork has lost something");
    Ok(())
}

fn too_old(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let path = "/v1/stream/old/a";
    let tail = fill(&mut connection, path, 20)?.pop().context("a tail")?;
    wait("all of it is too old", || {
        Ok(earliest(&head(&mut connection, path)?).is_ok_and(|found| found == tail))
    })?;
    let empty = connection.call("GET", &format!("{path}?offset=-1"), &[], b"")?.expect(&[200], path)?;
    ensure!(empty.body.is_empty() && empty.next_offset()? == tail, "the stream is empty and goes on");
    let next = post(&mut connection, path, &message(20))?;
    ensure!(next > tail, "{next} after {tail}");
    let is_gone = |connection: &mut Connection| Ok(earliest(&head(connection, path)?)? == next);
    wait("what came after goes too", || is_gone(&mut connection))
}

fn snapshots(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    connection.call("PUT", "/ds/docs", &[], b"")?.expect(&[201], "a bucket")?;
    let path = "/ds/docs/a";
    connection.call("PUT", path, &[TEXT], b"")?.expect(&[201], path)?;
    let ends: Vec<String> =
        (0..3).map(|number| post(&mut connection, path, &message(number))).collect::<Result<_>>()?;
    let snapshot = format!("{path}/snapshot/{}", ends[2]);
    let retain = [TEXT, ("stream-retain", "all")];
    connection.call("PUT", &snapshot, &retain, b"state")?.expect(&[204], "a snapshot")?;
    for number in 3..30 {
        post(&mut connection, path, &message(number))?;
    }
    wait(
        "it is trimmed",
        || Ok(earliest(&head(&mut connection, path)?).is_ok_and(|found| found == ends[2])),
    )?;
    let below = connection.call("GET", &format!("{path}?offset=-1"), &[], b"")?;
    let told = (below.status, below.code(), below.header("stream-snapshot-offset").map(str::to_owned));
    ensure!(
        told == (410, "retained".to_owned(), Some(ends[2].clone())),
        "a snapshot stands for it: {told:?}"
    );
    let begun =
        connection.call("GET", &format!("{path}/bootstrap"), &[], b"")?.expect(&[200], "a bootstrap")?;
    let text = String::from_utf8_lossy(&begun.body).into_owned();
    ensure!(begun.header("stream-snapshot-offset") == Some(ends[2].as_str()), "it begins elsewhere");
    for number in 3..30 {
        ensure!(text.contains(&format!("{number:019}")), "message {number} is missing");
    }
    Ok(())
}

/// Tails a stream from its beginning while that goes.
fn live(server: &Server) -> Result<()> {
    let (mut writer, mut reader) = (Connection::open(server.address)?, Connection::open(server.address)?);
    let path = "/v1/stream/cap/live";
    writer.call("PUT", path, &[TEXT], b"")?.expect(&[201], path)?;
    let mut offset = "-1".to_owned();
    let mut next = 0;
    for round in 0..40 {
        for number in round * 5..round * 5 + 5 {
            post(&mut writer, path, &message(number))?;
        }
        while next < round * 5 + 5 {
            let target = format!("{path}?offset={offset}&live=long-poll");
            let news = reader.call("GET", &target, &[], b"")?.expect(&[200], &target)?;
            let found = numbers(&news.body)?;
            ensure!(found.start == next, "{found:?} after {next}");
            (next, offset) = (found.end, news.next_offset()?);
        }
    }
    wait("the beginning goes", || Ok(earliest(&head(&mut writer, path)?).is_ok()))
}

fn by_hand(binary: &Path, server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let path = "/v1/stream/hand";
    let ends = fill(&mut connection, path, 10)?;
    let url = format!("http://{}", server.address);
    let admin = |arguments: &[&str]| -> Result<String> {
        let output =
            Command::new(binary).args(["admin", "--url", &url, "trim", path]).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    };
    let looked = admin(&["--keep-bytes", "50"])?;
    ensure!(looked.contains("160 B") && looked.contains(&ends[7]) && looked.contains("--yes"), "{looked}");
    ensure!(head(&mut connection, path)?.header("stream-earliest-offset").is_none(), "a look is only a look");
    let done = admin(&["--keep-bytes", "50", "--yes", "--json"])?;
    let done: Value = serde_json::from_str(&done)?;
    ensure!(done["trimmed_bytes"] == 160 && done["earliest_offset"] == ends[7], "{done}");
    ensure!(earliest(&head(&mut connection, path)?)? == ends[7], "it begins elsewhere");
    admin(&["--from", &ends[8], "--yes"])?;
    ensure!(earliest(&head(&mut connection, path)?)? == ends[8], "it begins elsewhere");
    for (arguments, code) in [
        (&["--keep-bytes", "1", "--from", START][..], 2),
        (&[], 2),
        (&["--from", "0000000000000001_0000000000000300"], 1),
    ] {
        let arguments = [&["admin", "--url", &url, "trim", path], arguments].concat();
        let ended = Command::new(binary).args(&arguments).output()?.status.code();
        ensure!(ended == Some(code), "{arguments:?} ended with {ended:?}");
    }
    let text = connection.call("GET", "/metrics", &[], &[])?.body;
    let shown = alluvium_metrics::parse(std::str::from_utf8(&text)?)?;
    let trims = |cause| shown.value("alluvium_retention_trims_total", &[("cause", cause)]);
    ensure!(trims("operator") == Some(2.0), "{:?} by hand", trims("operator"));
    ensure!(trims("size") > Some(0.0) && trims("age") > Some(0.0), "rules are not counted");
    let bytes = shown.value("alluvium_retention_trimmed_bytes_total", &[("cause", "operator")]);
    ensure!(bytes == Some(180.0), "{bytes:?} bytes by hand");
    Ok(())
}

/// Appends while the rules are at work; how many are acknowledged by then.
fn write(server: &Server, written: u64) -> Result<u64> {
    let mut connection = Connection::open(server.address)?;
    let path = "/v1/stream/cap/killed";
    connection.call("PUT", path, &[TEXT], b"")?.expect(&[200, 201], path)?;
    for number in written..written + 150 {
        post(&mut connection, path, &message(number))?;
    }
    Ok(written + 150)
}

/// Everything that was acknowledged is there from where the stream begins, and that is no earlier than it was.
fn whole(server: &Server, written: u64, known: &mut String) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let path = "/v1/stream/cap/killed";
    let all = connection.call("GET", &format!("{path}?offset=-1"), &[], b"")?.expect(&[200], path)?;
    let (found, floor) = (numbers(&all.body)?, earliest(&all)?);
    ensure!(found.end == written, "{found:?} of {written}");
    ensure!(found.end - found.start >= CAP_BYTES / 20, "more went than may: {found:?}");
    ensure!(floor >= *known, "the beginning moved back from {known} to {floor}");
    if *known < floor {
        refused(&connection.call("GET", &format!("{path}?offset={known}"), &[], b"")?, &floor)?;
    }
    *known = floor;
    Ok(())
}

/// A store that cannot do it says so.
fn on_sqlite(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &[]).with_store(Store::Sqlite).start()?;
    report.check("on one SQLite file no stream is trimmed, and that is said", || {
        let mut connection = Connection::open(server.address)?;
        let body = json!({"path": "/v1/stream/a", "keep_bytes": 1}).to_string();
        let headers = [("content-type", "application/json")];
        let answer = connection.call("POST", "/admin/v1/trim", &headers, body.as_bytes())?;
        ensure!(
            (answer.status, answer.code().as_str()) == (501, "not_supported_by_store"),
            "{}",
            answer.status
        );
        Ok(())
    });
    server.stop()?;
    Ok(())
}
