//! One segment of the journal as a file.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_env::DiskFile;

/// The length in bytes of the header of a segment file; the first batch starts here.
pub const SEGMENT_HEADER_BYTES: u32 = 64;

/// An open segment.
#[derive(Debug)]
pub struct SegmentFile {
    number: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl SegmentFile {
    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The file, for reading.
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// The path, for error messages.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}
