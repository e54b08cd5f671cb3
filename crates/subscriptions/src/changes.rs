//! What has changed in streams, and which subscriptions that concerns.

use std::collections::BTreeSet;

use alluvium_engine::Changed;
use alluvium_protocol::StreamPath;
use alluvium_protocol::subscription::name_of;

use crate::book::Link;
use crate::core::Core;
use crate::counters::add;

impl Core {
    /// Takes note of all changes so far.
    pub(crate) fn take_changes(&mut self) {
        let Changed { paths, missed } = self.watch.take();
        let mut concerned = BTreeSet::new();
        if missed {
            self.look_at_all(&mut concerned);
        }
        for path in paths {
            self.look_at(&path, true, &mut concerned);
        }
        if !concerned.is_empty() {
            self.count();
        }
        for place in concerned {
            self.pump(place);
        }
    }

    /// Looks at every stream there is and every one that is followed.
    pub(crate) fn look_at_all(&mut self, concerned: &mut BTreeSet<u32>) {
        let mut paths = self.book.paths();
        if self.by_id.is_empty() {
            return;
        }
        let patterns = &self.patterns;
        self.engine.for_each_stream(|path, _| {
            let is_meant = name_of(path).is_some_and(|name| !patterns.matches(&name).is_empty());
            if is_meant {
                paths.push(path.clone());
            }
        });
        for path in paths {
            self.look_at(&path, false, concerned);
        }
    }

    /// Looks at one path: which stream is there, where it ends, who follows it. Not for a change after a start or a gap: workers
    /// may know of what is there since before.
    fn look_at(&mut self, path: &StreamPath, is_change: bool, concerned: &mut BTreeSet<u32>) {
        let Some(name) = name_of(path) else { return };
        let end = self.engine.end_of(path);
        let known = self.book.number_of(path);
        let matched = known.and_then(|stream| self.book.matched(stream));
        if let Some(stream) = known {
            self.book.set_end(stream, end);
            for place in self.book.followers(stream) {
                if let Some((subscription, book)) = self.with_book(place) {
                    if subscription.is_looking() {
                        book.skip_to_end(&mut subscription.links, stream);
                    }
                    book.meet((place, &mut subscription.links), stream);
                }
                concerned.insert(place);
            }
        }
        let Some(end) = end else { return };
        if matched == Some(end.incarnation) {
            return;
        }
        // A stream that is new here is followed from its beginning by whoever's pattern means it.
        let incarnation = Some(end.incarnation);
        for place in self.patterns.matches(&name) {
            let has_room = self.book.links < self.options.links_max;
            let Some((subscription, book)) = self.with_book(place) else { continue };
            if !subscription.is_meant(path) {
                continue;
            }
            let acked = subscription.is_looking().then_some(end.tail);
            // It may be in the place of one that was deleted, of which no link is left.
            let new = Link { glob: true, incarnation, acked, is_untold: is_change, ..Link::default() };
            let is_known =
                book.number_of(path).is_some_and(|stream| subscription.links.by_stream.contains_key(&stream));
            if !is_known && !has_room {
                add(&self.counters.links_refused);
                tracing::warn!(stream = %path, "there is no room for one more followed stream");
                continue;
            }
            book.link((place, &mut subscription.links), path, Some(end), new, |link| link.glob = true);
            concerned.insert(place);
        }
        if let Some(stream) = self.book.number_of(path) {
            self.book.set_matched(stream, end.incarnation);
        }
    }
}
