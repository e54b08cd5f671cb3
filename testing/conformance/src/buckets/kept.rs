//! What else must be the same in every stage: large messages, and what producers have stored.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::api::{Api, BYTES, JSON};
use super::cover::Suite;
use super::stages::{Answer, Probe, ask, difference, fold, merge};
use crate::http::Response;
use crate::random::Random;
use crate::server::Launch;

/// In place of a method: the last append of each producer once more, one of before it, one of an epoch that is over,
/// and one that leaves a gap.
pub(super) const RETRY: &str = "RETRY";

/// Everything of the streams of random sizes fits one segment, so that it is hot at first.
const FLAGS: &[&str] = &["--shards", "1", "--segment-bytes", "32MiB", "--append-bytes-max", "2MiB"];
/// Appends to each of the streams.
const APPENDS: usize = 1_000;
/// The longest message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A thousand messages of 1 byte to 1 MiB, as bytes and as JSON, come back from a bootstrap as they were sent: out of
/// the journal, out of the table that the background work writes, after `kill -9`, and after tables were merged.
pub(super) fn run(suite: &mut Suite<'_>, binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("data");
    let server = Launch::new(binary, &data, FLAGS).start()?;
    let mut api = Api::new(server.address);
    api.bucket("filler")?;
    api.create("/ds/filler/s", BYTES)?;
    let bucket = api.bucket("sizes")?;
    let streams = [(format!("{bucket}/bytes"), BYTES), (format!("{bucket}/json"), JSON)];
    let mut hot = Vec::new();
    for (path, content_type) in &streams {
        let messages = append_random(&mut api, path, content_type)?;
        hot.push(ask(&mut api, "GET", &format!("{path}/bootstrap"))?);
        suite.check("#39", &format!("hot: {content_type} of 1 byte to 1 MiB"), || {
            let bootstrap = api.bootstrap(path)?;
            ensure!(bootstrap.bodies() == messages, "other messages than were appended");
            ensure!(bootstrap.next_offset == api.head(path)?.next_offset()?, "it ends at the tail");
            Ok(())
        });
    }
    let shard = data.join("streams/shard-00");
    let mut compare = |api: &mut Api, when: &str| {
        for ((path, content_type), hot) in streams.iter().zip(&hot) {
            suite
                .check("#39", &format!("{when}: {content_type} of 1 byte to 1 MiB"), || same(api, path, hot));
        }
    };
    fold(&mut api, &shard)?;
    compare(&mut api, "after the background rewrite");
    let server = server.kill()?.start()?;
    let mut api = Api::new(server.address);
    compare(&mut api, "after kill -9 and a restart");
    merge(&mut api, &shard)?;
    compare(&mut api, "after tables were merged");
    server.stop()?;
    Ok(())
}

fn same(api: &mut Api, path: &str, hot: &Answer) -> Result<()> {
    let answer = ask(api, "GET", &format!("{path}/bootstrap"))?;
    ensure!(answer == *hot, "{}", difference(&answer, hot));
    Ok(())
}

/// Most are short; one in a hundred may have any length.
fn append_random(api: &mut Api, path: &str, content_type: &str) -> Result<Vec<Vec<u8>>> {
    api.create(path, content_type)?;
    let mut random = Random::new(39);
    let mut messages = Vec::with_capacity(APPENDS);
    for number in 0..APPENDS {
        let most = match number % 100 {
            0 => MESSAGE_BYTES_MAX,
            1..10 => 16 << 10,
            _ => 600,
        };
        let length = match number {
            0 => MESSAGE_BYTES_MAX,
            1 => 1,
            _ => 1 + usize::try_from(random.next() % most as u64)?,
        };
        let mut message = Vec::with_capacity(length + 8);
        while message.len() < length {
            message.extend_from_slice(&random.next().to_le_bytes());
        }
        message.truncate(length);
        if content_type == JSON {
            for byte in &mut message {
                *byte = b'0' + *byte % 10;
            }
            let last = message.len() - 1;
            // A number, or a text where there is room for the marks.
            (message[0], message[last]) = if length > 1 { (b'"', b'"') } else { (b'7', b'7') };
        }
        api.append(path, content_type, &message)?;
        messages.push(message);
    }
    Ok(messages)
}

/// Two producers, of which one has begun another epoch, and a snapshot over what they wrote.
pub(super) fn producers(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab"])?;
    for stamp in [("alice", 0, 0), ("alice", 0, 1), ("bob", 3, 0), ("alice", 1, 0), ("bob", 3, 1)] {
        stamped(api, &path, stamp)?.expect(&[200], "a stamped append")?;
    }
    let tail = api.head(&path)?.next_offset()?;
    api.published(&path, &tail, b"all of it")?;
    let last = stamped(api, &path, ("bob", 3, 2))?.expect(&[200], "an append after it")?;
    let retried = stamped(api, &path, ("bob", 3, 2))?;
    ensure!(retried.status == 204, "a repetition is answered {}", retried.status);
    ensure!(retried.next_offset()? == last.next_offset()?, "it moves the tail");
    let mut probes: Vec<Probe> = vec![
        ("GET", format!("{path}?offset={tail}")),
        ("GET", format!("{path}?offset={}", x[1])),
        ("GET", format!("{path}/bootstrap")),
    ];
    probes.extend(REPEATED.map(|(name, ..)| (RETRY, format!("{path}#{name}"))));
    probes.push(("HEAD", path));
    Ok(probes)
}

/// What is sent again: nothing of it is stored, so that it can be asked in every stage.
const REPEATED: [(&str, (&str, u64, u64), u16); 6] = [
    ("last-of-alice", ("alice", 1, 0), 204),
    ("last-of-bob", ("bob", 3, 2), 204),
    ("earlier-of-bob", ("bob", 3, 0), 204),
    ("fenced-alice", ("alice", 0, 2), 403),
    ("gap-of-bob", ("bob", 3, 4), 409),
    ("late-start-of-alice", ("alice", 2, 1), 400),
];

/// Sends one of [`REPEATED`], named after the path, and requires its status.
pub(super) fn retry(api: &mut Api, target: &str) -> Result<Response> {
    let (path, name) = target.split_once('#').context("a repetition has a name")?;
    let repeated = REPEATED.iter().find(|(repeated, ..)| *repeated == name);
    let (_, stamp, status) = *repeated.context("a repetition that is known")?;
    stamped(api, path, stamp)?.expect(&[status], name)
}

fn stamped(api: &mut Api, path: &str, (id, epoch, seq): (&str, u64, u64)) -> Result<Response> {
    let (epoch, seq) = (epoch.to_string(), seq.to_string());
    let headers =
        [("content-type", BYTES), ("producer-id", id), ("producer-epoch", &epoch), ("producer-seq", &seq)];
    api.call("POST", path, &headers, format!("{id}-{seq};").as_bytes())
}
