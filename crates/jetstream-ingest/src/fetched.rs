//! A repository that was fetched whole: complete and signed, or refused.

use alluvium_atproto::car::{CarError, Limits as CarLimits};
use alluvium_atproto::repo::RepoError;
use alluvium_atproto::{Car, Cid, Did, Repo, Tid};
use bytes::Bytes;
use thiserror::Error;

use crate::rules::{Keys, LookupError, Rules, Signature, check_signature};

/// Why a repository was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RepoRefused {
    /// The file.
    #[error("{0}")]
    Car(#[from] CarError),
    /// The commit or the tree; a part that is missing, for one.
    #[error("{0}")]
    Repo(#[from] RepoError),
    /// The commit object is of another version or account, or its revision is none.
    #[error("the repository is another one")]
    Fields,
    /// The revision is ahead of the clock.
    #[error("the revision is ahead of the clock")]
    Future,
    /// The signature is not that of the account.
    #[error("the signature is not that of the account")]
    Signature,
    /// Who signs could not be found out.
    #[error("{0}")]
    Lookup(#[from] LookupError),
}

/// A repository as of one commit, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The revision, a TID.
    pub rev: String,
    /// The root of the tree.
    pub data: Cid,
    /// Keys and records, in the order of keys.
    pub records: Vec<(Box<[u8]>, Bytes)>,
}

impl Fetched {
    /// Reads the file that a server gave for `did`.
    pub fn read(
        file: Bytes,
        did: &Did,
        now_us: u64,
        rules: &Rules,
        keys: &dyn Keys,
    ) -> Result<Self, RepoRefused> {
        let limits = CarLimits { bytes: rules.limits.repo_bytes, ..CarLimits::REPO };
        let repo = Repo::open(Car::read(file, &limits)?)?;
        repo.commit.check(did.as_str(), None).map_err(|_| RepoRefused::Fields)?;
        let tid: Tid = repo.commit.rev.parse().map_err(|_| RepoRefused::Fields)?;
        if tid.micros() > now_us.saturating_add(rules.limits.future_us) {
            return Err(RepoRefused::Future);
        }
        match check_signature(&repo.commit, did, keys) {
            Signature::Good => {}
            Signature::Bad => return Err(RepoRefused::Signature),
            Signature::Unresolved(error) => return Err(error.into()),
        }
        let mut records = Vec::new();
        repo.records(rules.limits.repo_records, |key, cid, _| {
            records.extend(repo.car().bytes(&cid).map(|record| (key.into(), record)));
        })?;
        Ok(Self { rev: repo.commit.rev.clone(), data: repo.commit.data, records })
    }
}
