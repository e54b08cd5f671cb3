//! Frames with something wrong, each with one thing only.
//!
//! What a consumer must reject does not touch the repository: it is a commit that was never made. What it must answer
//! by fetching the repository is a commit that was made, and told wrongly.

use std::sync::Arc;

use alluvium_atproto::cbor::{self, Map, Value};
use alluvium_atproto::{Cid, Codec, Commit, Curve, SecretKey, Tid, car};

use super::act::FRAME_BYTES_MAX;
use super::live::{invented_cid, ops, small_record};
use super::{Act, World, WorldError};
use crate::event::{Effect, Emitted, Event, Flaw, Op, Status};
use crate::frame::CommitFrame;
use crate::record::POST;
use crate::repo::{Change, Diff, Write};

/// The most operations of a commit.
const OPS_MAX: usize = 200;
/// The most bytes of blocks of a commit.
const BLOCKS_BYTES_MAX: usize = 2_000_000;
/// A revision that is ahead of every clock: the year 2200.
const FUTURE_MICROS: u64 = 7_258_118_400_000_000;

/// A frame in the making.
struct Forgery {
    repo: String,
    rev: String,
    since: Tid,
    commit: (Cid, Vec<u8>),
    root: Cid,
    data: Cid,
    prev_data: Option<Cid>,
    blocks: Vec<(Cid, Vec<u8>)>,
    /// Stands for the file of all blocks.
    file: Option<Vec<u8>>,
    ops: Vec<Op>,
}

impl Forgery {
    fn new(did: &str, diff: Diff) -> Self {
        let block = |change: &Change| change.after.as_ref().map(|(cid, block)| (*cid, block.to_vec()));
        let records = diff.changes.iter().filter_map(block);
        Self {
            repo: did.to_owned(),
            rev: diff.rev.to_string(),
            since: diff.since,
            root: diff.commit.0,
            commit: diff.commit,
            data: diff.data,
            prev_data: Some(diff.previous_data),
            ops: ops(&diff.changes),
            blocks: records.chain(diff.nodes).collect(),
            file: None,
        }
    }

    /// Makes it a commit with other fields.
    fn sign(&mut self, commit: (Cid, Vec<u8>)) {
        self.root = commit.0;
        self.commit = commit;
    }

    /// Tells it wrongly.
    fn spoil(&mut self, flaw: Flaw, key: &SecretKey, old_key: &SecretKey, rev: Tid) {
        match flaw {
            Flaw::OldKey => self.sign(signed(&self.repo, &rev.to_string(), self.data, 3, old_key)),
            Flaw::OtherDid => self.sign(signed("did:plc:nobody", &rev.to_string(), self.data, 3, key)),
            Flaw::OtherVersion => self.sign(signed(&self.repo, &rev.to_string(), self.data, 2, key)),
            Flaw::OtherRev => {
                let other = Tid::new(rev.micros() + 1, rev.clock()).to_string();
                self.sign(signed(&self.repo, &other, self.data, 3, key));
            }
            Flaw::InvalidRev => {
                "not-a-revision".clone_into(&mut self.rev);
                self.sign(signed(&self.repo, &self.rev, self.data, 3, key));
            }
            Flaw::FutureRev => {
                self.rev = Tid::new(FUTURE_MICROS + rev.micros() % 1_000_000, rev.clock()).to_string();
                self.sign(signed(&self.repo, &self.rev, self.data, 3, key));
            }
            Flaw::BadSignature | Flaw::HighS => {
                self.sign(resigned(&self.commit.1, flaw, key.public_key().curve()));
            }
            Flaw::InvalidDid => "not-a-did".clone_into(&mut self.repo),
            Flaw::TooManyBytes => {
                for number in [1_u8, 2] {
                    let block = vec![number; BLOCKS_BYTES_MAX / 2];
                    self.blocks.push((Cid::of(Codec::Raw, &block), block));
                }
            }
            Flaw::OtherRoot => self.root = self.data,
            Flaw::RepeatedPath => self.ops.extend(self.ops.first().cloned()),
            Flaw::NotACar => self.file = Some(vec![0xff; 64]),
            Flaw::OtherCid => {
                if let Some(op) = self.ops.first_mut() {
                    op.cid = Some(invented_cid(rev.micros()));
                }
            }
            Flaw::MissingNode => self.blocks.retain(|(cid, _)| *cid != self.data),
            Flaw::OtherPrevData => self.prev_data = Some(invented_cid(rev.micros())),
            Flaw::OtherPrev => {
                if let Some(op) = self.ops.first_mut() {
                    op.prev = Some(invented_cid(rev.micros()));
                }
            }
            Flaw::Legacy => self.prev_data = None,
            // The others are in what the commit was made of, or in what is left out below.
            Flaw::NoCommit | Flaw::TooManyOps | Flaw::StaleRev | Flaw::TooLong => {}
        }
    }

    fn blocks(&self, flaw: Flaw) -> Vec<u8> {
        if let Some(file) = &self.file {
            return file.clone();
        }
        let commit = (flaw != Flaw::NoCommit).then_some((&self.commit.0, self.commit.1.as_slice()));
        let blocks = self.blocks.iter().map(|(cid, block)| (cid, block.as_slice()));
        car::write(&[self.root], commit.into_iter().chain(blocks))
    }
}

impl World {
    /// A `#commit` with something wrong. Some need another frame before them.
    pub(super) fn lie(&mut self, index: u32, flaw: Flaw) -> Result<Vec<Arc<Emitted>>, WorldError> {
        self.advance(2);
        let status = self.account(index)?.status;
        if status != Status::Active {
            return Err(WorldError::Status(status));
        }
        let mut frames = Vec::new();
        match flaw {
            Flaw::TooLong => return self.act(Act::SizedFrame { account: index, bytes: FRAME_BYTES_MAX + 1 }),
            Flaw::OldKey => frames = self.rotate(index, true)?,
            Flaw::OtherPrev | Flaw::StaleRev => {
                let write = self.new_post(0);
                frames.push(self.commit(index, vec![write])?);
            }
            _ => {}
        }
        self.advance(2);
        let writes = self.writes_for(index, flaw)?;
        let account = self.account(index)?;
        let (key, old_key) = (account.key(self.config.seed), account.old_key(self.config.seed));
        let did = account.did().as_str().to_owned();
        let stale = Tid::new(account.repo(&self.config).rev().micros() - 1, account.clock());
        let rev = if flaw == Flaw::StaleRev { stale } else { self.next_rev(account) };
        let diff = match flaw.effect() {
            Effect::Accept | Effect::Resync => self.commit_in_silence(index, writes)?,
            Effect::Reject | Effect::Replay => account.repo(&self.config).clone().write(rev, &key, writes)?,
        };
        let mut forgery = Forgery::new(&did, diff);
        forgery.spoil(flaw, &key, &old_key, rev);
        frames.push(self.emit_forgery(forgery, flaw));
        Ok(frames)
    }

    fn emit_forgery(&mut self, forgery: Forgery, flaw: Flaw) -> Arc<Emitted> {
        let blocks = forgery.blocks(flaw);
        let Forgery { repo, rev, since, commit, data, prev_data, ops, .. } = forgery;
        let frame_ops = ops.clone();
        let event = Event::Commit { rev: rev.clone(), data, prev_data, ops };
        self.emit(&repo, event, Some(flaw), |seq, micros| {
            let (since, commit) = (since.to_string(), commit.0);
            let (repo, rev, since) = (repo.as_str(), rev.as_str(), since.as_str());
            CommitFrame { seq, micros, repo, commit, rev, since, blocks, ops: &frame_ops, prev_data }.encode()
        })
    }

    fn new_post(&self, number: u64) -> Write {
        let path = format!("{POST}/lie-{}-{number}", self.micros).into_bytes();
        Write { path, block: Some(small_record(POST, self.micros + number)), gate: None }
    }

    fn writes_for(&self, index: u32, flaw: Flaw) -> Result<Vec<Write>, WorldError> {
        let count = if flaw == Flaw::TooManyOps { OPS_MAX as u64 + 1 } else { 1 };
        if flaw != Flaw::OtherPrev {
            return Ok((0..count).map(|number| self.new_post(number)).collect());
        }
        // The newest record is replaced.
        let repo = self.repo(self.account(index)?);
        let newest = u64::try_from(repo.records().len()).unwrap_or(u64::MAX).saturating_sub(1);
        let path = repo.path(newest).map(<[u8]>::to_vec).unwrap_or_default();
        Ok(vec![Write { path, block: Some(small_record(POST, self.micros)), gate: None }])
    }

    /// A `#sync` of the repository as it is, with something wrong.
    pub(super) fn lying_sync(&mut self, index: u32, flaw: Flaw) -> Result<Vec<Arc<Emitted>>, WorldError> {
        self.advance(2);
        let account = self.account(index)?;
        if !account.status.is_active() {
            return Err(WorldError::Status(account.status));
        }
        let key = account.key(self.config.seed);
        let did = account.did().clone();
        let data = account.repo(&self.config).data();
        let rev = self.next_rev(account);
        let mut said = rev.to_string();
        let honest = Commit::sign(&did, rev, data, &key).encode();
        let did = did.as_str();
        let commit = match flaw {
            Flaw::BadSignature | Flaw::HighS => resigned(&honest.1, flaw, key.public_key().curve()),
            Flaw::OtherDid => signed("did:plc:nobody", &said, data, 3, &key),
            Flaw::OtherVersion => signed(did, &said, data, 2, &key),
            Flaw::OtherRev => signed(did, &Tid::new(rev.micros() + 1, 0).to_string(), data, 3, &key),
            Flaw::InvalidRev | Flaw::FutureRev => {
                said = match flaw {
                    Flaw::InvalidRev => "not-a-revision".to_owned(),
                    _ => Tid::new(FUTURE_MICROS + rev.micros() % 1_000_000, rev.clock()).to_string(),
                };
                signed(did, &said, data, 3, &key)
            }
            Flaw::NoCommit => honest,
            _ => return Err(WorldError::Limit("a `#sync` cannot have this flaw")),
        };
        let blocks = if flaw == Flaw::NoCommit { Vec::new() } else { vec![commit.clone()] };
        Ok(vec![self.emit_sync(did, &said, data, &blocks, commit.0, Some(flaw))])
    }
}

/// A commit with any fields, signed with `key`.
fn signed(did: &str, rev: &str, data: Cid, version: i64, key: &SecretKey) -> (Cid, Vec<u8>) {
    let mut fields = Map::new();
    fields.insert("did", Value::from(did));
    fields.insert("version", Value::Integer(version));
    fields.insert("rev", Value::from(rev));
    fields.insert("data", Value::Link(data));
    fields.insert("prev", Value::Null);
    let sig = key.sign(&cbor::encode(&Value::Map(fields.clone())));
    fields.insert("sig", Value::Bytes(sig));
    block(fields)
}

/// The commit with another signature: one of other bytes, or the one with the higher `s`.
fn resigned(commit: &[u8], flaw: Flaw, curve: Curve) -> (Cid, Vec<u8>) {
    let Ok(Value::Map(mut fields)) = cbor::decode(commit) else {
        return block(Map::new());
    };
    let mut sig = fields.get("sig").and_then(Value::as_bytes).unwrap_or_default().to_vec();
    if flaw == Flaw::HighS {
        negate(sig.get_mut(32..).unwrap_or_default(), &order(curve));
    } else if let Some(byte) = sig.get_mut(20) {
        *byte ^= 0x40;
    }
    fields.insert("sig", Value::Bytes(sig));
    block(fields)
}

fn block(fields: Map) -> (Cid, Vec<u8>) {
    let block = cbor::encode(&Value::Map(fields));
    (Cid::of(Codec::DagCbor, &block), block)
}

/// How many points the curve has (SEC 2, sections 2.4.1 and 2.4.2).
const fn order(curve: Curve) -> [u64; 4] {
    match curve {
        Curve::K256 => {
            [0xffff_ffff_ffff_ffff, 0xffff_ffff_ffff_fffe, 0xbaae_dce6_af48_a03b, 0xbfd2_5e8c_d036_4141]
        }
        Curve::P256 => {
            [0xffff_ffff_0000_0000, 0xffff_ffff_ffff_ffff, 0xbce6_faad_a717_9e84, 0xf3b9_cac2_fc63_2551]
        }
    }
}

/// `order` minus the number in `bytes`, the highest first.
fn negate(bytes: &mut [u8], order: &[u64; 4]) {
    let order: Vec<u8> = order.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut borrow = 0_i16;
    for (byte, whole) in bytes.iter_mut().zip(&order).rev() {
        let left = i16::from(*whole) - i16::from(*byte) - borrow;
        borrow = i16::from(left < 0);
        *byte = left.to_le_bytes()[0];
    }
}
