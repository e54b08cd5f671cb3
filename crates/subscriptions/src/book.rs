//! Which subscription follows which stream, and how far it has come.
//!
//! A stream is here once, under a number, however many follow it; a link is a few words.

use std::collections::{BTreeSet, HashMap};

use alluvium_engine::StreamEnd;
use alluvium_protocol::{Incarnation, Offset, StreamPath};

/// How a subscription follows a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// By name. Stays when the stream goes.
    pub(crate) explicit: bool,
    /// By pattern.
    pub(crate) glob: bool,
    /// Which stream was there when it was last looked at.
    pub(crate) incarnation: Option<Incarnation>,
    /// Up to where that is read; `None` for nothing.
    pub(crate) acked: Option<Offset>,
    /// No worker was told of the stream that is there since it came in place of another: what is acknowledged now is
    /// still of that one.
    pub(crate) is_untold: bool,
}

impl Link {
    /// Takes note of what is at the path now. What was read of another stream there means nothing. Returns whether the
    /// link stays.
    fn meet(&mut self, end: Option<StreamEnd>) -> bool {
        let present = end.map(|end| end.incarnation);
        if self.incarnation != present {
            self.is_untold |= self.incarnation.is_some();
            (self.incarnation, self.acked) = (present, None);
            self.glob &= present.is_some();
        }
        self.explicit || self.glob
    }

    /// Whether there is something to read.
    fn is_pending(&self, end: Option<StreamEnd>) -> bool {
        let acked = self.acked.unwrap_or(Offset::ZERO);
        end.is_some_and(|end| end.tail.position > acked.position)
    }
}

/// The streams of one subscription, by number.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) by_stream: HashMap<u32, Link>,
    pub(crate) pending: BTreeSet<u32>,
    /// The last pending one that a wake told of: the next wake begins after it, so that each has its turn.
    pub(crate) told: u32,
}

impl Links {
    /// Takes note that a worker is told of these streams, as they are now.
    pub(crate) fn tell(&mut self, streams: &[u32]) {
        for stream in streams {
            if let Some(link) = self.by_stream.get_mut(stream) {
                link.is_untold = false;
            }
        }
    }
}

/// A stream that somebody follows.
#[derive(Debug)]
struct Followed {
    path: StreamPath,
    end: Option<StreamEnd>,
    /// The stream that was last shown to every pattern.
    matched: Option<Incarnation>,
    /// Places of subscriptions.
    followers: Vec<u32>,
}

/// All streams that somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Book {
    numbers: HashMap<StreamPath, u32>,
    streams: Vec<Option<Followed>>,
    free: Vec<u32>,
    /// Links in all.
    pub(crate) links: usize,
}

impl Book {
    pub(crate) fn number_of(&self, path: &StreamPath) -> Option<u32> {
        self.numbers.get(path).copied()
    }

    fn followed(&self, stream: u32) -> Option<&Followed> {
        self.streams.get(stream as usize)?.as_ref()
    }

    pub(crate) fn path(&self, stream: u32) -> Option<&StreamPath> {
        self.followed(stream).map(|followed| &followed.path)
    }

    pub(crate) fn end(&self, stream: u32) -> Option<StreamEnd> {
        self.followed(stream)?.end
    }

    pub(crate) fn followers(&self, stream: u32) -> Vec<u32> {
        self.followed(stream).map(|followed| followed.followers.clone()).unwrap_or_default()
    }

    /// Every path that is followed.
    pub(crate) fn paths(&self) -> Vec<StreamPath> {
        self.numbers.keys().cloned().collect()
    }

    /// Notes where a stream ends now.
    pub(crate) fn set_end(&mut self, stream: u32, end: Option<StreamEnd>) {
        if let Some(Some(followed)) = self.streams.get_mut(stream as usize) {
            followed.end = end;
        }
    }

    /// Which stream at this path was last shown to every pattern.
    pub(crate) fn matched(&self, stream: u32) -> Option<Incarnation> {
        self.followed(stream)?.matched
    }

    /// Notes that every pattern was shown the stream that is there.
    pub(crate) fn set_matched(&mut self, stream: u32, incarnation: Incarnation) {
        if let Some(Some(followed)) = self.streams.get_mut(stream as usize) {
            followed.matched = Some(incarnation);
        }
    }

    /// The number of a stream, which it gets if it has none.
    fn take_number(&mut self, path: &StreamPath, end: Option<StreamEnd>) -> u32 {
        if let Some(number) = self.number_of(path) {
            return number;
        }
        let followed = Some(Followed { path: path.clone(), end, matched: None, followers: Vec::new() });
        let number = if let Some(number) = self.free.pop() {
            self.streams[number as usize] = followed;
            number
        } else {
            self.streams.push(followed);
            u32::try_from(self.streams.len() - 1).unwrap_or(u32::MAX)
        };
        self.numbers.insert(path.clone(), number);
        number
    }

    /// Makes a link, or lets `change` change the one there is. `end` is where the stream ends now.
    pub(crate) fn link(
        &mut self,
        (place, links): (u32, &mut Links),
        path: &StreamPath,
        end: Option<StreamEnd>,
        new: Link,
        change: impl FnOnce(&mut Link),
    ) -> u32 {
        let stream = self.take_number(path, end);
        self.set_end(stream, end);
        if let Some(link) = links.by_stream.get_mut(&stream) {
            change(link);
        } else {
            links.by_stream.insert(stream, new);
            self.links += 1;
            if let Some(Some(followed)) = self.streams.get_mut(stream as usize) {
                followed.followers.push(place);
            }
        }
        self.meet((place, links), stream);
        stream
    }

    /// Moves a link on to where its stream ends now.
    pub(crate) fn skip_to_end(&self, links: &mut Links, stream: u32) {
        if let (Some(link), Some(end)) = (links.by_stream.get_mut(&stream), self.end(stream)) {
            (link.incarnation, link.acked) = (Some(end.incarnation), Some(end.tail));
        }
    }

    /// Looks at one link again, now that the stream has changed or its cursor has. Returns whether there is something to
    /// read.
    pub(crate) fn meet(&mut self, (place, links): (u32, &mut Links), stream: u32) -> bool {
        let end = self.end(stream);
        let Some(link) = links.by_stream.get_mut(&stream) else { return false };
        if !link.meet(end) {
            self.unlink((place, links), stream);
            return false;
        }
        let is_pending = link.is_pending(end);
        if is_pending {
            links.pending.insert(stream);
        } else {
            links.pending.remove(&stream);
        }
        is_pending
    }

    /// Takes a link away.
    pub(crate) fn unlink(&mut self, (place, links): (u32, &mut Links), stream: u32) {
        links.pending.remove(&stream);
        if links.by_stream.remove(&stream).is_none() {
            return;
        }
        self.links -= 1;
        let Some(Some(followed)) = self.streams.get_mut(stream as usize) else { return };
        followed.followers.retain(|follower| *follower != place);
        if followed.followers.is_empty() {
            self.numbers.remove(&followed.path);
            self.streams[stream as usize] = None;
            self.free.push(stream);
        }
    }
}
