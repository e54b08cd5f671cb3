//! What a verifying consumer must make of the frames, told from the truth and not from the bytes.
//!
//! An [`Oracle`] is shown what the relay emitted, in the order in which it was emitted and without what a consumer
//! never got. It checks no signature and reads no block: it knows what is wrong with a frame because the world says so.
//!
//! It takes the consumer to keep up. One that is behind meets a commit when the directory already has another key or
//! none, and must reject what was right when it was made: where the past is replayed, leave out rotations and tombstones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_atproto::Cid;
use bytes::Bytes;

use crate::event::{Action, Effect, Emitted, Event, Flaw, Op, Status};
use crate::repo::Gate;
use crate::world::World;

/// A row that a consumer must archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// A record.
    Record {
        /// What was done to it.
        action: Action,
        /// The collection.
        collection: String,
        /// The record key.
        rkey: String,
        /// The revision of the commit.
        rev: String,
        /// The name of the record after it.
        cid: Option<Cid>,
        /// Its bytes.
        block: Option<Bytes>,
    },
    /// `#identity`.
    Identity {
        /// The handle that it says.
        handle: Option<String>,
    },
    /// `#account`.
    Account {
        /// The status that it says.
        status: Status,
    },
}

/// What must become of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// These rows, in this order; there may be none.
    Rows(Vec<Row>),
    /// Nothing: it was seen before.
    Replay,
    /// Nothing, and it is counted.
    Rejected(Flaw),
    /// Nothing yet: the whole repository is fetched, and its records are archived behind a row of `#sync`.
    Resync,
    /// It depends on when the repository was fetched; the records at the end do not.
    Repairing,
    /// Nothing, and it is counted: a kind that nobody knows.
    Unknown,
    /// Nothing, and it is counted: no frame at all.
    Undecodable,
}

/// What is known of an account.
#[derive(Debug, Clone, Default)]
struct Known {
    chain: Option<(String, Cid)>,
    account_seq: u64,
    identity_seq: u64,
    records: BTreeMap<String, Cid>,
    status: Option<Status>,
    /// Whether the repository was fetched since, at a time that is not known.
    is_repaired: bool,
    /// Whether what the archive holds depends on that time: a record did not come with its commit.
    is_uncertain: bool,
}

/// The consumer, as it should be.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    accounts: BTreeMap<String, Known>,
}

/// Records by their paths, for each account that is known.
pub type Fold = BTreeMap<String, BTreeMap<String, Cid>>;

impl Oracle {
    /// A consumer that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows it a frame.
    pub fn observe(&mut self, emitted: &Emitted) -> Outcome {
        if emitted.flaw == Some(Flaw::TooLong) {
            return Outcome::Rejected(Flaw::TooLong);
        }
        let known = |oracle: &mut Self| oracle.accounts.entry(emitted.did.clone()).or_default().clone();
        match &emitted.event {
            Event::Garbage => Outcome::Undecodable,
            Event::Unknown => Outcome::Unknown,
            Event::Identity { handle } => {
                let known = self.accounts.entry(emitted.did.clone()).or_default();
                if emitted.seq <= known.identity_seq {
                    return Outcome::Replay;
                }
                known.identity_seq = emitted.seq;
                Outcome::Rows(vec![Row::Identity { handle: handle.clone() }])
            }
            Event::Account { status } => {
                let known = self.accounts.entry(emitted.did.clone()).or_default();
                if emitted.seq <= known.account_seq {
                    return Outcome::Replay;
                }
                known.account_seq = emitted.seq;
                known.status = Some(*status);
                if *status == Status::Deleted {
                    known.records.clear();
                }
                Outcome::Rows(vec![Row::Account { status: *status }])
            }
            Event::Commit { .. } | Event::Sync { .. } => {
                // Such a frame says nothing about an account, least of all one whose name is none.
                let rejected =
                    emitted.flaw.filter(|flaw| flaw.effect() == Effect::Reject && flaw.is_found_first());
                if let Some(flaw) = rejected {
                    return Outcome::Rejected(flaw);
                }
                let mut known = known(self);
                let outcome = match &emitted.event {
                    Event::Commit { rev, data, prev_data, ops } => {
                        known.commit(rev, *data, *prev_data, ops, emitted.flaw)
                    }
                    Event::Sync { rev, data } => known.sync(rev, *data, emitted.flaw),
                    _ => Outcome::Unknown,
                };
                self.accounts.insert(emitted.did.clone(), known);
                outcome
            }
        }
    }

    /// Shows it many frames, one after the other.
    pub fn observe_all<'a>(&mut self, emitted: impl IntoIterator<Item = &'a Arc<Emitted>>) -> Vec<Outcome> {
        emitted.into_iter().map(|emitted| self.observe(emitted)).collect()
    }

    /// Tells it that the repository of an account was fetched for another reason: a frame of it was dropped.
    pub fn repaired(&mut self, did: &str) {
        self.accounts.entry(did.to_owned()).or_default().is_repaired = true;
    }

    /// The accounts whose repositories were fetched.
    pub fn repairs(&self) -> BTreeSet<&str> {
        self.accounts.iter().filter(|(_, known)| known.is_repaired).map(|(did, _)| did.as_str()).collect()
    }

    /// The records that the archive must fold to once nothing is under way. An account whose repository was fetched has
    /// what it has in `world`, if the relay has told of it: end with an [`Act::Sync`](crate::Act::Sync) of each account
    /// that was changed in silence, or was away when its repository was needed. One that is not served at the end is
    /// left out, as is one of which a record without its block came after a fetch.
    pub fn fold(&self, world: &World) -> Fold {
        let mut fold = Fold::new();
        for (did, known) in &self.accounts {
            let Some(account) = world.find(did) else { continue };
            if !known.is_repaired {
                fold.insert(did.clone(), known.records.clone());
            } else if !known.is_uncertain
                && (account.status().is_active() || account.status() == Status::Deleted)
            {
                fold.insert(did.clone(), world.truth(account));
            }
        }
        fold
    }
}

impl Known {
    fn commit(
        &mut self,
        rev: &str,
        data: Cid,
        prev_data: Option<Cid>,
        ops: &[Op],
        flaw: Option<Flaw>,
    ) -> Outcome {
        if self.chain.as_ref().is_some_and(|(stored, _)| rev <= stored.as_str()) {
            return if self.is_repaired { Outcome::Repairing } else { Outcome::Replay };
        }
        // Whether it is taken as it is, or found in what is fetched, decides whether its record is there.
        self.is_uncertain |= self.is_repaired && ops.iter().any(|op| op.gate == Some(Gate::MissingBlock));
        // The first commit of an account begins a chain, and older servers do not say what comes before.
        let is_broken =
            self.chain.as_ref().zip(prev_data).is_some_and(|((_, stored), prev_data)| prev_data != *stored);
        let is_damaged =
            flaw.is_some_and(|flaw| flaw.effect() == Effect::Resync && flaw != Flaw::OtherPrevData);
        if is_broken || is_damaged {
            return self.resync(rev, data);
        }
        if let Some(flaw) = flaw.filter(|flaw| flaw.effect() == Effect::Reject) {
            return if self.is_repaired { Outcome::Repairing } else { Outcome::Rejected(flaw) };
        }
        self.chain = Some((rev.to_owned(), data));
        if self.is_repaired {
            return Outcome::Repairing;
        }
        Outcome::Rows(ops.iter().filter(|op| op.gate.is_none()).map(|op| self.take(op, rev)).collect())
    }

    fn take(&mut self, op: &Op, rev: &str) -> Row {
        match op.cid {
            Some(cid) => self.records.insert(op.path.clone(), cid),
            None => self.records.remove(&op.path),
        };
        let (collection, rkey) = op.path.split_once('/').unwrap_or((&op.path, ""));
        Row::Record {
            action: op.action(),
            collection: collection.to_owned(),
            rkey: rkey.to_owned(),
            rev: rev.to_owned(),
            cid: op.cid,
            block: op.block.clone(),
        }
    }

    fn sync(&mut self, rev: &str, data: Cid, flaw: Option<Flaw>) -> Outcome {
        match &mut self.chain {
            Some((stored, _)) if rev <= stored.as_str() => {
                if self.is_repaired {
                    Outcome::Repairing
                } else {
                    Outcome::Replay
                }
            }
            Some((stored, known)) if *known == data && flaw != Some(Flaw::NoCommit) => {
                if let Some(flaw) = flaw {
                    return Outcome::Rejected(flaw);
                }
                rev.clone_into(stored);
                if self.is_repaired { Outcome::Repairing } else { Outcome::Rows(Vec::new()) }
            }
            // The revision may be a lie, and what is fetched is at least as old as what is stored.
            _ => self.resync(rev, data),
        }
    }

    fn resync(&mut self, rev: &str, data: Cid) -> Outcome {
        self.chain = Some((rev.to_owned(), data));
        let first = !std::mem::replace(&mut self.is_repaired, true);
        if first { Outcome::Resync } else { Outcome::Repairing }
    }
}
