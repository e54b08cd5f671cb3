//! The disks: what of them is free.

use alluvium_env::{Level, RoomStanding};
use alluvium_metrics::Page;

use super::families as f;

/// How a disk stands.
pub(crate) fn disk(page: &mut Page, what: &'static str, standing: &RoomStanding) {
    page.whole(&f::DISK_FREE_BYTES, &[what], standing.free);
    page.whole(&f::DISK_SIZE_BYTES, &[what], standing.total);
    let level = match standing.level {
        Level::Enough => 0,
        Level::Low => 1,
        Level::Short => 2,
    };
    page.whole(&f::DISK_LEVEL, &[what], level);
    page.whole(&f::DISK_REFUSED, &[what], standing.refused);
    page.whole(&f::DISK_PAUSED, &[what], standing.paused);
}
