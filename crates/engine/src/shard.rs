//! A shard: a hash range of the paths, with its own journal, committer and tables.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use alluvium_journal::{Manifest, Segments, StreamId, Table};
use alluvium_tail::Recent;
use parking_lot::{Mutex, RwLock};

use crate::body::Released;
use crate::committer::Committer;
use crate::directory::Directory;
use crate::expiry::Expiries;
use crate::queue::Queue;
use crate::stream::Stream;

/// One shard of an engine.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: u16,
    pub(crate) dir: PathBuf,
    /// Synced streams by path, the soft-deleted ones included.
    pub(crate) directory: RwLock<Directory>,
    /// Deleted streams that forks still need.
    pub(crate) retained: Mutex<HashMap<StreamId, Arc<Stream>>>,
    /// Bodies of snapshots, those being uploaded included.
    pub(crate) bodies: Mutex<HashMap<StreamId, Arc<Stream>>>,
    /// What is to be collected.
    pub(crate) released: Arc<Released>,
    /// Streams with superseded snapshots, by the time at which the first of them is to be given up.
    pub(crate) graces: Mutex<VecDeque<(u64, Weak<Stream>)>>,
    /// Deleted streams that nobody needs, whose records or bytes are still on disk. A fold copies none of their
    /// bytes, even where it has not come to the record of their end: on a full disk that is how space comes back.
    pub(crate) gone: Mutex<HashSet<StreamId>>,
    /// The tables of bodies that no fold has come to yet: no manifest names them, but a record of the journal does.
    pub(crate) unfolded_bodies: Mutex<HashMap<StreamId, Arc<Table>>>,
    /// Counts the streams that this shard has ever had.
    pub(crate) next_stream: AtomicU64,
    pub(crate) queue: Queue,
    pub(crate) committer: Mutex<Committer>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) recent: Recent,
    pub(crate) expiries: Expiries,
    pub(crate) folded: Mutex<Folded>,
    /// The sizes of its tables, for whoever does not want to wait for a fold.
    pub(crate) tables: Mutex<TableSizes>,
    /// There was no room for the last segment that was wanted.
    pub(crate) is_full: AtomicBool,
    /// Bytes of purged streams that still take space on disk, roughly.
    pub(crate) garbage_bytes: AtomicU64,
}

impl Shard {
    /// A number for a stream.
    pub(crate) fn next_id(&self) -> StreamId {
        StreamId::new(self.next_stream.fetch_add(1, Ordering::Relaxed), self.index)
    }

    /// Makes a stream whose birth is synced visible.
    pub(crate) fn show(&self, stream: Arc<Stream>) {
        self.expiries.watch(&stream);
        match stream.path.clone() {
            Some(path) => self.directory.write().insert(path, stream),
            None => drop(self.bodies.lock().insert(stream.id, stream)),
        }
    }

    /// All streams whose bytes are needed: those in the directory, deleted ones that forks read, and bodies.
    pub(crate) fn all_streams(&self) -> Vec<Arc<Stream>> {
        let mut streams: Vec<Arc<Stream>> = self.directory.read().streams().cloned().collect();
        // Under a path that is in use again, a deleted stream is only here.
        streams.extend(self.retained.lock().values().cloned());
        streams.extend(self.bodies.lock().values().cloned());
        streams
    }
}

/// What the last fold left, and the next one starts from.
#[derive(Debug)]
pub(crate) struct Folded {
    pub(crate) manifest: Manifest,
    pub(crate) tables: Vec<HeldTable>,
    /// A fold was begun and gave up: there may be files that the manifest does not name.
    pub(crate) unfinished: bool,
}

impl Folded {
    pub(crate) fn new(manifest: Manifest, tables: Vec<HeldTable>) -> Self {
        Self { manifest, tables, unfinished: false }
    }

    /// How large the tables are.
    pub(crate) fn sizes(&self) -> TableSizes {
        TableSizes {
            number: self.tables.len() as u64,
            bytes: self.tables.iter().map(|held| held.table.file_bytes()).sum(),
            live_bytes: self.tables.iter().map(|held| held.live_bytes).sum(),
        }
    }
}

/// How large the tables of a shard are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableSizes {
    pub(crate) number: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
    /// Bytes that streams need.
    pub(crate) live_bytes: u64,
}

/// An open table and how much of it is still in use.
#[derive(Clone, Debug)]
pub(crate) struct HeldTable {
    pub(crate) table: Arc<Table>,
    pub(crate) live_bytes: u64,
}

/// The shard of a path: FNV-1a, 64 bits, over its bytes, then the high half folded in.
///
/// Part of the format: the number of shards and this function decide where a stream's records are.
pub(crate) fn shard_of(path: &str, shards: usize) -> usize {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mixed = hash ^ (hash >> 32);
    usize::try_from(mixed % shards as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::shard_of;

    #[test]
    fn the_shard_of_a_path_never_changes() {
        // Fixed by the format: a change here would lose streams of existing directories.
        let shards: Vec<usize> =
            ["a", "chat/1", "events/2024/x", "é"].iter().map(|path| shard_of(path, 16)).collect();
        assert_eq!(shards, [0, 4, 13, 6]);
    }

    #[test]
    fn paths_spread_over_the_shards() {
        let mut counts = [0u32; 8];
        for number in 0..8000 {
            counts[shard_of(&format!("stream-{number}"), 8)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
