//! Bugs that are put in on purpose, one at a time, to show that the simulation would find them.
//!
//! Only compiled under the feature `planted-bugs`, which nothing but the simulation's own tests turns on. The choice
//! is per thread: the simulation drives a whole engine on one.

use std::cell::Cell;

/// A bug that could have been made.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Bug {
    /// A sync of the journal that does nothing.
    SkippedSync,
    /// Callers are answered between the write and the sync.
    AnsweredBeforeSync,
    /// A start leaves out the first of several segments.
    SegmentNotReplayed,
    /// A checkpoint leaves out one producer of a stream.
    ForgottenProducer,
    /// A rewrite makes one message of two.
    LostBoundary,
    /// A floor moves before the snapshot that stands for what is below it is durable.
    FloorBeforeSnapshot,
    /// A fold drops bytes below a floor that a fork reads.
    ForkForgotten,
    /// A fold drops bytes below a floor that a cut reads.
    CutForgotten,
    /// A checkpoint leaves out where a stream begins that was trimmed.
    ForgottenTrim,
    /// A table or a checkpoint counts before it is durable.
    UnsyncedTable,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::SkippedSync,
        Self::AnsweredBeforeSync,
        Self::SegmentNotReplayed,
        Self::ForgottenProducer,
        Self::LostBoundary,
        Self::FloorBeforeSnapshot,
        Self::ForkForgotten,
        Self::CutForgotten,
        Self::ForgottenTrim,
        Self::UnsyncedTable,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Puts a bug into everything that this thread runs from now on, in place of the one before.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is to be had.
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
