//! The narrow seams to the outside world: the wall clock, randomness and the disk; and whether that has [`room`].
//!
//! Libraries of this workspace never read the clock, draw randomness or touch a file by themselves: they are
//! handed an [`Env`]. The server gives them [`Env::real`]; tests and the seeded simulation give them the
//! implementations of [`sim`], where time is moved by hand, randomness follows from a seed, and the disk loses
//! everything that was never synced.
//!
//! What a disk promises, and what it doesn't, is written on the traits in [`mod@disk`]; both implementations are
//! held to it.

mod clock;
pub mod disk;
mod finding;
mod network;
mod random;
mod real;
pub mod room;
pub mod sim;

use std::sync::Arc;

pub use crate::clock::{Clock, SystemClock};
pub use crate::disk::{Disk, DiskFile, DiskLock, OpenMode, Space};
pub use crate::finding::{Finding, FindingKind};
pub use crate::network::is_public;
pub use crate::random::{OsRandom, Random};
pub use crate::real::{FileMap, RealDisk};
pub use crate::room::{Level, Room, RoomLimits, RoomStanding, Share};

/// Everything a library may know of the outside world. Cloning shares the same clock, randomness and disk.
#[derive(Clone, Debug)]
pub struct Env {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Where unguessable numbers come from.
    pub random: Arc<dyn Random>,
    /// Where files live.
    pub disk: Arc<dyn Disk>,
}

impl Env {
    /// The operating system's clock, randomness and file system.
    pub fn real() -> Self {
        Self { clock: Arc::new(SystemClock), random: Arc::new(OsRandom), disk: Arc::new(RealDisk) }
    }
}
