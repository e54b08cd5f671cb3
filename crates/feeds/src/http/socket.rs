//! Feeds over WebSocket: many requests on one connection, and hints.
//!
//! Each message is one of the protocol's, with its `_tag`: JSON in text frames, CBOR in binary ones. A connection has one
//! encoding, that of its subprotocol (`feeds.v1.json`, `feeds.v1.cbor`) or else of its first message. Requests are carried
//! out at the same time and answered as they are done, so who needs an order waits for an answer.
//!
//! What a reader does not take is bounded. A request is begun only while what its socket holds, answers included, leaves
//! room for it ([`room`]); the others wait. While more than [`BACKLOG_BYTES`] wait in either direction, nothing more is
//! read. While anything waits to be written, hints are merged in the listener instead. A reader that lets
//! something wait for too long is dropped. Subscriptions with `push: "blocks"` are sent blocks in place of hints: see
//! [`push`]. A query with `stream` is answered page after page, each begun when there is room for it.

mod push;
mod room;
mod standing;
mod turn;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_feed_protocol::{Advanced, Encoding, ErrorCode, FeedAdvanced, Id, Peers, RequestId};
use alluvium_feed_protocol::{Message as Outgoing, Request as Asked};
use alluvium_http::{Body, Response, Upgraded};
use alluvium_websocket::{
    AcceptOptions, CloseCode, ConnectionOptions, Limits, Message, Progress, WebSocket, accept,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};

use self::push::Pushing;
pub(super) use self::room::Budget;
use self::room::{Held, cost};
use self::standing::Standing;
use self::turn::{Answered, Parked, refused, space_of, too_many};
use super::refusal::Refusal;
use super::{Request, State};
use crate::hub::Listener;

/// The subprotocols, best first.
const SUBPROTOCOLS: [(&str, Encoding); 2] =
    [("feeds.v1.cbor", Encoding::Cbor), ("feeds.v1.json", Encoding::Json)];
/// How much may wait to be written, or to be carried out, before nothing more is read.
const BACKLOG_BYTES: usize = 1024 * 1024;
/// The least time between two hints of a subscription.
const HINT_INTERVAL: Duration = Duration::from_millis(50);
/// Subscriptions of one connection whose peers are remembered; hints about further ones name none.
const SUBSCRIBERS_MAX: usize = 1024;
/// How long open requests are waited for when the server stops.
const STOPPING_TIMEOUT: Duration = Duration::from_secs(1);

/// Agrees to a socket, for one space or for any.
pub(super) fn open(state: &Arc<State>, space: Option<Id>, request: &Request) -> Result<Response, Refusal> {
    let standing = Standing::of(state, request)?;
    let options = AcceptOptions { subprotocols: &SUBPROTOCOLS.map(|(name, _)| name), deflate: None };
    let accepted = accept(request, &options)?;
    let encoding = accepted.subprotocol.as_deref().and_then(|chosen| {
        SUBPROTOCOLS.iter().find(|(name, _)| *name == chosen).map(|(_, encoding)| *encoding)
    });
    let state = Arc::clone(state);
    let body = Body::upgrade(move |stream| async move {
        let _open = Open::new(&state);
        let socket = WebSocket::server(stream, None, connection_options(&state));
        let session = Session {
            space,
            standing,
            is_exchanged: false,
            is_turned_away: false,
            encoding,
            listener: Listener::new(),
            open: HashSet::new(),
            running: JoinSet::new(),
            parked: VecDeque::new(),
            pushing: Pushing::default(),
            subscribers: HashMap::new(),
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

/// What a task of a session has come to.
enum Done {
    /// A request that has been carried out.
    Request(Box<Answered>),
    /// Messages that nobody asked for, and what was set aside for them.
    Pushed(Vec<Advanced>, usize),
}

/// Why a session ends.
type End = (CloseCode, &'static str);

/// One connection.
struct Session {
    state: Arc<State>,
    space: Option<Id>,
    /// As whom it is let in.
    standing: Standing,
    /// Whether it is let in as another one since that was looked at last.
    is_exchanged: bool,
    /// Whether it has begun with something else than a greeting, and needed one.
    is_turned_away: bool,
    /// Known from the first message on at the latest.
    encoding: Option<Encoding>,
    listener: Arc<Listener>,
    /// The requests without an answer.
    open: HashSet<RequestId>,
    running: JoinSet<Done>,
    /// Subscriptions that are sent blocks.
    pushing: Pushing,
    /// Whom hints about a subscription are for, by space and name, where that was said.
    subscribers: HashMap<(Id, Id), Id>,
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
        let ended = self.standing.ended();
        tokio::pin!(ended);
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
            // Counted from when something began to wait, and not from when nothing did.
            let latest = Instant::now() + self.state.options.reader_timeout;
            let until = if waiting == 0 { latest } else { *backlog_until.get_or_insert(latest) };
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
                Some(done) = self.running.join_next() => self.finish(done),
                () = hinted, if waiting == 0 && !self.pushing.is_under_way() => {
                    hints_from = Instant::now() + HINT_INTERVAL;
                    Ok(self.hints(listener.take()))
                }
                () = sleep_until(until), if waiting > 0 => Err((CloseCode::POLICY, "what waits is not read")),
                _ = renewal.tick() => self.standing.renew().map(|()| Vec::new()),
                () = &mut stopping => Err((CloseCode::AWAY, "the server stops")),
                end = &mut ended => Err(end),
            };
            if std::mem::take(&mut self.is_exchanged) {
                ended.set(self.standing.ended());
            }
            let messages = match outcome {
                Ok(messages) => messages,
                Err(end) => break end,
            };
            written_bytes += self.write(&mut socket, messages);
            if self.is_turned_away {
                break Standing::turned_away();
            }
        };
        self.end(socket, code, reason).await;
    }

    /// Has messages sent, and counts them until they are; how much that is.
    fn write(&mut self, socket: &mut WebSocket<Upgraded>, messages: Vec<Vec<u8>>) -> usize {
        let bytes = messages.iter().map(Vec::len).sum();
        self.busy.add(bytes);
        for message in messages {
            self.queue(socket, message);
        }
        bytes
    }

    /// Lets open requests finish if there is time, and closes.
    async fn end(mut self, mut socket: WebSocket<Upgraded>, code: CloseCode, reason: &str) {
        if code == CloseCode::AWAY {
            let finishing = async {
                while let Some(done) = self.running.join_next().await {
                    let Ok(answers) = self.finish(done) else { return };
                    for answer in answers {
                        self.queue(&mut socket, answer);
                    }
                }
            };
            drop(timeout(STOPPING_TIMEOUT, finishing).await);
        }
        if let Err(error) = socket.close(code, reason).await {
            tracing::debug!(%error, "a socket of feeds was not closed in peace");
        }
    }

    /// Takes on a request, or answers at once why not.
    fn ask(&mut self, message: Message) -> Result<Option<Vec<u8>>, End> {
        let encoding = if message.is_text() { Encoding::Json } else { Encoding::Cbor };
        if *self.encoding.get_or_insert(encoding) != encoding {
            return Err((CloseCode::UNSUPPORTED, "text frames are for JSON, binary ones for CBOR"));
        }
        let bytes = message.into_payload();
        let (asked, peers) = match encoding.decode_routed(&bytes, None) {
            Ok(read) => read,
            Err(failed) => {
                self.is_turned_away = !self.standing.is_let_in();
                let from = (failed.request_id, &failed.peers);
                return Ok(Some(refused(encoding, from, ErrorCode::BadRequest, &failed.message)));
            }
        };
        let request_id = asked.request_id().clone();
        let refuse = |code, message| Ok(Some(refused(encoding, (request_id.clone(), &peers), code, message)));
        if let Err(code) = self.greeted(&asked) {
            return refuse(code, "the caller is not let in");
        }
        let Some(space) = space_of(self.space.as_ref(), &asked) else {
            return refuse(ErrorCode::BadRequest, "`spaceId` is missing, on a socket for all spaces");
        };
        if self.open.contains(&request_id) {
            return refuse(ErrorCode::BadRequest, "a request with this `requestId` is open");
        }
        if self.open.len() >= self.state.service.limits().open_requests_max {
            return refuse(ErrorCode::Overloaded, "too many requests of this socket are open");
        }
        if let Some(Err(wait)) = self.standing.meter().map(|meter| meter.take(bytes.len() as u64)) {
            return Ok(Some(too_many(encoding, (request_id, &peers), wait)));
        }
        if self.state.sockets.is_used_up() {
            return refuse(ErrorCode::Overloaded, "the server holds too much for its sockets");
        }
        self.waiting.add(bytes.len());
        self.open.insert(request_id);
        self.parked.push_back(Parked { space, asked, peers, encoding, bytes: bytes.len() });
        Ok(None)
    }

    /// Looks for new credentials in a request, and whether it may be made at all.
    fn greeted(&mut self, asked: &Asked) -> Result<(), ErrorCode> {
        let token = if let Asked::Hello(hello) = asked { hello.token.as_deref() } else { None };
        let greeted = match token {
            Some(token) => self.standing.let_in(token).map(|()| self.is_exchanged = true),
            None if self.standing.is_let_in() => Ok(()),
            None => Err(ErrorCode::Unauthorized),
        };
        self.is_turned_away = !self.standing.is_let_in();
        greeted
    }

    /// Begins requests that wait, in their order, as long as there is room.
    fn begin(&mut self) {
        while let Some(first) = self.parked.front() {
            let cost = cost(&first.asked, first.bytes, self.state.service.limits());
            if !self.busy.has_room(cost) {
                return;
            }
            let Some(parked) = self.parked.pop_front() else { return };
            self.waiting.release(parked.bytes);
            self.busy.add(cost);
            self.spawn(parked, cost);
        }
    }

    fn spawn(&mut self, parked: Parked, cost: usize) {
        let (state, listener) = (Arc::clone(&self.state), Arc::clone(&self.listener));
        let (principal, names_space) = (self.standing.principal().clone(), self.space.is_none());
        self.running.spawn(async move {
            let answered = parked.carry_out(&state, &principal, &listener, (names_space, cost)).await;
            Done::Request(Box::new(answered))
        });
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) -> Result<Vec<Vec<u8>>, End> {
        let done = match done.map_err(|_| (CloseCode::INTERNAL, "a request was not finished"))? {
            Done::Request(done) => done,
            Done::Pushed(messages, cost) => {
                self.busy.release(cost);
                self.pushing.done(&messages);
                return Ok(messages.iter().filter_map(|message| self.encoded(message)).collect());
            }
        };
        self.busy.release(done.cost);
        if let Some(told) = done.told {
            self.pushing.note(told);
        }
        if let Some((subscription, subscriber)) = done.subscriber {
            self.note_subscriber(subscription, subscriber);
        }
        match done.next {
            // The request stays open under its name.
            Some(next) => self.parked.push_back(next),
            None => drop(self.open.remove(&done.request_id)),
        }
        Ok(vec![done.answer])
    }

    /// Remembers whom hints about a subscription are for.
    fn note_subscriber(&mut self, subscription: (Id, Id), subscriber: Option<Id>) {
        match subscriber {
            Some(peer) => {
                if self.subscribers.len() < SUBSCRIBERS_MAX || self.subscribers.contains_key(&subscription) {
                    self.subscribers.insert(subscription, peer);
                }
            }
            None => drop(self.subscribers.remove(&subscription)),
        }
    }

    /// Hints to be sent at once. Those in whose place blocks are sent follow when these are read.
    fn hints(&mut self, hints: Vec<FeedAdvanced>) -> Vec<Vec<u8>> {
        let has_room = self.busy.has_room(push::COST);
        let (pushed, plain): (Vec<_>, Vec<_>) = hints
            .into_iter()
            .map(|hint| (self.pushing.after(&hint), hint))
            .partition(|(after, _)| has_room && after.is_some());
        if !pushed.is_empty() {
            self.busy.add(push::COST);
            self.pushing.begin();
            let (state, principal) = (Arc::clone(&self.state), self.standing.principal().clone());
            self.running.spawn_blocking(move || {
                Done::Pushed(push::messages(&state.service, &principal, pushed), push::COST)
            });
        }
        let plain: Vec<Advanced> = plain.into_iter().map(|(_, hint)| Advanced::FeedAdvanced(hint)).collect();
        self.pushing.passed(&plain);
        plain.iter().filter_map(|message| self.encoded(message)).collect()
    }

    fn encoded(&self, message: &Advanced) -> Option<Vec<u8>> {
        let (space, subscription) = match message {
            Advanced::FeedAdvanced(hint) => (&hint.space_id, &hint.subscription_id),
            Advanced::BlocksPushed(pushed) => (&pushed.space_id, &pushed.subscription_id),
        };
        let subscriber = self.subscribers.get(&(space.clone(), subscription.clone())).cloned();
        let peers = Peers { recipient_peer_id: subscriber, ..Peers::default() };
        let message = Outgoing::Advanced(message.clone());
        self.encoding.unwrap_or(Encoding::Json).encode_routed(&message, &peers).ok()
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
