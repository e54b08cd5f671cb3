//! Making a subscription: its links begin where its streams end now.

use alluvium_protocol::subscription::{Config, Kind, name_of, parse_name};
use alluvium_protocol::{Incarnation, Offset};
use bytes::Bytes;
use http::StatusCode;

use crate::book::Link;
use crate::command::{Answer, Refusal, What};
use crate::core::Core;
use crate::record::{Created, Entry, RECORD_LINKS_MAX, Record, StoredLink};
use crate::subscription::{History, Reply, Subscription};
use crate::target::check_target;
use crate::write::{self, Purpose, Write};

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
        if !self.fill(place) {
            self.remove(place);
            let max = self.options.links_max;
            drop(reply.send(Err(Refusal::TooMany(format!("{max} followed streams")))));
            return;
        }
        let records = self.first_records(place);
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_busy = true;
        subscription.history.bytes = records.iter().map(|record| record.len() as u64).sum();
        let (serial, path) = (subscription.serial, subscription.path());
        let future = write::create(self.engine.clone(), path, records);
        self.writes.push(Write::new(Some((place, serial)), Purpose::Create(Some(reply)), future));
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

    /// Links what there is. Tells whether there was room.
    fn fill(&mut self, place: u32) -> bool {
        let Some(subscription) = self.at(place) else { return false };
        let config = &subscription.created.config;
        let mut links: Vec<_> = config
            .streams
            .iter()
            .filter_map(|name| parse_name(name).ok())
            .map(|path| (self.link_at_tail(&path), self.engine.end_of(&path), path))
            .collect();
        if subscription.pattern.is_some() {
            let room = self.options.links_max.saturating_sub(self.book.links).saturating_add(1);
            self.engine.for_each_stream(|path, end| {
                let is_meant = name_of(path).is_some_and(|name| subscription.is_meant(&name));
                if is_meant && links.len() <= room {
                    let (incarnation, acked) = (Some(end.incarnation), Some(end.tail));
                    let link = Link { explicit: false, glob: true, incarnation, acked };
                    links.push((link, Some(end), path.clone()));
                }
            });
        }
        if self.book.links + links.len() > self.options.links_max {
            return false;
        }
        for (link, end, path) in links {
            let Some((subscription, book)) = self.with_book(place) else { return false };
            book.link((place, &mut subscription.links), &path, end, link, |known| {
                known.explicit |= link.explicit;
                known.glob |= link.glob;
            });
        }
        self.count();
        true
    }

    /// The records that begin a history. What has nothing to be read again is found again without them.
    fn first_records(&self, place: u32) -> Vec<Bytes> {
        let Some(subscription) = self.at(place) else { return Vec::new() };
        let links: Vec<StoredLink> = subscription
            .links
            .by_stream
            .iter()
            .filter(|(_, link)| link.explicit || link.acked.is_some_and(|acked| acked > Offset::ZERO))
            .filter_map(|(stream, link)| Some(StoredLink::of(self.book.path(*stream)?, link)))
            .collect();
        let mut records: Vec<Vec<Entry>> =
            links.chunks(RECORD_LINKS_MAX).map(|links| vec![Entry::Links(links.to_vec())]).collect();
        let created = Entry::Created(Box::new(subscription.created.clone()));
        match records.last_mut() {
            Some(last) => last.push(created),
            None => records.push(vec![created]),
        }
        records.into_iter().map(|entries| Bytes::from(Record::to_bytes(entries))).collect()
    }

    /// A subscription's creation is durable.
    pub(crate) fn installed(&mut self, place: u32, reply: Option<Reply>) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_installed = true;
        let Some(subscription) = self.at(place) else { return };
        let body = self.describe(subscription, &subscription.created.origin);
        if let Some(reply) = reply {
            drop(reply.send(Ok(Answer::Json(StatusCode::CREATED, body))));
        }
    }
}
