//! The segments of one shard: open handles by number, and the spare files that wait to become one.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::Env;

use crate::error::JournalError;
use crate::segment::SegmentFile;

/// How many spare files are kept.
pub const SPARES_MAX: usize = 2;

/// The segments of one shard, shared by its writer, its readers and its maintenance.
#[derive(Debug)]
pub struct Segments {}

impl Segments {
    /// Starts a new journal in `dir`: segment `first`, empty, durable. Removes what an earlier, unfinished start left.
    pub fn create(
        _env: &Env,
        _dir: &Path,
        _segment_bytes: u32,
        _first: u64,
    ) -> Result<Arc<Self>, JournalError> {
        todo!()
    }

    /// Opens the segments from `first` on; older ones become spares.
    pub fn open(
        _env: &Env,
        _dir: &Path,
        _segment_bytes: u32,
        _first: u64,
    ) -> Result<Arc<Self>, JournalError> {
        todo!()
    }

    /// The handle of a segment, or `None` when it was retired.
    pub fn get(&self, _number: u64) -> Option<Arc<SegmentFile>> {
        todo!()
    }

    /// The numbers of all segments but the one being written, ascending.
    pub fn sealed(&self) -> Vec<u64> {
        todo!()
    }

    /// Gives up all sealed segments up to and including `up_to`, which the durable manifest must no longer need.
    pub fn retire(&self, _up_to: u64) -> Result<(), JournalError> {
        todo!()
    }

    /// Makes a zero-filled, durable spare when there are fewer than [`SPARES_MAX`]; whether it did.
    pub fn prepare_spare(&self) -> Result<bool, JournalError> {
        todo!()
    }
}
