//! Live readers, which go on where they were after each restart and end with their stream.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::checker::{Checker, Format};
use super::client::Client;
use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use crate::buckets::events::{Events, Subscription};

/// The longest time without getting a connection.
const OUTAGE_MAX: Duration = Duration::from_mins(2);
const AGAIN: Duration = Duration::from_millis(25);

/// Long-polls until the stream is closed.
pub(super) fn long_poll(world: &Arc<World>, path: &str, format: Format) -> Result<Checker> {
    let (mut client, mut checker) = (Client::new(world), Checker::new(format));
    let mut offset = "-1".to_owned();
    loop {
        let target = format!("{path}?offset={offset}&live=long-poll");
        let mut response =
            client.call(Operation::Tail, ("GET", &target), &[], &[], &[200, 204]).context("long-poll")?;
        world.hear(Door::LongPoll, &mut response.body);
        checker.take(&response.body).with_context(|| format!("long-poll of `{path}` at {offset}"))?;
        offset = response.next_offset()?;
        let is_all = response.header("stream-up-to-date") == Some("true");
        if is_all && response.header("stream-closed") == Some("true") {
            return Ok(checker);
        }
    }
}

/// Follows server-sent events until the stream is closed.
pub(super) fn sse(world: &Arc<World>, path: &str, format: Format) -> Result<Checker> {
    let mut checker = Checker::new(format);
    let mut offset = "-1".to_owned();
    let mut deadline = Instant::now() + OUTAGE_MAX;
    loop {
        world.go_on()?;
        let target = format!("{path}?offset={offset}&live=sse");
        let strikes = world.strikes();
        match Events::subscribe(world.address, &target) {
            Ok(Subscription::Open(events)) => {
                deadline = Instant::now() + OUTAGE_MAX;
                let begun_at = offset.clone();
                if follow(world, events, strikes, &mut checker, &mut offset)
                    .with_context(|| format!("events of `{path}` from {begun_at} on"))?
                {
                    return Ok(checker);
                }
            }
            Ok(Subscription::Refused(response)) if response.status == 503 => {}
            Ok(Subscription::Refused(response)) => bail!("events of `{path}`: status {}", response.status),
            Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {}
            Err(error) => return Err(error),
        }
        ensure!(Instant::now() < deadline, "events of `{path}`: no connection for two minutes");
        thread::sleep(AGAIN);
    }
}

/// Takes events until the response ends or breaks; whether the stream has ended too.
///
/// What came counts with the control event behind it: a reader whose connection breaks before asks for it again.
fn follow(
    world: &World,
    mut events: Events,
    strikes: u64,
    checker: &mut Checker,
    offset: &mut String,
) -> Result<bool> {
    let mut ahead = checker.clone();
    loop {
        let (name, data) = match events.next() {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            // A restart may cut a response anywhere; nothing else may.
            Err(_) if strikes % 2 == 1 || strikes != world.strikes() => return Ok(false),
            Err(error) => return Err(error).context("cut by nothing"),
        };
        match name.as_str() {
            "data" => {
                let mut body = match checker.format() {
                    Format::Frames => STANDARD.decode(data.replace('\n', "")).context("base64")?,
                    Format::Json => data.into_bytes(),
                };
                world.hear(Door::Sse, &mut body);
                world.record(Operation::Tail, Instant::now(), 1, body.len());
                ahead.take(&body)?;
            }
            "control" => {
                let control: Value = serde_json::from_str(&data).context("a control event")?;
                control["streamNextOffset"].as_str().context("no streamNextOffset")?.clone_into(offset);
                *checker = ahead.clone();
                if control["streamClosed"] == true {
                    return Ok(true);
                }
            }
            other => bail!("an event is called `{other}`"),
        }
    }
}
