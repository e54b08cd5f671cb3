//! What nobody needs any more and still takes space: counted roughly, so that a fold comes when there is much of it.
//!
//! A fold finds out what is needed exactly ([`Needed`](crate::fold)). The count only says when that is worth its while, so
//! whatever makes bytes superfluous adds to it: the end of a stream, a floor that moves, and either of a fork, which may have
//! been all that held bytes of another stream that this one has given up long ago. After a start it is counted anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Inner;
use crate::fold::CHECKPOINT_BYTES_PER_STREAM;
use crate::shard::Shard;
use crate::stream::Stream;

impl Inner {
    /// Notes that a stream has given up its bytes between two positions.
    pub(crate) fn given_up(&self, stream: &Stream, from: u64, to: u64) {
        let own_start = stream.fork.as_ref().map_or(0, |fork| fork.at.position);
        let bytes = to.saturating_sub(from.max(own_start));
        self.shards[usize::from(stream.id.shard())].garbage_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.let_go_of_inherited(stream, from, to);
    }

    /// Notes that a fork has given up what it has inherited between two positions. What the streams that it was inherited
    /// of have given up as well is garbage, unless another fork holds it: then a fold comes for less.
    pub(crate) fn let_go_of_inherited(&self, fork: &Stream, from: u64, to: u64) {
        let inherited = fork.fork.as_ref().map_or(&[][..], |fork| &fork.inherited);
        let first = inherited.partition_point(|range| range.end.position <= from);
        for range in inherited[first..].iter().take_while(|range| range.start.position < to) {
            let floor = range.stream.shared.lock().floor().position;
            let start = range.start.position.max(from);
            let bytes = range.end.position.min(floor).min(to).saturating_sub(start);
            let shard = &self.shards[usize::from(range.stream.id.shard())];
            shard.garbage_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts what lies in the files of a shard that nobody needs, at a start; besides that of streams that are gone.
    pub(crate) fn count_garbage(&self, shard: &Shard) {
        let needed = self.needed(shard);
        let over = |stream: &Arc<Stream>| needed.bytes_over(stream.id, &stream.shared.lock().extents);
        let bytes = shard.all_streams().iter().map(over).sum();
        shard.garbage_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Shard {
    /// Whether so much of it is garbage that a fold is worth its while.
    pub(crate) fn has_garbage(&self) -> bool {
        let streams = self.directory.read().len() + self.bodies.lock().len();
        let checkpoint_bytes = streams as u64 * CHECKPOINT_BYTES_PER_STREAM;
        let enough = u64::from(self.segments.segment_bytes()).max(checkpoint_bytes);
        self.garbage_bytes.load(Ordering::Relaxed) >= enough
    }
}
