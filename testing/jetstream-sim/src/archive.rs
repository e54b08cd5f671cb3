//! An archive in memory. What was not synced is gone after a crash.

use std::collections::BTreeMap;

use alluvium_atproto::{Cid, Codec, cbor};
use alluvium_jetstream_ingest::sink::{Batch, Sink, SinkError, Store};
use alluvium_jetstream_ingest::state::{CURSOR, encode_cursor};
pub use alluvium_jetstream_simulator::Fold;
use alluvium_jss::{Event as Row, Kind};
use parking_lot::Mutex;

/// The archive.
#[derive(Debug)]
pub struct Archive {
    /// Every so many batches it syncs by itself.
    sync_every: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What a crash leaves.
    rows: Vec<Row>,
    values: BTreeMap<String, Vec<u8>>,
    durable: u64,
    /// What a crash takes.
    pending: Vec<Batch>,
    submitted: u64,
    /// The number of the batch that fails, with all behind it.
    fails_at: Option<u64>,
}

impl Archive {
    /// Syncs every so many batches.
    pub fn new(sync_every: usize) -> Self {
        Self { sync_every: sync_every.max(1), state: Mutex::default() }
    }

    /// Fails the batch with this number, counted from now, and everything after it.
    pub fn fail_at(&self, number: u64) {
        let mut state = self.state.lock();
        state.fails_at = Some(state.submitted + number);
    }

    /// What is left after a crash.
    #[must_use]
    pub fn crashed(&self) -> Self {
        let state = self.state.lock();
        let left = State { rows: state.rows.clone(), values: state.values.clone(), ..State::default() };
        Self { sync_every: self.sync_every, state: Mutex::new(left) }
    }

    /// Makes everything durable.
    pub fn sync(&self) {
        self.state.lock().sync();
    }

    /// All durable rows, in order.
    pub fn rows(&self) -> Vec<Row> {
        self.state.lock().rows.clone()
    }

    /// How many batches came.
    pub fn submitted(&self) -> u64 {
        self.state.lock().submitted
    }

    /// All durable values under a prefix.
    pub fn values(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        let values = state.values.iter().filter(|(key, _)| key.starts_with(prefix));
        values.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl State {
    fn sync(&mut self) {
        for batch in std::mem::take(&mut self.pending) {
            self.rows.extend(batch.rows);
            for change in batch.changes {
                match change.value() {
                    Some(value) => self.values.insert(change.key(), value),
                    None => self.values.remove(&change.key()),
                };
            }
            if let Some(cursor) = batch.cursor {
                self.values.insert(CURSOR.to_owned(), encode_cursor(cursor));
            }
        }
        self.durable = self.submitted;
    }
}

impl Sink for Archive {
    fn submit(&self, batch: Batch) -> Result<(), SinkError> {
        let mut state = self.state.lock();
        if state.fails_at.is_some_and(|number| state.submitted + 1 >= number) {
            return Err(SinkError("the disk is gone".to_owned()));
        }
        state.submitted += 1;
        state.pending.push(batch);
        if state.pending.len() >= self.sync_every {
            state.sync();
        }
        Ok(())
    }

    fn durable(&self) -> u64 {
        self.state.lock().durable
    }
}

impl Store for Archive {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SinkError> {
        Ok(self.state.lock().values.get(key).cloned())
    }

    fn scan(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8]) -> bool) -> Result<(), SinkError> {
        for (key, value) in self.values(prefix) {
            if !visit(key.strip_prefix(prefix).unwrap_or(&key), &value) {
                break;
            }
        }
        Ok(())
    }
}

/// What a reader of all rows holds in the end.
pub fn fold(rows: &[Row]) -> Fold {
    let mut fold = Fold::new();
    for row in rows {
        let records = fold.entry(row.did.clone()).or_default();
        let path = format!("{}/{}", row.collection, row.rkey);
        match row.kind {
            Kind::Create | Kind::Update | Kind::CreateResync => {
                records.insert(path, Cid::of(Codec::DagCbor, &row.payload));
            }
            Kind::Delete => drop(records.remove(&path)),
            Kind::Sync => records.clear(),
            Kind::Account if is_deleted(&row.payload) => records.clear(),
            _ => {}
        }
    }
    fold
}

fn is_deleted(body: &[u8]) -> bool {
    let body = cbor::decode(body).ok();
    let field = |name| body.as_ref()?.as_map()?.get(name).cloned();
    field("active") == Some(cbor::Value::Bool(false))
        && field("status").is_some_and(|status| status.as_text() == Some("deleted"))
}
