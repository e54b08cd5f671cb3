//! The store contract on a disk that loses what was never synced: claims, receipts and fold checkpoints, with crashes and
//! failed syncs at random moments, against a small model. One operation is under way at a time, so after a start the
//! state must be the one before it or the one after it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use alluvium_engine::{Durability, Engine, EngineStore, Limits, Options, Threads};
use alluvium_env::Env;
use alluvium_env::sim::{FaultRule, ManualClock, Operation, Rng, SeededRandom, SimDisk};
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{
    AppendOptions, FoldCheckpoint, PutOptions, RetryMetadata, StoreError, StoreFault, StoreResult,
    StreamStore,
};
use alluvium_protocol::{ContentType, Incarnation, Offset, ProducerId, ProducerStamp, StreamPath};
use bytes::Bytes;

const SEEDS: u64 = 60;
const STEPS: u64 = 250;
const PATHS: [&str; 3] = ["a", "b", "chat/c"];
const STARTS_MAX: u32 = 8;

/// What a stream is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stream {
    incarnation: Option<Incarnation>,
    claim: Option<(ProducerId, u64, u64)>,
    appends: Vec<Append>,
    checkpoint: Option<(Offset, u32, String)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Append {
    stamp: ProducerStamp,
    data: Bytes,
    metadata: Option<String>,
}

impl Stream {
    fn end(&self, appends: usize) -> Offset {
        let bytes: usize = self.appends[..appends].iter().map(|append| append.data.len()).sum();
        Offset::new(appends as u64, bytes as u64)
    }

    fn tail(&self) -> Offset {
        self.end(self.appends.len())
    }
}

/// All streams by path; `None` where there is none.
type Model = [Option<Stream>; PATHS.len()];

struct World {
    seed: u64,
    disk: SimDisk,
    random: Arc<SeededRandom>,
    engine: Option<Engine>,
    model: Model,
    rng: Rng,
    starts: u64,
    undecided: u64,
}

fn path(index: usize) -> StreamPath {
    StreamPath::parse_decoded(PATHS[index]).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, random) = (SimDisk::new(seed), Arc::new(SeededRandom::new(seed)));
        let (model, rng) = (Model::default(), Rng::new(seed ^ 0x5704));
        let mut world = Self { seed, disk, random, engine: None, model, rng, starts: 0, undecided: 0 };
        world.engine = Some(world.open().unwrap());
        world
    }

    fn open(&self) -> Result<Engine, String> {
        let env = Env {
            clock: Arc::new(ManualClock::new(1_790_000_000_000)),
            random: self.random.clone(),
            disk: Arc::new(self.disk.clone()),
        };
        let options = Options {
            durability: Durability::Fsync,
            shards: 2,
            segment_bytes: 16 * 1024,
            recent_bytes: 2048,
            table_bytes_max: 16 * 1024,
            limits: Limits { append_bytes_max: 6000, ..Limits::default() },
            threads: Threads::Manual,
            ..Options::new(Arc::new(|_| {}))
        };
        Engine::open(env, Path::new("/data"), options).map_err(|error| error.to_string())
    }

    fn store(&self) -> EngineStore {
        EngineStore::new(self.engine.clone().expect("the engine is open"))
    }

    /// Carries out one operation; `None` if the engine stopped meanwhile.
    fn drive<T>(&self, operation: impl Future<Output = StoreResult<T>>) -> Option<StoreResult<T>> {
        let mut operation = std::pin::pin!(operation);
        for _ in 0..4 {
            if let Poll::Ready(outcome) = operation.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                let has_stopped = matches!(outcome, Err(StoreError::Fault(StoreFault::Stopped)));
                return Some(outcome).filter(|_| !has_stopped && !self.disk.is_down());
            }
            let engine = self.engine.as_ref().expect("the engine is open");
            for shard in 0..engine.shards() {
                // A failure is told by the answer.
                let _stepped = engine.step_commit(shard);
            }
        }
        None
    }

    /// Starts again after whatever happened; the state must be one of these.
    fn start(&mut self, candidates: &[Model]) {
        self.engine = None;
        if self.disk.is_down() || self.rng.percent(40) {
            self.disk.crash();
            self.disk.restart();
        } else {
            self.disk.kill();
        }
        let (mut attempts, faults) = (0, self.disk.counts());
        self.engine = loop {
            match self.open() {
                Ok(engine) => break Some(engine),
                Err(error) => {
                    attempts += 1;
                    let is_disturbed = self.disk.is_down() || self.disk.counts() != faults;
                    assert!(is_disturbed && attempts < STARTS_MAX, "seed {}: {error}", self.seed);
                    self.disk.restart();
                }
            }
        };
        self.starts += 1;
        self.undecided += u64::from(candidates.len() > 1);
        let found = self.observe(candidates);
        assert!(candidates.contains(&found), "seed {}: found {found:#?}\nof {candidates:#?}", self.seed);
        self.model = found;
    }

    /// Everything that can be seen. What only a retry can show is taken from the model and tried.
    fn observe(&self, candidates: &[Model]) -> Model {
        std::array::from_fn(|index| {
            let (store, at) = (self.store(), path(index));
            let state = self.drive(store.storage_state(&at)).unwrap().unwrap()?;
            let checkpoint = self.drive(store.fold_checkpoint(&at, None)).unwrap().unwrap();
            let batches = self.drive(store.read_append_batches(&at, 1, 10_000, None, None)).unwrap().unwrap();
            let known = candidates.iter().filter_map(|model| model[index].as_ref());
            let known = known.map(|stream| &stream.appends[..]).max_by_key(|appends| appends.len());
            let known = known.unwrap_or_default();
            let appends = batches.iter().enumerate().map(|(number, batch)| match known.get(number) {
                Some(append) if append.data == batch.data => append.clone(),
                _ => panic!("seed {}: append {number} of {at} is {batch:?}", self.seed),
            });
            let stream = Stream {
                incarnation: Some(state.incarnation),
                claim: state.claim.map(|claim| (claim.id, claim.epoch, claim.next_seq)),
                appends: appends.collect(),
                checkpoint: checkpoint.map(|kept| (kept.offset, kept.format_version, kept.data)),
            };
            assert_eq!(state.next_offset, stream.tail());
            for count in 0..=stream.appends.len() {
                let end = self.drive(store.append_end_offset(&at, count as u64, None)).unwrap().unwrap();
                assert_eq!(end, Some(stream.end(count)));
            }
            Some(stream)
        })
    }

    /// Judges what came of an operation that makes `after` of the model.
    fn decide<T: std::fmt::Debug>(&mut self, outcome: Option<StoreResult<T>>, after: Model) -> Option<T> {
        match outcome {
            Some(Ok(value)) => {
                self.model = after;
                Some(value)
            }
            Some(Err(error)) => panic!("seed {}: {error:?}", self.seed),
            None => {
                let before = self.model.clone();
                self.start(&[before, after]);
                None
            }
        }
    }

    /// After what changed nothing.
    fn start_again(&mut self) {
        let model = self.model.clone();
        self.start(&[model]);
    }

    fn with(&self, index: usize, change: impl FnOnce(&mut Stream)) -> Model {
        let mut after = self.model.clone();
        if let Some(stream) = &mut after[index] {
            change(stream);
        }
        after
    }

    fn step(&mut self) {
        let index = self.rng.index(PATHS.len());
        let Some(stream) = self.model[index].clone() else { return self.create(index) };
        match self.rng.below(100) {
            0..10 => self.claim(index),
            10..45 => self.append(index, &stream),
            45..60 => self.repeat(index, &stream),
            60..75 => self.checkpoint(index, &stream),
            75..78 => {
                let mut after = self.model.clone();
                after[index] = None;
                let outcome = self.drive(self.store().delete(&path(index), None));
                self.decide(outcome, after);
            }
            78..84 => {
                let engine = self.engine.clone().expect("the engine is open");
                (0..2).for_each(|shard| engine.step_expire(shard));
                (0..2).for_each(|shard| engine.step_spare(shard));
                let folded = (0..2).all(|shard| engine.step_fold(shard).is_ok());
                drop(engine);
                if !folded {
                    self.start_again();
                }
            }
            84..88 => self.disk.crash_at(self.disk.operations() + self.rng.below(12)),
            88..90 => {
                let skip = self.rng.below(3);
                let rule =
                    FaultRule { operation: Operation::SyncFile, path_contains: "journal".to_owned(), skip };
                self.disk.plan(rule);
            }
            _ => self.start_again(),
        }
        if self.disk.is_down() {
            self.start_again();
        }
    }

    fn create(&mut self, index: usize) {
        let options = PutOptions { content_type: Some(ContentType::DEFAULT), ..PutOptions::default() };
        let outcome = self.drive(self.store().put(&path(index), options));
        if let Some(created) = outcome {
            let incarnation = Some(created.unwrap().incarnation);
            self.model[index] = Some(Stream { incarnation, ..Stream::default() });
            return;
        }
        // Only the engine knows which identity it has given.
        self.engine = None;
        self.disk.restart();
        self.engine = self.open().ok();
        let found = self.drive(self.store().storage_state(&path(index))).unwrap().unwrap();
        let mut after = self.model.clone();
        after[index] =
            found.map(|state| Stream { incarnation: Some(state.incarnation), ..Stream::default() });
        self.start(&[after]);
    }

    fn claim(&mut self, index: usize) {
        let id = ProducerId::parse(["p", "q"][self.rng.index(2)]).unwrap();
        let after = self.with(index, |stream| {
            let epoch = stream.claim.as_ref().map_or(0, |claim| claim.1) + 1;
            stream.claim = Some((id.clone(), epoch, 0));
        });
        let outcome = self.drive(self.store().acquire_producer(&path(index), id, None));
        if let Some(claim) = self.decide(outcome, after) {
            let stream = self.model[index].as_ref().expect("it was claimed");
            assert_eq!(Some((claim.id, claim.epoch, claim.next_seq)), stream.claim);
            assert_eq!(claim.next_offset, stream.tail());
        }
    }

    fn append(&mut self, index: usize, stream: &Stream) {
        let Some((id, epoch, seq)) = stream.claim.clone() else { return self.claim(index) };
        let most = if self.rng.percent(10) { 4000 } else { 100 };
        let data = Bytes::from(vec![self.rng.next_u64().to_le_bytes()[0]; 1 + self.rng.index(most)]);
        let metadata = self.rng.percent(50).then(|| format!("attempt {seq}"));
        let stamp = ProducerStamp { id, epoch, seq };
        let append = Append { stamp, data, metadata };
        if epoch > 1 && self.rng.percent(10) {
            // Whoever was fenced stays so.
            let stamp = ProducerStamp { epoch: epoch - 1, ..append.stamp };
            let outcome = self.send(index, &Append { stamp, ..append });
            assert!(!matches!(outcome, Some(Ok(_))), "seed {}: a fenced append", self.seed);
            if outcome.is_none() {
                self.start_again();
            }
            return;
        }
        let after = self.with(index, |stream| {
            stream.claim.as_mut().expect("it is claimed").2 += 1;
            stream.appends.push(append.clone());
        });
        let outcome = self.send(index, &append);
        if let Some(appended) = self.decide(outcome, after) {
            assert_eq!(appended, (true, self.model[index].as_ref().expect("it is there").tail()));
        }
    }

    fn send(&self, index: usize, append: &Append) -> Option<StoreResult<(bool, Offset)>> {
        let options = AppendOptions {
            producer: Some(append.stamp.clone()),
            retry_metadata: append.metadata.as_deref().map(|text| RetryMetadata::parse(text).unwrap()),
            ..AppendOptions::default()
        };
        let outcome = self.drive(self.store().append(&path(index), append.data.clone(), options));
        outcome.map(|appended| appended.map(|appended| (appended.appended, appended.next_offset)))
    }

    /// Sends an append of the present claim once more: the same gets the first answer, another one a refusal.
    fn repeat(&mut self, index: usize, stream: &Stream) {
        let Some((id, epoch, _)) = stream.claim.clone() else { return };
        let of_claim = |append: &&(usize, Append)| append.1.stamp.id == id && append.1.stamp.epoch == epoch;
        let numbered: Vec<(usize, Append)> = stream.appends.iter().cloned().enumerate().collect();
        let kept: Vec<&(usize, Append)> = numbered.iter().filter(of_claim).collect();
        if kept.is_empty() {
            return;
        }
        let (number, mut append) = (*self.rng.pick(&kept)).clone();
        let differs = self.rng.percent(40);
        if differs && self.rng.percent(50) {
            append.metadata = Some("another".to_owned());
        } else if differs {
            let mut data = append.data.to_vec();
            data[0] ^= 1;
            append.data = data.into();
        }
        match self.send(index, &append) {
            None => self.start_again(),
            Some(answer) if differs => {
                let is_refused = matches!(&answer, Err(StoreError::Refused(error)) if *error == Conflict::RetryDiffers.into());
                assert!(is_refused, "seed {}: another append as a repetition: {answer:?}", self.seed);
            }
            Some(answer) => {
                assert_eq!(answer.unwrap(), (false, stream.end(number + 1)), "seed {}", self.seed);
            }
        }
    }

    fn checkpoint(&mut self, index: usize, stream: &Stream) {
        let count = self.rng.index(stream.appends.len() + 1);
        let offset = stream.end(count);
        let length = if self.rng.percent(20) { 3000 } else { 20 };
        let data = format!("{:width$}", self.rng.next_u64(), width = length);
        let format_version = u32::try_from(self.rng.below(9)).unwrap();
        let incarnation = stream.incarnation.expect("it is known");
        let kept = FoldCheckpoint { offset, incarnation, format_version, data: data.clone() };
        let outcome = self.drive(self.store().put_fold_checkpoint(&path(index), kept));
        let is_behind = stream.checkpoint.as_ref().is_some_and(|checkpoint| offset < checkpoint.0);
        match outcome {
            Some(Err(StoreError::Refused(error))) if is_behind => {
                assert_eq!(error, Conflict::CheckpointBehind.into());
            }
            None if is_behind => self.start_again(),
            outcome => {
                assert!(!is_behind, "seed {}: an earlier checkpoint was taken", self.seed);
                let after =
                    self.with(index, |stream| stream.checkpoint = Some((offset, format_version, data)));
                self.decide(outcome, after);
            }
        }
    }
}

/// What a seed did: starts, those of which only the engine knew the outcome, and crashes.
fn run(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.start_again();
    (world.starts, world.undecided, world.disk.counts().crashes)
}

#[test]
fn claims_receipts_and_checkpoints_are_what_the_model_says_after_every_crash() {
    let total = (0..SEEDS).map(run).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    assert!(total.0 > 1000 && total.1 > 50 && total.2 > 300, "{total:?}");
}

/// These runs are worth something only if they find bugs that are there.
#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_put_in_on_purpose_is_found() {
    use alluvium_engine::planted::{Bug, plant};
    for bug in [Bug::SkippedSync, Bug::AnsweredBeforeSync, Bug::SegmentNotReplayed, Bug::UnsyncedTable] {
        let is_found = |seed| {
            std::panic::catch_unwind(|| {
                plant(Some(bug));
                run(seed)
            })
            .is_err()
        };
        let found = (0..SEEDS).any(is_found);
        plant(None);
        assert!(found, "{bug:?}");
    }
}
