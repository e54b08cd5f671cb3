//! Hints over HTTP: a query that the server holds back until there is something to give.
//!
//! What it gives is not used but to say that there is something: the replica pulls by its own cursor. So a hint that is
//! lost, late or doubled costs time and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feed_protocol::{
    ClientAction, FeedAdvanced, Id, QueryRequest, QueryResponse, Request, RequestId, Response,
};
use tokio::sync::mpsc;

use super::exchange::Exchange;

/// How much longer than the wait itself its answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// The first pause after a failure, in milliseconds; the real one is drawn below it, and the bound doubles.
const PAUSE_MS_MIN: u64 = 250;
/// The longest pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 30_000;
/// Empty answers that came at once, in a row, after which the server counts as one that doesn't wait.
const EARLY_MAX: u32 = 3;

/// A thread that waits for news about one subscription. It ends, at the latest with its next answer, when this is dropped.
#[derive(Debug)]
pub(super) struct Wait {
    subscription: Id,
    is_live: Arc<AtomicBool>,
    /// Never sent to: the thread notices that it is gone.
    _alive: SyncSender<()>,
}

impl Wait {
    /// Starts to wait for what comes after a position. `None` if there can be no thread for it; the replica then polls.
    pub(super) fn start(
        exchange: Arc<Exchange>,
        env: Env,
        (space, subscription): (Id, Id),
        after: u64,
        hints: mpsc::Sender<FeedAdvanced>,
    ) -> Option<Self> {
        let is_live = Arc::new(AtomicBool::new(true));
        let (alive, stop) = sync_channel(0);
        let waiter = Waiter {
            exchange,
            env,
            space,
            subscription: subscription.clone(),
            after,
            hints,
            stop,
            is_live: Arc::clone(&is_live),
            failures: 0,
            early: 0,
        };
        thread::Builder::new().name("feed-wait".to_owned()).spawn(move || waiter.run()).ok()?;
        Some(Self { subscription, is_live, _alive: alive })
    }

    /// Whether it waits for news about this subscription, and has not given up.
    pub(super) fn is_for(&self, subscription: &Id) -> bool {
        self.subscription == *subscription && self.is_live()
    }

    /// Whether news would be heard of at the moment.
    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
    }
}

struct Waiter {
    exchange: Arc<Exchange>,
    env: Env,
    space: Id,
    subscription: Id,
    after: u64,
    hints: mpsc::Sender<FeedAdvanced>,
    stop: Receiver<()>,
    is_live: Arc<AtomicBool>,
    failures: u32,
    early: u32,
}

impl Waiter {
    fn run(mut self) {
        while self.stop.try_recv() == Err(TryRecvError::Empty) {
            let began_ms = self.env.clock.now_ms();
            let answer =
                self.exchange.call_within(&self.space, &self.question(), self.exchange.wait + ANSWER_TIME);
            let is_over = match answer {
                Ok(Response::Query(page)) => self.take(&page, began_ms),
                Ok(Response::Error(error)) => match error.action() {
                    ClientAction::Wait => self.pause(error.retry_after_ms),
                    // The replica has to subscribe again, and finds out when it pulls.
                    ClientAction::Resubscribe => {
                        self.tell(self.after + 1);
                        true
                    }
                    _ => true,
                },
                Ok(_) => true,
                Err(_) => self.pause(None),
            };
            if is_over {
                break;
            }
        }
        self.is_live.store(false, Ordering::Release);
    }

    fn question(&self) -> Request {
        Request::Query(QueryRequest {
            request_id: RequestId::parse("wait").unwrap_or_default(),
            cursor: Some(self.after),
            subscription_id: Some(self.subscription.clone()),
            limit: Some(1),
            max_bytes: Some(1),
            wait_ms: Some(u64::try_from(self.exchange.wait.as_millis()).unwrap_or(u64::MAX)),
            ..QueryRequest::default()
        })
    }

    /// Looks at a page. True if nothing more is to be waited for.
    fn take(&mut self, page: &QueryResponse, began_ms: u64) -> bool {
        self.failures = 0;
        // A server that is set back has something to tell as well.
        let has_news = !page.blocks.is_empty() || page.max_position < self.after;
        self.after = page.max_position;
        if has_news {
            self.early = 0;
            self.is_live.store(true, Ordering::Release);
            return self.tell(page.max_position);
        }
        let waited = Duration::from_millis(self.env.clock.now_ms().saturating_sub(began_ms));
        if waited >= self.exchange.wait / 4 {
            self.early = 0;
            self.is_live.store(true, Ordering::Release);
            return false;
        }
        self.early += 1;
        self.early > EARLY_MAX && self.pause(None)
    }

    /// Gives the hint. True if nobody listens any more.
    fn tell(&self, position: u64) -> bool {
        let hint = FeedAdvanced {
            space_id: self.space.clone(),
            subscription_id: self.subscription.clone(),
            position,
            feed_ids: Vec::new(),
            count: 0,
        };
        matches!(self.hints.try_send(hint), Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Waits after a failure: as long as was told, else a time drawn below a bound that doubles. True if it was stopped
    /// meanwhile.
    fn pause(&mut self, told_ms: Option<u64>) -> bool {
        self.is_live.store(false, Ordering::Release);
        let bound = (PAUSE_MS_MIN << self.failures.min(16)).min(PAUSE_MS_MAX);
        self.failures = self.failures.saturating_add(1);
        let drawn = bound / 10 + self.env.random.next_u64() % (bound - bound / 10);
        let pause_ms = told_ms.map_or(drawn, |told_ms| told_ms + drawn / 4);
        let waited = self.stop.recv_timeout(Duration::from_millis(pause_ms));
        waited == Err(RecvTimeoutError::Disconnected)
    }
}
