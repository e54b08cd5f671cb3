//! What can go wrong.

use std::io;
use std::sync::Arc;

use alluvium_jss::SegmentIndex;

use crate::store::StoreError;

/// Why an archive could not be opened, written or read. Cloning is cheap, because one failure is everyone's.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A segment could not be written or read.
    #[error("{segment}: {source}")]
    Segment {
        /// Which one.
        segment: SegmentIndex,
        /// Why.
        #[source]
        source: Arc<alluvium_jss::Error>,
    },
    /// The metadata store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed outside of a segment.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: &'static str,
        /// Why it failed.
        #[source]
        source: Arc<io::Error>,
    },
    /// The pending log is damaged.
    #[error("the pending log is damaged at byte {at}: {what}")]
    PendingLog {
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The metadata store is older than the archive: it was restored from a copy, or belongs to another one.
    #[error("the metadata store is older than the archive: it knows {what} {stored}, and {found} is there")]
    MetadataBehind {
        /// What both know.
        what: &'static str,
        /// What the store says.
        stored: u64,
        /// What is there.
        found: u64,
    },
    /// Segments do not follow one another.
    #[error("{segment} begins at {found}, and the one before ends at {last}")]
    Order {
        /// The later segment.
        segment: SegmentIndex,
        /// Its first sequence number.
        found: u64,
        /// The last sequence number before it.
        last: u64,
    },
    /// Rows that were acknowledged are not there.
    #[error("rows up to {acknowledged} were acknowledged, and only those up to {found} are there")]
    Lost {
        /// The last row that must be there.
        acknowledged: u64,
        /// The last row that is there.
        found: u64,
    },
    /// Another process has the archive open.
    #[error("another process has this archive open")]
    Locked,
    /// A row that no segment can store.
    #[error(transparent)]
    Refused(#[from] alluvium_jss::Refused),
    /// There are no more names for segments, or no more sequence numbers.
    #[error("the archive cannot grow any further")]
    Exhausted,
    /// The archive was closed.
    #[error("the archive is closed")]
    Closed,
}

impl Error {
    pub(crate) fn segment(segment: SegmentIndex) -> impl FnOnce(alluvium_jss::Error) -> Self {
        move |source| Self::Segment { segment, source: Arc::new(source) }
    }

    pub(crate) fn io(context: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { context, source: Arc::new(source) }
    }

    /// The failure of the disk that is behind it, if one is.
    pub fn io_source(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Segment { source, .. } => match &**source {
                alluvium_jss::Error::Io { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        }
    }
}
