//! A whole repository as one file: complete, or refused.

use thiserror::Error;

use crate::car::{Blocks as _, Car};
use crate::cid::Cid;
use crate::commit::{Commit, CommitError};
use crate::mst::{self, MstError};

/// Why a repository was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RepoError {
    /// The file names no root.
    #[error("the file names no root")]
    Root,
    /// A block that belongs to the repository is not in the file.
    #[error("the block {0} is missing")]
    Missing(Cid),
    /// The commit.
    #[error("{0}")]
    Commit(#[from] CommitError),
    /// The tree.
    #[error("{0}")]
    Tree(#[from] MstError),
}

/// A repository: its newest commit, and the blocks it came with.
#[derive(Debug, Clone)]
pub struct Repo {
    /// The name of the commit.
    pub cid: Cid,
    /// The commit; its signature was not checked.
    pub commit: Commit,
    car: Car,
}

impl Repo {
    /// Takes the first root of the file for the commit. Nothing but the commit is looked at yet.
    pub fn open(car: Car) -> Result<Self, RepoError> {
        let cid = *car.roots().first().ok_or(RepoError::Root)?;
        let commit = Commit::decode(car.block(&cid).ok_or(RepoError::Missing(cid))?)?;
        Ok(Self { cid, commit, car })
    }

    /// The blocks.
    pub const fn car(&self) -> &Car {
        &self.car
    }

    /// Goes through all records, at most `limit`, in the order of their keys, and returns how many there are. A file
    /// from which a node or a record is missing is refused, even if it was cut between two blocks.
    pub fn records(
        &self,
        limit: usize,
        mut visit: impl FnMut(&[u8], Cid, &[u8]),
    ) -> Result<usize, RepoError> {
        let mut missing = None;
        let records = mst::walk(&self.car, self.commit.data, limit, |key, cid| match self.car.block(&cid) {
            Some(block) if missing.is_none() => visit(key, cid, block),
            Some(_) => {}
            None => missing = missing.or(Some(cid)),
        });
        match (records, missing) {
            (Err(MstError::Missing(cid)), _) | (Ok(_), Some(cid)) => Err(RepoError::Missing(cid)),
            (records, _) => Ok(records?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::car::{Limits, write};
    use crate::cid::Codec;
    use crate::key::{Curve, SecretKey};
    use crate::mst::Tree;
    use crate::syntax::Tid;

    const KEYS: [&str; 5] = ["a.b.c/1", "a.b.c/2", "a.b.d/1", "a.b.d/2", "a.b.d/3"];

    /// The root and the blocks of a small repository, the commit first and records last.
    fn repo() -> (Cid, Vec<(Cid, Vec<u8>)>) {
        let none = BTreeMap::new();
        let mut tree = Tree::new();
        let mut records = Vec::new();
        for key in KEYS {
            let cid = Cid::of(Codec::DagCbor, key.as_bytes());
            assert_eq!(tree.insert(&none, key.as_bytes(), cid), Ok(None));
            records.push((cid, key.as_bytes().to_vec()));
        }
        let mut nodes = Vec::new();
        let data = tree.write(&mut |cid, block| nodes.push((cid, block)));
        let key = SecretKey::from_bytes(Curve::K256, &[9; 32]).expect("a key");
        let (root, commit) =
            Commit::sign(&"did:plc:abc".parse().expect("a DID"), Tid::new(1, 1), data, &key).encode();
        (root, [vec![(root, commit)], nodes, records].concat())
    }

    fn open(root: Cid, blocks: &[(Cid, Vec<u8>)]) -> Result<Repo, RepoError> {
        let file = write(&[root], blocks.iter().map(|(cid, block)| (cid, block.as_slice())));
        Repo::open(Car::read(file.into(), &Limits::REPO).expect("a file"))
    }

    #[test]
    fn all_records_come_in_order_with_their_blocks() {
        let (root, blocks) = repo();
        let repo = open(root, &blocks).expect("a repository");
        let mut seen = Vec::new();
        let count = repo.records(5, |key, cid, block| {
            assert!(cid.names(block) && key == block);
            seen.push(String::from_utf8_lossy(key).into_owned());
        });
        assert_eq!((count, seen), (Ok(5), KEYS.map(str::to_owned).to_vec()));
        assert_eq!(repo.records(4, |_, _, _| {}), Err(RepoError::Tree(MstError::Limit)));
    }

    #[test]
    fn a_repository_without_any_one_of_its_blocks_is_refused() {
        let (root, blocks) = repo();
        for at in 0..blocks.len() {
            let mut fewer = blocks.clone();
            let (gone, _) = fewer.remove(at);
            let read = open(root, &fewer).and_then(|repo| repo.records(100, |_, _, _| {}));
            assert_eq!(read, Err(RepoError::Missing(gone)));
        }
        let file = write(&[], blocks.iter().map(|(cid, block)| (cid, block.as_slice())));
        let car = Car::read(file.into(), &Limits::REPO).expect("a file");
        assert_eq!(Repo::open(car).err(), Some(RepoError::Root));
    }
}
