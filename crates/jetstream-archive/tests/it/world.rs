//! A world to put an archive in, and rows to put into it.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk, Env};
use alluvium_jetstream_archive::{Archive, Batch, Error, LogStore, Options, Recovered};
use alluvium_jss::{Event, Kind, Row, WriteLimits};

pub(crate) const DIR: &str = "/archive/segments";
const STORE: &str = "/archive/store.log";
pub(crate) const START_US: i64 = 1_783_000_000_000_000;

pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Options,
    seed: u64,
}

impl World {
    /// Blocks of four rows, segments of about three blocks.
    pub(crate) fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let mut options = Options::new(DIR);
        options.blocks = WriteLimits { block_rows: 4, block_bytes: 1 << 20 };
        options.segment_bytes = 2500;
        Self { disk, clock: Arc::new(ManualClock::new(1_783_000_000_000)), options, seed }
    }

    /// A start of the process.
    pub(crate) fn open(&self) -> Result<(Archive, Recovered), Error> {
        let env = Env {
            clock: Arc::clone(&self.clock) as _,
            random: Arc::new(SeededRandom::new(self.seed)),
            disk: Arc::new(self.disk.clone()),
        };
        self.disk
            .create_dir_all(Path::new("/archive"))
            .map_err(|source| Error::Io { context: "creating the world", source: Arc::new(source) })?;
        let store = Arc::new(LogStore::open(&self.disk, Path::new(STORE))?);
        Archive::open(env, store, self.options.clone())
    }

    pub(crate) fn opened(&self) -> Archive {
        self.open().unwrap().0
    }
}

/// An event that follows from a number. Its payload is long and hard to compress, so that a frame has several sectors.
pub(crate) fn event(number: u64) -> Event {
    let kind = Kind::from_number(u8::try_from(number % 7 + 1).unwrap());
    let commit = kind.is_commit();
    let noise = (0..if kind == Kind::Delete { 0 } else { 300 + number % 5 }).scan(number, |state, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(state.to_le_bytes()[7])
    });
    Event {
        witnessed_at: START_US + i64::try_from(number).unwrap() * 1000,
        indexed_at: 0,
        kind,
        did: format!("did:plc:{}", number % 5),
        collection: if commit { format!("com.example.c{}", number % 3) } else { String::new() },
        rkey: if commit { format!("r{number}") } else { String::new() },
        rev: if commit || kind == Kind::Sync { format!("rev{number}") } else { String::new() },
        payload: noise.collect::<Vec<u8>>().into(),
    }
}

/// A batch of these events, which says under `done` how far it goes.
pub(crate) fn batch(numbers: std::ops::RangeInclusive<u64>) -> Batch {
    let done = numbers.end().to_string();
    Batch { events: numbers.map(event).collect(), changes: [(b"done"[..].into(), Some(done.into()))].into() }
}

/// Submits and makes durable.
pub(crate) fn commit(archive: &Archive, batch: Batch) -> Result<(), Error> {
    archive.submit(batch)?;
    archive.commit_waiting()?;
    Ok(())
}

/// All rows from here on.
pub(crate) fn rows_from(archive: &Archive, from: u64) -> Vec<Row> {
    let mut reader = archive.reader(from);
    let mut rows = Vec::new();
    while let Some(read) = reader.read(3).unwrap() {
        assert!(read.rows.iter().all(|row| row.seq() < read.next));
        assert_eq!(reader.position(), read.next);
        rows.extend(read.rows.iter().map(|row| row.row().to_row()));
    }
    rows
}

/// The rows that these events are, if the first has this number.
pub(crate) fn expected(first: u64, numbers: std::ops::RangeInclusive<u64>) -> Vec<Row> {
    (first..).zip(numbers.map(event)).map(|(seq, event)| Row { seq, event }).collect()
}

pub(crate) fn seqs(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.seq).collect()
}
