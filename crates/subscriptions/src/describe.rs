//! Subscriptions as documents: what they are, and what a wake tells of their streams.

use std::borrow::Cow;

use alluvium_protocol::subscription::{Kind, name_of};
use alluvium_protocol::{Offset, offset};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::book::Link;
use crate::core::Core;
use crate::delivery::Cursor;
use crate::http::{JWKS_PATH, SUBSCRIPTIONS_PATH};
use crate::options::{LISTED_STREAMS_MAX, WAKE_STREAMS_MAX};
use crate::subscription::Subscription;

/// How far a link is read, as documents say it.
fn acked_offset(link: &Link) -> String {
    link.acked.map_or_else(|| offset::START.to_owned(), |acked| acked.to_string())
}

fn link_type(link: &Link) -> &'static str {
    if link.explicit { "explicit" } else { "glob" }
}

impl Core {
    /// The URL that a subscription's own paths begin with.
    pub(crate) fn subscription_url(&self, subscription: &Subscription) -> String {
        let base = self.options.public_url.as_deref().unwrap_or(&subscription.created.origin);
        format!("{base}{SUBSCRIPTIONS_PATH}{}", encoded(subscription.id()))
    }

    /// A subscription, with its first streams.
    pub(crate) fn describe(&self, subscription: &Subscription, origin: &str) -> Bytes {
        self.describe_page(subscription, origin, None, LISTED_STREAMS_MAX)
    }

    /// A subscription, with `limit` of its streams after the name `after`.
    pub(crate) fn describe_page(
        &self,
        subscription: &Subscription,
        origin: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Bytes {
        let config = &subscription.created.config;
        let base = self.options.public_url.as_deref().unwrap_or(origin);
        let mut streams: Vec<(Cow<'_, str>, &Link)> = subscription
            .links
            .by_stream
            .iter()
            .filter_map(|(stream, link)| Some((name_of(self.book.path(*stream)?)?, link)))
            .filter(|(name, _)| after.is_none_or(|after| **name > *after))
            .collect();
        let limit = limit.clamp(1, LISTED_STREAMS_MAX);
        let has_more = streams.len() > limit;
        if has_more {
            streams.select_nth_unstable_by(limit, |a, b| a.0.cmp(&b.0));
            streams.truncate(limit);
        }
        streams.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let stream = |(name, link): &(Cow<'_, str>, &Link)| json!({ "path": name, "link_type": link_type(link), "acked_offset": acked_offset(link) });
        let streams: Vec<Value> = streams.iter().map(stream).collect();
        let signing = || {
            json!({
                "alg": "ed25519",
                "kid": self.keys.key_id(self.now_ms()),
                "jwks_url": format!("{base}{JWKS_PATH}"),
            })
        };
        let webhook = config.webhook_url.as_ref().map(|url| json!({ "url": url, "signing": signing() }));
        let state = &subscription.state;
        let next_attempt = (state.failures > 0).then(|| time(state.not_before_ms));
        let document = json!({
            "id": subscription.id(),
            "subscription_id": subscription.id(),
            "type": if config.kind == Kind::Webhook { "webhook" } else { "pull-wake" },
            "pattern": config.pattern,
            "streams": streams,
            "streams_total": subscription.links.by_stream.len(),
            "has_more": has_more,
            "webhook": webhook,
            "wake_stream": config.wake_stream,
            "lease_ttl_ms": config.lease_ttl_ms,
            "created_at": time(subscription.created.created_ms),
            "status": if state.failures > 0 { "failed" } else { "active" },
            "next_attempt_at": next_attempt,
            "generation": state.generation,
            "description": config.description,
        });
        Bytes::from(document.to_string())
    }

    /// What a wake tells of streams: those with something new, beginning after the last that was told of, and, as far as
    /// there is room, the others. And how far the former are read once the worker is done.
    pub(crate) fn told_streams(&mut self, place: u32) -> (Vec<Value>, Vec<Cursor>) {
        let pending = self.pending_numbers(place, WAKE_STREAMS_MAX);
        let last = pending.last().copied();
        let Some(subscription) = self.at(place) else { return (Vec::new(), Vec::new()) };
        let quiet = subscription
            .links
            .by_stream
            .keys()
            .copied()
            .filter(|stream| !subscription.links.pending.contains(stream))
            .take(WAKE_STREAMS_MAX - pending.len());
        let streams: Vec<u32> = pending.into_iter().chain(quiet).collect();
        let (mut told, mut covers) = (Vec::new(), Vec::new());
        for &stream in &streams {
            let Some((path, link)) = self.book.path(stream).zip(subscription.links.by_stream.get(&stream))
            else {
                continue;
            };
            let end = self.book.end(stream);
            let tail = end.map_or(Offset::ZERO, |end| end.tail);
            let has_pending = subscription.links.pending.contains(&stream);
            told.push(json!({
                "path": name_of(path),
                "link_type": link_type(link),
                "acked_offset": acked_offset(link),
                "tail_offset": tail.to_string(),
                "has_pending": has_pending,
            }));
            if let (Some(end), true) = (end, has_pending) {
                covers.push(Cursor { path: path.clone(), incarnation: end.incarnation, offset: tail });
            }
        }
        if let Some(subscription) = self.at_mut(place) {
            subscription.links.told = last.unwrap_or(subscription.links.told);
            subscription.links.tell(&streams);
        }
        (told, covers)
    }

    /// Streams with something new, each in its turn.
    fn pending_numbers(&self, place: u32, max: usize) -> Vec<u32> {
        let Some(subscription) = self.at(place) else { return Vec::new() };
        let (pending, told) = (&subscription.links.pending, subscription.links.told);
        let after = pending.range(told.saturating_add(1)..);
        after.chain(pending.range(..=told)).copied().take(max).collect()
    }

    /// The name of the stream whose turn it is, of those with something new.
    pub(crate) fn pending_name(&self, place: u32) -> String {
        let first = self.pending_numbers(place, 1).pop();
        let path = first.and_then(|stream| self.book.path(stream));
        path.and_then(name_of).unwrap_or_default().into_owned()
    }
}

/// An id within a URL: one segment of it.
fn encoded(id: &str) -> String {
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 0xf] {
                encoded.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    encoded
}

/// A time as RFC 3339 with milliseconds.
fn time(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::UNIX_EPOCH))
}
