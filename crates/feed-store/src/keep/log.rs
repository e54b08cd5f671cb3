//! Looking through a write-ahead log of SQLite: where it ends, and whether that is damage.
//!
//! SQLite reads a log up to the first frame that is not valid, without a word, because the end of an interrupted write
//! looks like that. But it syncs each transaction before it begins the next: what follows the end of a later transaction
//! was written when everything before it was durable. A frame that is not valid and has such a one behind it is damage.

use std::io;

use alluvium_env::DiskFile;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The lowest bit tells the order of bytes in which checksums are computed.
const MAGIC: u32 = 0x377f_0682;
const PAGE_BYTES_MAX: u32 = 65_536;

/// How a log ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogEnd {
    /// With a whole frame, or there is none.
    Whole,
    /// In an interrupted write, at this byte. Damage to the last transaction looks the same.
    Torn(u64),
    /// Before valid frames of later transactions, at this byte.
    Damaged(u64),
}

/// The rolling checksum.
type Sum = (u32, u32);

/// Finds the end of a log.
pub fn log_end(file: &dyn DiskFile) -> io::Result<LogEnd> {
    let len = file.len()?;
    if len < HEADER_BYTES as u64 {
        return Ok(if len == 0 { LogEnd::Whole } else { LogEnd::Torn(0) });
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let (magic, page_bytes) = (number(&header, 0), number(&header, 8));
    let is_big = magic & 1 == 1;
    let sum = add((0, 0), &header[..24], is_big);
    let is_known = magic & !1 == MAGIC && page_bytes.is_power_of_two() && page_bytes <= PAGE_BYTES_MAX;
    if !is_known || page_bytes < 512 || sum != (number(&header, 24), number(&header, 28)) {
        // Frames are only written behind a header that is durable.
        return Ok(if len > HEADER_BYTES as u64 { LogEnd::Damaged(0) } else { LogEnd::Torn(0) });
    }
    let log = Log {
        file,
        page_bytes: page_bytes as usize,
        salts: (number(&header, 16), number(&header, 20)),
        is_big,
    };
    let frame_bytes = FRAME_HEADER_BYTES as u64 + u64::from(page_bytes);
    let frames = (len - HEADER_BYTES as u64) / frame_bytes;
    let at = |frame: u64| HEADER_BYTES as u64 + frame * frame_bytes;
    let (mut before, mut buffer) = (sum, Vec::new());
    for frame in 0..frames {
        let found = log.frame(at(frame), before, &mut buffer)?;
        if found.is_valid {
            before = found.sum;
            continue;
        }
        // What an earlier life of the log has left is of other salts.
        let mut is_ended = found.ends_transaction;
        let mut is_torn = found.is_of_this_life;
        let mut stored = found.sum;
        for later in frame + 1..frames {
            let found = log.frame(at(later), stored, &mut buffer)?;
            if found.is_valid && is_ended {
                return Ok(LogEnd::Damaged(at(frame)));
            }
            is_torn |= found.is_of_this_life;
            is_ended |= found.is_of_this_life && found.ends_transaction;
            stored = found.sum;
        }
        return Ok(if is_torn { LogEnd::Torn(at(frame)) } else { LogEnd::Whole });
    }
    Ok(LogEnd::Whole)
}

struct Log<'a> {
    file: &'a dyn DiskFile,
    page_bytes: usize,
    salts: (u32, u32),
    is_big: bool,
}

struct Frame {
    is_valid: bool,
    is_of_this_life: bool,
    ends_transaction: bool,
    /// What it says its checksum is.
    sum: Sum,
}

impl Log<'_> {
    fn frame(&self, at: u64, before: Sum, buffer: &mut Vec<u8>) -> io::Result<Frame> {
        buffer.resize(FRAME_HEADER_BYTES + self.page_bytes, 0);
        self.file.read_exact_at(buffer, at)?;
        let (head, page) = buffer.split_at(FRAME_HEADER_BYTES);
        let is_of_this_life = (number(head, 8), number(head, 12)) == self.salts;
        let sum = (number(head, 16), number(head, 20));
        let computed = add(add(before, &head[..8], self.is_big), page, self.is_big);
        let is_valid = is_of_this_life && number(head, 0) != 0 && computed == sum;
        Ok(Frame { is_valid, is_of_this_life, ends_transaction: number(head, 4) != 0, sum })
    }
}

/// Four bytes, the highest first; the callers know that they are there.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn add(mut sum: Sum, bytes: &[u8], is_big: bool) -> Sum {
    for pair in bytes.chunks_exact(8) {
        let word = |at| {
            let value = number(pair, at);
            if is_big { value } else { value.swap_bytes() }
        };
        sum.0 = sum.0.wrapping_add(word(0)).wrapping_add(sum.1);
        sum.1 = sum.1.wrapping_add(word(4)).wrapping_add(sum.0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use alluvium_env::sim::SimDisk;
    use alluvium_env::{Disk as _, OpenMode};
    use rusqlite::Connection;

    use super::*;

    const PAGE_BYTES: usize = 512;

    /// The log of a database with some transactions.
    fn log() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "page_size", PAGE_BYTES).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection.execute_batch("CREATE TABLE t (a TEXT)").unwrap();
        for _ in 0..3 {
            connection.execute("INSERT INTO t VALUES (?1)", ["x".repeat(100)]).unwrap();
        }
        std::fs::read(dir.path().join("x.sqlite-wal")).unwrap()
    }

    fn end_of(bytes: &[u8]) -> LogEnd {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/log"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[bytes], 0).unwrap();
        log_end(file.as_ref()).unwrap()
    }

    #[test]
    fn a_changed_byte_is_damage_where_later_transactions_follow_and_a_torn_end_where_none_does() {
        let log = log();
        assert_eq!(end_of(&log), LogEnd::Whole);
        assert_eq!(end_of(&[]), LogEnd::Whole);
        let frame_bytes = FRAME_HEADER_BYTES + PAGE_BYTES;
        let frames = (log.len() - HEADER_BYTES) / frame_bytes;
        assert!(frames > 3, "{frames} frames");
        for at in 0..log.len() {
            let mut changed = log.clone();
            changed[at] ^= 0x10;
            let Some(frame) = at.checked_sub(HEADER_BYTES).map(|at| at / frame_bytes) else {
                assert_eq!(end_of(&changed), LogEnd::Damaged(0), "byte {at} of the header");
                continue;
            };
            let begins = (HEADER_BYTES + frame * frame_bytes) as u64;
            // Each row is a transaction of one frame. A last frame of other salts is that of an earlier life.
            let in_salts = (8..16).contains(&((at - HEADER_BYTES) % frame_bytes));
            let due = match frame {
                last if last + 1 == frames && in_salts => LogEnd::Whole,
                last if last + 1 == frames => LogEnd::Torn(begins),
                _ => LogEnd::Damaged(begins),
            };
            let found = end_of(&changed);
            // The number of pages tells the end of a transaction, so that one of two frames may look unfinished.
            assert!(found == due || found == LogEnd::Torn(begins), "byte {at} of frame {frame}: {found:?}");
            if frame + 2 < frames {
                assert_eq!(found, LogEnd::Damaged(begins), "byte {at} of frame {frame}");
            }
        }
    }
}
