//! Where the bugs of [`alluvium_journal::planted`] are in the engine. Only compiled under the feature
//! `planted-bugs`.

use alluvium_journal::{Producer, Record, RecordPlace};

pub use alluvium_journal::planted::{Bug, is_planted, plant};

use crate::committer::{Committer, Outcome};
use crate::engine::Inner;
use crate::reply::Reply;
use crate::shard::Shard;
use crate::stream::State;

/// Sends the answers that should have waited for the sync.
pub(crate) fn answer_early(outcomes: &mut [Outcome]) {
    if is_planted(Bug::AnsweredBeforeSync) {
        for outcome in outcomes {
            std::mem::replace(&mut outcome.reply, Reply::None).send();
        }
    }
}

/// Whether a start leaves this record out.
pub(crate) fn is_left_out(place: &RecordPlace, first_segment: u64, segments: usize) -> bool {
    is_planted(Bug::SegmentNotReplayed) && segments > 1 && place.segment == first_segment
}

/// Forgets one producer of several.
pub(crate) fn forget_producer(producers: &mut Vec<Producer>) {
    if is_planted(Bug::ForgottenProducer) {
        producers.pop();
    }
}

/// Forgets where a stream begins for which no snapshot stands.
pub(crate) fn forget_trim(mut state: State) -> State {
    if is_planted(Bug::ForgottenTrim) {
        state.retention = state.retention.filter(|retention| retention.latest.is_some());
    }
    state
}

/// Makes one message of the first two.
pub(crate) fn lose_boundary(lengths: &[u32], append_ends: &[bool]) -> (Vec<u32>, Vec<bool>) {
    let (mut lengths, mut append_ends) = (lengths.to_vec(), append_ends.to_vec());
    if is_planted(Bug::LostBoundary) && lengths.len() > 1 {
        let first = lengths.remove(0);
        lengths[0] += first;
        append_ends.remove(0);
    }
    (lengths, append_ends)
}

/// Makes the record that publishes a snapshot durable by itself, before the rest of the body comes.
pub(crate) fn record_early(
    committer: &mut Committer,
    inner: &Inner,
    shard: &Shard,
    record: Record,
) -> Option<Record> {
    if !is_planted(Bug::FloorBeforeSnapshot) {
        return Some(record);
    }
    committer.record(&record);
    // A failure is found by the next flush, which the writer refuses.
    let _flushed = committer.flush(inner, shard);
    None
}
