//! The files of one shard: each checksum in them, and that they fit each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use alluvium_env::{Disk, Env, Finding};
use alluvium_journal::{
    self as journal, CheckpointError, CheckpointReader, Damage, IoFault, JournalError, Manifest,
    ManifestError, Mutation, ReplayError, Segments, Shape, ShardFile, StreamId, Table, TableError,
    body_table, checkpoint_name, segment_name, segment_number, spare_number, table_name,
};

use crate::check::{Checked, inconsistent};
use crate::extent::{Extents, TableRun};
use crate::rebuilt::{Inconsistent, Rebuilt};
use crate::recover::{hold_runs, lives_in, replay_record};
use crate::shard::HeldTable;
use crate::stream::pair_of;
use crate::tables::whole_body;

/// What the files of a shard say.
pub(super) struct Found {
    pub(super) dir: PathBuf,
    pub(super) streams: HashMap<StreamId, (Rebuilt, Extents)>,
    /// Whether all of it could be read, so that what is missing is missing.
    pub(super) is_whole: bool,
}

/// The check of one shard.
pub(super) struct ShardCheck<'a> {
    env: &'a Env,
    dir: PathBuf,
    index: u16,
    checked: &'a mut Checked,
    report: &'a mut dyn FnMut(Finding),
    is_whole: bool,
    /// The numbers of tables that could not be opened.
    unreadable: HashSet<u64>,
}

impl<'a> ShardCheck<'a> {
    pub(super) fn new(
        env: &'a Env,
        index: u16,
        dir: PathBuf,
        checked: &'a mut Checked,
        report: &'a mut dyn FnMut(Finding),
    ) -> Self {
        Self { env, dir, index, checked, report, is_whole: true, unreadable: HashSet::new() }
    }

    fn disk(&self) -> &'a dyn Disk {
        self.env.disk.as_ref()
    }

    /// Reads everything, in the order of a start.
    pub(super) fn read(mut self, shape: Shape) -> Found {
        let mut streams = HashMap::new();
        if let Some(manifest) = self.manifest() {
            let mut tables: Vec<HeldTable> = Vec::with_capacity(manifest.tables.len());
            for number in &manifest.tables {
                let table = self.table(*number, shape);
                tables.extend(table.map(|table| HeldTable { table, live_bytes: 0 }));
            }
            if let Some(number) = manifest.checkpoint {
                self.checkpoint(&manifest, shape, number, &mut tables, &mut streams);
            }
            let bodies = self.journal(&manifest, shape, &mut streams);
            let recorded = self.bodies(&bodies, shape, &mut streams);
            self.leftovers(&manifest, &recorded);
        }
        Found { dir: self.dir, streams, is_whole: self.is_whole }
    }

    /// Tells of something that is wrong, and that what follows from the files of this shard is not all there is.
    fn fault(&mut self, finding: impl Into<Finding>) {
        self.is_whole = false;
        (self.report)(finding.into());
    }

    fn inconsistent(&mut self, source: &Inconsistent) {
        self.fault(inconsistent(&self.dir, source));
    }

    fn manifest(&mut self) -> Option<Manifest> {
        match Manifest::read(self.disk(), &self.dir) {
            Ok(Some(manifest)) if manifest.shard == self.index => Some(manifest),
            Ok(Some(manifest)) => {
                self.inconsistent(&Inconsistent::Shard(manifest.shard));
                None
            }
            Ok(None) => {
                let file = self.dir.join(journal::manifest::MANIFEST_NAME);
                self.fault(Damage { file, at: 0, reason: "the manifest is missing" });
                None
            }
            Err(ManifestError::Damage(damage)) => {
                self.fault(damage);
                None
            }
            Err(ManifestError::Io(fault)) => {
                self.fault(fault);
                None
            }
        }
    }

    /// Opens a table and reads all of it; `None` when it can't be opened.
    fn table(&mut self, number: u64, shape: Shape) -> Option<Arc<Table>> {
        let table = match Table::open(self.disk(), &self.dir.join(table_name(number))) {
            Ok(table) => table,
            Err(error) => {
                self.table_fault(error);
                self.unreadable.insert(number);
                return None;
            }
        };
        if let Err(damage) = table.check_directory(shape.directory) {
            self.fault(damage);
            self.unreadable.insert(number);
            return None;
        }
        self.checked.tables += 1;
        for block in 0..table.blocks().len() {
            self.checked.blocks += 1;
            match table.read_block(block) {
                Ok(data) => self.checked.data_bytes += data.len() as u64,
                Err(error) => self.table_fault(error),
            }
            if let Err(error) = table.boundaries(block) {
                self.table_fault(error);
            }
        }
        if table.blocks().iter().any(|block| lives_in(block.stream, self.index).is_err()) {
            self.fault(Finding::fault(table.path(), None, "it has messages of streams of another shard"));
            return None;
        }
        if table.number() != number {
            let reason = "the table has another number than its name";
            self.fault(Damage { file: table.path().to_owned(), at: 0, reason });
            return None;
        }
        Some(Arc::new(table))
    }

    fn table_fault(&mut self, error: TableError) {
        match error {
            TableError::Damage(damage) => self.fault(damage),
            TableError::Io(fault) => self.fault(fault),
            TableError::Refused(reason) => self.fault(Damage { file: self.dir.clone(), at: 0, reason }),
        }
    }

    fn checkpoint(
        &mut self,
        manifest: &Manifest,
        shape: Shape,
        number: u64,
        tables: &mut [HeldTable],
        streams: &mut HashMap<StreamId, (Rebuilt, Extents)>,
    ) {
        let path = self.dir.join(checkpoint_name(number));
        let mut reader = match CheckpointReader::open(self.disk(), &path) {
            Ok(reader) => reader,
            Err(error) => return self.checkpoint_fault(error),
        };
        if let Err(damage) = reader.check_directory(shape.directory) {
            return self.fault(damage);
        }
        for entry in &mut reader {
            let rebuilt = match entry {
                Ok(entry) => Rebuilt::from_entry(entry),
                // Where the next entry begins is not known.
                Err(error) => return self.checkpoint_fault(error),
            };
            match rebuilt {
                Ok((rebuilt, _)) if lives_in(rebuilt.id, self.index).is_err() => {
                    return self.fault(Finding::fault(&path, None, "it has streams of another shard"));
                }
                Ok((rebuilt, extents)) => {
                    let mut runs = hold_runs(tables, rebuilt.id, &extents);
                    if runs.is_none() && extents.iter().any(|extent| self.unreadable.contains(&extent.table))
                    {
                        // That was told of the table.
                        runs = Some(Vec::new());
                    }
                    match runs {
                        Some(runs) => {
                            let extents = Extents { tables: runs, ..Extents::default() };
                            streams.insert(rebuilt.id, (rebuilt, extents));
                        }
                        None => self.inconsistent(&Inconsistent::Extent(rebuilt.id.0)),
                    }
                }
                Err(source) => self.inconsistent(&source),
            }
        }
        if reader.end().is_some_and(|end| end.last_seq != manifest.last_seq) {
            let what =
                "it covers other batches than the manifest says: it is another checkpoint of this name";
            self.fault(Finding::fault(&path, None, what));
        }
    }

    fn checkpoint_fault(&mut self, error: CheckpointError) {
        match error {
            CheckpointError::Damage(damage) => self.fault(damage),
            CheckpointError::Io(fault) => self.fault(fault),
            CheckpointError::Refused(reason) => {
                self.fault(Damage { file: self.dir.clone(), at: 0, reason });
            }
        }
    }

    /// Replays the journal; the bodies that it records.
    fn journal(
        &mut self,
        manifest: &Manifest,
        shape: Shape,
        streams: &mut HashMap<StreamId, (Rebuilt, Extents)>,
    ) -> Vec<StreamId> {
        let mut bodies = Vec::new();
        let segments = match Segments::look(self.env, &self.dir, shape, manifest.first_segment) {
            Ok(segments) => segments,
            Err(error) => {
                self.journal_fault(error);
                return bodies;
            }
        };
        self.checked.segments += segments.sealed().len() as u64 + 1;
        let first = segments.get(manifest.first_segment);
        if let Some(first) = first.filter(|first| first.first_seq() != manifest.last_seq.wrapping_add(1)) {
            let what =
                "it doesn't begin with the batch that the manifest says: it is another segment of this name";
            self.fault(Finding::fault(first.path(), None, what));
        }
        // Of each stream only the first contradiction is told: what follows it says nothing new.
        let mut contradicted: HashMap<StreamId, Inconsistent> = HashMap::new();
        // Segments of another shard that do not say so themselves.
        let mut foreign = BTreeMap::new();
        let (checked, index) = (&mut *self.checked, self.index);
        let replayed = journal::replay(&segments, &mut |record, place| {
            let id = record.stream;
            if lives_in(id, index).is_err() {
                foreign.entry(place.segment).or_insert(place.record_at);
                return Ok::<(), std::convert::Infallible>(());
            }
            checked.records += 1;
            checked.data_bytes += u64::from(place.data_len);
            if matches!(record.mutation, Mutation::Body(_)) {
                bodies.push(id);
            }
            if !contradicted.contains_key(&id)
                && let Err(source) = replay_record(streams, record, place)
            {
                contradicted.insert(id, source);
            }
            Ok(())
        });
        for (segment, at) in foreign {
            let file = self.dir.join(segment_name(segment));
            let what = "it has records of streams of another shard";
            self.fault(Finding::fault(&file, Some(at.into()), what));
        }
        for source in contradicted.into_values() {
            self.inconsistent(&source);
        }
        match replayed {
            Ok(replayed) => {
                if let Some(torn) = replayed.torn {
                    let file = self.dir.join(segment_name(replayed.segment));
                    let what = format!("the last segment ends in a torn write: {}", torn.reason);
                    (self.report)(Finding::of_a_crash(&file, Some(torn.at.into()), what));
                }
            }
            Err(ReplayError::Journal(error)) => self.journal_fault(error),
            Err(ReplayError::Sink(never)) => match never {},
        }
        bodies
    }

    fn journal_fault(&mut self, error: JournalError) {
        match error {
            JournalError::Damage(damage) => self.fault(damage),
            JournalError::Io(fault) => self.fault(fault),
            other @ (JournalError::Full | JournalError::Poisoned | JournalError::BatchTooLarge { .. }) => {
                let (file, source) = (self.dir.clone(), std::io::Error::other(other));
                self.fault(IoFault { action: "read", file, source });
            }
        }
    }

    /// Reads the tables of bodies that no manifest names yet; the numbers of all that are recorded.
    fn bodies(
        &mut self,
        bodies: &[StreamId],
        shape: Shape,
        streams: &mut HashMap<StreamId, (Rebuilt, Extents)>,
    ) -> HashSet<u64> {
        for id in bodies {
            let Some((rebuilt, extents)) = streams.get_mut(id).filter(|(body, _)| !body.state.deleted) else {
                continue;
            };
            let tail = pair_of(rebuilt.state.tail);
            let Some(table) = self.table(body_table(*id), shape) else { continue };
            match whole_body(&table, *id, tail) {
                Some(extent) => extents.tables.push(TableRun::new(table, &extent)),
                None => self.inconsistent(&Inconsistent::Extent(id.0)),
            }
        }
        bodies.iter().map(|id| body_table(*id)).collect()
    }

    fn leftovers(&mut self, manifest: &Manifest, recorded: &HashSet<u64>) {
        let names = match self.disk().list(&self.dir) {
            Ok(names) => names,
            Err(source) => {
                let file = self.dir.clone();
                return self.fault(IoFault { action: "list", file, source });
            }
        };
        let tables = manifest.tables.iter().chain(recorded).map(|number| table_name(*number));
        let mut wanted: HashSet<String> = tables.chain(manifest.checkpoint.map(checkpoint_name)).collect();
        wanted.insert(journal::manifest::MANIFEST_NAME.to_owned());
        for name in names {
            let is_segment = segment_number(&name).is_some_and(|number| number >= manifest.first_segment);
            if !is_segment && spare_number(&name).is_none() && !wanted.contains(&name) {
                let file = self.dir.join(&name);
                // What a start removes, or makes a spare of, is what one of ours has left.
                (self.report)(if is_left_by_a_crash(&name) {
                    Finding::of_a_crash(&file, None, "nothing refers to it")
                } else {
                    Finding::stray(&file)
                });
            }
        }
    }
}

/// Whether a start puts a file of this name in order that nothing refers to.
fn is_left_by_a_crash(name: &str) -> bool {
    let is_replacement = name.strip_suffix(".tmp") == Some(journal::manifest::MANIFEST_NAME);
    is_replacement || ShardFile::of(name).is_some()
}
