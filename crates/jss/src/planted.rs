//! Bugs that are put in on purpose, one at a time, to show that a test finds each of them.
//!
//! Only compiled under the feature `planted-bugs`, which nothing but the test `planted` of `testing/jetstream-sim` turns
//! on. That test runs tests of this and of the other crates of a Jetstream with one of the bugs each, chosen by an
//! environment variable: they have threads of their own, which a choice for one thread would not reach.

use std::sync::OnceLock;

/// The variable that chooses.
pub const VARIABLE: &str = "ALLUVIUM_JETSTREAM_PLANTED_BUG";

/// A bug that could have been made.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Bug {
    /// A deletion is stored as an update.
    DeleteAsUpdate,
    /// A field of a segment's header lies one byte off.
    HeaderFieldOff,
    /// The checksum leaves out a byte, for whoever writes and for whoever reads.
    ChecksumRangeOff,
    /// The length in front of a frame counts itself.
    LengthWithPrefix,
    /// A block says one row fewer than it has.
    RowUncounted,
    /// A collection counts twice.
    CollectionCountedTwice,
    /// Filters of blocks are looked for one byte apart from where they are.
    FilterStrideOff,
    /// Collection and record key are swapped.
    NamesSwapped,
    /// Rows have no revision.
    RevisionMissing,
    /// Rows have another revision, which looks good.
    RevisionAltered,
    /// The marker before a replaced repository is left out.
    MarkerDropped,
    /// Faults of the simulation are armed and never come.
    FaultsOff,
    /// A client goes on one behind where a plan ended.
    ContinuationPlusOne,
    /// A page that was cut within a segment says the end of the segment.
    CutSaysSegment,
    /// A page can have nothing in it.
    EmptyPage,
    /// A number below the floor is moved where it must be refused.
    FloorClamps,
    /// A client passes over what a feed no longer has.
    TooOldIgnored,
    /// An `#account` that was told before is archived again.
    AccountGuardOff,
    /// Paths are not looked at.
    PathGateOff,
    /// One bad operation drops its siblings.
    SiblingsDropped,
    /// An `#identity` is swallowed.
    IdentitySwallowed,
    /// A record that did not come drops its siblings.
    MissingBlockDropsSiblings,
    /// Every account that is away counts as deleted.
    InactiveIsDeleted,
    /// A write or a sync of a block that failed is passed over.
    FlushErrorIgnored,
    /// A write or a sync of a replacement that failed is passed over.
    RewriteErrorIgnored,
    /// A block is not synced.
    BlockUnsynced,
    /// The name of a replacement is not synced.
    ReplacementNameUnsynced,
    /// The metadata says that rows are there before they are.
    MetadataFirst,
    /// The metadata is not synced.
    MetadataUnsynced,
    /// A footer without a header is not recognised.
    FooterUnrecognised,
    /// Zeros behind the last block are not recognised.
    ZerosUnrecognised,
    /// A frame must say how long its content is.
    ContentSizeNeeded,
    /// A time within the active segment leads to its first row.
    ActiveTimeInexact,
    /// Two dictionaries share what they compressed.
    FormsShared,
    /// Whoever inflates is told that messages refer to those before.
    TakeoverTold,
    /// The version of a file is said by what is resident.
    TagOfManifest,
    /// The number of an event that was dropped is never done.
    DropKeepsNumber,
    /// Events of one account come in another order.
    OrderLost,
    /// A repository comes behind the commits that waited for it.
    RepairBehind,
    /// An account's state is that of an event whose rows are not there.
    ChainAhead,
    /// The cursor passes numbers that are not done.
    CursorLeads,
    /// What is remembered with rows is not in their batch.
    ChangesAfterFlush,
    /// A plan that names collections leaves out what concerns all of them.
    SentinelsForgotten,
    /// A filter counts rows instead of accounts.
    FilterCountsRows,
    /// Rows are shown before they are durable.
    ShownEarly,
    /// What is refused of an unknown account is dropped without a repair.
    RefusalForgotten,
    /// What came behind a drop is taken for the first of its account.
    BehindDropFirst,
    /// What an account had before it was deleted counts when it is there again.
    DeletionForgotten,
    /// A `#sync` of another tree than the known one is believed, whoever signed it.
    SyncUnverified,
    /// What was verified waits for the disk without a bound.
    WritesUnbounded,
}

/// Whether this bug is to be had.
pub fn is_planted(bug: Bug) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok());
    chosen.as_ref().is_some_and(|chosen| *chosen == format!("{bug:?}"))
}
