//! The store of servers: fjall, a log-structured tree in pure Rust.

use std::io;
use std::ops::Bound;
use std::path::Path;

use alluvium_env::{Disk as _, OpenMode, RealDisk};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable as _};

use crate::store::{Changes, Page, Snapshot, Store, StoreError};

/// The end of the name of the file that says that the directory of that name is not finished. A database is made in many
/// steps, and one that was interrupted in them does not open any more.
const UNFINISHED: &str = "unfinished";
/// The file in the directory that the library locks.
const LOCK: &str = "lock";

/// Why a database cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// One process at a time can have it open.
    #[error("another process has the metadata store open")]
    Locked,
    /// It was written by another version of the library, or is no database.
    #[error("the metadata store is of another version, or is none: its format is {0}, and V3 can be read")]
    Version(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    fn of(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Locked => Self::Locked,
            fjall::Error::InvalidVersion(version) => {
                Self::Version(version.map_or_else(|| "unknown".to_owned(), |version| format!("V{version}")))
            }
            other => StoreError::of(other).into(),
        }
    }
}

/// A fjall database in a directory of its own.
pub struct FjallStore {
    database: Database,
    keyspace: Keyspace,
}

impl FjallStore {
    /// Opens the database in `dir`, creating it when missing. One process at a time can have it open. What a signal or the
    /// end of power left of a database that was being created is removed: nothing was ever kept in it.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let mark = dir.with_extension(UNFINISHED);
        let is_left = RealDisk.exists(&mark).map_err(StoreError::of)? && remove_unfinished(dir, &mark)?;
        if !is_left && !is_missing(dir).map_err(StoreError::of)? {
            return Self::open_finished(dir);
        }
        let parent = dir.parent().unwrap_or(Path::new(""));
        if !is_left {
            create(&mark, parent).map_err(StoreError::of)?;
        }
        let store = Self::open_finished(dir)?;
        store.database.persist(PersistMode::SyncAll).map_err(StoreError::of)?;
        finish(&mark, parent).map_err(StoreError::of)?;
        Ok(store)
    }

    /// Whether a file or folder of this name is one of those that a database begins with.
    pub fn has_made(name: &str) -> bool {
        matches!(name, LOCK | "version" | "keyspaces")
            || Path::new(name).extension().is_some_and(|extension| extension == "jnl")
    }

    fn open_finished(dir: &Path) -> Result<Self, OpenError> {
        let database = Database::builder(dir).open().map_err(OpenError::of)?;
        let keyspace =
            database.keyspace("metadata", KeyspaceCreateOptions::default).map_err(OpenError::of)?;
        Ok(Self { database, keyspace })
    }
}

/// Whether there is nothing in a directory, or no directory.
fn is_missing(dir: &Path) -> io::Result<bool> {
    Ok(!RealDisk.exists(dir)? || RealDisk.list(dir)?.is_empty())
}

/// Says, durably, that a directory is not finished.
fn create(mark: &Path, parent: &Path) -> io::Result<()> {
    RealDisk.create_dir_all(parent)?;
    RealDisk.open(mark, OpenMode::CreateNew)?.sync_all()?;
    RealDisk.sync_dir(parent)
}

/// Says, durably, that it is.
fn finish(mark: &Path, parent: &Path) -> io::Result<()> {
    RealDisk.sync_dir(parent)?;
    RealDisk.remove(mark)?;
    RealDisk.sync_dir(parent)
}

/// Removes what is left of a database that is not finished, if it still is not: another process may have been about it.
fn remove_unfinished(dir: &Path, mark: &Path) -> Result<bool, OpenError> {
    let lock = match RealDisk.lock(&dir.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        lock => lock.map_err(StoreError::of)?,
    };
    let _lock = lock.ok_or(OpenError::Locked)?;
    if !RealDisk.exists(mark).map_err(StoreError::of)? {
        return Ok(false);
    }
    std::fs::remove_dir_all(dir).map_err(StoreError::of)?;
    Ok(true)
}

impl std::fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallStore").finish_non_exhaustive()
    }
}

/// The database at one moment.
struct Moment {
    snapshot: fjall::Snapshot,
    keyspace: Keyspace,
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moment").finish_non_exhaustive()
    }
}

impl Snapshot for Moment {
    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError> {
        page_of(self.snapshot.range(&self.keyspace, range(prefix, after)), prefix, limit)
    }
}

/// From where on keys that begin with `prefix` and lie after `after` are.
fn range(prefix: &[u8], after: Option<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let start = after
        .filter(|after| *after >= prefix)
        .map_or_else(|| Bound::Included(prefix.to_vec()), |after| Bound::Excluded(after.to_vec()));
    (start, Bound::Unbounded)
}

fn page_of(entries: fjall::Iter, prefix: &[u8], limit: usize) -> Result<Page, StoreError> {
    let mut page = Page::new();
    for entry in entries {
        if page.len() >= limit {
            break;
        }
        let (key, value) = entry.into_inner().map_err(StoreError::of)?;
        if !key.starts_with(prefix) {
            break;
        }
        page.push((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)));
    }
    Ok(page)
}

impl Store for FjallStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.keyspace.get(key).map_err(StoreError::of)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError> {
        page_of(self.keyspace.range(range(prefix, after)), prefix, limit)
    }

    fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.keyspace, &key[..], &value[..]),
                None => batch.remove(&self.keyspace, &key[..]),
            }
        }
        batch.commit().map_err(StoreError::of)
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(Moment { snapshot: self.database.snapshot(), keyspace: self.keyspace.clone() })
    }
}
