//! Metrics move as they should for known operations, can be read, are documented, and are few.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use alluvium_metrics::Exposition;
use anyhow::{Context, Result, ensure};

use super::{scrape, scrape_as, wait_until};
use crate::check::Report;
use crate::http::Connection;
use crate::server::Launch;

const TEXT: (&str, &str) = ("content-type", "text/plain");
/// The page that says what each metric means.
const PAGE: &str = "../../docs/operating/metrics.md";
/// Streams and wrong paths of the check of bounds.
const NAMES: usize = 500;
/// Part of each name that the check of bounds uses; no metric may have it.
const MARK: &str = "zebra";

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &["--shards", "1"]).start()?;
    let address = server.address;
    report.check("requests, appends, bytes and batches are counted as they happen", || operations(address));
    report.check("readers that wait are counted while they wait", || waiters(address));
    report.check("feeds are counted", || feeds(address));
    report.check("both formats can be read, and every metric is documented", || documented(address));
    report.check("no name of a client is in a label, and the number of series stays", || bounded(address));
    report.check("`alluvium top --once` shows what happened", || top(binary, address));
    let before = scrape(address)?;
    let server = server.stop()?.start()?;
    report.check("a restart counts anew and tells what it has recovered", || {
        let after = scrape(server.address)?;
        let streams = before.value("alluvium_streams", &[]).context("streams")?;
        is(&after, "alluvium_recovered_streams", &[], streams)?;
        is(&after, "alluvium_streams", &[], streams)?;
        is(&after, "alluvium_appends_total", &[], 0.0)
    });
    server.stop()?;
    Ok(())
}

/// The value is there, and is this one.
fn is(shown: &Exposition, name: &str, labels: &[(&str, &str)], expected: f64) -> Result<()> {
    let value = shown.value(name, labels);
    ensure!(value == Some(expected), "{name} {labels:?} is {value:?} where {expected} was due");
    Ok(())
}

/// The value has grown by as much.
fn grew(before: &Exposition, after: &Exposition, name: &str, labels: &[(&str, &str)], by: f64) -> Result<()> {
    #[expect(clippy::float_cmp, reason = "counts are whole numbers")]
    let is_due = |grown: f64| grown == by;
    let grown = after.value(name, labels).unwrap_or(0.0) - before.value(name, labels).unwrap_or(0.0);
    ensure!(is_due(grown), "{name} {labels:?} grew by {grown} where {by} was due");
    Ok(())
}

fn operations(address: SocketAddr) -> Result<()> {
    let before = scrape(address)?;
    let mut connection = Connection::open(address)?;
    for stream in 0..3 {
        connection.send("PUT", &format!("s{stream}"), &[TEXT], &[])?.expect(&[201], "create")?;
    }
    for _ in 0..10 {
        connection.send("POST", "s0", &[TEXT], &[b'x'; 100])?.expect(&[204], "append")?;
    }
    for _ in 0..5 {
        connection.send("GET", "s0?offset=-1", &[], &[])?.expect(&[200], "read")?;
    }
    connection.send("HEAD", "none", &[], &[])?.expect(&[404], "head")?;
    connection.send("DELETE", "s2", &[], &[])?.expect(&[204], "delete")?;
    connection.call("PUT", "/ds/bucket-1", &[], &[])?.expect(&[201], "bucket")?;
    let after = scrape(address)?;
    for (operation, status, count) in [
        ("create", "201", 3.0),
        ("append", "204", 10.0),
        ("read", "200", 5.0),
        ("head", "404", 1.0),
        ("delete", "204", 1.0),
        ("bucket_create", "201", 1.0),
    ] {
        let labels = [("operation", operation), ("status", status)];
        grew(&before, &after, "alluvium_requests_total", &labels, count)?;
        let labels = [("operation", operation)];
        grew(&before, &after, "alluvium_request_seconds_count", &labels, count)?;
    }
    grew(&before, &after, "alluvium_appends_total", &[], 10.0)?;
    grew(&before, &after, "alluvium_append_bytes_total", &[], 1000.0)?;
    // One connection that waits for each answer: each write is a batch of its own, with a sync of its own.
    for name in [
        "alluvium_batch_commands_sum",
        "alluvium_batch_commands_count",
        "alluvium_journal_sync_seconds_count",
    ] {
        grew(&before, &after, name, &[], 15.0)?;
    }
    is(&after, "alluvium_streams", &[], 2.0)?;
    is(&after, "alluvium_buckets", &[], 1.0)?;
    is(&after, "alluvium_queue_commands", &[], 0.0)?;
    // The scrape itself is under way.
    is(&after, "alluvium_requests_in_flight", &[], 1.0)
}

fn waiters(address: SocketAddr) -> Result<()> {
    let kinds = ["long_poll", "subscriber"];
    let waiting = |kind, number| {
        wait_until(kind, || {
            let shown = scrape(address)?;
            Ok(shown.value("alluvium_waiters", &[("kind", kind)]) == Some(number))
        })
    };
    let mut open = Vec::new();
    for (kind, live) in kinds.into_iter().zip(["long-poll", "sse"]) {
        for number in [1.0, 2.0] {
            let mut connection = Connection::open(address)?;
            connection.begin("GET", &format!("/v1/stream/s0?offset=now&live={live}"), &[])?;
            open.push(connection);
            waiting(kind, number)?;
        }
    }
    drop(open);
    kinds.into_iter().try_for_each(|kind| waiting(kind, 0.0))?;
    let shown = scrape(address)?;
    let labels = [("operation", "read_long_poll"), ("status", "gone")];
    is(&shown, "alluvium_requests_total", &labels, 2.0)
}

fn feeds(address: SocketAddr) -> Result<()> {
    let before = scrape(address)?;
    let mut connection = Connection::open(address)?;
    let json = ("content-type", "application/json");
    let body = br#"{"requestId":"1","limit":5}"#;
    connection.call("POST", "/feeds/v1/spaces/x/query", &[json], body)?.expect(&[200], "query")?;
    connection.call("POST", "/feeds/v1/spaces/x/query", &[json], b"{")?.expect(&[400], "query")?;
    let after = scrape(address)?;
    for (status, by) in [("200", 1.0), ("400", 1.0)] {
        let labels = [("operation", "feed_query"), ("status", status)];
        grew(&before, &after, "alluvium_requests_total", &labels, by)?;
    }
    grew(&before, &after, "alluvium_feed_queries_total", &[], 1.0)
}

fn documented(address: SocketAddr) -> Result<()> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE))?;
    let plain = scrape_as(address, "text/plain")?;
    let open = scrape_as(address, "application/openmetrics-text")?;
    let names = |shown: &Exposition| -> BTreeSet<String> {
        let names = shown.families.iter().map(|family| family.name.trim_end_matches("_total").to_owned());
        names.collect()
    };
    ensure!(names(&plain) == names(&open), "the formats differ");
    ensure!(plain.families.len() > 40, "only {} families", plain.families.len());
    for family in &plain.families {
        let row = format!("| `{}` | {} |", family.name, family.kind.word());
        ensure!(page.contains(&row), "`{}` is not documented", family.name);
        ensure!(page.contains(&family.help), "`{}` is documented as something else", family.name);
    }
    Ok(())
}

fn series(shown: &Exposition) -> usize {
    shown.families.iter().map(|family| family.samples.len()).sum()
}

fn bounded(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    let mut round = |from: usize| -> Result<()> {
        for number in from..from + NAMES {
            let name = format!("{MARK}{number}");
            connection.send("PUT", &name, &[TEXT], &[])?.expect(&[201], "create")?;
            connection.send("GET", &format!("{name}?{name}={name}"), &[], &[])?.expect(&[200], "read")?;
            for target in [format!("/{name}"), format!("/ds/{name}/{name}/{name}"), format!("/feeds/{name}")]
            {
                connection.call("GET", &target, &[], &[])?.expect(&[404, 501], "a wrong path")?;
            }
            connection.call(&format!("{MARK}-{number}").to_ascii_uppercase(), "/", &[], &[])?;
        }
        Ok(())
    };
    round(0)?;
    let few = scrape(address)?;
    round(NAMES)?;
    let many = scrape(address)?;
    ensure!(series(&few) == series(&many), "{} series became {}", series(&few), series(&many));
    for sample in many.families.iter().flat_map(|family| &family.samples) {
        let has = sample.labels.values().any(|value| value.to_ascii_lowercase().contains(MARK));
        ensure!(!has, "{sample:?} has a client's name");
    }
    Ok(())
}

fn top(binary: &Path, address: SocketAddr) -> Result<()> {
    let url = format!("http://{address}");
    let output = Command::new(binary).args(["top", "--once", "--interval", "1", "--url", &url]).output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "it ended with {}: {text}", output.status);
    ensure!(!text.contains('\x1b'), "control characters without a terminal");
    for part in
        ["ready", "engine, fsync", "appends", "streams", "operation", "create", "append", "bucket_create"]
    {
        ensure!(text.contains(part), "`{part}` is not in\n{text}");
    }
    let nobody = Command::new(binary).args(["top", "--once", "--url", "http://127.0.0.1:1"]).output()?;
    ensure!(nobody.status.code() == Some(7), "without a server it ended with {}", nobody.status);
    Ok(())
}
