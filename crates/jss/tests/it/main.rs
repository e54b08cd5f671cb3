//! Segments on a simulated disk: what is written is read, what is cut off is what was not acknowledged, and damage is
//! found.

mod crashes;
mod damage;
mod model;
mod replacing;
mod world;
