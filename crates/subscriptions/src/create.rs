//! Making a subscription: whether it may be, and when it is. What it follows is found by [`backfill`](crate::backfill).

use alluvium_protocol::subscription::{Config, Kind};
use alluvium_protocol::{Incarnation, Offset};
use http::StatusCode;

use crate::command::{Answer, Refusal, What};
use crate::core::Core;
use crate::record::Created;
use crate::subscription::{History, Reply, Stage, Subscription};
use crate::target::check_target;

impl Core {
    /// Answers a request about a subscription that is not there.
    pub(crate) fn without_subscription(&mut self, id: String, what: What, reply: Reply) {
        match what {
            What::Put { config, origin } => self.create(id, *config, origin, reply),
            What::Delete => drop(reply.send(Ok(Answer::NoContent))),
            _ => drop(reply.send(Err(Refusal::NotFound))),
        }
    }

    fn create(&mut self, id: String, config: Config, origin: String, reply: Reply) {
        let max = self.options.subscriptions_max;
        if self.by_id.len() >= max {
            drop(reply.send(Err(Refusal::TooMany(format!("{max} subscriptions")))));
            return;
        }
        if let (Kind::Webhook, Some(url)) = (config.kind, &config.webhook_url)
            && let Err(error) = check_target(url, self.options.webhook_loopback)
        {
            drop(reply.send(Err(Refusal::Target(error))));
            return;
        }
        let created = Created { id, config, origin, created_ms: self.now_ms() };
        let history =
            History { incarnation: Incarnation(0), tail: Offset::ZERO, bytes: 0, snapshot_bytes: 0 };
        let place = self.insert(created, history);
        self.begin_backfill(place, reply);
    }

    /// Takes a subscription into memory, without links.
    pub(crate) fn insert(&mut self, created: Created, history: History) -> u32 {
        let serial = self.next_serial;
        self.next_serial += 1;
        let subscription = Box::new(Subscription::new(serial, created, history));
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        self.by_id.insert(subscription.id().to_owned(), place);
        if let Some(pattern) = &subscription.pattern {
            self.patterns.insert(pattern, place);
        }
        self.places[place as usize] = Some(subscription);
        self.count();
        place
    }

    /// A subscription's creation is durable.
    pub(crate) fn installed(&mut self, place: u32, reply: Option<Reply>) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.stage = Stage::Installed;
        let Some(subscription) = self.at(place) else { return };
        let body = self.describe(subscription, &subscription.created.origin);
        if let Some(reply) = reply {
            drop(reply.send(Ok(Answer::Json(StatusCode::CREATED, body))));
        }
    }
}
