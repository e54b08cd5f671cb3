//! Whether a `#commit` is what it claims to be, in the order in which the questions must be asked.
//!
//! The order decides between a refusal and a repair: what shows that the event is not for us to judge (a replay) comes
//! before what costs work, what shows that we have missed something leads to a repair, and only what nobody but the
//! account can have made is kept.

use std::collections::BTreeSet;

use alluvium_atproto::car::Limits as CarLimits;
use alluvium_atproto::mst::{self, MstError, Operation, Tree};
use alluvium_atproto::{Blocks as _, Car, Cid, Commit as Object, Did, Tid};
use bytes::Bytes;

use super::Context;
use crate::convert::VerifiedOp;
use crate::frame::{Action, Commit, Op};
use crate::rules::{LookupError, Rules, Signature, check_signature};
use crate::state::{Chain, Hosting};

/// Why an event is dropped, with nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reject {
    /// The account is no DID.
    Did,
    /// The revision is no TID.
    Rev,
    /// The revision is ahead of the clock.
    Future,
    /// Too many bytes or operations.
    TooLarge,
    /// The account is not active, and that matters here.
    Inactive,
    /// The file's first root is another block than the commit.
    Root,
    /// The commit object is of another version, account or revision.
    Fields,
    /// The signature is not that of the account.
    Signature,
}

impl Reject {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Did,
        Self::Rev,
        Self::Future,
        Self::TooLarge,
        Self::Inactive,
        Self::Root,
        Self::Fields,
        Self::Signature,
    ];

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Did => "did",
            Self::Rev => "rev",
            Self::Future => "future_rev",
            Self::TooLarge => "too_large",
            Self::Inactive => "inactive",
            Self::Root => "root",
            Self::Fields => "fields",
            Self::Signature => "signature",
        }
    }

    /// Whether there is a repository that may have what such an event told: all but those of what is no account at all.
    /// An account that is away is fetched once it is back.
    pub const fn has_repository(self) -> bool {
        match self {
            Self::Did => false,
            Self::Rev
            | Self::Future
            | Self::TooLarge
            | Self::Inactive
            | Self::Root
            | Self::Fields
            | Self::Signature => true,
        }
    }
}

/// Why the repository must be fetched whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// The server has left out what it did because it was too much.
    TooBig,
    /// A record changes twice.
    DuplicatePath,
    /// The blocks, or the commit object in them, cannot be read.
    Blocks,
    /// The operations cannot be undone on the tree that came.
    Inversion,
    /// The commit follows another tree than the known one.
    PrevData,
    /// The tree does not hold what an operation says.
    Proof,
    /// A `#sync` with another tree than the known one.
    Sync,
}

impl Broken {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::TooBig,
        Self::DuplicatePath,
        Self::Blocks,
        Self::Inversion,
        Self::PrevData,
        Self::Proof,
        Self::Sync,
    ];

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooBig => "too_big",
            Self::DuplicatePath => "duplicate_path",
            Self::Blocks => "blocks",
            Self::Inversion => "inversion",
            Self::PrevData => "prev_data",
            Self::Proof => "proof",
            Self::Sync => "sync",
        }
    }
}

/// A commit that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How far the repository is known with it.
    pub chain: Chain,
    /// What it did.
    pub ops: Vec<VerifiedOp>,
    /// It does not tell the tree before it, and was taken nevertheless.
    pub legacy: bool,
    /// It names the known tree as the one before it, but its operations undone lead to another.
    pub lenient: bool,
}

/// What is to be done with a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Verified(Verified),
    /// It is known already.
    Replay,
    /// It is dropped.
    Rejected(Reject),
    /// It may hold, but something before it is missing.
    Broken(Broken),
    /// Who signs for the account could not be found out.
    Unresolved(LookupError),
}

/// Judges a commit of an account of which `chain` and `hosting` are known.
pub(super) fn check(
    event: &Commit,
    chain: Option<&Chain>,
    hosting: Option<&Hosting>,
    context: &Context<'_>,
) -> Verdict {
    match judge(event, chain, hosting, context) {
        Ok(verified) => Verdict::Verified(verified),
        Err(verdict) => verdict,
    }
}

fn judge(
    event: &Commit,
    chain: Option<&Chain>,
    hosting: Option<&Hosting>,
    context: &Context<'_>,
) -> Result<Verified, Verdict> {
    let rules = context.rules;
    let did = check_envelope(&event.repo, &event.rev, context.now_us, rules).map_err(Verdict::Rejected)?;
    if event.blocks.len() > rules.limits.commit_bytes || event.ops.len() > rules.limits.commit_ops {
        return Err(Verdict::Rejected(Reject::TooLarge));
    }
    if rules.gate_hosting && hosting.is_some_and(|hosting| !hosting.active) {
        return Err(Verdict::Rejected(Reject::Inactive));
    }
    if chain.is_some_and(|chain| event.rev <= chain.rev) {
        return Err(Verdict::Replay);
    }
    if event.too_big {
        return Err(Verdict::Broken(Broken::TooBig));
    }
    let paths: BTreeSet<&str> = event.ops.iter().map(|op| op.path.as_str()).collect();
    if paths.len() != event.ops.len() {
        return Err(Verdict::Broken(Broken::DuplicatePath));
    }
    let (car, object) = read_blocks(event, rules)?;
    // Read once: what the operations are looked up in is what they are then undone on.
    let mut tree = Tree::open(object.data);
    let holds = holds(event, &car, &mut tree);
    let (legacy, lenient) = match chain {
        None => (false, false),
        Some(_) if rules.accept_legacy && is_legacy(event) => (true, false),
        Some(chain) => (false, !follows(event, &car, tree, chain)?),
    };
    if object.check(did.as_str(), Some(&event.rev)).is_err() {
        return Err(Verdict::Rejected(Reject::Fields));
    }
    match check_signature(&object, &did, context.keys) {
        Signature::Good => {}
        Signature::Bad => return Err(Verdict::Rejected(Reject::Signature)),
        Signature::Unresolved(error) => return Err(Verdict::Unresolved(error)),
    }
    if !holds {
        return Err(Verdict::Broken(Broken::Proof));
    }
    let ops = event.ops.iter().map(|op| verified(op, &car)).collect();
    Ok(Verified { chain: Chain { rev: event.rev.clone(), data: object.data }, ops, legacy, lenient })
}

/// What can be said of a commit or sync before anything is read: account and revision.
pub(super) fn check_envelope(did: &str, rev: &str, now_us: u64, rules: &Rules) -> Result<Did, Reject> {
    let did: Did = did.parse().map_err(|_| Reject::Did)?;
    let tid: Tid = rev.parse().map_err(|_| Reject::Rev)?;
    if tid.micros() > now_us.saturating_add(rules.limits.future_us) {
        return Err(Reject::Future);
    }
    Ok(did)
}

/// The blocks of an event of the network, within its bounds.
pub(super) fn read_car(blocks: &Bytes, rules: &Rules) -> Option<Car> {
    let limits = CarLimits { bytes: rules.limits.commit_bytes, ..CarLimits::COMMIT };
    Car::read(blocks.clone(), &limits).ok()
}

fn read_blocks(event: &Commit, rules: &Rules) -> Result<(Car, Object), Verdict> {
    let unreadable = Verdict::Broken(Broken::Blocks);
    let car = read_car(&event.blocks, rules).ok_or(unreadable.clone())?;
    let object = car.block(&event.commit).and_then(|block| Object::decode(block).ok()).ok_or(unreadable)?;
    if car.roots().first() != Some(&event.commit) {
        return Err(Verdict::Rejected(Reject::Root));
    }
    Ok((car, object))
}

/// A server that knows nothing of trees before.
fn is_legacy(event: &Commit) -> bool {
    event.prev_data.is_none() && event.ops.iter().all(|op| op.action == Action::Create || op.prev.is_none())
}

/// Whether the operations, undone, lead to the known tree; an error if the commit does not even claim to follow it, or
/// if they cannot be undone.
fn follows(event: &Commit, car: &Car, tree: Tree, chain: &Chain) -> Result<bool, Verdict> {
    let before = undo(event, car, tree).map_err(|_| Verdict::Broken(Broken::Inversion))?;
    if event.prev_data != Some(chain.data) {
        return Err(Verdict::Broken(Broken::PrevData));
    }
    Ok(before == chain.data)
}

fn undo(event: &Commit, car: &Car, tree: Tree) -> Result<Cid, MstError> {
    let mut operations = Vec::with_capacity(event.ops.len());
    for op in &event.ops {
        let key = op.path.as_bytes();
        let (before, after) = match op.action {
            Action::Create => (None, op.cid),
            Action::Update => (Some(op.prev.ok_or(MstError::Operation)?), op.cid),
            Action::Delete => (Some(op.prev.ok_or(MstError::Operation)?), None),
        };
        operations.push(Operation { key, before, after });
    }
    mst::undo(tree, car, &operations)
}

/// Whether the tree after the commit holds what its operations say.
fn holds(event: &Commit, car: &Car, tree: &mut Tree) -> bool {
    event.ops.iter().all(|op| {
        let after = match op.action {
            Action::Delete if op.cid.is_some() => return false,
            Action::Delete => None,
            _ if op.cid.is_none() => return false,
            _ => op.cid,
        };
        tree.get(car, op.path.as_bytes()) == Ok(after)
    })
}

fn verified(op: &Op, car: &Car) -> VerifiedOp {
    VerifiedOp {
        action: op.action,
        path: op.path.clone(),
        record: op.cid.filter(|_| op.action != Action::Delete).and_then(|cid| car.bytes(&cid)),
    }
}
