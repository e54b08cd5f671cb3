//! Connections that append, in every way the protocol knows to say who is writing.

use std::fmt;
use std::io;

use anyhow::{Context, Result, ensure};

use crate::http::{Connection, Response, read_all};
use crate::message::{Counts, count_frames, count_json, frames, json_array};
use crate::random::Random;

/// The most messages of one append.
const MESSAGES_PER_APPEND_MAX: u64 = 4;
/// Streams that all writers of [`Kind::SharedStream`] write to.
pub(crate) const SHARED_STREAMS: u32 = 2;

/// How a writer says who it is, and where it writes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// No identity: after a crash it reads the stream to learn what became of its last append.
    Plain,
    /// `Stream-Seq`: as plain, and a repeated sequence must be refused with 409.
    StreamSeq,
    /// An idempotent producer with a stream of its own: it repeats its last append and goes on.
    Producer,
    /// An idempotent producer on a stream that others write to as well.
    SharedStream,
    /// An idempotent producer of JSON arrays: an array is there whole or not at all.
    Json,
}

/// What the server said to an append.
#[derive(Debug)]
pub(crate) enum Answer {
    Acknowledged,
    Refused(Response),
}

/// One writer and everything that was acknowledged to it.
#[derive(Debug)]
pub(crate) struct Writer {
    id: u32,
    kind: Kind,
    random: Random,
    /// Acknowledged appends; also the next `Producer-Seq` and `Stream-Seq`.
    appends: u64,
    /// Acknowledged messages.
    messages: u64,
    /// Messages of the last acknowledged append, which starts at `messages - last`.
    last: u64,
    /// Messages of the append that was not answered.
    in_flight: Option<u64>,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer {} ({:?}) on `{}`", self.id, self.kind, self.path())
    }
}

impl Writer {
    pub(crate) fn new(id: u32, kind: Kind, random: Random) -> Self {
        Self { id, kind, random, appends: 0, messages: 0, last: 0, in_flight: None }
    }

    fn path(&self) -> String {
        match self.kind {
            Kind::SharedStream => shared_path(self.id),
            _ => format!("crash/writer-{}", self.id),
        }
    }

    fn content_type(&self) -> &'static str {
        if self.kind == Kind::Json { "application/json" } else { "application/octet-stream" }
    }

    fn is_producer(&self) -> bool {
        matches!(self.kind, Kind::Producer | Kind::SharedStream | Kind::Json)
    }

    /// Creates the writer's stream; a shared one is there already for all but its first writer.
    pub(crate) fn create(&self, connection: &mut Connection) -> Result<()> {
        connection
            .send("PUT", &self.path(), &[("content-type", self.content_type())], &[])?
            .expect(&[200, 201], "create")?;
        Ok(())
    }

    /// Sends the next append. Without a good answer it stays in flight: it may or may not have been applied.
    pub(crate) fn append_next(&mut self, connection: &mut Connection) -> io::Result<Answer> {
        let count = self.in_flight.unwrap_or_else(|| self.random.between(1, MESSAGES_PER_APPEND_MAX));
        self.in_flight = Some(count);
        let response = self.append(connection, self.appends, self.messages, count)?;
        if response.status != self.fresh_status() {
            return Ok(Answer::Refused(response));
        }
        self.settle(count);
        Ok(Answer::Acknowledged)
    }

    /// Compares the stream with what was acknowledged, then settles what was in flight.
    pub(crate) fn verify(&mut self, connection: &mut Connection) -> Result<()> {
        let found = self.count(connection)?;
        let applied = self.judge(found)?;
        if self.is_producer() {
            self.repeat_last(connection)?;
            if let Some(count) = self.in_flight {
                let status = self.append(connection, self.appends, self.messages, count)?.status;
                let due = if applied { 204 } else { self.fresh_status() };
                ensure!(status == due, "the append in flight, repeated, got {status} where {due} was due");
                self.settle(count);
            }
        } else if let (Some(count), true) = (self.in_flight, applied) {
            self.settle(count);
        }
        self.in_flight = None;
        if self.kind == Kind::StreamSeq && self.appends > 0 {
            let status = self.append(connection, self.appends - 1, self.messages, 1)?.status;
            ensure!(status == 409, "a repeated Stream-Seq got status {status}");
        }
        let found = self.count(connection)?;
        ensure!(found == self.messages, "{found} messages where {} are due after repeating", self.messages);
        Ok(())
    }

    /// The stream must hold what was acknowledged, with or without the append in flight; changes nothing.
    pub(crate) fn check_content(&self, connection: &mut Connection) -> Result<()> {
        let found = self.count(connection)?;
        self.judge(found).map(|_| ()).with_context(|| self.to_string())
    }

    /// Whether the append in flight was applied; an error if the stream holds neither of the two allowed contents.
    fn judge(&self, found: u64) -> Result<bool> {
        let in_flight = self.in_flight.unwrap_or(0);
        ensure!(found >= self.messages, "lost: {found} messages where {} were acknowledged", self.messages);
        ensure!(
            found == self.messages || found == self.messages + in_flight,
            "torn: {found} messages where {} were acknowledged and {in_flight} in flight",
            self.messages
        );
        Ok(found > self.messages)
    }

    /// An acknowledged append, sent again, must be recognised and change nothing.
    fn repeat_last(&self, connection: &mut Connection) -> Result<()> {
        if self.appends == 0 {
            return Ok(());
        }
        // While the next append is known to be applied, this one is older than the highest; still a duplicate.
        let status = self.append(connection, self.appends - 1, self.messages - self.last, self.last)?.status;
        ensure!(status == 204, "an acknowledged append, repeated, got status {status}");
        Ok(())
    }

    fn append(&self, connection: &mut Connection, seq: u64, first: u64, count: u64) -> io::Result<Response> {
        let body = if self.kind == Kind::Json {
            json_array(self.id, first, count)
        } else {
            frames(self.id, first, count)
        };
        let (seq_text, id) = (seq.to_string(), format!("producer-{}", self.id));
        let stream_seq = format!("{seq:016}");
        let mut headers = vec![("content-type", self.content_type())];
        if self.is_producer() {
            headers.extend([
                ("producer-id", id.as_str()),
                ("producer-epoch", "0"),
                ("producer-seq", &seq_text),
            ]);
        } else if self.kind == Kind::StreamSeq {
            headers.push(("stream-seq", &stream_seq));
        }
        connection.send("POST", &self.path(), &headers, &body)
    }

    /// The status of an append that is not a repetition.
    fn fresh_status(&self) -> u16 {
        if self.is_producer() { 200 } else { 204 }
    }

    fn settle(&mut self, count: u64) {
        self.appends += 1;
        self.messages += count;
        self.last = count;
        self.in_flight = None;
    }

    fn count(&self, connection: &mut Connection) -> Result<u64> {
        let bodies = read_all(connection, &self.path())?;
        let counts: Counts = if self.kind == Kind::Json {
            count_json(&bodies)?
        } else {
            count_frames(&bodies.concat()).context("read back")?
        };
        Ok(counts.get(&self.id).copied().unwrap_or(0))
    }
}

/// The shared stream that a writer or reader with this number uses.
pub(crate) fn shared_path(id: u32) -> String {
    format!("crash/shared-{}", id % SHARED_STREAMS)
}
