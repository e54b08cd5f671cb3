//! Whether a disk has room for more data: one rule, and one state that everyone asks who stores something.
//!
//! Data is refused before the disk is full, so that what gives room back (deletions, the rewriting of what is left) still
//! has some to work with. Whoever runs a server looks at the disk now and then and tells the [`Room`]; whoever is about to
//! store data asks it, which is one load of an atomic. Between two looks the disk may come to have less than it should: the
//! least that is left free is to be more than can be written meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::disk::Space;

/// One part in so many of the least that is to be free comes on top before data is taken again: the disk of a server that
/// is at its limit would else be short and not short by turns.
const RESUME_DIVISOR: u64 = 4;

/// How much of a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the whole disk.
    Percent(u8),
}

impl Share {
    /// In bytes, of a disk of this size.
    pub const fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            // The division first: the size of a disk times a hundred may be too large a number.
            Self::Percent(percent) => {
                let percent = percent as u64;
                (total / 100).saturating_mul(percent).saturating_add(total % 100 * percent / 100)
            }
        }
    }
}

/// How much of a disk is to stay free.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoomLimits {
    /// With less, somebody should look after it; none for never.
    pub warn: Option<Share>,
    /// With less, no data is taken; none for never.
    pub min: Option<Share>,
}

/// How a disk stands.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// As it should be.
    #[default]
    Enough,
    /// Somebody should look after it.
    Low,
    /// No data is taken.
    Short,
}

impl RoomLimits {
    /// How a disk stands that stood so before. One that came below a limit is above it again only with a quarter of that
    /// limit on top.
    pub fn level(&self, before: Level, space: Space) -> Level {
        let is_below = |share: Option<Share>, was_below: bool| {
            share.is_some_and(|share| {
                let least = share.of(space.total);
                let extra = if was_below { least / RESUME_DIVISOR } else { 0 };
                // Never more than the disk has, or nothing would be enough.
                space.free < least.saturating_add(extra).min(space.total)
            })
        };
        if is_below(self.min, before == Level::Short) {
            Level::Short
        } else if is_below(self.warn, before >= Level::Low) {
            Level::Low
        } else {
            Level::Enough
        }
    }
}

/// What is known of the room on a disk. Clones are the same one. A new one has enough until it is told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Room(Arc<State>);

#[derive(Debug, Default)]
struct State {
    level: AtomicU8,
    free: AtomicU64,
    total: AtomicU64,
    refused: AtomicU64,
    paused: AtomicU64,
    /// Nobody is to be held any more.
    ended: Mutex<bool>,
    changed: Condvar,
}

/// The figures of a room at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoomStanding {
    /// How the disk stands.
    pub level: Level,
    /// Bytes that were free when it was last looked; 0 before the first look.
    pub free: u64,
    /// Bytes of the whole disk.
    pub total: u64,
    /// Writes that were refused.
    pub refused: u64,
    /// Those that wait for room at this moment.
    pub paused: u64,
}

impl Room {
    /// Whether no data is to be taken.
    pub fn is_short(&self) -> bool {
        self.0.level.load(Ordering::Relaxed) == Level::Short as u8
    }

    /// As [`is_short`](Self::is_short), and counts the write that is refused for it.
    pub fn refuses(&self) -> bool {
        let is_short = self.is_short();
        if is_short {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_short
    }

    /// Waits until there is room, or nobody is to be held any more. Blocks.
    pub fn wait(&self) {
        if !self.is_short() {
            return;
        }
        self.0.paused.fetch_add(1, Ordering::Relaxed);
        let mut ended = self.0.ended.lock();
        while self.is_short() && !*ended {
            self.0.changed.wait(&mut ended);
        }
        drop(ended);
        self.0.paused.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets go whoever waits, now and later: the server is about to end, and what it has in hand is to be stored.
    pub fn end(&self) {
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }

    /// Takes in what a look at the disk has found. Returns how the disk stood before and stands now.
    pub fn observe(&self, limits: &RoomLimits, space: Space) -> (Level, Level) {
        self.0.free.store(space.free, Ordering::Relaxed);
        self.0.total.store(space.total, Ordering::Relaxed);
        let before = self.standing().level;
        let level = limits.level(before, space);
        if level != before {
            // Under the lock, so that nobody misses it between looking and waiting.
            let ended = self.0.ended.lock();
            self.0.level.store(level as u8, Ordering::Relaxed);
            drop(ended);
            self.0.changed.notify_all();
        }
        (before, level)
    }

    /// The figures now.
    pub fn standing(&self) -> RoomStanding {
        let state = &self.0;
        let level = match state.level.load(Ordering::Relaxed) {
            0 => Level::Enough,
            1 => Level::Low,
            _ => Level::Short,
        };
        RoomStanding {
            level,
            free: state.free.load(Ordering::Relaxed),
            total: state.total.load(Ordering::Relaxed),
            refused: state.refused.load(Ordering::Relaxed),
            paused: state.paused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RoomLimits = RoomLimits { warn: Some(Share::Bytes(400)), min: Some(Share::Percent(10)) };

    fn space(free: u64) -> Space {
        Space { total: 1000, free }
    }

    #[test]
    fn a_share_is_a_number_of_bytes() {
        assert_eq!(Share::Bytes(7).of(1000), 7);
        assert_eq!(Share::Percent(5).of(1000), 50);
        assert_eq!(Share::Percent(50).of(3), 1);
        assert_eq!(Share::Percent(100).of(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_disk_is_left_alone_between_the_limit_and_a_quarter_above_it() {
        let walk = [
            (500, Level::Enough),
            (400, Level::Enough),
            (399, Level::Low),
            (499, Level::Low),
            (500, Level::Enough),
            (99, Level::Short),
            (100, Level::Short),
            (124, Level::Short),
            (125, Level::Low),
            (100, Level::Low),
            (99, Level::Short),
            (1000, Level::Enough),
        ];
        let room = Room::default();
        for (free, expected) in walk {
            assert_eq!(room.observe(&LIMITS, space(free)).1, expected, "{free}");
            assert_eq!(room.is_short(), expected == Level::Short);
        }
    }

    #[test]
    fn without_limits_a_full_disk_is_enough_and_an_empty_one_always_is() {
        assert_eq!(RoomLimits::default().level(Level::Enough, space(0)), Level::Enough);
        let all = RoomLimits { warn: None, min: Some(Share::Percent(100)) };
        assert_eq!(all.level(Level::Short, space(1000)), Level::Enough, "more is not to be had");
    }

    #[test]
    fn refused_writes_are_counted_and_others_are_not() {
        let room = Room::default();
        assert!(!room.refuses());
        room.observe(&LIMITS, space(0));
        assert!(room.refuses() && room.refuses());
        assert_eq!(room.standing().refused, 2);
    }

    #[test]
    fn who_waits_goes_on_once_there_is_room_or_at_the_end() {
        for ends in [false, true] {
            let room = Room::default();
            room.observe(&LIMITS, space(0));
            let waiting = room.clone();
            let thread = std::thread::spawn(move || waiting.wait());
            while room.standing().paused == 0 {
                std::thread::yield_now();
            }
            if ends {
                room.end();
            } else {
                room.observe(&LIMITS, space(900));
            }
            thread.join().expect("it does not panic");
            assert_eq!(room.standing().paused, 0);
        }
    }

    proptest! {
        /// More room is never worse, whatever was before; and the level says at most what the bare limits say with the
        /// extra.
        #[test]
        fn more_room_is_never_worse(
            before in prop_oneof![Just(Level::Enough), Just(Level::Low), Just(Level::Short)],
            min in 0_u64..1200, warn in 0_u64..1200, free in 0_u64..=1000, more in 0_u64..=1000,
        ) {
            let limits = RoomLimits { warn: Some(Share::Bytes(warn)), min: Some(Share::Bytes(min)) };
            let level = limits.level(before, space(free));
            prop_assert!(limits.level(before, space((free + more).min(1000))) <= level);
            prop_assert_eq!(limits.level(level, space(free)), level, "a second look at the same changes nothing");
        }
    }
}
