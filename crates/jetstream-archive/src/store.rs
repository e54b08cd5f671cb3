//! What the archive remembers beside its rows: small values under keys, changed in atomic, synced batches.
//!
//! The trait is narrow, so that the store behind it can be another: [`FjallStore`] for servers, [`LogStore`] for tests
//! and for archives that remember little.

mod fjall;
mod log;

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;

pub use self::fjall::{FjallStore, OpenError};
pub use self::log::LogStore;

/// A store that failed. Nothing is known of what its last batch did; whoever gets this ends the process.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the metadata store: {0}")]
pub struct StoreError(pub String);

impl StoreError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Changes that become durable together: a value, or none to remove it, by key. A later change of a key replaces an
/// earlier one.
pub type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// Keys and values of a page, in order of the keys.
pub type Page = Vec<(Bytes, Bytes)>;

/// A key-value store.
pub trait Store: Send + Sync + Debug {
    /// The value at a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// At most `limit` keys that begin with `prefix` and lie after `after`, in order.
    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError>;

    /// Makes all of these changes, or none; they are durable when this returns.
    fn commit(&self, changes: &Changes) -> Result<(), StoreError>;

    /// The store as it is now, with every batch that was committed and none in part; later ones do not change it. Takes no
    /// longer for a large one, and holds up nobody.
    fn snapshot(&self) -> Box<dyn Snapshot>;
}

/// A store as it was at one moment. What was changed since takes room on the disk until this is dropped.
pub trait Snapshot: Send + Debug {
    /// As [`Store::page`].
    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError>;
}

/// Keys of the archive itself. Those of others are theirs to choose; see the reference implementation's for `sync/…`,
/// `relay/…` and the rest.
pub(crate) mod keys {
    /// The next sequence number after the rows that are in blocks: 64 bits, lowest byte first.
    pub(crate) const NEXT_SEQ: &[u8] = b"seq/next";
    /// The life of the pending log that is valid now: 64 bits, lowest byte first.
    pub(crate) const LOG_LIFE: &[u8] = b"archive/log-life";
}

/// The encoding of the archive's own numbers.
pub(crate) fn encode_u64(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

/// A number of the archive's own, if it is there.
pub(crate) fn read_u64(store: &dyn Store, key: &[u8]) -> Result<Option<u64>, StoreError> {
    let Some(value) = store.get(key)? else { return Ok(None) };
    let bytes = <[u8; 8]>::try_from(&value[..]);
    let bytes = bytes.map_err(|_| StoreError(format!("{} is no number", String::from_utf8_lossy(key))))?;
    Ok(Some(u64::from_le_bytes(bytes)))
}
