//! The segments of one shard: open handles by number, and the spare files that wait to become one.
//!
//! A segment comes into being by a rename: a spare that is zero-filled and durable gets its header, is synced, and
//! only then gets the name of a segment. So a file with such a name always has a valid header, and the directory of
//! a shard never shows a half-made segment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, Env, OpenMode, Random};
use parking_lot::Mutex;

use crate::error::{Damage, IoFault, JournalError, io_fault};
use crate::identity::DirectoryId;
use crate::names::{is_folded, segment_name, segment_number, spare_name, spare_number};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, Shape};

/// How many spare files are kept.
pub const SPARES_MAX: usize = 2;

/// The smallest segment in bytes; real ones are far larger.
pub const SEGMENT_BYTES_MIN: u32 = 4096;

/// The segments of one shard, shared by its writer, its readers and its maintenance.
#[derive(Debug)]
pub struct Segments {
    disk: Arc<dyn Disk>,
    random: Arc<dyn Random>,
    dir: PathBuf,
    shape: Shape,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    by_number: BTreeMap<u64, Arc<SegmentFile>>,
    spares: Vec<PathBuf>,
    next_spare: u64,
}

impl Segments {
    /// Starts a new journal in `dir`, which exists: segment `first`, empty, durable. Removes what an earlier,
    /// unfinished start may have left, but refuses to touch a folder that has data in it.
    pub fn create(
        env: &Env,
        dir: &Path,
        shape: impl Into<Shape>,
        first: u64,
    ) -> Result<Arc<Self>, JournalError> {
        let segments = Self::empty(env, dir, shape.into());
        let names = segments.names()?;
        for name in &names {
            segments.check_unused(name)?;
        }
        for name in &names {
            if segment_number(name).is_some() || spare_number(name).is_some() {
                segments.remove(&dir.join(name))?;
            }
        }
        segments.begin(first, 1)?;
        Ok(Arc::new(segments))
    }

    /// Fails when a file holds records of an earlier journal.
    fn check_unused(&self, name: &str) -> Result<(), JournalError> {
        let path = self.dir.join(name);
        let used = match segment_number(name) {
            Some(number) => crate::replay::has_batches(&SegmentFile::open_any_size(
                self.disk(),
                path.clone(),
                number,
                OpenMode::Read,
            )?)?,
            None => is_folded(name),
        };
        if used {
            let reason = "it belongs to a journal that has data, but what says so, `FORMAT` or `MANIFEST`, isn't there";
            return Err(Damage { file: path, at: 0, reason }.into());
        }
        Ok(())
    }

    /// Opens the segments from `first` on. Older ones, which a fold has made superfluous, become spares.
    pub fn open(
        env: &Env,
        dir: &Path,
        shape: impl Into<Shape>,
        first: u64,
    ) -> Result<Arc<Self>, JournalError> {
        let segments = Self::empty(env, dir, shape.into());
        let names = segments.names()?;
        let last_spare = names.iter().filter_map(|name| spare_number(name)).max();
        segments.files.lock().next_spare = last_spare.map_or(0, |number| number + 1);
        segments.open_from(first, &names, OpenMode::ReadWrite)?;
        for name in &names {
            let retired = segment_number(name).is_some_and(|number| number < first);
            if retired || spare_number(name).is_some() {
                segments.salvage(&dir.join(name))?;
            }
        }
        Ok(Arc::new(segments))
    }

    /// Opens the segments from `first` on to look at them: nothing is changed, and they can't be written.
    pub fn look(env: &Env, dir: &Path, shape: impl Into<Shape>, first: u64) -> Result<Self, JournalError> {
        let segments = Self::empty(env, dir, shape.into());
        segments.open_from(first, &segments.names()?, OpenMode::Read)?;
        Ok(segments)
    }

    fn open_from(&self, first: u64, names: &[String], mode: OpenMode) -> Result<(), JournalError> {
        let mut expected = first;
        for number in names.iter().filter_map(|name| segment_number(name)).filter(|number| *number >= first) {
            if number != expected {
                return Err(self.missing(expected).into());
            }
            expected += 1;
            let path = self.dir.join(segment_name(number));
            self.insert(SegmentFile::open(self.disk(), path, number, self.shape, mode)?)?;
        }
        if expected == first {
            return Err(self.missing(first).into());
        }
        Ok(())
    }

    fn empty(env: &Env, dir: &Path, shape: Shape) -> Self {
        let segment_bytes = shape.segment_bytes;
        assert!(segment_bytes >= SEGMENT_BYTES_MIN, "a segment of {segment_bytes} bytes is too small");
        Self {
            disk: Arc::clone(&env.disk),
            random: Arc::clone(&env.random),
            dir: dir.to_owned(),
            shape,
            files: Mutex::default(),
        }
    }

    fn names(&self) -> Result<Vec<String>, IoFault> {
        self.disk.list(&self.dir).map_err(io_fault("list", &self.dir))
    }

    fn missing(&self, number: u64) -> Damage {
        Damage { file: self.dir.join(segment_name(number)), at: 0, reason: "the segment is missing" }
    }

    /// Adds the next segment; the one before is sealed by it.
    fn insert(&self, segment: SegmentFile) -> Result<Arc<SegmentFile>, Damage> {
        let segment = Arc::new(segment);
        let mut files = self.files.lock();
        if let Some((_, previous)) = files.by_number.last_key_value() {
            let last_seq = segment.first_seq().wrapping_sub(1);
            if last_seq.wrapping_add(1) < previous.first_seq() {
                return Err(segment.damage(0, "the segment starts before the one in front of it"));
            }
            previous.seal(last_seq);
        }
        files.by_number.insert(segment.number(), Arc::clone(&segment));
        Ok(segment)
    }

    /// The size of every segment in bytes.
    pub fn segment_bytes(&self) -> u32 {
        self.shape.segment_bytes
    }

    /// The data directory that they are of; `None` where nobody knows.
    pub fn directory(&self) -> Option<DirectoryId> {
        self.shape.directory
    }

    /// The handle of a segment, or `None` when it was retired.
    pub fn get(&self, number: u64) -> Option<Arc<SegmentFile>> {
        self.files.lock().by_number.get(&number).cloned()
    }

    /// The numbers of all segments but the one being written, ascending.
    pub fn sealed(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.files.lock().by_number.keys().copied().collect();
        numbers.pop();
        numbers
    }

    /// The segment being written.
    pub fn current(&self) -> Arc<SegmentFile> {
        let files = self.files.lock();
        let Some((_, current)) = files.by_number.last_key_value() else {
            unreachable!("a journal has a segment from its start on");
        };
        Arc::clone(current)
    }

    /// All segments, ascending.
    pub(crate) fn all(&self) -> Vec<Arc<SegmentFile>> {
        self.files.lock().by_number.values().cloned().collect()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Gives up all sealed segments up to and including `up_to`, which the durable manifest must no longer need.
    /// A file that somebody still reads is removed, and stays readable for them; others become spares.
    pub fn retire(&self, up_to: u64) -> Result<(), JournalError> {
        let retired: Vec<Arc<SegmentFile>> = {
            let mut files = self.files.lock();
            let current = files.by_number.last_key_value().map_or(0, |(number, _)| *number);
            let kept = files.by_number.split_off(&up_to.saturating_add(1).min(current));
            std::mem::replace(&mut files.by_number, kept).into_values().collect()
        };
        for segment in retired {
            // Out of the map nobody can get it anew, so the only holder now is the only holder for good.
            if Arc::strong_count(&segment) == 1 {
                self.recycle(segment.path())?;
            } else {
                self.remove(segment.path())?;
            }
        }
        Ok(())
    }

    /// Turns a file that was a segment into a spare, or removes it when there are enough. That needs no sync: until
    /// the name is durable, a restart finds a segment older than the first and salvages it.
    fn recycle(&self, path: &Path) -> Result<(), JournalError> {
        let spare = {
            let mut files = self.files.lock();
            if files.spares.len() >= SPARES_MAX { None } else { Some(self.next_spare_path(&mut files)) }
        };
        let Some(spare) = spare else { return self.remove(path) };
        self.disk.rename(path, &spare).map_err(io_fault("rename", path))?;
        self.files.lock().spares.push(spare);
        Ok(())
    }

    /// Keeps a file that was there before the start as a spare, unless it is half-made, one too many, or not a file
    /// of its own: a crash between two renames can leave a file that has become a segment its earlier name too.
    fn salvage(&self, path: &Path) -> Result<(), JournalError> {
        let (header, len) = SegmentFile::read_header(self.disk(), path)?;
        let segment =
            header.and_then(|header| self.get(header.number).filter(|found| found.key() == header.key));
        let usable = segment.is_none() && len == u64::from(self.shape.segment_bytes);
        if usable { self.recycle(path) } else { self.remove(path) }
    }

    fn remove(&self, path: &Path) -> Result<(), JournalError> {
        Ok(self.disk.remove(path).map_err(io_fault("remove", path))?)
    }

    fn next_spare_path(&self, files: &mut Files) -> PathBuf {
        let number = files.next_spare;
        files.next_spare += 1;
        self.dir.join(spare_name(number))
    }

    /// Makes a zero-filled, durable spare when there is none, so that the writer finds one when its segment is full;
    /// whether it did. On a full disk it leaves nothing behind.
    pub fn prepare_spare(&self) -> Result<bool, JournalError> {
        if !self.files.lock().spares.is_empty() {
            return Ok(false);
        }
        let spare = self.make_spare()?;
        self.files.lock().spares.push(spare);
        Ok(true)
    }

    fn make_spare(&self) -> Result<PathBuf, JournalError> {
        let path = self.next_spare_path(&mut self.files.lock());
        match self.fill_spare(&path) {
            Ok(()) => Ok(path),
            Err(fault) => {
                // Best effort: a start removes it too, and the fault is what the caller must hear of.
                if let Err(error) = self.disk.remove(&path) {
                    tracing::debug!(file = %path.display(), %error, "can't remove a half-made spare");
                }
                Err(full_or(fault))
            }
        }
    }

    fn fill_spare(&self, path: &Path) -> Result<(), IoFault> {
        let file = self.disk.open(path, OpenMode::CreateNew).map_err(io_fault("create", path))?;
        file.fill_zero(u64::from(self.shape.segment_bytes)).map_err(io_fault("fill", path))?;
        file.sync_all().map_err(io_fault("sync", path))
    }

    /// Gives the current segment, which has no batches, its name once more, so that the name is durable afterwards.
    /// A crash in between leaves the journal without it, ending with the segment in front, which must exist.
    pub(crate) fn begin_again(&self, current: &SegmentFile) -> Result<Arc<SegmentFile>, JournalError> {
        let spare = {
            let mut files = self.files.lock();
            files.by_number.remove(&current.number());
            self.next_spare_path(&mut files)
        };
        self.disk.rename(current.path(), &spare).map_err(io_fault("rename", current.path()))?;
        self.files.lock().spares.push(spare);
        self.begin(current.number(), current.first_seq())
    }

    /// Makes a spare into segment `number`, whose first batch will be `first_seq`. On [`JournalError::Full`] nothing
    /// has changed; after any other error the caller must stop writing.
    pub(crate) fn begin(&self, number: u64, first_seq: u64) -> Result<Arc<SegmentFile>, JournalError> {
        let ready = self.files.lock().spares.pop();
        let spare = ready.map_or_else(|| self.make_spare(), Ok)?;
        let header = SegmentHeader {
            number,
            first_seq,
            key: self.random.next_u64(),
            segment_bytes: self.shape.segment_bytes,
            shard: self.shape.shard,
            directory: self.shape.directory,
        };
        let file = self.disk.open(&spare, OpenMode::ReadWrite).map_err(io_fault("open", &spare))?;
        if let Err(fault) = file.write_all_at(&[&header.encode()], 0).map_err(io_fault("write", &spare)) {
            self.files.lock().spares.push(spare);
            return Err(full_or(fault));
        }
        file.sync_all().map_err(io_fault("sync", &spare))?;
        let path = self.dir.join(segment_name(number));
        self.disk.rename(&spare, &path).map_err(io_fault("rename", &spare))?;
        self.disk.sync_dir(&self.dir).map_err(io_fault("sync", &self.dir))?;
        Ok(self.insert(SegmentFile::new(path, file, header))?)
    }

    /// The most bytes that a batch can have.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        u64::from(self.shape.segment_bytes - SEGMENT_HEADER_BYTES)
    }
}

fn full_or(fault: IoFault) -> JournalError {
    if fault.is_full() { JournalError::Full } else { fault.into() }
}
