//! Opening an archive: what the metadata store says was made durable, the segments must have; what lies behind it was
//! never acknowledged, except for what the pending log has.

use std::sync::Arc;

use alluvium_env::Env;
use alluvium_jss::{Opened, SegmentIndex, Writer};
use alluvium_tail::Signal;
use parking_lot::{Mutex, RwLock};

use crate::archive::{Archive, Inner};
use crate::batch::Batch;
use crate::cache::Cache;
use crate::committer::{Committer, Staged, create};
use crate::error::Error;
use crate::hot::Hot;
use crate::manifest::{Descriptor, Manifest, describe};
use crate::options::Options;
use crate::pending::PendingLog;
use crate::queue::Queue;
use crate::store::{Store, encode_u64, keys, read_u64};
use crate::view::{Shared, View};

pub(crate) const LOCK: &str = "LOCK";
/// The log of the events that are in no block yet, beside the segments.
pub const PENDING_LOG: &str = "pending.log";

/// Whether a file of this name is one of those that an archive has in its directory.
pub fn is_of_an_archive(name: &str) -> bool {
    matches!(name, LOCK | PENDING_LOG) || SegmentIndex::from_file_name(name).is_some()
}

/// Segments that one thread reads at least when an archive is opened.
const SEGMENTS_PER_THREAD: usize = 16;

/// What opening an archive found.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Recovered {
    /// Replacements of segments that were not finished, and were removed.
    pub replacements: usize,
    /// Bytes behind the last row that counts, and were cut.
    pub cut_bytes: u64,
    /// Rows that were taken from the pending log.
    pub pending_rows: u64,
    /// The number of the next row.
    pub next_seq: u64,
}

impl Archive {
    /// Opens the archive in [`Options::dir`], creating it when missing. `store` has the metadata of this very archive.
    pub fn open(env: Env, store: Arc<dyn Store>, options: Options) -> Result<(Self, Recovered), Error> {
        let mut recovered = Recovered::default();
        let options = Arc::new(options);
        env.disk.create_dir_all(&options.dir).map_err(Error::io("creating the directory of the archive"))?;
        let lock = env.disk.lock(&options.dir.join(LOCK)).map_err(Error::io("locking the archive"))?;
        let lock = lock.ok_or(Error::Locked)?;
        recovered.replacements = alluvium_jss::remove_stale(&*env.disk, &options.dir)
            .map_err(Error::segment(SegmentIndex::FIRST))?;
        let stored =
            Stored { next_seq: read_u64(&*store, keys::NEXT_SEQ)?, life: read_u64(&*store, keys::LOG_LIFE)? };
        let segments = segments(&env, &options, stored, &mut recovered)?;
        let (log, replayed) = PendingLog::open(&env, &options.dir.join(PENDING_LOG), stored.life)?;
        let last_seq = segments.manifest.last_seq().max(segments.writer.last_seq());
        let next_seq = last_seq.checked_add(1).ok_or(Error::Exhausted)?;
        if stored.next_seq.is_none() {
            // From now on it is known what was acknowledged.
            let first = [(keys::NEXT_SEQ, next_seq), (keys::LOG_LIFE, log.life())];
            store.commit(&first.map(|(key, value)| (key.into(), Some(encode_u64(value)))).into())?;
        }
        let shared = Arc::new(Shared {
            view: RwLock::new(View {
                hot: Hot::new(next_seq, options.hot_bytes),
                manifest: segments.manifest,
                active: None,
                flushed: next_seq,
                durable: 0,
                end: None,
            }),
            changed: Signal::new(),
        });
        let overlay = Arc::new(RwLock::default());
        let mut committer = Committer {
            env: env.clone(),
            options: Arc::clone(&options),
            store: Arc::clone(&store),
            shared: Arc::clone(&shared),
            overlay: Arc::clone(&overlay),
            since_ms: (!segments.writer.blocks().is_empty()).then(|| env.clock.now_ms()),
            writer: Some(segments.writer),
            index: segments.index,
            log,
            next_seq,
            last_witnessed_at: segments.last_witnessed_at,
            staged: Staged::default(),
        };
        let active = committer.active()?;
        shared.view.write().active = Some(active);
        recovered.pending_rows = adopt(&mut committer, replayed, next_seq)?;
        recovered.next_seq = committer.next_seq;
        shared.view.write().durable = 0;
        let inner = Inner {
            queue: Queue::new(options.queue_bytes),
            cache: Cache::new(options.cache_bytes),
            committer: Mutex::new(committer),
            env,
            options,
            store,
            overlay,
            shared,
            _lock: lock,
        };
        Ok((Self(Arc::new(inner)), recovered))
    }
}

/// What the store says was made durable in segments.
#[derive(Copy, Clone)]
struct Stored {
    next_seq: Option<u64>,
    life: Option<u64>,
}

struct Segments {
    manifest: Manifest,
    writer: Box<Writer>,
    index: SegmentIndex,
    last_witnessed_at: i64,
}

/// Reads all sealed segments, and opens or creates the active one.
fn segments(
    env: &Env,
    options: &Options,
    stored: Stored,
    recovered: &mut Recovered,
) -> Result<Segments, Error> {
    let names = env.disk.list(&options.dir).map_err(Error::io("listing segments"))?;
    let mut indexes: Vec<SegmentIndex> =
        names.iter().filter_map(|name| SegmentIndex::from_file_name(name)).collect();
    indexes.sort_unstable();
    let last = indexes.pop();
    let describe = |index: &SegmentIndex| describe(&*env.disk, &options.dir, *index, options.read);
    let mut sealed = describe_all(&indexes, &describe)?;
    let before = Manifest::new(sealed.clone())?;
    let acknowledged = stored.next_seq.map(|next| next.saturating_sub(1));
    let behind = |found| match acknowledged {
        Some(stored) if found > stored => Err(Error::MetadataBehind { what: "rows up to", stored, found }),
        _ => Ok(()),
    };
    behind(before.last_seq())?;
    let Some(last) = last else {
        if let Some(acknowledged) = acknowledged.filter(|seq| *seq > 0) {
            return Err(Error::Lost { acknowledged, found: 0 });
        }
        return begin(env, options, before, SegmentIndex::FIRST);
    };
    // Of this file only the rows behind those of the sealed ones can be missing.
    let here = acknowledged.map(|seq| if seq > before.last_seq() { seq } else { 0 });
    let path = options.dir.join(last.file_name());
    match alluvium_jss::open(&*env.disk, &path, options.blocks, here).map_err(Error::segment(last))? {
        Opened::Sealed(metadata) => {
            behind(metadata.header.max_seq)?;
            sealed.push(Arc::new(describe(&last)?));
            begin(env, options, Manifest::new(sealed)?, last.next().ok_or(Error::Exhausted)?)
        }
        Opened::Active(mut writer, recovery) => {
            recovered.cut_bytes = recovery.cut_bytes;
            if let Some(acknowledged) = acknowledged {
                // The store never heard of these: their flush was not acknowledged.
                recovered.cut_bytes += writer.discard_after(acknowledged).map_err(Error::segment(last))?;
            }
            let times = writer.blocks().iter().map(|block| block.max_witnessed_at);
            let times = times.chain(before.segments.iter().map(|known| known.header().max_witnessed_at));
            let last_witnessed_at = times.max().unwrap_or(i64::MIN);
            Ok(Segments { manifest: before, writer, index: last, last_witnessed_at })
        }
    }
}

/// Reads what all these segments say of themselves, with as many threads as there are cores if that is worth it.
fn describe_all(
    indexes: &[SegmentIndex],
    describe: &(impl Fn(&SegmentIndex) -> Result<Descriptor, Error> + Sync),
) -> Result<Vec<Arc<Descriptor>>, Error> {
    let part = |part: &[SegmentIndex]| part.iter().map(|index| describe(index).map(Arc::new)).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores == 1 || indexes.len() <= SEGMENTS_PER_THREAD {
        return part(indexes);
    }
    let each = indexes.len().div_ceil(cores).max(SEGMENTS_PER_THREAD);
    let parts: Vec<Result<Vec<_>, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            indexes.chunks(each).map(|indexes| scope.spawn(move || part(indexes))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Closed))).collect()
    });
    parts.into_iter().try_fold(Vec::with_capacity(indexes.len()), |mut all, part| {
        all.extend(part?);
        Ok(all)
    })
}

fn begin(env: &Env, options: &Options, manifest: Manifest, index: SegmentIndex) -> Result<Segments, Error> {
    let times = manifest.segments.iter().map(|known| known.header().max_witnessed_at);
    let last_witnessed_at = times.max().unwrap_or(i64::MIN);
    Ok(Segments { writer: create(env, options, index)?, manifest, index, last_witnessed_at })
}

/// Takes over what the pending log has. It stays there: nothing is written unless it no longer fits a block.
fn adopt(committer: &mut Committer, replayed: crate::pending::Replayed, next_seq: u64) -> Result<u64, Error> {
    if replayed.records == 0 {
        return Ok(0);
    }
    let mut expected = next_seq;
    let mut events = Vec::new();
    for row in replayed.rows.into_iter().filter(|row| row.seq >= next_seq) {
        if row.seq != expected {
            return Err(Error::Lost { acknowledged: row.seq - 1, found: expected - 1 });
        }
        expected += 1;
        events.push(row.event);
    }
    committer.stage(Batch { events, changes: replayed.changes })?;
    committer.show_logged();
    Ok(expected - next_seq)
}
