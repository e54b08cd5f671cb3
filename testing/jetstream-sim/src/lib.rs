//! The ingest of a Jetstream against a network from a seed: a relay, directories and servers that answer from a
//! [`World`], an archive in memory that forgets what it did not sync, and a clock that is moved by hand.

mod archive;
pub mod compare;
mod internet;
mod power;
mod setting;
mod stall;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_env::{Clock, Random};
use alluvium_jetstream_ingest::ingest::Seams;
use alluvium_jetstream_simulator::World;
use parking_lot::Mutex;

pub use archive::{Archive, Fold, fold};
pub use internet::Internet;
pub use power::Power;
pub use setting::Setting;
pub use stall::Stall;
pub use wire::{Fault, Wire};

/// A world that several threads look at.
pub type Shared = Arc<Mutex<World>>;

/// A clock that stands until it is moved.
#[derive(Debug)]
pub struct Time(AtomicU64);

impl Time {
    /// At a moment, in microseconds since 1970.
    pub fn at(micros: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(micros)))
    }

    /// Moves it forward to a moment.
    pub fn reach(&self, micros: u64) {
        self.0.fetch_max(micros, Ordering::Relaxed);
    }

    /// Moves it forward.
    pub fn advance(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for Time {
    fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers that are no surprise. Waits between connections are zero with them.
#[derive(Debug)]
pub struct NoJitter;

impl Random for NoJitter {
    fn next_u64(&self) -> u64 {
        0
    }
}

/// The outside of an ingest.
pub fn seams(archive: &Arc<Archive>, internet: &Arc<Internet>, time: &Arc<Time>) -> Seams {
    Seams {
        sink: archive.clone(),
        store: archive.clone(),
        network: internet.clone(),
        clock: time.clone(),
        random: Arc::new(NoJitter),
    }
}
