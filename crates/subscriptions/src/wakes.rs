//! From a request, a delivery or the time to a decision, and from a durable decision to what it means.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use alluvium_protocol::subscription::{
    Ack, ClaimRefusal, Due, Event, Kind, Phase, WakeRequest, name_of, parse_name,
};
use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

use crate::book::Link;
use crate::command::{Answer, Refusal, What};
use crate::core::Core;
use crate::counters::add;
use crate::delivery::{Cursor, Delivered, Outcome};
use crate::record::{Entry, StoredLink};
use crate::subscription::{Reply, Stage, Step, Subscription};
use crate::write::{self, Purpose, Write};

/// What is decided, and the answer to be given once that is durable.
type Decision = Result<(Vec<Entry>, Answer), Refusal>;

impl Core {
    /// Begins what has waited for a subscription that is free now.
    pub(crate) fn begin(&mut self, place: u32, step: Step) {
        match step {
            Step::Request(what, reply) => self.request(place, what, reply),
            Step::Delivered(delivered) => self.came_back(place, &delivered),
            Step::Announced(is_written) => self.announced(place, is_written),
        }
    }

    fn request(&mut self, place: u32, what: What, reply: Reply) {
        let decision = match what {
            What::Put { config, origin } => self.confirm(place, &config.hash(), &origin),
            What::Get { origin, after, limit } => self.described(place, &origin, after.as_deref(), limit),
            What::Delete => return self.delete(place, reply),
            What::AddStreams(names) => self.add_streams(place, &names),
            What::RemoveStream(path) => self.remove_stream(place, &path),
            What::Claim { worker } => self.claim(place, &worker),
            What::Ack { token, request, is_callback } => self.ack(place, &token, &request, is_callback),
            What::Release { token, request } => self.release(place, &token, &request),
        };
        match decision {
            Ok((entries, answer)) if entries.is_empty() => drop(reply.send(Ok(answer))),
            Ok((entries, answer)) => self.decide(place, entries, Some((reply, Box::new(Ok(answer))))),
            Err(refusal) => {
                if refusal == Refusal::Fenced {
                    add(&self.counters.fenced);
                }
                // A claim that finds no work ends the wake: the next work is news again.
                let is_moot = refusal == Refusal::NoPendingWork
                    && self.at(place).is_some_and(|subscription| subscription.state.phase != Phase::Idle);
                if is_moot {
                    let ended = vec![Entry::Event(Event::Ended)];
                    self.decide(place, ended, Some((reply, Box::new(Err(refusal)))));
                } else {
                    drop(reply.send(Err(refusal)));
                }
            }
        }
    }

    fn confirm(&self, place: u32, hash: &str, origin: &str) -> Decision {
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        if subscription.config_hash != hash {
            return Err(Refusal::Exists);
        }
        Ok((Vec::new(), Answer::Json(StatusCode::OK, self.describe(subscription, origin))))
    }

    fn described(&self, place: u32, origin: &str, after: Option<&str>, limit: usize) -> Decision {
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        let body = self.describe_page(subscription, origin, after, limit);
        Ok((Vec::new(), Answer::Json(StatusCode::OK, body)))
    }

    fn delete(&mut self, place: u32, reply: Reply) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_busy = true;
        let (serial, path, at) = (subscription.serial, subscription.path(), subscription.history.into());
        let future = write::delete(self.engine.clone(), path, at);
        self.writes.push(Write::new(Some((place, serial)), Purpose::Delete(reply), future));
    }

    fn add_streams(&self, place: u32, names: &[String]) -> Decision {
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        let mut links = Vec::new();
        for name in names {
            if subscription.created.config.wake_stream.as_ref() == Some(name) {
                return Err(Refusal::Invalid("a subscription cannot follow its own wake stream".to_owned()));
            }
            let path = parse_name(name).map_err(|error| Refusal::Invalid(error.to_string()))?;
            let number = self.book.number_of(&path);
            match number.and_then(|stream| subscription.links.by_stream.get(&stream)) {
                Some(link) if link.explicit => {}
                Some(link) => links.push(StoredLink::of(&path, &Link { explicit: true, ..*link })),
                None => links.push(StoredLink::of(&path, &self.link_at_tail(&path))),
            }
        }
        let max = self.options.links_max;
        if self.book.links + links.len() > max {
            return Err(Refusal::TooMany(format!("{max} followed streams")));
        }
        let entries = if links.is_empty() { Vec::new() } else { vec![Entry::Links(links)] };
        Ok((entries, Answer::NoContent))
    }

    /// A link by name that begins where the stream ends now.
    pub(crate) fn link_at_tail(&self, path: &StreamPath) -> Link {
        let end = self.engine.end_of(path);
        Link {
            explicit: true,
            glob: false,
            incarnation: end.map(|end| end.incarnation),
            acked: end.map(|end| end.tail),
            is_untold: false,
        }
    }

    fn remove_stream(&self, place: u32, path: &StreamPath) -> Decision {
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        let number = self.book.number_of(path);
        let link = number.and_then(|stream| subscription.links.by_stream.get(&stream));
        let is_explicit = link.is_some_and(|link| link.explicit);
        let unlinked = || Entry::Unlinked(path.as_str().to_owned());
        Ok((is_explicit.then(unlinked).into_iter().collect(), Answer::NoContent))
    }

    fn claim(&mut self, place: u32, worker: &str) -> Decision {
        let (now_ms, wake_id) = (self.now_ms(), self.wake_id());
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        if subscription.kind() != Kind::PullWake {
            return Err(Refusal::Invalid("the subscription is not pull-wake".to_owned()));
        }
        let lease_ttl_ms = subscription.created.config.lease_ttl_ms;
        let claimed =
            subscription.state.claim(now_ms, subscription.is_pending(), worker, lease_ttl_ms, wake_id);
        let events = claimed.map_err(|refusal| match refusal {
            ClaimRefusal::Held { worker, generation } => Refusal::AlreadyClaimed { worker, generation },
            ClaimRefusal::Nothing => Refusal::NoPendingWork,
        })?;
        let mut after = subscription.state.clone();
        for event in &events {
            after.apply(event);
        }
        let id = subscription.id().to_owned();
        let (streams, _) = self.told_streams(place);
        let answer = json!({
            "wake_id": after.wake_id(),
            "generation": after.generation,
            "token": self.keys.token(&id, after.generation, now_ms),
            "streams": streams,
            "lease_ttl_ms": lease_ttl_ms,
        });
        add(&self.counters.claims);
        let answer = Answer::Json(StatusCode::OK, Bytes::from(answer.to_string()));
        Ok((events.into_iter().map(Entry::Event).collect(), answer))
    }

    /// Whether a request is about the wake that is under way.
    fn admitted(
        &self,
        place: u32,
        token: &str,
        request: &WakeRequest,
        kind: Kind,
    ) -> Result<&Subscription, Refusal> {
        let now_ms = self.now_ms();
        let subscription = self.at(place).ok_or(Refusal::NotFound)?;
        if subscription.kind() != kind {
            let wanted = if kind == Kind::Webhook { "a webhook" } else { "pull-wake" };
            return Err(Refusal::Invalid(format!("the subscription is not {wanted}")));
        }
        let generation = self.keys.check_token(token, subscription.id(), now_ms)?;
        subscription
            .state
            .check(kind, generation, request.fencing.as_ref(), now_ms)
            .map_err(|_| Refusal::Fenced)?;
        Ok(subscription)
    }

    fn ack(&mut self, place: u32, token: &str, request: &WakeRequest, is_callback: bool) -> Decision {
        let kind = if is_callback { Kind::Webhook } else { Kind::PullWake };
        let subscription = self.admitted(place, token, request, kind)?;
        let cursors = self.checked(subscription, &request.acks)?;
        let until_ms = self.now_ms().saturating_add(subscription.created.config.lease_ttl_ms);
        let mut entries = Vec::new();
        // Whoever calls back has the webhook, whatever came of sending it.
        let is_news = is_callback && subscription.state.is_sending();
        let extended =
            if is_news { Event::Accepted { until_ms: Some(until_ms) } } else { Event::Extended { until_ms } };
        if is_news || !request.done {
            entries.push(Entry::Event(extended));
        }
        let mut next_wake = false;
        if request.done {
            next_wake = self.finish(place, &cursors, &mut entries);
        } else if !cursors.is_empty() {
            entries.push(Entry::Acked(cursors.iter().map(StoredLink::of_cursor).collect()));
        }
        add(&self.counters.acks);
        let answer = json!({ "ok": true, "next_wake": next_wake });
        Ok((entries, Answer::Json(StatusCode::OK, Bytes::from(answer.to_string()))))
    }

    fn release(&mut self, place: u32, token: &str, request: &WakeRequest) -> Decision {
        self.admitted(place, token, request, Kind::PullWake)?;
        let mut entries = Vec::new();
        self.finish(place, &[], &mut entries);
        Ok((entries, Answer::NoContent))
    }

    /// Ends the wake with these streams read, and begins the next if there is something left. Tells whether.
    fn finish(&self, place: u32, cursors: &[Cursor], entries: &mut Vec<Entry>) -> bool {
        let Some(subscription) = self.at(place) else { return false };
        if !cursors.is_empty() {
            entries.push(Entry::Acked(cursors.iter().map(StoredLink::of_cursor).collect()));
        }
        entries.push(Entry::Event(Event::Ended));
        let read: HashMap<u32, Offset> = cursors
            .iter()
            .filter_map(|cursor| Some((self.book.number_of(&cursor.path)?, cursor.offset)))
            .collect();
        let is_left = subscription.links.pending.iter().any(|stream| {
            let tail = self.book.end(*stream).map_or(0, |end| end.tail.position);
            read.get(stream).is_none_or(|offset| offset.position < tail)
        });
        if is_left {
            entries.push(Entry::Event(self.next_wake(subscription)));
        }
        is_left
    }

    fn next_wake(&self, subscription: &Subscription) -> Event {
        let lease_ttl_ms = subscription.created.config.lease_ttl_ms;
        subscription.state.wake(subscription.kind(), self.now_ms(), lease_ttl_ms, self.wake_id())
    }

    /// Acknowledgements as cursors. One that cannot be refuses all; one of a stream that is gone, with another in its place
    /// that nobody was told of, means nothing.
    fn checked(&self, subscription: &Subscription, acks: &[Ack]) -> Result<Vec<Cursor>, Refusal> {
        let one = |ack: &Ack| {
            let unknown =
                || Refusal::InvalidOffset("an acknowledged stream is not the subscription's".to_owned());
            let path = ack.stream.as_ref().ok_or_else(unknown)?;
            let stream = self.book.number_of(path).ok_or_else(unknown)?;
            let link = subscription.links.by_stream.get(&stream).ok_or_else(unknown)?;
            if link.is_untold {
                return Ok(None);
            }
            let name = || name_of(path).unwrap_or_default().into_owned();
            let offset = ack.offset.ok_or_else(|| {
                Refusal::InvalidOffset(format!("no offset of `{}` was acknowledged", name()))
            })?;
            let end = self.book.end(stream);
            if link.acked.is_some_and(|acked| offset < acked) {
                return Err(Refusal::InvalidOffset(format!("`{}` is read further already", name())));
            }
            let end = end
                .filter(|end| {
                    offset.position <= end.tail.position && offset.append_index <= end.tail.append_index
                })
                .ok_or_else(|| Refusal::InvalidOffset(format!("`{}` does not reach that far", name())))?;
            Ok(Some(Cursor { path: path.clone(), incarnation: end.incarnation, offset }))
        };
        acks.iter().map(one).filter_map(Result::transpose).collect()
    }

    fn came_back(&mut self, place: u32, delivered: &Delivered) {
        let now_ms = self.now_ms();
        let random = self.env.random.next_u64();
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_sending = false;
        let subscription = &*subscription;
        let is_current = subscription.state.fencing().as_ref() == Some(&delivered.delivery.fencing);
        let lease_ttl_ms = subscription.created.config.lease_ttl_ms;
        let accepted = Event::Accepted { until_ms: Some(now_ms.saturating_add(lease_ttl_ms)) };
        match delivered.outcome {
            Outcome::Failed(class) if is_current && subscription.state.is_sending() => {
                let failure = subscription.state.failure(now_ms, random);
                tracing::warn!(subscription = subscription.id(), class = class.name(), "a webhook failed");
                self.decide(place, vec![Entry::Event(failure)], None);
            }
            Outcome::Accepted { done: true } if is_current => {
                let mut entries = vec![Entry::Event(accepted)];
                let cursors = self.still_there(place, &delivered.delivery.covers);
                self.finish(place, &cursors, &mut entries);
                self.decide(place, entries, None);
            }
            Outcome::Accepted { .. } if is_current && subscription.state.is_sending() => {
                self.decide(place, vec![Entry::Event(accepted)], None);
            }
            // The wake was over before its webhook was.
            Outcome::Failed(_) | Outcome::Accepted { .. } => {}
        }
    }

    /// Those of the cursors that are of streams still followed, and not behind what is read.
    fn still_there(&self, place: u32, covers: &[Cursor]) -> Vec<Cursor> {
        let Some(subscription) = self.at(place) else { return Vec::new() };
        let is_there = |cursor: &&Cursor| {
            let stream = self.book.number_of(&cursor.path);
            let link = stream.and_then(|stream| subscription.links.by_stream.get(&stream));
            link.is_some_and(|link| {
                link.incarnation == Some(cursor.incarnation)
                    && link.acked.is_none_or(|acked| acked < cursor.offset)
            })
        };
        covers.iter().filter(is_there).cloned().collect()
    }

    fn announced(&mut self, place: u32, is_written: bool) {
        let (now_ms, random) = (self.now_ms(), self.env.random.next_u64());
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_sending = false;
        if !subscription.state.is_sending() {
            // It was claimed meanwhile.
            return;
        }
        let event = if is_written {
            Event::Accepted { until_ms: None }
        } else {
            subscription.state.failure(now_ms, random)
        };
        self.decide(place, vec![Entry::Event(event)], None);
    }

    /// Does what time has brought, and sends what is to be sent. After a failed write neither, for a while: what came of
    /// sending could not be written down either, and it would be sent again and again.
    pub(crate) fn tick(&mut self, place: u32, now_ms: u64) {
        let Some(subscription) = self.at_mut(place) else { return };
        if subscription.stage != Stage::Installed || now_ms < subscription.blocked_until_ms {
            return;
        }
        let is_pending = subscription.is_pending();
        match subscription.state.due(now_ms, is_pending) {
            None => {}
            Some(Due::Resend) => subscription.state.resend(),
            Some(Due::Wake) => {
                let Some(subscription) = self.at(place) else { return };
                let wake = Entry::Event(self.next_wake(subscription));
                return self.decide(place, vec![wake], None);
            }
            Some(Due::Expire) => {
                let may_send = now_ms >= subscription.state.not_before_ms;
                add(&self.counters.leases_expired);
                let mut entries = Vec::new();
                if may_send {
                    self.finish(place, &[], &mut entries);
                } else {
                    entries.push(Entry::Event(Event::Ended));
                }
                return self.decide(place, entries, None);
            }
        }
        if self.at(place).is_some_and(Subscription::wants_to_send) {
            self.send(place);
        }
    }

    /// Takes in a durable decision.
    pub(crate) fn apply(&mut self, place: u32, entry: Entry) {
        match entry {
            Entry::Event(event) => self.apply_event(place, &event),
            Entry::Acked(cursors) => {
                for cursor in cursors {
                    self.apply_cursor(place, &cursor);
                }
            }
            Entry::Links(links) => {
                for link in links {
                    let Some(path) = link.path() else { continue };
                    let end = self.engine.end_of(&path);
                    let Some((subscription, book)) = self.with_book(place) else { return };
                    let glob = end.is_some() && subscription.is_meant(&path);
                    let (incarnation, acked) = (link.incarnation(), link.offset());
                    let new = Link { explicit: true, glob, incarnation, acked, is_untold: false };
                    book.link((place, &mut subscription.links), &path, end, new, |link| link.explicit = true);
                }
                self.count();
            }
            Entry::Unlinked(key) => {
                let stream = StreamPath::from_key(&key).and_then(|path| self.book.number_of(&path));
                let Some((subscription, book)) = self.with_book(place) else { return };
                let Some(stream) = stream else { return };
                if let Some(link) = subscription.links.by_stream.get_mut(&stream) {
                    link.explicit = false;
                    book.meet((place, &mut subscription.links), stream);
                }
                self.count();
            }
            // These begin a history, and are not taken in but read.
            Entry::Created(_) | Entry::State(_) => {}
        }
    }

    fn apply_event(&mut self, place: u32, event: &Event) {
        let Some(subscription) = self.at_mut(place) else { return };
        let had = holds_lease(&subscription.state.phase);
        subscription.state.apply(event);
        let has = holds_lease(&subscription.state.phase);
        match (had, has) {
            (false, true) => drop(self.counters.leases.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.counters.leases.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        if matches!(event, Event::Woken { .. }) {
            add(&self.counters.wakes);
        }
    }

    fn apply_cursor(&mut self, place: u32, cursor: &StoredLink) {
        let stream = cursor.path().and_then(|path| self.book.number_of(&path));
        let (Some(stream), Some(offset)) = (stream, cursor.offset()) else { return };
        let Some((subscription, book)) = self.with_book(place) else { return };
        let Some(link) = subscription.links.by_stream.get_mut(&stream) else { return };
        if link.incarnation == cursor.incarnation() {
            link.acked = Some(link.acked.map_or(offset, |acked| acked.max(offset)));
            book.meet((place, &mut subscription.links), stream);
        }
    }
}

/// Whether somebody holds a lease.
pub(crate) fn holds_lease(phase: &Phase) -> bool {
    match phase {
        Phase::Idle => false,
        Phase::Waking { until_ms, .. } => until_ms.is_some(),
        Phase::Claimed { .. } => true,
    }
}
