//! Hints over HTTP: a query that the server holds back until there is something to give.
//!
//! What it gives is not used but to say that there is something: the replica pulls by its own cursor. So a hint that is
//! lost, late or doubled costs time and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
/// Longest pause that is taken from the server, in milliseconds.
const TOLD_MS_MAX: u64 = 300_000;
/// Answers that came at once and brought nothing, in a row, after which the server counts as one that doesn't wait.
const EARLY_MAX: u32 = 3;
/// Shortest time from one question to the next, in milliseconds. News that come faster are one hint.
const BETWEEN_MS_MIN: u64 = 50;

/// What there is to wait for, and where it is told.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) space: Id,
    pub(super) subscription: Id,
    /// The position that is known: what comes after it is news.
    pub(super) after: u64,
    pub(super) hints: mpsc::Sender<FeedAdvanced>,
    /// Until when the replica looks at no hints: what this server told of before was not there.
    pub(super) held_ms: Arc<AtomicU64>,
}

/// A thread that waits for news about one subscription. It ends, at the latest with its next answer, when this is dropped.
#[derive(Debug)]
pub(super) struct Wait {
    subscription: Id,
    is_live: Arc<AtomicBool>,
    /// Never sent to: the thread notices that it is gone.
    _alive: SyncSender<()>,
}

impl Wait {
    /// Starts to wait. `None` if there can be no thread for it; the replica then polls.
    pub(super) fn start(exchange: Arc<Exchange>, env: Env, watch: Watch) -> Option<Self> {
        let is_live = Arc::new(AtomicBool::new(true));
        let (alive, stop) = sync_channel(0);
        let subscription = watch.subscription.clone();
        let luck = Luck { early: 0, furthest: watch.after };
        let waiter = Waiter { exchange, env, watch, stop, is_live: Arc::clone(&is_live), failures: 0, luck };
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
    watch: Watch,
    stop: Receiver<()>,
    is_live: Arc<AtomicBool>,
    failures: u32,
    luck: Luck,
}

/// What an answer comes to.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Step {
    /// There is something new.
    Tell,
    /// There is not, and the server has waited for it.
    Ask,
    /// The server doesn't wait, or says that there is something new and has come no further: it is left alone for a while.
    Pause,
}

/// How the server has answered of late.
#[derive(Debug)]
struct Luck {
    early: u32,
    /// The highest position that it has told.
    furthest: u64,
}

impl Luck {
    /// What an answer comes to that was asked with `after`; `has_waited` if it took as long as one that was waited for.
    fn step(&mut self, page: &QueryResponse, after: u64, has_waited: bool) -> Step {
        // A server that is set back has something to tell as well.
        let has_news = !page.blocks.is_empty() || page.max_position < after;
        // One that goes back and forth has come no further.
        let has_moved = page.max_position > self.furthest;
        self.furthest = self.furthest.max(page.max_position);
        if has_waited || (has_news && has_moved) {
            self.early = 0;
            return if has_news { Step::Tell } else { Step::Ask };
        }
        self.early += 1;
        match (self.early > EARLY_MAX, has_news) {
            (true, _) => Step::Pause,
            (false, true) => Step::Tell,
            (false, false) => Step::Ask,
        }
    }
}

impl Waiter {
    fn run(mut self) {
        while self.stop.try_recv() == Err(TryRecvError::Empty) {
            if self.is_held() {
                continue;
            }
            let began_ms = self.env.clock.now_ms();
            let answer = self.exchange.call_within(
                &self.watch.space,
                &self.question(),
                self.exchange.wait + ANSWER_TIME,
            );
            let is_over = match answer {
                Ok(Response::Query(page)) => self.take(&page, began_ms),
                Ok(Response::Error(error)) => match error.action() {
                    ClientAction::Wait => self.pause(error.retry_after_ms),
                    // The replica has to subscribe again, and finds out when it pulls.
                    ClientAction::Resubscribe => {
                        self.tell(self.watch.after + 1);
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

    /// Sleeps as long as there is no use in hints. Whether it had to.
    fn is_held(&self) -> bool {
        let held_ms = self.watch.held_ms.load(Ordering::Acquire).saturating_sub(self.env.clock.now_ms());
        if held_ms > 0 {
            // Whoever ends this is noticed right after it.
            let _ended = self.stop.recv_timeout(Duration::from_millis(held_ms));
        }
        held_ms > 0
    }

    fn question(&self) -> Request {
        Request::Query(QueryRequest {
            request_id: RequestId::parse("wait").unwrap_or_default(),
            cursor: Some(self.watch.after),
            subscription_id: Some(self.watch.subscription.clone()),
            limit: Some(1),
            max_bytes: Some(1),
            wait_ms: Some(u64::try_from(self.exchange.wait.as_millis()).unwrap_or(u64::MAX)),
            ..QueryRequest::default()
        })
    }

    /// Looks at a page. True if nothing more is to be waited for.
    fn take(&mut self, page: &QueryResponse, began_ms: u64) -> bool {
        let waited = Duration::from_millis(self.env.clock.now_ms().saturating_sub(began_ms));
        let step = self.luck.step(page, self.watch.after, waited >= self.exchange.wait / 4);
        self.watch.after = page.max_position;
        if step == Step::Pause {
            return self.pause(None);
        }
        self.failures = 0;
        if self.luck.early == 0 {
            self.is_live.store(true, Ordering::Release);
        }
        if step == Step::Ask {
            return false;
        }
        let rest = Duration::from_millis(BETWEEN_MS_MIN).saturating_sub(waited);
        self.tell(page.max_position)
            || (!rest.is_zero() && self.stop.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected))
    }

    /// Gives the hint. True if nobody listens any more.
    fn tell(&self, position: u64) -> bool {
        let hint = FeedAdvanced {
            space_id: self.watch.space.clone(),
            subscription_id: self.watch.subscription.clone(),
            position,
            feed_ids: Vec::new(),
            count: 0,
        };
        matches!(self.watch.hints.try_send(hint), Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Waits after a failure: as long as was told, within reason, else a time drawn below a bound that doubles. True if it was stopped
    /// meanwhile.
    fn pause(&mut self, told_ms: Option<u64>) -> bool {
        self.is_live.store(false, Ordering::Release);
        let bound = (PAUSE_MS_MIN << self.failures.min(16)).min(PAUSE_MS_MAX);
        self.failures = self.failures.saturating_add(1);
        let drawn = bound / 10 + self.env.random.next_u64() % (bound - bound / 10);
        let pause_ms = told_ms.map_or(drawn, |told_ms| told_ms.min(TOLD_MS_MAX) + drawn / 4);
        let waited = self.stop.recv_timeout(Duration::from_millis(pause_ms));
        waited == Err(RecvTimeoutError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_feed_protocol::{Encoding, Token};

    fn page(max_position: u64, has_block: bool) -> QueryResponse {
        let block = r#"{"feedId":"f","position":1,"sequence":0,"actorId":"a","data":""}"#;
        let blocks =
            if has_block { vec![Encoding::Json.decode(block.as_bytes()).unwrap()] } else { Vec::new() };
        QueryResponse {
            blocks,
            max_position,
            next_cursor: max_position,
            server_token: Token::from_random(1),
            ..Encoding::Json
                .decode(br#"{"requestId":"r","blocks":[],"nextCursor":0,"hasMore":false,"serverToken":"t","maxPosition":0}"#)
                .unwrap()
        }
    }

    /// The steps after answers that tell these positions one after the other, from a position on.
    fn steps(positions: [u64; 5], has_block: bool, after: u64, has_waited: bool) -> Vec<Step> {
        let (mut luck, mut after) = (Luck { early: 0, furthest: after }, after);
        let step = |position| {
            let step = luck.step(&page(position, has_block), after, has_waited);
            after = position;
            step
        };
        positions.into_iter().map(step).collect()
    }

    #[test]
    fn a_server_that_waits_is_asked_at_once_and_news_are_told() {
        assert_eq!(steps([5; 5], false, 5, true), [Step::Ask; 5]);
        assert_eq!(steps([6, 7, 9, 10, 11], true, 5, false), [Step::Tell; 5]);
    }

    #[test]
    fn a_server_that_answers_at_once_and_gets_nowhere_is_left_alone() {
        let asked = [Step::Ask, Step::Ask, Step::Ask, Step::Pause, Step::Pause];
        let told = [Step::Tell, Step::Tell, Step::Tell, Step::Pause, Step::Pause];
        assert_eq!(steps([5; 5], false, 5, false), asked, "nothing");
        assert_eq!(steps([5; 5], true, 5, false), told, "the same again");
        assert_eq!(steps([9; 5], false, 5, false), asked, "something of others");
        assert_eq!(steps([8, 7, 6, 5, 4], false, 9, false), told, "set back again and again");
        assert_eq!(steps([4, 5, 4, 5, 4], true, 5, false), told, "back and forth");
    }
}
