//! From a cursor to the row where a feed begins.

use std::time::Duration;

use alluvium_jetstream_archive::{Archive, Error};
use alluvium_jetstream_wire::{Cursor, Wire};

/// Where a feed begins.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Start {
    /// With what comes from now on.
    Live,
    /// With this row, or the first one after it that is there.
    At(u64),
    /// With this row, which is later than the time that was asked for.
    Clamped(u64),
    /// It lies before what a feed may give.
    TooOld { cursor: u64, floor: u64 },
}

/// The first row that a feed may begin with; 0 while nothing is sealed.
pub(crate) fn floor(archive: &Archive, lookback: Duration) -> u64 {
    let micros = i64::try_from(lookback.as_micros()).unwrap_or(i64::MAX);
    archive.floor_at_time(now(archive).saturating_sub(micros))
}

/// Microseconds since the Unix epoch.
fn now(archive: &Archive) -> i64 {
    i64::try_from(archive.env().clock.now_us()).unwrap_or(i64::MAX)
}

/// Resolves a cursor. May read a few blocks, and waits for the disk with the thread.
pub(crate) fn start(
    archive: &Archive,
    lookback: Duration,
    wire: Wire,
    cursor: Option<Cursor>,
) -> Result<Start, Error> {
    let Some(cursor) = cursor.filter(|_| !lookback.is_zero()) else { return Ok(Start::Live) };
    let (floor, next) = (floor(archive, lookback), archive.next_seq());
    Ok(match cursor {
        // The next event, which may come before the answer has gone out.
        Cursor::Seq(seq) if seq == next => Start::At(seq),
        Cursor::Seq(seq) if seq > next => Start::Live,
        Cursor::Seq(seq) if seq >= floor => Start::At(seq),
        Cursor::Seq(_) if wire == Wire::V1 => Start::At(floor),
        #[cfg(feature = "planted-bugs")]
        Cursor::Seq(_) if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::FloorClamps) => {
            Start::At(floor)
        }
        Cursor::Seq(cursor) => Start::TooOld { cursor, floor },
        Cursor::Time(time) if time > now(archive) => Start::Live,
        Cursor::Time(time) => match archive.first_at_time(time)? {
            seq if seq < floor => Start::Clamped(floor),
            seq => Start::At(seq),
        },
    })
}
