//! The engine over a real disk, from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod basics;
mod bootstrap;
mod buckets;
mod changes;
mod contract;
mod counted;
mod damage;
mod folding;
mod forks;
mod full_disk;
mod identity;
mod lifetime;
mod lost;
mod many;
mod pieces;
mod retention;
mod snapshots;
mod states;
mod support;
mod trims;
mod world;
