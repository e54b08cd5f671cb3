//! A store that keeps everything in memory and writes each batch to a log on a disk of [`alluvium_env`]. On a simulated
//! disk it forgets what a crash makes it forget, which is what the tests of the archive need. Its log is never shortened,
//! so it is for stores that live briefly.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;

use crate::store::{Changes, Page, Snapshot, Store, StoreError};

const HEAD_BYTES: usize = 8;

/// A store in memory with a log.
#[derive(Debug)]
pub struct LogStore(Mutex<State>);

#[derive(Debug)]
struct State {
    file: Arc<dyn DiskFile>,
    end: u64,
    values: BTreeMap<Bytes, Bytes>,
    failed: bool,
}

impl LogStore {
    /// Opens the log at `path`, creating it when missing. The torn end of the last batch is cut.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, StoreError> {
        let exists = disk.exists(path).map_err(StoreError::of)?;
        let mode = if exists { OpenMode::ReadWrite } else { OpenMode::CreateNew };
        let file = disk.open(path, mode).map_err(StoreError::of)?;
        disk.sync_dir(path.parent().unwrap_or(Path::new(""))).map_err(StoreError::of)?;
        let len = usize::try_from(file.len().map_err(StoreError::of)?).map_err(StoreError::of)?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).map_err(StoreError::of)?;
        let (mut values, mut rest) = (BTreeMap::new(), &bytes[..]);
        while let Some((batch, after)) = next_batch(rest) {
            apply(&mut values, &decode(batch)?);
            rest = after;
        }
        let end = (len - rest.len()) as u64;
        file.truncate(end).map_err(StoreError::of)?;
        file.sync_data().map_err(StoreError::of)?;
        Ok(Self(Mutex::new(State { file, end, values, failed: false })))
    }
}

/// The first batch of these bytes, if it is whole, and what follows it.
fn next_batch(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (len, crc) = (head.get_u32_le() as usize, head.get_u32_le());
    let (batch, rest) = rest.split_at_checked(len)?;
    (len > 0 && crc32c::crc32c(batch) == crc).then_some((batch, rest))
}

fn encode(changes: &Changes) -> Vec<u8> {
    let mut batch = Vec::new();
    for (key, value) in changes {
        for part in [Some(key), value.as_ref()] {
            // A length of all ones stands for no value.
            batch.put_u32_le(part.map_or(u32::MAX, |part| u32::try_from(part.len()).unwrap_or(u32::MAX)));
            batch.put_slice(part.map_or(&[], |part| &part[..]));
        }
    }
    batch
}

fn decode(batch: &[u8]) -> Result<Changes, StoreError> {
    let mut rest = Bytes::copy_from_slice(batch);
    let mut part = || {
        let len = rest.try_get_u32_le().map_err(StoreError::of)?;
        match len as usize {
            _ if len == u32::MAX => Ok(None),
            len if len <= rest.len() => Ok(Some(rest.split_to(len))),
            _ => Err(StoreError("a batch of the log is damaged".into())),
        }
    };
    let mut changes = Changes::new();
    let mut left = batch.len();
    while left > 0 {
        let (key, value) = (part()?.unwrap_or_default(), part()?);
        left = left.saturating_sub(HEAD_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len));
        changes.insert(key, value);
    }
    Ok(changes)
}

fn apply(values: &mut BTreeMap<Bytes, Bytes>, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => values.insert(key.clone(), value.clone()),
            None => values.remove(key),
        };
    }
}

/// The values of one moment.
#[derive(Debug)]
struct Values(BTreeMap<Bytes, Bytes>);

impl Snapshot for Values {
    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError> {
        Ok(page_of(&self.0, prefix, after, limit))
    }
}

fn page_of(values: &BTreeMap<Bytes, Bytes>, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Page {
    let from = Bytes::copy_from_slice(after.filter(|after| *after >= prefix).unwrap_or(prefix));
    let found = values.range(from..).skip_while(|(key, _)| after.is_some_and(|after| *key == after));
    let found = found.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
    found.map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Store for LogStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.lock().values.get(key).cloned())
    }

    fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, StoreError> {
        Ok(page_of(&self.0.lock().values, prefix, after, limit))
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(Values(self.0.lock().values.clone()))
    }

    fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut state = self.0.lock();
        if state.failed {
            return Err(StoreError("an earlier batch failed".into()));
        }
        let batch = encode(changes);
        if batch.is_empty() {
            return Ok(());
        }
        state.failed = true;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.put_u32_le(u32::try_from(batch.len()).map_err(StoreError::of)?);
        head.put_u32_le(crc32c::crc32c(&batch));
        state.file.write_all_at(&[&head, &batch], state.end).map_err(StoreError::of)?;
        #[cfg(feature = "planted-bugs")]
        let is_synced = !alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::MetadataUnsynced);
        #[cfg(not(feature = "planted-bugs"))]
        let is_synced = true;
        if is_synced {
            state.file.sync_data().map_err(StoreError::of)?;
        }
        state.failed = false;
        state.end += (head.len() + batch.len()) as u64;
        apply(&mut state.values, changes);
        Ok(())
    }
}
