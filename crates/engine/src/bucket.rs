//! Buckets: the registry, and the streams in each (extensions §1).

use alluvium_protocol::BucketId;

use crate::engine::Engine;
use crate::error::{CreateBucketError, DeleteBucketError, LookupError};
use crate::request::Head;

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
    /// So many at most.
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

impl Engine {
    /// Creates a bucket. Of two that race, one is told that it exists.
    ///
    /// Returns once the outcome is durable. Dropping the future does not take the bucket back.
    pub async fn create_bucket(&self, _id: &BucketId) -> Result<BucketHead, CreateBucketError> {
        std::future::ready(()).await;
        Err(crate::StorageError::Stopped.into())
    }

    /// Deletes a bucket that has no streams. A create of a stream that races with it either comes first, and the
    /// bucket is not empty, or finds no bucket.
    pub async fn delete_bucket(&self, _id: &BucketId) -> Result<(), DeleteBucketError> {
        std::future::ready(()).await;
        Err(crate::StorageError::Stopped.into())
    }

    /// What a bucket is; the only error is [`LookupError::BucketNotFound`].
    pub fn bucket(&self, _id: &BucketId) -> Result<BucketHead, LookupError> {
        Err(LookupError::BucketNotFound)
    }

    /// Buckets in the order of their names, after `after`, at most `limit`. Each counts its streams.
    pub fn buckets(&self, _after: Option<&BucketId>, _limit: usize) -> Vec<BucketHead> {
        Vec::new()
    }

    /// Lists streams of a bucket: what is neither deleted nor expired. Takes time for the page only. The only error
    /// is [`LookupError::BucketNotFound`].
    pub fn list_streams(&self, _id: &BucketId, _request: ListRequest<'_>) -> Result<ListPage, LookupError> {
        Err(LookupError::BucketNotFound)
    }
}
