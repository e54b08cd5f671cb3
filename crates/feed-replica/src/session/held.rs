//! Feeds that are held up: the authority has a block of theirs that it can't read, and gives nothing of them from there on.
//!
//! What it gives of several feeds at once is in one order, and a cursor that went past such a block would claim to have it.
//! So the feed leaves the tail and is asked for by itself, one such feed at a time and each time later, until it is given
//! again; everything else goes on. That is lost with the process, and found again.

use std::collections::VecDeque;

use super::Kind;
use crate::lanes::Lane;
use crate::schedule::Retry;

/// The feeds of a space that are held up.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// In the order in which they are tried: number, name and why.
    feeds: VecDeque<(i64, String, String)>,
    pub(super) retry: Retry,
}

impl Held {
    pub(crate) fn contains(&self, feed: i64) -> bool {
        self.feeds.iter().any(|(held, ..)| *held == feed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.feeds.is_empty()
    }

    /// Holds a feed, or notes that it still is.
    pub(super) fn hold(&mut self, feed: i64, name: &str, reason: &str) {
        self.feeds.retain(|(held, ..)| *held != feed);
        self.feeds.push_back((feed, name.to_owned(), reason.to_owned()));
    }

    /// Feeds of which something was given again; whether any was held.
    pub(super) fn release(&mut self, feeds: &[i64]) -> bool {
        let before = self.feeds.len();
        self.feeds.retain(|(held, ..)| !feeds.contains(held));
        let has_changed = self.feeds.len() < before;
        if has_changed {
            self.retry.succeed();
        }
        has_changed
    }

    /// Forgets those that are not wanted any more, or from their beginning.
    pub(super) fn retain(&mut self, lanes: &[Lane]) {
        let is_lane = |feed: i64| lanes.iter().any(|lane| lane.feed == feed && lane.pulled_to.is_some());
        self.feeds.retain(|(held, ..)| is_lane(*held));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The feed whose turn it is to be tried.
    pub(super) fn due(&self, now_ms: u64) -> Option<i64> {
        if self.retry.not_before_ms > now_ms {
            return None;
        }
        self.feeds.front().map(|(feed, ..)| *feed)
    }

    /// When one is tried again.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        (!self.feeds.is_empty()).then_some(self.retry.not_before_ms)
    }

    /// Which are held up and why, in a line.
    pub(super) fn reason(&self) -> Option<String> {
        let (_, name, reason) = self.feeds.front()?;
        Some(match self.feeds.len() {
            1 => format!("feed `{name}` is held up: {reason}"),
            more => format!("feed `{name}` and {} more are held up: {reason}", more - 1),
        })
    }
}

/// The feeds that a request for a page is about.
pub(super) fn feeds_of(kind: &Kind) -> &[i64] {
    match kind {
        Kind::Tail { feeds, .. } | Kind::Behind { feeds, .. } => feeds,
        _ => &[],
    }
}
