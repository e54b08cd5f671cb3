//! A seeded simulation of the engine: the real code over a disk that loses what was never synced, driven step by
//! step by one thread, against a small model that shares no code with it.
//!
//! A run follows from its seed alone: operations, times, faults and what each crash leaves. After every start the
//! recovered state must be the model's state after some first part of the commands that were under way, and after
//! all that were answered; every message, boundary, flag and producer is compared through reads and requests.
//!
//! The store contract has a smaller world of its own, `tests/store.rs`.
//!
//! `cargo run -p alluvium-sim --release -- --seeds 0..5000` runs many seeds and prints those that fail;
//! `--seeds 17..18 --trace` prints what seed 17 did, down to each operation of the disk.

mod check;
mod client;
mod cuts;
pub mod draw;
pub mod model;
pub mod operation;
mod recovery;
pub mod report;
mod requests;
mod retention;
pub mod world;

use crate::draw::Drawing;
use crate::report::{Counts, Violation};
use crate::world::{Setup, World};

/// Steps of a run unless told otherwise.
pub const STEPS_DEFAULT: u64 = 300;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong, if anything was.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// A hash over every disk operation: the same for the same seed.
    pub trace_hash: u64,
    /// The operations of the run and of its disk, if they were to be kept.
    pub log: Vec<String>,
}

/// Runs one seed for a number of steps.
pub fn run(seed: u64, steps: u64, keep_log: bool) -> Outcome {
    let setup = Setup::of_seed(seed);
    let mut world = match World::new(setup.clone(), keep_log) {
        Ok(world) => world,
        Err(violation) => {
            let (counts, log) = (Counts::default(), Vec::new());
            return Outcome { violation: Some(violation), counts, trace_hash: 0, log };
        }
    };
    let mut drawing = Drawing::new(seed, setup.shards, setup.body_bytes_max().into(), setup.power_losses());
    let violation = drive(&mut world, &mut drawing, steps).err();
    world.outcome(violation)
}

fn drive(world: &mut World, drawing: &mut Drawing, steps: u64) -> Result<(), Violation> {
    for _ in 0..steps {
        let operation = drawing.next(world.model(), world.now_ms());
        world.step(operation)?;
    }
    world.finish()
}
