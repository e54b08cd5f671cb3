//! The order of events across accounts means nothing: whatever it is, as long as each account's own events stay in
//! theirs, the same is archived of each account.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::yield_now;
use std::time::Duration;

use alluvium_jetstream_ingest::counters::Counter;
use alluvium_jetstream_ingest::ingest::{Ingest, IngestConfig, PipelineConfig};
use alluvium_jetstream_ingest::network::{Messages, Relay, RelayError};
use alluvium_jetstream_sim::{Archive, Internet, Time, seams};
use alluvium_jetstream_simulator::{Config, Mix, Oracle, Outcome, World};
use alluvium_jss::Event as Row;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;

/// A relay that says these messages, once, and is silent then.
struct Said {
    messages: Mutex<Vec<Bytes>>,
    end: Arc<(Mutex<()>, Condvar)>,
}

impl Relay for Said {
    fn connect(&self, _cursor: Option<u64>) -> Result<Box<dyn Messages>, RelayError> {
        let mut messages = std::mem::take(&mut *self.messages.lock());
        messages.reverse();
        Ok(Box::new(Connection { messages, end: Arc::clone(&self.end) }))
    }
}

struct Connection {
    messages: Vec<Bytes>,
    end: Arc<(Mutex<()>, Condvar)>,
}

impl Messages for Connection {
    fn next(&mut self, wait_ms: u64) -> Result<Option<Bytes>, RelayError> {
        let next = self.messages.pop();
        if next.is_none() {
            self.end.1.wait_for(&mut self.end.0.lock(), Duration::from_millis(wait_ms.min(5)));
        }
        Ok(next)
    }
}

/// What tells rows apart, but for the time.
fn told(row: &Row) -> String {
    let Row { kind, collection, rkey, rev, payload, .. } = row;
    format!("{kind} {collection}/{rkey} {rev} {payload:02x?}")
}

/// The archive's rows by account, of these messages in this order.
fn archived(
    world: &Arc<Mutex<World>>,
    messages: Vec<Bytes>,
    workers: usize,
) -> BTreeMap<String, Vec<String>> {
    let count = messages.len() as u64;
    let (archive, internet) = (Arc::new(Archive::new(3)), Arc::new(Internet::new(world.clone())));
    let time = Time::at(world.lock().micros());
    let pipeline = PipelineConfig { workers, fetchers: 1, lossless: true, ..PipelineConfig::default() };
    let config = IngestConfig { pipeline, start_cursor: Some(0) };
    let relay = Said { messages: Mutex::new(messages), end: Arc::default() };
    let ingest =
        Ingest::start(config, &seams(&archive, &internet, &time), Arc::new(relay)).expect("it starts");
    while ingest.counters().get(Counter::Received) < count || !ingest.is_idle(0) {
        assert_eq!(ingest.failure(), None);
        yield_now();
    }
    ingest.stop().expect("it was well");
    archive.sync();
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in archive.rows() {
        rows.entry(row.did.clone()).or_default().push(told(&row));
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn frames_in_another_order_across_accounts_archive_the_same_of_each(
        seed in 0..1000_u64, workers in 1..6_usize, picks in proptest::collection::vec(any::<u16>(), 120),
    ) {
        let small = Config::small(seed);
        // Nothing is fetched, and nobody changes a key: what is fetched or signed then depends on when.
        let mix = Mix { rotate: 0, account: 0, sync: 0, ..small.mix };
        let mut world = World::new(Config { accounts: 9, mix, ..small }).expect("a world");
        let emitted = world.run(120);
        let outcomes = Oracle::new().observe_all(&emitted);
        let rows = outcomes.iter().map(|outcome| if let Outcome::Rows(rows) = outcome { rows.len() } else { 0 });
        let expected: usize = rows.sum();
        let world = Arc::new(Mutex::new(world));
        let in_order: Vec<Bytes> = emitted.iter().map(|emitted| emitted.frame.clone()).collect();
        let mut queues: BTreeMap<&str, Vec<Bytes>> = BTreeMap::new();
        for emitted in emitted.iter().rev() {
            queues.entry(&emitted.did).or_default().push(emitted.frame.clone());
        }
        let mut shuffled = Vec::new();
        for pick in picks.iter().cycle() {
            let Some(did) = queues.keys().nth(usize::from(*pick) % queues.len().max(1)).copied() else { break };
            let queue = queues.get_mut(did).expect("one of them");
            shuffled.extend(queue.pop());
            if queue.is_empty() {
                queues.remove(did);
            }
        }
        prop_assert_eq!(shuffled.len(), in_order.len());
        let first = archived(&world, in_order, workers);
        prop_assert_eq!(first.values().map(Vec::len).sum::<usize>(), expected);
        prop_assert_eq!(archived(&world, shuffled, workers), first);
    }
}
