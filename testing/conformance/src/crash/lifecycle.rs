//! Connections that create, close, fork and delete streams: whatever was acknowledged must still be so.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use anyhow::{Context, Result, bail, ensure};

use super::acknowledge;
use crate::http::{Connection, MOUNT, Response, read_all};
use crate::message::{count_frames, frames};
use crate::random::Random;

/// Streams checked after a crash, besides the one in flight: the newest of each writer.
const CHECKED_STREAMS_MAX: usize = 1_500;

/// What a stream must look like.
#[derive(Clone, Debug, Eq, PartialEq)]
struct State {
    /// Messages it holds, its source's included.
    messages: u64,
    closed: bool,
    presence: Presence,
    /// Forks of it that exist; while there are any, deleting it only hides it (PROTOCOL §5.4).
    forks: u32,
    source: Option<u32>,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Presence {
    Absent,
    Present,
    /// Deleted while forks of it exist: 410.
    SoftDeleted,
}

/// A change of one stream.
#[derive(Copy, Clone, Debug)]
enum Change {
    Create { messages: u64, closed: bool },
    Fork { source: u32 },
    Close { messages: u64 },
    Delete,
}

/// One client and the streams it has made.
#[derive(Debug)]
pub(super) struct Lifecycle {
    id: u32,
    random: Random,
    streams: BTreeMap<u32, State>,
    next_stream: u32,
    in_flight: Option<(u32, Change)>,
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lifecycle {} with {} streams, in flight {:?}", self.id, self.streams.len(), self.in_flight)
    }
}

impl Lifecycle {
    pub(super) fn new(id: u32, random: Random) -> Self {
        Self { id, random, streams: BTreeMap::new(), next_stream: 0, in_flight: None }
    }

    fn path(&self, stream: u32) -> String {
        format!("crash/life-{}/{stream}", self.id)
    }

    /// Changes streams until the connection breaks.
    pub(super) fn work(&mut self, address: SocketAddr, acknowledged: &Sender<()>) -> Result<()> {
        let Ok(mut connection) = Connection::open(address) else { return Ok(()) };
        loop {
            let (stream, change) = self.draw();
            self.in_flight = Some((stream, change));
            let Ok(response) = self.send(&mut connection, stream, change) else { return Ok(()) };
            response.expect(&[200, 201, 204], &format!("{change:?} of `{}`", self.path(stream)))?;
            self.apply(stream, change);
            acknowledge(acknowledged);
        }
    }

    /// A change that is allowed in the present state.
    fn draw(&mut self) -> (u32, Change) {
        let fresh = self.next_stream;
        let Some((&stream, state)) = self.streams.range(self.random.below(fresh + 1)..).next() else {
            let change =
                Change::Create { messages: self.random.between(0, 3), closed: self.random.once_in(8) };
            return (fresh, change);
        };
        let (present, closed) = (state.presence == Presence::Present, state.closed);
        match self.random.between(0, 5) {
            0 if present => (fresh, Change::Fork { source: stream }),
            1 if present && !closed => (stream, Change::Close { messages: self.random.between(0, 2) }),
            2 if present => (stream, Change::Delete),
            _ => (
                fresh,
                Change::Create { messages: self.random.between(0, 3), closed: self.random.once_in(8) },
            ),
        }
    }

    fn send(&self, connection: &mut Connection, stream: u32, change: Change) -> io::Result<Response> {
        let path = self.path(stream);
        let octets = ("content-type", "application/octet-stream");
        let closes = ("stream-closed", "true");
        match change {
            Change::Create { messages, closed } => {
                let headers = if closed { vec![octets, closes] } else { vec![octets] };
                connection.send("PUT", &path, &headers, &frames(stream, 0, messages))
            }
            Change::Fork { source } => {
                let from = format!("{MOUNT}{}", self.path(source));
                connection.send("PUT", &path, &[octets, ("stream-forked-from", &from)], &[])
            }
            Change::Close { messages } => {
                let (writer, first) = self.writer_of(stream);
                connection.send("POST", &path, &[octets, closes], &frames(writer, first, messages))
            }
            Change::Delete => connection.send("DELETE", &path, &[], &[]),
        }
    }

    /// Messages of a fork go on where its source's end, under the number of the stream at the chain's root.
    fn writer_of(&self, stream: u32) -> (u32, u64) {
        let mut root = stream;
        while let Some(source) = self.streams.get(&root).and_then(|state| state.source) {
            root = source;
        }
        (root, self.streams.get(&stream).map_or(0, |state| state.messages))
    }

    fn apply(&mut self, stream: u32, change: Change) {
        self.in_flight = None;
        match change {
            Change::Create { messages, closed } => {
                let state = State { messages, closed, presence: Presence::Present, forks: 0, source: None };
                self.insert(stream, state);
            }
            Change::Fork { source } => {
                let Some(origin) = self.streams.get_mut(&source) else { return };
                origin.forks += 1;
                let state = State { closed: false, forks: 0, source: Some(source), ..origin.clone() };
                self.insert(stream, state);
            }
            Change::Close { messages } => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.messages += messages;
                    state.closed = true;
                }
            }
            Change::Delete => self.delete(stream),
        }
    }

    fn insert(&mut self, stream: u32, state: State) {
        self.streams.insert(stream, state);
        self.next_stream = self.next_stream.max(stream + 1);
    }

    /// A stream goes for good once nothing is forked from it, and lets go of its own source (PROTOCOL §4.2).
    fn delete(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if state.forks > 0 {
            state.presence = Presence::SoftDeleted;
            return;
        }
        state.presence = Presence::Absent;
        let Some(source) = state.source else { return };
        let Some(origin) = self.streams.get_mut(&source) else { return };
        origin.forks -= 1;
        if origin.forks == 0 && origin.presence == Presence::SoftDeleted {
            self.delete(source);
        }
    }

    /// Compares every recent stream with what was acknowledged; the change in flight may have happened or not.
    pub(super) fn verify(&mut self, connection: &mut Connection) -> Result<()> {
        if let Some((stream, change)) = self.in_flight.take() {
            let before = self.observe(connection, stream)?;
            if !self.agrees(stream, before) {
                self.apply(stream, change);
            }
        }
        let recent: Vec<u32> = self.streams.keys().rev().take(CHECKED_STREAMS_MAX).copied().collect();
        for stream in recent {
            let observed = self.observe(connection, stream)?;
            let due = self.streams.get(&stream);
            ensure!(
                self.agrees(stream, observed),
                "`{}` is {observed:?} where {due:?} was acknowledged",
                self.path(stream)
            );
        }
        Ok(())
    }

    fn agrees(&self, stream: u32, observed: Observed) -> bool {
        match self.streams.get(&stream) {
            None => observed.presence == Presence::Absent,
            Some(state) if state.presence != Presence::Present => observed.presence == state.presence,
            Some(state) => {
                observed
                    == Observed {
                        presence: Presence::Present,
                        closed: state.closed,
                        messages: state.messages,
                    }
            }
        }
    }

    fn observe(&self, connection: &mut Connection, stream: u32) -> Result<Observed> {
        let path = self.path(stream);
        let response = connection.send("HEAD", &path, &[], &[])?;
        let presence = match response.status {
            200 => Presence::Present,
            404 => return Ok(Observed { presence: Presence::Absent, closed: false, messages: 0 }),
            410 => return Ok(Observed { presence: Presence::SoftDeleted, closed: false, messages: 0 }),
            other => bail!("HEAD of `{path}` got status {other}"),
        };
        let closed = response.header("stream-closed") == Some("true");
        let content = read_all(connection, &path)?.concat();
        let counts = count_frames(&content).with_context(|| format!("content of `{path}`"))?;
        ensure!(counts.len() <= 1, "`{path}` holds messages of {} streams", counts.len());
        Ok(Observed { presence, closed, messages: counts.values().sum() })
    }
}

/// What the server says about a stream.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
struct Observed {
    presence: Presence,
    closed: bool,
    messages: u64,
}
