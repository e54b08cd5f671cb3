//! What a subscription that is being made finds: its links begin where its streams end, and are written down with it.
//!
//! Done a slice at a time, so that nobody waits while it looks at very many streams. Until it has looked at all of them,
//! a link goes along with the end of its stream; so it is as if all ends had been looked at in the moment in which the
//! last one was, and a stream that came meanwhile had been there before.

use std::collections::VecDeque;

use alluvium_engine::PathWalk;
use alluvium_protocol::subscription::{Pattern, parse_name};
use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;

use crate::book::Link;
use crate::command::Refusal;
use crate::core::Core;
use crate::record::{Entry, Record, StoredLink};
use crate::subscription::{Reply, Stage};
use crate::write::{self, Purpose, Write};

/// A subscription that is being made.
#[derive(Debug)]
pub(crate) struct Backfill {
    place: u32,
    serial: u64,
    reply: Reply,
    /// Streams that are to be looked at, and whether they are followed by name.
    single: VecDeque<(StreamPath, bool)>,
    /// Those among which its pattern means some.
    walk: Option<PathWalk>,
    /// What it follows and has not written down; `None` until it has looked at everything.
    unwritten: Option<VecDeque<u32>>,
    /// Of that, what comes into the next record.
    links: Vec<StoredLink>,
    records: Vec<Bytes>,
}

impl Core {
    /// Begins to look for what a subscription means, and is through with it if that is little.
    pub(crate) fn begin_backfill(&mut self, place: u32, reply: Reply) {
        let Some(subscription) = self.at_mut(place) else { return };
        (subscription.is_busy, subscription.stage) = (true, Stage::Looking);
        let serial = subscription.serial;
        let explicit = subscription.created.config.streams.iter();
        let explicit = explicit.filter_map(|name| parse_name(name).ok()).map(|path| (path, true));
        let reach = subscription.pattern.as_ref().map(Pattern::reach);
        let (path, below) = reach.map(|reach| (reach.path, reach.below)).unwrap_or_default();
        let backfill = Backfill {
            place,
            serial,
            reply,
            single: explicit.chain(path.map(|path| (path, false))).collect(),
            walk: below.map(|below| PathWalk::over(&below)),
            unwritten: None,
            links: Vec::new(),
            records: Vec::new(),
        };
        self.go_on(backfill);
    }

    /// Whether [`run`](Self::run) has something to do at once: streams that a new subscription has not looked at.
    pub fn is_looking(&self) -> bool {
        !self.backfills.is_empty()
    }

    /// Goes on with the one whose turn it is.
    pub(crate) fn backfill(&mut self) {
        if let Some(backfill) = self.backfills.pop_front() {
            self.go_on(backfill);
        }
    }

    /// Does a slice of the work, and the writing if it was the last.
    fn go_on(&mut self, mut backfill: Backfill) {
        if self.at(backfill.place).is_none_or(|subscription| subscription.serial != backfill.serial) {
            return;
        }
        let mut left = self.options.looks_max.max(1);
        while left > 0 {
            match self.slice(&mut backfill, left) {
                Ok(Some(looked)) => left = left.saturating_sub(looked),
                Ok(None) => return self.write_first(backfill),
                Err(refusal) => {
                    self.remove(backfill.place);
                    drop(backfill.reply.send(Err(refusal)));
                    return;
                }
            }
        }
        self.backfills.push_back(backfill);
    }

    /// Looks at `max` streams at most. Returns at how many; `None` if there is nothing left to do.
    fn slice(&mut self, backfill: &mut Backfill, max: usize) -> Result<Option<usize>, Refusal> {
        let place = backfill.place;
        if !backfill.single.is_empty() {
            let looked = max.min(backfill.single.len());
            for (path, explicit) in backfill.single.drain(..looked) {
                self.begin_link(place, &path, explicit)?;
            }
            return Ok(Some(looked));
        }
        if let Some(walk) = &mut backfill.walk {
            let paths = self.engine.next_paths(walk, max);
            if !paths.is_empty() {
                paths.iter().try_for_each(|path| self.begin_link(place, path, false))?;
                return Ok(Some(paths.len()));
            }
            backfill.walk = None;
        }
        let Some(unwritten) = &mut backfill.unwritten else {
            let Some(subscription) = self.at_mut(place) else { return Ok(None) };
            subscription.stage = Stage::Made;
            backfill.unwritten = Some(subscription.links.by_stream.keys().copied().collect());
            return Ok(Some(0));
        };
        if unwritten.is_empty() {
            return Ok(None);
        }
        let streams: Vec<u32> = unwritten.drain(..max.min(unwritten.len())).collect();
        let links = self.stored_links(place, &streams);
        if !links.is_empty() {
            let before = std::mem::replace(&mut backfill.links, links);
            if !before.is_empty() {
                backfill.records.push(Record::to_bytes(vec![Entry::Links(before)]).into());
            }
        }
        Ok(Some(streams.len()))
    }

    /// Links a stream at its end, if it is named or there is one that the pattern means.
    fn begin_link(&mut self, place: u32, path: &StreamPath, explicit: bool) -> Result<(), Refusal> {
        let is_meant = self.at(place).is_some_and(|subscription| subscription.is_meant(path));
        if !explicit && !is_meant {
            return Ok(());
        }
        let end = self.engine.end_of(path);
        let glob = is_meant && end.is_some();
        if !explicit && !glob {
            return Ok(());
        }
        let max = self.options.links_max;
        let Some((subscription, book)) = self.with_book(place) else { return Ok(()) };
        let links = &mut subscription.links;
        let is_linked = book.number_of(path).is_some_and(|stream| links.by_stream.contains_key(&stream));
        if !is_linked && book.links >= max {
            return Err(Refusal::TooMany(format!("{max} followed streams")));
        }
        let (incarnation, acked) = (end.map(|end| end.incarnation), end.map(|end| end.tail));
        let new = Link { explicit, glob, incarnation, acked, is_untold: false };
        book.link((place, links), path, end, new, |link| {
            *link = Link { explicit: link.explicit || explicit, ..new };
        });
        Ok(())
    }

    /// Links as they are written down. What has nothing to be read again is found again without.
    fn stored_links(&self, place: u32, streams: &[u32]) -> Vec<StoredLink> {
        let Some(subscription) = self.at(place) else { return Vec::new() };
        let link = |stream: &u32| {
            let link = subscription.links.by_stream.get(stream)?;
            let is_needed = link.explicit || link.acked.is_some_and(|acked| acked > Offset::ZERO);
            is_needed.then(|| Some(StoredLink::of(self.book.path(*stream)?, link)))?
        };
        streams.iter().filter_map(link).collect()
    }

    /// Writes everything down; the record that makes it count comes last.
    fn write_first(&mut self, backfill: Backfill) {
        let Backfill { place, serial, reply, links, mut records, .. } = backfill;
        self.count();
        let Some(subscription) = self.at_mut(place) else { return };
        let links = (!links.is_empty()).then_some(Entry::Links(links));
        let created = Entry::Created(Box::new(subscription.created.clone()));
        records.push(Record::to_bytes(links.into_iter().chain([created]).collect()).into());
        subscription.history.bytes = records.iter().map(|record| record.len() as u64).sum();
        let path = subscription.path();
        let future = write::create(self.engine.clone(), path, records);
        self.writes.push(Write::new(Some((place, serial)), Purpose::Create(Some(reply)), future));
    }
}
