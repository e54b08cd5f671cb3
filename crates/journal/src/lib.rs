//! Records as bytes in files: everything that Alluvium keeps on a disk, and nothing about what it means.
//!
//! A *record* is one whole mutation of one stream. Records travel in *batches*, each one opaque blob with a sequence
//! number, written and synced as one. Batches follow one another in *segments*, files of one fixed size which are
//! zero-filled before use and recycled after it. In the background, sealed segments are folded into immutable
//! *tables*, where the bytes of one stream lie together, and a *checkpoint* of the directory of streams. A small
//! *manifest* names the files that count; replacing it is the one commit point of a fold.
//!
//! The formats are drawn to the byte in `docs/formats/`. What keeps them honest after a crash:
//!
//! * Every byte that is ever believed is covered by a checksum (CRC-32C), and every error names file and position.
//! * A batch counts as a whole or not at all, and is written only after the one before it was synced. Hence an
//!   invalid batch with proof of a later one behind it is damage and is refused; without it, it is the torn end of
//!   the last write, which nobody was told had succeeded, and is cut. See [`mod@replay`].
//! * What replay believed is written and synced again before anything new is, so that bytes which only ever lived in
//!   a page cache are never served as durable. See [`JournalWriter::resume`].

mod batch;
mod checkpoint;
mod codec;
mod error;
pub mod format;
mod identity;
mod layout;
pub mod manifest;
mod names;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod record;
mod replace;
pub mod replay;
mod segment;
mod segments;
mod sequential;
mod table;
#[cfg(test)]
mod testbed;
mod writer;

pub use crate::batch::{BatchBuilder, RecordPlace};
pub use crate::checkpoint::{
    CheckpointEnd, CheckpointEntry, CheckpointError, CheckpointReader, CheckpointWriter, TableExtent,
};
pub use crate::error::{Damage, IoFault, JournalError};
pub use crate::format::{DataDirectory, Format, FormatError};
pub use crate::identity::DirectoryId;
pub use crate::layout::Layout;
pub use crate::manifest::{Manifest, ManifestError};
pub use crate::names::{
    ShardFile, body_table, body_table_number, checkpoint_name, segment_name, segment_number, shard_name,
    spare_number, table_is_of_body, table_name,
};
pub use crate::record::{
    Append, Body, Claim, Contract, Create, FoldCheckpoint, Fork, ForkRange, Mark, Mutation, Producer,
    Publish, RawOffset, Receipt, Record, Retention, SetAttributes, Snapshot, StreamId, Trim,
};
pub use crate::replay::{ReplayError, Replayed, Torn, read_record, replay, scan_segment};
pub use crate::segment::{SegmentFile, Shape};
pub use crate::segments::{SEGMENT_BYTES_MIN, SPARES_MAX, Segments};
pub use crate::table::{BlockEntry, Table, TableError, TableSummary, TableWriter};
pub use crate::writer::{JournalWriter, Rotated, Written};

/// The checksum of everything stored: CRC-32C.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The [`checksum`] of some bytes and those that follow, from that of the former; 0 is that of none.
#[must_use]
pub fn checksum_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}
