//! How many operations there were and how long they took, minute by minute.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// What is timed.
#[derive(Copy, Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Operation {
    Append,
    Create,
    Read,
    Delete,
    Snapshot,
    Bootstrap,
    /// Whatever else: closes, claims, acknowledgements.
    Other,
    /// Bodies that came to a live reader; not timed, since it waits for them.
    Tail,
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Create => "create",
            Self::Read => "read",
            Self::Delete => "delete",
            Self::Snapshot => "snapshot",
            Self::Bootstrap => "bootstrap",
            Self::Other => "other",
            Self::Tail => "tail",
        }
    }
}

#[derive(Debug)]
struct One {
    count: u64,
    bytes: u64,
    /// Microseconds.
    times: Histogram<u64>,
}

/// The operations of a minute.
#[derive(Debug, Default)]
pub(super) struct Stats(BTreeMap<Operation, One>);

impl Stats {
    /// Counts one, and its time if that means anything.
    pub(super) fn record(&mut self, operation: Operation, time: Option<Duration>, bytes: usize) {
        let one = self.0.entry(operation).or_insert_with(|| One {
            count: 0,
            bytes: 0,
            // Up to five minutes, more than any operation may take here.
            times: Histogram::new_with_bounds(1, 300_000_000, 2).expect("the bounds are constants"),
        });
        one.count += 1;
        one.bytes += bytes as u64;
        if let Some(time) = time {
            one.times.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }

    /// The operations counted since the last call.
    pub(super) fn take(&mut self) -> Minute {
        let rows = std::mem::take(&mut self.0).into_iter().map(|(operation, one)| {
            let at = |quantile| one.times.value_at_quantile(quantile);
            let row = Row {
                count: one.count,
                bytes: one.bytes,
                p50_us: at(0.5),
                p99_us: at(0.99),
                max_us: one.times.max(),
            };
            (operation, row)
        });
        Minute(rows.collect())
    }
}

/// Figures of one operation.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    max_us: u64,
}

/// Figures of all operations of a minute.
#[derive(Clone, Debug)]
pub(super) struct Minute(BTreeMap<Operation, Row>);

impl Minute {
    pub(super) fn of(&self, operation: Operation) -> Option<&Row> {
        self.0.get(&operation)
    }

    pub(super) fn operations(&self) -> u64 {
        self.0.values().map(|row| row.count).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|row| row.bytes).sum()
    }

    pub(super) fn to_json(&self) -> Value {
        let rows = self.0.iter().map(|(operation, row)| {
            let figures = json!({"count": row.count, "bytes": row.bytes, "p50_us": row.p50_us, "p99_us": row.p99_us,
                "max_us": row.max_us});
            (operation.name().to_owned(), figures)
        });
        Value::Object(rows.collect())
    }
}
