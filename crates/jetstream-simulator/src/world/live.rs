//! What happens by itself: one event after the other, drawn from the seed.

use std::sync::Arc;

use alluvium_atproto::{Cid, Codec, Tid};
use bytes::Bytes;

use super::{Account, World, WorldError};
use crate::config::Mix;
use crate::event::{Emitted, Event, Op, Status};
use crate::frame::{self, CommitFrame};
use crate::random::Random;
use crate::record::{POST, PROFILE, Subject, collection, record};
use crate::repo::{Change, Diff, Gate, Write};

/// How often a draw may fall on an account that does not fit before the next one in line is taken.
const DRAWS: usize = 8;
/// The most operations that come into being in one commit by themselves.
const OPS_MAX: usize = 10;
/// When more accounts than this, in percent, are not active, the next change brings one back.
const INACTIVE_PERCENT: usize = 10;

impl World {
    /// Moves the clock to the next event and lets it happen. Most give one frame, some two.
    pub fn step(&mut self) -> Vec<Arc<Emitted>> {
        let gap = self.live.exponential(1_000_000 / u64::from(self.config.rate));
        self.advance(gap.max(1));
        let Mix { commit, identity, account, sync, rotate, migrate, .. } = self.config.mix;
        let kind = self.live.weighted(&[commit, identity, account, sync, rotate, migrate]);
        let frames = match kind {
            1 => self.step_identity(),
            2 => self.step_account(),
            3 => self.draw_active().map_or(Ok(Vec::new()), |index| self.sync_as_it_is(index)),
            4 => self.draw_active().map_or(Ok(Vec::new()), |index| self.rotate(index, true)),
            5 => self.step_migrate(),
            _ => self.step_commit(),
        };
        // Everything that was drawn was looked up before, so nothing is refused.
        frames.unwrap_or_default()
    }

    /// That many steps.
    pub fn run(&mut self, steps: usize) -> Vec<Arc<Emitted>> {
        (0..steps).flat_map(|_| self.step()).collect()
    }

    /// Sets how many live events come in a second of the world's clock, 1 to 1,000,000.
    pub fn set_rate(&mut self, rate: u32) {
        self.config.rate = rate.clamp(1, 1_000_000);
    }

    fn draw(&mut self) -> u32 {
        let total = self.authors.last().copied().unwrap_or(0);
        let at = self.live.below(total);
        u32::try_from(self.authors.partition_point(|sum| *sum <= at)).unwrap_or(0)
    }

    /// An active account, as often as it writes; none only if none is active.
    fn draw_active(&mut self) -> Option<u32> {
        for _ in 0..DRAWS {
            let index = self.draw();
            if self.accounts.get(index as usize)?.status.is_active() {
                return Some(index);
            }
        }
        self.accounts.iter().find(|account| account.status.is_active()).map(Account::index)
    }

    fn step_identity(&mut self) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let index = self.draw();
        if self.live.chance(70) {
            return self.identity(index, false);
        }
        self.rename(index)?;
        self.identity(index, true)
    }

    fn step_account(&mut self) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let gone = |account: &&Account| {
            !account.status.is_active() && account.status != Status::Deleted && !account.is_tombstoned
        };
        let away: Vec<u32> = self.accounts.iter().filter(gone).map(Account::index).collect();
        let deleted = self.accounts.iter().filter(|account| account.status == Status::Deleted).count();
        if !away.is_empty()
            && (away.len() * 100 > self.accounts.len() * INACTIVE_PERCENT || self.live.chance(50))
        {
            let index = self.live.pick(&away);
            return self.set_status(index, Status::Active);
        }
        let can_delete = deleted * 100 < self.accounts.len() * INACTIVE_PERCENT;
        let statuses = [Status::Deactivated, Status::Suspended, Status::Takendown, Status::Deleted];
        let status = statuses[self.live.weighted(&[4, 2, 3, u32::from(can_delete)])];
        // The one who writes most would take half of the traffic along.
        let others = u64::from(self.config.accounts).saturating_sub(1);
        let index = u32::try_from(1 + self.live.below(others)).unwrap_or(0);
        let is_active = |account: &Account| account.status.is_active();
        if self.accounts.get(index as usize).is_some_and(is_active) {
            self.set_status(index, status)
        } else {
            self.step_commit()
        }
    }

    fn step_migrate(&mut self) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let Some(index) = self.draw_active() else { return Ok(Vec::new()) };
        let host = u32::try_from(self.live.below(self.config.hosts.into())).unwrap_or(0);
        self.migrate(index, host, true)
    }

    fn step_commit(&mut self) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let Some(index) = self.draw_active() else { return Ok(Vec::new()) };
        let wanted = 1 + self.live.failures(70, OPS_MAX - 1);
        let mut writes: Vec<Write> = Vec::with_capacity(wanted);
        for number in 0..wanted {
            let write = self.draw_write(index, number as u64)?;
            if writes.iter().all(|earlier| earlier.path != write.path) {
                writes.push(write);
            }
        }
        let frame = self.commit(index, writes)?;
        Ok(vec![frame])
    }

    /// One operation that fits the repository.
    fn draw_write(&mut self, index: u32, number: u64) -> Result<Write, WorldError> {
        let mut random = self.live.clone();
        let Mix { create, update, delete, .. } = self.config.mix;
        let kind = random.weighted(&[create, update, delete]);
        let draw = random.bits();
        let account = self.account(index)?;
        let repo = self.repo(account);
        // Paths of attacks are left alone: what is said about them is known by other means.
        let ours = |path: &&[u8]| repo.records().get(*path).is_some_and(|record| record.gate.is_none());
        let path = if kind == 0 { None } else { repo.path(draw).filter(ours) }.map(<[u8]>::to_vec);
        let write = match path {
            Some(path) if kind == 2 => Write { path, block: None, gate: None },
            Some(path) => {
                let named = String::from_utf8_lossy(&path).into_owned();
                let collection = named.split_once('/').map_or(POST, |(collection, _)| collection);
                let block = self.draw_record(&mut random, collection);
                Write { path, block: Some(block), gate: None }
            }
            None => {
                let collection = collection(&mut random);
                // A clock of its own, so that no path comes twice: neither here nor by request.
                let rkey = Tid::new(self.micros + number, account.clock()).to_string();
                let rkey = if collection == PROFILE { "self" } else { &rkey };
                let path = format!("{collection}/{rkey}").into_bytes();
                let block = self.draw_record(&mut random, collection);
                Write { path, block: Some(block), gate: None }
            }
        };
        self.live = random;
        Ok(write)
    }

    fn draw_record(&self, random: &mut Random, collection: &str) -> Bytes {
        let other = self.accounts.get(random.index(self.accounts.len()));
        let who = other.map_or("did:plc:nobody", |account| account.did().as_str());
        let known = self.recent.get(random.index(self.recent.len() + 4)).cloned();
        let subject = known.unwrap_or_else(|| {
            let then = Tid::new(self.micros - random.below(100_000_000), 7).to_string();
            Subject::invented(random, who, &then)
        });
        record(random, collection, self.micros, &subject, who).into()
    }

    /// Commits `writes` and puts the frame on the wire.
    pub(super) fn commit(&mut self, index: u32, writes: Vec<Write>) -> Result<Arc<Emitted>, WorldError> {
        let diff = self.commit_in_silence(index, writes)?;
        let did = self.account(index)?.did().as_str().to_owned();
        let ops = ops(&diff.changes);
        for op in &ops {
            if let Some(cid) = op.cid.filter(|_| op.path.starts_with(POST)) {
                self.remember(Subject { uri: format!("at://{did}/{}", op.path), cid });
            }
        }
        Ok(self.emit_commit(&did, &diff, ops))
    }

    /// Commits `writes` and tells nobody.
    pub(super) fn commit_in_silence(&mut self, index: u32, writes: Vec<Write>) -> Result<Diff, WorldError> {
        let seed = self.config.seed;
        let account = self.account(index)?;
        if !account.status.is_active() {
            return Err(WorldError::Status(account.status));
        }
        let (rev, key) = (self.next_rev(account), account.key(seed));
        let account = self.accounts.get_mut(index as usize).ok_or(WorldError::Account(index))?;
        Ok(account.repo_mut(&self.config).write(rev, &key, writes)?)
    }

    pub(super) fn emit_commit(&mut self, did: &str, diff: &Diff, ops: Vec<Op>) -> Arc<Emitted> {
        let (rev, since) = (diff.rev.to_string(), diff.since.to_string());
        let blocks = diff.car();
        let frame_ops = ops.clone();
        let prev_data = Some(diff.previous_data);
        let event = Event::Commit { rev: rev.clone(), data: diff.data, prev_data, ops };
        self.emit(did, event, None, |seq, micros| {
            CommitFrame {
                seq,
                micros,
                repo: did,
                commit: diff.commit.0,
                rev: &rev,
                since: &since,
                blocks,
                ops: &frame_ops,
                prev_data,
            }
            .encode()
        })
    }

    /// An `#identity`, with the handle or without.
    pub(super) fn identity(
        &mut self,
        index: u32,
        says_handle: bool,
    ) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let account = self.account(index)?;
        let did = account.did().as_str().to_owned();
        let handle = says_handle.then(|| account.handle.clone());
        let event = Event::Identity { handle: handle.clone() };
        let frame = self.emit(&did, event, None, |seq, micros| {
            frame::identity(seq, micros, &did, handle.as_deref(), None)
        });
        Ok(vec![frame])
    }

    /// A `#sync` with a new revision of the repository as it is.
    pub(super) fn sync_as_it_is(&mut self, index: u32) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let seed = self.config.seed;
        let account = self.account(index)?;
        if !account.status.is_active() {
            return Err(WorldError::Status(account.status));
        }
        let (rev, key) = (self.next_rev(account), account.key(seed));
        let account = self.accounts.get_mut(index as usize).ok_or(WorldError::Account(index))?;
        let repo = account.repo_mut(&self.config);
        repo.sign(rev, &key);
        let (cid, block) = repo.commit().clone();
        let data = repo.data();
        let did = account.did().as_str().to_owned();
        let frame = self.emit_sync(&did, &rev.to_string(), data, &[(cid, block)], cid, None);
        Ok(vec![frame])
    }

    pub(super) fn emit_sync(
        &mut self,
        did: &str,
        rev: &str,
        data: Cid,
        blocks: &[(Cid, Vec<u8>)],
        root: Cid,
        flaw: Option<crate::event::Flaw>,
    ) -> Arc<Emitted> {
        let blocks = blocks.iter().map(|(cid, block)| (cid, block.as_slice()));
        let blocks = alluvium_atproto::car::write(&[root], blocks);
        let event = Event::Sync { rev: rev.to_owned(), data };
        self.emit(did, event, flaw, |seq, micros| frame::sync(seq, micros, did, rev, blocks))
    }
}

/// Changes as a frame tells them. One whose path is not text cannot be told.
pub(super) fn ops(changes: &[Change]) -> Vec<Op> {
    let op = |change: &Change| {
        Some(Op {
            path: String::from_utf8(change.path.clone()).ok()?,
            cid: change.after.as_ref().map(|(cid, _)| *cid),
            prev: change.before,
            block: change.after.as_ref().map(|(_, block)| block.clone()),
            gate: change.gate,
        })
    };
    changes.iter().filter_map(op).collect()
}

/// What is wrong with a path, by the rules for paths and the columns of an archive.
pub(super) fn gate_of(path: &str) -> Option<Gate> {
    use alluvium_atproto::{Nsid, RecordKey};
    /// The widest collection and record key that the archive has a column for, in bytes.
    const COLUMN_MAX: usize = 255;
    let (collection, rkey) = path.split_once('/').unwrap_or((path, ""));
    if !Nsid::is_valid(collection) {
        Some(Gate::Collection)
    } else if !RecordKey::is_valid(rkey) {
        Some(Gate::RecordKey)
    } else if collection.len() > COLUMN_MAX || rkey.len() > COLUMN_MAX {
        Some(Gate::TooLong)
    } else {
        None
    }
}

/// A record that nobody would notice, as bytes.
pub(super) fn small_record(collection: &str, number: u64) -> Bytes {
    use alluvium_atproto::cbor::{Map, Value, encode};
    let mut fields = Map::new();
    fields.insert("$type", Value::from(collection));
    fields.insert("text", Value::Text(format!("number {number}")));
    encode(&Value::Map(fields)).into()
}

/// A name for bytes that nobody has.
pub(super) fn invented_cid(number: u64) -> Cid {
    Cid::of(Codec::DagCbor, &number.to_be_bytes())
}
