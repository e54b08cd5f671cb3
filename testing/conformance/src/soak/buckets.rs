//! Buckets with a stream whose history goes: batches, snapshots, bootstrap, and a reader that falls behind the floor.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::checker::Format;
use super::client::{BYTES, Client};
use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use super::writer::Writer;
use crate::buckets::multipart::Bootstrap;
use crate::message::{Counts, go_on_with_frames, go_on_with_json};
use crate::random::Random;

/// Appends to one stream, and after how many of them comes a snapshot.
const APPENDS: u32 = 240;
const SNAPSHOT_EVERY: u32 = 20;
/// The longest snapshot: some are committed like appends, longer ones have a table of their own.
const SNAPSHOT_BYTES_MAX: u64 = 1024 * 1024;
/// One request in this many is a batch of appends.
const BATCH_ONCE_IN: u64 = 4;
/// A read of what has gone, or a bootstrap, after one append in this many.
const LOOK_ONCE_IN: u64 = 10;

/// A snapshot of the first `messages` messages of a writer: all of it follows from these and a seed.
fn snapshot(writer: u32, messages: u64) -> Vec<u8> {
    let mut random = Random::new((u64::from(writer) << 32) ^ messages ^ 0x5a5a);
    let length = random.between(1_000, SNAPSHOT_BYTES_MAX);
    let mut body = format!("{writer} {messages}\n").into_bytes();
    while (body.len() as u64) < length {
        body.extend_from_slice(&random.next().to_le_bytes());
    }
    body
}

/// The messages that a snapshot stands for, if it is to the last byte the one that was published.
fn stands_for(body: &[u8], writer: u32) -> Result<u64> {
    let end = body.iter().position(|byte| *byte == b'\n').context("no first line in a snapshot")?;
    let line = std::str::from_utf8(&body[..end]).context("the first line of a snapshot")?;
    let (number, messages) = line.split_once(' ').context("no number of messages")?;
    let messages: u64 = messages.parse().context("a number of messages")?;
    ensure!(number == writer.to_string(), "a snapshot of writer {number} where {writer}'s is due");
    ensure!(
        body == snapshot(writer, messages),
        "a snapshot of {messages} messages is not what was published"
    );
    Ok(messages)
}

/// One bucket after another until the end.
pub(super) fn run(world: &Arc<World>, format: Format, life: Duration, mut random: Random) -> Result<()> {
    let mut generation = 0;
    while !world.is_over() {
        let kind = if format == Format::Json { "json" } else { "bytes" };
        let bucket = format!("/ds/soak-{}-{kind}-{generation}", world.run);
        one(world, &bucket, format, life, &mut random).with_context(|| format!("`{bucket}`"))?;
        generation += 1;
    }
    Ok(())
}

fn one(world: &Arc<World>, bucket: &str, format: Format, life: Duration, random: &mut Random) -> Result<()> {
    let mut client = Client::new(world);
    let answer = client.ask(Operation::Create, "PUT", bucket, &[], &[])?;
    let due: &[u16] = if answer.is_repeated { &[201, 409] } else { &[201] };
    answer.response.expect(due, "create a bucket")?;
    let path = format!("{bucket}/document");
    client.create(&path, format.content_type())?;
    let writer = Writer::new(world, &path, format, Random::new(random.next()));
    let number = writer.number;
    let mut author = Author { client: Client::new(world), writer, path: &path, floor: 0, format };
    let (mut draws, interval) = (Random::new(random.next()), life / APPENDS);
    let (messages, read) = thread::scope(|scope| {
        let reader = scope.spawn(|| world.watch(read(world, &path, format, number)));
        let messages = world.watch(author.work(&mut draws, interval));
        let read = reader.join().map_err(|_| anyhow!("a reader has panicked"))?;
        Ok::<_, anyhow::Error>((messages?, read?))
    })?;
    ensure!(read == messages, "a reader came to {read} messages where {messages} were acknowledged");
    author.bootstrap(Door::Bootstrap)?;
    client.delete(&path)?;
    client.delete(bucket)
}

/// Who writes a stream and folds it.
struct Author<'a> {
    client: Client,
    writer: Writer,
    path: &'a str,
    /// Messages that the latest snapshot stands for.
    floor: u64,
    format: Format,
}

impl Author<'_> {
    /// Appends and publishes, and closes the stream; returns how many messages there were.
    fn work(&mut self, random: &mut Random, interval: Duration) -> Result<u64> {
        for number in 1..=APPENDS {
            if self.client.world.is_over() {
                break;
            }
            if random.once_in(BATCH_ONCE_IN) {
                self.writer.append_batch()?;
            } else {
                self.writer.append()?;
            }
            if number % SNAPSHOT_EVERY == 0 {
                self.publish()?;
            }
            if random.once_in(LOOK_ONCE_IN) {
                self.bootstrap(Door::Snapshot)?;
            }
            self.writer.pace(interval);
        }
        self.client.close(self.path, self.format.content_type())?;
        Ok(self.writer.messages)
    }

    fn publish(&mut self) -> Result<()> {
        let messages = self.writer.messages;
        let body = snapshot(self.writer.number, messages);
        let target = format!("{}/snapshot/{}", self.path, self.writer.offset);
        let headers = [("content-type", BYTES)];
        self.client.call(Operation::Snapshot, ("PUT", &target), &headers, &body, &[204])?;
        self.floor = messages;
        let gone = format!("{}?offset=-1", self.path);
        let gone = self.client.call(Operation::Read, ("GET", &gone), &[], &[], &[410])?;
        ensure!(gone.code() == "retained", "what a snapshot stands for is refused as `{}`", gone.code());
        Ok(())
    }

    /// The latest snapshot and all messages after it, as the only writer knows them.
    fn bootstrap(&mut self, door: Door) -> Result<()> {
        let found = bootstrap(&mut self.client, self.path, door)?;
        let (writer, messages) = (self.writer.number, self.writer.messages);
        let mut counts = begin(&found, writer)?;
        let floor = counts[&writer];
        ensure!(floor == self.floor, "the snapshot of {floor} messages where {} is the latest", self.floor);
        follow_on(&mut counts, &found, self.format)?;
        ensure!(found.up_to_date, "a short bootstrap ended early");
        ensure!(
            counts == Counts::from([(writer, messages)]),
            "a bootstrap to {counts:?} where {messages} are due"
        );
        Ok(())
    }
}

/// A bootstrap as it is told at a door: its messages at that of bootstraps, its snapshot at the other one.
fn bootstrap(client: &mut Client, path: &str, door: Door) -> Result<Bootstrap> {
    let target = format!("{path}/bootstrap");
    let response = client.call(Operation::Bootstrap, ("GET", &target), &[], &[], &[200])?;
    let mut found = Bootstrap::parse(&response)?;
    if door == Door::Snapshot {
        client.world.hear(door, &mut found.snapshot.body);
    } else if let Some(first) = found.messages.first_mut() {
        client.world.hear(door, &mut first.body);
        if first.body.is_empty() {
            found.messages.remove(0);
        }
    }
    Ok(found)
}

fn begin(found: &Bootstrap, writer: u32) -> Result<Counts> {
    let is_there = found.snapshot_offset != "-1";
    let messages = if is_there { stands_for(&found.snapshot.body, writer)? } else { 0 };
    Ok(Counts::from([(writer, messages)]))
}

fn follow_on(counts: &mut Counts, found: &Bootstrap, format: Format) -> Result<()> {
    for message in found.bodies() {
        match format {
            Format::Frames => go_on_with_frames(counts, message)?,
            Format::Json => go_on_with_json(counts, &[b"[", message, b"]"].concat())?,
        }
    }
    Ok(())
}

/// A reader as the documentation has it: bootstrap, then long-polls, and bootstrap again when it has fallen behind.
/// Returns how many messages it has come to when the stream is closed.
fn read(world: &Arc<World>, path: &str, format: Format, writer: u32) -> Result<u64> {
    let mut client = Client::new(world);
    let mut reached = 0;
    'behind: loop {
        let found = bootstrap(&mut client, path, Door::Bootstrap)?;
        let mut counts = begin(&found, writer)?;
        follow_on(&mut counts, &found, format)?;
        ensure!(counts[&writer] >= reached, "a bootstrap to {} messages after {reached}", counts[&writer]);
        let mut offset = found.next_offset;
        loop {
            let target = format!("{path}?offset={offset}&live=long-poll");
            let answer = client.ask(Operation::Tail, "GET", &target, &[], &[])?.response;
            match answer.status {
                200 | 204 => {}
                410 => continue 'behind,
                status => bail!("long-poll of `{path}`: status {status}"),
            }
            if !answer.body.is_empty() {
                match format {
                    Format::Frames => go_on_with_frames(&mut counts, &answer.body)?,
                    Format::Json => go_on_with_json(&mut counts, &answer.body)?,
                }
            }
            reached = counts[&writer];
            offset = answer.next_offset()?;
            let is_all = answer.header("stream-up-to-date") == Some("true");
            if is_all && answer.header("stream-closed") == Some("true") {
                ensure!(counts.len() == 1, "messages of other writers");
                return Ok(reached);
            }
            // Slow enough to be overtaken by a snapshot now and then.
            world.pause(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_known_to_the_last_byte() {
        let body = snapshot(3, 40);
        assert_eq!(stands_for(&body, 3).unwrap(), 40);
        assert!(stands_for(&body, 4).is_err(), "another writer's");
        assert!(stands_for(&body[..body.len() - 1], 3).is_err(), "cut");
        for at in [0, 2, 5, body.len() / 2, body.len() - 1] {
            let mut altered = body.clone();
            altered[at] ^= 1;
            assert!(stands_for(&altered, 3).is_err(), "byte {at}");
        }
    }
}
