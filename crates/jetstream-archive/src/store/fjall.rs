//! The store of servers: fjall, a log-structured tree in pure Rust.

use std::path::Path;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::store::{Changes, Page, Store, StoreError};

/// A fjall database in a directory of its own.
pub struct FjallStore {
    database: Database,
    keyspace: Keyspace,
}

impl FjallStore {
    /// Opens the database in `dir`, creating it when missing. One process at a time can have it open.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let database = Database::builder(dir).open().map_err(StoreError::of)?;
        let keyspace =
            database.keyspace("metadata", KeyspaceCreateOptions::default).map_err(StoreError::of)?;
        Ok(Self { database, keyspace })
    }
}

impl std::fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallStore").finish_non_exhaustive()
    }
}

impl Store for FjallStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.keyspace.get(key).map_err(StoreError::of)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError> {
        let start = after.filter(|after| *after >= prefix).map_or_else(
            || std::ops::Bound::Included(prefix.to_vec()),
            |after| std::ops::Bound::Excluded(after.to_vec()),
        );
        let mut page = Page::new();
        for entry in self.keyspace.range((start, std::ops::Bound::Unbounded)) {
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
}
