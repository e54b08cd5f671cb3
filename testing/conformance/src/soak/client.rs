//! A client that goes on over restarts: it asks again until there is an answer.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use crate::http::{Connection, Response};

/// The longest time without an answer: longer than a graceful stop, a recovery and some waiting.
const OUTAGE_MAX: Duration = Duration::from_mins(2);
/// How long a client waits before it asks again.
const AGAIN: Duration = Duration::from_millis(25);

pub(super) const BYTES: &str = "application/octet-stream";
pub(super) const JSON: &str = "application/json";

/// One kept-alive connection, made anew whenever it has broken.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) world: Arc<World>,
    connection: Option<Connection>,
}

/// An answer, and whether the question had to be asked more than once, so that it may have been answered before.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) is_repeated: bool,
}

impl Client {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), connection: None }
    }

    /// Asks until there is an answer that is no refusal for the moment (`503`).
    pub(super) fn ask(
        &mut self,
        operation: Operation,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        let deadline = Instant::now() + OUTAGE_MAX;
        let mut is_repeated = false;
        loop {
            self.world.go_on()?;
            let (strikes, began) = (self.world.strikes(), Instant::now());
            let failure = match self.once(method, target, headers, body) {
                Ok(response) if response.status == 503 => format!("503 {}", response.code()),
                Ok(response) => {
                    // A live reader waits as long as there is nothing: its time says nothing.
                    let strikes = if operation == Operation::Tail { 1 } else { strikes };
                    self.world.record(operation, began, strikes, body.len() + response.body.len());
                    return Ok(Answer { response, is_repeated });
                }
                Err(error) => error.to_string(),
            };
            is_repeated = true;
            ensure!(Instant::now() < deadline, "{method} {target}: no answer for two minutes: {failure}");
            thread::sleep(AGAIN);
        }
    }

    fn once(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.world.address)?,
        };
        let response = connection.call(method, target, headers, body)?;
        if response.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    /// As [`ask`](Self::ask), where one of these statuses is due.
    pub(super) fn call(
        &mut self,
        operation: Operation,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
        due: &[u16],
    ) -> Result<Response> {
        let answer = self.ask(operation, method, target, headers, body)?;
        answer.response.expect(due, &format!("{method} {target}"))
    }

    /// Makes a stream; made already by a request whose answer was lost is as good.
    pub(super) fn create(&mut self, path: &str, content_type: &str) -> Result<()> {
        let headers = [("content-type", content_type)];
        let answer = self.ask(Operation::Create, "PUT", path, &headers, &[])?;
        let due: &[u16] = if answer.is_repeated { &[200, 201] } else { &[201] };
        answer.response.expect(due, &format!("create `{path}`"))?;
        Ok(())
    }

    /// Closes a stream, which may be closed already.
    pub(super) fn close(&mut self, path: &str, content_type: &str) -> Result<()> {
        let headers = [("content-type", content_type), ("stream-closed", "true")];
        self.call(Operation::Other, ("POST", path), &headers, &[], &[200, 204])?;
        Ok(())
    }

    /// Deletes a stream or a bucket and looks whether it is gone.
    pub(super) fn delete(&mut self, path: &str) -> Result<()> {
        if !self.world.swallows(Door::Delete) {
            let answer = self.ask(Operation::Delete, "DELETE", path, &[], &[])?;
            let due: &[u16] = if answer.is_repeated { &[204, 404] } else { &[204] };
            answer.response.expect(due, &format!("delete `{path}`"))?;
        }
        self.call(Operation::Other, ("HEAD", path), &[], &[], &[404])
            .with_context(|| format!("`{path}` was deleted"))?;
        self.world.note_deleted(path);
        Ok(())
    }

    /// Everything from an offset to the tail, one body per response, and the tail.
    pub(super) fn read(&mut self, path: &str, from: &str, door: Door) -> Result<(Vec<Vec<u8>>, String)> {
        let (mut bodies, mut offset) = (Vec::new(), from.to_owned());
        loop {
            let target = format!("{path}?offset={offset}");
            let mut response = self.call(Operation::Read, ("GET", &target), &[], &[], &[200])?;
            self.world.hear(door, &mut response.body);
            let next = response.next_offset()?;
            let is_all = response.header("stream-up-to-date") == Some("true");
            bodies.push(response.body);
            if is_all {
                return Ok((bodies, next));
            }
            ensure!(
                next != offset,
                "`{path}` is not at its tail, but its offset does not move from {offset}"
            );
            offset = next;
        }
    }
}
