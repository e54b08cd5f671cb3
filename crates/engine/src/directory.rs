//! The streams of a shard by path: found at once, and walked in order, a slice at a time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use alluvium_protocol::StreamPath;
use alluvium_protocol::path::KeySpan;

use crate::engine::Engine;
use crate::stream::Stream;

/// Streams by path.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    by_path: HashMap<StreamPath, Arc<Stream>>,
    /// The same paths in order, so that whoever wants those that begin alike need not look at all.
    in_order: BTreeSet<StreamPath>,
}

impl From<HashMap<StreamPath, Arc<Stream>>> for Directory {
    fn from(by_path: HashMap<StreamPath, Arc<Stream>>) -> Self {
        Self { in_order: by_path.keys().cloned().collect(), by_path }
    }
}

impl Directory {
    pub(crate) fn get(&self, path: &StreamPath) -> Option<&Arc<Stream>> {
        self.by_path.get(path)
    }

    /// Puts a stream at a path, in the place of whatever was there.
    pub(crate) fn insert(&mut self, path: StreamPath, stream: Arc<Stream>) {
        if self.by_path.insert(path.clone(), stream).is_none() {
            self.in_order.insert(path);
        }
    }

    pub(crate) fn remove(&mut self, path: &StreamPath) {
        self.by_path.remove(path);
        self.in_order.remove(path);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_path.len()
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.by_path.values()
    }

    /// The first streams whose paths lie in a span of keys and come after `after`, `max` at most.
    pub(crate) fn streams_in(
        &self,
        span: &KeySpan,
        after: Option<&StreamPath>,
        max: usize,
    ) -> Vec<Arc<Stream>> {
        let start =
            after.map_or(Bound::Included(span.from.as_str()), |after| Bound::Excluded(after.as_str()));
        let end = span.until.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let paths = self.in_order.range::<str, _>((start, end)).take(max);
        paths.filter_map(|path| self.by_path.get(path).cloned()).collect()
    }

    /// The first paths that begin with `prefix` and come after `after`, `max` at most.
    fn paths(&self, prefix: &str, after: Option<&StreamPath>, max: usize) -> Vec<StreamPath> {
        let start = after.map_or(Bound::Included(prefix), |after| Bound::Excluded(after.as_str()));
        self.in_order
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|path| path.starts_with(prefix))
            .take(max)
            .cloned()
            .collect()
    }
}

/// A walk over the paths of an engine that begin alike, by their keys ([`StreamPath::as_str`]).
#[derive(Clone, Debug)]
pub struct PathWalk {
    prefix: Box<str>,
    shard: usize,
    after: Option<StreamPath>,
}

impl PathWalk {
    /// Begins one over all keys that begin with `prefix`.
    pub fn over(prefix: &str) -> Self {
        Self { prefix: prefix.into(), shard: 0, after: None }
    }
}

impl Engine {
    /// The next paths of a walk, `max` at most; none once it is over. Takes time for those that are shown only.
    ///
    /// A path at which a stream is all the while is shown once; one whose stream comes or goes meanwhile is shown or not.
    /// Whether a stream is there that can be read is for [`end_of`](Self::end_of) to tell: those that only forks keep, and
    /// those that have just expired, are shown too.
    pub fn next_paths(&self, walk: &mut PathWalk, max: usize) -> Vec<StreamPath> {
        let (max, mut found) = (max.max(1), Vec::new());
        while let Some(shard) = self.inner.shards.get(walk.shard) {
            let left = max - found.len();
            let paths = shard.directory.read().paths(&walk.prefix, walk.after.as_ref(), left);
            let is_last = paths.len() < left;
            found.extend(paths);
            if !is_last {
                walk.after = found.last().cloned();
                break;
            }
            (walk.shard, walk.after) = (walk.shard + 1, None);
        }
        found
    }
}
