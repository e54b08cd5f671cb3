//! `kill -9` in the middle of deliveries: no wake is lost, and a schedule of retries goes on where it was.

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::receiver::{Receiver, now_ms};
use crate::check::Report;
use crate::http::Connection;
use crate::random::Random;
use crate::server::{Launch, Server};

const SUBSCRIPTIONS: usize = 20;
const STREAMS: u32 = 60;
const KILLS: u64 = 6;
/// The longest wait for everything to be read once the trouble is over.
const CALM_MAX: Duration = Duration::from_secs(90);
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

pub(super) fn run(binary: &Path, report: &mut Report) {
    report.check(
        "kill -9 in the middle of deliveries: every message is in a wake, no generation has two names",
        || no_wake_is_lost(binary),
    );
    report.check("kill -9 while a receiver is down: the schedule of retries goes on", || schedule(binary));
}

fn launch(binary: &Path, data: &Path) -> Launch {
    Launch::new(binary, data, &["--webhook-loopback", "yes", "--webhook-timeout", "2s"])
}

fn make(connection: &mut Connection, id: &str, pattern: &str, receiver: &Receiver) -> Result<()> {
    let url = format!("http://{}/", receiver.address);
    let document =
        json!({"type": "webhook", "pattern": pattern, "webhook": {"url": url}, "lease_ttl_ms": 1000});
    let path = format!("__ds/subscriptions/{id}");
    connection.send("PUT", &path, &JSON, document.to_string().as_bytes())?.expect(&[201], "subscribe")?;
    Ok(())
}

fn get(connection: &mut Connection, id: &str) -> Result<Value> {
    let path = format!("__ds/subscriptions/{id}");
    let found = connection.send("GET", &path, &[], &[])?.expect(&[200], "look at a subscription")?;
    Ok(serde_json::from_slice(&found.body)?)
}

/// Appends until told to stop, and returns the tail of each stream as it was last acknowledged.
fn append(server: &Server, round: u64, tails: &mut HashMap<String, String>) -> Result<()> {
    let mut random = Random::new(round);
    let mut connection = Connection::open(server.address)?;
    for _ in 0..120 {
        let name = format!("work/{}", random.below(STREAMS));
        let method = if tails.contains_key(&name) { "POST" } else { "PUT" };
        let answer =
            connection.send(method, &name, &JSON, b"{\"n\":1}")?.expect(&[200, 201, 204], "append")?;
        tails.insert(name, answer.next_offset()?);
    }
    Ok(())
}

fn no_wake_is_lost(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let launch = launch(binary, &scratch.path().join("data"));
    let mut server = launch.start()?;
    let receiver = Receiver::start()?;
    let mut connection = Connection::open(server.address)?;
    for number in 0..SUBSCRIPTIONS {
        let pattern = if number % 2 == 0 { "work/*" } else { "**" };
        make(&mut connection, &format!("s{number}"), pattern, &receiver)?;
    }
    let mut tails = HashMap::new();
    let mut random = Random::new(5);
    for round in 0..KILLS {
        append(&server, round, &mut tails)?;
        // At a moment that nothing has to do with: deliveries are under way.
        thread::sleep(Duration::from_millis(random.below(300).into()));
        server = server.kill()?.start()?;
    }
    append(&server, KILLS, &mut tails)?;
    receiver.set_well();
    let mut connection = Connection::open(server.address)?;
    let deadline = Instant::now() + CALM_MAX;
    for number in 0..SUBSCRIPTIONS {
        loop {
            let found = get(&mut connection, &format!("s{number}"))?;
            let unread = unread(&found, &tails);
            if unread.is_empty() {
                break;
            }
            ensure!(Instant::now() < deadline, "s{number} was not told of {unread:?}: {found}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    let mut names: HashMap<(String, u64), String> = HashMap::new();
    let came = receiver.came();
    for webhook in &came {
        let id = webhook.body["subscription_id"].as_str().context("no id")?.to_owned();
        let generation = webhook.body["generation"].as_u64().context("no generation")?;
        let wake_id = webhook.body["wake_id"].as_str().context("no wake id")?;
        let name = names.entry((id, generation)).or_insert_with(|| wake_id.to_owned());
        ensure!(name == wake_id, "a generation with two names: {}", webhook.body);
    }
    ensure!(came.len() >= SUBSCRIPTIONS * 2, "only {} webhooks came", came.len());
    server.stop()?;
    Ok(())
}

/// Streams that a subscription has not read to their ends.
fn unread(found: &Value, tails: &HashMap<String, String>) -> Vec<String> {
    let links = found["streams"].as_array().cloned().unwrap_or_default();
    let is_read = |name: &String, tail: &String| {
        links
            .iter()
            .any(|link| link["path"] == name.as_str() && link["acked_offset"].as_str() >= Some(tail.as_str()))
    };
    tails.iter().filter(|(name, tail)| !is_read(name, tail)).map(|(name, _)| name.clone()).collect()
}

fn schedule(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut server = launch(binary, &scratch.path().join("data")).start()?;
    let receiver = Receiver::start()?;
    receiver.set_down(true);
    let mut connection = Connection::open(server.address)?;
    make(&mut connection, "s", "**", &receiver)?;
    connection.send("PUT", "a", &JSON, b"1")?.expect(&[201], "append")?;
    for failures in 1..=3 {
        let found = wait(&mut connection, |found| {
            found["status"] == "failed"
                && receiver.came().len() >= failures
                && !found["next_attempt_at"].is_null()
        })?;
        let count = receiver.came().len();
        let due = found["next_attempt_at"].as_str().context("no time")?.to_owned();
        let killed_ms = now_ms();
        server = server.kill()?.start()?;
        connection = Connection::open(server.address)?;
        let after = get(&mut connection, "s")?;
        if receiver.came().len() == count {
            ensure!(after["next_attempt_at"] == due.as_str(), "the schedule was {due}, and is {after}");
        }
        let next = wait_for_webhook(&receiver, count)?;
        let due_ms = unix_ms(&due)?;
        ensure!(next + 5 >= due_ms, "a webhook came at {next}, before {due_ms}; killed at {killed_ms}");
    }
    receiver.set_down(false);
    receiver.set_well();
    wait(&mut connection, |found| {
        found["status"] == "active" && found["streams"][0]["acked_offset"] != "-1"
    })?;
    server.stop()?;
    Ok(())
}

fn wait(connection: &mut Connection, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + CALM_MAX;
    loop {
        let found = get(connection, "s")?;
        if is_so(&found) {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "it stays as it is: {found}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// When the next webhook came, in Unix milliseconds.
fn wait_for_webhook(receiver: &Receiver, after: usize) -> Result<u64> {
    let deadline = Instant::now() + CALM_MAX;
    loop {
        if let Some(came) = receiver.came().get(after) {
            return Ok(came.at_ms);
        }
        ensure!(Instant::now() < deadline, "no webhook came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A time of day as `date` reads it: the tools have no calendar of their own.
fn unix_ms(time: &str) -> Result<u64> {
    let output = std::process::Command::new("date").args(["-u", "+%s%3N", "-d", time]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
