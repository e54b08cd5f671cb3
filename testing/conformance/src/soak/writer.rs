//! A producer: each of its messages exactly once, however often it had to be sent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::checker::Format;
use super::client::Client;
use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use crate::http::Response;
use crate::message::{frames, json_array};
use crate::random::Random;

/// The most messages of one append, and appends of one batch.
const MESSAGES_MAX: u64 = 4;
const BATCH_MAX: u64 = 5;
/// An append in this many is sent once more after it was acknowledged.
const AGAIN_ONCE_IN: u64 = 16;

/// One producer of one stream.
#[derive(Debug)]
pub(super) struct Writer {
    client: Client,
    random: Random,
    path: String,
    format: Format,
    pub(super) number: u32,
    /// The next `Producer-Seq`.
    seq: u64,
    /// Acknowledged messages.
    pub(super) messages: u64,
    /// Where the stream ended after the last append.
    pub(super) offset: String,
}

/// One request: its target, how many appends it is, and its body.
struct Request {
    target: String,
    appends: u64,
    body: Vec<u8>,
}

impl Writer {
    pub(super) fn new(world: &Arc<World>, path: &str, format: Format, random: Random) -> Self {
        let (client, number) = (Client::new(world), world.writer());
        let (path, offset) = (path.to_owned(), "-1".to_owned());
        Self { client, random, path, format, number, seq: 0, messages: 0, offset }
    }

    /// Appends a few messages.
    pub(super) fn append(&mut self) -> Result<()> {
        let count = self.random.between(1, MESSAGES_MAX);
        let body = self.body(self.messages, count);
        self.send(&Request { target: self.path.clone(), appends: 1, body }, count)
    }

    /// Appends a few messages, each as an append of its own, in one request.
    pub(super) fn append_batch(&mut self) -> Result<()> {
        let count = self.random.between(1, BATCH_MAX);
        let mut body = Vec::new();
        for index in self.messages..self.messages + count {
            let frame = self.body(index, 1);
            body.extend_from_slice(&u32::try_from(frame.len())?.to_be_bytes());
            body.extend_from_slice(&frame);
        }
        self.send(&Request { target: format!("{}/append-batch", self.path), appends: count, body }, count)
    }

    fn body(&self, first: u64, count: u64) -> Vec<u8> {
        match self.format {
            Format::Frames => frames(self.number, first, count),
            Format::Json => json_array(self.number, first, count),
        }
    }

    fn send(&mut self, request: &Request, messages: u64) -> Result<()> {
        if self.client.world.swallows(Door::Append) {
            self.messages += messages;
            return Ok(());
        }
        let is_batch = request.target.ends_with("/append-batch");
        let fresh: u16 = if is_batch { 204 } else { 200 };
        let (response, is_repeated) = self.post(request)?;
        // After a lost answer the append is there already.
        let due: &[u16] = if is_repeated { &[fresh, 204] } else { &[fresh] };
        let offset = response.expect(due, &format!("append to `{}`", self.path))?.next_offset()?;
        ensure!(offset > self.offset, "`{}` ended at {}, and then at {offset}", self.path, self.offset);
        self.offset = offset;
        if self.random.once_in(AGAIN_ONCE_IN) {
            self.post(request)?.0.expect(&[204], "an acknowledged append, sent again")?;
        }
        self.seq += request.appends;
        self.messages += messages;
        Ok(())
    }

    fn post(&mut self, request: &Request) -> Result<(Response, bool)> {
        let (id, seq) = (format!("soak-{}", self.number), self.seq.to_string());
        let headers = [
            ("content-type", self.format.content_type()),
            ("producer-id", id.as_str()),
            ("producer-epoch", "0"),
            ("producer-seq", seq.as_str()),
            ("prefer", "return=minimal"),
        ];
        let answer = self.client.ask(Operation::Append, "POST", &request.target, &headers, &request.body)?;
        Ok((answer.response, answer.is_repeated))
    }

    /// Waits about so long before the next append.
    pub(super) fn pace(&mut self, interval: Duration) {
        let percent = u32::try_from(self.random.between(50, 150)).unwrap_or(100);
        self.client.world.pause(interval * percent / 100);
    }
}
