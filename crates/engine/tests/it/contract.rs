//! The store contract: its whole suite on an engine with threads and a disk of its own, and what of it a crash must not
//! take back.

use std::sync::Arc;

use alluvium_engine::{AppendError, AppendRequest, Engine, EngineStore, Options, Terms};
use alluvium_env::sim::ManualClock;
use alluvium_env::{Clock, Env};
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::conformance::{Harness, Limits, behaviours};
use alluvium_protocol::store::{
    AppendOptions, FoldCheckpoint, ProducerClaim, RetryMetadata, StoreError, StreamStore,
};
use alluvium_protocol::{ContentType, Offset, ProducerId, ProducerStamp, StreamError};
use bytes::Bytes;
use tempfile::TempDir;

use crate::support::{append_request, create_request, path, small_options};

const WINDOW_BYTES: usize = 4096;

struct Running {
    store: EngineStore,
    clock: Arc<ManualClock>,
    append_bytes_max: usize,
    _dir: TempDir,
}

impl Running {
    fn new(options: Options, strict: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let env = Env { clock: clock.clone() as Arc<dyn Clock>, ..Env::real() };
        let append_bytes_max = options.limits.append_bytes_max as usize;
        let engine = Engine::open(env, dir.path(), options).unwrap();
        let store = if strict { EngineStore::strict(engine) } else { EngineStore::new(engine) };
        Self { store: store.with_windows(WINDOW_BYTES as u64), clock, append_bytes_max, _dir: dir }
    }
}

impl Harness for Running {
    type Store = EngineStore;

    fn store(&self) -> &EngineStore {
        &self.store
    }

    fn advance_ms(&self, by_ms: u64) {
        self.clock.advance_ms(by_ms);
    }

    fn limits(&self) -> Limits {
        Limits {
            append_bytes_max: self.append_bytes_max,
            read_bytes_max: WINDOW_BYTES,
            checkpoint_bytes_max: self.append_bytes_max,
        }
    }
}

fn run(strict: bool, options: impl Fn() -> Options) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let behaviours = behaviours::<Running>(strict);
    assert!(behaviours.len() > 45, "the suite is there");
    for behaviour in behaviours {
        let running = Running::new(options(), strict);
        runtime.block_on((behaviour.run)(&running));
        running.store.engine().shutdown();
    }
}

#[test]
fn an_engine_behaves_as_the_contract_says() {
    run(false, small_options);
}

#[test]
fn a_strict_engine_behaves_as_the_contract_says() {
    run(true, small_options);
}

#[test]
fn an_engine_that_keeps_nothing_in_memory_and_folds_all_the_time_behaves_the_same() {
    run(false, || {
        let mut options = small_options();
        options.recent_bytes = 0;
        options.segment_bytes = 128 * 1024;
        options
    });
}

/// An engine that is stepped by hand would need a step for each answer; with threads a restart does.
struct Restarted {
    dir: TempDir,
    engine: Engine,
}

impl Restarted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), small_options()).unwrap();
        Self { dir, engine }
    }

    /// Folds everything if asked, and starts again.
    fn again(&mut self, folds: bool) {
        self.engine.shutdown();
        self.engine = Engine::open(Env::real(), self.dir.path(), small_options()).unwrap();
        if folds {
            for shard in 0..self.engine.shards() {
                while self.engine.step_fold(shard).unwrap() {}
            }
            self.engine.shutdown();
            self.engine = Engine::open(Env::real(), self.dir.path(), small_options()).unwrap();
        }
    }

    fn store(&self) -> EngineStore {
        EngineStore::new(self.engine.clone())
    }
}

fn id(text: &str) -> ProducerId {
    ProducerId::parse(text).unwrap()
}

fn stamped(claim: &ProducerClaim, seq: u64) -> AppendOptions {
    let producer = Some(ProducerStamp { id: claim.id.clone(), epoch: claim.epoch, seq });
    AppendOptions { producer, ..AppendOptions::default() }
}

fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>) -> StreamError {
    match result {
        Err(StoreError::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn claims_receipts_and_checkpoints_survive_a_restart_and_a_fold() {
    for folds in [false, true] {
        let mut world = Restarted::new();
        world.engine.create(&path("s"), create_request("text/plain")).await.unwrap();
        let (at, store) = (path("s"), world.store());
        let old = store.acquire_producer(&at, id("old"), None).await.unwrap();
        let claim = store.acquire_producer(&at, id("p"), None).await.unwrap();
        assert!(claim.epoch > old.epoch);
        let metadata = RetryMetadata::parse("attempt 1").ok();
        let first = AppendOptions { retry_metadata: metadata, ..stamped(&claim, 0) };
        let end = store.append(&at, Bytes::from_static(b"one"), first.clone()).await.unwrap().next_offset;
        store.append(&at, Bytes::from_static(b"two"), stamped(&claim, 1)).await.unwrap();
        let kept = FoldCheckpoint {
            offset: end,
            incarnation: claim.incarnation,
            format_version: 7,
            data: "sum".repeat(1000),
        };
        let earlier = FoldCheckpoint { offset: Offset::ZERO, data: "0".to_owned(), ..kept.clone() };
        store.put_fold_checkpoint(&at, earlier.clone()).await.unwrap();
        store.put_fold_checkpoint(&at, kept.clone()).await.unwrap();
        let before = store.storage_state(&at).await.unwrap();
        world.again(folds);
        let store = world.store();
        assert_eq!(store.storage_state(&at).await.unwrap(), before);
        assert_eq!(store.fold_checkpoint(&at, None).await.unwrap(), Some(kept.clone()));
        assert_eq!(refused(store.put_fold_checkpoint(&at, earlier).await), Conflict::CheckpointBehind.into());
        let again = store.append(&at, Bytes::from_static(b"one"), first.clone()).await.unwrap();
        assert_eq!((again.appended, again.next_offset), (false, end));
        let other = store.append(&at, Bytes::from_static(b"eno"), first).await;
        assert_eq!(refused(other), Conflict::RetryDiffers.into());
        let plain = AppendRequest { ..append_request("text/plain", b"x") };
        let unclaimed = world.engine.append(&at, plain).await;
        assert!(matches!(unclaimed, Err(AppendError::Refused(_))), "the base protocol is bound by it too");
        let third = store.append(&at, Bytes::from_static(b"three"), stamped(&claim, 2)).await.unwrap();
        assert_eq!(third.next_offset, Offset::new(3, 11));
        for index in 0..=3 {
            let end = store.append_end_offset(&at, index, None).await.unwrap();
            assert_eq!(end.map(|end| end.append_index), Some(index));
        }
        let next = store.acquire_producer(&at, id("p"), None).await.unwrap();
        assert_eq!(next.epoch, claim.epoch + 1);
    }
}

#[tokio::test]
async fn superseded_checkpoints_are_collected() {
    let mut world = Restarted::new();
    let created = world.engine.create(&path("s"), create_request("text/plain")).await.unwrap();
    let store = world.store();
    for turn in 0..20 {
        let incarnation = created.incarnation;
        let data = format!("turn {turn}");
        let kept = FoldCheckpoint { offset: Offset::ZERO, incarnation, format_version: 1, data };
        store.put_fold_checkpoint(&path("s"), kept).await.unwrap();
    }
    // What nobody holds at a start is released, and the next sweep records its end.
    world.again(false);
    for shard in 0..world.engine.shards() {
        world.engine.step_expire(shard);
    }
    // The queue is in order: when this is answered, so is all before it.
    world.store().storage_state(&path("s")).await.unwrap();
    assert_eq!(world.engine.stats().snapshots, 1);
    let kept = world.store().fold_checkpoint(&path("s"), None).await.unwrap().unwrap();
    assert_eq!(kept.data, "turn 19");
    world.store().delete(&path("s"), None).await.unwrap();
    for shard in 0..world.engine.shards() {
        world.engine.step_expire(shard);
    }
    world.engine.create(&path("s"), create_request("text/plain")).await.unwrap();
    assert_eq!(world.engine.stats().snapshots, 0);
}

#[tokio::test]
async fn retry_metadata_makes_repetitions_under_the_base_protocol_compared() {
    let world = Restarted::new();
    world.engine.create(&path("s"), create_request("text/plain")).await.unwrap();
    let request = |body: &[u8], metadata: Option<&str>| AppendRequest {
        producer: Some(ProducerStamp { id: id("p"), epoch: 0, seq: 0 }),
        retry_metadata: metadata.and_then(|text| RetryMetadata::parse(text).ok()),
        content_type: Some(ContentType::parse("text/plain").unwrap()),
        ..append_request("text/plain", body)
    };
    let append = async |request| world.engine.append(&path("s"), request).await;
    assert_eq!(request(b"", None).terms, Terms::Protocol);
    assert!(!append(request(b"one", Some("a"))).await.unwrap().duplicate);
    assert!(append(request(b"one", Some("a"))).await.unwrap().duplicate);
    for (body, metadata) in [(b"two", "a"), (b"one", "b")] {
        let differs = append(request(body, Some(metadata))).await;
        assert_eq!(differs, Err(AppendError::Refused(Box::new(Conflict::RetryDiffers.into()))));
    }
    assert!(append(request(b"else", None)).await.unwrap().duplicate, "the base protocol does not compare");
}
