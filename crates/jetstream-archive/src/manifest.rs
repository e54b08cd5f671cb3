//! The sealed segments: what each says of itself, resident.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};
use alluvium_jss::header::{HEADER_BYTES, State};
use alluvium_jss::{Header, Metadata, SegmentIndex};

use crate::error::Error;

/// A sealed segment.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Which one.
    pub index: SegmentIndex,
    /// Where it lies.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Header, block index, filters and collections.
    pub metadata: Arc<Metadata>,
}

impl Descriptor {
    /// Its header.
    pub fn header(&self) -> &Header {
        &self.metadata.header
    }

    /// Rows that it has.
    pub fn rows(&self) -> u64 {
        self.header().event_count.into()
    }

    /// Opens the file, whatever it is now; [`Descriptor::is_of`] says whether it is the one described here.
    pub fn open(&self, disk: &dyn Disk) -> Result<Arc<dyn DiskFile>, Error> {
        disk.open(&self.path, OpenMode::Read).map_err(Error::io("opening a segment"))
    }

    /// Whether an open file is the version of the segment that is described here.
    pub fn is_of(&self, file: &dyn DiskFile) -> Result<bool, Error> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(Error::io("reading the header of a segment"))?;
        Ok(
            matches!(State::parse(&header), Ok(State::Sealed(found)) if found.checksum == self.header().checksum),
        )
    }
}

/// The sealed segments in order. A change makes another one; whoever holds this keeps it.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The segments, in order of their numbers and of their rows.
    pub segments: Arc<[Arc<Descriptor>]>,
    /// Raised with each change.
    pub generation: u64,
    /// Up to each segment, the highest number and the latest time so far. Times of neighbours may overlap.
    ends: Arc<[(u64, i64)]>,
}

impl Manifest {
    /// These segments, which must ascend in number and rows.
    pub(crate) fn new(segments: Vec<Arc<Descriptor>>) -> Result<Self, Error> {
        Self::build(segments, 1)
    }

    /// This manifest with one more segment, or with another version of one.
    pub(crate) fn with(&self, descriptor: Descriptor) -> Result<Self, Error> {
        let mut segments = self.segments.to_vec();
        match segments.binary_search_by_key(&descriptor.index, |known| known.index) {
            Ok(at) => segments[at] = Arc::new(descriptor),
            Err(at) => segments.insert(at, Arc::new(descriptor)),
        }
        Self::build(segments, self.generation + 1)
    }

    fn build(segments: Vec<Arc<Descriptor>>, generation: u64) -> Result<Self, Error> {
        check(&segments)?;
        let ends = segments.iter().scan((0, i64::MIN), |end, segment| {
            let header = segment.header();
            if header.max_seq > 0 {
                *end = (end.0.max(header.max_seq), end.1.max(header.max_witnessed_at));
            }
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Self { segments: segments.into(), generation, ends })
    }

    /// The segment with this number.
    pub fn get(&self, index: SegmentIndex) -> Option<&Arc<Descriptor>> {
        let at = self.segments.binary_search_by_key(&index, |known| known.index).ok()?;
        self.segments.get(at)
    }

    /// The last row of all segments, dropped ones included; 0 without rows.
    pub fn last_seq(&self) -> u64 {
        self.ends.last().map_or(0, |end| end.0)
    }

    /// The first segment that has, or had, a row with this number or a later one.
    pub(crate) fn first_at(&self, seq: u64) -> Option<&Arc<Descriptor>> {
        self.segments.get(self.ends.partition_point(|end| end.0 < seq))
    }

    /// The place of the first segment that has, or had, a row that was seen at this time or later.
    pub(crate) fn first_at_time(&self, witnessed_at: i64) -> usize {
        self.ends.partition_point(|end| end.1 < witnessed_at)
    }
}

fn check(segments: &[Arc<Descriptor>]) -> Result<(), Error> {
    let mut last = 0;
    for segment in segments.iter().filter(|segment| segment.header().max_seq > 0) {
        let (min, max) = (segment.header().min_seq, segment.header().max_seq);
        if min <= last {
            return Err(Error::Order { segment: segment.index, found: min, last });
        }
        last = max;
    }
    Ok(())
}

/// Reads what a sealed file says of itself.
pub(crate) fn describe(
    disk: &dyn Disk,
    dir: &Path,
    index: SegmentIndex,
    limits: alluvium_jss::ReadLimits,
) -> Result<Descriptor, Error> {
    let path = dir.join(index.file_name());
    let file = disk.open(&path, OpenMode::Read).map_err(Error::io("opening a segment"))?;
    let metadata = Arc::new(Metadata::read(&*file, limits).map_err(Error::segment(index))?);
    let size_bytes = file.len().map_err(Error::io("asking for the length of a segment"))?;
    Ok(Descriptor { index, path, size_bytes, metadata })
}
