//! Room on the disk: data is refused before the disk is full, so that what gives room back still has some.
//!
//! What is written goes to the write-ahead log first, and only a checkpoint brings it into the database, which must be
//! able to grow for that. A disk that is full to the brim lets neither happen: then not even a deletion can be written.
//! So data stops while the disk has less room than a whole checkpoint needs, and a reserve. How much there is is looked up
//! whenever enough has been written since; in between it is counted, on the high side.
//!
//! Rows of deleted streams leave pages in the database that are used again. What fits into those makes nothing grow but the
//! log, and may take most of the reserve for that; an eighth is left to what adds no data.
//!
//! A server has a limit of its own, for everything that it stores, and says through a [`Shared`] when the disk has less. Then
//! nothing makes the database grow, and what fits into unused pages is still taken.

use std::fs;
use std::path::PathBuf;

use alluvium_env::Room as Shared;
use rusqlite::Connection;

use crate::native::jobs::Job;

/// Counted bytes after which the disk is asked again: others write to it as well.
const LOOK_BYTES: u64 = 8 * 1024 * 1024;
/// Pages that a write changes besides those of its data, in bytes.
const WRITE_BYTES: u64 = 32 * 1024;
/// Bytes that one sweep adds to the log, at most.
const SWEEP_BYTES: u64 = 512 * 1024;

/// What was there when the disk was last asked, less what was written since.
#[derive(Copy, Clone, Debug)]
struct Left {
    /// Bytes of the disk that are left once the log is in the database.
    disk: u64,
    /// Bytes of the database that nothing uses.
    unused: u64,
}

/// What of the disk may be written to.
#[derive(Debug)]
pub(crate) struct Room {
    /// The database; `None` if it is in memory or nothing is reserved.
    file: Option<PathBuf>,
    reserve: u64,
    left: Left,
    /// Counted since the disk was last asked.
    counted: u64,
    /// What the server says of the disk.
    shared: Shared,
}

impl Room {
    /// For the database behind a connection; `reserve` bytes are left free, none with 0.
    pub(crate) fn new(sql: &Connection, reserve: u64, shared: Shared) -> Self {
        // SQLite tells where links lead to, which is where the log is as well; nothing if it is in memory.
        let file = sql.path().filter(|path| !path.is_empty() && reserve > 0).map(PathBuf::from);
        Self { file, reserve, left: Left { disk: u64::MAX, unused: 0 }, counted: LOOK_BYTES, shared }
    }

    /// How many writes at the front of a group there is room for.
    pub(crate) fn front(&mut self, sql: &Connection, group: &[Box<dyn Job>]) -> usize {
        if self.file.is_none() {
            return group.len();
        }
        if self.counted >= LOOK_BYTES {
            self.look(sql);
        }
        let count = self.admit_front(group);
        if count > 0 || self.counted == 0 {
            return count;
        }
        // As counted, that is too much; so now it is measured.
        self.look(sql);
        self.admit_front(group)
    }

    /// How many writes at the front of a group there is no room for: as many as may be tried together all the same, for
    /// the sake of those that add no data.
    pub(crate) fn front_without(&mut self, group: &[Box<dyn Job>]) -> usize {
        let most = (self.reserve / 8 / WRITE_BYTES).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let count = group.iter().take(most).take_while(|job| !self.admit(job.bytes())).count().max(1);
        self.count(WRITE_BYTES.saturating_mul(count as u64));
        count
    }

    /// Whether the reserve is in use, so that the log must be kept short.
    pub(crate) fn is_low(&self) -> bool {
        self.file.is_some() && (self.left.disk < self.reserve || self.shared.is_short())
    }

    /// Counts a sweep.
    pub(crate) fn swept(&mut self) {
        self.count(SWEEP_BYTES);
    }

    /// Asks the disk. If it does not say, there is no limit: writing tells.
    pub(crate) fn look(&mut self, sql: &Connection) {
        self.left = self.measure(sql).unwrap_or(Left { disk: u64::MAX, unused: 0 });
        self.counted = 0;
    }

    fn measure(&self, sql: &Connection) -> Option<Left> {
        let file = self.file.as_ref()?;
        let disk = rustix::fs::statvfs(file).ok()?;
        if disk.f_blocks == 0 {
            // A file system without a size.
            return None;
        }
        let length = fs::metadata(file).ok()?.len();
        let number = |pragma: &str| -> rusqlite::Result<u64> {
            sql.prepare_cached(pragma)?.query_row([], |row| row.get(0))
        };
        let page_bytes = number("PRAGMA page_size").ok()?;
        let database = number("PRAGMA page_count").ok()?.saturating_mul(page_bytes);
        let unused = number("PRAGMA freelist_count").ok()?.saturating_mul(page_bytes);
        // A checkpoint makes the file as large as the log says that the database is.
        let growth = database.saturating_sub(length);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Some(Left { disk: free.saturating_sub(growth), unused })
    }

    fn admit_front(&mut self, group: &[Box<dyn Job>]) -> usize {
        group.iter().take_while(|job| self.admit(job.bytes())).count()
    }

    /// Counts a write with so many bytes of data, if there is room for it.
    fn admit(&mut self, bytes: usize) -> bool {
        // A stream without data is not cheaper than one with a byte of it.
        let bytes = (bytes as u64).max(1);
        let cost = bytes.saturating_add(bytes / 32).saturating_add(WRITE_BYTES);
        let Left { disk, unused } = self.left;
        if cost <= unused && cost.saturating_add(self.reserve / 8) <= disk {
            self.left.unused -= cost;
            self.count(cost);
            return true;
        }
        // Once in the log, and once in the database.
        let cost = cost.saturating_mul(2);
        let fits = !self.shared.is_short() && cost.saturating_add(self.reserve) <= disk;
        if fits {
            self.count(cost);
        }
        fits
    }

    fn count(&mut self, bytes: u64) {
        self.left.disk = self.left.disk.saturating_sub(bytes);
        self.counted = self.counted.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use alluvium_env::{RoomLimits, Share, Space};

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn room(disk: u64, unused: u64) -> Room {
        Room {
            file: Some(PathBuf::new()),
            reserve: 16 * MIB,
            left: Left { disk, unused },
            counted: 0,
            shared: Shared::default(),
        }
    }

    #[test]
    fn data_that_makes_the_database_grow_leaves_the_whole_reserve() {
        let mut room = room(20 * MIB, 0);
        assert!(!room.admit(2 * 1024 * 1024), "twice that is more than 4 MiB");
        assert!(room.admit(1024 * 1024), "once in the log, and once in the database");
        assert!(!room.admit(1024 * 1024), "it was counted");
        assert!(!room.is_low());
        while room.admit(0) {}
        assert!(room.left.disk >= 16 * MIB && room.left.disk < 16 * MIB + 2 * WRITE_BYTES);
    }

    #[test]
    fn data_that_fits_into_unused_pages_leaves_an_eighth_of_it() {
        let mut room = room(16 * MIB, 5 * MIB);
        let mut admitted = 0;
        while room.admit(512 * 1024) {
            admitted += 1;
        }
        assert_eq!(admitted, 9, "the unused pages are full");
        room.left.unused = 100 * MIB;
        while room.admit(512 * 1024) {}
        assert!(room.is_low() && room.left.disk >= 2 * MIB, "the log takes no more");
    }

    #[test]
    fn while_the_server_says_that_room_is_short_only_unused_pages_are_filled() {
        let mut room = room(1 << 30, 3 * MIB);
        let limits = RoomLimits { warn: None, min: Some(Share::Bytes(10)) };
        room.shared.observe(&limits, Space { total: 100, free: 0 });
        assert!(room.is_low() && room.admit(2 * 1024 * 1024));
        assert!(!room.admit(2 * 1024 * 1024), "the database would grow");
        room.shared.observe(&limits, Space { total: 100, free: 100 });
        assert!(!room.is_low() && room.admit(2 * 1024 * 1024));
    }

    #[test]
    fn a_disk_that_does_not_tell_and_a_database_in_memory_have_no_limit() {
        let sql = Connection::open_in_memory().unwrap();
        assert!(Room::new(&sql, 16 * MIB, Shared::default()).file.is_none());
        let mut room = room(0, 0);
        room.file = Some(PathBuf::from("/nowhere/at all"));
        room.look(&sql);
        assert!(room.admit(usize::MAX / 4) && !room.is_low());
    }

    #[test]
    fn what_the_log_has_and_the_database_has_not_counts_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("streams.sqlite");
        let sql = Connection::open(&file).unwrap();
        sql.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)")
            .unwrap();
        let room = Room::new(&sql, 1, Shared::default());
        let grown = |room: &Room| {
            let length = fs::metadata(&file).unwrap().len();
            let free = rustix::fs::statvfs(&file).map(|disk| disk.f_bavail * disk.f_frsize).unwrap();
            (free.saturating_sub(room.measure(&sql).unwrap().disk), length)
        };
        sql.execute_batch("INSERT INTO t VALUES (zeroblob(64000000))").unwrap();
        // Others use the disk meanwhile, but hardly as much as this.
        assert!(grown(&room).0 > 32_000_000, "{:?}", grown(&room));
        sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert!(grown(&room).0 < 32_000_000, "{:?}", grown(&room));
        sql.execute_batch("DELETE FROM t").unwrap();
        assert!(room.measure(&sql).unwrap().unused > 60_000_000);
    }
}
