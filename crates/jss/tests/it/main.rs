//! Segments on a simulated disk: what is written is read, what is cut off is what was not acknowledged, and damage is
//! found.
#![expect(clippy::unwrap_used, reason = "what is shared by tests fails as they do")]

mod crashes;
mod damage;
mod model;
mod prepared;
mod replacing;
mod world;
