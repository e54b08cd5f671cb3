//! The life of a wake: issued, delivered or announced, claimed, extended, ended; and what fences it (PROTOCOL §7).
//!
//! A [`State`] changes by [`Event`]s alone, which are what a keeper writes down, so that a restart comes to the same
//! state. Decisions are functions of a state, the time, and whether there is pending work; they return events and change
//! nothing.

use serde::{Deserialize, Serialize};

use super::config::Kind;

/// The first delay after a failed delivery, in milliseconds.
pub const RETRY_MS_MIN: u64 = 1_000;
/// The longest, in milliseconds, before jitter.
pub const RETRY_MS_MAX: u64 = 60_000;
/// The share of a delay, in percent, by which it is made longer or shorter at most.
pub const RETRY_JITTER_PERCENT: u64 = 20;

/// Which wake a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fencing {
    /// The wake's own name.
    pub wake_id: String,
    /// Its number among the wakes of the subscription.
    pub generation: u64,
}

/// How far the news of a wake has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// It is to be sent, or under way. After a restart it is sent again: nobody knows whether it arrived.
    Sending,
    /// The receiver has taken it, or it stands in the wake stream.
    Accepted,
    /// It could not be sent; it is tried again at [`State::not_before_ms`].
    Failed,
}

/// What a subscription is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing is under way.
    #[default]
    Idle,
    /// A wake is under way. That of a webhook is its receiver's at once; the other kind has no holder yet.
    Waking {
        /// Which.
        wake_id: String,
        /// When its lease ends, in Unix milliseconds; `None` without a holder.
        until_ms: Option<u64>,
        /// How far it has come.
        delivery: Delivery,
    },
    /// A worker has claimed it.
    Claimed {
        /// Which wake.
        wake_id: String,
        /// The worker, by the name it gave.
        worker: String,
        /// When its lease ends, in Unix milliseconds.
        until_ms: u64,
    },
}

/// A subscription's wakes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The number of the last wake.
    pub generation: u64,
    /// What is under way.
    pub phase: Phase,
    /// Deliveries that failed since the last that did not.
    pub failures: u32,
    /// Before this time, in Unix milliseconds, nothing is sent; set by a failure.
    pub not_before_ms: u64,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A wake was issued.
    Woken {
        /// Its number.
        generation: u64,
        /// Its name.
        wake_id: String,
        /// When its lease ends, of a webhook.
        until_ms: Option<u64>,
    },
    /// Its receiver has taken it, or it stands in the wake stream.
    Accepted {
        /// When its lease ends, of a webhook.
        until_ms: Option<u64>,
    },
    /// It could not be sent.
    Failed {
        /// How often in a row.
        failures: u32,
        /// When to try again.
        not_before_ms: u64,
    },
    /// A worker has claimed it.
    Claimed {
        /// The worker.
        worker: String,
        /// When its lease ends.
        until_ms: u64,
    },
    /// Its holder is there.
    Extended {
        /// When its lease ends.
        until_ms: u64,
    },
    /// It is over: done, released, or its lease has run out.
    Ended,
}

/// What time has brought.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A wake is to be issued: [`State::wake`].
    Wake,
    /// The wake is to be sent again.
    Resend,
    /// The lease has run out: [`Event::Ended`].
    Expire,
}

/// A request is about a wake that is not under way.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wake is not, or no longer, the subscription's")]
pub struct Fenced;

/// Why there is nothing to claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefusal {
    /// Somebody has it.
    #[error("another worker holds the lease")]
    Held {
        /// Who.
        worker: String,
        /// Under which wake.
        generation: u64,
    },
    /// There is no work.
    #[error("the subscription has no pending work")]
    Nothing,
}

impl State {
    /// Takes in a change that was decided now, or is replayed. One that does not fit changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match (event, &mut self.phase) {
            (Event::Woken { generation, wake_id, until_ms }, _) => {
                self.generation = *generation;
                let (wake_id, until_ms) = (wake_id.clone(), *until_ms);
                self.phase = Phase::Waking { wake_id, until_ms, delivery: Delivery::Sending };
            }
            (Event::Accepted { until_ms: later }, phase) => {
                if let Phase::Waking { until_ms, delivery, .. } = phase {
                    (*until_ms, *delivery) = (*later, Delivery::Accepted);
                }
                (self.failures, self.not_before_ms) = (0, 0);
            }
            (Event::Failed { failures, not_before_ms }, phase) => {
                if let Phase::Waking { delivery, .. } = phase {
                    *delivery = Delivery::Failed;
                }
                (self.failures, self.not_before_ms) = (*failures, *not_before_ms);
            }
            (Event::Claimed { worker, until_ms }, Phase::Waking { wake_id, .. }) => {
                let (wake_id, worker, until_ms) = (std::mem::take(wake_id), worker.clone(), *until_ms);
                self.phase = Phase::Claimed { wake_id, worker, until_ms };
            }
            (Event::Extended { until_ms: later }, Phase::Claimed { until_ms, .. }) => *until_ms = *later,
            (Event::Extended { until_ms: later }, Phase::Waking { until_ms, .. }) => *until_ms = Some(*later),
            (Event::Ended, phase) => *phase = Phase::Idle,
            (Event::Claimed { .. } | Event::Extended { .. }, _) => {}
        }
    }

    /// The name of the wake that is under way.
    pub fn wake_id(&self) -> Option<&str> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Waking { wake_id, .. } | Phase::Claimed { wake_id, .. } => Some(wake_id),
        }
    }

    /// The wake that is under way, as requests must name it.
    pub fn fencing(&self) -> Option<Fencing> {
        let wake_id = self.wake_id()?.to_owned();
        Some(Fencing { wake_id, generation: self.generation })
    }

    /// A new wake. The caller has seen that there is work and nothing under way, or ends that with the same breath.
    pub fn wake(&self, kind: Kind, now_ms: u64, lease_ttl_ms: u64, wake_id: String) -> Event {
        let until_ms = (kind == Kind::Webhook).then(|| now_ms.saturating_add(lease_ttl_ms));
        Event::Woken { generation: self.generation + 1, wake_id, until_ms }
    }

    /// What time has brought. A wake that is being sent ends with its delivery: the sender gives up within the lease.
    pub fn due(&self, now_ms: u64, is_pending: bool) -> Option<Due> {
        let may_send = now_ms >= self.not_before_ms;
        match &self.phase {
            Phase::Idle => (is_pending && may_send).then_some(Due::Wake),
            Phase::Waking { delivery: Delivery::Sending, .. } => None,
            Phase::Waking { until_ms, delivery, .. } => {
                let is_over = until_ms.is_some_and(|until_ms| now_ms >= until_ms);
                let is_due_again = *delivery == Delivery::Failed && may_send;
                is_over.then_some(Due::Expire).or(is_due_again.then_some(Due::Resend))
            }
            Phase::Claimed { until_ms, .. } => (now_ms >= *until_ms).then_some(Due::Expire),
        }
    }

    /// When [`due`](Self::due) has to be asked next, in Unix milliseconds; `None` if time alone brings nothing.
    pub fn deadline_ms(&self, is_pending: bool) -> Option<u64> {
        match &self.phase {
            Phase::Idle => is_pending.then_some(self.not_before_ms),
            Phase::Waking { delivery: Delivery::Sending, .. } => None,
            Phase::Waking { delivery: Delivery::Failed, until_ms, .. } => {
                Some(until_ms.unwrap_or(u64::MAX).min(self.not_before_ms))
            }
            Phase::Waking { until_ms, .. } => *until_ms,
            Phase::Claimed { until_ms, .. } => Some(*until_ms),
        }
    }

    /// Notes that the wake is being sent again. Not written down: after a restart it is found to be due again.
    pub fn resend(&mut self) {
        if let Phase::Waking { delivery, .. } = &mut self.phase {
            *delivery = Delivery::Sending;
        }
    }

    /// Whether a delivery is wanted.
    pub fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Waking { delivery: Delivery::Sending, .. })
    }

    /// Whether a request is about the wake that is under way (PROTOCOL §7.3). `token_generation` is that of its token,
    /// which was found to be this subscription's.
    pub fn check(
        &self,
        kind: Kind,
        token_generation: u64,
        request: Option<&Fencing>,
        now_ms: u64,
    ) -> Result<(), Fenced> {
        let is_held = match (&self.phase, kind) {
            (Phase::Waking { delivery: Delivery::Sending, .. }, Kind::Webhook) => true,
            (Phase::Waking { until_ms, .. }, Kind::Webhook) => until_ms.is_some_and(|until| now_ms < until),
            (Phase::Claimed { until_ms, .. }, Kind::PullWake) => now_ms < *until_ms,
            _ => false,
        };
        let is_same = request.is_some_and(|request| {
            request.generation == self.generation && self.wake_id() == Some(&request.wake_id)
        });
        if is_held && is_same && token_generation == self.generation { Ok(()) } else { Err(Fenced) }
    }

    /// A claim. `wake_id` is for the wake that a claim is when none is under way.
    pub fn claim(
        &self,
        now_ms: u64,
        is_pending: bool,
        worker: &str,
        lease_ttl_ms: u64,
        wake_id: String,
    ) -> Result<Vec<Event>, ClaimRefusal> {
        let mut events = Vec::new();
        match &self.phase {
            Phase::Claimed { worker, until_ms, .. } if now_ms < *until_ms => {
                return Err(ClaimRefusal::Held { worker: worker.clone(), generation: self.generation });
            }
            _ if !is_pending => return Err(ClaimRefusal::Nothing),
            Phase::Waking { .. } => {}
            Phase::Idle | Phase::Claimed { .. } => {
                events.push(Event::Woken { generation: self.generation + 1, wake_id, until_ms: None });
            }
        }
        let until_ms = now_ms.saturating_add(lease_ttl_ms);
        events.push(Event::Claimed { worker: worker.to_owned(), until_ms });
        Ok(events)
    }

    /// What comes of a delivery that failed. `random` is any number.
    pub fn failure(&self, now_ms: u64, random: u64) -> Event {
        let failures = self.failures.saturating_add(1);
        let not_before_ms = now_ms.saturating_add(retry_delay_ms(failures, random));
        Event::Failed { failures, not_before_ms }
    }
}

/// How long to wait after this many failures in a row: twice as long each time, up to a minute, and a little more or less
/// so that those who failed together do not come back together.
pub fn retry_delay_ms(failures: u32, random: u64) -> u64 {
    let doublings = failures.saturating_sub(1).min(16);
    let base = (RETRY_MS_MIN << doublings).min(RETRY_MS_MAX);
    let spread = base * RETRY_JITTER_PERCENT / 100;
    base - spread + random % (2 * spread + 1)
}
