//! Buckets: the registry, and the streams in each (extensions §1).
//!
//! In the journal a bucket is an entry without content, in the shard that its own name hashes to; its number is what
//! tells it from an earlier bucket of the same name, and the records of its streams carry it. A stream is created in
//! another shard than its bucket was. So a create reserves a place before it is queued, and a deletion goes only
//! through when there is neither a stream nor a reservation, and from then on admits none.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use alluvium_journal::{self as journal, Mutation, Record, StreamId};
use alluvium_protocol::BucketId;
use alluvium_tail::Signal;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::command::{Command, CreateBucketCommand, DeleteBucketCommand};
use crate::committer::{Committer, Effect};
use crate::engine::{Engine, Inner};
use crate::error::{CreateBucketError, DeleteBucketError, LookupError, StorageError};
use crate::expiry::Expiries;
use crate::options::{LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX};
use crate::reply::Reply;
use crate::request::Head;
use crate::shard::{Shard, shard_of};
use crate::stream::Stream;

/// Begins the key of a bucket, and the key of every stream in one.
const KEY_MARK: char = '\0';
/// Most bytes of a listed stream's JSON without its id, type and attributes.
const ITEM_BYTES: usize = 320;

/// What a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketHead {
    /// Its name.
    pub id: BucketId,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// Streams in it, without those whose time is over.
    pub streams: u64,
}

/// Which streams of a bucket are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRequest<'a> {
    /// Only those whose id begins like this; empty for all.
    pub prefix: &'a str,
    /// Only those after this one, which need not exist.
    pub after: Option<&'a str>,
    /// So many at most, and never more than [`LIST_PAGE_MAX`].
    pub limit: usize,
}

/// Streams of a bucket, in the order of their ids' bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPage {
    /// The streams.
    pub items: Vec<ListItem>,
    /// Whether there are more after the last of them.
    pub has_more: bool,
}

/// One stream of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct ListItem {
    /// Its id in the bucket.
    pub stream_id: String,
    /// What it is.
    pub head: Head,
}

/// The buckets of an engine, by name.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    by_id: RwLock<BTreeMap<BucketId, Arc<Bucket>>>,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) id: BucketId,
    /// What tells it from others of its name.
    pub(crate) number: StreamId,
    created_ms: u64,
    contents: Mutex<Contents>,
    /// Wakes those who wait for the outcome of a deletion.
    settled: Signal,
}

#[derive(Debug, Default)]
struct Contents {
    /// By id: synced and not deleted.
    streams: BTreeMap<Box<str>, Arc<Stream>>,
    /// Creates under way.
    reserved: u32,
    fate: Fate,
    /// Those of the streams that have a deadline.
    mortal: Expiries,
    /// Those whose deadline has passed, until their end is recorded.
    lapsed: Vec<Weak<Stream>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Open,
    /// Its deletion is under way.
    Deleting,
    Gone,
}

/// A place in a bucket for a stream that is being created. While it is held the bucket is not empty.
#[derive(Debug)]
pub(crate) struct Reservation(Arc<Bucket>);

/// A deletion under way. Dropped before it is done, it leaves the bucket as it was.
#[derive(Debug)]
pub(crate) struct Deletion(Arc<Bucket>);

/// The key of a bucket, as the journal keeps it.
fn key_of(id: &BucketId) -> String {
    format!("{KEY_MARK}{id}")
}

/// The bucket that an entry of the journal is, by its key: `None` if it is a stream or a body.
pub(crate) fn bucket_of_key(key: &str) -> Option<&str> {
    key.strip_prefix(KEY_MARK).filter(|name| !name.contains('/'))
}

impl Buckets {
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Bucket>> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn insert(&self, bucket: Arc<Bucket>) {
        self.by_id.write().insert(bucket.id.clone(), bucket);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// The bucket that a stream is in.
    pub(crate) fn of(&self, stream: &Stream) -> Option<Arc<Bucket>> {
        let id = stream.path.as_ref()?.bucket()?;
        self.get(id).filter(|bucket| Some(bucket.number) == stream.bucket)
    }
}

impl Bucket {
    pub(crate) fn new(id: BucketId, number: StreamId, created_ms: u64) -> Self {
        Self { id, number, created_ms, contents: Mutex::default(), settled: Signal::new() }
    }

    /// Reserves a place; `None` while a deletion is under way, and after it.
    fn reserve(self: &Arc<Self>) -> Option<Reservation> {
        let mut contents = self.contents.lock();
        if contents.fate != Fate::Open {
            return None;
        }
        contents.reserved += 1;
        Some(Reservation(self.clone()))
    }

    /// Waits until no deletion is under way.
    async fn settled(&self) {
        self.settled.wait_for(|| (self.contents.lock().fate != Fate::Deleting).then_some(())).await;
    }

    /// Takes in a stream whose birth is synced.
    pub(crate) fn insert(&self, stream: &Arc<Stream>) {
        let Some(id) = stream.path.as_ref().and_then(|path| path.stream_id()) else { return };
        let mut contents = self.contents.lock();
        contents.mortal.watch(stream);
        contents.streams.insert(id.into(), stream.clone());
    }

    /// Strikes off a stream whose end is synced.
    pub(crate) fn remove(&self, stream: &Stream) {
        let Some(id) = stream.path.as_ref().and_then(|path| path.stream_id()) else { return };
        let mut contents = self.contents.lock();
        if contents.streams.get(id).is_some_and(|held| held.id == stream.id) {
            contents.streams.remove(id);
        }
    }

    fn head(&self, now_ms: u64) -> BucketHead {
        let streams = self.contents.lock().count(now_ms) as u64;
        BucketHead { id: self.id.clone(), created_ms: self.created_ms, streams }
    }
}

impl Contents {
    /// Streams whose time is not over. Takes time only for those whose time ended since the last look.
    fn count(&mut self, now_ms: u64) -> usize {
        for stream in self.mortal.due(now_ms) {
            if stream.expired(now_ms) {
                self.lapsed.push(Arc::downgrade(&stream));
            } else {
                self.mortal.watch(&stream);
            }
        }
        let (streams, mortal) = (&self.streams, &self.mortal);
        self.lapsed.retain(|lapsed| {
            let Some(stream) = lapsed.upgrade() else { return false };
            let id = stream.path.as_ref().and_then(|path| path.stream_id());
            let is_held = id.and_then(|id| streams.get(id)).is_some_and(|held| Arc::ptr_eq(held, &stream));
            if is_held && !stream.expired(now_ms) {
                // A read that came just before its end has renewed it.
                mortal.watch(&stream);
                return false;
            }
            is_held
        });
        self.streams.len() - self.lapsed.len()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.contents.lock().reserved -= 1;
    }
}

impl Reservation {
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.0
    }
}

impl Deletion {
    fn begin(bucket: Arc<Bucket>, now_ms: u64) -> Result<Option<Self>, DeleteBucketError> {
        let mut contents = bucket.contents.lock();
        match contents.fate {
            Fate::Gone => return Err(DeleteBucketError::NotFound),
            Fate::Deleting => return Ok(None),
            Fate::Open => {}
        }
        if contents.count(now_ms) > 0 || contents.reserved > 0 {
            return Err(DeleteBucketError::NotEmpty);
        }
        contents.fate = Fate::Deleting;
        drop(contents);
        Ok(Some(Self(bucket)))
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let mut contents = self.0.contents.lock();
        if contents.fate == Fate::Deleting {
            contents.fate = Fate::Open;
        }
        drop(contents);
        self.0.settled.wake();
    }
}

impl Engine {
    /// Creates a bucket. Of two that race, one is told that it exists.
    ///
    /// Returns once the outcome is durable. Dropping the future does not take the bucket back.
    pub async fn create_bucket(&self, id: &BucketId) -> Result<BucketHead, CreateBucketError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::CreateBucket(CreateBucketCommand { id: id.clone(), reply });
        self.inner.submit(self.inner.shard_of_bucket(id), command)?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    /// Deletes a bucket that has no streams. A create of a stream that races with it either comes first, and the
    /// bucket is not empty, or finds no bucket.
    pub async fn delete_bucket(&self, id: &BucketId) -> Result<(), DeleteBucketError> {
        let deletion = loop {
            let bucket = self.inner.buckets.get(id.as_str()).ok_or(DeleteBucketError::NotFound)?;
            match Deletion::begin(bucket.clone(), self.inner.now_ms())? {
                Some(deletion) => break deletion,
                None => bucket.settled().await,
            }
        };
        let (reply, answer) = oneshot::channel();
        let command = Command::DeleteBucket(DeleteBucketCommand { deletion, reply });
        self.inner.submit(self.inner.shard_of_bucket(id), command)?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }

    /// What a bucket is; the only error is [`LookupError::BucketNotFound`].
    pub fn bucket(&self, id: &BucketId) -> Result<BucketHead, LookupError> {
        let bucket = self.inner.buckets.get(id.as_str()).ok_or(LookupError::BucketNotFound)?;
        Ok(bucket.head(self.inner.now_ms()))
    }

    /// Buckets in the order of their names, after `after`, at most `limit`. Each counts its streams.
    pub fn buckets(&self, after: Option<&BucketId>, limit: usize) -> Vec<BucketHead> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_id = self.inner.buckets.by_id.read();
        let page: Vec<Arc<Bucket>> = by_id
            .range::<BucketId, _>((start, Bound::Unbounded))
            .take(limit)
            .map(|(_, bucket)| bucket.clone())
            .collect();
        drop(by_id);
        let now_ms = self.inner.now_ms();
        page.iter().map(|bucket| bucket.head(now_ms)).collect()
    }

    /// Lists streams of a bucket: what is neither deleted nor expired. Takes time for the page only. The only error
    /// is [`LookupError::BucketNotFound`].
    ///
    /// A page ends early, with more after it, where it would come to more than [`LIST_PAGE_BYTES_MAX`].
    pub fn list_streams(&self, id: &BucketId, request: ListRequest<'_>) -> Result<ListPage, LookupError> {
        let bucket = self.inner.buckets.get(id.as_str()).ok_or(LookupError::BucketNotFound)?;
        let now_ms = self.inner.now_ms();
        let limit = request.limit.min(LIST_PAGE_MAX);
        let start = match request.after {
            Some(after) if after >= request.prefix => Bound::Excluded(after),
            _ => Bound::Included(request.prefix),
        };
        let contents = bucket.contents.lock();
        let page: Vec<Arc<Stream>> = contents
            .streams
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(id, _)| id.starts_with(request.prefix))
            .filter(|(_, stream)| !stream.expired(now_ms))
            .take(limit + 1)
            .map(|(_, stream)| stream.clone())
            .collect();
        drop(contents);
        let (mut items, mut bytes) = (Vec::new(), 0);
        for stream in page.iter().take(limit) {
            let Some(stream_id) = stream.path.as_ref().and_then(|path| path.stream_id()) else { continue };
            let head = stream.head();
            bytes += ITEM_BYTES
                + stream_id.len()
                + head.content_type.as_str().len()
                + head.attributes.as_json().len();
            if bytes > LIST_PAGE_BYTES_MAX && !items.is_empty() {
                break;
            }
            items.push(ListItem { stream_id: stream_id.to_owned(), head });
        }
        let has_more = items.len() < page.len();
        Ok(ListPage { items, has_more })
    }

    /// Reserves a place in the bucket for a stream to be created, after any deletion that is under way.
    pub(crate) async fn reserve(&self, bucket: &str) -> Result<Reservation, LookupError> {
        loop {
            let bucket = self.inner.buckets.get(bucket).ok_or(LookupError::BucketNotFound)?;
            match bucket.reserve() {
                Some(reservation) => return Ok(reservation),
                None => bucket.settled().await,
            }
        }
    }
}

impl Inner {
    fn shard_of_bucket(&self, id: &BucketId) -> usize {
        shard_of(&key_of(id), self.shards.len())
    }

    /// Forgets a bucket whose end is synced.
    pub(crate) fn published_bucket_end(&self, deletion: &Deletion) {
        let bucket = &deletion.0;
        let mut by_id = self.buckets.by_id.write();
        if by_id.get(&bucket.id).is_some_and(|held| Arc::ptr_eq(held, bucket)) {
            by_id.remove(&bucket.id);
        }
        drop(by_id);
        let mut contents = bucket.contents.lock();
        contents.fate = Fate::Gone;
        // Their time is over. Should a read at the last moment have renewed one of them, it ends with its bucket.
        for stream in std::mem::take(&mut contents.streams).into_values() {
            self.shards[usize::from(stream.id.shard())].released.push(stream);
        }
    }
}

impl Committer {
    pub(crate) fn admit_bucket(
        &mut self,
        inner: &Inner,
        shard: &Shard,
        command: CreateBucketCommand,
        now_ms: u64,
    ) {
        let CreateBucketCommand { id, reply } = command;
        let exists = match self.bucket_changes.get(&id) {
            Some(exists) => *exists,
            None => inner.buckets.get(id.as_str()).is_some(),
        };
        let max = inner.options.limits.buckets_max;
        let refusal = if exists {
            Some(CreateBucketError::Exists)
        } else if inner.buckets.len() >= max {
            Some(CreateBucketError::TooManyBuckets { max })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer(Reply::CreateBucket(reply, Err(refusal)));
        }
        let bucket = Arc::new(Bucket::new(id.clone(), shard.next_id(), now_ms));
        let create = journal::Create { path: key_of(&id), ..journal::Create::default() };
        self.record(&Record { stream: bucket.number, time_ms: now_ms, mutation: Mutation::Create(create) });
        self.bucket_changes.insert(id, true);
        let head = bucket.head(now_ms);
        self.conclude(Effect::BucketCreated(bucket), Reply::CreateBucket(reply, Ok(head)));
    }

    pub(crate) fn admit_bucket_end(&mut self, command: DeleteBucketCommand, now_ms: u64) {
        let DeleteBucketCommand { deletion, reply } = command;
        let (id, number) = (deletion.0.id.clone(), deletion.0.number);
        let mutation = Mutation::Delete { expired: false };
        self.record(&Record { stream: number, time_ms: now_ms, mutation });
        self.bucket_changes.insert(id, false);
        self.conclude(Effect::BucketDeleted(deletion), Reply::DeleteBucket(reply, Ok(())));
    }
}
