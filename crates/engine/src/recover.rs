//! Opening a data directory: checkpoint, tables, then the journal's tail.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use alluvium_env::{Disk, Env};
use alluvium_journal::{
    self as journal, CheckpointError, CheckpointReader, DataDirectory, DirectoryId, FormatError,
    JournalError, JournalWriter, Manifest, ManifestError, Mutation, Record, RecordPlace, ReplayError,
    Segments, Shape, StreamId, Table, TableError, body_table, checkpoint_name, table_name,
};
use alluvium_protocol::StreamPath;
use alluvium_tail::{Recent, SpanCache};
use parking_lot::{Mutex, RwLock};
use thiserror::Error;

use crate::body::Released;
use crate::bucket::Buckets;
use crate::buffers::Buffers;
use crate::changes::ChangeNotes;
use crate::committer::Committer;
use crate::counters::Counters;
use crate::engine::{Engine, Inner};
use crate::expiry::Expiries;
use crate::extent::{Extents, JournalExtent, TableRun};
use crate::fault::Fault;
use crate::link::{Linked, link};
use crate::lost::referred;
use crate::options::{Options, SHARDS_MAX, SHARED_SPANS, Threads};
use crate::queue::Queue;
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::shard::{Folded, HeldTable, Shard};
use crate::stream::{Stream, offset_of, pair_of};
use crate::tables::{remove_leftovers, remove_unpublished, whole_body};
use crate::threads::Maintenance;

/// Why an engine did not open. Nothing on disk was changed but what a torn write left behind.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory is foreign, newer, locked or unreadable.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The options contradict each other.
    #[error("invalid options: {0}")]
    Options(&'static str),
    /// The manifest of a shard.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Records that contradict each other.
    #[error("`{}`: {source}", dir.display())]
    Inconsistent {
        /// The folder of the shard.
        dir: PathBuf,
        /// The contradiction.
        source: Inconsistent,
    },
    /// A file operation.
    #[error("`{}`", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The engine's threads.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl OpenError {
    /// Whether the system failed an operation on a file, and nothing says that what is stored is damaged.
    pub fn is_of_the_system(&self) -> bool {
        matches!(
            self,
            Self::Format(FormatError::Io(_))
                | Self::Manifest(ManifestError::Io(_))
                | Self::Checkpoint(CheckpointError::Io(_))
                | Self::Table(TableError::Io(_))
                | Self::Journal(JournalError::Io(_) | JournalError::Full)
                | Self::Io { .. }
                | Self::Fault(_)
        )
    }
}

/// A shard read back, before its streams are linked to their sources.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) dir: PathBuf,
    pub(crate) streams: HashMap<StreamId, (Rebuilt, Extents)>,
    segments: Arc<Segments>,
    writer: JournalWriter,
    folded: Folded,
    unfolded_bodies: HashMap<StreamId, Arc<Table>>,
    next_stream: u64,
}

impl Engine {
    /// Opens the data directory `dir`, making it if it is missing or empty, and recovers what it holds.
    pub fn open(env: Env, dir: &Path, options: Options) -> Result<Self, OpenError> {
        check(&options)?;
        let mut directory = DataDirectory::open(&env, dir)?;
        let fresh = directory.format().is_none();
        let (shards, segment_bytes) = match directory.format() {
            Some(format) => (format.shards, format.segment_bytes),
            None => (options.shards, options.segment_bytes),
        };
        if u64::from(options.limits.append_bytes_max) * 2 > u64::from(segment_bytes) {
            return Err(OpenError::Options("the largest append must fit twice in a journal segment"));
        }
        let mut recovered = Vec::with_capacity(usize::from(shards));
        for index in 0..shards {
            let shard_dir = directory.shard_dir(index);
            let shape = Shape { segment_bytes, shard: Some(index), directory: directory.id() };
            let shard = if fresh {
                Recovered::create(&env, shard_dir, index, shape)?
            } else {
                Recovered::open(&env, shard_dir, index, shape)?
            };
            recovered.push(shard);
        }
        if fresh {
            directory.mark(shards, segment_bytes)?;
        }
        let inner = Arc::new(assemble(env, options, directory, recovered)?);
        if inner.options.threads == Threads::Spawned {
            inner.start_threads()?;
        }
        Ok(Self { inner })
    }
}

fn check(options: &Options) -> Result<(), OpenError> {
    if options.shards == 0 || options.shards > SHARDS_MAX {
        return Err(OpenError::Options("the number of shards is out of range"));
    }
    if options.fold_segments == 0 {
        return Err(OpenError::Options("a fold needs at least one sealed segment"));
    }
    Ok(())
}

impl Recovered {
    fn create(env: &Env, dir: PathBuf, index: u16, shape: Shape) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: dir.clone(), source };
        env.disk.create_dir_all(&dir).map_err(io)?;
        let segments = Segments::create(env, &dir, shape, 1)?;
        let manifest = Manifest {
            shard: index,
            checkpoint: None,
            tables: Vec::new(),
            first_segment: 1,
            last_seq: 0,
            next_file: 1,
        };
        manifest.write(env.disk.as_ref(), &dir)?;
        Self::replay(env, dir, segments, Folded::new(manifest, Vec::new()), HashMap::new(), 0)
    }

    fn open(env: &Env, dir: PathBuf, index: u16, shape: Shape) -> Result<Self, OpenError> {
        let disk = env.disk.as_ref();
        let Some(manifest) = Manifest::load(disk, &dir)? else {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(OpenError::Io { path: dir.join(journal::manifest::MANIFEST_NAME), source });
        };
        if manifest.shard != index {
            return Err(OpenError::Inconsistent { dir, source: Inconsistent::Shard(manifest.shard) });
        }
        let mut tables = Vec::with_capacity(manifest.tables.len());
        for number in &manifest.tables {
            let table = Table::open(disk, &dir.join(table_name(*number)))?;
            table.check_directory(shape.directory).map_err(TableError::from)?;
            tables.push(HeldTable { table: Arc::new(table), live_bytes: 0 });
        }
        let mut streams = HashMap::new();
        let mut next_stream = 0;
        if let Some(number) = manifest.checkpoint {
            let mut reader = CheckpointReader::open(disk, &dir.join(checkpoint_name(number)))?;
            reader.check_directory(shape.directory).map_err(CheckpointError::from)?;
            for entry in &mut reader {
                let inconsistent = |source| OpenError::Inconsistent { dir: dir.clone(), source };
                let (rebuilt, extents) = Rebuilt::from_entry(entry?).map_err(inconsistent)?;
                lives_in(rebuilt.id, index).map_err(inconsistent)?;
                let runs = hold_runs(&mut tables, rebuilt.id, &extents)
                    .ok_or(Inconsistent::Extent(rebuilt.id.0))
                    .map_err(inconsistent)?;
                streams.insert(rebuilt.id, (rebuilt, Extents { tables: runs, ..Extents::default() }));
            }
            next_stream = reader.end().map_or(0, |end| end.next_stream);
        }
        let segments = Segments::open(env, &dir, shape, manifest.first_segment)?;
        Self::replay(env, dir, segments, Folded::new(manifest, tables), streams, next_stream)
    }

    fn replay(
        env: &Env,
        dir: PathBuf,
        segments: Arc<Segments>,
        folded: Folded,
        mut streams: HashMap<StreamId, (Rebuilt, Extents)>,
        mut next_stream: u64,
    ) -> Result<Self, OpenError> {
        let mut bodies = Vec::new();
        let replayed = journal::replay(&segments, &mut |record, place| {
            #[cfg(feature = "planted-bugs")]
            if crate::planted::is_left_out(&place, folded.manifest.first_segment, segments.sealed().len() + 1)
            {
                return Ok(());
            }
            next_stream = next_stream.max(record.stream.counter() + 1);
            if matches!(record.mutation, Mutation::Body(_)) {
                bodies.push(record.stream);
            }
            lives_in(record.stream, folded.manifest.shard)?;
            replay_record(&mut streams, record, place)
        });
        let replayed = replayed.map_err(|error| match error {
            ReplayError::Journal(error) => error.into(),
            ReplayError::Sink(source) => OpenError::Inconsistent { dir: dir.clone(), source },
        })?;
        if let Some(torn) = replayed.torn {
            // Almost certainly a write that a crash interrupted, which nobody was told had succeeded. Damage to the
            // very last batch looks the same.
            tracing::warn!(dir = %dir.display(), at = torn.at, reason = torn.reason, "cut a torn tail off the journal");
        }
        let disk = env.disk.as_ref();
        let unfolded_bodies = open_body_tables(disk, &dir, segments.directory(), &mut streams, &bodies)?;
        let writer = JournalWriter::resume(segments.clone(), &replayed)?;
        let recorded: HashSet<u64> = bodies.into_iter().map(body_table).collect();
        // Only now is it known that the manifest is the one of these files.
        remove_leftovers(disk, &dir, &folded.manifest).map_err(JournalError::from)?;
        remove_unpublished(disk, &dir, &folded.manifest, &|number| recorded.contains(&number))
            .map_err(JournalError::from)?;
        Ok(Self { dir, streams, segments, writer, folded, unfolded_bodies, next_stream })
    }
}

/// Opens the tables of bodies whose records were replayed. Of one that has ended there may be none any more.
fn open_body_tables(
    disk: &dyn Disk,
    dir: &Path,
    directory: Option<DirectoryId>,
    streams: &mut HashMap<StreamId, (Rebuilt, Extents)>,
    bodies: &[StreamId],
) -> Result<HashMap<StreamId, Arc<Table>>, OpenError> {
    let mut opened = HashMap::new();
    for id in bodies {
        let Some((rebuilt, extents)) = streams.get_mut(id) else { continue };
        if rebuilt.state.deleted {
            continue;
        }
        let table = Table::open(disk, &dir.join(table_name(body_table(*id))))?;
        table.check_directory(directory).map_err(TableError::from)?;
        let table = Arc::new(table);
        let extent = whole_body(&table, *id, pair_of(rebuilt.state.tail)).ok_or_else(|| {
            OpenError::Inconsistent { dir: dir.to_owned(), source: Inconsistent::Extent(id.0) }
        })?;
        extents.tables.push(TableRun::new(table.clone(), &extent));
        opened.insert(*id, table);
    }
    Ok(opened)
}

/// Refuses what is said of a stream in the files of a shard that it does not live in: they are another shard's.
pub(crate) fn lives_in(stream: StreamId, shard: u16) -> Result<(), Inconsistent> {
    if stream.shard() == shard { Ok(()) } else { Err(Inconsistent::Elsewhere(stream.0)) }
}

/// Takes one record of the journal in.
pub(crate) fn replay_record(
    streams: &mut HashMap<StreamId, (Rebuilt, Extents)>,
    record: Record,
    place: RecordPlace,
) -> Result<(), Inconsistent> {
    let Record { stream: id, time_ms, mutation } = record;
    if let Mutation::Body(body) = mutation {
        // Its bytes are found once it is known whether it is still there.
        return match streams.insert(id, (Rebuilt::born_body(id, body, time_ms), Extents::default())) {
            None => Ok(()),
            Some(_) => Err(Inconsistent::CreatedTwice(id.0)),
        };
    }
    if let Mutation::Create(create) = mutation {
        let (rebuilt, body) = Rebuilt::born(id, create, time_ms);
        let mut extents = Extents::default();
        extents
            .journal
            .extend(body.and_then(|body| JournalExtent::new(offset_of(body.start), place, &body.lengths)));
        return match streams.insert(id, (rebuilt, extents)) {
            None => Ok(()),
            Some(_) => Err(Inconsistent::CreatedTwice(id.0)),
        };
    }
    let (rebuilt, extents) = streams.get_mut(&id).ok_or(Inconsistent::UnknownStream(id.0))?;
    let start = rebuilt.state.tail;
    rebuilt.apply(&mutation, time_ms)?;
    if let Mutation::Append(append) = &mutation {
        extents.journal.extend(JournalExtent::new(start, place, &append.lengths));
    }
    Ok(())
}

/// Finds the tables of a checkpoint's extents, and counts their bytes as live.
/// `None` when a table does not have what the checkpoint says: it is another table of the same name.
pub(crate) fn hold_runs(
    tables: &mut [HeldTable],
    stream: StreamId,
    extents: &[journal::TableExtent],
) -> Option<Vec<TableRun>> {
    let mut runs = Vec::with_capacity(extents.len());
    for extent in extents {
        let index = tables.binary_search_by_key(&extent.table, |held| held.table.number()).ok()?;
        let held = &mut tables[index];
        let first = extent.first_block as usize;
        let blocks = held.table.blocks().get(first..first.checked_add(extent.block_count as usize)?)?;
        let (first, last) = (blocks.first()?, blocks.last()?);
        let fits = first.start == extent.start && last.end_position() == extent.end.1;
        if !fits || blocks.iter().any(|block| block.stream != stream) {
            return None;
        }
        held.live_bytes += extent.end.1.checked_sub(extent.start.1)?;
        runs.push(TableRun::new(held.table.clone(), extent));
    }
    Some(runs)
}

/// The streams of a shard, each where it belongs.
#[derive(Default)]
struct Placed {
    directory: HashMap<StreamPath, Arc<Stream>>,
    retained: HashMap<StreamId, Arc<Stream>>,
    bodies: HashMap<StreamId, Arc<Stream>>,
    expiries: Expiries,
    graces: VecDeque<(u64, Weak<Stream>)>,
}

impl Placed {
    fn new<'a>(
        streams: impl Iterator<Item = &'a Arc<Stream>>,
        stray: &HashSet<StreamId>,
        lost: &HashSet<StreamId>,
        buckets: &Buckets,
        released: &Released,
    ) -> Self {
        let mut placed = Self::default();
        for stream in streams {
            let Some(path) = stream.path.clone() else {
                placed.bodies.insert(stream.id, stream.clone());
                continue;
            };
            let shared = stream.shared.lock();
            let deleted = shared.deleted;
            let superseded = shared.retention.iter().flat_map(|retention| &retention.superseded);
            let graces = superseded.map(|superseded| (superseded.until_ms, Arc::downgrade(stream)));
            placed.graces.extend(graces);
            drop(shared);
            if lost.contains(&stream.id) && !deleted {
                // Its end is recorded before anybody can look.
                stream.shared.lock().deleted = true;
                placed.retained.insert(stream.id, stream.clone());
            } else if stray.contains(&stream.id) {
                // Nobody finds it; forks that need its bytes do by its number.
                stream.shared.lock().deleted = true;
                placed.retained.insert(stream.id, stream.clone());
                released.push(stream.clone());
            } else if deleted {
                placed.retained.insert(stream.id, stream.clone());
                placed.directory.entry(path).or_insert_with(|| stream.clone());
            } else {
                placed.expiries.watch(stream);
                if let Some(bucket) = buckets.of(stream) {
                    bucket.insert(stream);
                }
                placed.directory.insert(path, stream.clone());
            }
        }
        placed.graces.make_contiguous().sort_unstable_by_key(|(until_ms, _)| *until_ms);
        placed
    }
}

/// Sees to it that no number is given again that a record refers to, though the journal of its own shard has lost it.
fn keep_numbers(recovered: &mut [Recovered]) {
    let streams = recovered.iter().flat_map(|shard| shard.streams.values());
    let referred: Vec<StreamId> = streams.flat_map(|(stream, _)| referred(stream)).collect();
    for id in referred {
        if let Some(shard) = recovered.get_mut(usize::from(id.shard())) {
            shard.next_stream = shard.next_stream.max(id.counter() + 1);
        }
    }
}

/// Puts the recovered shards together to an engine at rest.
fn assemble(
    env: Env,
    options: Options,
    directory: DataDirectory,
    mut recovered: Vec<Recovered>,
) -> Result<Inner, OpenError> {
    let released: Vec<Arc<Released>> = recovered.iter().map(|_| Arc::default()).collect();
    keep_numbers(&mut recovered);
    let Linked { streams: linked, stray, lost, buckets } =
        link(&mut recovered, &released, options.durability)?;
    let mut linked: Vec<Arc<Stream>> = linked.into_values().collect();
    linked.sort_unstable_by_key(|stream| stream.id);
    let recent_bytes = options.recent_bytes / recovered.len().max(1);
    let mut shards = Vec::with_capacity(recovered.len());
    for (index, shard) in recovered.into_iter().enumerate() {
        let released = released[index].clone();
        let mine = linked.iter().filter(|stream| usize::from(stream.id.shard()) == index);
        let Placed { directory, retained, bodies, expiries, graces } =
            Placed::new(mine, &stray, &lost, &buckets, &released);
        shards.push(Shard {
            index: u16::try_from(index).unwrap_or_default(),
            dir: shard.dir,
            directory: RwLock::new(directory.into()),
            retained: Mutex::new(retained),
            bodies: Mutex::new(bodies),
            released,
            graces: Mutex::new(graces),
            garbage_bytes: AtomicU64::new(shard.streams.values().map(|(_, extents)| extents.bytes()).sum()),
            gone: Mutex::new(shard.streams.into_keys().collect()),
            unfolded_bodies: Mutex::new(shard.unfolded_bodies),
            next_stream: AtomicU64::new(shard.next_stream),
            queue: Queue::new(&options.limits),
            committer: Mutex::new(Committer::new(shard.writer)),
            segments: shard.segments,
            recent: Recent::new(recent_bytes),
            expiries,
            tables: Mutex::new(shard.folded.sizes()),
            folded: Mutex::new(shard.folded),
            is_full: AtomicBool::new(false),
        });
    }
    let mut ended: Vec<Arc<Stream>> =
        linked.iter().filter(|stream| lost.contains(&stream.id)).cloned().collect();
    ended.retain(|stream| !stream.state.lock().deleted);
    let inner = Inner {
        env,
        options,
        shards,
        buckets,
        uploads: AtomicUsize::new(0),
        upload_turn: tokio::sync::Mutex::new(()),
        last_commit_ms: AtomicU64::new(0),
        spans: SpanCache::new(SHARED_SPANS),
        changes: ChangeNotes::default(),
        buffers: Buffers::default(),
        streams: AtomicU64::new(linked.iter().filter(|stream| stream.path.is_some()).count() as u64),
        stopped: AtomicBool::new(false),
        counters: Counters::default(),
        maintenance: Maintenance::default(),
        directory: Mutex::new(Some(directory)),
    };
    if !ended.is_empty() {
        inner.end_lost(&ended)?;
    }
    inner.shards.iter().for_each(|shard| inner.count_garbage(shard));
    Ok(inner)
}
