//! `GET …/bootstrap`: the latest snapshot and every message after it, in one response (extensions §3).
//!
//! The cut is made before the first byte is sent and stays as it is, whatever is appended or published meanwhile. The
//! response holds one piece of it at a time.

use std::sync::Arc;

use alluvium_engine::{
    BOOTSTRAP_WINDOW_BYTES, Bootstrap, BootstrapBody, BootstrapLimits, BootstrapMessage, Engine, LookupError,
    ReadError, ReadFault, ReadPlan,
};
use alluvium_http::{Body, BodyError, Feed, HeldResponse, Peer, Response, ResponseBudget};
use alluvium_protocol::{ContentType, Offset, StreamPath, header::QUERY_LIVE};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Request,
    body::{Read, ended, on_blocking_thread, read_next_for_socket},
    error::Failure,
    headers::{
        NO_STORE, STREAM_CLOSED, STREAM_SNAPSHOT_OFFSET, TRUE, respond, set_earliest, set_incarnation,
        set_next_offset, set_offset, set_up_to_date,
    },
    multipart::Multipart,
    query,
};
use crate::{
    limits::JOINED_BYTES_MAX,
    state::{BootstrapTurns, State},
};

/// What a store without them is said not to support.
pub(super) const BOOTSTRAPS: &str = "bootstraps";

/// `Stream-Snapshot-Offset` without a snapshot.
const NO_SNAPSHOT: HeaderValue = HeaderValue::from_static("-1");

/// Parts are gathered until they come to so many bytes.
const GATHERED_BYTES: usize = 64 * 1024;
/// The same once responses hold as much as they should.
const SCARCE_GATHERED_BYTES: usize = 16 * 1024;
/// What is held of messages then.
const SCARCE_WINDOW_BYTES: usize = 32 * 1024;

/// Answers with everything a client needs to begin. A tail that is very long is for ordinary reads to go on with.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    if let [Some(_)] = query::parameters(request.uri().query(), [QUERY_LIVE])? {
        return Err(Failure::LiveBootstrap);
    }
    let engine = streams.backend.engine(BOOTSTRAPS)?;
    let multipart = Multipart::new(streams.random_u128());
    let is_head = *request.method() == Method::HEAD;
    let limits = BootstrapLimits {
        bytes_max: streams.options.bootstrap_bytes_max,
        message_bytes: multipart.part_bytes(&engine.head(path)?.content_type),
    };
    let bootstrap = cut(streams, engine, path, limits, is_head).await?;
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, multipart.content_type());
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    set_next_offset(headers, bootstrap.end);
    set_incarnation(headers, bootstrap.head.incarnation);
    set_up_to_date(headers, bootstrap.at_tail);
    match &bootstrap.snapshot {
        Some(snapshot) => set_offset(headers, &STREAM_SNAPSHOT_OFFSET, snapshot.head.offset),
        None => drop(headers.insert(&STREAM_SNAPSHOT_OFFSET, NO_SNAPSHOT)),
    }
    set_earliest(headers, bootstrap.head.floor);
    if bootstrap.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
    *response.body_mut() = if is_head {
        // The length of a bootstrap is not known before it is sent.
        Body::live(async |_| Ok(()))
    } else {
        let parts = Parts::begin(streams, bootstrap, multipart, Peer::takes_mapped(request)).await?;
        Body::live(|feed| parts.send(feed))
    };
    Ok(response)
}

/// Cuts the stream, where blocking is allowed: to find where a long cut ends, a stored unit may have to be read. Only
/// a few of them are at a time.
async fn cut(
    streams: &State,
    engine: &Engine,
    path: &StreamPath,
    limits: BootstrapLimits,
    is_head: bool,
) -> Result<Bootstrap, Failure> {
    let turn = Arc::clone(&streams.bootstrap_turns.loads).acquire_owned().await.ok();
    let (engine, path) = (engine.clone(), path.clone());
    let bootstrap = on_blocking_thread(move || {
        let bootstrap =
            if is_head { engine.look_at_bootstrap(&path, limits) } else { engine.bootstrap(&path, limits) };
        drop(turn);
        bootstrap
    });
    Ok(bootstrap.await?)
}

/// The parts of a response on their way.
struct Parts {
    budget: Arc<ResponseBudget>,
    turns: BootstrapTurns,
    bootstrap: Bootstrap,
    multipart: Multipart,
    snapshot: Option<ReadPlan>,
    /// The first bytes of the snapshot.
    first_read: Read,
    first_messages: Option<Vec<BootstrapMessage>>,
    /// What is gathered until it is worth a write.
    gathered: Vec<u8>,
    /// What is held of messages.
    held: Held,
}

/// What a response holds of messages: it counts for all responses, and once they hold as much as they should, it takes a
/// turn besides.
struct Held {
    _counted: HeldResponse,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Parts {
    /// Reads the beginning, so that what cannot be read is still answered with a status.
    async fn begin(
        streams: &State,
        bootstrap: Bootstrap,
        multipart: Multipart,
        takes_mapped: bool,
    ) -> Result<Self, Failure> {
        let budget = Arc::clone(&streams.options.responses);
        let turns = streams.bootstrap_turns.clone();
        let (mut snapshot, mut first_read) = (None, Read::default());
        if let Some(held) = &bootstrap.snapshot {
            let end = held.body.end().map_err(ReadError::from)?;
            let plan = held.body.read_to(Offset::ZERO, end, u64::MAX)?;
            let mut plan = plan.patient().mapped(takes_mapped);
            plan.set_piece_bytes(budget.piece_bytes());
            let (plan, read) = read_next_for_socket(plan).await;
            first_read = read.transpose()?.unwrap_or_default();
            snapshot = Some(plan);
        }
        let next = next_messages(&budget, &turns, bootstrap).await;
        let (bootstrap, first_messages, held) =
            next.map_err(
                |fault| {
                    if fault.is_gone() { Failure::from(LookupError::NotFound) } else { fault.into() }
                },
            )?;
        let gathered = Vec::new();
        Ok(Self { budget, turns, bootstrap, multipart, snapshot, first_read, first_messages, gathered, held })
    }

    async fn send(mut self, mut feed: Feed) -> Result<(), BodyError> {
        self.send_snapshot(&mut feed).await?;
        let content_type = self.bootstrap.head.content_type.clone();
        let mut start = self.bootstrap.from;
        let mut messages = self.first_messages.take();
        while let Some(next) = messages {
            for message in next {
                let next = message.next;
                self.send_message(&content_type, start, message, &mut feed).await?;
                start = next;
            }
            // Whoever holds a turn while it waits for the next would wait for itself.
            drop(self.held);
            let next = next_messages(&self.budget, &self.turns, self.bootstrap).await;
            (self.bootstrap, messages, self.held) = next.map_err(|fault| ended(&fault))?;
        }
        let end = self.multipart.end();
        self.gathered.extend_from_slice(&end);
        self.flush(&mut feed).await;
        Ok(())
    }

    async fn send_snapshot(&mut self, feed: &mut Feed) -> Result<(), BodyError> {
        let (content_type, length) = match &self.bootstrap.snapshot {
            Some(snapshot) => (snapshot.head.content_type.clone(), snapshot.head.length),
            None => (ContentType::DEFAULT, 0),
        };
        self.multipart.begin_part(&content_type, length, None, &mut self.gathered);
        let Some(plan) = self.snapshot.take() else { return Ok(()) };
        let read = std::mem::take(&mut self.first_read);
        self.send_plan(plan, read, length, feed).await
    }

    /// Sends what has been read of `plan`, and then the rest of `length` bytes as it is read.
    async fn send_plan(
        &mut self,
        mut plan: ReadPlan,
        mut read: Read,
        length: u64,
        feed: &mut Feed,
    ) -> Result<(), BodyError> {
        let mut left = length;
        loop {
            for piece in read.bytes {
                left = left.saturating_sub(piece.len() as u64);
                if read.is_mapped {
                    self.flush(feed).await;
                    feed.send_mapped(piece).await;
                } else {
                    self.push(piece, feed).await;
                }
            }
            if left == 0 {
                return Ok(());
            }
            plan.set_piece_bytes(self.budget.piece_bytes());
            let (rest, next) = read_next_for_socket(plan).await;
            plan = rest;
            read = match next {
                Some(read) => read.map_err(|fault| ended(&fault))?,
                None => return Err(BodyError("a part ends early".to_owned())),
            };
        }
    }

    async fn send_message(
        &mut self,
        content_type: &ContentType,
        start: Offset,
        message: BootstrapMessage,
        feed: &mut Feed,
    ) -> Result<(), BodyError> {
        self.multipart.begin_part(content_type, message.len, Some(start), &mut self.gathered);
        match message.body {
            BootstrapBody::Read(bytes) => self.push(bytes, feed).await,
            BootstrapBody::Plan(plan) => {
                self.send_plan(plan.patient(), Read::default(), message.len, feed).await?;
            }
        }
        Ok(())
    }

    /// Small pieces are gathered, large ones sent as they lie.
    async fn push(&mut self, piece: Bytes, feed: &mut Feed) {
        if piece.len() as u64 > JOINED_BYTES_MAX {
            self.flush(feed).await;
            feed.send(piece).await;
            return;
        }
        self.gathered.extend_from_slice(&piece);
        let gathered_max = if self.budget.is_scarce() { SCARCE_GATHERED_BYTES } else { GATHERED_BYTES };
        if self.gathered.len() >= gathered_max {
            self.flush(feed).await;
        }
    }

    async fn flush(&mut self, feed: &mut Feed) {
        feed.send(Bytes::from(std::mem::take(&mut self.gathered))).await;
    }
}

type Messages = Option<Vec<BootstrapMessage>>;

/// What a bootstrap has of messages in memory.
fn held_bytes(bootstrap: &Bootstrap, messages: Option<&[BootstrapMessage]>) -> usize {
    let bytes = |message: &BootstrapMessage| match &message.body {
        BootstrapBody::Read(bytes) => size_of::<BootstrapMessage>() + bytes.len(),
        BootstrapBody::Plan(_) => size_of::<BootstrapMessage>() + size_of::<ReadPlan>(),
    };
    bootstrap.kept_bytes() + messages.unwrap_or_default().iter().map(bytes).sum::<usize>()
}

/// The next messages, read where blocking is allowed: few of them once responses hold as much as they should.
///
/// A stored unit is read whole to be checked, and may be large: only a few are at a time. Who is gone before its turn
/// takes none.
async fn next_messages(
    budget: &Arc<ResponseBudget>,
    turns: &BootstrapTurns,
    mut bootstrap: Bootstrap,
) -> Result<(Bootstrap, Messages, Held), ReadFault> {
    // Never closed; without a turn it would only be less careful.
    let held = if budget.is_scarce() {
        bootstrap.set_window_bytes(SCARCE_WINDOW_BYTES);
        bootstrap.forget_window();
        Arc::clone(&turns.scarce).acquire_owned().await.ok()
    } else {
        bootstrap.set_window_bytes(BOOTSTRAP_WINDOW_BYTES);
        None
    };
    let turn = Arc::clone(&turns.loads).acquire_owned().await.ok();
    let (bootstrap, messages) = on_blocking_thread(move || {
        let read = bootstrap.next_messages().transpose()?;
        drop(turn);
        Ok((bootstrap, read))
    })
    .await?;
    let counted = budget.hold(held_bytes(&bootstrap, messages.as_deref()));
    Ok((bootstrap, messages, Held { _counted: counted, _turn: held }))
}
