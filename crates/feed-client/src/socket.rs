//! Requests and hints over one WebSocket, in CBOR.
//!
//! The connection is opened when it is first needed and again after it broke, and begins with a greeting, which tells what
//! the server accepts. Subscriptions that were attached to the one
//! before are attached anew, and each then counts as having news: something may have been missed.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{
    Advanced, ClientAction, Encoding, FeedAdvanced, Id, Limits, Message, Push, Request, RequestId, Response,
    SubscribeRequest,
};
use alluvium_feed_replica::{CallError, CallErrorKind, Transport};
use alluvium_websocket::{
    ConnectError, ConnectOptions, ConnectionOptions, Limits as FrameLimits, Message as Frame, Stream,
    WebSocket, connect, tls_with_roots,
};
use parking_lot::Mutex;
use ureq::http::{HeaderMap, header};

use crate::http::exchange::{self, REDIRECTS_MAX};
use crate::server::{Credentials, Server, ServerError};
use crate::trouble;

/// What the connection speaks.
const SUBPROTOCOL: &str = "feeds.v1.cbor";
/// Hints and pushed blocks that wait to be looked at. Further ones are dropped: each at least says that there is something,
/// and what was missed is pulled.
const HINTS_MAX: usize = 16;
/// Bytes of pushed blocks that wait together. Of what goes beyond them, that there is something is kept, and it is pulled.
const PUSHED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The first pause after a connection that failed, in milliseconds; the real one is drawn below it, and the bound doubles.
const PAUSE_MS_MIN: u64 = 250;
/// The longest pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 30_000;
/// A connection that lasted so long, in milliseconds, was a good one: the next pause is short again. One that is opened,
/// greeted and closed over and over is not.
const LASTING_MS: u64 = 10_000;

/// A way to a server over a WebSocket. One for each space that is synchronised.
#[derive(Debug)]
pub struct SocketTransport {
    /// The server as it was named; credentials are for its host.
    home: String,
    /// Where connections go: there, or where it has sent us.
    place: Mutex<String>,
    space: Id,
    server: Server,
    env: Env,
    /// Certificates in DER that are trusted in place of the built-in ones.
    roots: Option<Vec<Vec<u8>>>,
    connection: tokio::sync::Mutex<Option<WebSocket<Stream>>>,
    /// What is attached to the connection: the replicated feeds' subscription, and the one to all feeds.
    attached: Mutex<[Option<(Id, Push)>; 2]>,
    /// What waits to be looked at, each with the bytes that it came in.
    hints: Mutex<VecDeque<(Advanced, usize)>>,
    /// What the server has said it accepts.
    limits: Mutex<Option<Limits>>,
    /// Why there was no connection a moment ago, for the next request: it is not tried twice.
    failed: Mutex<Option<CallError>>,
    is_live: AtomicBool,
    failures: Mutex<u32>,
    /// When the present connection was opened.
    opened_ms: AtomicU64,
}

/// Why there is no connection.
enum NoConnection {
    /// There was no answer.
    Trouble(CallError),
    /// The server has said why, in its own.
    Refused(Box<Response>),
}

impl From<CallError> for NoConnection {
    fn from(error: CallError) -> Self {
        Self::Trouble(error)
    }
}

impl SocketTransport {
    /// A transport to a server, for one space. Nothing is sent yet.
    pub fn new(server: &Server, space: &Id, env: Env) -> Result<Self, ServerError> {
        let roots = server.roots_der()?;
        if let Some(roots) = &roots {
            tls_with_roots(roots).map_err(|error| ServerError::Roots(error.to_string()))?;
        }
        let home = server.base()?;
        Ok(Self {
            place: Mutex::new(home.clone()),
            home,
            space: space.clone(),
            server: server.clone(),
            env,
            roots,
            connection: tokio::sync::Mutex::new(None),
            attached: Mutex::default(),
            hints: Mutex::default(),
            limits: Mutex::default(),
            failed: Mutex::default(),
            is_live: AtomicBool::new(true),
            failures: Mutex::new(0),
            opened_ms: AtomicU64::new(0),
        })
    }

    /// Where connections go now.
    fn url(&self) -> String {
        format!("{}/spaces/{}/ws", self.place.lock(), exchange::percent_encoded(self.space.as_str()))
    }

    /// A new connection with everything attached. `request` is what a refusal answers.
    async fn open(&self, request: &Request) -> Result<WebSocket<Stream>, NoConnection> {
        let mut socket = self.greeted(request).await?;
        let attached = self.attached.lock().clone();
        for (place, subscription) in attached.into_iter().enumerate() {
            let Some((subscription, push)) = subscription else { continue };
            let request_id = RequestId::parse("attach").unwrap_or_default();
            let again = Request::Subscribe(SubscribeRequest {
                request_id,
                subscription_id: Some(subscription.clone()),
                push: Some(push),
                ..SubscribeRequest::default()
            });
            match self.ask(&mut socket, &again).await? {
                Response::Subscribe(answer) => {
                    let hint = FeedAdvanced {
                        space_id: self.space.clone(),
                        subscription_id: subscription,
                        position: answer.max_position,
                        feed_ids: Vec::new(),
                        count: 0,
                    };
                    self.keep(Advanced::FeedAdvanced(hint), 0);
                }
                // The replica finds out when it pulls, and subscribes again.
                _ => self.attached.lock()[place] = None,
            }
        }
        self.opened_ms.store(self.env.clock.now_ms(), Ordering::Release);
        self.is_live.store(true, Ordering::Release);
        Ok(socket)
    }

    /// A connection to the authority, wherever that is, on which the server has said what it accepts.
    async fn greeted(&self, request: &Request) -> Result<WebSocket<Stream>, NoConnection> {
        let mut redirects = 0;
        loop {
            let refusal = match self.greeted_here(request).await {
                Err(NoConnection::Refused(refusal)) => refusal,
                other => return other,
            };
            if !self.follow(&refusal, redirects)? {
                return Err(NoConnection::Refused(refusal));
            }
            redirects += 1;
        }
    }

    async fn greeted_here(&self, request: &Request) -> Result<WebSocket<Stream>, NoConnection> {
        let mut socket = match self.connect(request).await {
            Err(NoConnection::Refused(response)) if is_unauthorized(&response) && self.has_source() => {
                self.connect(request).await?
            }
            other => other?,
        };
        let hello = Request::Hello(exchange::greeting());
        match self.ask(&mut socket, &hello).await? {
            Response::Welcome(welcome) => *self.limits.lock() = Some(welcome.limits),
            // Without credentials a handshake is agreed to, and nothing after it.
            Response::Error(mut error) if error.action() == ClientAction::Authenticate => {
                error.request_id.clone_from(request.request_id());
                return Err(NoConnection::Refused(Box::new(Response::Error(error))));
            }
            // A server that says nothing of its limits is asked as if it had none.
            _ => {}
        }
        Ok(socket)
    }

    /// Turns to another authority if a response says so, but not for ever: then the next connection begins at home again.
    fn follow(&self, response: &Response, redirects: u32) -> Result<bool, CallError> {
        let Response::Error(error) = response else { return Ok(false) };
        let Some(url) = error.url.as_ref().filter(|_| error.action() == ClientAction::Redirect) else {
            return Ok(false);
        };
        if redirects >= REDIRECTS_MAX {
            self.place.lock().clone_from(&self.home);
            return Ok(false);
        }
        *self.place.lock() = exchange::sent_on(&self.home, url)?;
        Ok(true)
    }

    fn has_source(&self) -> bool {
        matches!(self.server.credentials, Credentials::Source(_))
    }

    async fn connect(&self, request: &Request) -> Result<WebSocket<Stream>, NoConnection> {
        let url = self.url();
        let failed = |kind, reason: &dyn Display| CallError::new(kind, format!("{url}: {reason}"));
        let is_home = exchange::origin(&url) == exchange::origin(&self.home);
        let token = match &self.server.credentials {
            _ if !is_home => None,
            Credentials::None => None,
            Credentials::Token(token) => Some(token.clone()),
            Credentials::Source(source) => {
                let source = Arc::clone(source);
                let asked = tokio::task::spawn_blocking(move || source()).await;
                asked.map_err(|error| failed(CallErrorKind::Token, &error).because(error))?
            }
        };
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let value = exchange::bearer(&token)
                .map_err(|error| failed(CallErrorKind::Token, &error).because(error))?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let tls = self.roots.as_deref().map(tls_with_roots).transpose();
        let answer_bytes_max = usize::try_from(self.server.answer_bytes_max).unwrap_or(usize::MAX);
        let options = ConnectOptions {
            headers,
            tls: tls.map_err(|error| failed(CallErrorKind::Tls, &error).because(error))?,
            connection: ConnectionOptions {
                limits: FrameLimits {
                    frame_bytes_max: answer_bytes_max,
                    message_bytes_max: answer_bytes_max,
                    ..FrameLimits::default()
                },
                ..ConnectionOptions::default()
            },
            subprotocols: vec![SUBPROTOCOL.to_owned()],
            timeout: self.server.connect_timeout,
            ..ConnectOptions::default()
        };
        match connect(&url, options, Arc::clone(&self.env.random)).await {
            Ok(connected) if connected.agreed.subprotocol.as_deref() == Some(SUBPROTOCOL) => {
                Ok(connected.socket)
            }
            Ok(_) => Err(failed(CallErrorKind::Nonsense, &"the server speaks something else").into()),
            Err(ConnectError::Refused(refusal)) => {
                let read =
                    exchange::read(refusal.status.as_u16(), &refusal.headers, &refusal.body, request, &url);
                Err(NoConnection::Refused(Box::new(read?)))
            }
            Err(error) => Err(trouble::of_connecting(error, &url).into()),
        }
    }

    /// Sends a request and waits for its answer; hints that come meanwhile are kept.
    async fn ask(&self, socket: &mut WebSocket<Stream>, request: &Request) -> Result<Response, CallError> {
        let asking = async {
            let failed = |error| trouble::of_socket(error, &self.url());
            socket.send(&Frame::binary(exchange::encoded(request)?)).await.map_err(failed)?;
            loop {
                let Some(frame) = socket.next().await.map_err(failed)? else {
                    let text = format!("{}: the server has ended the connection", self.url());
                    return Err(CallError::new(CallErrorKind::Closed, text));
                };
                if let Some(response) = self.read(&frame)?
                    && response.request_id() == request.request_id()
                {
                    return Ok(response);
                }
            }
        };
        let answered = tokio::time::timeout(self.server.call_timeout, asking).await;
        answered.map_err(|_| {
            CallError::new(CallErrorKind::Timeout, format!("{}: no answer in time", self.url()))
        })?
    }

    /// The answer in a frame; a hint is kept.
    fn read(&self, frame: &Frame) -> Result<Option<Response>, CallError> {
        let decoded = Encoding::Cbor.decode_message(frame.payload(), None);
        match decoded.map_err(|error| {
            CallError::new(CallErrorKind::Nonsense, format!("{}: {error}", self.url())).because(error)
        })? {
            Message::Response(response) => Ok(Some(response)),
            Message::Advanced(message) => {
                self.keep(message, frame.payload().len());
                Ok(None)
            }
        }
    }

    fn keep(&self, mut message: Advanced, bytes: usize) {
        let (space, position) = match &mut message {
            Advanced::FeedAdvanced(hint) => (&mut hint.space_id, hint.position),
            Advanced::BlocksPushed(pushed) => (&mut pushed.space_id, pushed.position),
        };
        space.clone_from(&self.space);
        let mut hints = self.hints.lock();
        if hints.len() >= HINTS_MAX || position > NUMBER_MAX {
            return;
        }
        let waiting: usize = hints.iter().map(|(_, bytes)| bytes).sum();
        hints.push_back(match message {
            Advanced::BlocksPushed(pushed) if waiting + bytes > PUSHED_BYTES_MAX => {
                (Advanced::FeedAdvanced(pushed.to_hint()), 0)
            }
            message => (message, bytes),
        });
    }

    /// Remembers what is attached to the connection.
    fn note(&self, asked: &SubscribeRequest, answer: &Response) {
        let Response::Subscribe(answer) = answer else { return };
        let push = asked.push.unwrap_or_default();
        if push != Push::None {
            let place = usize::from(asked.all == Some(true));
            self.attached.lock()[place] = Some((answer.subscription_id.clone(), push));
        }
    }

    /// Waits after a failure, longer each time and never as long as others.
    async fn pause(&self) {
        let failures = {
            let mut failures = self.failures.lock();
            *failures = failures.saturating_add(1);
            *failures - 1
        };
        let bound = (PAUSE_MS_MIN << failures.min(16)).min(PAUSE_MS_MAX);
        let drawn = bound / 10 + self.env.random.next_u64() % (bound - bound / 10);
        tokio::time::sleep(Duration::from_millis(drawn)).await;
    }

    fn broke(&self, connection: &mut Option<WebSocket<Stream>>) {
        *connection = None;
        // Nothing was open at all, or something for long enough.
        let was_open = self.is_live.swap(false, Ordering::AcqRel);
        let lasted_ms = self.env.clock.now_ms().saturating_sub(self.opened_ms.load(Ordering::Acquire));
        if was_open && lasted_ms >= LASTING_MS {
            *self.failures.lock() = 0;
        }
    }
}

fn is_unauthorized(response: &Response) -> bool {
    matches!(response, Response::Error(error) if error.action() == ClientAction::Authenticate)
}

impl Transport for SocketTransport {
    async fn prepare(&self, _space: &Id) {
        if self.limits.lock().is_some() {
            return;
        }
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            match self.open(&Request::Subscribe(SubscribeRequest::default())).await {
                Ok(socket) => *connection = Some(socket),
                // Whatever the server has against this client, it says so again.
                Err(NoConnection::Refused(_)) => {}
                Err(NoConnection::Trouble(error)) => *self.failed.lock() = Some(error),
            }
        }
    }

    async fn call(&self, _space: &Id, request: Request) -> Result<Response, CallError> {
        let mut connection = self.connection.lock().await;
        if let Some(error) = self.failed.lock().take() {
            self.broke(&mut connection);
            return Err(error);
        }
        let mut redirects = 0;
        loop {
            // Taken out, so that a call that is given up leaves no connection with half a message.
            let mut socket = match connection.take() {
                Some(socket) => socket,
                None => match self.open(&request).await {
                    Ok(socket) => socket,
                    Err(NoConnection::Refused(response)) => return Ok(*response),
                    Err(NoConnection::Trouble(error)) => {
                        self.broke(&mut connection);
                        return Err(error);
                    }
                },
            };
            let response = match self.ask(&mut socket, &request).await {
                Ok(response) => response,
                Err(error) => {
                    self.broke(&mut connection);
                    return Err(error);
                }
            };
            if self.follow(&response, redirects)? {
                redirects += 1;
                continue;
            }
            if let Request::Subscribe(subscribe) = &request {
                self.note(subscribe, &response);
            }
            *connection = Some(socket);
            return Ok(response);
        }
    }

    async fn hint(&self) -> Advanced {
        loop {
            if let Some((hint, _)) = self.hints.lock().pop_front() {
                return hint;
            }
            let mut connection = self.connection.lock().await;
            let Some(socket) = connection.as_mut() else {
                if self.attached.lock().iter().all(Option::is_none) {
                    drop(connection);
                    return std::future::pending().await;
                }
                self.pause().await;
                let anything = Request::Subscribe(SubscribeRequest::default());
                if let Ok(socket) = self.open(&anything).await {
                    *connection = Some(socket);
                }
                continue;
            };
            let is_whole = match socket.next().await {
                Ok(Some(frame)) => self.read(&frame).is_ok(),
                Ok(None) | Err(_) => false,
            };
            if !is_whole {
                self.broke(&mut connection);
            }
        }
    }

    fn limits(&self) -> Option<Limits> {
        self.limits.lock().clone()
    }

    fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_feed_protocol::{Block, BlocksPushed, Data, Token};

    fn transport() -> SocketTransport {
        let space = Id::parse("s").unwrap();
        SocketTransport::new(&Server::new("ws://h"), &space, Env::real()).unwrap()
    }

    /// Blocks that the server sends by itself, up to a position, of so many bytes.
    fn pushed(position: u64, bytes: usize) -> Frame {
        let block = r#"{"feedId":"f","position":1,"sequence":0,"actorId":"a","data":""}"#;
        let block: Block = Encoding::Json.decode(block.as_bytes()).unwrap();
        let message = Advanced::BlocksPushed(BlocksPushed {
            space_id: Id::parse("s").unwrap(),
            subscription_id: Id::parse("own").unwrap(),
            after: position - 1,
            blocks: vec![Block { position: Some(position), data: Data::from(vec![7; bytes]), ..block }],
            position,
            server_token: Token::from_random(1),
            check: None,
        });
        Frame::binary(Encoding::Cbor.encode(&message).unwrap())
    }

    /// What waits to be looked at: up to which position, and whether the blocks are there.
    fn waiting(transport: &SocketTransport) -> Vec<(u64, bool)> {
        let shown = |(message, _): &(Advanced, usize)| match message {
            Advanced::FeedAdvanced(hint) => (hint.position, false),
            Advanced::BlocksPushed(pushed) => (pushed.position, true),
        };
        transport.hints.lock().iter().map(shown).collect()
    }

    #[tokio::test]
    async fn of_pushed_blocks_so_many_bytes_wait_and_of_the_others_that_there_is_something() {
        let (transport, mebi) = (transport(), 1024 * 1024);
        // Three fit with what a message has beside the data, and a small one finds room after a large one did not.
        for (position, bytes) in [(1, mebi), (2, mebi), (3, mebi), (4, mebi), (5, mebi / 2), (6, mebi)] {
            transport.read(&pushed(position, bytes)).unwrap();
        }
        let kept = [(1, true), (2, true), (3, true), (4, false), (5, true), (6, false)];
        assert_eq!(waiting(&transport), kept);
        // What is looked at makes room again.
        assert!(matches!(transport.hint().await, Advanced::BlocksPushed(first) if first.position == 1));
        transport.read(&pushed(7, mebi)).unwrap();
        assert_eq!(waiting(&transport)[5], (7, true));
    }

    #[test]
    fn so_many_messages_wait() {
        let transport = transport();
        for position in 1..100 {
            transport.read(&pushed(position, 1)).unwrap();
        }
        let first: Vec<(u64, bool)> = (1..=16).map(|position| (position, true)).collect();
        assert_eq!(waiting(&transport), first);
    }
}
