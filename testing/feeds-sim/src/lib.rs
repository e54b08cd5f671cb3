//! Feeds under seeded random faults: one authority and several replicas, the real code of both, over a network that
//! delays, loses, doubles, reorders and breaks off, with servers that are wiped or set back and clients that are copied.
//!
//! A run follows from its seed alone. Time stands still between events. What must always hold is checked during a run;
//! then everything is healed, and what must hold in the end is checked. The numbers I-1 to I-11 in [`check`] are the
//! list of `docs/feeds.md`.

mod check;
mod client;
mod draw;
mod ledger;
mod network;
mod server;
mod trouble;
mod world;

use std::fmt;

pub use crate::world::World;

/// Actions of a run, if nothing else is asked for.
pub const STEPS_DEFAULT: u64 = 250;

/// What a run has found.
#[derive(Debug)]
pub struct Violation {
    /// Which rule, as `I-1`.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// The result of a check.
pub(crate) type Checked = Result<(), Violation>;

/// A violation, unless the condition holds.
pub(crate) fn ensure(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { rule, what: what() }) }
}

/// What a run was like.
#[derive(Debug)]
pub struct Outcome {
    /// What it found.
    pub violation: Option<Violation>,
    /// What happened, in order, if that was asked for.
    pub trace: Vec<String>,
    /// Requests that the authority answered.
    pub requests: u64,
    /// Blocks that were appended locally.
    pub appended: u64,
}

/// Runs one seed.
pub fn run(seed: u64, steps: u64, is_traced: bool) -> Outcome {
    let mut world = World::new(seed, is_traced);
    let violation = world.run(steps).err();
    world.into_outcome(violation)
}
