//! Whose webhook is sent next.
//!
//! There are so many turns at a time. Those whose last attempt failed get at most half of them: receivers that are down,
//! and take their time about it, must not keep the others waiting.

use std::collections::VecDeque;
use std::time::Duration;

use alluvium_protocol::subscription::Kind;
use bytes::Bytes;
use serde_json::json;

use crate::core::Core;
use crate::counters::{add, set};
use crate::delivery::Delivery;
use crate::write::{self, Purpose, Write};

/// Turns, and who waits for one.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    fresh: VecDeque<(u32, u64)>,
    retries: VecDeque<(u32, u64)>,
    in_flight: usize,
    retries_in_flight: usize,
}

impl Sender {
    /// A webhook came back.
    pub(crate) fn returned(&mut self, delivery: &Delivery) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.retries_in_flight = self.retries_in_flight.saturating_sub(usize::from(delivery.is_retry));
    }

    fn next(&mut self, turns: usize) -> Option<((u32, u64), bool)> {
        if self.in_flight >= turns {
            return None;
        }
        let may_retry = self.retries_in_flight < turns.div_ceil(2);
        let next = match self.fresh.pop_front() {
            Some(place) => (place, false),
            None if may_retry => (self.retries.pop_front()?, true),
            None => return None,
        };
        self.in_flight += 1;
        self.retries_in_flight += usize::from(next.1);
        Some(next)
    }
}

impl Core {
    /// Sends what a subscription has to send, or lets it wait for a turn.
    pub(crate) fn send(&mut self, place: u32) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_sending = true;
        let (serial, is_retry) = (subscription.serial, subscription.state.failures > 0);
        match subscription.kind() {
            Kind::PullWake => self.announce(place),
            Kind::Webhook if is_retry => self.sender.retries.push_back((place, serial)),
            Kind::Webhook => self.sender.fresh.push_back((place, serial)),
        }
    }

    fn announce(&mut self, place: u32) {
        let now_ms = self.now_ms();
        let stream = self.pending_name(place);
        let Some(subscription) = self.at(place) else { return };
        let wake_stream = subscription.created.config.wake_stream.as_deref().unwrap_or_default();
        let event = json!({
            "type": "wake",
            "subscription_id": subscription.id(),
            "stream": stream,
            "generation": subscription.state.generation,
            "ts": now_ms,
        });
        let place = Some((place, subscription.serial));
        let Ok(path) = alluvium_protocol::subscription::parse_name(wake_stream) else { return };
        let future = write::announce(self.engine.clone(), path, event.to_string().into_bytes());
        self.writes.push(Write::new(place, Purpose::Announce, future));
    }

    /// The webhooks whose turn it is. Each must come back through [`delivered`](Self::delivered).
    pub fn take_deliveries(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while let Some(((place, serial), is_retry)) = self.sender.next(self.deliveries_max()) {
            if let Some(delivery) = self.delivery(place, serial, is_retry) {
                if is_retry {
                    add(&self.counters.retries);
                }
                deliveries.push(delivery);
                continue;
            }
            self.sender.in_flight -= 1;
            self.sender.retries_in_flight -= usize::from(is_retry);
            if let Some(subscription) =
                self.at_mut(place).filter(|subscription| subscription.serial == serial)
            {
                subscription.is_sending = false;
            }
        }
        set(&self.counters.in_flight, self.sender.in_flight);
        set(&self.counters.queued, self.sender.fresh.len() + self.sender.retries.len());
        deliveries
    }

    /// The webhook of the wake that is under way; `None` if there is none any more.
    fn delivery(&mut self, place: u32, serial: u64, is_retry: bool) -> Option<Delivery> {
        let now_ms = self.now_ms();
        let subscription = self.at(place).filter(|subscription| subscription.serial == serial)?;
        let fencing = subscription.state.fencing().filter(|_| subscription.state.is_sending())?;
        let (streams, covers) = self.told_streams(place);
        let subscription = self.at(place)?;
        let id = subscription.id();
        let base = self.subscription_url(subscription);
        let body = json!({
            "subscription_id": id,
            "wake_id": fencing.wake_id,
            "generation": fencing.generation,
            "streams": streams,
            "callback_url": format!("{base}/callback"),
            "callback_token": self.keys.token(id, fencing.generation, now_ms),
        });
        let body = Bytes::from(body.to_string());
        let lease = Duration::from_millis(subscription.created.config.lease_ttl_ms);
        Some(Delivery {
            place: (place, serial),
            url: subscription.created.config.webhook_url.clone()?,
            signature: self.keys.sign(now_ms, &body)?,
            timeout: lease.min(self.options.webhook_timeout),
            fencing,
            covers,
            is_retry,
            body,
        })
    }
}
