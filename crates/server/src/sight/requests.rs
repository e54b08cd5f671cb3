//! Requests by what they ask for and how they are answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use alluvium_metrics::{Histogram, MICROSECONDS, Observed, Page, PerThread};
use http::StatusCode;

use crate::metrics::families;

/// Statuses that are counted each by itself; all others are `other`. A request whose client went away before its answer
/// is `gone`.
pub const STATUSES: &[u16] = &[
    101, 200, 201, 202, 204, 206, 207, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409,
    410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 426, 428, 429, 431, 500, 501, 502, 503, 504, 505,
    507,
];

const OTHER: usize = STATUSES.len();
const GONE: usize = OTHER + 1;
const OUTCOMES: usize = GONE + 1;

/// Counts requests. Each thread counts for itself, without a lock.
#[derive(Debug)]
pub(super) struct Requests {
    operations: &'static [&'static str],
    parts: PerThread<Part>,
}

#[derive(Debug)]
struct Part {
    begun: AtomicU64,
    /// By operation and then by outcome.
    done: Box<[AtomicU64]>,
    /// By operation.
    took_us: Box<[Histogram]>,
}

impl Requests {
    pub(super) fn new(operations: &'static [&'static str]) -> Self {
        let part = || Part {
            begun: AtomicU64::new(0),
            done: (0..operations.len() * OUTCOMES).map(|_| AtomicU64::new(0)).collect(),
            took_us: operations.iter().map(|_| Histogram::new(&MICROSECONDS)).collect(),
        };
        Self { operations, parts: PerThread::new(part) }
    }

    /// A request begins.
    pub(super) fn begin(&self, operation: usize) -> UnderWay<'_> {
        self.parts.mine().begun.fetch_add(1, Relaxed);
        UnderWay { requests: self, operation, began: now(), outcome: GONE }
    }

    /// Puts what was counted on a page: what has never happened has no series.
    pub(super) fn show(&self, page: &mut Page) {
        let sum = |of: &dyn Fn(&Part) -> u64| self.parts.all().map(of).sum::<u64>();
        let mut done = 0;
        for (operation, name) in self.operations.iter().enumerate() {
            for outcome in 0..OUTCOMES {
                let count = sum(&|part| part.done[operation * OUTCOMES + outcome].load(Relaxed));
                if count > 0 {
                    page.whole(&families::REQUESTS, &[name, &outcome_label(outcome)], count);
                }
                done += count;
            }
        }
        for (operation, name) in self.operations.iter().enumerate() {
            let mut took = Observed::none(&MICROSECONDS);
            self.parts.all().for_each(|part| took.add(&part.took_us[operation].observed()));
            if took.count() > 0 {
                page.observed(&families::REQUEST_SECONDS, &[name], took);
            }
        }
        // Read last, so that none counts as done that has not begun.
        let begun = sum(&|part| part.begun.load(Relaxed));
        page.whole(&families::REQUESTS_IN_FLIGHT, &[], begun.saturating_sub(done));
    }
}

fn outcome_label(outcome: usize) -> String {
    match STATUSES.get(outcome) {
        Some(status) => status.to_string(),
        None if outcome == OTHER => "other".to_owned(),
        None => "gone".to_owned(),
    }
}

/// A request without an answer yet. Counted when this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    requests: &'a Requests,
    operation: usize,
    began: Instant,
    outcome: usize,
}

impl UnderWay<'_> {
    /// The request has an answer. Returns how long that took, in microseconds.
    pub(super) fn answered(mut self, status: StatusCode) -> u64 {
        self.outcome = STATUSES.binary_search(&status.as_u16()).unwrap_or(OTHER);
        self.took_us()
    }

    fn took_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let part = self.requests.parts.mine();
        part.took_us[self.operation].observe(self.took_us());
        part.done[self.operation * OUTCOMES + self.outcome].fetch_add(1, Relaxed);
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a request took is only told, and decides nothing")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_once_whatever_becomes_of_it() {
        let requests = Requests::new(&["a", "b"]);
        requests.begin(0).answered(StatusCode::OK);
        requests.begin(0).answered(StatusCode::OK);
        requests.begin(1).answered(StatusCode::IM_A_TEAPOT);
        drop(requests.begin(1));
        let under_way = requests.begin(0);
        let read = || {
            let mut page = Page::new();
            requests.show(&mut page);
            alluvium_metrics::parse(&page.text(alluvium_metrics::Format::Prometheus)).expect("written here")
        };
        let shown = read();
        let count = |operation, status| {
            shown.value("alluvium_requests_total", &[("operation", operation), ("status", status)])
        };
        assert_eq!(count("a", "200"), Some(2.0));
        assert_eq!(count("b", "other"), Some(1.0));
        assert_eq!(count("b", "gone"), Some(1.0));
        assert_eq!(count("b", "200"), None);
        assert_eq!(shown.value("alluvium_request_seconds_count", &[("operation", "a")]), Some(2.0));
        assert_eq!(shown.value("alluvium_requests_in_flight", &[]), Some(1.0));
        drop(under_way);
        assert_eq!(read().value("alluvium_requests_in_flight", &[]), Some(0.0));
    }

    #[test]
    fn statuses_are_sorted_for_the_search() {
        assert!(STATUSES.is_sorted());
    }
}
