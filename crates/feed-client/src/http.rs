//! Requests over HTTP/1.1: `POST`, in CBOR, over connections that are kept.
//!
//! The HTTP client blocks, so each call has a thread for its time. A call whose future is dropped goes on there until it
//! is answered or times out, and nobody looks at what came of it.

pub(crate) mod exchange;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use alluvium_env::Env;
use alluvium_feed_protocol::{Advanced, FeedAdvanced, Id, Limits, Push, Request, Response, SubscribeRequest};
use alluvium_feed_replica::{CallError, CallErrorKind, Transport};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::exchange::Exchange;
use self::wait::{Wait, Watch};
use crate::server::{Hints, Server, ServerError};

/// Hints that wait to be looked at. More are dropped: each only says that there is something.
const HINTS_MAX: usize = 16;

/// A way to a server over HTTP. One for each space that is synchronised.
#[derive(Debug)]
pub struct HttpTransport {
    exchange: Arc<Exchange>,
    hints: Hints,
    env: Env,
    waits: Mutex<Waits>,
    /// Until when there is no use in hints about replicated feeds, and about others.
    held_ms: [Arc<AtomicU64>; 2],
    sender: mpsc::Sender<FeedAdvanced>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<FeedAdvanced>>,
}

/// The requests that wait at the server: for the replicated feeds, and for whatever selectors may pick.
#[derive(Debug, Default)]
struct Waits {
    feeds: Option<Wait>,
    all: Option<Wait>,
}

impl HttpTransport {
    /// A transport to a server. Nothing is sent yet.
    pub fn new(server: &Server, env: Env) -> Result<Self, ServerError> {
        let (sender, receiver) = mpsc::channel(HINTS_MAX);
        Ok(Self {
            exchange: Arc::new(Exchange::new(server)?),
            hints: server.hints,
            env,
            waits: Mutex::default(),
            held_ms: Default::default(),
            sender,
            receiver: tokio::sync::Mutex::new(receiver),
        })
    }

    /// Waits for news about a subscription that was just made, changed or renewed.
    fn follow(&self, space: &Id, asked: &SubscribeRequest, answer: &Response) {
        let Response::Subscribe(answer) = answer else { return };
        if self.hints == Hints::Poll || asked.push == Some(Push::None) {
            return;
        }
        let mut waits = self.waits.lock();
        let [of_feeds, of_all] = &self.held_ms;
        let (place, held_ms) =
            if asked.all == Some(true) { (&mut waits.all, of_all) } else { (&mut waits.feeds, of_feeds) };
        if place.as_ref().is_some_and(|wait| wait.is_for(&answer.subscription_id)) {
            return;
        }
        let watch = Watch {
            space: space.clone(),
            subscription: answer.subscription_id.clone(),
            after: answer.max_position,
            hints: self.sender.clone(),
            held_ms: Arc::clone(held_ms),
        };
        *place = Wait::start(Arc::clone(&self.exchange), self.env.clone(), watch);
    }
}

impl Transport for HttpTransport {
    async fn prepare(&self, space: &Id) {
        if !self.exchange.wants_greeting() {
            return;
        }
        let (sender, receiver) = oneshot::channel();
        let (exchange, named) = (Arc::clone(&self.exchange), space.clone());
        let greet = move || {
            exchange.greet(&named);
            // Whoever waited may have gone.
            let _waited = sender.send(());
        };
        // Without a thread the request that follows says so.
        if thread::Builder::new().name("feed-greeting".to_owned()).spawn(greet).is_ok() {
            drop(receiver.await);
        }
    }

    async fn call(&self, space: &Id, request: Request) -> Result<Response, CallError> {
        let subscribe = if let Request::Subscribe(request) = &request { Some(request.clone()) } else { None };
        let (sender, receiver) = oneshot::channel();
        let (exchange, named) = (Arc::clone(&self.exchange), space.clone());
        let call = move || drop(sender.send(exchange.call(&named, &request)));
        let unsent = |text: String| CallError::new(CallErrorKind::Unsent, text);
        let started = thread::Builder::new().name("feed-call".to_owned()).spawn(call);
        started.map_err(|error| unsent(error.to_string()).because(error))?;
        let answer = receiver.await.map_err(|_| unsent("the call broke off".to_owned()))??;
        if let Some(subscribe) = subscribe {
            self.follow(space, &subscribe, &answer);
        }
        Ok(answer)
    }

    async fn hint(&self) -> Advanced {
        match self.receiver.lock().await.recv().await {
            Some(hint) => Advanced::FeedAdvanced(hint),
            // It holds a sender itself, so this does not happen.
            None => std::future::pending().await,
        }
    }

    fn hold_hints(&self, until_ms: [u64; 2]) {
        for (held_ms, until_ms) in self.held_ms.iter().zip(until_ms) {
            held_ms.store(until_ms, Ordering::Release);
        }
    }

    fn limits(&self) -> Option<Limits> {
        self.exchange.limits()
    }

    fn is_live(&self) -> bool {
        let waits = self.waits.lock();
        self.hints == Hints::Wait && [&waits.feeds, &waits.all].into_iter().flatten().all(Wait::is_live)
    }
}
