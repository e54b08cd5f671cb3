//! What waits for a space's writer. Whoever finds nobody writing writes for all that wait.

use std::collections::VecDeque;
use std::sync::Arc;

use alluvium_feed_protocol::{AppendResponse, ErrorCode};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::append::Checked;
use crate::failure::Failure;
use crate::options::Options;
use crate::space::Space;

/// The answer to one append.
pub(crate) type Outcome = Result<AppendResponse, Failure>;

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<(Checked, oneshot::Sender<Outcome>)>,
    bytes: usize,
    is_written: bool,
}

/// A bounded queue of appends.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Waiting>);

impl Queue {
    /// Puts an append into the queue. The second value tells the caller to call [`drain`]: nobody else does.
    pub(crate) fn push(
        &self,
        checked: Checked,
        options: &Options,
    ) -> Result<(oneshot::Receiver<Outcome>, bool), Failure> {
        let mut waiting = self.0.lock();
        let bytes = waiting.bytes + checked.bytes;
        if waiting.requests.len() >= options.queue_requests_max || bytes > options.queue_bytes_max {
            return Err(Failure::refused(ErrorCode::Overloaded, "too many appends wait in this space"));
        }
        let (sender, receiver) = oneshot::channel();
        waiting.bytes = bytes;
        waiting.requests.push_back((checked, sender));
        let is_first = !waiting.is_written;
        waiting.is_written = true;
        Ok((receiver, is_first))
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.lock().is_written
    }

    /// The next batch; `None` once nothing waits, and then somebody else is the first again.
    fn next(&self, options: &Options) -> Option<(Vec<Checked>, Vec<oneshot::Sender<Outcome>>)> {
        let mut waiting = self.0.lock();
        if waiting.requests.is_empty() {
            waiting.is_written = false;
            return None;
        }
        let (mut batch, mut senders, mut bytes) = (Vec::new(), Vec::new(), 0);
        while batch.len() < options.batch_requests_max
            && bytes < options.batch_bytes_max
            && let Some((checked, sender)) = waiting.requests.pop_front()
        {
            bytes += checked.bytes;
            batch.push(checked);
            senders.push(sender);
        }
        waiting.bytes -= bytes;
        Some((batch, senders))
    }
}

/// Writes batch after batch until nothing waits: commit, sync, respond, notify. On a thread that may block.
pub(crate) fn drain(space: &Arc<Space>, options: &Options) {
    while let Some((batch, senders)) = space.queue.next(options) {
        let (outcomes, announcement) = space.append(&batch);
        for (sender, outcome) in senders.into_iter().zip(outcomes) {
            // A caller that is gone has its blocks stored all the same, and will ask again.
            drop(sender.send(outcome));
        }
        space.announce(announcement);
    }
}
