//! Streams that are made, written by one or more producers, followed in both ways, read, forked, closed and deleted,
//! one after another; and some that stay.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::checker::{Checker, Format};
use super::client::Client;
use super::lie::Door;
use super::stats::Operation;
use super::tails;
use super::world::World;
use super::writer::Writer;
use crate::http::MOUNT;
use crate::message::{Counts, frames};
use crate::random::Random;

/// One kind of streams.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) writers: u32,
    /// Appends of each writer to one stream.
    pub(super) appends: u32,
    /// How long they take on average.
    pub(super) life: Duration,
}

/// One stream after another until the end.
pub(super) fn run(world: &Arc<World>, plan: &Plan, mut random: Random) -> Result<()> {
    let mut generation = 0;
    while !world.is_over() {
        let path = format!("{MOUNT}soak/{}/{}/{generation}", world.run, plan.name);
        one(world, plan, &path, &mut random).with_context(|| format!("`{path}`"))?;
        generation += 1;
    }
    Ok(())
}

fn one(world: &Arc<World>, plan: &Plan, path: &str, random: &mut Random) -> Result<()> {
    let mut client = Client::new(world);
    client.create(path, plan.format.content_type())?;
    let interval = plan.life * u32::try_from(random.between(50, 150))? / 100 / plan.appends.max(1);
    let (due, tails) = thread::scope(|scope| {
        let tails = [
            scope.spawn(|| world.watch(tails::long_poll(world, path, plan.format))),
            scope.spawn(|| world.watch(tails::sse(world, path, plan.format))),
        ];
        let writers: Vec<_> = (0..plan.writers)
            .map(|_| {
                let writer = Writer::new(world, path, plan.format, Random::new(random.next()));
                scope.spawn(move || world.watch(write(world, writer, plan.appends, interval)))
            })
            .collect();
        let due: Result<Counts> = writers.into_iter().map(joined).collect();
        // Whatever is wrong: it has been told, and the tails end by that.
        let due = due.and_then(|due| client.close(path, plan.format.content_type()).map(|()| due));
        let due = world.watch(due);
        let tails: Result<Vec<Checker>> = tails.into_iter().map(joined).collect();
        Ok::<_, anyhow::Error>((due?, tails?))
    })?;
    let whole = Checker::new(plan.format).take_all(&client.read(path, "-1", Door::Read)?.0)?;
    whole.finish(&due).context("read as a whole")?;
    for (tail, name) in tails.iter().zip(["long-poll", "server-sent events"]) {
        tail.finish(&due).context(name)?;
        tail.same_as(&whole).context(name)?;
    }
    fork_and_delete(&mut client, plan, path, &whole, random)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread has panicked"))?
}

fn write(world: &World, mut writer: Writer, appends: u32, interval: Duration) -> Result<(u32, u64)> {
    for _ in 0..appends {
        if world.is_over() {
            break;
        }
        writer.append()?;
        writer.pace(interval);
    }
    Ok((writer.number, writer.messages))
}

/// A fork of the closed stream begins as that, goes on by itself, and outlives it.
fn fork_and_delete(
    client: &mut Client,
    plan: &Plan,
    path: &str,
    source: &Checker,
    random: &mut Random,
) -> Result<()> {
    let fork = format!("{path}-fork");
    let content_type = ("content-type", plan.format.content_type());
    let headers = [content_type, ("stream-forked-from", path)];
    let answer = client.ask(Operation::Create, "PUT", &fork, &headers, &[])?;
    let due: &[u16] = if answer.is_repeated { &[200, 201] } else { &[201] };
    answer.response.expect(due, "fork")?;
    let world = Arc::clone(&client.world);
    let mut writer = Writer::new(&world, &fork, plan.format, Random::new(random.next()));
    writer.append()?;
    // Deleted while a fork needs it, the source is gone for everyone but the fork.
    let answer = client.ask(Operation::Delete, "DELETE", path, &[], &[])?;
    let due: &[u16] = if answer.is_repeated { &[204, 410] } else { &[204] };
    answer.response.expect(due, "delete the source")?;
    client.call(Operation::Other, ("HEAD", path), &[], &[], &[410]).context("the deleted source")?;
    let mut due = source.counts().clone();
    due.insert(writer.number, writer.messages);
    let read =
        Checker::new(plan.format).take_all(&client.read(&fork, "-1", Door::Fork)?.0).context("fork")?;
    read.finish(&due).context("fork")?;
    client.delete(&fork)?;
    client.call(Operation::Other, ("HEAD", path), &[], &[], &[404]).context("source of a deleted fork")?;
    client.world.note_deleted(path);
    Ok(())
}

/// Streams that are written once and stay: how many, and how long each is.
const KEPT: u32 = 12;
const KEPT_MESSAGES: u64 = 300;
/// How often all of them are read.
const KEPT_READ_EVERY: Duration = Duration::from_secs(15);

/// Writes the streams that stay, and reads them to the last byte again and again, and once more at the end.
pub(super) fn keep(world: &Arc<World>) -> Result<()> {
    let mut client = Client::new(world);
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let number = world.writer();
        let path = format!("{MOUNT}soak/{}/kept/{number}", world.run);
        client.create(&path, super::client::BYTES)?;
        let body = frames(number, 0, KEPT_MESSAGES);
        let headers =
            [("content-type", super::client::BYTES), ("stream-closed", "true"), ("stream-seq", "0")];
        let answer = client.ask(Operation::Append, "POST", &path, &headers, &body)?;
        // Repeated after it was done, it finds a closed stream.
        let due: &[u16] = if answer.is_repeated { &[200, 204, 409] } else { &[200, 204] };
        answer.response.expect(due, &format!("write `{path}`"))?;
        kept.push((path, body));
    }
    loop {
        let is_last = world.is_over();
        let began = Instant::now();
        for (path, body) in &kept {
            world.go_on()?;
            let found = client.read(path, "-1", Door::Kept)?.0.concat();
            ensure!(found == *body, "`{path}` has changed: {}", difference(&found, body));
        }
        if is_last {
            return kept.iter().try_for_each(|(path, _)| client.delete(path));
        }
        world.pause(KEPT_READ_EVERY.saturating_sub(began.elapsed()));
    }
}

fn difference(found: &[u8], due: &[u8]) -> String {
    let at = found.iter().zip(due).position(|(found, due)| found != due);
    match at {
        Some(at) => format!("byte {at} is {:02x} where {:02x} is due", found[at], due[at]),
        None => format!("{} bytes where {} are due", found.len(), due.len()),
    }
}
