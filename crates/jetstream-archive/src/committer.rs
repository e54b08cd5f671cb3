//! The writer: it alone owns the active segment, the pending log and the batches of the metadata store.
//!
//! What was submitted is made durable in one of two ways. Rows that fill a block are flushed with it: the block is
//! written and synced, then one synced batch of the store says so, and changes what was submitted with the rows. Rows
//! that are left over go into the pending log, with their changes, in one record and one sync. Only then are they shown.
//!
//! So the store never leads the segments; after a crash it says which blocks count, and the pending log has everything
//! that was acknowledged behind them.

use std::sync::Arc;

use alluvium_env::Env;
#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};
use alluvium_jss::{BlockBuilder, Event, SegmentIndex, Writer};
use parking_lot::RwLock;

use crate::batch::Batch;
use crate::error::Error;
use crate::manifest::{Manifest, describe};
use crate::options::Options;
use crate::pending::PendingLog;
use crate::queue::Item;
use crate::store::{Changes, Store, encode_u64, keys};
use crate::view::{Active, Shared};

#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) env: Env,
    pub(crate) options: Arc<Options>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    /// Changes that are durable in the pending log and not yet in the store.
    pub(crate) overlay: Arc<RwLock<Changes>>,
    /// None only while a segment is sealed, and after that has failed.
    pub(crate) writer: Option<Box<Writer>>,
    /// Its number.
    pub(crate) index: SegmentIndex,
    pub(crate) log: PendingLog,
    pub(crate) next_seq: u64,
    pub(crate) last_witnessed_at: i64,
    /// When the active segment got its first row, in milliseconds since the Unix epoch.
    pub(crate) since_ms: Option<u64>,
    pub(crate) staged: Staged,
}

/// What is in the pending block and not yet durable.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    events: Vec<Event>,
    changes: Changes,
    batches: u64,
}

impl Committer {
    /// Makes these batches durable, in order, and shows their rows.
    pub(crate) fn commit(&mut self, items: Vec<Item>) -> Result<(), Error> {
        for item in items {
            match item {
                Item::Batch(batch) => self.stage(batch)?,
                Item::Flush => {
                    self.staged.batches += 1;
                    self.flush()?;
                }
                Item::Rotate => {
                    self.staged.batches += 1;
                    self.rotate()?;
                }
                Item::Cut(sender) => {
                    self.staged.batches += 1;
                    // Whoever wanted it may have gone.
                    drop(sender.send(self.cut()?));
                }
            }
        }
        if self.staged.batches > 0 {
            self.log_staged()?;
        }
        if self.log.len() >= self.options.pending_bytes {
            self.flush()?;
        }
        self.seal_if_due()
    }

    /// Adds the rows of a batch to the pending block, flushing what is before it when it does not fit. A batch of more
    /// rows than a block has gets blocks of its own, which the store confirms as one.
    pub(crate) fn stage(&mut self, batch: Batch) -> Result<(), Error> {
        let (rows, rows_max) = (batch.events.len(), self.options.blocks.block_rows.max(1));
        let bytes: usize = batch.events.iter().map(|event| 34 + event.variable_bytes()).sum();
        let writer = self.writer()?;
        let fits = writer.pending_rows() + rows <= rows_max
            && writer.pending_bytes() + bytes <= self.options.blocks.block_bytes;
        if !fits && self.writer()?.pending_rows() > 0 {
            self.flush()?;
        }
        let (index, mut full, mut split) = (self.index, false, false);
        for mut event in batch.events {
            if full {
                self.writer()?.flush().map_err(Error::segment(index))?;
                split = true;
            }
            event.witnessed_at = event.witnessed_at.max(self.last_witnessed_at);
            self.last_witnessed_at = event.witnessed_at;
            let seq = self.next_seq;
            full = self.writer()?.append(event.at(seq)).map_err(Error::segment(index))?;
            self.next_seq = seq.checked_add(1).ok_or(Error::Exhausted)?;
            self.since_ms.get_or_insert_with(|| self.env.clock.now_ms());
            self.staged.events.push(event);
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::ChangesAfterFlush) && (full || split) {
            self.flush()?;
        }
        self.staged.changes.extend(batch.changes);
        self.staged.batches += 1;
        if full || split {
            self.flush()?;
        }
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut Writer, Error> {
        self.writer.as_deref_mut().ok_or(Error::Closed)
    }

    /// Makes what is staged durable in the pending log.
    pub(crate) fn log_staged(&mut self) -> Result<(), Error> {
        let first = self.next_seq - self.staged.events.len() as u64;
        let mut rows = BlockBuilder::new();
        for (seq, event) in (first..).zip(&self.staged.events) {
            rows.push(event.at(seq))?;
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::ShownEarly) {
            let changes = self.staged.changes.clone();
            self.show_logged();
            return self.log.append(&rows, &changes);
        }
        self.log.append(&rows, &self.staged.changes)?;
        self.show_logged();
        Ok(())
    }

    /// Shows what is staged, which is in the pending log.
    pub(crate) fn show_logged(&mut self) {
        // One by one: to append is to build the whole map anew.
        let changes = self.staged.changes.iter().map(|(key, value)| (key.clone(), value.clone()));
        self.overlay.write().extend(changes);
        self.publish();
    }

    /// Makes everything durable in blocks and in the store, and starts the pending log over.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let index = self.index;
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::MetadataFirst) {
            let seq = [(keys::NEXT_SEQ.into(), Some(encode_u64(self.next_seq)))];
            self.store.commit(&seq.into())?;
        }
        self.writer()?.flush().map_err(Error::segment(index))?;
        let mut changes = self.overlay.read().clone();
        changes.append(&mut self.staged.changes.clone());
        changes.insert(keys::NEXT_SEQ.into(), Some(encode_u64(self.next_seq)));
        changes.insert(keys::LOG_LIFE.into(), Some(encode_u64(self.log.life() + 1)));
        self.store.commit(&changes)?;
        self.log.start_over();
        self.overlay.write().clear();
        let (active, flushed) = (self.active()?, self.next_seq);
        {
            let mut view = self.shared.view.write();
            view.active = Some(active);
            view.flushed = flushed;
        }
        self.publish();
        if self.writer()?.frame_bytes() >= self.options.segment_bytes {
            self.seal()?;
        }
        Ok(())
    }

    pub(crate) fn active(&mut self) -> Result<Active, Error> {
        let index = self.index;
        let before = self.shared.view.read().active.clone().filter(|active| active.index == index);
        let mut filters = before.map_or_else(Vec::new, |active| active.filters.to_vec());
        let writer = self.writer()?;
        filters.extend(
            (filters.len()..writer.blocks().len()).map_while(|n| writer.block_filter(n)).map(Arc::new),
        );
        Ok(Active {
            index,
            file: Arc::clone(writer.file()),
            blocks: writer.blocks().into(),
            filters: filters.into(),
        })
    }

    /// Shows what is durable now.
    fn publish(&mut self) {
        let Staged { events, changes, batches } = std::mem::take(&mut self.staged);
        drop(changes);
        self.shared.update(|view| {
            for event in events {
                view.hot.push(event);
            }
            view.durable += batches;
            let flushed = view.flushed;
            view.hot.evict(flushed);
        });
    }

    fn seal_if_due(&mut self) -> Result<(), Error> {
        let (Some(since), Some(age)) = (self.since_ms, self.options.segment_ms) else { return Ok(()) };
        if self.env.clock.now_ms().saturating_sub(since) < age {
            return Ok(());
        }
        self.rotate()
    }

    /// Seals the active segment whatever its size, unless it has no row, and begins the next.
    pub(crate) fn rotate(&mut self) -> Result<(), Error> {
        self.flush()?;
        // The flush itself may have sealed it.
        if self.writer()?.blocks().is_empty() { Ok(()) } else { self.seal() }
    }

    /// Seals the active segment, all of whose rows are flushed, and begins the next. Readers find its rows at every
    /// moment: it is in the manifest before the next one is the active.
    fn seal(&mut self) -> Result<(), Error> {
        let writer = self.writer.take().ok_or(Error::Closed)?;
        let index = self.index;
        writer.seal().map_err(Error::segment(index))?;
        let dir = self.options.dir.clone();
        let descriptor = describe(&*self.env.disk, &dir, index, self.options.read)?;
        let manifest: Manifest = self.shared.view.read().manifest.with(descriptor)?;
        let next = index.next().ok_or(Error::Exhausted)?;
        let writer = create(&self.env, &self.options, next)?;
        self.writer = Some(writer);
        self.index = next;
        self.since_ms = None;
        let active = self.active()?;
        self.shared.update(|view| {
            view.manifest = manifest;
            view.active = Some(active);
        });
        Ok(())
    }
}

/// Creates a segment.
pub(crate) fn create(env: &Env, options: &Options, index: SegmentIndex) -> Result<Box<Writer>, Error> {
    let path = options.dir.join(index.file_name());
    Writer::create(&*env.disk, &path, options.blocks).map(Box::new).map_err(Error::segment(index))
}
