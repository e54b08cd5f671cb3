//! The search behind the last valid batch: is what lies there nothing, the remains of a crash, or proof of damage?

use crate::batch::{BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader};
use crate::codec::len_u32;
use crate::error::JournalError;
use crate::replay::window::Window;
use crate::segment::SegmentFile;

/// How much is searched at a time.
const SEARCH_BYTES: usize = 256 * 1024;

/// What lies behind the last valid batch.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Behind {
    /// A header says that the missing batch had been durable.
    pub(super) proof_of_damage: bool,
    /// There are valid headers of this segment, apart from one right at the start.
    pub(super) headers: bool,
    /// A batch of this segment began here.
    pub(super) remains: bool,
}

/// Searches the segment from `from` on, where the batch `missing` would have to be.
pub(super) fn behind(segment: &SegmentFile, from: u32, missing: u64) -> Result<Behind, JournalError> {
    let mut window = Window::new(segment);
    let mut found = Behind::default();
    let mut at = from;
    while at < segment.size() {
        let len = SEARCH_BYTES.min((segment.size() - at) as usize);
        let Some(chunk) = window.get(at, len)? else { break };
        for start in magics(&chunk) {
            let Some(header) = chunk[start..].first_chunk().and_then(BatchHeader::decode) else { continue };
            if header.segment != segment.number() || header.key != segment.key() {
                continue;
            }
            found.remains = true;
            found.headers |= at + len_u32(start) != from;
            found.proof_of_damage |= header.synced_seq >= missing;
        }
        if len < SEARCH_BYTES {
            break;
        }
        // A header may straddle two chunks, so they overlap by one byte less than a header.
        at += len_u32(SEARCH_BYTES - (BATCH_HEADER_BYTES - 1));
    }
    Ok(found)
}

/// The positions in `bytes` at which a batch could start.
fn magics(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let first = BATCH_MAGIC[0];
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + bytes[from..].iter().position(|byte| *byte == first)?;
            from = at + 1;
            if bytes[at..].starts_with(&BATCH_MAGIC) {
                return Some(at);
            }
        }
    })
}
