//! What a response or connection that stays open rests on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::access::Inner;
use crate::counters::Counters;
use crate::refusal::Refusal;
use crate::routes::Need;
use crate::{Access, Caller};

/// The longest sleep until the clock is looked at again, which may have been set.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);

/// A caller's leave to go on, for as long as its credentials are good for what it was let in for. Found among the
/// extensions of a request.
#[derive(Clone)]
pub struct Lease {
    access: Access,
    token: Option<Arc<str>>,
    need: Need,
    caller: Arc<Caller>,
    news: watch::Receiver<u64>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("caller", &self.caller.name)
            .field("need", &self.need)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// `news` is from before the decision, so that no change after it is missed.
    pub(crate) fn new(
        access: Access,
        token: Option<Arc<str>>,
        need: Need,
        caller: Arc<Caller>,
        news: watch::Receiver<u64>,
    ) -> Self {
        Self { access, token, need, caller, news }
    }

    /// The caller, as it was when it was let in.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether the caller may do something of what it was let in for. Not so for whoever has presented nothing yet where
    /// credentials may come later.
    pub fn holds(&self) -> bool {
        Inner::may(&self.caller, &self.need).is_ok()
    }

    /// The same leave for whoever has another token, which came later on the same connection; `None` if there is none.
    pub fn exchange(&self, token: &str) -> Option<Self> {
        let news = self.access.news();
        let caller = self.access.decide(Some(token), &self.need).ok()?;
        Some(Self::new(self.access.clone(), Some(token.into()), self.need.clone(), caller, news))
    }

    /// Waits until the caller may not do any more what it was let in for.
    pub async fn lost(self) {
        self.refused().await;
    }

    /// As [`lost`](Self::lost), and says why.
    pub(crate) async fn refused(mut self) -> Refusal {
        loop {
            self.changed().await;
            match self.access.decide(self.token.as_deref(), &self.need) {
                Ok(caller) => self.caller = caller,
                Err(refusal) => {
                    Counters::one(&self.access.inner().counters.leases_ended);
                    return refusal;
                }
            }
        }
    }

    /// Waits until the caller may do anything else than before: for connections on which it may ask for many things.
    pub async fn altered(mut self) {
        loop {
            self.changed().await;
            match self.access.decide(self.token.as_deref(), &self.need) {
                Ok(caller) if caller == self.caller => {}
                Ok(_) | Err(_) => {
                    Counters::one(&self.access.inner().counters.leases_ended);
                    return;
                }
            }
        }
    }

    /// Waits until something may have changed.
    async fn changed(&mut self) {
        let clock = Arc::clone(&self.access.inner().env.clock);
        let expires_ms = self.caller.expires_ms;
        let expired = async {
            let Some(expires_ms) = expires_ms else { return std::future::pending().await };
            loop {
                let left = Duration::from_millis(expires_ms.saturating_sub(clock.now_ms()));
                if left.is_zero() {
                    return;
                }
                sleep(left.min(LOOK_AT_CLOCK)).await;
            }
        };
        tokio::select! {
            () = expired => {}
            changed = self.news.changed() => if changed.is_err() {
                // Nobody is left who could change anything.
                std::future::pending::<()>().await;
            },
        }
    }
}
