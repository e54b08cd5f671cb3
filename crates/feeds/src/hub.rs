//! Hints: who listens to which feeds of a space, and what each has not been told yet.
//!
//! A listener holds at most one pending hint for each of its subscriptions; what happens meanwhile is merged into it. So
//! a stuck reader costs a bounded amount of memory and holds up nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

use alluvium_feed_protocol::limits::HINT_FEEDS_MAX;
use alluvium_feed_protocol::{FeedAdvanced, Id, Namespace};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Most hints that one listener has waiting, one for each subscription. What goes beyond is lost, as hints may be.
const PENDING_MAX: usize = 1024;

/// A feed that has moved.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) feed: i64,
    pub(crate) feed_id: Id,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) position: u64,
}

/// Which feeds a subscription, or a query that waits, is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest {
    pub(crate) all: bool,
    /// Feeds by number.
    pub(crate) feeds: HashSet<i64>,
    /// Feeds by name, there or not.
    pub(crate) names: HashSet<Id>,
    pub(crate) namespaces: Vec<Namespace>,
    /// Of those, only feeds of these namespaces.
    pub(crate) within: Option<Vec<Namespace>>,
    /// Namespaces that the subscriber is bound to.
    pub(crate) bound_to: Option<Vec<Namespace>>,
    /// The subscription that this comes from, for one that waits.
    pub(crate) subscription: Option<Id>,
    pub(crate) expires_at: u64,
}

impl Interest {
    fn covers(&self, moved: &Moved) -> bool {
        let namespace = moved.namespace.as_ref();
        let is_among = |allowed: &Option<Vec<Namespace>>| {
            let among = |allowed: &Vec<Namespace>| namespace.is_some_and(|one| allowed.contains(one));
            allowed.as_ref().is_none_or(among)
        };
        let is_wanted = self.all
            || self.feeds.contains(&moved.feed)
            || self.names.contains(&moved.feed_id)
            || namespace.is_some_and(|namespace| self.namespaces.contains(namespace));
        is_wanted && is_among(&self.within) && is_among(&self.bound_to)
    }
}

/// The feeds that a commit has moved, found by whichever side is shorter: a thousand subscribers of a feed or two must
/// not make a commit of many feeds long, nor the other way round.
#[derive(Debug)]
pub(crate) struct News<'a> {
    moved: &'a [Moved],
    by_number: HashMap<i64, &'a Moved>,
    by_name: HashMap<&'a Id, &'a Moved>,
}

impl<'a> News<'a> {
    pub(crate) fn new(moved: &'a [Moved]) -> Self {
        let by_number = moved.iter().map(|moved| (moved.feed, moved)).collect();
        let by_name = moved.iter().map(|moved| (&moved.feed_id, moved)).collect();
        Self { moved, by_number, by_name }
    }

    /// What of it concerns an interest.
    fn of(&self, interest: &Interest) -> Vec<&'a Moved> {
        let listed = interest.feeds.len() + interest.names.len();
        if interest.all || !interest.namespaces.is_empty() || listed > self.moved.len() {
            return self.moved.iter().filter(|moved| interest.covers(moved)).collect();
        }
        let numbered = interest.feeds.iter().filter_map(|feed| self.by_number.get(feed));
        let named = interest.names.iter().filter_map(|name| self.by_name.get(name));
        numbered.chain(named).copied().filter(|moved| interest.covers(moved)).collect()
    }

    /// Whether any of it does.
    pub(crate) fn concerns(&self, interest: &Interest) -> bool {
        !self.of(interest).is_empty()
    }
}

/// The receiving end of hints: one for each connection, for all its subscriptions in all spaces.
#[derive(Debug, Default)]
pub struct Listener {
    pending: Mutex<BTreeMap<(Id, Id), Pending>>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    position: u64,
    feeds: BTreeSet<Id>,
    /// Feeds beyond those that are named.
    more: u64,
}

impl Listener {
    /// A listener that hears nothing yet: subscribe through it.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<FeedAdvanced> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let hints = pending.into_iter().map(|((space_id, subscription_id), pending)| FeedAdvanced {
            space_id,
            subscription_id,
            position: pending.position,
            count: pending.feeds.len() as u64 + pending.more,
            feed_ids: pending.feeds.into_iter().collect(),
        });
        hints.collect()
    }

    /// Waits until there is something to take.
    pub async fn ready(&self) {
        loop {
            let rung = self.bell.notified();
            if !self.pending.lock().is_empty() {
                return;
            }
            rung.await;
        }
    }

    fn merge(&self, space: &Id, subscription: &Id, moved: &[&Moved]) {
        self.change(space, subscription, |pending| {
            for moved in moved {
                pending.position = pending.position.max(moved.position);
                if pending.feeds.len() < HINT_FEEDS_MAX {
                    pending.feeds.insert(moved.feed_id.clone());
                } else if !pending.feeds.contains(&moved.feed_id) {
                    pending.more += 1;
                }
            }
        });
    }

    /// A hint that names no feed.
    fn stir(&self, space: &Id, subscription: &Id, position: u64) {
        self.change(space, subscription, |pending| pending.position = pending.position.max(position));
    }

    fn change(&self, space: &Id, subscription: &Id, change: impl FnOnce(&mut Pending)) {
        let mut all = self.pending.lock();
        let key = (space.clone(), subscription.clone());
        if all.len() >= PENDING_MAX && !all.contains_key(&key) {
            return;
        }
        change(all.entry(key).or_default());
        drop(all);
        self.bell.notify_one();
    }
}

/// The listeners of one space.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    live: Mutex<HashMap<Id, (Interest, Weak<Listener>)>>,
}

impl Hub {
    /// Lets a listener hear of a subscription's feeds, in place of whoever did before.
    pub(crate) fn attach(&self, subscription: &Id, interest: Interest, listener: &Arc<Listener>) {
        self.live.lock().insert(subscription.clone(), (interest, Arc::downgrade(listener)));
    }

    /// A subscription that has ended.
    pub(crate) fn detach(&self, subscription: &Id) {
        self.live.lock().remove(subscription);
    }

    /// Tells everyone concerned; forgets those that are gone. Called after the commit.
    pub(crate) fn publish(&self, space: &Id, news: &News<'_>, now_ms: u64) {
        self.live.lock().retain(|subscription, (interest, listener)| {
            let Some(listener) = listener.upgrade().filter(|_| interest.expires_at > now_ms) else {
                return false;
            };
            let concerned = news.of(interest);
            if !concerned.is_empty() {
                listener.merge(space, subscription, &concerned);
            }
            true
        });
    }

    /// Has everyone ask again, who then finds out that the space is no more, and forgets them. The position is one that
    /// nobody has seen.
    pub(crate) fn end(&self, space: &Id, position: u64) {
        for (subscription, (_, listener)) in self.live.lock().drain() {
            if let Some(listener) = listener.upgrade() {
                listener.stir(space, &subscription, position);
            }
        }
    }

    /// Whether somebody hears of a subscription's feeds.
    pub(crate) fn has(&self, subscription: &Id) -> bool {
        self.live.lock().get(subscription).is_some_and(|(_, listener)| listener.strong_count() > 0)
    }

    /// How many subscriptions have a listener.
    pub(crate) fn listeners(&self) -> usize {
        let mut live = self.live.lock();
        live.retain(|_, (_, listener)| listener.strong_count() > 0);
        live.len()
    }
}
