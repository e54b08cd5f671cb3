//! Snapshots and retention: what a stream keeps, and what publishing does to it (extensions §2).
//!
//! A snapshot stands for everything before its offset. Publishing one makes its offset the *floor*, the earliest
//! offset that can still be read, unless the publisher asks to retain all. What always holds:
//!
//! * there is no snapshot and the floor is zero, or `floor <= latest snapshot <= tail`;
//! * a floor above zero is covered: the latest snapshot or the `base` lies exactly there.
//!
//! The second is what lets a fork begin anywhere from the floor on: it inherits the floor and the latest snapshot
//! that is not past the place where it parts from its source.

use crate::limits::SUPERSEDED_SNAPSHOTS_MAX;
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
}

/// Why a snapshot cannot be published at an offset.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PublishRejection {
    /// The offset is below the floor.
    #[error("the offset is below {floor}, the earliest that is retained")]
    Retained {
        /// The floor.
        floor: Offset,
        /// The latest snapshot.
        snapshot: Offset,
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
        Self { floor: Offset::ZERO, latest: None, base: None, superseded: Vec::new() }
    }
}

impl<B> Retention<B> {
    /// Whether a snapshot at `offset` would be taken. Says nothing about message boundaries.
    pub fn check(&self, offset: Offset, tail: Offset) -> Result<(), PublishRejection> {
        let latest = self.latest.as_ref().map_or(Offset::ZERO, |latest| latest.offset);
        // First, as a token that was made up may be both: past the tail in one of its parts, below the floor in the other.
        if offset.position > tail.position || offset.append_index > tail.append_index {
            return Err(PublishRejection::BeyondTail { tail });
        }
        if offset.position < self.floor.position {
            return Err(PublishRejection::Retained { floor: self.floor, snapshot: latest });
        }
        if offset.position < latest.position {
            return Err(PublishRejection::Older { snapshot: latest });
        }
        Ok(())
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
            self.floor = offset;
            [self.base.take(), previous]
        };
        for snapshot in replaced.into_iter().flatten().filter(|replaced| replaced.offset != offset) {
            self.superseded.push(Superseded { snapshot, until_ms: superseded_until_ms });
        }
        let excess = self.superseded.len().saturating_sub(SUPERSEDED_SNAPSHOTS_MAX);
        self.superseded.drain(..excess);
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
        self.floor == Offset::ZERO && self.latest.is_none() && self.superseded.is_empty()
    }

    /// Whether what always holds does, for a stream that ends at `tail`.
    pub fn is_sound(&self, tail: Offset) -> bool {
        let ordered = match &self.latest {
            None => self.floor == Offset::ZERO,
            Some(latest) => self.floor <= latest.offset && latest.offset <= tail,
        };
        let is_covered = self.floor == Offset::ZERO || self.kept().any(|kept| kept.offset == self.floor);
        ordered && is_covered
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
        Some(Retention { floor: self.floor, latest, base, superseded: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
