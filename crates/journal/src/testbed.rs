//! A journal on a simulated disk, for tests.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk, Env, OpenMode};
use bytes::Bytes;

use crate::batch::{BatchBuilder, RecordPlace};
use crate::error::JournalError;
use crate::record::{Append, Mutation, Record, StreamId};
use crate::replay::{ReplayError, Replayed, replay};
use crate::segments::Segments;
use crate::writer::{JournalWriter, Written};

pub(crate) const DIR: &str = "/shard";

/// Small, so that tests fill segments with little.
pub(crate) const SEGMENT_BYTES: u32 = 4096;

/// A simulated world with the folder of a shard in it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) env: Env,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new(DIR)).expect("a directory");
        let env = Env {
            clock: Arc::new(ManualClock::new(0)),
            random: Arc::new(SeededRandom::new(seed)),
            disk: Arc::new(disk.clone()),
        };
        Self { disk, env }
    }

    /// A world with a new journal whose first segment is number 1.
    pub(crate) fn with_journal(seed: u64) -> (Self, Journal) {
        let world = Self::new(seed);
        let segments = Segments::create(&world.env, Path::new(DIR), SEGMENT_BYTES, 1).expect("a new journal");
        let replayed = read_all(&segments).expect("an empty journal").1;
        let writer = JournalWriter::resume(Arc::clone(&segments), &replayed).expect("a writer");
        (world, Journal { segments, writer })
    }

    /// Replays the journal from segment `first` on.
    pub(crate) fn replay(&self, first: u64) -> Result<(Vec<(Record, RecordPlace)>, Replayed), JournalError> {
        read_all(&*Segments::open(&self.env, Path::new(DIR), SEGMENT_BYTES, first)?)
    }

    /// Replays the journal from segment `first` on and goes on writing it.
    pub(crate) fn resume(&self, first: u64) -> Result<(Journal, Vec<Record>, Replayed), JournalError> {
        let segments = Segments::open(&self.env, Path::new(DIR), SEGMENT_BYTES, first)?;
        let (records, replayed) = read_all(&segments)?;
        let writer = JournalWriter::resume(Arc::clone(&segments), &replayed)?;
        let records = records.into_iter().map(|(record, _)| record).collect();
        Ok((Journal { segments, writer }, records, replayed))
    }

    pub(crate) fn read(&self, path: &Path) -> Vec<u8> {
        let file = self.disk.open(path, OpenMode::Read).expect("a file");
        let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("a small file")];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        bytes
    }

    /// Overwrites a part of an existing file.
    pub(crate) fn overwrite(&self, path: &Path, bytes: &[u8], at: u64) {
        let file = self.disk.open(path, OpenMode::ReadWrite).expect("a file");
        file.write_all_at(&[bytes], at).expect("a write");
    }
}

fn read_all(segments: &Segments) -> Result<(Vec<(Record, RecordPlace)>, Replayed), JournalError> {
    let mut records = Vec::new();
    let mut keep = |record, place| -> Result<(), Infallible> {
        records.push((record, place));
        Ok(())
    };
    match replay(segments, &mut keep) {
        Ok(replayed) => Ok((records, replayed)),
        Err(ReplayError::Journal(error)) => Err(error),
        Err(ReplayError::Sink(never)) => match never {},
    }
}

/// A journal being written.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) segments: Arc<Segments>,
    pub(crate) writer: JournalWriter,
}

impl Journal {
    /// Writes one batch without syncing, in a new segment when it doesn't fit.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<Written, JournalError> {
        let mut batch = self.writer.batch();
        for record in records {
            batch.push(record);
        }
        if batch.len() > self.writer.remaining() {
            self.writer.rotate()?;
        }
        self.writer.write(batch)
    }

    /// Writes and syncs one batch.
    pub(crate) fn commit(&mut self, records: &[Record]) -> Result<Written, JournalError> {
        let written = self.write(records)?;
        self.writer.sync()?;
        Ok(written)
    }
}

/// The path of a segment.
pub(crate) fn segment_path(number: u64) -> PathBuf {
    Path::new(DIR).join(crate::names::segment_name(number))
}

/// A record that is told from others by its number, with data of some length.
pub(crate) fn numbered(number: u64, data_len: usize) -> Record {
    let data: Vec<u8> = (0..data_len).map(|at| (at as u64 ^ number).to_le_bytes()[0]).collect();
    let lengths = vec![crate::codec::len_u32(data_len)];
    let append = Append {
        start: (number, 0),
        lengths,
        data: Bytes::from(data),
        producer: None,
        seq: None,
        close: false,
        renew_deadline_ms: None,
        receipt: None,
    };
    Record { stream: StreamId(number), time_ms: number, mutation: Mutation::Append(append) }
}

/// A batch of one record, for tests that need its bytes.
pub(crate) fn batch_of(record: &Record) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    batch.push(record);
    batch
}
