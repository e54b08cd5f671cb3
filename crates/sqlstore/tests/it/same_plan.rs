//! One plan, two runners: a transaction around a whole operation, and batches without transactions.

use alluvium_env::sim::Rng;
use alluvium_protocol::store::{
    AppendOptions, FoldCheckpoint, GetOptions, PutOptions, RetryMetadata, StoreResult,
};
use alluvium_protocol::{
    ContentType, ForkOrigin, Incarnation, Lifetime, Offset, OffsetQuery, ProducerId, ProducerStamp,
    StreamPath,
};
use alluvium_sqlstore::ops::{self, run_now};
use alluvium_sqlstore::plan::Sql;
use alluvium_sqlstore::{Bounds, Scope};
use bytes::Bytes;

use crate::batch_runner::{BatchRunner, database, dump};

const SEEDS: u64 = 60;
const STEPS: u64 = 80;

fn bounds() -> Bounds {
    Bounds {
        chunk_bytes_max: 16,
        read_bytes_max: 24,
        append_bytes_max: 16 * 24,
        checkpoint_bytes_max: 60,
        checkpoint_chunk_bytes_max: 16,
        checkpoint_chunks_max: 8,
        receipts_max: 3,
        lanes_max: 2,
        lane_idle_ms: 5000,
    }
}

/// Where the script is.
struct Script {
    rng: Rng,
    now_ms: u64,
    incarnations: u128,
}

impl Script {
    fn path(&mut self) -> StreamPath {
        StreamPath::parse_decoded(&format!("s{}", self.rng.below(4))).expect("a path")
    }

    fn data(&mut self) -> Bytes {
        let length = *self.rng.pick(&[0, 1, 5, 15, 16, 17, 40, 100]);
        let number = self.rng.below(10);
        Bytes::from(match number {
            0 => format!("[{length},\"{}\"]", "x".repeat(length)),
            _ => format!("\"{}\"", "y".repeat(length)),
        })
    }

    fn offset(&mut self) -> Offset {
        Offset { append_index: self.rng.below(5), position: self.rng.below(120) }
    }

    fn put(&mut self) -> PutOptions {
        let fork = self.rng.percent(40).then(|| ForkOrigin {
            source: self.path(),
            offset: self.rng.percent(30).then(|| self.offset()),
            sub_offset: self.rng.below(3),
        });
        let lifetime = if self.rng.percent(20) { Lifetime::Ttl { seconds: 20 } } else { Lifetime::Forever };
        let data = if self.rng.percent(50) { self.data() } else { Bytes::new() };
        let content_type = self.rng.percent(50).then_some(ContentType::JSON);
        PutOptions { fork, lifetime, data, content_type, ..PutOptions::default() }
    }

    fn append(&mut self) -> AppendOptions {
        let producer = self.rng.percent(60).then(|| ProducerStamp {
            id: ProducerId::parse(&format!("p{}", self.rng.below(3))).expect("an id"),
            epoch: self.rng.below(3),
            seq: self.rng.below(6),
        });
        let metadata = RetryMetadata::parse("m").ok().filter(|_| self.rng.percent(10));
        let seq = self.rng.percent(10).then(|| self.rng.below(10).to_string());
        let close = self.rng.percent(5);
        AppendOptions { producer, close, seq, retry_metadata: metadata, ..AppendOptions::default() }
    }
}

/// Runs one step on one runner, and tells what it answered.
fn step<S: Sql>(sql: &mut S, script: &mut Script) -> String {
    let bounds = bounds();
    let now_ms = script.now_ms;
    let scope = Scope { bounds: &bounds, claims_required: false, now_ms };
    let path = script.path();
    match script.rng.below(20) {
        0..4 => {
            script.incarnations += 1;
            let (options, incarnation) = (script.put(), Incarnation(script.incarnations));
            told(run_now(ops::put(sql, &scope, &path, &options, incarnation)))
        }
        4..11 => {
            let (data, options) = (script.data(), script.append());
            told(run_now(ops::append(sql, &scope, &path, &data, &options)))
        }
        11 => {
            let id = ProducerId::parse("p1").expect("an id");
            told(run_now(ops::acquire(sql, &scope, &path, &id, None)))
        }
        12 => told(run_now(ops::delete(sql, &scope, &path, None))),
        13 => {
            let offset = script.offset();
            told(run_now(async {
                let Some(head) = ops::storage_state(sql, &scope, &path).await? else { return Ok(()) };
                let offset = if offset.position.is_multiple_of(2) { head.next_offset } else { offset };
                let data = "é".repeat(usize::try_from(offset.position % 31).unwrap_or(0));
                let checkpoint =
                    FoldCheckpoint { offset, incarnation: head.incarnation, format_version: 1, data };
                ops::put_checkpoint(sql, &scope, &path, &checkpoint).await
            }))
        }
        14 => told(run_now(ops::sweep(sql, &scope))),
        15 => {
            script.now_ms += script.rng.below(8000);
            told(run_now(ops::get_checkpoint(sql, &scope, &path, None)))
        }
        16 => told(run_now(ops::read_append_batches(
            sql,
            &scope,
            &path,
            script.rng.below(5),
            3,
            None,
            Some(60),
        ))),
        17 => told(run_now(ops::append_end_offset(sql, &scope, &path, script.rng.below(6), None))),
        _ => {
            let at =
                if script.rng.percent(70) { OffsetQuery::Start } else { OffsetQuery::At(script.offset()) };
            let options = GetOptions { offset: at, ..GetOptions::default() };
            told(run_now(async {
                let got = ops::get(sql, &scope, &path, &options).await?;
                if let Some(incarnation) = got.renew {
                    ops::renew(sql, &scope, &path, incarnation).await?;
                }
                Ok(got.result)
            }))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "answers are told where they are made")]
fn told<T: std::fmt::Debug>(answer: StoreResult<T>) -> String {
    format!("{answer:?}")
}

#[test]
fn a_plan_runs_the_same_in_a_transaction_and_as_batches() {
    let (mut good, mut refused, mut faults) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut one = database();
        let mut other = BatchRunner::new();
        let script = || Script { rng: Rng::new(seed), now_ms: 1_000_000, incarnations: 0 };
        let (mut first, mut second) = (script(), script());
        for at in 0..STEPS {
            one.raw().execute_batch("BEGIN IMMEDIATE").expect("begins");
            let in_transaction = step(&mut one, &mut first);
            one.raw().execute_batch("COMMIT").expect("commits");
            let as_batches = step(&mut other, &mut second);
            assert_eq!(in_transaction, as_batches, "seed {seed}, step {at}");
            assert_eq!(dump(one.raw()), dump(other.inner.raw()), "seed {seed}, step {at}: {as_batches}");
            good += u32::from(as_batches.starts_with("Ok"));
            refused += u32::from(as_batches.starts_with("Err(Refused"));
            faults += u32::from(as_batches.starts_with("Err(Fault"));
        }
    }
    assert_eq!(faults, 0, "nothing is damaged");
    assert!(good > 1000 && refused > 300, "the script reaches both: {good} good, {refused} refused");
}
