//! What one write may cost, checked before the store opens.
//!
//! A write is one transaction, and the platforms that SQL runs on bound what a transaction, a row and a value may be.
//! So the ceilings that a caller sets are checked against each other when a store is made, not when the first large
//! append comes.

use alluvium_protocol::limits::RECEIPTS_PER_PRODUCER;

/// Rows of data that one write may make: 12 MiB in chunks of 512 KiB.
pub const CHUNK_ROWS_MAX: u64 = 24;
/// Rows that one write may change, the rows of data among them.
pub const WRITE_ROWS_MAX: u64 = 128;
/// Rows that an append may change besides its data: the stream, the lane, the receipt, and a lane that makes room.
const APPEND_OTHER_ROWS: u64 = 4;
/// Rows that a checkpoint may change besides its text: the head row, once more for replacing it.
const CHECKPOINT_OTHER_ROWS: u64 = 2;
/// Bytes of a value that every platform takes.
pub const VALUE_BYTES_MAX: u64 = 2_000_000;
/// Bytes that a character of UTF-8 may keep from going into a piece of text.
const CHARACTER_BYTES_MAX: u64 = 4;
/// Levels of forks of forks.
pub const FORK_LEVELS_MAX: u32 = 32;
/// Append batches in one answer.
pub const BATCHES_MAX: usize = 1000;

/// The ceilings of a store. [`Bounds::default`] is what [`Bounds::check`] lets pass with room to spare.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Bytes of one chunk row: 1 to [`VALUE_BYTES_MAX`].
    pub chunk_bytes_max: u64,
    /// Bytes of one read window, more only if a single JSON message is larger: 1 to [`VALUE_BYTES_MAX`].
    pub read_bytes_max: u64,
    /// Stored bytes of one append, or of the initial content of a stream.
    pub append_bytes_max: u64,
    /// Bytes of a fold checkpoint's text.
    pub checkpoint_bytes_max: u64,
    /// Bytes of one row of a fold checkpoint: 4 to [`VALUE_BYTES_MAX`].
    pub checkpoint_chunk_bytes_max: u64,
    /// Rows of a fold checkpoint.
    pub checkpoint_chunks_max: u64,
    /// Receipts kept for each producer of a stream. An append that came this many appends before the producer's last
    /// one can no longer be repeated.
    pub receipts_max: u64,
    /// Producers remembered by a stream without a claim.
    pub lanes_max: u32,
    /// How long a lane is kept at least, in milliseconds. When a stream has [`lanes_max`](Self::lanes_max) lanes, a new
    /// producer takes the place of the one that has been silent longest, if that is at least this long.
    pub lane_idle_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            chunk_bytes_max: 512 * 1024,
            read_bytes_max: 512 * 1024,
            append_bytes_max: 12 * 1024 * 1024,
            checkpoint_bytes_max: 4 * 1024 * 1024,
            checkpoint_chunk_bytes_max: 512 * 1024,
            checkpoint_chunks_max: 16,
            receipts_max: RECEIPTS_PER_PRODUCER as u64,
            lanes_max: 1000,
            lane_idle_ms: 7 * 24 * 60 * 60 * 1000,
        }
    }
}

/// A ceiling that does not fit: which one, and what it breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// Out of its own range.
    #[error("`{ceiling}` is {value}; it must be from {least} to {most}")]
    Range {
        /// The field of [`Bounds`].
        ceiling: &'static str,
        /// What it was set to.
        value: u64,
        /// The smallest value allowed.
        least: u64,
        /// The largest value allowed.
        most: u64,
    },
    /// Needs more rows than a write may have.
    #[error("`{ceiling}` needs {needed} rows in one write, but `{budget}` is {rows_max}")]
    Rows {
        /// The field of [`Bounds`].
        ceiling: &'static str,
        /// Rows that it comes to at worst.
        needed: u64,
        /// The budget that this breaks.
        budget: &'static str,
        /// How many rows the budget has.
        rows_max: u64,
    },
}

impl Bounds {
    /// Whether every write that the ceilings allow fits into its budget.
    pub fn check(&self) -> Result<(), BoundsError> {
        let most = VALUE_BYTES_MAX;
        in_range("chunk_bytes_max", self.chunk_bytes_max, 1, most)?;
        in_range("read_bytes_max", self.read_bytes_max, 1, most)?;
        in_range("append_bytes_max", self.append_bytes_max, 1, u64::MAX)?;
        in_range("checkpoint_bytes_max", self.checkpoint_bytes_max, 1, u64::MAX)?;
        in_range("checkpoint_chunk_bytes_max", self.checkpoint_chunk_bytes_max, CHARACTER_BYTES_MAX, most)?;
        in_range("checkpoint_chunks_max", self.checkpoint_chunks_max, 1, u64::MAX)?;
        in_range("receipts_max", self.receipts_max, 1, u64::MAX)?;
        in_range("lanes_max", self.lanes_max.into(), 1, u64::from(u32::MAX))?;
        let chunks = self.append_bytes_max.div_ceil(self.chunk_bytes_max);
        in_budget("append_bytes_max", chunks, "CHUNK_ROWS_MAX", CHUNK_ROWS_MAX)?;
        let append = chunks + APPEND_OTHER_ROWS;
        let append = append.saturating_add(self.receipts_max);
        in_budget("receipts_max", append, "WRITE_ROWS_MAX", WRITE_ROWS_MAX)?;
        // A piece of text ends before a character that does not fit, so it may be up to three bytes short.
        let least_text = self.checkpoint_chunk_bytes_max - (CHARACTER_BYTES_MAX - 1);
        let pieces = self.checkpoint_bytes_max.div_ceil(least_text);
        let chunks_max = self.checkpoint_chunks_max;
        in_budget("checkpoint_bytes_max", pieces, "checkpoint_chunks_max", chunks_max)?;
        // The rows of the checkpoint before are deleted in the same write.
        let checkpoint = chunks_max.saturating_mul(2).saturating_add(CHECKPOINT_OTHER_ROWS);
        in_budget("checkpoint_chunks_max", checkpoint, "WRITE_ROWS_MAX", WRITE_ROWS_MAX)
    }
}

fn in_range(ceiling: &'static str, value: u64, least: u64, most: u64) -> Result<(), BoundsError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(BoundsError::Range { ceiling, value, least, most })
    }
}

fn in_budget(
    ceiling: &'static str,
    needed: u64,
    budget: &'static str,
    rows_max: u64,
) -> Result<(), BoundsError> {
    if needed <= rows_max { Ok(()) } else { Err(BoundsError::Rows { ceiling, needed, budget, rows_max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Bounds)) -> String {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        bounds.check().expect_err("out of bounds").to_string()
    }

    #[test]
    fn the_default_ceilings_fit_their_budgets_with_the_largest_append_full() {
        let bounds = Bounds::default();
        assert_eq!(bounds.check(), Ok(()));
        assert_eq!(bounds.append_bytes_max.div_ceil(bounds.chunk_bytes_max), CHUNK_ROWS_MAX);
    }

    #[test]
    fn the_error_says_which_ceiling_broke_which_budget() {
        assert_eq!(
            refusal(|bounds| bounds.append_bytes_max += 1),
            "`append_bytes_max` needs 25 rows in one write, but `CHUNK_ROWS_MAX` is 24"
        );
        assert_eq!(
            refusal(|bounds| bounds.receipts_max = 101),
            "`receipts_max` needs 129 rows in one write, but `WRITE_ROWS_MAX` is 128"
        );
        assert_eq!(
            refusal(|bounds| bounds.checkpoint_chunks_max = 64),
            "`checkpoint_chunks_max` needs 130 rows in one write, but `WRITE_ROWS_MAX` is 128"
        );
        assert_eq!(
            refusal(|bounds| bounds.checkpoint_bytes_max = 16 * 512 * 1024),
            "`checkpoint_bytes_max` needs 17 rows in one write, but `checkpoint_chunks_max` is 16"
        );
    }

    #[test]
    fn each_ceiling_has_a_range_of_its_own() {
        assert_eq!(
            refusal(|bounds| bounds.chunk_bytes_max = 2_000_001),
            "`chunk_bytes_max` is 2000001; it must be from 1 to 2000000"
        );
        assert!(refusal(|bounds| bounds.read_bytes_max = 0).starts_with("`read_bytes_max` is 0"));
        assert!(refusal(|bounds| bounds.append_bytes_max = 0).starts_with("`append_bytes_max` is 0"));
        assert!(refusal(|bounds| bounds.receipts_max = 0).starts_with("`receipts_max` is 0"));
        assert!(refusal(|bounds| bounds.lanes_max = 0).starts_with("`lanes_max` is 0"));
        let short = refusal(|bounds| bounds.checkpoint_chunk_bytes_max = 3);
        assert!(short.starts_with("`checkpoint_chunk_bytes_max` is 3"));
    }
}
