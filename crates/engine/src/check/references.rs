//! What streams say of each other, across shards, and that the bytes which they promise are somewhere.

use std::collections::HashSet;

use alluvium_env::Finding;
use alluvium_journal::StreamId;
use alluvium_protocol::StreamPath;

use crate::body::StoredBody;
use crate::bucket::bucket_of_key;
use crate::check::shard::Found;
use crate::check::{Checked, inconsistent};
use crate::extent::Extents;
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::stream::offset_of;

/// The check of what the shards say of each other.
pub(super) struct References<'a> {
    shards: &'a [Found],
}

impl<'a> References<'a> {
    pub(super) fn new(shards: &'a [Found]) -> Self {
        Self { shards }
    }

    pub(super) fn check(&self, checked: &mut Checked, report: &mut dyn FnMut(Finding)) {
        for shard in self.shards {
            let mut live: Vec<&(Rebuilt, Extents)> =
                shard.streams.values().filter(|(rebuilt, _)| !rebuilt.state.deleted).collect();
            live.sort_unstable_by_key(|(rebuilt, _)| rebuilt.id);
            checked.streams += live.len() as u64;
            for (rebuilt, extents) in live {
                self.stream(shard, rebuilt, extents, report);
            }
        }
    }

    fn stream(&self, shard: &Found, rebuilt: &Rebuilt, extents: &Extents, report: &mut dyn FnMut(Finding)) {
        let id = rebuilt.id;
        let inconsistent = |source: Inconsistent| inconsistent(&shard.dir, &source);
        let path = &rebuilt.create.path;
        let is_inner = path.is_empty() || bucket_of_key(path).is_some();
        if !is_inner && StreamPath::from_key(path).is_none() {
            report(inconsistent(Inconsistent::Invalid(id.0)));
        }
        let retention = rebuilt.state.retention.as_deref();
        let floor = retention.map_or(0, |retention| retention.floor.position);
        let own_start = rebuilt.create.fork.as_ref().map_or(0, |fork| fork.at.1);
        if shard.is_whole {
            gap(shard, rebuilt, extents, own_start.max(floor), rebuilt.state.tail.position, report);
        }
        for snapshot in retention.iter().flat_map(|held| held.latest.iter().chain(&held.base)) {
            if self.lacks(&snapshot.body) {
                let (stream, offset) = (id.0, snapshot.offset);
                report(inconsistent(Inconsistent::SnapshotMissing { stream, offset }));
            }
        }
        let contract = rebuilt.state.contract.as_deref();
        if contract.and_then(|held| held.checkpoint.as_ref()).is_some_and(|held| self.lacks(&held.body)) {
            report(inconsistent(Inconsistent::Contract(id.0)));
        }
        self.fork(shard, rebuilt, floor, report);
    }

    /// A fork's source and the streams that it reads must be there, with the bytes that it reads of them.
    fn fork(&self, shard: &Found, rebuilt: &Rebuilt, floor: u64, report: &mut dyn FnMut(Finding)) {
        let Some(fork) = &rebuilt.create.fork else { return };
        let missing = |source: StreamId| {
            let missing = Inconsistent::SourceMissing { stream: rebuilt.id.0, source_stream: source.0 };
            inconsistent(&shard.dir, &missing)
        };
        let mut told = HashSet::new();
        if self.find(fork.source).is_none() && self.is_whole(fork.source) && told.insert(fork.source) {
            report(missing(fork.source));
        }
        for range in &fork.ranges {
            let source = range.stream;
            match self.find(source) {
                Some((held, found, extents)) if held.is_whole => {
                    let from = range.start.1.max(floor);
                    gap(held, found, extents, from, offset_of(range.end).position, report);
                }
                None if self.is_whole(source) && told.insert(source) => report(missing(source)),
                Some(_) | None => {}
            }
        }
    }

    fn find(&self, id: StreamId) -> Option<(&'a Found, &'a Rebuilt, &'a Extents)> {
        let shard = self.shards.get(usize::from(id.shard()))?;
        let (rebuilt, extents) = shard.streams.get(&id)?;
        Some((shard, rebuilt, extents))
    }

    /// Whether the shard of a stream is known whole, so that a stream which is not there is missing.
    fn is_whole(&self, id: StreamId) -> bool {
        self.shards.get(usize::from(id.shard())).is_none_or(|shard| shard.is_whole)
    }

    /// Whether a body that is referred to is not there, or not whole.
    fn lacks(&self, body: &StoredBody) -> bool {
        match self.find(body.stream) {
            Some((_, found, _)) => {
                let is_body = found.create.path.is_empty() && !found.state.deleted;
                !is_body || found.state.tail.position != body.length
            }
            None => self.is_whole(body.stream),
        }
    }
}

/// Tells of the first bytes in a span of a stream that none of its extents holds.
fn gap(
    shard: &Found,
    rebuilt: &Rebuilt,
    extents: &Extents,
    from: u64,
    to: u64,
    report: &mut dyn FnMut(Finding),
) {
    let mut position = from;
    while position < to {
        match extents.at(position) {
            Some(extent) if extent.end_position() > position => position = extent.end_position(),
            Some(_) | None => {
                let (stream, path) = (rebuilt.id.0, &rebuilt.create.path);
                let what =
                    format!("the bytes {position} to {to} of stream {stream:#x} (`{path}`) are in no file");
                return report(Finding::fault(&shard.dir, None, what));
            }
        }
    }
}
