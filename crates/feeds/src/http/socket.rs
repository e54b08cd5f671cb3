//! Feeds over WebSocket: many requests on one connection, and hints.
//!
//! Each message is one of the protocol's, with its `_tag`: JSON in text frames, CBOR in binary ones. A connection has one
//! encoding, that of its subprotocol (`feeds.v1.json`, `feeds.v1.cbor`) or else of its first message. Requests are carried
//! out at the same time and answered as they are done, so who needs an order waits for an answer.
//!
//! What a reader does not take is bounded. A request is begun only while what its socket holds, answers included, leaves
//! room for it ([`room`]); the others wait. While more than [`BACKLOG_BYTES`] wait in either direction, nothing more is
//! read. While anything waits to be written, hints are merged in the listener instead. A reader that lets
//! something wait for too long is dropped.

mod room;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_feed_protocol::{Advanced, Encoding, ErrorCode, ErrorResponse, FeedAdvanced, Id, RequestId};
use alluvium_feed_protocol::{Message as Outgoing, Request as Asked, Response as Answer};
use alluvium_http::{Body, Request, Response, Upgraded};
use alluvium_websocket::{
    AcceptOptions, CloseCode, ConnectionOptions, Limits, Message, Progress, WebSocket, accept,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};

pub(super) use self::room::Budget;
use self::room::{Held, cost};
use super::refusal::Refusal;
use super::{State, credentials, principal};
use crate::hub::Listener;
use crate::principal::Principal;

/// The subprotocols, best first.
const SUBPROTOCOLS: [(&str, Encoding); 2] =
    [("feeds.v1.cbor", Encoding::Cbor), ("feeds.v1.json", Encoding::Json)];
/// How much may wait to be written, or to be carried out, before nothing more is read.
const BACKLOG_BYTES: usize = 1024 * 1024;
/// The least time between two hints of a subscription.
const HINT_INTERVAL: Duration = Duration::from_millis(50);
/// How long open requests are waited for when the server stops.
const STOPPING_TIMEOUT: Duration = Duration::from_secs(1);

/// Agrees to a socket, for one space or for any.
pub(super) fn open(state: &Arc<State>, space: Option<Id>, request: &Request) -> Result<Response, Refusal> {
    let principal = principal(state, request.headers())?;
    let options = AcceptOptions { subprotocols: &SUBPROTOCOLS.map(|(name, _)| name), deflate: None };
    let accepted = accept(request, &options)?;
    let encoding = accepted.subprotocol.as_deref().and_then(|chosen| {
        SUBPROTOCOLS.iter().find(|(name, _)| *name == chosen).map(|(_, encoding)| *encoding)
    });
    let credentials = credentials(request.headers()).map(str::to_owned);
    let state = Arc::clone(state);
    let body = Body::upgrade(move |stream| async move {
        let _open = Open::new(&state);
        let socket = WebSocket::server(stream, None, connection_options(&state));
        let session = Session {
            space,
            credentials,
            principal,
            encoding,
            listener: Listener::new(),
            open: HashSet::new(),
            running: JoinSet::new(),
            parked: VecDeque::new(),
            waiting: Held::new(Arc::clone(&state.sockets)),
            busy: Held::new(Arc::clone(&state.sockets)),
            state,
        };
        session.run(socket).await;
    });
    Ok(accepted.response.map(|()| body))
}

/// Counts a socket for as long as it is open.
struct Open(Arc<State>);

impl Open {
    fn new(state: &Arc<State>) -> Self {
        state.open_sockets.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

fn connection_options(state: &State) -> ConnectionOptions {
    let bytes_max = state.service.limits().frame_bytes_max;
    ConnectionOptions {
        limits: Limits { frame_bytes_max: bytes_max, message_bytes_max: bytes_max, ..Limits::default() },
        // The session bounds it by what it reads.
        outgoing_bytes_max: usize::MAX,
        ping_interval: Some(state.options.ping_interval),
        ..ConnectionOptions::default()
    }
}

/// A request that waits for its turn.
struct Parked {
    space: Id,
    asked: Asked,
    encoding: Encoding,
    bytes: usize,
}

/// A request that has been carried out.
struct Done {
    request_id: RequestId,
    cost: usize,
    answer: Vec<u8>,
}

/// Why a session ends.
type End = (CloseCode, &'static str);

/// One connection.
struct Session {
    state: Arc<State>,
    space: Option<Id>,
    credentials: Option<String>,
    principal: Principal,
    /// Known from the first message on at the latest.
    encoding: Option<Encoding>,
    listener: Arc<Listener>,
    /// The requests without an answer.
    open: HashSet<RequestId>,
    running: JoinSet<Done>,
    /// Requests for which there is no room yet.
    parked: VecDeque<Parked>,
    /// What they hold.
    waiting: Held,
    /// What requests that are carried out and answers that are not written hold.
    busy: Held,
}

impl Session {
    async fn run(mut self, mut socket: WebSocket<Upgraded>) {
        let stopping = self.state.shutdown.wait();
        tokio::pin!(stopping);
        let mut renewal = tokio::time::interval(self.state.options.ping_interval);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let listener = Arc::clone(&self.listener);
        let mut hints_from = Instant::now();
        // What answers take until they are written, and until when they must be.
        let (mut written_bytes, mut backlog_until) = (0, None);
        let (code, reason) = loop {
            let waiting = socket.queued_bytes();
            if waiting == 0 {
                self.busy.release(std::mem::take(&mut written_bytes));
                backlog_until = None;
            }
            self.begin();
            let reads = waiting < BACKLOG_BYTES && self.waiting.bytes() < BACKLOG_BYTES;
            let until =
                *backlog_until.get_or_insert_with(|| Instant::now() + self.state.options.reader_timeout);
            let reading = async {
                if reads {
                    return socket.next_or_written().await;
                }
                if waiting == 0 {
                    std::future::pending::<()>().await;
                }
                socket.flush().await.map(|()| Progress::Written)
            };
            let hinted = async {
                sleep_until(hints_from).await;
                listener.ready().await;
            };
            let outcome = tokio::select! {
                progress = reading => match progress {
                    Ok(Progress::Message(message)) => self.ask(message).map(Vec::from_iter),
                    Ok(Progress::Written) => Ok(Vec::new()),
                    Ok(Progress::Closed) => return,
                    Err(error) => {
                        tracing::debug!(%error, "a socket of feeds ended");
                        return;
                    }
                },
                Some(done) = self.running.join_next() => self.finish(done).map(|answer| vec![answer]),
                () = hinted, if waiting == 0 => {
                    hints_from = Instant::now() + HINT_INTERVAL;
                    Ok(self.hints(listener.take()))
                }
                () = sleep_until(until), if waiting > 0 => Err((CloseCode::POLICY, "what waits is not read")),
                _ = renewal.tick() => self.renew().map(|()| Vec::new()),
                () = &mut stopping => Err((CloseCode::AWAY, "the server stops")),
            };
            let messages = match outcome {
                Ok(messages) => messages,
                Err(end) => break end,
            };
            for answer in messages {
                self.busy.add(answer.len());
                written_bytes += answer.len();
                self.queue(&mut socket, answer);
            }
        };
        self.end(socket, code, reason).await;
    }

    /// Lets open requests finish if there is time, and closes.
    async fn end(mut self, mut socket: WebSocket<Upgraded>, code: CloseCode, reason: &str) {
        if code == CloseCode::AWAY {
            let finishing = async {
                while let Some(done) = self.running.join_next().await {
                    let Ok(answer) = self.finish(done) else { return };
                    self.queue(&mut socket, answer);
                }
            };
            drop(timeout(STOPPING_TIMEOUT, finishing).await);
        }
        if let Err(error) = socket.close(code, reason).await {
            tracing::debug!(%error, "a socket of feeds was not closed in peace");
        }
    }

    /// Looks at the credentials again: what they are good for may end before the connection does.
    fn renew(&mut self) -> Result<(), End> {
        let renewed = self.state.gate.decide(self.credentials.as_deref());
        self.principal = renewed.map_err(|_| (CloseCode::POLICY, "unauthorized"))?;
        Ok(())
    }

    /// Takes on a request, or answers at once why not.
    fn ask(&mut self, message: Message) -> Result<Option<Vec<u8>>, End> {
        let encoding = if message.is_text() { Encoding::Json } else { Encoding::Cbor };
        if *self.encoding.get_or_insert(encoding) != encoding {
            return Err((CloseCode::UNSUPPORTED, "text frames are for JSON, binary ones for CBOR"));
        }
        let bytes = message.into_payload();
        let asked = match encoding.decode_request(&bytes, None) {
            Ok(asked) => asked,
            Err(failed) => {
                return Ok(Some(refused(
                    encoding,
                    failed.request_id,
                    ErrorCode::BadRequest,
                    &failed.message,
                )));
            }
        };
        let request_id = asked.request_id().clone();
        let refuse = |code, message| Ok(Some(refused(encoding, request_id.clone(), code, message)));
        let Some(space) = self.space_of(&asked) else {
            return refuse(ErrorCode::BadRequest, "`spaceId` is missing, on a socket for all spaces");
        };
        if self.open.contains(&request_id) {
            return refuse(ErrorCode::BadRequest, "a request with this `requestId` is open");
        }
        if self.open.len() >= self.state.service.limits().open_requests_max {
            return refuse(ErrorCode::Overloaded, "too many requests of this socket are open");
        }
        if self.state.sockets.is_used_up() {
            return refuse(ErrorCode::Overloaded, "the server holds too much for its sockets");
        }
        self.waiting.add(bytes.len());
        self.open.insert(request_id);
        self.parked.push_back(Parked { space, asked, encoding, bytes: bytes.len() });
        Ok(None)
    }

    /// Begins requests that wait, in their order, as long as there is room.
    fn begin(&mut self) {
        while let Some(first) = self.parked.front() {
            let cost = cost(&first.asked, first.bytes, self.state.service.limits());
            if !self.busy.has_room(cost) {
                return;
            }
            let Some(Parked { space, asked, encoding, bytes }) = self.parked.pop_front() else { return };
            self.waiting.release(bytes);
            self.busy.add(cost);
            self.spawn(space, asked, encoding, cost);
        }
    }

    fn spawn(&mut self, space: Id, asked: Asked, encoding: Encoding, cost: usize) {
        let (state, listener) = (Arc::clone(&self.state), Arc::clone(&self.listener));
        let (principal, names_space) = (self.principal.clone(), self.space.is_none());
        self.running.spawn(async move {
            let request_id = asked.request_id().clone();
            let mut answer = state.service.handle(&principal, &space, asked, Some(&listener)).await;
            if names_space {
                answer.set_space_id(space);
            }
            let answer = encoding.encode(&answer).unwrap_or_else(|error| {
                tracing::error!(error, "an answer cannot be written");
                refused(encoding, request_id.clone(), ErrorCode::Internal, "the answer cannot be written")
            });
            Done { request_id, cost, answer }
        });
    }

    /// The space that a request is about: the connection's, or the one that it names.
    fn space_of(&self, asked: &Asked) -> Option<Id> {
        let named = || match asked {
            // A greeting is about no space, or several.
            Asked::Hello(hello) => {
                let first = hello.spaces.as_ref().and_then(|spaces| spaces.first().cloned());
                first.or_else(|| Id::parse("any").ok())
            }
            other => other.space_id().cloned(),
        };
        self.space.clone().or_else(named)
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) -> Result<Vec<u8>, End> {
        let done = done.map_err(|_| (CloseCode::INTERNAL, "a request was not finished"))?;
        self.open.remove(&done.request_id);
        self.busy.release(done.cost);
        Ok(done.answer)
    }

    fn hints(&self, hints: Vec<FeedAdvanced>) -> Vec<Vec<u8>> {
        let encoding = self.encoding.unwrap_or(Encoding::Json);
        let advanced = |hint| {
            let message = Outgoing::Advanced(Advanced::FeedAdvanced(hint));
            encoding.encode(&message).ok()
        };
        hints.into_iter().filter_map(advanced).collect()
    }

    fn queue(&self, socket: &mut WebSocket<Upgraded>, bytes: Vec<u8>) {
        let message = match self.encoding {
            Some(Encoding::Cbor) => Message::binary(bytes),
            // JSON is text; an encoder that made something else would have failed.
            _ => Message::text(String::from_utf8(bytes).unwrap_or_default()),
        };
        if let Err(error) = socket.queue(&message) {
            // On a connection that has ended, which is noticed by reading from it.
            tracing::debug!(%error, "a message was not sent");
        }
    }
}

fn refused(encoding: Encoding, request_id: RequestId, code: ErrorCode, message: &str) -> Vec<u8> {
    let answer = Answer::Error(ErrorResponse::new(request_id, code, message));
    encoding.encode(&answer).unwrap_or_default()
}
