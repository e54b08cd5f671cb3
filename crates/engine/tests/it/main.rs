//! The engine over a real disk, from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod basics;
mod damage;
mod folding;
mod forks;
mod full_disk;
mod lifetime;
mod pieces;
mod support;
mod world;
