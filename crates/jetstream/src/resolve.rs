//! From a cursor to the row where a feed begins.

use std::time::Duration;

use alluvium_jetstream_archive::{Archive, Error};
use alluvium_jetstream_wire::{Cursor, Wire};

use crate::metrics::CursorMode;

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

impl Start {
    /// What became of the cursor with which this was asked for.
    pub(crate) fn mode(self, cursor: Option<Cursor>, lookback: Duration) -> CursorMode {
        match (self, cursor) {
            (_, None) => CursorMode::Live,
            (_, Some(_)) if lookback.is_zero() => CursorMode::Disabled,
            (Self::TooOld { .. }, _) => CursorMode::TooOld,
            (Self::Live | Self::Clamped(_), _) => CursorMode::Clamped,
            (Self::At(start), Some(Cursor::Seq(seq))) if seq.max(1) < start => CursorMode::Clamped,
            (Self::At(_), Some(Cursor::Seq(_))) => CursorMode::Seq,
            (Self::At(_), Some(Cursor::Time(_))) => CursorMode::Time,
        }
    }
}

/// The first row that a feed may begin with; 0 while nothing is sealed. Where feeds begin with what comes, the next one.
pub(crate) fn floor(archive: &Archive, lookback: Duration) -> u64 {
    if lookback.is_zero() {
        return archive.next_seq();
    }
    let micros = i64::try_from(lookback.as_micros()).unwrap_or(i64::MAX);
    archive.floor_at_time(now(archive).saturating_sub(micros))
}

/// When the first row of a floor was seen, in microseconds since the Unix epoch; none while nothing is sealed.
pub(crate) fn floor_time(archive: &Archive, floor: u64) -> Option<i64> {
    let manifest = archive.manifest();
    let segment = manifest.segments.iter().find(|segment| floor > 0 && segment.header().min_seq == floor)?;
    Some(segment.header().min_witnessed_at)
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
