//! How the work stands.

use std::sync::atomic::Ordering;

use super::Pipeline;
use crate::snapshot::Snapshot;

impl Pipeline {
    pub(crate) fn look_at_clock(&self) {
        let _repairs = self.repairs.lock();
        self.due.notify_all();
    }

    /// When the next repository is to be fetched, in milliseconds since 1970.
    pub(crate) fn next_repair_ms(&self) -> Option<u64> {
        self.repairs.lock().next_ms()
    }

    /// The relay's number up to which everything is durable.
    pub(crate) fn durable_cursor(&self) -> Option<u64> {
        *self.durable_cursor.lock()
    }

    /// Notes how far everything is durable.
    pub(crate) fn set_durable_cursor(&self, cursor: u64) {
        *self.durable_cursor.lock() = Some(cursor);
        self.counters.set_cursor(cursor);
    }

    /// The relay's number up to which everything is done.
    pub(crate) fn cursor(&self) -> Option<u64> {
        self.watermark.lock().cursor()
    }

    /// How it stands now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let counters = &self.counters;
        let seen = |number: u64| (number > 0).then_some(number);
        let (last_event_ms, relay_time_ms) = (seen(counters.last_event_ms()), seen(counters.relay_time_ms()));
        let lag_ms = last_event_ms.zip(relay_time_ms).map(|(came, happened)| came.saturating_sub(happened));
        let (repairs_waiting, repairs_running) = {
            let repairs = self.repairs.lock();
            (repairs.len(), repairs.running())
        };
        let (handled_seq, in_flight) = {
            let watermark = self.watermark.lock();
            (watermark.cursor(), watermark.in_flight())
        };
        Snapshot {
            connected: counters.is_connected(),
            last_seq: seen(counters.last_seq()),
            cursor: self.durable_cursor(),
            handled_seq,
            last_event_ms,
            lag_ms,
            in_flight,
            queue_bytes: self.queues.lock().bytes(),
            write_queue_bytes: self.unwritten.held(),
            repairs_waiting,
            repairs_running,
            pending_bytes: self.pending_bytes.load(Ordering::Relaxed),
            repos_bytes: self.budget.held(),
            counts: counters.values().collect(),
        }
    }

    /// Whether nothing waits, is judged, appended or fetched now, and no repair is due before `until_ms`.
    pub(crate) fn is_idle(&self, until_ms: u64) -> bool {
        // In this order: whoever works schedules what is missing before giving an account back.
        if !self.queues.lock().is_idle() || self.watermark.lock().in_flight() > 0 {
            return false;
        }
        let repairs = self.repairs.lock();
        !repairs.is_running() && repairs.next_ms().is_none_or(|next_ms| next_ms > until_ms)
    }
}
