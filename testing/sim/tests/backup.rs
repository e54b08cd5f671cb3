//! Copies of a running engine: whatever it was doing, an engine that starts on one has everything that was acknowledged.

use alluvium_sim::draw::Drawing;
use alluvium_sim::world::{Setup, World};

const SEEDS: u64 = 60;
const STEPS: u64 = 240;
/// Steps between two copies.
const EVERY: u64 = 17;

#[test]
fn a_copy_of_a_running_engine_has_what_was_acknowledged_and_nothing_wrong() {
    let (mut made, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        let setup = Setup::of_seed(seed);
        let mut world = World::new(setup.clone(), false).unwrap();
        let body_bytes_max = setup.body_bytes_max().into();
        let mut drawing = Drawing::new(seed, setup.shards, body_bytes_max, setup.power_losses());
        for step in 1..=STEPS {
            let operation = drawing.next(world.model(), world.now_ms());
            world.step(operation).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            if step % EVERY == 0 {
                let moved = world.move_to_backup();
                let moved = moved.unwrap_or_else(|error| panic!("seed {seed}, backup at {step}: {error}"));
                *(if moved { &mut made } else { &mut failed }) += 1;
            }
        }
        world.finish().unwrap_or_else(|error| panic!("seed {seed}, at its end: {error}"));
    }
    assert!(made > 500 && failed > 0, "{made} copies were made, {failed} failed");
}
