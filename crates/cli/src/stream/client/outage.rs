//! Waiting for an unavailable server: the one place of the client that sleeps, looks at a clock and draws
//! random numbers.

use std::time::{Duration, Instant};

use super::Trouble;
use super::retry::RetryPolicy;
use crate::stream::failure::Failure;
use crate::stream::notes::Notes;

/// The failures since the server last answered.
#[derive(Debug)]
pub(crate) struct Outage {
    policy: RetryPolicy,
    notes: Notes,
    failures: u32,
    began: Option<Instant>,
}

impl Outage {
    pub(crate) fn new(policy: RetryPolicy, notes: Notes) -> Self {
        Self { policy, notes, failures: 0, began: None }
    }

    /// Waits before the next attempt, or fails when the outage has lasted too long.
    pub(crate) fn wait(&mut self, trouble: &Trouble) -> Result<(), Failure> {
        let lasted = now() - *self.began.get_or_insert_with(now);
        self.failures = self.failures.saturating_add(1);
        let Some(wait) = self.policy.wait(self.failures, lasted, trouble.retry_after, random()) else {
            return Err(Failure::Unavailable(format!(
                "{}; gave up after {} s and {} attempts",
                trouble.cause,
                lasted.as_secs(),
                self.failures
            )));
        };
        if self.failures == 1 {
            let limit = match self.policy.give_up_after() {
                Some(limit) => format!(" for {} s", limit.as_secs()),
                None => String::new(),
            };
            self.notes.note(format_args!("{}; trying again{limit}", trouble.cause));
        }
        pause(wait);
        Ok(())
    }

    /// Whether any attempt has failed since the server last answered.
    pub(crate) fn is_on(&self) -> bool {
        self.failures > 0
    }

    /// A short pause between requests that a healthy server answers at once without news.
    pub(crate) fn breathe(&self) {
        if let Some(wait) = self.policy.wait(1, Duration::ZERO, None, random()) {
            pause(wait);
        }
    }

    /// Says that the server is back, if it was away.
    pub(crate) fn note_end(&self) {
        if let Some(began) = self.began {
            let lasted = (now() - began).as_secs();
            self.notes.note(format_args!("the server answers again, after {lasted} s"));
        }
    }

    /// The server answered as it should: a later failure starts a new outage.
    pub(crate) fn over(&mut self) {
        self.note_end();
        self.failures = 0;
        self.began = None;
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge of the program: nothing here is simulated")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the edge of the program: the wait is for a server elsewhere")]
fn pause(wait: Duration) {
    std::thread::sleep(wait);
}

/// Without randomness the jitter is lost, and nothing else.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX)
}
