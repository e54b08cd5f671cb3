//! Which streams of the model a rule says are to go, and ending one.

use alluvium_engine::RetentionCause;

use crate::model::{Answer, Id, Model, Refusal, Stream};
use crate::operation::RetainAsk;

/// A stream that is to go.
#[derive(Clone, Debug)]
pub struct Overdue {
    /// Which.
    pub id: Id,
    /// Its path.
    pub path: String,
    /// Why.
    pub cause: RetentionCause,
    /// What it holds.
    pub bytes: u64,
    /// When it was last written to.
    pub last_write_ms: u64,
}

impl Stream {
    /// What of its own can be read, and the latest snapshot.
    fn bytes(&self) -> u64 {
        let own = |message: &&crate::model::Message| {
            message.end.position > self.own_from.max(self.retained.floor().position)
        };
        let own: usize = self.messages.iter().filter(own).map(|message| message.bytes.len()).sum();
        own as u64 + self.retained.latest.as_ref().map_or(0, |latest| latest.body.len() as u64)
    }
}

impl Model {
    /// The streams that a rule says are to go.
    pub fn overdue(&self, ask: &RetainAsk, now_ms: u64) -> Vec<Overdue> {
        let mut meant: Vec<&Stream> =
            self.live(now_ms).filter(|stream| is_at(&stream.url(), &ask.prefix)).collect();
        meant.sort_by_key(|stream| (stream.last_write_ms, !stream.path.starts_with('/'), &stream.path));
        let overdue = |stream: &Stream, cause| Overdue {
            id: stream.id,
            path: stream.path.clone(),
            cause,
            bytes: stream.bytes(),
            last_write_ms: stream.last_write_ms,
        };
        let is_over =
            |stream: &Stream, max: Option<u64>| max.is_some_and(|max| now_ms - stream.last_write_ms >= max);
        let mut found = Vec::new();
        meant.retain(|stream| {
            if stream.closed && is_over(stream, ask.closed_ms_max) {
                found.push(overdue(stream, RetentionCause::Closed));
            } else if is_over(stream, ask.idle_ms_max) {
                found.push(overdue(stream, RetentionCause::Idle));
            } else {
                return true;
            }
            false
        });
        let mut left: u64 = meant.iter().map(|stream| stream.bytes()).sum();
        for stream in meant {
            if ask.bytes_max.is_some_and(|max| left > max) && stream.bytes() > 0 {
                left -= stream.bytes();
                found.push(overdue(stream, RetentionCause::Bytes));
            }
        }
        found
    }

    /// Ends a stream that was found to be due, unless it was written to since. Of one whose time is over only the engine
    /// knows whether its end is on record.
    pub(super) fn admit_retire(
        &mut self,
        id: Id,
        last_write_ms: u64,
        actual: Option<&Answer>,
        now_ms: u64,
    ) -> Answer {
        let kept = Answer::Refused(Refusal::Kept);
        let Some(stream) = self.streams.get(&id).filter(|stream| !stream.deleted) else { return kept };
        let may_be_over = stream.deadline.expired(now_ms) || stream.deadline.uncertain(now_ms);
        let answer = if stream.last_write_ms == last_write_ms { Answer::Deleted } else { kept.clone() };
        if may_be_over && actual == Some(&kept) {
            return kept;
        }
        if answer == Answer::Deleted {
            self.end(id);
        }
        answer
    }
}

/// Whether a URL path is at a place or below it, by whole segments.
pub(super) fn is_at(url: &str, place: &str) -> bool {
    let mut segments = url.split('/');
    place.trim_end_matches('/').split('/').all(|wanted| segments.next() == Some(wanted))
}
