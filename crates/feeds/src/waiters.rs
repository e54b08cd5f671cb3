//! Queries that are held back until there is something: who is woken by a commit, and who is not.
//!
//! What a commit has moved is compared in memory with what each one waits for, so that a store with a thousand readers
//! is asked by those only whom the commit concerns. Those who then ask for the same page share one look at the store.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use alluvium_feed_protocol::{Id, Namespace, QueryRequest, QueryResponse, RequestId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::hub::{Interest, News};
use crate::space::Space;

/// Pages that are read at this moment and may be shared; more are read each for itself.
const SHARED_MAX: usize = 64;

#[derive(Debug, Default)]
struct Table {
    next: u64,
    waiting: HashMap<u64, (Option<Interest>, Arc<Notify>)>,
}

/// The waiting queries of one space. How many there may be is the transport's to say.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Table>);

impl Waiters {
    /// Wakes those whom a commit concerns, and those who don't know yet what concerns them.
    pub(crate) fn publish(&self, news: &News<'_>) {
        for (interest, bell) in self.0.lock().waiting.values() {
            if interest.as_ref().is_none_or(|interest| news.concerns(interest)) {
                bell.notify_one();
            }
        }
    }

    /// Wakes those who wait by a subscription that has changed or ended.
    pub(crate) fn wake_subscription(&self, subscription: &Id) {
        self.wake(|interest| interest.subscription.as_ref() == Some(subscription));
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&self) {
        self.wake(|_| true);
    }

    fn wake(&self, is_concerned: impl Fn(&Interest) -> bool) {
        for (interest, bell) in self.0.lock().waiting.values() {
            if interest.as_ref().is_none_or(&is_concerned) {
                bell.notify_one();
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }
}

/// One waiting query; it stops to be one when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    space: Arc<Space>,
    number: u64,
    bell: Arc<Notify>,
}

impl Waiting {
    /// Begins to wait, for anything at first: nothing that is committed from now on is missed.
    pub(crate) fn new(space: &Arc<Space>) -> Self {
        let bell = Arc::new(Notify::new());
        let mut table = space.waiters.0.lock();
        table.next += 1;
        let number = table.next;
        table.waiting.insert(number, (None, Arc::clone(&bell)));
        drop(table);
        Self { space: Arc::clone(space), number, bell }
    }

    /// Waits until a commit concerns the interest.
    pub(crate) async fn news(&self, interest: Interest) {
        if let Some((known, _)) = self.space.waiters.0.lock().waiting.get_mut(&self.number) {
            *known = Some(interest);
        }
        self.bell.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.space.waiters.0.lock().waiting.remove(&self.number);
    }
}

/// A page, and what one waits for who finds it empty.
pub(crate) type Looked = (QueryResponse, Interest);

/// The place of a page that is being read. Empty inside if that failed.
type Cell = OnceLock<Option<Looked>>;

/// What makes two queries the same: the question, what the caller may see, and the state of the space.
#[derive(Debug, Eq, PartialEq)]
struct Question {
    request: QueryRequest,
    bound_to: Option<Vec<Namespace>>,
    generation: u64,
}

/// Pages that are being read. Held by their readers alone: nothing is kept after them.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<Vec<(Question, Weak<Cell>)>>);

impl Readings {
    /// The place for the answer to a question; the same for all who ask it at once.
    pub(crate) fn join(
        &self,
        request: &QueryRequest,
        bound_to: Option<&Vec<Namespace>>,
        generation: u64,
    ) -> Arc<Cell> {
        let request = QueryRequest { request_id: RequestId::default(), wait_ms: None, ..request.clone() };
        let question = Question { request, bound_to: bound_to.cloned(), generation };
        let mut readings = self.0.lock();
        readings.retain(|(_, cell)| cell.strong_count() > 0);
        let known = readings.iter().find(|(known, _)| *known == question);
        if let Some(cell) = known.and_then(|(_, cell)| cell.upgrade()) {
            return cell;
        }
        let cell = Arc::new(Cell::new());
        if readings.len() < SHARED_MAX {
            readings.push((question, Arc::downgrade(&cell)));
        }
        cell
    }
}
