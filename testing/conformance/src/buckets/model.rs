//! Random operations against a small model: create, append, publish, fork, read, delete, restart. After every step
//! the invariant `floor <= snapshot <= tail` is checked from outside, and what the server holds is compared.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;
use super::snapshots::ZERO;
use crate::random::Random;
use crate::server::{Launch, Server};

/// Seeds of one run, each a server and a history of its own.
const SEEDS: std::ops::Range<u64> = 0..6;
/// Steps of each history.
const STEPS: u32 = 250;
/// Streams at once; more would meet each other too seldom.
const STREAMS_MAX: u32 = 6;

/// A stream as it should be.
#[derive(Clone, Debug)]
struct Stream {
    /// Offsets of all boundaries and the message that follows each but the last. Gone messages stay in the list.
    boundaries: Vec<String>,
    messages: Vec<Vec<u8>>,
    /// Index of the first boundary that can be read from.
    floor: usize,
    /// Index of the snapshot's boundary, and its bytes.
    snapshot: Option<(usize, Vec<u8>)>,
    /// The snapshot at the floor, when the latest is a later one that kept the history.
    base: Option<(usize, Vec<u8>)>,
    closed: bool,
    /// Forks made of it; a deleted stream with forks holds its path.
    forks: u32,
}

/// The server and what it should hold.
struct World {
    random: Random,
    server: Option<Server>,
    api: Api,
    bucket: String,
    streams: BTreeMap<String, Stream>,
    names: u32,
}

pub(super) fn run(suite: &mut Suite<'_>, binary: &Path) {
    for seed in SEEDS {
        suite.check("BS-8 #51", &format!("random operations against a model, seed {seed}"), || {
            let scratch = tempfile::tempdir()?;
            let flags = ["--shards", "2", "--segment-bytes", "1536KiB", "--append-bytes-max", "256KiB"];
            let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
            let mut api = Api::new(server.address);
            let bucket = api.bucket("model")?;
            let (random, streams) = (Random::new(seed), BTreeMap::new());
            let mut world = World { random, server: Some(server), api, bucket, streams, names: 0 };
            for step in 0..STEPS {
                world.step().with_context(|| format!("step {step}"))?;
                world.check_one().with_context(|| format!("after step {step}"))?;
            }
            let paths: Vec<String> = world.streams.keys().cloned().collect();
            paths.iter().try_for_each(|path| world.check(path))
        });
    }
}

impl World {
    fn step(&mut self) -> Result<()> {
        let choice = self.random.below(100);
        let Some(path) = self.pick() else { return self.create() };
        match choice {
            0..8 => self.create(),
            8..48 => self.append(&path),
            48..68 => self.publish(&path),
            68..78 => self.fork(&path),
            78..86 => self.check(&path),
            86..90 => self.close(&path),
            90..96 => self.delete(&path),
            _ => self.restart(),
        }
    }

    fn pick(&mut self) -> Option<String> {
        let count = u32::try_from(self.streams.len()).ok()?;
        if count == 0 {
            return None;
        }
        self.streams.keys().nth(self.random.below(count) as usize).cloned()
    }

    fn fresh_path(&mut self) -> String {
        self.names += 1;
        // Both namespaces take part; only one of them has snapshots of its own.
        match self.random.below(4) {
            0 => format!("/v1/stream/model/{}", self.names),
            _ => format!("{}/{}", self.bucket, self.names),
        }
    }

    fn message(&mut self) -> Vec<u8> {
        let length = match self.random.below(20) {
            0 => self.random.between(1_000, 120_000),
            _ => self.random.between(1, 40),
        };
        std::iter::repeat_with(|| self.random.next().to_le_bytes()[0])
            .take(usize::try_from(length).unwrap_or(1))
            .collect()
    }

    fn create(&mut self) -> Result<()> {
        if self.streams.len() >= STREAMS_MAX as usize {
            return Ok(());
        }
        let path = self.fresh_path();
        let offset = self.api.create(&path, BYTES)?;
        let stream = Stream {
            boundaries: vec![offset],
            messages: Vec::new(),
            floor: 0,
            snapshot: None,
            base: None,
            closed: false,
            forks: 0,
        };
        self.streams.insert(path, stream);
        Ok(())
    }

    fn append(&mut self, path: &str) -> Result<()> {
        for _ in 0..self.random.between(1, 8) {
            let message = self.message();
            let stream = self.streams.get_mut(path).context("picked")?;
            if stream.closed {
                let response = self.api.call("POST", path, &[("content-type", BYTES)], &message)?;
                return refused(&response, 409, "closed");
            }
            stream.boundaries.push(self.api.append(path, BYTES, &message)?);
            stream.messages.push(message);
        }
        Ok(())
    }

    fn publish(&mut self, path: &str) -> Result<()> {
        if !path.starts_with("/ds/") {
            return Ok(());
        }
        let body = self.message();
        let stream = self.streams.get_mut(path).context("picked")?;
        let index = self.random.below(u32::try_from(stream.boundaries.len())?) as usize;
        let keep = self.random.once_in(5);
        let headers: &[(&str, &str)] = if keep { &[("stream-retain", "all")] } else { &[] };
        let response = self.api.publish(path, &stream.boundaries[index], headers, &body)?;
        if index < stream.floor {
            return refused(&response, 410, "retained");
        }
        // An older snapshot never replaces a newer one, even where the history is kept.
        if stream.snapshot.as_ref().is_some_and(|(at, _)| index < *at) {
            return refused(&response, 409, "snapshot_older");
        }
        response.expect(&[204], "publish")?;
        let previous = stream.snapshot.replace((index, body));
        if keep {
            let floor = stream.floor;
            if let Some(at_floor) = previous.filter(|(at, _)| *at == floor && floor < index && floor > 0) {
                stream.base = Some(at_floor);
            }
        } else {
            stream.floor = index;
            stream.base = None;
        }
        Ok(())
    }

    fn fork(&mut self, source: &str) -> Result<()> {
        if self.streams.len() >= STREAMS_MAX as usize {
            return Ok(());
        }
        let path = self.fresh_path();
        let parent = self.streams.get(source).context("picked")?.clone();
        let index = self.random.below(u32::try_from(parent.boundaries.len())?) as usize;
        let headers = [
            ("content-type", BYTES),
            ("stream-forked-from", source),
            ("stream-fork-offset", parent.boundaries[index].as_str()),
        ];
        let response = self.api.put(&path, &headers, b"")?;
        if index < parent.floor {
            return refused(&response, 410, "retained");
        }
        response.expect(&[201], "fork")?;
        let (latest, base) = match parent.snapshot {
            Some((at, body)) if at <= index => (Some((at, body)), parent.base),
            _ => (parent.base, None),
        };
        let stream = Stream {
            boundaries: parent.boundaries[..=index].to_vec(),
            messages: parent.messages[..index].to_vec(),
            floor: parent.floor,
            snapshot: latest,
            base,
            closed: false,
            forks: 0,
        };
        self.streams.get_mut(source).context("picked")?.forks += 1;
        self.streams.insert(path, stream);
        Ok(())
    }

    fn close(&mut self, path: &str) -> Result<()> {
        let response =
            self.api.call("POST", path, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
        let tail = response.next_offset()?;
        let stream = self.streams.get_mut(path).context("picked")?;
        ensure!(stream.boundaries.last() == Some(&tail), "closing moves the tail");
        stream.closed = true;
        Ok(())
    }

    fn delete(&mut self, path: &str) -> Result<()> {
        self.api.delete(path)?.expect(&[204], "delete")?;
        let stream = self.streams.remove(path).context("picked")?;
        let after = self.api.get(path)?;
        ensure!(
            after.status == 404 || stream.forks > 0 && after.status == 410,
            "deleted, but {}",
            after.status
        );
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        let server = self.server.take().context("a server")?;
        let launch = if self.random.once_in(2) { server.kill()? } else { server.stop()? };
        let server = launch.start()?;
        self.api = Api::new(server.address);
        self.server = Some(server);
        Ok(())
    }

    fn check_one(&mut self) -> Result<()> {
        match self.pick() {
            Some(path) => self.check(&path),
            None => Ok(()),
        }
    }

    /// Compares one stream, and the invariant on what the server says of it.
    fn check(&mut self, path: &str) -> Result<()> {
        let stream = self.streams.get(path).context("a stream of the model")?.clone();
        let (tail, floor) = (stream.boundaries.last().context("a tail")?, &stream.boundaries[stream.floor]);
        let head = self.api.head(path)?.expect(&[200], path)?;
        let snapshot = stream.snapshot.as_ref().map(|(at, _)| &stream.boundaries[*at]);
        has(&head, "stream-next-offset", Some(tail))?;
        has(&head, "stream-snapshot-offset", snapshot.map(String::as_str))?;
        has(&head, "stream-closed", stream.closed.then_some("true"))?;
        // Tokens sort as their places do.
        if let Some(snapshot) = snapshot {
            ensure!(floor <= snapshot && snapshot <= tail, "{floor} <= {snapshot} <= {tail}");
        } else {
            ensure!(floor == ZERO, "a floor without a snapshot");
        }
        let start = self.api.get(&format!("{path}?offset=-1"))?;
        if stream.floor > 0 {
            refused(&start, 410, "retained")?;
        } else {
            start.expect(&[200], "read from the start")?;
        }
        let content = stream.messages[stream.floor..].concat();
        let offset = if stream.floor > 0 { floor.as_str() } else { "-1" };
        ensure!(self.api.read(path, offset)? == (content, tail.clone()), "{path}: other content");
        if stream.floor > 0 {
            let below = &stream.boundaries[self.random.below(u32::try_from(stream.floor)?) as usize];
            let response = self.api.get(&format!("{path}?offset={below}"))?;
            ensure!(
                response.status == 410,
                "read from {below}, below the floor {floor}: {}",
                response.status
            );
        }
        if path.starts_with("/ds/") { self.check_bootstrap(path, &stream) } else { Ok(()) }
    }

    fn check_bootstrap(&mut self, path: &str, stream: &Stream) -> Result<()> {
        let bootstrap = self.api.bootstrap(path)?;
        let (from, body) = match &stream.snapshot {
            Some((at, body)) => (*at, body.as_slice()),
            None => (0, &b""[..]),
        };
        let expected: Vec<&[u8]> = stream.messages[from..].iter().map(Vec::as_slice).collect();
        ensure!(bootstrap.snapshot.body == body, "{path}: another snapshot");
        ensure!(bootstrap.bodies() == expected, "{path}: other messages");
        ensure!(Some(&bootstrap.next_offset) == stream.boundaries.last(), "{path}: another end");
        if stream.snapshot.is_none() {
            ensure!(bootstrap.snapshot_offset == "-1", "{path}: a snapshot offset");
            return refused(&self.api.get(&format!("{path}/snapshot"))?, 404, "snapshot_not_found");
        }
        let offset = &bootstrap.snapshot_offset;
        if *offset != stream.boundaries[from] {
            bail!("{path}: snapshot at {offset}");
        }
        let read = self.api.get(&format!("{path}/snapshot/{offset}"))?.expect(&[200], "read the snapshot")?;
        ensure!(read.body == body, "{path}: another snapshot is read");
        Ok(())
    }
}
