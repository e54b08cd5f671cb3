//! Snapshots and retention: what a stream keeps, and what publishing and trimming do to it (extensions §2).
//!
//! A snapshot stands for everything before its offset. Publishing one makes its offset the *floor*, the earliest
//! offset that can still be read, unless the publisher asks to retain all. Trimming moves the floor for good and lets
//! nothing stand for what was below, but for a snapshot that is at the new floor or above. What always holds:
//!
//! * `floor <= tail`, and with a snapshot `floor <= latest snapshot <= tail`: what follows a snapshot is there;
//! * the `base`, if there is one, lies exactly at a floor above zero, and below the latest snapshot.
//!
//! A fork begins anywhere from the floor on: it inherits the floor and the latest snapshot that is not past the place
//! where it parts from its source. Its floor is covered by a snapshot as long as that of its source is.

use crate::limits::{MARKS_MAX, SUPERSEDED_SNAPSHOTS_MAX};
use crate::offset::Offset;

/// One snapshot; `B` is how its body is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot<B> {
    /// It stands for everything before this offset.
    pub offset: Offset,
    /// Its body.
    pub body: B,
}

/// A snapshot that was replaced, and for how long it stays readable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Superseded<B> {
    /// What was replaced.
    pub snapshot: Snapshot<B>,
    /// It can be collected from this time on, in milliseconds of Unix time.
    pub until_ms: u64,
}

/// How old data is: nothing before the offset was appended later than this.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// In milliseconds of Unix time.
    pub time_ms: u64,
    /// Where what is newer may begin.
    pub offset: Offset,
}

/// What one stream keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retention<B> {
    /// The earliest offset that can be read.
    pub floor: Offset,
    /// The snapshot that readers begin with.
    pub latest: Option<Snapshot<B>>,
    /// The snapshot at the floor, when the latest is a later one that retains all.
    pub base: Option<Snapshot<B>>,
    /// Replaced snapshots, oldest first, at most [`SUPERSEDED_SNAPSHOTS_MAX`].
    pub superseded: Vec<Superseded<B>>,
    /// How old what is kept is, oldest first, all above the floor and at most [`MARKS_MAX`].
    pub marks: Vec<Mark>,
}

/// Why a snapshot cannot be published at an offset.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PublishRejection {
    /// The offset is below the floor.
    #[error("the offset is below {floor}, the earliest that is retained")]
    Retained {
        /// The floor.
        floor: Offset,
        /// The latest snapshot; none if nothing stands for what was below the floor.
        snapshot: Option<Offset>,
    },
    /// The offset is past the tail.
    #[error("the offset is past the tail {tail}")]
    BeyondTail {
        /// Where the stream ends.
        tail: Offset,
    },
    /// A later snapshot is published already, though it retains what is before it.
    #[error("a later snapshot is published already, at {snapshot}")]
    Older {
        /// The latest snapshot.
        snapshot: Offset,
    },
}

impl<B> Default for Retention<B> {
    /// Everything is kept, and nothing was published.
    fn default() -> Self {
        Self { floor: Offset::ZERO, latest: None, base: None, superseded: Vec::new(), marks: Vec::new() }
    }
}

impl<B> Retention<B> {
    /// Whether a snapshot at `offset` would be taken. Says nothing about message boundaries.
    pub fn check(&self, offset: Offset, tail: Offset) -> Result<(), PublishRejection> {
        let latest = self.latest.as_ref().map(|latest| latest.offset);
        // First, as a token that was made up may be both: past the tail in one of its parts, below the floor in the other.
        if offset.position > tail.position || offset.append_index > tail.append_index {
            return Err(PublishRejection::BeyondTail { tail });
        }
        if offset.position < self.floor.position {
            return Err(PublishRejection::Retained { floor: self.floor, snapshot: latest });
        }
        match latest {
            Some(snapshot) if offset.position < snapshot.position => {
                Err(PublishRejection::Older { snapshot })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes in a snapshot that [`check`](Self::check) lets pass, at a message boundary. What it replaces stays
    /// readable until `superseded_until_ms`, unless it is at the same offset.
    pub fn publish(&mut self, snapshot: Snapshot<B>, retain_all: bool, superseded_until_ms: u64) {
        let offset = snapshot.offset;
        let previous = self.latest.replace(snapshot);
        let replaced = if retain_all {
            match previous {
                // What covers the floor stays, for forks that begin before the new snapshot.
                Some(at_floor)
                    if at_floor.offset == self.floor && self.floor < offset && self.floor > Offset::ZERO =>
                {
                    self.base = Some(at_floor);
                    [None, None]
                }
                previous => [previous, None],
            }
        } else {
            self.raise(offset);
            [self.base.take(), previous]
        };
        for snapshot in replaced.into_iter().flatten().filter(|replaced| replaced.offset != offset) {
            self.superseded.push(Superseded { snapshot, until_ms: superseded_until_ms });
        }
        let excess = self.superseded.len().saturating_sub(SUPERSEDED_SNAPSHOTS_MAX);
        self.superseded.drain(..excess);
    }

    /// How far the stream can be trimmed that ends at `tail`: what follows a snapshot is kept.
    pub fn trim_max(&self, tail: Offset) -> Offset {
        self.latest.as_ref().map_or(tail, |latest| latest.offset)
    }

    /// Moves the floor to `offset`, a message boundary that is no later than [`trim_max`](Self::trim_max). An earlier
    /// one than the floor changes nothing. Gives back the base that no longer covers the floor.
    pub fn trim(&mut self, offset: Offset) -> Option<Snapshot<B>> {
        if offset.position <= self.floor.position {
            return None;
        }
        self.raise(offset);
        self.base.take()
    }

    fn raise(&mut self, floor: Offset) {
        self.floor = floor;
        self.marks.retain(|mark| mark.offset.position > floor.position);
    }

    /// Whether [`mark`](Self::mark) would keep something.
    pub fn takes_mark(&self, offset: Offset) -> bool {
        let last = self.marks.last().map_or(self.floor, |mark| mark.offset);
        offset.position > last.position
    }

    /// Notes how old everything before an offset is. With [`MARKS_MAX`] marks every second of them is forgotten: what is
    /// left says the same, less exactly.
    pub fn mark(&mut self, mark: Mark) {
        if !self.takes_mark(mark.offset) {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            // Of an even number the last one stays.
            let mut keeps = true;
            self.marks.retain(|_| {
                keeps = !keeps;
                keeps
            });
        }
        // A clock that was set back makes nothing younger.
        let time_ms = self.marks.last().map_or(mark.time_ms, |last| last.time_ms.max(mark.time_ms));
        self.marks.push(Mark { time_ms, ..mark });
    }

    /// The offset before which everything is known to have been appended at this time or earlier.
    pub fn appended_by(&self, time_ms: u64) -> Option<Offset> {
        let known = self.marks.partition_point(|mark| mark.time_ms <= time_ms);
        Some(self.marks.get(known.checked_sub(1)?)?.offset)
    }

    /// The snapshot at exactly this offset that can still be read.
    pub fn at(&self, offset: Offset) -> Option<&Snapshot<B>> {
        let superseded = self.superseded.iter().rev().map(|superseded| &superseded.snapshot);
        self.kept().chain(superseded).find(|snapshot| snapshot.offset == offset)
    }

    /// The snapshots that are kept for as long as nothing is published: the latest, then the base.
    pub fn kept(&self) -> impl Iterator<Item = &Snapshot<B>> {
        self.latest.iter().chain(&self.base)
    }

    /// Whether it is what a stream starts with.
    pub fn is_default(&self) -> bool {
        let holds_nothing = self.latest.is_none() && self.superseded.is_empty() && self.marks.is_empty();
        self.floor == Offset::ZERO && holds_nothing
    }

    /// Whether what always holds does, for a stream that ends at `tail`.
    pub fn is_sound(&self, tail: Offset) -> bool {
        let last = self.trim_max(tail);
        let is_base = |base: &Snapshot<B>| {
            base.offset == self.floor
                && self.floor > Offset::ZERO
                && self.latest.as_ref().is_some_and(|latest| self.floor < latest.offset)
        };
        self.floor <= last && last <= tail && self.base.as_ref().is_none_or(is_base)
    }
}

impl<B: Clone> Retention<B> {
    /// What a fork takes over that parts from this stream at `at`; `None` if that is below the floor.
    pub fn inherit(&self, at: Offset) -> Option<Retention<B>> {
        if at.position < self.floor.position {
            return None;
        }
        let latest = self.kept().find(|kept| kept.offset.position <= at.position).cloned();
        let base = self
            .base
            .clone()
            .filter(|base| latest.as_ref().is_some_and(|latest| latest.offset != base.offset));
        let marks = self.marks.iter().filter(|mark| mark.offset.position <= at.position).copied().collect();
        Some(Retention { floor: self.floor, latest, base, superseded: Vec::new(), marks })
    }
}

#[cfg(test)]
mod tests;
