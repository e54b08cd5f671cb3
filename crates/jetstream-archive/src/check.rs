//! Looking through an archive that nobody has open: every checksum, and everything that files say of each other.
//!
//! A start reads what sealed segments say of themselves, and believes their blocks until somebody reads them. Here all of
//! it is read, what is wrong is told and passed by, and nothing is changed.

use std::path::{Path, PathBuf};

use alluvium_env::{Disk, DiskLock, Env, Finding, FindingKind, OpenMode};
use alluvium_jss::{Inspection, ReadLimits, SegmentIndex};

use crate::error::Error;
use crate::open::{LOCK, PENDING_LOG};
use crate::pending;
use crate::store::{Store, StoreError, keys, read_u64};

/// Keys of the store that are read at a time.
const PAGE_KEYS: usize = 1000;

/// How much a check has looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checked {
    /// Segments.
    pub segments: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Rows in blocks.
    pub rows: u64,
    /// Rows in the pending log.
    pub pending_rows: u64,
    /// Keys of the metadata store.
    pub keys: u64,
}

/// Checks the archive in `dir`. `store` is its metadata, or why that can't be opened; `meta` is the folder that it is in.
///
/// # Errors
///
/// [`Error::Locked`] when somebody has it open, and what the disk refuses. Everything else is a [`Finding`].
pub fn check(
    env: &Env,
    dir: &Path,
    meta: &Path,
    store: Result<&dyn Store, StoreError>,
    report: &mut dyn FnMut(Finding),
) -> Result<Checked, Error> {
    let disk = env.disk.as_ref();
    let _lock = lock(disk, dir)?;
    let mut check = Check {
        disk,
        dir,
        report,
        checked: Checked::default(),
        last: 0,
        last_sealed: 0,
        torn: None,
        is_whole: true,
    };
    let names = disk.list(dir).map_err(Error::io("listing segments"))?;
    let mut indexes: Vec<SegmentIndex> =
        names.iter().filter_map(|name| SegmentIndex::from_file_name(name)).collect();
    indexes.sort_unstable();
    for (number, index) in indexes.iter().enumerate() {
        check.segment(*index, number + 1 == indexes.len())?;
    }
    for name in &names {
        if SegmentIndex::from_file_name(name).is_none() && ![LOCK, PENDING_LOG].contains(&name.as_str()) {
            (check.report)(Finding::stray(&dir.join(name)));
        }
    }
    let stored = match store {
        Ok(store) => check.store(meta, store)?,
        Err(error) => {
            check.tell(meta, None, error.to_string(), true);
            Stored::default()
        }
    };
    check.pending(stored)?;
    Ok(check.checked)
}

fn lock(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<dyn DiskLock>>, Error> {
    let path = dir.join(LOCK);
    if !disk.exists(&path).map_err(Error::io("looking for the lock of the archive"))? {
        return Ok(None);
    }
    match disk.lock(&path) {
        Ok(None) => Err(Error::Locked),
        Ok(lock) => Ok(lock),
        // Nobody can have it open on a disk that takes no writes.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::io("locking the archive")(error)),
    }
}

/// What the store says of rows and of the pending log.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    next_seq: Option<u64>,
    life: Option<u64>,
}

struct Check<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    report: &'a mut dyn FnMut(Finding),
    checked: Checked,
    /// The last row of all segments so far.
    last: u64,
    /// That of the sealed ones: a segment is sealed when the store knows of its rows.
    last_sealed: u64,
    /// The segment that ends in what is no block, and where.
    torn: Option<(PathBuf, u64)>,
    /// Whether all segments could be read, so that rows that are missing are missing.
    is_whole: bool,
}

impl Check<'_> {
    fn tell(&mut self, file: &Path, at: Option<u64>, what: String, is_fault: bool) {
        let kind = if is_fault { FindingKind::Fault } else { FindingKind::Crash };
        (self.report)(Finding::new(file, at, what, kind));
    }

    fn segment(&mut self, index: SegmentIndex, is_last: bool) -> Result<(), Error> {
        let path = self.dir.join(index.file_name());
        let file = self.disk.open(&path, OpenMode::Read).map_err(Error::io("opening a segment"))?;
        self.checked.segments += 1;
        match alluvium_jss::inspect(&*file, ReadLimits::default()) {
            Ok(found) => self.inspected(&path, &found, is_last),
            Err(alluvium_jss::Error::Damaged { at, damage }) => {
                // A file of which not even the header was written is what an interrupted creation leaves.
                let is_begun = file.len().map_err(Error::io("measuring a segment"))? > 0;
                self.is_whole = false;
                self.tell(&path, Some(at), damage.to_string(), is_begun || !is_last);
            }
            Err(alluvium_jss::Error::Io { context, source }) => {
                self.is_whole = false;
                self.tell(&path, None, format!("{context}: {source}"), true);
            }
            Err(other) => return Err(Error::segment(index)(other)),
        }
        Ok(())
    }

    fn inspected(&mut self, path: &Path, found: &Inspection, is_last: bool) {
        self.checked.blocks += found.blocks.len() as u64;
        self.checked.rows += found.blocks.iter().map(|block| u64::from(block.event_count)).sum::<u64>();
        if found.header.is_none() && !is_last {
            self.tell(path, None, "it is not sealed, and another segment follows it".to_owned(), true);
        }
        if found.tail_bytes > 0 {
            let at = found.size_bytes.saturating_sub(found.tail_bytes);
            self.torn = Some((path.to_owned(), at));
            let what = format!("{} bytes behind its last whole block", found.tail_bytes);
            self.tell(path, Some(at), what, false);
        }
        let (first, last) = match &found.header {
            Some(header) => (header.min_seq, header.max_seq),
            None => (
                found.blocks.first().map_or(0, |block| block.min_seq),
                found.blocks.last().map_or(0, |block| block.max_seq),
            ),
        };
        if last > 0 && first <= self.last {
            let what = format!("it begins with row {first}, and the one before ends with {}", self.last);
            self.tell(path, None, what, true);
        }
        self.last = self.last.max(last);
        if found.header.is_some() {
            self.last_sealed = self.last;
        }
    }

    /// Reads all of the store.
    fn store(&mut self, meta: &Path, store: &dyn Store) -> Result<Stored, Error> {
        let mut after = None;
        loop {
            match store.page(b"", after.as_deref(), PAGE_KEYS) {
                Ok(page) => {
                    self.checked.keys += page.len() as u64;
                    let Some((last, _)) = page.last() else { break };
                    after = Some(last.clone());
                }
                Err(error) => {
                    self.tell(meta, None, error.to_string(), true);
                    return Ok(Stored::default());
                }
            }
        }
        let next_seq = read_u64(store, keys::NEXT_SEQ)?;
        if let Some(acknowledged) = next_seq.map(|next| next.saturating_sub(1))
            && acknowledged > self.last
            && self.is_whole
        {
            let last = self.last;
            let what =
                format!("rows up to {acknowledged} were acknowledged, and only those up to {last} are there");
            match self.torn.clone() {
                // What looks like an interrupted write was none.
                Some((file, at)) => self.tell(&file, Some(at), what, true),
                None => self.tell(meta, None, what, true),
            }
        }
        if let Some(acknowledged) = next_seq.map(|next| next.saturating_sub(1))
            && acknowledged < self.last_sealed
        {
            let last = self.last_sealed;
            let what = format!(
                "it is older than the archive: it knows rows up to {acknowledged}, and {last} is sealed"
            );
            self.tell(meta, None, what, true);
        }
        Ok(Stored { next_seq, life: read_u64(store, keys::LOG_LIFE)? })
    }

    fn pending(&mut self, stored: Stored) -> Result<(), Error> {
        let path = self.dir.join(PENDING_LOG);
        if !self.disk.exists(&path).map_err(Error::io("looking for the pending log"))? {
            if stored.life.is_some() {
                self.tell(&path, None, "the pending log is missing".to_owned(), true);
            }
            return Ok(());
        }
        let file = self.disk.open(&path, OpenMode::Read).map_err(Error::io("opening the pending log"))?;
        match pending::look(&*file, stored.life) {
            Ok(rows) => {
                let expected = stored.next_seq.unwrap_or(0);
                let rows: Vec<u64> = rows.into_iter().filter(|seq| *seq >= expected).collect();
                self.checked.pending_rows = rows.len() as u64;
                let is_dense = rows.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
                let is_next =
                    stored.next_seq.is_none() || rows.first().is_none_or(|first| *first == expected);
                if !is_dense || !is_next {
                    self.tell(&path, None, "its rows do not follow those of the segments".to_owned(), true);
                }
            }
            Err(Error::PendingLog { at, what }) => self.tell(&path, Some(at), what.to_owned(), true),
            Err(error @ Error::MetadataBehind { .. }) => self.tell(&path, None, error.to_string(), true),
            Err(other) => return Err(other),
        }
        Ok(())
    }
}
